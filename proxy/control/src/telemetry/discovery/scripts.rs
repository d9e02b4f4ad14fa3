//! Remembers which scripts are about locks. To find that out takes longer than to forward the call, so a script that
//! never was about locks is no longer examined.

use std::sync::atomic::{AtomicU8, Ordering};

use dashmap::DashMap;
use dashmap::mapref::one::Ref;
use twox_hash::XxHash3_64;

/// Scripts, by text or digest, that are remembered; beyond this limit a call is not examined.
const MAX_SCRIPTS: usize = 4_096;
/// How often a script is examined without finding a lock.
const MAX_IN_VAIN: u8 = 8;

/// By the hash of the text, or of the digest.
#[derive(Default)]
pub(super) struct SeenScripts(DashMap<u64, AtomicU8>);

/// What is known of one script.
pub struct Likeness<'a>(Option<Ref<'a, u64, AtomicU8>>);

/// It was seen to be about a lock.
const ABOUT_LOCKS: u8 = u8::MAX;

impl SeenScripts {
    pub(super) fn of(&self, called: &[u8]) -> Likeness<'_> {
        let hash = XxHash3_64::oneshot(called);
        if let Some(known) = self.0.get(&hash) {
            return Likeness(Some(known));
        }
        if self.0.len() >= MAX_SCRIPTS {
            return Likeness(None);
        }
        Likeness(Some(self.0.entry(hash).or_default().downgrade()))
    }
}

impl Likeness<'_> {
    /// Whether a call should be examined.
    pub fn is_worth_a_look(&self) -> bool {
        let seen = self.0.as_ref().map(|seen| seen.load(Ordering::Relaxed));
        seen.is_some_and(|seen| seen < MAX_IN_VAIN || seen == ABOUT_LOCKS)
    }

    /// Records whether an examination found a lock.
    pub fn showed(&self, a_lock: bool) {
        let Some(seen) = &self.0 else {
            return;
        };
        match a_lock {
            true => seen.store(ABOUT_LOCKS, Ordering::Relaxed),
            false => {
                let once_more = |seen: u8| (seen < MAX_IN_VAIN).then(|| seen + 1);
                // A script that was about a lock before stays marked.
                let _ = seen.fetch_update(Ordering::Relaxed, Ordering::Relaxed, once_more);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_is_never_about_a_lock_is_looked_at_no_more() {
        let scripts = SeenScripts::default();
        for _ in 0..MAX_IN_VAIN {
            assert!(scripts.of(b"return 1").is_worth_a_look());
            scripts.of(b"return 1").showed(false);
        }
        assert!(!scripts.of(b"return 1").is_worth_a_look());

        scripts.of(b"return 2").showed(true);
        for _ in 0..2 * MAX_IN_VAIN {
            scripts.of(b"return 2").showed(false);
        }
        assert!(scripts.of(b"return 2").is_worth_a_look());
    }

    #[test]
    fn there_is_a_bound() {
        let scripts = SeenScripts::default();
        for number in 0..2 * MAX_SCRIPTS {
            scripts.of(format!("return {number}").as_bytes());
        }
        assert!(scripts.0.len() <= MAX_SCRIPTS);
    }
}
