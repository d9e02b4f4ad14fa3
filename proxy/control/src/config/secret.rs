//! Passwords and the admin token: text that is used and never shown. Owns how secrets are read from files; code that
//! needs one calls [`Secret::expose`], which is easy to find in a review.

use std::fmt;
use std::fs::File;
use std::io;
use std::io::Read;
use std::path::{Path, PathBuf};

/// The longest secret, in bytes; a longer file is probably the wrong file.
pub const MAX_SECRET_BYTES: usize = 4096;

/// Text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps `text`, so that it is not printed by accident.
    pub fn new(text: String) -> Secret {
        Secret(text)
    }

    /// The secret itself, for the code that has to send or compare it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// Why a text cannot be a secret. It never repeats the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    #[error("is empty; leave it out if there is none")]
    Empty,
    #[error("is longer than {MAX_SECRET_BYTES} bytes")]
    TooLong,
    #[error("may hold only printable ASCII characters and no spaces; `openssl rand -hex 32` prints a good one")]
    NotPrintable,
}

/// Why a file has no secret.
#[derive(Debug, thiserror::Error)]
pub enum SecretFileError {
    #[error("cannot read {path}: {error}")]
    Read { path: PathBuf, error: io::Error },
    #[error("{0} is not UTF-8 text")]
    NotText(PathBuf),
    #[error("{0} is empty")]
    Empty(PathBuf),
    #[error("{0} is longer than {MAX_SECRET_BYTES} bytes")]
    TooLong(PathBuf),
    #[error("the text in {path} {wrong}")]
    Unusable { path: PathBuf, wrong: SecretError },
}

/// Removes the newline that editors and programs add.
pub fn without_line_end(text: &str) -> &str {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}

/// A password may be any non-empty text.
pub fn password(text: &str) -> Result<Secret, SecretError> {
    match text.len() {
        0 => Err(SecretError::Empty),
        1..=MAX_SECRET_BYTES => Ok(Secret::new(text.to_owned())),
        _ => Err(SecretError::TooLong),
    }
}

/// An admin token travels in an `Authorization: Bearer` header, so it is printable ASCII.
pub fn admin_token(text: &str) -> Result<Secret, SecretError> {
    let secret = password(text)?;
    match text.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(secret),
        false => Err(SecretError::NotPrintable),
    }
}

/// The admin token in a separate file.
pub fn admin_token_in(path: &Path) -> Result<Secret, SecretFileError> {
    in_file(path, admin_token)
}

/// A password in a separate file.
pub fn password_in(path: &Path) -> Result<Secret, SecretFileError> {
    in_file(path, password)
}

/// Reads the secret in a separate file, without the newline that editors add; `check` validates the text.
pub(super) fn in_file(path: &Path, check: fn(&str) -> Result<Secret, SecretError>) -> Result<Secret, SecretFileError> {
    let named = || path.to_owned();
    let mut bytes = Vec::new();
    // The longest secret, a CR and an LF, and one more byte, which shows that the file is too long.
    File::open(path)
        .and_then(|file| file.take(MAX_SECRET_BYTES as u64 + 3).read_to_end(&mut bytes))
        .map_err(|error| SecretFileError::Read { path: named(), error })?;
    let text = String::from_utf8(bytes).map_err(|_| SecretFileError::NotText(named()))?;
    let text = without_line_end(&text);
    match text.len() {
        0 => Err(SecretFileError::Empty(named())),
        1..=MAX_SECRET_BYTES => check(text).map_err(|wrong| SecretFileError::Unusable { path: named(), wrong }),
        _ => Err(SecretFileError::TooLong(named())),
    }
}
