//! Folds repeated refusals: a client that retries in a loop gets one line a second, and that line
//! says how many it stands for. Counters are never folded, only lines. It reads no clock and logs
//! nothing; whoever refuses asks it first.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use lockwarden_lock::reason::Reason;

use crate::telemetry::fold::{Folder, Turn};

/// Lines about the same thing are at least this far apart.
const WINDOW: Duration = Duration::from_secs(1);

/// Different refusals that are told apart at one time; past it, all new ones share one place, so a
/// client with random keys cannot flood the log for longer than it takes to fill the map.
const PLACES: usize = 4096;

/// Decides which refusals get a line.
pub(crate) struct RepeatFolder {
    hasher: RandomState,
    /// By a hash of client, key and reason, and one for all that have no place of their own. Two that
    /// collide share a line, which does no harm.
    folder: Mutex<Folder<Option<u64>, Folded>>,
}

/// Refusals of one kind that no line has told of yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Folded {
    /// Why they were refused.
    pub(crate) reason: Reason,
    /// How many.
    pub(crate) repeated: u64,
}

impl RepeatFolder {
    /// A folder that has seen nothing.
    pub(crate) fn new() -> RepeatFolder {
        RepeatFolder {
            hasher: RandomState::new(),
            folder: Mutex::new(Folder::new(WINDOW)),
        }
    }

    /// Whether this refusal gets a line: `Some(repeated)`, where `repeated` counts the same ones
    /// since the last line, which got none. `client` is whatever names the client best.
    pub(crate) fn admit(
        &self,
        client: &str,
        key: &[u8],
        reason: Reason,
        now: Instant,
    ) -> Option<u64> {
        let own = Some(self.hasher.hash_one((client, key, reason)));
        let mut folder = self.folder.lock().unwrap_or_else(PoisonError::into_inner);
        let place = own.filter(|_| folder.has_room(&own, PLACES));
        match folder.turn(place, now) {
            Turn::Line(folded) => Some(folded.map_or(0, |folded| folded.repeated)),
            Turn::Fold(folded) => {
                let none = Folded {
                    reason,
                    repeated: 0,
                };
                folded.get_or_insert(none).repeated += 1;
                None
            }
        }
    }

    /// Forgets what has been quiet for a second, and gives back what was folded there and would
    /// otherwise never be told. To be called about once a second.
    pub(crate) fn drain(&self, now: Instant) -> Vec<Folded> {
        let mut folder = self.folder.lock().unwrap_or_else(PoisonError::into_inner);
        folder.forget(now).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_in_a_loop_gets_one_line_a_second_with_the_count() {
        let folder = RepeatFolder::new();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let refuse = |ms| folder.admit("billing-7", b"lock:a", Reason::NotOwner, at(ms));
        assert_eq!(refuse(0), Some(0));
        for ms in 1..1000 {
            assert_eq!(refuse(ms), None);
        }
        assert_eq!(refuse(1000), Some(999));
        assert_eq!(refuse(1001), None);
        assert_eq!(refuse(2500), Some(1));
    }

    #[test]
    fn another_client_key_or_reason_is_another_line() {
        let folder = RepeatFolder::new();
        let now = Instant::now();
        assert_eq!(folder.admit("a", b"k", Reason::NotOwner, now), Some(0));
        assert_eq!(folder.admit("b", b"k", Reason::NotOwner, now), Some(0));
        assert_eq!(folder.admit("a", b"l", Reason::NotOwner, now), Some(0));
        assert_eq!(folder.admit("a", b"k", Reason::Expired, now), Some(0));
        assert_eq!(folder.admit("a", b"k", Reason::NotOwner, now), None);
    }

    #[test]
    fn what_was_folded_last_is_told_in_the_end() {
        let folder = RepeatFolder::new();
        let now = Instant::now();
        for _ in 0..4 {
            folder.admit("a", b"k", Reason::Overwrite, now);
        }
        assert_eq!(folder.drain(now), []);
        let later = now + WINDOW;
        let expected = Folded {
            reason: Reason::Overwrite,
            repeated: 3,
        };
        assert_eq!(folder.drain(later), [expected]);
        assert_eq!(folder.drain(later), []);
        assert_eq!(folder.admit("a", b"k", Reason::Overwrite, later), Some(0));
    }

    #[test]
    fn random_keys_cannot_flood_the_log_or_the_memory() {
        let folder = RepeatFolder::new();
        let now = Instant::now();
        let lines = (0..100_000_u32)
            .filter(|n| {
                folder
                    .admit("a", &n.to_le_bytes(), Reason::Other, now)
                    .is_some()
            })
            .count();
        assert_eq!(lines, PLACES + 1);
        let folded: u64 = folder.drain(now + WINDOW).iter().map(|f| f.repeated).sum();
        assert_eq!(folded, 100_000 - lines as u64);
    }
}
