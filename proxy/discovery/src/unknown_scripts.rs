//! Calls of scripts whose text is unknown: clients call them by digest, and the text never passed through. What they
//! did to their keys was not seen, so less is known of these keys' patterns than it seems.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use lockwarden_lock::script_facts::ScriptSha;

use crate::patterns::{PatternId, Patterns};

/// Scripts that are counted separately for each pattern of keys; further calls are counted together.
const MAX_COUNTED: usize = 1_000;
/// Scripts that are listed for one pattern.
const MAX_NAMED: usize = 4;

/// Calls of unknown scripts with keys of one pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownScript {
    /// A Redis glob.
    pub glob: Vec<u8>,
    /// One of the keys.
    pub example: Bytes,
    /// Calls of all these scripts.
    pub calls: u64,
    /// Their digests; only some where there are many.
    pub scripts: Vec<ScriptSha>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct UnknownScripts {
    counted: HashMap<(PatternId, ScriptSha), (u64, Bytes)>,
    beyond: u64,
}

impl UnknownScripts {
    /// An unknown script was called with this key as its first.
    pub(crate) fn called(&mut self, pattern: PatternId, sha: ScriptSha, key: &Bytes) {
        if let Some((calls, _)) = self.counted.get_mut(&(pattern, sha)) {
            *calls += 1;
        } else if self.counted.len() < MAX_COUNTED {
            self.counted.insert((pattern, sha), (1, key.clone()));
        } else {
            self.beyond += 1;
        }
    }

    /// Calls that were not counted separately.
    pub(crate) fn beyond(&self) -> u64 {
        self.beyond
    }

    /// The calls by pattern, the most called first, without scripts that have become known since.
    pub(crate) fn by_pattern(&self, patterns: &Patterns, is_known: &dyn Fn(&ScriptSha) -> bool) -> Vec<UnknownScript> {
        let mut all: BTreeMap<PatternId, UnknownScript> = BTreeMap::new();
        for ((pattern, sha), (calls, example)) in &self.counted {
            if is_known(sha) {
                continue;
            }
            let pattern = patterns.current(*pattern);
            let one = all.entry(pattern).or_insert_with(|| UnknownScript {
                glob: patterns.glob(pattern),
                example: example.clone(),
                calls: 0,
                scripts: Vec::new(),
            });
            one.calls += calls;
            one.scripts.push(*sha);
        }
        let mut all: Vec<UnknownScript> = all.into_values().collect();
        for one in &mut all {
            one.scripts.sort();
            one.scripts.truncate(MAX_NAMED);
        }
        all.sort_by(|a, b| b.calls.cmp(&a.calls).then_with(|| a.glob.cmp(&b.glob)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_counted_by_pattern_until_the_script_is_known() {
        let mut patterns = Patterns::default();
        let mut unknown = UnknownScripts::default();
        let (one, other) = (ScriptSha::of(b"1"), ScriptSha::of(b"2"));
        for number in 10..40 {
            let key = Bytes::from(format!("acct:{number}"));
            let pattern = patterns.find(&key, &mut Vec::new()).expect("there is room");
            unknown.called(pattern, one, &key);
            if number < 15 {
                unknown.called(pattern, other, &key);
            }
        }
        let all = unknown.by_pattern(&patterns, &|_| false);
        assert_eq!(all.len(), 1);
        assert_eq!((&all[0].glob[..], all[0].calls), (&b"acct:*"[..], 35));
        assert_eq!(all[0].scripts.len(), 2);
        let all = unknown.by_pattern(&patterns, &|sha| *sha == one);
        assert_eq!((all[0].calls, &all[0].scripts[..]), (5, &[other][..]));
        assert!(unknown.by_pattern(&patterns, &|_| true).is_empty());
    }

    #[test]
    fn there_is_a_bound() {
        let mut patterns = Patterns::default();
        let mut unknown = UnknownScripts::default();
        let key = Bytes::from_static(b"a");
        let pattern = patterns.find(&key, &mut Vec::new()).expect("there is room");
        for number in 0..MAX_COUNTED + 10 {
            unknown.called(pattern, ScriptSha::of(number.to_string().as_bytes()), &key);
        }
        assert_eq!((unknown.counted.len(), unknown.beyond()), (MAX_COUNTED, 10));
        let all = unknown.by_pattern(&patterns, &|_| false);
        assert_eq!(all[0].scripts.len(), MAX_NAMED);
    }
}
