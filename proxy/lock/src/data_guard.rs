//! Guards over data: which lock must be held to write a key. A [`DataGuard`] has patterns of the keys that it covers,
//! and the names of their locks; [`judge`] decides from the lock's record who may write. Pure: the caller reads from
//! Redis, and chooses the WATCH. (A script's guard, [`crate::scripts::guard`], is something else: it checks names of
//! locks that a script computes.)

mod judge;
mod pattern;

pub use judge::{HEAD_BYTES, RecordHead, Refusal, Verdict, Writer, judge};
pub use pattern::{Captures, KeyPattern, LockTemplate, MAX_CAPTURES, PatternError};

use std::sync::Arc;

use lockwarden_resp::Request;
use smallvec::SmallVec;

use crate::rules::{Mode, Rules};
use crate::table::{Access, ForeignTable, KeySpec, Lookup, arity_ok, for_each_foreign_key, for_each_key, lookup};
use crate::token::Grant;

/// The most guards in one configuration.
pub const MAX_GUARDS: usize = 64;
/// The most patterns, and the most locks, of one guard.
pub const MAX_PATTERNS: usize = 16;
/// The most guarded keys that one command may write.
pub const MAX_GUARDED_KEYS: usize = 1_000;

/// Who may write while the lock is free and has never been held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unlocked {
    /// No client.
    #[default]
    Refuse,
    /// Any client.
    Allow,
}

/// One guard.
#[derive(Clone, Debug)]
pub struct DataGuard {
    /// Whether refusals are carried out.
    pub mode: Mode,
    /// Who may write without the lock.
    pub unlocked: Unlocked,
    /// A client with the same distinctive identity as the holder counts as the holder.
    pub by_identity: bool,
    /// The keys that it is about.
    pub keys: Vec<KeyPattern>,
    /// The locks; any one of them is enough.
    pub locks: Vec<LockTemplate>,
}

/// A key that a command would write, and the guard and locks that protect it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guarded {
    /// The guard's place in the configuration.
    pub guard: usize,
    /// The key.
    pub key: SmallVec<[u8; 32]>,
    /// The names of its locks.
    pub locks: SmallVec<[Vec<u8>; 1]>,
}

/// Guarded data that a script may write, with what is needed to judge that in the step that runs the script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptData {
    /// The key, and what protects it.
    pub guarded: Guarded,
    /// Whether a refusal is carried out.
    pub enforced: bool,
    /// A client with the same distinctive identity as the holder counts as the holder.
    pub by_identity: bool,
    /// Who may write without the lock.
    pub unlocked: Unlocked,
    /// For each of its locks: the writer's latest lease that it has not released, and the rules of the lock's
    /// namespace.
    pub writers: SmallVec<[(Option<Grant>, Option<Rules>); 1]>,
}

/// Every guard of a configuration, in its order.
#[derive(Clone, Debug, Default)]
pub struct DataGuards {
    guards: Vec<DataGuard>,
    /// For most keys the first byte shows that nothing guards them.
    by_first_byte: ByFirstByte,
}

/// For each first byte of a key: the guards that may cover it, one bit each.
#[derive(Clone, Debug)]
struct ByFirstByte([u64; 256]);

impl Default for ByFirstByte {
    fn default() -> ByFirstByte {
        ByFirstByte([0; 256])
    }
}

/// More keys than are examined; this is the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TooMany(pub Box<Guarded>);

impl DataGuards {
    /// Takes the guards of a configuration.
    ///
    /// # Panics
    /// Panics on more than [`MAX_GUARDS`], which a configuration has to refuse before.
    pub fn new(guards: Vec<DataGuard>) -> DataGuards {
        assert!(guards.len() <= MAX_GUARDS, "more than {MAX_GUARDS} guards");
        let mut by_first_byte = ByFirstByte::default();
        for (place, guard) in guards.iter().enumerate() {
            for pattern in &guard.keys {
                match pattern.first_byte() {
                    Some(byte) => by_first_byte.0[usize::from(byte)] |= 1 << place,
                    None => by_first_byte.0.iter_mut().for_each(|bits| *bits |= 1 << place),
                }
            }
        }
        DataGuards { guards, by_first_byte }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.guards.is_empty()
    }

    /// The guard at this place.
    pub fn get(&self, guard: usize) -> Option<&DataGuard> {
        self.guards.get(guard)
    }

