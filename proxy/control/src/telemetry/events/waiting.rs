//! A queue for a thread that sleeps while the queue is empty: any thread puts an entry in, and one thread takes them
//! all. `tests/wakeups` compiles this file with loom's types and tries its steps in every order.

use std::time::Duration;

use crate::sync::{AtomicBool, Mutex, MutexGuard, OnceLock, Ordering, PoisonError, Thread, park_timeout, sleep};

/// The shortest time between two takes; each takes all entries.
const PAUSE: Duration = Duration::from_millis(50);
/// The longest time between two takes.
const TICK: Duration = Duration::from_secs(1);

/// See the module.
pub struct Waiting<T> {
    queue: Mutex<Queue<T>>,
    /// The thread sleeps until it is woken.
    asleep: AtomicBool,
    thread: OnceLock<Thread>,
    stopping: AtomicBool,
}

/// The waiting entries, and the number of all entries ever put in.
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

    /// From now on entries are stored for this thread. Call this once.
    pub(crate) fn wait_for(&self, thread: Thread) {
        self.thread.get_or_init(|| thread);
    }

    /// Puts an entry in unless `most` entries wait already; returns whether there was room. Without a thread nothing is
    /// stored.
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
        // One wake-up serves all entries that arrive in the pause after it.
        if self.asleep.swap(false, Ordering::AcqRel) {
            thread.unpark();
        }
        true
    }

    /// Swaps the waiting entries for an empty list; returns whether this is the last time.
    pub(crate) fn take(&self, empty: &mut Vec<T>) -> bool {
        // Set before the queue is read, so that a thread that puts an entry in afterwards wakes this thread. A store
        // would be enough, but loom lets it happen before exchanges that it cannot precede.
        self.asleep.swap(true, Ordering::AcqRel);
        let stopping = self.stopping.load(Ordering::Acquire);
        std::mem::swap(&mut self.queue().entries, empty);
        stopping
    }

    /// Sleeps until an entry waits or the tick is over; after a busy turn, only for the short pause.
    pub(crate) fn rest(&self, was_busy: bool) {
        match was_busy {
            true => sleep(PAUSE),
            false => park_timeout(TICK),
        }
    }

    /// Makes the thread take the waiting entries for the last time.
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
