//! Locks that one client takes and another releases, again and again: queues of jobs use them so. The observation
//! `handed-over` tells which setting such a namespace needs. This module remembers kinds of keys, by a hash, and
//! refuses nothing.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// From this many releases on it is no accident.
const AGAIN_AND_AGAIN: u32 = 3;
/// Two releases at most this far apart belong together.
const WITHIN: Duration = Duration::from_secs(24 * 3600);
/// Kinds of keys that are remembered; beyond this limit the one that was not met for the longest time is forgotten.
const MAX_KINDS: usize = 1024;

/// See the module.
#[derive(Default)]
pub(crate) struct HandOvers {
    hasher: RandomState,
    kinds: Mutex<HashMap<u64, Kind>>,
}

/// Keys that differ only in their numbers.
struct Kind {
    releases: u32,
    last: Instant,
}

impl HandOvers {
    /// A client that neither took a lock nor tried to wanted to release it without naming an owner token. Returns
    /// whether that has happened often enough to locks of this kind.
    pub(crate) fn given_back(&self, namespace: &str, key: &[u8], now: Instant) -> bool {
        let name = self.name(namespace, key);
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        if kinds.len() >= MAX_KINDS && !kinds.contains_key(&name) {
            let oldest = kinds.iter().min_by_key(|(_, kind)| kind.last);
            if let Some(oldest) = oldest.map(|(name, _)| *name) {
                kinds.remove(&oldest);
            }
        }
        let kind = kinds.entry(name).or_insert(Kind { releases: 0, last: now });
        if now.saturating_duration_since(kind.last) > WITHIN {
            kind.releases = 0;
        }
        kind.last = now;
        kind.releases = kind.releases.saturating_add(1);
        kind.releases >= AGAIN_AND_AGAIN
    }

    /// Names the kind of a key: all words that contain a digit are treated as equal.
    fn name(&self, namespace: &str, key: &[u8]) -> u64 {
        let mut hash = self.hasher.build_hasher();
        hash.write(namespace.as_bytes());
        for word in key.split_inclusive(|byte| !byte.is_ascii_alphanumeric()) {
            if word.iter().any(u8::is_ascii_digit) {
                // The separator after the word, or nothing.
                let end = word.last().filter(|byte| !byte.is_ascii_alphanumeric());
                hash.write_u8(*end.unwrap_or(&b'0'));
            } else {
                hash.write(word);
            }
            hash.write_u8(0xff);
        }
        hash.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_differ_only_in_their_numbers_are_of_one_kind() {
        let all = HandOvers::default();
        let kind = |key: &str| all.name("jobs", key.as_bytes());
        let first = kind("SINGLETONLOCK_0b9d4f7e9c553a1d");
        assert_eq!(first, kind("SINGLETONLOCK_7f4c1e2a0b9d4f7e"));
        assert_eq!(kind("qo_tasks.add_a-1_b-2"), kind("qo_tasks.add_a-17_b-3"));
        for other in ["SINGLETONLOCK", "SINGLETONLOCK:1", "OTHERLOCK_1"] {
            assert_ne!(first, kind(other), "{other}");
        }
        assert_ne!(first, all.name("orders", b"SINGLETONLOCK_1"));
    }

    #[test]
    fn the_third_within_a_day_is_no_accident() {
        let (all, start) = (HandOvers::default(), Instant::now());
        let given_back = |key: &str, at| all.given_back("jobs", key.as_bytes(), at);
        assert!(!given_back("a1", start));
        assert!(!given_back("a2", start));
        assert!(!given_back("b", start), "of another kind");
        assert!(given_back("a3", start + WITHIN));
        assert!(!given_back("a4", start + WITHIN * 2 + Duration::from_secs(1)));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (all, start) = (HandOvers::default(), Instant::now());
        let word = |n: usize| -> String {
            let letters = n.to_string().into_bytes();
            letters.iter().map(|digit| char::from(digit + 49)).collect()
        };
        for n in 0..=MAX_KINDS {
            let at = start + Duration::from_millis(n as u64);
            all.given_back("jobs", word(n).as_bytes(), at);
        }
        assert_eq!(all.kinds.lock().unwrap().len(), MAX_KINDS);
    }
}