    /// What guards the keys that a command would write. `foreign` is the server's own list of commands, for those that
    /// are not in the table. A command that Redis refuses for its arguments writes nothing.
    ///
    /// # Errors
    /// There are more than [`MAX_GUARDED_KEYS`].
    pub fn of_request(
        &self,
        request: &Request<'_>,
        foreign: &dyn Fn() -> Option<Arc<ForeignTable>>,
    ) -> Result<Vec<Guarded>, TooMany> {
        let mut found = Vec::new();
        let mut each = |_: usize, key: &[u8], access: Access| {
            if access == Access::Write && found.len() <= MAX_GUARDED_KEYS {
                self.add(key, &mut found);
            }
        };
        match lookup(request) {
            Lookup::Known(spec) if !arity_ok(spec, request.len()) => {}
            Lookup::Known(spec) => {
                // A request that cannot be read to the end is refused by Redis.
                if for_each_key(spec, request, &mut each).is_err() {
                    found.clear();
                }
            }
            Lookup::UnknownSubcommand | Lookup::Unknown => {
                let table = foreign();
                let spec = table.as_ref().and_then(|table| table.find(request));
                for_each_foreign_key(spec, request, &mut each);
            }
        }
        match found.len() > MAX_GUARDED_KEYS {
            true => Err(TooMany(Box::new(found.swap_remove(0)))),
            false => Ok(found),
        }
    }

    /// Whether a command with keys at these positions may write guarded data: for nearly every write this is the last
    /// check.
    #[inline]
    pub fn may_guard(&self, keys: KeySpec, request: &Request<'_>) -> bool {
        match keys {
            KeySpec::Range { first: 1, last: 1, .. } => {
                let mut bits = request.get(1).map_or(0, |key| self.candidates(key));
                while bits != 0 {
                    let guard = &self.guards[bits.trailing_zeros() as usize];
                    bits &= bits - 1;
                    let key = request.get(1).unwrap_or_default();
                    if guard.keys.iter().any(|pattern| pattern.may_match(key)) {
                        return true;
                    }
                }
                false
            }
            KeySpec::None => false,
            _ => true,
        }
    }

    /// What guards a key.
    pub fn of_key(&self, key: &[u8]) -> Vec<Guarded> {
        let mut found = Vec::new();
        self.add(key, &mut found);
        found
    }

