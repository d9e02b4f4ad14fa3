//! The patterns of guarded keys, and the names of their locks. `{name}` stands for one or more bytes without `:`,
//! `{name*}` for one or more of any bytes, `*` for any number of any bytes, `?` for one byte; a backslash makes the
//! next byte literal. Matched from left to right, each part as short as possible, without backtracking: so there is
//! only one way to read a pattern.

use std::collections::BTreeSet;

use smallvec::SmallVec;

/// The most names in one pattern.
pub const MAX_CAPTURES: usize = 8;

/// The text that each name matched in a key.
pub type Captures<'p, 'k> = SmallVec<[(&'p str, &'k [u8]); 2]>;

/// Why a text is no valid pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// It is empty.
    #[error("a pattern is not empty")]
    Empty,
    /// It ends inside a construct.
    #[error("it ends behind {0}")]
    Unfinished(&'static str),
    /// An invalid name.
    #[error("{{{0}}} is no name: letters, digits, - and _, and * at the end for any bytes")]
    BadName(String),
    /// It is ambiguous where one part ends and the next begins.
    #[error("two captures without a fixed byte between them: {0:?}")]
    Adjacent(String),
    /// Only `*` and `?` of Redis's globs are supported.
    #[error("[ is not taken here; write {{name}} or *, or \\[ for the byte")]
    Class,
    /// Too many names.
    #[error("more than {MAX_CAPTURES} names")]
    TooManyNames,
    /// A key may match in another way than from left to right, and would not be guarded.
    #[error(
        "{{{0}}} stands behind * or {{name*}} and would miss keys; write {{{0}*}} if it is the last, or {{name}} for each part between \":\" in place of what stands before, \
         with a pattern for each number of parts"
    )]
    Behind(String),
    /// The name of a lock has no wildcards.
    #[error("a lock's name has no * and no ?")]
    Wildcard,
}

/// A part of a text that is not fixed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wild {
    /// At least one byte, without `:` unless `any`.
    Named { name: Box<str>, any: bool },
    /// Any number of bytes.
    Star,
}

/// Fixed bytes of a text; `None` matches any one byte.
type Fixed = Vec<Option<u8>>;

/// A text: its fixed beginning, and its variable parts, each with the fixed text after it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Text {
    begins: Fixed,
    rest: Vec<(Wild, Fixed)>,
}

impl Text {
    fn read(text: &str) -> Result<Text, PatternError> {
        if text.is_empty() {
            return Err(PatternError::Empty);
        }
        let mut read = Text { begins: Fixed::new(), rest: Vec::new() };
        let mut bytes = text.bytes();
        while let Some(byte) = bytes.next() {
            let wild = match byte {
                b'[' => return Err(PatternError::Class),
                b'*' => Wild::Star,
                b'{' => name(&mut bytes)?,
                b'?' => {
                    read.last().push(None);
                    continue;
                }
                b'\\' => {
                    let next = bytes.next().ok_or(PatternError::Unfinished("\\"))?;
                    read.last().push(Some(next));
                    continue;
                }
                byte => {
                    read.last().push(Some(byte));
                    continue;
                }
            };
            if read.rest.last().is_some_and(|(_, fixed)| fixed.is_empty()) {
                return Err(PatternError::Adjacent(text.to_owned()));
            }
            read.rest.push((wild, Fixed::new()));
        }
        let names: BTreeSet<&str> = read.names().collect();
        match names.len() > MAX_CAPTURES {
            true => Err(PatternError::TooManyNames),
            false => Ok(read),
        }
    }

    /// The fixed bytes at its end so far.
    fn last(&mut self) -> &mut Fixed {
        match self.rest.last_mut() {
            Some((_, fixed)) => fixed,
            None => &mut self.begins,
        }
    }

    /// The text with the given value for each name, nothing for `*` and an x for `?`.
    fn filled<'a>(&'a self, mut stands_for: impl FnMut(&'a str) -> &'a [u8]) -> Vec<u8> {
        let put = |text: &mut Vec<u8>, fixed: &Fixed| {
            text.extend(fixed.iter().map(|byte| byte.unwrap_or(b'x')));
        };
        let mut text = Vec::new();
        put(&mut text, &self.begins);
        for (wild, fixed) in &self.rest {
            if let Wild::Named { name, .. } = wild {
                text.extend_from_slice(stands_for(name));
            }
            put(&mut text, fixed);
        }
        text
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.rest.iter().filter_map(|(wild, _)| match wild {
            Wild::Named { name, .. } => Some(&**name),
            Wild::Star => None,
        })
    }
}

