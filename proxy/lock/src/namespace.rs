//! Namespaces: which keys are locks, and their settings. A namespace is found by Redis globs, and the first that
//! matches wins; a key that no namespace matches is not a lock.

mod index;

use bytes::Bytes;

use crate::companion::{is_prefix_mark, names_companion};
use crate::glob::{Glob, starts_with};
use index::{End, Index};

/// The place of a namespace in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NamespaceId(pub u16);

/// The globs of all namespaces in the order of the configuration. Every key of every command is looked up here, and
/// nearly all belong to no namespace: most are rejected by their first and last byte, the others by one walk along the
/// key, however many globs there are. Nothing is allocated.
#[derive(Clone, Debug)]
pub struct Namespaces {
    /// The first bytes of keys that match a glob or, where those may be anything, the last bytes.
    first_bytes: ByteSet,
    last_bytes: ByteSet,
    globs: Vec<(NamespaceId, Glob)>,
    /// The globs with a fixed text at their beginning, by that text.
    by_beginning: Index,
    /// Those without one there, by a fixed text at their end.
    by_ending: Index,
    /// Those with neither.
    by_neither: Vec<u32>,
    /// The namespace of the empty key.
    of_empty: Option<NamespaceId>,
    /// The prefix of the proxy's own keys; empty if there are none.
    own_prefix: Bytes,
}

/// A set of bytes.
#[derive(Clone, Copy, Debug, Default)]
struct ByteSet([u64; 4]);

impl ByteSet {
    #[inline]
    fn contains(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
    }
}

impl FromIterator<u8> for ByteSet {
    fn from_iter<I: IntoIterator<Item = u8>>(bytes: I) -> ByteSet {
        let mut set = ByteSet::default();
        for byte in bytes {
            set.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
        }
        set
    }
}

impl Namespaces {
    /// Takes the globs of each namespace, in the order of the configuration.
    ///
    /// # Panics
    /// Panics on more than 65,536 namespaces, which a configuration has to refuse before.
    pub fn new(namespaces: Vec<Vec<Glob>>) -> Namespaces {
        assert!(namespaces.len() <= 1 << 16, "more than 65,536 namespaces");
        let globs: Vec<_> = (0..=u16::MAX)
            .map(NamespaceId)
            .zip(namespaces)
            .flat_map(|(id, globs)| globs.into_iter().map(move |glob| (id, glob)))
            .collect();
        let numbered = || (0..).zip(&globs).map(|(number, (_, glob))| (number, glob));
        let begin = numbered().map(|(number, glob)| (glob.literal_prefix(), number));
        let by_beginning = Index::new(End::Beginning, begin.filter(|text| !text.0.is_empty()));
        let others = || numbered().filter(|(_, glob)| glob.literal_prefix().is_empty());
        let end = others().map(|(number, glob)| (glob.literal_suffix(), number));
        let by_ending = Index::new(End::Ending, end.filter(|text| !text.0.is_empty()));
        let by_neither = || others().filter(|(_, glob)| glob.literal_suffix().is_empty());
        let may_begin = |byte: &u8| by_neither().any(|(_, glob)| glob.may_begin_with(*byte));
        let first_bytes = by_beginning.first_bytes();
        Namespaces {
            first_bytes: first_bytes.chain((0..=u8::MAX).filter(may_begin)).collect(),
            last_bytes: by_ending.first_bytes().collect(),
            by_neither: by_neither().map(|(number, _)| number).collect(),
            of_empty: globs.iter().find(|(_, glob)| glob.matches(b"")).map(|(id, _)| *id),
            by_beginning,
            by_ending,
            globs,
            own_prefix: Bytes::new(),
        }
    }

    /// The same without the proxy's own keys, which have this prefix: they are no locks, whatever the globs match.
    #[must_use]
    pub fn without_own_keys(mut self, prefix: Bytes) -> Namespaces {
        self.own_prefix = prefix;
        self
    }

    /// Every glob with its namespace, in the order in which they are tried.
    pub fn globs(&self) -> impl ExactSizeIterator<Item = (NamespaceId, &Glob)> {
        self.globs.iter().map(|(id, glob)| (*id, glob))
    }

    /// The first namespace with a glob that matches the key; `None` if the key is no lock.
    #[inline]
    pub fn find(&self, key: &[u8]) -> Option<NamespaceId> {
        self.claims(key).filter(|_| !self.is_own(key))
    }

    /// Whether it is one of the proxy's own keys, which a glob may also match.
    #[inline]
    fn is_own(&self, key: &[u8]) -> bool {
        let prefix = &self.own_prefix[..];
        !prefix.is_empty() && (starts_with(key, prefix) || is_prefix_mark(key)) && names_companion(prefix, key, self)
    }

    /// The same by the globs alone: the proxy's own keys may be included.
    #[inline]
    pub(crate) fn claims(&self, key: &[u8]) -> Option<NamespaceId> {
        let ([first, ..], [.., last]) = (key, key) else {
            return self.of_empty;
        };
        let by_beginning = self.first_bytes.contains(*first);
        let by_ending = self.last_bytes.contains(*last);
        if by_beginning || by_ending { self.find_by_glob(key, by_ending) } else { None }
    }

    /// The namespaces to which a key that begins and ends like this may belong, in order.
    pub fn find_between(&self, beginning: &[u8], ending: &[u8]) -> impl Iterator<Item = NamespaceId> {
        self.globs
            .iter()
            .filter(move |(_, glob)| glob.may_match_between(beginning, ending))
            .map(|(namespace, _)| *namespace)
    }

