//! The event log: passes what happened to locks to the parts that store or show it. Sessions and upkeep leave an
//! [`LockEvent`] and continue; one thread passes the events, in order, to the followers (the audit files, the view
//! behind the board). No command waits for a follower: if followers fall behind, entries are dropped and counted.

mod by_caller;
mod event;
mod fingerprint;
mod questions;
mod waiting;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use by_caller::ByCaller;
pub use event::example;
pub use event::{Caller, DEFAULT_USER, EventKind, GuardedData, LockEvent, SessionNumber, Took, Verdict};
pub use fingerprint::{Fingerprint, Fingerprints};
pub use questions::{Asked, Recorder, asked_about};
pub use waiting::Waiting;

/// The most entries that wait for the followers; beyond that, new ones are dropped.
const MAX_WAITING: usize = 65_536;
/// The longest time that a question about the followers' state waits for them.
const CATCH_UP: Duration = Duration::from_secs(1);

/// A follower, which keeps or shows what happened.
pub trait Follower: Send {
    /// Receives what happened since the last call, in order; an empty list at a tick without news.
    fn follow(&mut self, entries: &[LockEvent], now: Instant);

    /// The last call: the follower writes what it has stored.
    fn finish(&mut self) {}
}

/// See the module.
pub struct EventLog {
    waiting: Waiting<LockEvent>,
    /// Entries that all followers have seen.
    followed: Mutex<u64>,
    caught_up: Condvar,
    dropped: AtomicU64,
    /// Whether entries are being dropped now.
    full: AtomicBool,
    /// For which percentage of connections a follower stores the questions to policies.
    asked_of: AtomicU8,
    fingerprints: Fingerprints,
}

impl Default for EventLog {
    fn default() -> EventLog {
        EventLog::new(Fingerprints::random())
    }
}

impl EventLog {
    /// An empty log without followers.
    pub fn new(fingerprints: Fingerprints) -> EventLog {
        EventLog {
            waiting: Waiting::new(),
            followed: Mutex::new(0),
            caught_up: Condvar::new(),
            dropped: AtomicU64::new(0),
            full: AtomicBool::new(false),
            asked_of: AtomicU8::new(0),
            fingerprints,
        }
    }

