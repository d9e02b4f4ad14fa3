//! Lines that wait to be written, and what else the thread that writes is told. `tests/wakeups` compiles this file with the
//! types of loom and tries its steps in every order.

use std::time::{Duration, Instant};

use crate::config::Limits;
use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// How long the end of the process waits for the last records.
const PATIENCE: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Default)]
pub(crate) struct Queue {
    pub(super) lines: Vec<u8>,
    /// What waits longest waits since then.
    pub(super) since: Option<Instant>,
    pub(super) lost: u64,
    reopen: Option<Limits>,
    stopping: bool,
    ended: bool,
}

/// What the thread that writes has to do.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Whole lines, one after the other.
    pub(crate) lines: Vec<u8>,
    /// How many more there were for which there was no room.
    pub(crate) lost: u64,
    /// The file is to be opened anew, with these limits from now on.
    pub(crate) reopen: Option<Limits>,
    /// This is the last.
    pub(crate) stopping: bool,
}

/// The queue, and those who wait for it.
#[derive(Default)]
pub(crate) struct Waiting {
    queue: Mutex<Queue>,
    /// Something was put into the queue, or the thread that writes has ended.
    changed: Condvar,
}

impl Waiting {
    /// Wakes the thread that writes: what was pushed is all for now.
    pub(crate) fn wake(&self) {
        self.changed.notify_all();
    }

    /// The file is to be opened anew, with these limits from now on.
    pub(crate) fn reopen(&self, limits: Limits) {
        self.queue().reopen = Some(limits);
        self.changed.notify_all();
    }

    /// What there is to do; waits for something at most this long. Where records cannot be written,
    /// they stay here.
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

    /// The last word of the thread that writes.
    pub(crate) fn ended(&self) {
        self.queue().ended = true;
        self.changed.notify_all();
    }

    /// Has everything written, as far as that is possible in a short time.
    pub(crate) fn stop(&self) {
        let mut queue = self.queue();
        queue.stopping = true;
        self.changed.notify_all();
        // What cannot be written by then never will be; the log has said why.
        drop(self.changed.wait_timeout_while(queue, PATIENCE, |queue| !queue.ended));
    }

    pub(crate) fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
