//! The queue between the thread of the event log, which words records, and the thread that writes them. It
//! is bounded: where writing falls behind or fails, records are lost and counted, and nobody waits.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use prometheus::IntCounter;
use serde::Serialize;

use super::record::Numbered;
use crate::config::Limits;

/// Bytes that wait to be written: a minute of a busy lock's records. As much again is with the
/// thread that writes.
const MAX_WAITING: usize = 8 * 1024 * 1024;

/// A write that takes longer than this has failed as far as `audit_required` is concerned.
const STUCK: Duration = Duration::from_secs(5);

/// How long the end of the process waits for the last records.
const PATIENCE: Duration = Duration::from_secs(2);

/// See the module.
pub(super) struct Line {
    queue: Mutex<Queue>,
    /// Something was put into the queue, or the thread that writes has ended.
    changed: Condvar,
    writable: AtomicBool,
    seq: AtomicU64,
    dropped: IntCounter,
}

#[derive(Default)]
struct Queue {
    lines: Vec<u8>,
    /// What waits longest waits since then.
    since: Option<Instant>,
    lost: u64,
    reopen: Option<Limits>,
    stopping: bool,
    ended: bool,
}

/// What the thread that writes has to do.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// Whole lines, one after the other.
    pub(super) lines: Vec<u8>,
    /// How many more there were for which there was no room.
    pub(super) lost: u64,
    /// The file is to be opened anew, with these limits from now on.
    pub(super) reopen: Option<Limits>,
    /// This is the last.
    pub(super) stopping: bool,
}

impl Line {
    pub(super) fn new(dropped: IntCounter) -> Line {
        Line {
            queue: Mutex::default(),
            changed: Condvar::new(),
            writable: AtomicBool::new(true),
            seq: AtomicU64::new(0),
            dropped,
        }
    }

    /// Puts a record or notice into the queue, if there is room.
    pub(super) fn push(&self, mut line: impl Numbered, now: Instant) {
        line.number(self.next_seq());
        let mut queue = self.queue();
        if queue.lines.len() >= MAX_WAITING {
            queue.lost += 1;
            drop(queue);
            self.dropped.inc();
            self.writable.store(false, Ordering::Relaxed);
            return;
        }
        put(&mut queue.lines, &line);
        queue.since.get_or_insert(now);
    }

    /// Wakes the thread that writes: what was pushed is all for now.
    pub(super) fn wake(&self) {
        self.changed.notify_all();
    }

    /// Records that were lost on their way here.
    pub(super) fn lose(&self, records: u64) {
        self.queue().lost += records;
        self.dropped.inc_by(records);
    }

    /// The file is to be opened anew, with these limits from now on.
    pub(super) fn reopen(&self, limits: Limits) {
        self.queue().reopen = Some(limits);
        self.changed.notify_all();
    }

    /// Finds out that writing is stuck; answers whether it was found out now.
    pub(super) fn is_stuck_since(&self, now: Instant) -> bool {
        let since = self.queue().since;
        let stuck = since.is_some_and(|since| now.saturating_duration_since(since) > STUCK);
        stuck && self.writable.swap(false, Ordering::Relaxed)
    }

    /// Whether records can be written, as far as is known.
    pub(super) fn is_writable(&self) -> bool {
        self.writable.load(Ordering::Relaxed)
    }

    /// What the thread that writes found out.
    pub(super) fn set_writable(&self, writable: bool) {
        if writable {
            // What waits has waited for a sink that works again; from now on it counts anew.
            let mut queue = self.queue();
            queue.since = queue.since.map(|_| Instant::now());
        }
        self.writable.store(writable, Ordering::Relaxed);
    }

    pub(super) fn next_seq(&self) -> u64 {
        self.seq.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// What there is to do; waits for something at most this long. Where records cannot be written,
    /// they stay here.
    pub(super) fn take(&self, patience: Duration, with_lines: bool) -> Work {
        let idle = |queue: &mut Queue| {
            let lines = with_lines && (!queue.lines.is_empty() || queue.lost > 0);
            !lines && queue.reopen.is_none() && !queue.stopping
        };
        let (mut queue, _) = self
            .changed
            .wait_timeout_while(self.queue(), patience, idle)
            .unwrap_or_else(PoisonError::into_inner);
        let mut work = Work {
            reopen: queue.reopen.take(),
            stopping: queue.stopping,
            ..Work::default()
        };
        if with_lines {
            queue.since = None;
            work.lines = std::mem::take(&mut queue.lines);
            work.lost = std::mem::take(&mut queue.lost);
        }
        work
    }

    /// Gives up what could not be written at the end, beside what still waits here; answers how many
    /// records that are.
    pub(super) fn end(&self, unwritten: u64) -> u64 {
        let rest = count(&std::mem::take(&mut self.queue().lines));
        self.dropped.inc_by(rest + unwritten);
        rest + unwritten
    }

    /// The last word of the thread that writes.
    pub(super) fn ended(&self) {
        self.queue().ended = true;
        self.changed.notify_all();
    }

    /// Has everything written, as far as that is possible in a short time.
    pub(super) fn stop(&self) {
        let mut queue = self.queue();
        queue.stopping = true;
        self.changed.notify_all();
        // What cannot be written by then never will be; the log has said why.
        drop(
            self.changed
                .wait_timeout_while(queue, PATIENCE, |queue| !queue.ended),
        );
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts one line behind others.
pub(super) fn put(lines: &mut Vec<u8>, line: &impl Serialize) {
    let before = lines.len();
    match serde_json::to_writer(&mut *lines, line) {
        Ok(()) => lines.push(b'\n'),
        // Text, numbers and lists always have a form in JSON.
        Err(_) => lines.truncate(before),
    }
}

/// How many lines these are.
pub(super) fn count(lines: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', lines).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::audit::record::Notice;

    fn line() -> Line {
        Line::new(IntCounter::new("dropped", "in a test").unwrap())
    }

    #[test]
    fn who_does_not_write_costs_records_and_no_memory() {
        let (line, now) = (line(), Instant::now());
        let long = Notice {
            detail: Some("x".repeat(64 * 1024)),
            ..Notice::default()
        };
        for _ in 0..200 {
            line.push(long.clone(), now);
        }
        assert!(!line.is_writable());
        let work = line.take(Duration::ZERO, true);
        assert!(work.lines.len() < MAX_WAITING + 70 * 1024);
        assert_eq!(count(&work.lines) + work.lost, 200);
        assert_eq!(line.dropped.get(), work.lost);
    }

    #[test]
    fn a_write_that_does_not_return_is_found_out_once() {
        let (line, now) = (line(), Instant::now());
        line.push(Notice::default(), now);
        assert!(!line.is_stuck_since(now + STUCK));
        assert!(line.is_writable());
        assert!(line.is_stuck_since(now + 2 * STUCK));
        assert!(!line.is_stuck_since(now + 2 * STUCK));
        assert!(!line.is_writable());
    }
}
