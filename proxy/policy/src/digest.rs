//! Identifies a module: the SHA-256 of its bytes, and its form for people.

use sha2::{Digest, Sha256};

/// The digest of a module.
pub(crate) fn sha256(module: &[u8]) -> [u8; 32] {
    Sha256::digest(module).into()
}

/// Bytes as lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