    fn find_by_glob(&self, key: &[u8], may_be_by_ending: bool) -> Option<NamespaceId> {
        let mut found: Option<u32> = None;
        let mut look = |numbers: &[u32]| {
            let before = found.unwrap_or(u32::MAX);
            let mut earlier = numbers.iter().take_while(|number| **number < before);
            let matches = |number: &&u32| self.globs[**number as usize].1.matches_from_end(key);
            found = earlier.find(matches).copied().or(found);
        };
        self.by_beginning.walk(key, &mut look);
        if may_be_by_ending {
            self.by_ending.walk(key, &mut look);
        }
        look(&self.by_neither);
        found.map(|number| self.globs[number as usize].0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Bytes, NamespaceId, Namespaces};
    use crate::glob::Glob;

    fn namespaces(patterns: &[&[&str]]) -> Namespaces {
        let glob = |pattern: &&str| Glob::new(Bytes::copy_from_slice(pattern.as_bytes()));
        Namespaces::new(patterns.iter().map(|globs| globs.iter().map(glob).collect()).collect())
    }

    #[test]
    fn the_first_namespace_that_matches_wins() {
        let namespaces = namespaces(&[&["lock:order:*", "*:mutex"], &["lock:*"], &["lock:order:1", "[xy]z"]]);
        for (key, expected) in [
            ("lock:order:1", Some(0)),
            ("lock:a:mutex", Some(0)),
            ("lock:a", Some(1)),
            ("xz", Some(2)),
            ("az", None),
            ("Lock:a", None),
            ("", None),
        ] {
            assert_eq!(namespaces.find(key.as_bytes()), expected.map(NamespaceId), "{key}");
        }
    }

    #[test]
    fn the_empty_key_belongs_to_a_namespace_of_everything() {
        assert_eq!(namespaces(&[&["a*"], &["*"]]).find(b""), Some(NamespaceId(1)));
        assert_eq!(namespaces(&[&["a*"], &[""]]).find(b""), Some(NamespaceId(1)));
        assert_eq!(namespaces(&[]).find(b""), None);
        assert_eq!(namespaces(&[&[]]).find(b"a"), None);
    }

    #[test]
    fn what_is_known_of_a_key_may_rule_namespaces_out() {
        let namespaces = namespaces(&[&["lock:*"], &["*:mutex"], &["one", "job-*:[ab]"]]);
        for (beginning, ending, expected) in [
            ("", "", Some(0)),
            ("lock:", "x", Some(0)),
            ("lo", "", Some(0)),
            ("bull:q:", ":lock", None),
            ("bull:q:", "", Some(1)),
            ("bull:q:", ":mutex", Some(1)),
            ("on", "ne", None),
            ("o", "e", Some(2)),
            ("o", ":x", None),
            ("job-1", ":a", Some(2)),
            ("job-1", ":b", Some(2)),
        ] {
            let found = namespaces.find_between(beginning.as_bytes(), ending.as_bytes()).next();
            assert_eq!(found, expected.map(NamespaceId), "{beginning}*{ending}");
        }
    }

    #[test]
    fn the_proxys_own_keys_are_no_locks_whatever_the_globs_say() {
        for (glob, keys) in [
            ("*", ["lw:{0j4}:a", "lw:{0j4}#a", "lw:{0j4}:lw:{0j4}:a"]),
            ("*_on", ["lw:{0j4}:a_on", "lw:{0j4}#a_on", "lw:{x}:lw:{x}:a_on"]),
            ("lw:*", ["lw:{0j4}:lw:a", "lw:{0j4}#lw:a", "lw:{0j4}:lockwarden_on"]),
        ] {
            let all = namespaces(&[&[glob]]);
            let locks = all.clone().without_own_keys(Bytes::from_static(b"lw:"));
            for own in keys {
                assert!(all.find(own.as_bytes()).is_some(), "{glob} {own}");
                assert_eq!(locks.find(own.as_bytes()), None, "{glob} {own}");
            }
            for other in ["a_on", "lw:a", "lw:{0j4}_on", "lw:{0j4}x:_on", "lw:}:a_on", ""] {
                let found = locks.find(other.as_bytes());
                assert_eq!(found, all.find(other.as_bytes()), "{glob} {other}");
            }
        }
    }

    proptest! {
        #[test]
        fn no_namespace_is_ruled_out_that_has_such_a_key(
            patterns in proptest::collection::vec("[ab*?\\[\\]^\\\\-]{0,5}|[ab*]{0,3}", 0..6),
            key in "[ab*\\]]{0,6}",
            beginning in 0..4_usize,
            ending in 0..4_usize,
        ) {
            let globs: Vec<Glob> =
                patterns.into_iter().map(|pattern| Glob::new(pattern.into())).collect();
            let namespaces = Namespaces::new(globs.into_iter().map(|glob| vec![glob]).collect());
            let beginning = beginning.min(key.len());
            let ending = ending.min(key.len() - beginning);
            let mut between = namespaces.find_between(
                &key.as_bytes()[..beginning],
                &key.as_bytes()[key.len() - ending..],
            );
            if let Some(found) = namespaces.find(key.as_bytes()) {
                prop_assert!(between.any(|between| between == found));
            }
        }

        #[test]
        fn the_short_cuts_change_no_answer(
            patterns in proptest::collection::vec("[ab*?\\[\\]^\\\\-]{0,5}|[ab*]{0,3}", 0..12),
            key in "[ab*\\]]{0,5}",
        ) {
            let globs: Vec<Glob> =
                patterns.into_iter().map(|pattern| Glob::new(pattern.into())).collect();
            let expected = globs.iter().position(|glob| glob.matches(key.as_bytes()));
            let namespaces = Namespaces::new(globs.into_iter().map(|glob| vec![glob]).collect());
            let found = namespaces.find(key.as_bytes()).map(|id| usize::from(id.0));
            prop_assert_eq!(found, expected);
        }
    }
}
