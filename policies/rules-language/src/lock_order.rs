//! The order in which one connection takes locks: two clients that take the same locks in different orders wait for
//! each other.

use alloc::vec::Vec;

use crate::MAX_TEXT_BYTES;
use crate::search::Pattern;

/// Patterns of locks; those to be taken first come first. Locks that match none, or the same one, have no order.
#[derive(Debug)]
pub struct LockOrder {
    patterns: Vec<Pattern>,
}

impl LockOrder {
    /// An order with these patterns, in which `*` matches any bytes.
    pub fn new<'a>(patterns: impl IntoIterator<Item = &'a str>) -> LockOrder {
        LockOrder { patterns: patterns.into_iter().map(|text| Pattern::new(text.as_bytes())).collect() }
    }

    /// The first held lock that must be taken after this one.
    pub fn held_too_early<'a>(&self, lock: &[u8], held: impl IntoIterator<Item = &'a [u8]>) -> Option<&'a [u8]> {
        let place = self.place(lock)?;
        held.into_iter().find(|held| self.place(held).is_some_and(|held| held > place))
    }

    fn place(&self, lock: &[u8]) -> Option<usize> {
        self.patterns.iter().position(|pattern| pattern.matches(lock, &mut ()))
    }

    /// The most steps that it takes for this many held locks.
    #[must_use]
    pub fn steps(&self, held: usize) -> u64 {
        let one: u64 = self.patterns.iter().map(|pattern| pattern.steps(MAX_TEXT_BYTES) + 1).sum();
        one * (held as u64 + 1)
    }

    /// The length of its patterns' texts, in bytes.
    #[must_use]
    pub fn literal_bytes(&self) -> usize {
        self.patterns.iter().map(Pattern::literal_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_taken_before_those_of_later_patterns() {
        let order = LockOrder::new(["lock:account:*", "lock:order:*", "lock:*:item"]);
        let held_too_early = |lock: &str, held: &[&'static str]| {
            let held = held.iter().map(|held| held.as_bytes());
            order.held_too_early(lock.as_bytes(), held).map(|held| core::str::from_utf8(held).expect("they are texts"))
        };
        assert_eq!(held_too_early("lock:account:1", &["lock:order:7"]), Some("lock:order:7"));
        assert_eq!(
            held_too_early("lock:account:1", &["lock:mail", "lock:7:item", "lock:order:7"]),
            Some("lock:7:item")
        );
        assert_eq!(held_too_early("lock:order:7", &["lock:account:1", "lock:order:8"]), None);
        assert_eq!(held_too_early("lock:account:1", &["lock:account:2", "lock:mail"]), None);
        assert_eq!(held_too_early("lock:mail", &["lock:order:7"]), None);
        assert_eq!(
            held_too_early("lock:order:item", &["lock:account:1"]),
            None,
            "the first pattern that matches counts"
        );
    }
}