/// Reads `{name}` after its brace.
fn name(bytes: &mut impl Iterator<Item = u8>) -> Result<Wild, PatternError> {
    let mut read = Vec::new();
    loop {
        match bytes.next() {
            Some(b'}') => break,
            Some(byte) => read.push(byte),
            None => return Err(PatternError::Unfinished("{")),
        }
    }
    let read = String::from_utf8_lossy(&read).into_owned();
    let (name, any) = match read.strip_suffix('*') {
        Some(name) => (name, true),
        None => (&read[..], false),
    };
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match !name.is_empty() && name.chars().all(fits) {
        true => Ok(Wild::Named { name: name.into(), any }),
        false => Err(PatternError::BadName(read)),
    }
}

/// The pattern of the keys that a guard covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPattern(Text);

impl KeyPattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// It is none.
    pub fn new(text: &str) -> Result<KeyPattern, PatternError> {
        let read = Text::read(text)?;
        // A part that takes any bytes takes as few as possible; then what follows it must take any, too.
        let is_open = |wild: &Wild| matches!(wild, Wild::Star | Wild::Named { any: true, .. });
        let mut before = read.rest.iter().map(|(wild, _)| wild);
        let open = before.position(is_open).unwrap_or(read.rest.len());
        let names = || read.names();
        for (wild, _) in read.rest.iter().skip(open + 1) {
            if let Wild::Named { name, any } = wild
                && (!any || names().filter(|other| *other == &**name).count() > 1)
            {
                return Err(PatternError::Behind(name.to_string()));
            }
        }
        Ok(KeyPattern(read))
    }

    /// The names in it.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.names()
    }

    /// A key that matches it.
    pub fn example(&self) -> Vec<u8> {
        self.0.filled(|_| b"x")
    }

    /// The first byte of every key that matches, if it is fixed.
    pub(super) fn first_byte(&self) -> Option<u8> {
        *self.0.begins.first()?
    }

    /// Whether a key begins like those that match.
    #[inline]
    pub(super) fn may_match(&self, key: &[u8]) -> bool {
        behind(key, &self.0.begins).is_some()
    }

    /// Whether a key that begins and ends like this may match.
    pub(super) fn may_be(&self, beginning: &[u8], ending: &[u8]) -> bool {
        let agrees = |(fixed, byte): (&Option<u8>, &u8)| fixed.is_none_or(|fixed| fixed == *byte);
        let ends = self.0.rest.last().map_or(&self.0.begins, |(_, fixed)| fixed);
        self.0.begins.iter().zip(beginning).all(agrees) && ends.iter().rev().zip(ending.iter().rev()).all(agrees)
    }

    /// The text that each name matched in a key, if the key matches. A name that occurs twice must match the same text.
    pub fn matches<'p, 'k>(&'p self, key: &'k [u8]) -> Option<Captures<'p, 'k>> {
        let Text { begins, rest: parts } = &self.0;
        let mut captures = Captures::new();
        let mut rest = behind(key, begins)?;
        let last = parts.len().wrapping_sub(1);
        for (place, (wild, fixed)) in parts.iter().enumerate() {
            let least = usize::from(matches!(wild, Wild::Named { .. }));
            let length = match place == last {
                true => rest.len().checked_sub(fixed.len())?,
                false => (least..rest.len()).find(|&at| behind(&rest[at..], fixed).is_some())?,
            };
            let (taken, further) = rest.split_at(length);
            rest = behind(further, fixed)?;
            let Wild::Named { name, any } = wild else {
                continue;
            };
            if taken.is_empty() || (!any && taken.contains(&b':')) {
                return None;
            }
            match captures.iter().find(|(known, _)| **known == **name) {
                Some((_, before)) if *before != taken => return None,
                Some(_) => {}
                None => captures.push((name, taken)),
            }
        }
        rest.is_empty().then_some(captures)
    }
}

/// The bytes after a fixed text at the beginning.
fn behind<'k>(bytes: &'k [u8], fixed: &[Option<u8>]) -> Option<&'k [u8]> {
    let (beginning, behind) = bytes.split_at_checked(fixed.len())?;
    let mut pairs = beginning.iter().zip(fixed);
    pairs.all(|(byte, fixed)| fixed.is_none_or(|fixed| fixed == *byte)).then_some(behind)
}

/// The name of a lock, which may contain names of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockTemplate(Text);

impl LockTemplate {
    /// Reads it.
    ///
    /// # Errors
    /// It is none.
    pub fn new(text: &str) -> Result<LockTemplate, PatternError> {
        let read = Text::read(text)?;
        let takes_any = |(wild, fixed): &(Wild, Fixed)| *wild == Wild::Star || fixed.contains(&None);
        match read.begins.contains(&None) || read.rest.iter().any(takes_any) {
            true => Err(PatternError::Wildcard),
            false => Ok(LockTemplate(read)),
        }
    }

