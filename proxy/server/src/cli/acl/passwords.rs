//! The passwords of twins: generated here, kept in files that only their owner can read, and sent to the server as a digest.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use lockwarden_control::config::{self, Secret};
use lockwarden_control::random;
use sha2::{Digest, Sha256};

/// The rule that gives a user this password. It contains only a digest.
pub(super) fn rule(password: &Secret) -> String {
    format!("#{}", hex(&Sha256::digest(password.expose().as_bytes())))
}

/// Generates a password in a new file.
pub(super) fn make(path: &Path) -> io::Result<Secret> {
    let mut bytes = [0; 32];
    random::fill(&mut bytes);
    let password = hex(&bytes);
    // Never overwrites an existing file: it may be in use.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(format!("{password}\n").as_bytes())?;
    file.sync_all()?;
    config::password(&password).map_err(io::Error::other)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
