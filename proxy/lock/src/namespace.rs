//! Namespaces: which keys are locks, and what their operators chose for them. A namespace is found
//! by Redis globs, the first that matches wins; a key that no namespace matches is not a lock.

use crate::glob::Glob;

/// A fixed beginning of a glob that says something: of shorter ones any text may be full.
pub const SHORTEST_BEGINNING: usize = 4;

/// The place of a namespace in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NamespaceId(pub u16);

/// The globs of all namespaces in the order of the configuration. Every key of every command is
/// looked up here, and nearly all belong to no namespace: those are turned away by one table
/// look-up where their first byte begins no pattern, and by comparing the patterns' literal
/// beginnings otherwise. Nothing is allocated.
#[derive(Clone, Debug)]
pub struct Namespaces {
    globs: Vec<(NamespaceId, Glob)>,
    /// Whether a key that begins with this byte could match any glob.
    first_bytes: Box<[bool; 256]>,
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
        let mut first_bytes = Box::new([false; 256]);
        for (byte, may_begin) in (0..=u8::MAX).zip(first_bytes.iter_mut()) {
            *may_begin = globs.iter().any(|(_, glob)| glob.may_begin_with(byte));
        }
        Namespaces { globs, first_bytes }
    }

    /// Every glob with its namespace, in the order in which they are tried.
    pub fn globs(&self) -> impl ExactSizeIterator<Item = (NamespaceId, &Glob)> {
        self.globs.iter().map(|(id, glob)| (*id, glob))
    }

    /// The first namespace with a glob that matches the key; `None` if the key is no lock.
    #[inline]
    pub fn find(&self, key: &[u8]) -> Option<NamespaceId> {
        match key.first() {
            Some(&byte) if !self.first_bytes[usize::from(byte)] => None,
            Some(_) | None => self.find_by_glob(key),
        }
    }

    /// The first namespace of which some key may begin so: one of its globs has a fixed beginning
    /// of at least [`SHORTEST_BEGINNING`] bytes, and these bytes begin with that.
    pub fn find_beginning(&self, beginning: &[u8]) -> Option<NamespaceId> {
        self.globs
            .iter()
            .find(|(_, glob)| {
                let fixed = glob.literal_prefix();
                fixed.len() >= SHORTEST_BEGINNING && beginning.starts_with(fixed)
            })
            .map(|(id, _)| *id)
    }

    fn find_by_glob(&self, key: &[u8]) -> Option<NamespaceId> {
        self.globs
            .iter()
            .find(|(_, glob)| key.starts_with(glob.literal_prefix()) && glob.matches(key))
            .map(|(id, _)| *id)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::{NamespaceId, Namespaces};
    use crate::glob::Glob;

    fn namespaces(patterns: &[&[&str]]) -> Namespaces {
        let glob = |pattern: &&str| Glob::new(Bytes::copy_from_slice(pattern.as_bytes()));
        Namespaces::new(
            patterns
                .iter()
                .map(|globs| globs.iter().map(glob).collect())
                .collect(),
        )
    }

    #[test]
    fn the_first_namespace_that_matches_wins() {
        let namespaces = namespaces(&[
            &["lock:order:*", "*:mutex"],
            &["lock:*"],
            &["lock:order:1", "[xy]z"],
        ]);
        for (key, expected) in [
            ("lock:order:1", Some(0)),
            ("lock:a:mutex", Some(0)),
            ("lock:a", Some(1)),
            ("xz", Some(2)),
            ("az", None),
            ("Lock:a", None),
            ("", None),
        ] {
            assert_eq!(
                namespaces.find(key.as_bytes()),
                expected.map(NamespaceId),
                "{key}"
            );
        }
    }

    #[test]
    fn the_empty_key_belongs_to_a_namespace_of_everything() {
        assert_eq!(
            namespaces(&[&["a*"], &["*"]]).find(b""),
            Some(NamespaceId(1))
        );
        assert_eq!(
            namespaces(&[&["a*"], &[""]]).find(b""),
            Some(NamespaceId(1))
        );
        assert_eq!(namespaces(&[]).find(b""), None);
        assert_eq!(namespaces(&[&[]]).find(b"a"), None);
    }

    proptest! {
        #[test]
        fn the_short_cuts_change_no_answer(
            patterns in proptest::collection::vec("[ab*?\\[\\]^\\\\-]{0,5}", 0..5),
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