    /// Leaves an entry. Never waits for a follower; without a follower nothing is stored.
    pub fn leave(&self, entry: LockEvent) {
        if !self.waiting.put(entry, MAX_WAITING) {
            self.full.store(true, Ordering::Relaxed);
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The value shown to people in place of an owner token: equal for equal tokens, and of no use to anyone else.
    pub fn fingerprint(&self, token: &[u8]) -> Fingerprint {
        self.fingerprints.of(token)
    }

    /// Makes the fingerprints of owner tokens.
    pub fn fingerprints(&self) -> &Fingerprints {
        &self.fingerprints
    }

    /// Whether this session's entries should carry the questions to policies: all of its entries or none, so that what
    /// is stored is complete.
    pub fn wants_questions_of(&self, session: SessionNumber) -> bool {
        match self.asked_of.load(Ordering::Relaxed) {
            0 => false,
            100.. => true,
            percent => twox_hash::XxHash3_64::oneshot(&session.0.to_le_bytes()) % 100 < u64::from(percent),
        }
    }

    /// From now on, a follower stores the questions to policies for this percentage of connections.
    pub(crate) fn want_questions(&self, percent: u8) {
        self.asked_of.store(percent, Ordering::Relaxed);
    }

    /// Whether new entries are dropped now.
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// How many entries no follower has seen, since the start.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Waits until the followers have seen all entries left before the call, so that the effect of an action is visible
    /// where they show it. If they are far behind, waits a second at most.
    pub fn await_followers(&self) {
        let left = self.waiting.queue().put;
        let followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        let is_behind = |followed: &mut u64| *followed < left;
        let _ = self.caught_up.wait_timeout_while(followed, CATCH_UP, is_behind);
    }

    /// Starts the thread that hands entries over. To be called once.
    pub fn start(self: &Arc<EventLog>, mut followers: Vec<Box<dyn Follower>>) -> io::Result<Following> {
        let events = self.clone();
        let thread = std::thread::Builder::new().name("trail".to_owned()).spawn(move || {
            events.hand_over(&mut followers);
            for follower in &mut followers {
                follower.finish();
            }
        })?;
        self.waiting.wait_for(thread.thread().clone());
        Ok(Following { events: self.clone(), thread: Some(thread) })
    }

    fn hand_over(&self, followers: &mut [Box<dyn Follower>]) {
        let mut entries = Vec::new();
        loop {
            let stopping = self.waiting.take(&mut entries);
            // The waiting entries were taken, so there is room again.
            self.full.store(false, Ordering::Relaxed);
            for entry in &entries {
                if let Some(caller) = &entry.caller {
                    caller.known_by.await_program();
                }
            }
            let now = Instant::now();
            for follower in &mut *followers {
                follower.follow(&entries, now);
            }
            let busy = !entries.is_empty();
            if busy {
                self.followed(entries.len() as u64);
            }
            entries.clear();
            if stopping {
                return;
            }
            self.waiting.rest(busy);
        }
    }

    fn followed(&self, entries: u64) {
        *self.followed.lock().unwrap_or_else(PoisonError::into_inner) += entries;
        self.caught_up.notify_all();
    }
}

/// The running thread. When dropped, it passes on the waiting entries and ends.
pub struct Following {
    events: Arc<EventLog>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.events.waiting.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the trail panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    struct Told(mpsc::Sender<Vec<u8>>);

    impl Follower for Told {
        fn follow(&mut self, entries: &[LockEvent], _now: Instant) {
            for entry in entries {
                self.0.send(entry.key.bytes().to_vec()).unwrap();
            }
        }
    }

    #[test]
    fn entries_are_handed_over_in_order_and_the_last_ones_before_the_end() {
        let (told, heard) = mpsc::channel();
        let events = Arc::new(EventLog::default());
        events.leave(example("lock:before"));
        let following = events.start(vec![Box::new(Told(told))]).unwrap();
        for key in ["lock:a", "lock:b", "lock:a"] {
            events.leave(example(key));
        }
        drop(following);
        let heard: Vec<Vec<u8>> = heard.iter().collect();
        assert_eq!(heard, [b"lock:a".to_vec(), b"lock:b".to_vec(), b"lock:a".to_vec()]);
    }

    #[test]
    fn who_waits_for_the_followers_finds_what_was_left_before() {
        let (told, heard) = mpsc::channel();
        let events = Arc::new(EventLog::default());
        events.await_followers();
        let _following = events.start(vec![Box::new(Told(told))]).unwrap();
        for key in ["lock:a", "lock:b", "lock:c"] {
            events.leave(example(key));
            events.await_followers();
            assert_eq!(heard.try_recv().unwrap(), key.as_bytes());
        }
    }

    #[test]
    fn who_does_not_follow_costs_entries_and_no_memory() {
        struct Stuck(mpsc::Receiver<()>);
        impl Follower for Stuck {
            fn follow(&mut self, _entries: &[LockEvent], _now: Instant) {
                // Blocks until the test drops the other end.
                let _ = self.0.recv();
            }
        }
        let (let_go, stuck) = mpsc::channel();
        let events = Arc::new(EventLog::default());
        let following = events.start(vec![Box::new(Stuck(stuck))]).unwrap();
        for _ in 0..2 * MAX_WAITING + 10 {
            events.leave(example("lock:a"));
        }
        assert!(events.waiting.queue().entries.len() <= MAX_WAITING);
        assert!(events.dropped() >= 10);
        drop(let_go);
        drop(following);
    }

    #[test]
    fn a_fingerprint_tells_equal_owner_tokens_and_nothing_else() {
        let (events, other) = (EventLog::default(), EventLog::default());
        let print = events.fingerprint(b"token");
        assert_eq!(print, events.fingerprint(b"token"));
        assert_ne!(print, events.fingerprint(b"tokem"));
        assert_ne!(print, other.fingerprint(b"token"));
        assert_eq!(print.to_string().len(), 16);
    }
}
