//! Folds repeated refusals: a client that retries in a loop gets one line per second, with the number of refusals that
//! it stands for. Counters are never folded, only lines. It reads no clock and logs nothing; code that refuses a
//! command asks it first.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use lockwarden_lock::reason::Reason;
use lockwarden_lock::rules::Mode;

use crate::telemetry::fold::{Folder, Turn};

/// Lines about the same thing are at least this far apart.
const WINDOW: Duration = Duration::from_secs(1);

/// The most different refusals that are tracked at one time. Beyond that all new ones share one place, so a client with
/// random keys cannot flood the log for longer than it takes to fill the map.
const PLACES: usize = 4096;

/// The most bytes of a key in a line of folded refusals.
const MAX_KEY: usize = 1_024;

/// A refusal, with the fields of its line. Equal refusals share lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Refusal<'a> {
    /// The client's address.
    pub client: &'a str,
    /// `None` if a command is refused for its effect on many keys.
    pub namespace: Option<&'a str>,
    pub key: &'a [u8],
    pub command: &'a str,
    pub reason: Reason,
    /// In monitor mode, it would have been refused.
    pub mode: Mode,
}

/// Decides which refusals get a line.
pub struct RepeatFolder {
    hasher: RandomState,
    /// By a hash of the refusal, with one place for all that have none of their own. Two refusals with the same hash
    /// share a line, which does no harm.
    folder: Mutex<Folder<Option<u64>, Folded>>,
}

/// Equal refusals that are in no line yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folded {
    /// The first of them; all others are equal, unless they are mixed.
    client: String,
    namespace: Option<String>,
    /// At most [`MAX_KEY`] bytes of it.
    key: Vec<u8>,
    command: String,
    reason: Reason,
    mode: Mode,
    /// Their number.
    pub(crate) repeated: u64,
    /// They had no place of their own, so clients, keys and reasons may differ.
    is_mixed: bool,
}

/// A folder that has seen nothing.
impl Default for RepeatFolder {
    fn default() -> RepeatFolder {
        RepeatFolder { hasher: RandomState::new(), folder: Mutex::new(Folder::new(WINDOW)) }
    }
}

impl RepeatFolder {
    /// Whether this refusal gets a line: `Some(repeated)`, where `repeated` counts the equal ones since the last line,
    /// which got none.
    pub fn admit(&self, refusal: Refusal<'_>, now: Instant) -> Option<u64> {
        let own = Some(self.hasher.hash_one(refusal));
        let mut folder = self.folder.lock().unwrap_or_else(PoisonError::into_inner);
        let place = own.filter(|_| folder.has_room(&own, PLACES));
        match folder.turn(place, now) {
            Turn::Line(folded) => Some(folded.map_or(0, |folded| folded.repeated)),
            Turn::Fold(folded) => {
                let none = || Folded::new(refusal, place.is_none());
                folded.get_or_insert_with(none).repeated += 1;
                None
            }
        }
    }

    /// Forgets places that have been quiet for a second, and returns the refusals folded there, which would otherwise
    /// be lost. Call this about once a second.
    pub fn drain(&self, now: Instant) -> Vec<Folded> {
        let mut folder = self.folder.lock().unwrap_or_else(PoisonError::into_inner);
        folder.forget(now).collect()
    }
}

impl Folded {
    fn new(refusal: Refusal<'_>, is_mixed: bool) -> Folded {
        Folded {
            client: refusal.client.to_owned(),
            namespace: refusal.namespace.map(str::to_owned),
            key: refusal.key[..refusal.key.len().min(MAX_KEY)].to_vec(),
            command: refusal.command.to_owned(),
            reason: refusal.reason,
            mode: refusal.mode,
            repeated: 0,
            is_mixed,
        }
    }

    /// Writes the line.
    pub fn log(&self) {
        if self.is_mixed {
            return tracing::info!(
                repeated = self.repeated,
                "refused, or would have been: more kinds at once than are told apart"
            );
        }
        tracing::info!(
            namespace = self.namespace,
            key = %String::from_utf8_lossy(&self.key),
            cmd = %self.command.to_ascii_uppercase(),
            reason = self.reason.word(),
            client = self.client,
            repeated = self.repeated,
            "{}",
            match self.mode {
                Mode::Enforce => "refused again",
                Mode::Monitor => "would have been refused again",
            }
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal<'a>(client: &'a str, key: &'a [u8], reason: Reason) -> Refusal<'a> {
        Refusal { client, namespace: Some("orders"), key, command: "del", reason, mode: Mode::Enforce }
    }

    #[test]
    fn a_client_in_a_loop_gets_one_line_a_second_with_the_count() {
        let folder = RepeatFolder::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let refuse = |ms| folder.admit(refusal("billing-7", b"lock:a", Reason::NotOwner), at(ms));
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
        let folder = RepeatFolder::default();
        let now = Instant::now();
        assert_eq!(folder.admit(refusal("a", b"k", Reason::NotOwner), now), Some(0));
        assert_eq!(folder.admit(refusal("b", b"k", Reason::NotOwner), now), Some(0));
        assert_eq!(folder.admit(refusal("a", b"l", Reason::NotOwner), now), Some(0));
        assert_eq!(folder.admit(refusal("a", b"k", Reason::Expired), now), Some(0));
        assert_eq!(folder.admit(refusal("a", b"k", Reason::NotOwner), now), None);
    }

    #[test]
    fn what_was_folded_last_is_told_in_the_end() {
        let folder = RepeatFolder::default();
        let now = Instant::now();
        for _ in 0..4 {
            folder.admit(refusal("a", b"k", Reason::Overwrite), now);
        }
        assert_eq!(folder.drain(now), []);
        let later = now + WINDOW;
        let expected = Folded { repeated: 3, ..Folded::new(refusal("a", b"k", Reason::Overwrite), false) };
        assert_eq!(folder.drain(later), [expected]);
        assert_eq!(folder.drain(later), []);
        assert_eq!(folder.admit(refusal("a", b"k", Reason::Overwrite), later), Some(0));
    }

    #[test]
    fn random_keys_cannot_flood_the_log_or_the_memory() {
        let folder = RepeatFolder::default();
        let now = Instant::now();
        let lines = (0..100_000_u32)
            .filter(|n| folder.admit(refusal("a", &n.to_le_bytes(), Reason::Other), now).is_some())
            .count();
        assert_eq!(lines, PLACES + 1);
        let [rest] = &folder.drain(now + WINDOW)[..] else {
            panic!("one line for all that have no place");
        };
        assert_eq!(rest.repeated, 100_000 - lines as u64);
        assert!(rest.is_mixed, "it names none of them");
    }
}
