//! A lock key in its logical database: the name of a lock everywhere. It is hashed and copied once, when it is made,
//! however many maps it is then looked up in or kept by: one lock command looks up its lock in five of them, and a held
//! lock is a key of as many.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::sync::LazyLock;

use triomphe::ThinArc;

/// See the module. One pointer to bytes of its own, which never keep a client's buffer alive.
#[derive(Clone)]
pub struct DbKey(ThinArc<Head, u8>);

/// Stands before the key's bytes.
#[derive(Clone, Copy)]
struct Head {
    hash: KeyHash,
    db: u32,
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
    pub fn new(db: u32, key: &[u8]) -> DbKey {
        // Clients choose the keys, so it must not be possible to predict which of them collide.
        static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let mut hasher = SEED.build_hasher();
        hasher.write(key);
        hasher.write_u32(db);
        let hash = KeyHash(hasher.finish());
        DbKey(ThinArc::from_header_and_slice(Head { hash, db }, key))
    }

    /// The logical database.
    pub fn db(&self) -> u32 {
        self.head().db
    }

    /// The key as sent.
    pub fn bytes(&self) -> &[u8] {
        &self.0.slice
    }

    fn head(&self) -> &Head {
        &self.0.header.header
    }

    /// The same key, cut to at most this many bytes.
    #[must_use]
    pub fn cut(&self, most: usize) -> DbKey {
        match self.bytes().len() > most {
            true => DbKey::new(self.db(), &self.bytes()[..most]),
            false => self.clone(),
        }
    }

    /// A number for the shard of this key: from other bits than a map's own places.
    pub fn shard(&self) -> usize {
        (self.hashed().0 >> 32) as u32 as usize
    }

    /// Its hash.
    pub(crate) fn hashed(&self) -> KeyHash {
        self.head().hash
    }
}

impl PartialEq for DbKey {
    fn eq(&self, other: &DbKey) -> bool {
        self.hashed() == other.hashed() && self.db() == other.db() && self.bytes() == other.bytes()
    }
}

impl Eq for DbKey {}

/// By database, then by name.
impl Ord for DbKey {
    fn cmp(&self, other: &DbKey) -> Ordering {
        (self.db(), self.bytes()).cmp(&(other.db(), other.bytes()))
    }
}

impl PartialOrd for DbKey {
    fn partial_cmp(&self, other: &DbKey) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Hash for DbKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hashed().0);
    }
}

impl fmt::Debug for DbKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:b\"{}\"", self.db(), self.bytes().escape_ascii())
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
                let key = DbKey::new(db, name.as_bytes());
                assert_eq!(map.insert(key, db + 10 * number as u32), None);
            }
        }
        for (number, name) in ["a", "b", ""].into_iter().enumerate() {
            let key = DbKey::new(2, name.as_bytes());
            assert_eq!(map.get(&key), Some(&(2 + 10 * number as u32)));
        }
        assert_eq!(map.get(&DbKey::new(3, b"a")), None);
    }
}
