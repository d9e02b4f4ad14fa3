//! Hashes of keys.

/// A hash of a key and its database: equal for equal keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyHash(u64);

impl KeyHash {
    /// The hash of this key.
    pub fn of(db: u32, key: &[u8]) -> KeyHash {
        KeyHash(twox_hash::XxHash3_64::oneshot_with_seed(u64::from(db), key))
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.0
    }
}
