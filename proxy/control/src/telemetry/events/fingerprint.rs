//! The value shown to people in place of an owner token: equal for equal tokens, and of no use without the key. With an
//! operator's key it is the same in every proxy with that key, and after a restart; without one it is valid for this
//! process.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};

use sha2::{Digest, Sha256};

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

/// Makes fingerprints with one key.
pub enum Fingerprints {
    /// SipHash with a random key that only this process has: a tenth of the instructions of the other. Without the key
    /// owner tokens cannot be tried out, and no other process needs the same fingerprint.
    OfProcess(RandomState),
    /// The first eight bytes of SHA-256 over a block made of the operator's key, and the owner token. The block is hashed
    /// once, here. The rest of the hash is cut off, so that the hash cannot be continued from its end.
    OfOperator(Sha256),
}

impl Fingerprints {
    /// With a key that only this process has.
    pub fn random() -> Fingerprints {
        Fingerprints::OfProcess(RandomState::new())
    }

    /// With the operator's key, of any length.
    pub fn with_key(key: &[u8]) -> Fingerprints {
        let mut block = [0; BLOCK];
        let digest = Sha256::digest(key);
        block[..digest.len()].copy_from_slice(&digest);
        Fingerprints::OfOperator(Sha256::new().chain_update(block))
    }

    pub(super) fn of(&self, token: &[u8]) -> Fingerprint {
        let hash = match self {
            Fingerprints::OfProcess(keyed) => {
                let mut hasher = keyed.build_hasher();
                hasher.write(token);
                hasher.finish()
            }
            Fingerprints::OfOperator(begun) => {
                let digest = begun.clone().chain_update(token).finalize();
                digest.iter().take(8).fold(0, |hash, byte| hash << 8 | u64::from(*byte))
            }
        };
        Fingerprint { hash, length: token.len() }
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
        let (this, other) = (Fingerprints::random(), Fingerprints::random());
        assert_eq!(this.of(b"token"), this.of(b"token"));
        assert_ne!(this.of(b"token"), this.of(b"tokens"));
        assert_ne!(this.of(b"token"), other.of(b"token"));
        assert_ne!(one, this.of(b"token"));
        assert_eq!(one.to_string().len(), 16);
    }
}
