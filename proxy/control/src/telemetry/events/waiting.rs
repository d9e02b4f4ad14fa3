//! What waits for a thread that sleeps while nothing does: any thread puts an entry in, one takes them all. `tests/wakeups`
//! compiles this file with the types of loom and tries its steps in every order.

use std::time::Duration;

use crate::sync::{AtomicBool, Mutex, MutexGuard, OnceLock, Ordering, PoisonError, Thread, park_timeout, sleep};

/// Entries are taken at most this often, many at once.
const PAUSE: Duration = Duration::from_millis(50);
/// The thread looks at least this often.
const TICK: Duration = Duration::from_secs(1);

/// See the module.
pub struct Waiting<T> {
    queue: Mutex<Queue<T>>,
    /// The thread sleeps until it is woken.
    asleep: AtomicBool,
    thread: OnceLock<Thread>,
    stopping: AtomicBool,
}

/// What waits, and how much has ever been put in.
pub(crate) struct Queue<T> {
    pub(super) entries: Vec<T>,
    pub(super) put: u64,
}

impl<T> Waiting<T> {
    pub(crate) fn new() -> Waiting<T> {
        let queue = Queue { entries: Vec::new(), put: 0 };
        Waiting {
            queue: Mutex::new(queue),
            asleep: AtomicBool::new(false),
            thread: OnceLock::new(),
            stopping: AtomicBool::new(false),
        }
    }

    /// From now on entries wait for this thread. To be called once.
    pub(crate) fn wait_for(&self, thread: Thread) {
        self.thread.get_or_init(|| thread);
    }

    /// Puts an entry in unless so many wait already; returns whether it did. Without a thread nothing is kept.
    pub fn put(&self, entry: T, most: usize) -> bool {
        let Some(thread) = self.thread.get() else {
            return true;
        };
        {
            let mut queue = self.queue();
            if queue.entries.len() >= most {
                return false;
            }
            queue.entries.push(entry);
            queue.put += 1;
        }
        // One wake-up serves all that come in the pause after it.
        if self.asleep.swap(false, Ordering::AcqRel) {
            thread.unpark();
        }
        true
    }

    /// Exchanges what waits for an empty list; returns whether this is the last time.
    pub(crate) fn take(&self, empty: &mut Vec<T>) -> bool {
        // Said before the look, so that whoever puts an entry in after it wakes this thread. A store would do; loom takes
        // it to come before exchanges that it cannot come before.
        self.asleep.swap(true, Ordering::AcqRel);
        let stopping = self.stopping.load(Ordering::Acquire);
        std::mem::swap(&mut self.queue().entries, empty);
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
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    pub(super) fn queue(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
