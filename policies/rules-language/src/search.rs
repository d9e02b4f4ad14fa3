//! Searches for texts in texts, in time linear in the text and not in the product of both lengths: clients choose the
//! keys.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use crate::evaluate::Steps;

/// A text to search for (Knuth, Morris and Pratt): for each place, the length of the longest proper beginning that also
/// ends there.
#[derive(Debug)]
pub(crate) struct Needle {
    pub(crate) bytes: Box<[u8]>,
    fallback: Box<[u16]>,
}

impl Needle {
    /// An expression has at most 1,024 bytes, so a place fits in 16 bits.
    pub(crate) fn new(bytes: &[u8]) -> Needle {
        let mut fallback = vec![0_u16; bytes.len()];
        let mut matched = 0_usize;
        for place in 1..bytes.len() {
            while matched > 0 && bytes[place] != bytes[matched] {
                matched = usize::from(fallback[matched - 1]);
            }
            if bytes[place] == bytes[matched] {
                matched += 1;
            }
            fallback[place] = u16::try_from(matched).unwrap_or(u16::MAX);
        }
        Needle { bytes: bytes.into(), fallback: fallback.into() }
    }

    /// The end of its first occurrence in the text.
    pub(crate) fn end_in(&self, text: &[u8], steps: &mut impl Steps) -> Option<usize> {
        if self.bytes.is_empty() {
            return Some(0);
        }
        let mut matched = 0;
        for (place, byte) in text.iter().enumerate() {
            steps.add(1);
            while self.bytes.get(matched) != Some(byte) {
                steps.add(1);
                match matched.checked_sub(1).and_then(|last| self.fallback.get(last)) {
                    Some(shorter) => matched = usize::from(*shorter),
                    None => break,
                }
            }
            if self.bytes.get(matched) == Some(byte) {
                matched += 1;
            }
            if matched == self.bytes.len() {
                return Some(place + 1);
            }
        }
        None
    }
}

/// A pattern in which `*` matches any bytes, or none.
#[derive(Debug)]
pub(crate) struct Pattern {
    head: Box<[u8]>,
    middle: Vec<Needle>,
    /// `None` if there is no star: then the head is the whole pattern.
    tail: Option<Box<[u8]>>,
}

impl Pattern {
    pub(crate) fn new(pattern: &[u8]) -> Pattern {
        let mut parts: Vec<&[u8]> = pattern.split(|byte| *byte == b'*').collect();
        let tail = if parts.len() > 1 { parts.pop() } else { None };
        let mut parts = parts.into_iter();
        let head = parts.next().unwrap_or_default().into();
        let middle = parts.filter(|part| !part.is_empty()).map(Needle::new).collect();
        Pattern { head, middle, tail: tail.map(Into::into) }
    }

    pub(crate) fn matches(&self, text: &[u8], steps: &mut impl Steps) -> bool {
        steps.add(self.head.len());
        let Some(rest) = text.strip_prefix(&*self.head) else {
            return false;
        };
        let Some(tail) = &self.tail else {
            return rest.is_empty();
        };
        steps.add(tail.len());
        let Some(mut rest) = rest.strip_suffix(&**tail) else {
            return false;
        };
        for needle in &self.middle {
            match needle.end_in(rest, steps) {
                Some(end) => rest = &rest[end..],
                None => return false,
            }
        }
        true
    }

    /// The most steps for a text of at most this many bytes.
    pub(crate) fn steps(&self, longest: usize) -> u64 {
        let ends = self.head.len() + self.tail.as_ref().map_or(0, |tail| tail.len());
        let between = if self.middle.is_empty() { 0 } else { 2 * longest };
        (ends + between) as u64
    }

    /// The beginning and the end of a matching text, with anything possible in between; without the end, the beginning
    /// is the whole text.
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn example(&self) -> (Vec<u8>, Option<Vec<u8>>) {
        let mut head = self.head.to_vec();
        for needle in &self.middle {
            head.extend_from_slice(&needle.bytes);
        }
        (head, self.tail.as_ref().map(|tail| tail.to_vec()))
    }

    pub(crate) fn literal_bytes(&self) -> usize {
        let middle: usize = self.middle.iter().map(|needle| needle.bytes.len()).sum();
        self.head.len() + middle + self.tail.as_ref().map_or(0, |tail| tail.len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A direct implementation of the matching rule, in whatever time that takes.
    fn like(text: &[u8], pattern: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => (0..=text.len()).any(|skipped| like(&text[skipped..], rest)),
            Some((byte, rest)) => text.first() == Some(byte) && like(&text[1..], rest),
        }
    }

    #[test]
    fn stars_stand_for_any_bytes() {
        for (pattern, text, want) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("**", "abc", true),
            ("a", "a", true),
            ("a*", "a", true),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("lock:*:done", "lock:x:done", true),
            ("lock:*:done", "lock:done", false),
            ("*ab*ab*", "abab", true),
            ("*ab*ab*", "aba", false),
            ("*a*b", "xaxxb", true),
        ] {
            assert_eq!(Pattern::new(pattern.as_bytes()).matches(text.as_bytes(), &mut ()), want, "{pattern} {text}");
        }
    }

    proptest! {
        #[test]
        fn a_pattern_matches_as_its_rule_says(pattern in "[ab*]{0,8}", text in "[ab]{0,12}") {
            let found = Pattern::new(pattern.as_bytes()).matches(text.as_bytes(), &mut ());
            prop_assert_eq!(found, like(text.as_bytes(), pattern.as_bytes()));
        }

        #[test]
        fn a_needle_is_found_where_it_first_ends(needle in "[ab]{0,6}", text in "[ab]{0,40}") {
            let found = Needle::new(needle.as_bytes()).end_in(text.as_bytes(), &mut ());
            prop_assert_eq!(found, text.find(&needle).map(|begin| begin + needle.len()));
        }

        #[test]
        fn what_a_search_costs_grows_with_the_text_alone(pattern in "[ab*]{0,200}", text in "[ab]{0,1024}") {
            let pattern = Pattern::new(pattern.as_bytes());
            let mut steps = 0_u64;
            pattern.matches(text.as_bytes(), &mut steps);
            prop_assert!(steps <= pattern.steps(text.len()), "{} of {}", steps, pattern.steps(text.len()));
        }
    }
}
