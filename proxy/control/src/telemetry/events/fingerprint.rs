//! The value shown to people in place of an owner token: equal for equal tokens, and of no use without the key. With an
//! operator's key it is the same in every proxy with that key, and after a restart; without one it is valid for this
//! process.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::random;

/// The size of one block of SHA-256, bytes.
const BLOCK: usize = 64;

/// Stands for an owner token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    pub(super) hash: u64,
    /// How long the owner token is, bytes.
    pub(crate) length: usize,
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.hash)
    }
}

/// Makes fingerprints with one key: the first eight bytes of SHA-256 over a block made of the key, and the owner token.
/// The block is hashed once, here. The rest of the hash is cut off, so that the hash cannot be continued from its end.
pub struct Fingerprints(Sha256);

impl Fingerprints {
    /// With a key that only this process has.
    pub fn random() -> Fingerprints {
        let mut key = [0; 32];
        random::fill(&mut key);
        Fingerprints::with_key(&key)
    }

    /// With the operator's key, of any length.
    pub fn with_key(key: &[u8]) -> Fingerprints {
        let mut block = [0; BLOCK];
        let digest = Sha256::digest(key);
        block[..digest.len()].copy_from_slice(&digest);
        Fingerprints(Sha256::new().chain_update(block))
    }

    pub(super) fn of(&self, token: &[u8]) -> Fingerprint {
        let digest = self.0.clone().chain_update(token).finalize();
        let hash = digest.iter().take(8);
        Fingerprint { hash: hash.fold(0, |hash, byte| hash << 8 | u64::from(*byte)), length: token.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_key_makes_the_same_fingerprint_everywhere_and_another_key_another() {
        let one = Fingerprints::with_key(b"the operator's").of(b"token");
        assert_eq!(one, Fingerprints::with_key(b"the operator's").of(b"token"));
        assert_ne!(one, Fingerprints::with_key(b"another one's").of(b"token"));
        assert_ne!(one, Fingerprints::random().of(b"token"));
        assert_eq!(one.to_string().len(), 16);
    }
}