    /// The names in it.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.names()
    }

    /// The lock for a key. A name that the key's pattern does not have becomes empty.
    pub fn fill(&self, captures: &Captures<'_, '_>) -> Vec<u8> {
        self.0.filled(|name| {
            let captured = captures.iter().find(|(known, _)| *known == name);
            captured.map_or(b"", |(_, bytes)| *bytes)
        })
    }

    /// One possible name of a lock.
    pub fn example(&self) -> Vec<u8> {
        self.0.filled(|_| b"x")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn captured(pattern: &str, key: &str) -> Option<String> {
        let pattern = KeyPattern::new(pattern).expect("a pattern");
        let captures = pattern.matches(key.as_bytes())?;
        let text = |(name, bytes): &(&str, &[u8])| format!("{name}={}", String::from_utf8_lossy(bytes));
        Some(captures.iter().map(text).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn names_stand_for_the_shortest_there_is() {
        for (pattern, key, expected) in [
            ("stock:{id}", "stock:7", Some("id=7")),
            ("stock:{id}", "stock:", None),
            ("stock:{id}", "stock:7:history", None),
            ("stock:{id*}", "stock:7:history", Some("id=7:history")),
            ("order:{id}:*", "order:7:", Some("id=7")),
            ("order:{id}:*", "order:7:lines:1", Some("id=7")),
            ("{id*}:{x*}", "a:b:c", Some("id=a x=b:c")),
            ("*:{id*}", "a:b:7", Some("id=b:7")),
            ("{a}:{b}:{id}", "a:b:7", Some("a=a b=b id=7")),
            ("{id}:*:x:*", "7:a:x:x:", Some("id=7")),
            ("{id}:{id}", "7:7", Some("id=7")),
            ("{id}:{id}", "7:8", None),
            ("a?c:{id}", "abc:1", Some("id=1")),
            ("ledger:*", "ledger:", Some("")),
            ("ledger", "ledger", Some("")),
            ("ledger", "ledger2", None),
            ("\\{{id}\\}:stock", "{7}:stock", Some("id=7")),
            ("x{id}y", "xy", None),
            ("x{id}y", "x1yy", Some("id=1y")),
            ("*", "", Some("")),
        ] {
            assert_eq!(captured(pattern, key).as_deref(), expected, "{pattern} {key}");
        }
    }

    #[test]
    fn what_is_no_pattern_says_why() {
        for (text, said) in [
            ("", "a pattern is not empty"),
            ("a\\", "it ends behind \\"),
            ("a{id", "it ends behind {"),
            ("a{}", "{} is no name: letters, digits, - and _, and * at the end for any bytes"),
            ("a{i d}", "{i d} is no name: letters, digits, - and _, and * at the end for any bytes"),
            ("{a}{b}", "two captures without a fixed byte between them: \"{a}{b}\""),
            ("{a}*", "two captures without a fixed byte between them: \"{a}*\""),
            (
                "*:{id}",
                "{id} stands behind * or {name*} and would miss keys; write {id*} if it is the last, or {name} for each part between \":\" in place of what stands before, \
                 with a pattern for each number of parts",
            ),
            ("a[bc]", "[ is not taken here; write {name} or *, or \\[ for the byte"),
        ] {
            let error = KeyPattern::new(text).expect_err(text);
            assert_eq!(error.to_string(), said, "{text}");
        }
        let many: String = (0..9).map(|n| format!("{{n{n}}}:")).collect();
        assert_eq!(KeyPattern::new(&many), Err(PatternError::TooManyNames));
    }

    #[test]
    fn a_lock_has_the_names_of_its_key() {
        let lock = LockTemplate::new("lock:{b}:{a}!").expect("a template");
        let pattern = KeyPattern::new("{a}:{b}").expect("a pattern");
        let captures = pattern.matches(b"1:2").expect("a match");
        assert_eq!(lock.fill(&captures), b"lock:2:1!");
        assert_eq!(lock.example(), b"lock:x:x!");
        for wild in ["lock:*", "lock:?"] {
            assert_eq!(LockTemplate::new(wild), Err(PatternError::Wildcard));
        }
    }

    proptest! {
        #[test]
        fn any_text_and_any_key_are_taken_without_panic(text in "[ab{}*?\\\\:]{0,9}", key in "[ab:]{0,9}") {
            if let Ok(pattern) = KeyPattern::new(&text) {
                let _ = pattern.matches(key.as_bytes());
            }
            if let Ok(lock) = LockTemplate::new(&text) {
                prop_assert!(!lock.example().is_empty());
            }
        }

        #[test]
        fn a_match_puts_together_again_what_it_took_apart(key in "[ab]{1,3}x[ab:]{1,3}:z") {
            let text = "{a}x{b*}:z";
            let pattern = KeyPattern::new(text).expect("a pattern");
            if let Some(captures) = pattern.matches(key.as_bytes()) {
                let lock = LockTemplate::new(text).expect("a template");
                prop_assert_eq!(lock.fill(&captures), key.as_bytes());
            }
        }
    }
}
