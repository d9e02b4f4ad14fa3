//! What waits for a thread that sleeps while nothing does: any thread puts an entry in, one takes them all. `tests/wakeups`
//! compiles this file with the types of loom and tries its steps in every order.

use std::time::Duration;

use crate::sync::{
    AtomicBool, Mutex, MutexGuard, OnceLock, Ordering, PoisonError, Thread, park_timeout, sleep,
};

/// Entries are taken at most this often, many at once.
const PAUSE: Duration = Duration::from_millis(50);
/// The thread looks at least this often.
const TICK: Duration = Duration::from_secs(1);

/// See the module.
pub(crate) struct Waiting<T> {
    entries: Mutex<Vec<T>>,
    /// The thread sleeps until it is woken.
    asleep: AtomicBool,
    thread: OnceLock<Thread>,
    stopping: AtomicBool,
}

impl<T> Waiting<T> {
    pub(crate) fn new() -> Waiting<T> {
        Waiting {
            entries: Mutex::new(Vec::new()),
            asleep: AtomicBool::new(false),
            thread: OnceLock::new(),
            stopping: AtomicBool::new(false),
        }
    }

    /// From now on entries wait for this thread. To be called once.
    pub(crate) fn wait_for(&self, thread: Thread) {
        self.thread.get_or_init(|| thread);
    }

    /// Puts an entry in unless so many wait already; answers whether it did. Without a thread nothing is kept.
    pub(crate) fn put(&self, entry: T, most: usize) -> bool {
        let Some(thread) = self.thread.get() else {
            return true;
        };
        {
            let mut entries = self.entries();
            if entries.len() >= most {
                return false;
            }
            entries.push(entry);
        }
        // One wake-up serves all that come in the pause after it.
        if self.asleep.swap(false, Ordering::AcqRel) {
            thread.unpark();
        }
        true
    }

    /// Exchanges what waits for an empty list; answers whether this is the last time.
    pub(crate) fn take(&self, empty: &mut Vec<T>) -> bool {
        // Said before the look, so that whoever puts an entry in after it wakes this thread. A store would do; loom takes
        // it to come before exchanges that it cannot come before.
        self.asleep.swap(true, Ordering::AcqRel);
        let stopping = self.stopping.load(Ordering::Acquire);
        std::mem::swap(&mut *self.entries(), empty);
        stopping
    }

    /// Sleeps until something waits or some time is over; after there was something, for a short time.
    pub(crate) fn rest(&self, was_busy: bool) {
        match was_busy {
            true => sleep(PAUSE),
            false => park_timeout(TICK),
        }
    }

    /// Has the thread take what waits for the last time.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    pub(super) fn entries(&self) -> MutexGuard<'_, Vec<T>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
