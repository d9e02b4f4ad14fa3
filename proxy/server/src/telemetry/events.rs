//! The trail: what happened to locks, told to those who keep it or show it. Sessions and upkeep leave
//! an [`Entry`] and go on; one thread hands them, in order, to its followers (the audit files, the
//! view behind the board). Nobody on the way of a command waits for a follower: where they fall
//! behind, entries are dropped and counted.

mod event;
mod fingerprint;
mod questions;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

#[cfg(test)]
pub(crate) use event::example;
pub(crate) use event::{Caller, DEFAULT_USER, Entry, Happened, Took, Verdict};
pub(crate) use fingerprint::{Fingerprint, Fingerprints};
pub(crate) use questions::{Asked, Recorder, asked_about};

/// Entries that wait for the followers; above that new ones are dropped.
const MOST_WAITING: usize = 65_536;
/// Entries are handed over at most this often, many at once.
const PAUSE: Duration = Duration::from_millis(50);
/// Followers are given the time at least this often.
const TICK: Duration = Duration::from_secs(1);

/// Somebody who keeps or shows what happened.
pub(crate) trait Follower: Send {
    /// What happened since the last call, in order; nothing at a tick without news.
    fn follow(&mut self, entries: &[Entry], now: Instant);

    /// The last call: what is kept is written.
    fn finish(&mut self) {}
}

/// See the module.
pub(crate) struct Trail {
    waiting: Mutex<Vec<Entry>>,
    /// The thread of the followers sleeps until it is woken.
    asleep: AtomicBool,
    follower: OnceLock<Thread>,
    stopping: AtomicBool,
    dropped: AtomicU64,
    /// Entries are being dropped now.
    full: AtomicBool,
    /// Somebody keeps what policies were asked.
    wants_questions: AtomicBool,
    fingerprints: Fingerprints,
}

impl Default for Trail {
    fn default() -> Trail {
        Trail::new(Fingerprints::random())
    }
}

impl Trail {
    /// An empty trail without followers.
    pub(crate) fn new(fingerprints: Fingerprints) -> Trail {
        Trail {
            waiting: Mutex::default(),
            asleep: AtomicBool::new(false),
            follower: OnceLock::new(),
            stopping: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
            full: AtomicBool::new(false),
            wants_questions: AtomicBool::new(false),
            fingerprints,
        }
    }

    /// Leaves an entry. Never waits for a follower; without one nothing is kept.
    pub(crate) fn leave(&self, entry: Entry) {
        let Some(follower) = self.follower.get() else {
            return;
        };
        {
            let mut waiting = self.waiting();
            if waiting.len() >= MOST_WAITING {
                drop(waiting);
                self.full.store(true, Ordering::Relaxed);
                self.dropped.fetch_add(1, Ordering::Relaxed);
                return;
            }
            waiting.push(entry);
        }
        // One wake-up serves all that come in the pause after it.
        if self.asleep.swap(false, Ordering::AcqRel) {
            follower.unpark();
        }
    }

    /// What stands for an owner token wherever people see one: equal for equal ones, and of no use to
    /// anybody else.
    pub(crate) fn fingerprint(&self, token: &[u8]) -> Fingerprint {
        self.fingerprints.of(token)
    }

    /// Whether entries are to carry what policies were asked.
    pub(crate) fn wants_questions(&self) -> bool {
        self.wants_questions.load(Ordering::Relaxed)
    }

    /// Whether somebody keeps what policies are asked, from now on.
    pub(crate) fn want_questions(&self, wanted: bool) {
        self.wants_questions.store(wanted, Ordering::Relaxed);
    }

    /// Whether what is left now is dropped.
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Entries that no follower saw, since the start.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Starts the thread that hands entries over. To be called once.
    pub(crate) fn start(
        self: &Arc<Trail>,
        mut followers: Vec<Box<dyn Follower>>,
    ) -> io::Result<Following> {
        let trail = self.clone();
        let thread = std::thread::Builder::new()
            .name("trail".to_owned())
            .spawn(move || {
                trail.hand_over(&mut followers);
                for follower in &mut followers {
                    follower.finish();
                }
            })?;
        self.follower.get_or_init(|| thread.thread().clone());
        Ok(Following {
            trail: self.clone(),
            thread: Some(thread),
        })
    }

    fn hand_over(&self, followers: &mut [Box<dyn Follower>]) {
        let mut entries = Vec::new();
        loop {
            // Said before the look, so that whoever leaves an entry after it wakes this thread.
            self.asleep.store(true, Ordering::Release);
            let stopping = self.stopping.load(Ordering::Acquire);
            std::mem::swap(&mut *self.waiting(), &mut entries);
            self.full.store(false, Ordering::Relaxed);
            let now = Instant::now();
            for follower in &mut *followers {
                follower.follow(&entries, now);
            }
            let busy = !entries.is_empty();
            entries.clear();
            if stopping {
                return;
            }
            if busy {
                std::thread::sleep(PAUSE);
            } else {
                std::thread::park_timeout(TICK);
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The running thread. Dropped, it hands over what waits and ends.
pub(crate) struct Following {
    trail: Arc<Trail>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.trail.stopping.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::error!("the thread of the trail panicked");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    struct Told(mpsc::Sender<Vec<u8>>);

    impl Follower for Told {
        fn follow(&mut self, entries: &[Entry], _now: Instant) {
            for entry in entries {
                self.0.send(entry.key.key.to_vec()).unwrap();
            }
        }
    }

    #[test]
    fn entries_are_handed_over_in_order_and_the_last_ones_before_the_end() {
        let (told, heard) = mpsc::channel();
        let trail = Arc::new(Trail::default());
        trail.leave(example("lock:before"));
        let following = trail.start(vec![Box::new(Told(told))]).unwrap();
        for key in ["lock:a", "lock:b", "lock:a"] {
            trail.leave(example(key));
        }
        drop(following);
        let heard: Vec<Vec<u8>> = heard.iter().collect();
        assert_eq!(
            heard,
            [b"lock:a".to_vec(), b"lock:b".to_vec(), b"lock:a".to_vec()]
        );
    }

    #[test]
    fn who_does_not_follow_costs_entries_and_no_memory() {
        struct Stuck(mpsc::Receiver<()>);
        impl Follower for Stuck {
            fn follow(&mut self, _entries: &[Entry], _now: Instant) {
                // Until the test lets go of the other end.
                let _ = self.0.recv();
            }
        }
        let (let_go, stuck) = mpsc::channel();
        let trail = Arc::new(Trail::default());
        let following = trail.start(vec![Box::new(Stuck(stuck))]).unwrap();
        for _ in 0..2 * MOST_WAITING + 10 {
            trail.leave(example("lock:a"));
        }
        assert!(trail.waiting().len() <= MOST_WAITING);
        assert!(trail.dropped() >= 10);
        drop(let_go);
        drop(following);
    }

    #[test]
    fn a_fingerprint_tells_equal_owner_tokens_and_nothing_else() {
        let (trail, other) = (Trail::default(), Trail::default());
        let print = trail.fingerprint(b"token");
        assert_eq!(print, trail.fingerprint(b"token"));
        assert_ne!(print, trail.fingerprint(b"tokem"));
        assert_ne!(print, other.fingerprint(b"token"));
        assert_eq!(print.to_string().len(), 16);
    }
}
