//! The lines that wait to be written, and the other orders for the writing thread. `tests/wakeups` compiles this file
//! with loom's types and tries its steps in every order.

use std::time::{Duration, Instant};

use crate::config::Limits;
use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// How long the process waits for the last records when it ends.
const PATIENCE: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Default)]
pub(crate) struct Queue {
    pub(super) lines: Vec<u8>,
    /// Since when the oldest of them waits.
    pub(super) since: Option<Instant>,
    pub(super) lost: u64,
    reopen: Option<Limits>,
    stopping: bool,
    ended: bool,
}

/// Work for the writing thread.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Whole lines, one after the other.
    pub(crate) lines: Vec<u8>,
    /// The number of further lines for which there was no room.
    pub(crate) lost: u64,
    /// Reopen the file, and use these limits from now on.
    pub(crate) reopen: Option<Limits>,
    /// This is the last work.
    pub(crate) stopping: bool,
}

/// The queue, and the condition for waiting on it.
#[derive(Default)]
pub(crate) struct Waiting {
    queue: Mutex<Queue>,
    /// Notified when something was put into the queue, and when the writing thread has ended.
    changed: Condvar,
}

impl Waiting {
    /// Wakes the writing thread: all lines were pushed for now.
    pub(crate) fn wake(&self) {
        self.changed.notify_all();
    }

    /// Orders the file to be reopened, with these limits from now on.
    pub(crate) fn reopen(&self, limits: Limits) {
        self.queue().reopen = Some(limits);
        self.changed.notify_all();
    }

    /// Returns the next work, after waiting at most this long. While records cannot be written, they stay here.
    pub(crate) fn take(&self, patience: Duration, with_lines: bool) -> Work {
        let idle = |queue: &mut Queue| {
            let lines = with_lines && (!queue.lines.is_empty() || queue.lost > 0);
            !lines && queue.reopen.is_none() && !queue.stopping
        };
        let (mut queue, _) =
            self.changed.wait_timeout_while(self.queue(), patience, idle).unwrap_or_else(PoisonError::into_inner);
        let mut work = Work { reopen: queue.reopen.take(), stopping: queue.stopping, ..Work::default() };
        if with_lines {
            queue.since = None;
            work.lines = std::mem::take(&mut queue.lines);
            work.lost = std::mem::take(&mut queue.lost);
        }
        work
    }

    /// Called by the writing thread when it has ended.
    pub(crate) fn ended(&self) {
        self.queue().ended = true;
        self.changed.notify_all();
    }

    /// Waits until everything is written, as far as possible within a short time.
    pub(crate) fn stop(&self) {
        let mut queue = self.queue();
        queue.stopping = true;
        self.changed.notify_all();
        // What is not written by then is lost; the log has said why.
        drop(self.changed.wait_timeout_while(queue, PATIENCE, |queue| !queue.ended));
    }

    pub(crate) fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
