//! What stands for an owner token wherever people see one: equal for equal ones, and of no use to who
//! does not have the key. With the operator's key it is the same in every proxy that has it and after a
//! restart; without one it is good for this process.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::random;

/// Bytes that SHA-256 takes at a time.
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

/// Makes fingerprints with one key: the first eight bytes of SHA-256 over a block made of the key, and
/// the owner token. The block is hashed once, here. What is cut off keeps anybody from going on with
/// the hash where it ends.
pub struct Fingerprints(Sha256);

impl Fingerprints {
    /// With a key of this process alone.
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
