//! A lock key in its logical database: the name of a lock everywhere. It is hashed once, when it is made, however many
//! maps it is then looked up in: one lock command looks up its lock in five of them.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::sync::LazyLock;

use bytes::Bytes;

/// See the module.
#[derive(Clone, Eq)]
pub struct DbKey {
    /// The logical database. Must not be changed, like the key: it is part of the hash.
    pub db: u32,
    /// The key as sent.
    pub key: Bytes,
    hash: KeyHash,
}

/// The hash of a lock's name: equal for equal names, valid within this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyHash(pub(crate) u64);

/// A map by lock.
pub type DbMap<V> = HashMap<DbKey, V, BuildHasherDefault<Hashed>>;
/// A map by words that no client chooses.
pub type NamedMap<K, V> = HashMap<K, V, BuildHasherDefault<Hashed>>;
/// A set of locks.
pub type DbSet = HashSet<DbKey, BuildHasherDefault<Hashed>>;

impl DbKey {
    /// Names a lock.
    pub fn new(db: u32, key: Bytes) -> DbKey {
        // Clients choose the keys, so it must not be possible to predict which of them collide.
        static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let mut hasher = SEED.build_hasher();
        hasher.write(&key);
        hasher.write_u32(db);
        let hash = KeyHash(hasher.finish());
        DbKey { db, key, hash }
    }

    /// The same key cut to at most this many bytes, in a buffer of its own: a slice keeps the whole buffer of the
    /// client's bytes alive.
    #[must_use]
    pub fn copied(&self, most: usize) -> DbKey {
        DbKey::new(self.db, Bytes::copy_from_slice(&self.key[..self.key.len().min(most)]))
    }

    /// A number for the shard of this key: from other bits than a map's own places.
    pub fn shard(&self) -> usize {
        (self.hash.0 >> 32) as u32 as usize
    }

    /// Its hash.
    pub(crate) fn hashed(&self) -> KeyHash {
        self.hash
    }
}

impl PartialEq for DbKey {
    fn eq(&self, other: &DbKey) -> bool {
        self.hash == other.hash && self.db == other.db && self.key == other.key
    }
}

impl Hash for DbKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash.0);
    }
}

impl fmt::Debug for DbKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:?}", self.db, self.key)
    }
}

/// Uses the hash that a key already has. Words that no client chooses, such as names of namespaces, are hashed with
/// FNV-1a: fast, but no protection against words made to collide.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_keys_meet_and_others_do_not() {
        let mut map: DbMap<u32> = DbMap::default();
        for (number, name) in ["a", "b", ""].into_iter().enumerate() {
            for db in 0..3 {
                let key = DbKey::new(db, Bytes::from_static(name.as_bytes()));
                assert_eq!(map.insert(key, db + 10 * number as u32), None);
            }
        }
        for (number, name) in ["a", "b", ""].into_iter().enumerate() {
            let key = DbKey::new(2, Bytes::copy_from_slice(name.as_bytes()));
            assert_eq!(map.get(&key), Some(&(2 + 10 * number as u32)));
        }
        assert_eq!(map.get(&DbKey::new(3, Bytes::from_static(b"a"))), None);
    }
}
