//! The keys that a server has now, folded into patterns, with a closer look at a few of each. It only shows names and
//! the form of values: whether a key is a lock shows in how it is used.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;

use crate::patterns::{Merged, PatternId, Patterns};
use crate::verdict::is_lock_word;

/// Keys of a pattern that are examined closely.
const MAX_CLOSE: u64 = 20;
/// A longer value is content, bytes.
const LONG_VALUE: u64 = 256;

/// The result of a closer look at one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// The reply to `TYPE`.
    pub kind: String,
    /// What is left of its TTL, ms; `None` for none.
    pub ttl_ms: Option<u64>,
    /// How long it has not been used, s, where the server reports that.
    pub idle_s: Option<u64>,
    /// The length of a string, bytes.
    pub length: Option<u64>,
}

/// What is known of the keys of one pattern.
#[derive(Clone, Debug, Default)]
pub struct Surveyed {
    /// A key.
    pub example: Bytes,
    /// How many there are.
    pub keys: u64,
    /// How many were examined closely.
    pub looked: u64,
    /// Of those, how many are of which type.
    pub kinds: BTreeMap<String, u64>,
    /// Of those, how many have no TTL.
    pub without_ttl: u64,
    /// Of those, the longest TTL, ms.
    pub longest_ttl_ms: Option<u64>,
    /// Of those, the longest time without use, s.
    pub longest_idle_s: Option<u64>,
    /// Of those, the longest string, bytes.
    pub longest_value: Option<u64>,
}

/// What is reported about one pattern.
#[derive(Clone, Debug)]
pub struct KeysAlike {
    /// A Redis glob.
    pub glob: Vec<u8>,
    /// What is known.
    pub surveyed: Surveyed,
    /// Its name and its values look like those of locks.
    pub may_be_locks: bool,
}

/// See the module.
#[derive(Default)]
pub struct Survey {
    patterns: Patterns,
    surveyed: HashMap<PatternId, Surveyed>,
    beyond: u64,
}

impl Survey {
    /// Adds a key. Returns whether it needs a closer look.
    pub fn add(&mut self, key: &Bytes) -> bool {
        let Some(pattern) = self.place(key) else {
            self.beyond += 1;
            return false;
        };
        let surveyed = self.surveyed.entry(pattern).or_default();
        if surveyed.keys == 0 {
            surveyed.example = key.clone();
        }
        surveyed.keys += 1;
        surveyed.looked < MAX_CLOSE
    }

    /// Records the result of a closer look at a key.
    pub fn looked(&mut self, key: &Bytes, look: Look) {
        let Some(pattern) = self.place(key) else {
            return;
        };
        let surveyed = self.surveyed.entry(pattern).or_default();
        surveyed.looked += 1;
        surveyed.without_ttl += u64::from(look.ttl_ms.is_none());
        *surveyed.kinds.entry(look.kind).or_default() += 1;
        surveyed.longest_ttl_ms = surveyed.longest_ttl_ms.max(look.ttl_ms);
        surveyed.longest_idle_s = surveyed.longest_idle_s.max(look.idle_s);
        surveyed.longest_value = surveyed.longest_value.max(look.length);
    }

    /// Keys whose pattern found no room.
    pub fn beyond(&self) -> u64 {
        self.beyond
    }

    /// Every pattern. Those that may be locks come first, then those with the most keys.
    pub fn patterns(&self) -> Vec<KeysAlike> {
        let mut all: Vec<KeysAlike> = self
            .surveyed
            .iter()
            .map(|(id, surveyed)| {
                let shape = self.patterns.shape(*id);
                let is_named = shape.names().any(|word| is_lock_word(&word));
                let is_short = surveyed.longest_value.is_none_or(|bytes| bytes <= LONG_VALUE);
                KeysAlike { glob: shape.glob(), surveyed: surveyed.clone(), may_be_locks: is_named && is_short }
            })
            .collect();
        all.sort_by(|a, b| {
            let locks = b.may_be_locks.cmp(&a.may_be_locks);
            let most = locks.then(b.surveyed.keys.cmp(&a.surveyed.keys));
            most.then_with(|| a.glob.cmp(&b.glob))
        });
        all
    }

    fn place(&mut self, key: &[u8]) -> Option<PatternId> {
        let mut merged = Vec::new();
        let found = self.patterns.find(key, &mut merged);
        for Merged { from, into } in merged {
            let into = self.patterns.current(into);
            if let Some(from) = self.surveyed.remove(&from) {
                self.surveyed.entry(into).or_default().add(from);
            }
        }
        found
    }
}

impl Surveyed {
    fn add(&mut self, other: Surveyed) {
        if self.keys == 0 {
            self.example = other.example;
        }
        self.keys += other.keys;
        self.looked += other.looked;
        self.without_ttl += other.without_ttl;
        for (kind, count) in other.kinds {
            *self.kinds.entry(kind).or_default() += count;
        }
        self.longest_ttl_ms = self.longest_ttl_ms.max(other.longest_ttl_ms);
        self.longest_idle_s = self.longest_idle_s.max(other.longest_idle_s);
        self.longest_value = self.longest_value.max(other.longest_value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_counted_by_pattern_and_a_few_looked_at() {
        let mut survey = Survey::default();
        let look = |ttl_ms| Look { kind: "string".to_owned(), ttl_ms, idle_s: Some(7), length: Some(1) };
        let mut looks = 0;
        for number in 0..100 {
            let key = Bytes::from(format!("order:{number}:lock"));
            if survey.add(&key) {
                survey.looked(&key, look((number > 3).then_some(5_000)));
                looks += 1;
            }
            survey.add(&Bytes::from(format!("page:{number}")));
        }
        assert_eq!(looks, MAX_CLOSE);
        let all = survey.patterns();
        let globs: Vec<&[u8]> = all.iter().map(|one| &one.glob[..]).collect();
        assert_eq!(globs, [&b"order:*:lock"[..], b"page:*"]);
        assert_eq!((all[0].surveyed.keys, all[0].surveyed.without_ttl), (100, 4));
        assert_eq!(all.iter().map(|one| one.may_be_locks).collect::<Vec<_>>(), [true, false]);
    }
}
