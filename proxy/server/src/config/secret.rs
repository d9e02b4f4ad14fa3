//! Passwords and the admin token: text that is used and never shown. Owns how secrets are read from
//! files of their own; who needs one asks [`Secret::expose`], which is easy to find in a review.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Longest secret, in bytes; a file that is longer is likely not the file that was meant.
const LONGEST: usize = 4096;

/// Text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Secret(String);

impl Secret {
    /// Keeps `text` from being printed by accident.
    pub(crate) fn new(text: String) -> Secret {
        Secret(text)
    }

    /// The secret itself, for the one place that has to send or compare it.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// A password may be any text that is not empty; the error never repeats it.
pub(super) fn password(text: &str) -> Result<Secret, String> {
    match text.len() {
        0 => Err("is empty; leave it out if there is none".to_owned()),
        1..=LONGEST => Ok(Secret::new(text.to_owned())),
        _ => Err(format!("is longer than {LONGEST} bytes")),
    }
}

/// An admin token travels in an `Authorization: Bearer` header, so it is printable ASCII.
pub(crate) fn admin_token(text: &str) -> Result<Secret, String> {
    let secret = password(text)?;
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("may hold only printable ASCII characters and no spaces; \
                    `openssl rand -hex 32` prints a good one"
            .to_owned());
    }
    Ok(secret)
}

/// The admin token in a file of its own.
pub(crate) fn admin_token_in(path: &Path) -> Result<Secret, String> {
    admin_token(&read_file(path)?)
        .map_err(|wrong| format!("the text in {} {wrong}", path.display()))
}

/// The text of a secret's own file, without the newline that editors add.
pub(super) fn read_file(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(LONGEST as u64 + 3).read_to_end(&mut bytes))
        .map_err(|error| format!("cannot read {shown}: {error}"))?;
    let text = String::from_utf8(bytes).map_err(|_| format!("{shown} is not UTF-8 text"))?;
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    match text.len() {
        0 => Err(format!("{shown} is empty")),
        1..=LONGEST => Ok(text.to_owned()),
        _ => Err(format!("{shown} is longer than {LONGEST} bytes")),
    }
}