    /// The guards, by their places, that may cover a key of which only the beginning and the end are known.
    pub fn may_be_about<'g>(&'g self, beginning: &'g [u8], ending: &'g [u8]) -> impl Iterator<Item = usize> + 'g {
        let fits = move |guard: &DataGuard| {
            let mut patterns = guard.keys.iter();
            patterns.any(|pattern| pattern.may_be(beginning, ending))
        };
        let places = self.guards.iter().enumerate();
        places.filter_map(move |(place, guard)| fits(guard).then_some(place))
    }

    #[inline]
    fn add(&self, key: &[u8], found: &mut Vec<Guarded>) {
        let mut bits = self.candidates(key);
        while bits != 0 {
            let place = bits.trailing_zeros() as usize;
            bits &= bits - 1;
            self.try_one(place, key, found);
        }
    }

    /// The guards that may cover a key, by its first byte.
    #[inline]
    fn candidates(&self, key: &[u8]) -> u64 {
        key.first().map_or(0, |first| self.by_first_byte.0[usize::from(*first)])
    }

    fn try_one(&self, place: usize, key: &[u8], found: &mut Vec<Guarded>) {
        let guard = &self.guards[place];
        let captures = guard.keys.iter().find_map(|pattern| pattern.matches(key));
        let Some(captures) = captures else {
            return;
        };
        let is_known = |one: &Guarded| one.guard == place && one.key[..] == *key;
        if !found.iter().any(is_known) {
            let locks = guard.locks.iter();
            found.push(Guarded {
                guard: place,
                key: SmallVec::from_slice(key),
                locks: locks.map(|lock| lock.fill(&captures)).collect(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use lockwarden_resp::{RequestDecoder, RequestLimits, Step};

    use super::*;

    fn guard(keys: &[&str], lock: &str) -> DataGuard {
        let pattern = |text: &&str| KeyPattern::new(text).expect("a pattern");
        DataGuard {
            mode: Mode::Enforce,
            unlocked: Unlocked::Refuse,
            by_identity: true,
            keys: keys.iter().map(pattern).collect(),
            locks: vec![LockTemplate::new(lock).expect("a template")],
        }
    }

    fn guards() -> DataGuards {
        DataGuards::new(vec![guard(&["stock:{id}", "order:{id}:*"], "lock_sale_{id}"), guard(&["*:7"], "seven")])
    }

    /// The keys that a request would write, with their locks.
    fn of(words: &[&str]) -> Vec<(String, String)> {
        let mut frame = bytes::BytesMut::new();
        let bytes: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        lockwarden_resp::put_request(&mut frame, &bytes);
        let mut decoder = RequestDecoder::new(RequestLimits::default());
        assert!(matches!(decoder.decode(&frame), Ok(Step::Request { .. })));
        let request = decoder.request(&frame);
        let found = guards().of_request(&request, &|| None).expect("few");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let pair = |one: &Guarded| (text(&one.key), text(&one.locks[0]));
        found.iter().map(pair).collect()
    }

    #[test]
    fn what_a_command_writes_is_guarded_and_what_it_reads_is_not() {
        let stock = || vec![("stock:8".to_owned(), "lock_sale_8".to_owned())];
        for words in [
            &["SET", "stock:8", "1"][..],
            &["decrby", "stock:8", "2"],
            &["DEL", "other", "stock:8"],
            &["GETEX", "stock:8", "EX", "9"],
            &["COPY", "other", "stock:8"],
            &["RENAME", "stock:8", "x"],
            &["EVAL", "return 1", "1", "stock:8"],
            &["MSET", "a", "1", "stock:8", "2"],
            &["SORT", "list", "STORE", "stock:8"],
            &["EXPIRE", "stock:8", "9"],
        ] {
            assert_eq!(of(words), stock(), "{words:?}");
        }
        for words in [
            &["GET", "stock:8"][..],
            &["COPY", "stock:8", "x"],
            &["SORT", "stock:8"],
            &["EVAL_RO", "return 1", "1", "stock:8"],
            &["SET", "stock:8"],
            &["SET", "stock", "1"],
            &["PUBLISH", "stock:8", "x"],
            &["EVAL", "return 1", "2", "stock:8"],
            &["SET", "", "1"],
        ] {
            assert_eq!(of(words), [], "{words:?}");
        }
    }

    #[test]
    fn a_key_of_which_only_the_ends_are_known_may_be_of_these_guards() {
        for (beginning, ending, expected) in [
            ("", "", &[0, 1][..]),
            ("stock:", "", &[0, 1]),
            ("sto", "", &[0, 1]),
            ("stock:7:", ":8", &[0]),
            ("order:", ":8", &[0]),
            ("other:", "", &[1]),
            ("other:", "8", &[]),
            ("other:", ":7", &[1]),
        ] {
            let guards = guards();
            let found = guards.may_be_about(beginning.as_bytes(), ending.as_bytes());
            assert_eq!(found.collect::<Vec<_>>(), expected, "{beginning}*{ending}");
        }
    }

    #[test]
    fn each_guard_and_each_key_is_found_once() {
        let found = of(&["DEL", "stock:7", "stock:8", "stock:7"]);
        let pairs: Vec<_> = found.iter().map(|(a, b)| (&a[..], &b[..])).collect();
        assert_eq!(pairs, [("stock:7", "lock_sale_7"), ("stock:7", "seven"), ("stock:8", "lock_sale_8")]);
    }

    #[test]
    fn there_is_a_bound() {
        let keys: Vec<String> = (0..=MAX_GUARDED_KEYS).map(|n| format!("stock:a{n}")).collect();
        let words = ["DEL"].into_iter().chain(keys.iter().map(|key| &key[..]));
        let words: Vec<&[u8]> = words.map(str::as_bytes).collect();
        let mut frame = bytes::BytesMut::new();
        lockwarden_resp::put_request(&mut frame, &words);
        let mut decoder = RequestDecoder::new(RequestLimits::default());
        assert!(matches!(decoder.decode(&frame), Ok(Step::Request { .. })));
        let request = decoder.request(&frame);
        let refused = guards().of_request(&request, &|| None);
        assert_eq!(&refused.expect_err("too many").0.key[..], b"stock:a0");
    }
}
