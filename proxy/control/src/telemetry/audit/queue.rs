//! The queue between the thread of the event log, which formats records, and the thread that writes them. It is
//! bounded: if writing falls behind or fails, records are lost and counted, and no command waits.

mod waiting;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use prometheus::IntCounter;
use serde::Serialize;

use super::record::Numbered;
use waiting::Waiting;
pub(super) use waiting::Work;

/// The most bytes that wait to be written: a minute of a busy lock's records. The writing thread may hold as much
/// again.
const MAX_WAITING: usize = 8 * 1024 * 1024;

/// A write that takes longer than this counts as failed for `audit_required`.
const STUCK: Duration = Duration::from_secs(5);

/// See the module.
pub(super) struct Line {
    pub(super) waiting: Waiting,
    writable: AtomicBool,
    seq: AtomicU64,
    dropped: IntCounter,
}

impl Line {
    pub(super) fn new(dropped: IntCounter) -> Line {
        Line { waiting: Waiting::default(), writable: AtomicBool::new(true), seq: AtomicU64::new(0), dropped }
    }

    /// Puts a record or notice into the queue, if there is room.
    pub(super) fn push(&self, mut line: impl Numbered, now: Instant) {
        line.number(self.next_seq());
        let mut queue = self.waiting.queue();
        if queue.lines.len() >= MAX_WAITING {
            queue.lost += 1;
            drop(queue);
            self.dropped.inc();
            // If the trail is required, no lock command goes on until there is room.
            self.writable.store(false, Ordering::Relaxed);
            return;
        }
        put(&mut queue.lines, &line);
        queue.since.get_or_insert(now);
    }

    /// Counts records that were lost before they got here.
    pub(super) fn lose(&self, records: u64) {
        self.waiting.queue().lost += records;
        self.dropped.inc_by(records);
    }

    /// Checks whether writing is stuck; returns true if that is new.
    pub(super) fn is_stuck_since(&self, now: Instant) -> bool {
        let since = self.waiting.queue().since;
        let stuck = since.is_some_and(|since| now.saturating_duration_since(since) > STUCK);
        stuck && self.writable.swap(false, Ordering::Relaxed)
    }

    /// Whether records can be written, as far as known.
    pub(super) fn is_writable(&self) -> bool {
        self.writable.load(Ordering::Relaxed)
    }

    /// Sets whether records can be written, as the writing thread found out.
    pub(super) fn set_writable(&self, writable: bool) {
        if writable {
            // The waiting records waited for a sink that works again; their time starts anew.
            let mut queue = self.waiting.queue();
            queue.since = queue.since.map(|_| Instant::now());
        }
        self.writable.store(writable, Ordering::Relaxed);
    }

    pub(super) fn next_seq(&self) -> u64 {
        self.seq.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Counts records as lost that were not written at the end, and those still in the queue. Returns their number.
    pub(super) fn end(&self, unwritten: u64) -> u64 {
        let rest = count(&std::mem::take(&mut self.waiting.queue().lines));
        self.dropped.inc_by(rest + unwritten);
        rest + unwritten
    }
}

/// Appends one line.
pub(super) fn put(lines: &mut Vec<u8>, line: &impl Serialize) {
    let before = lines.len();
    match serde_json::to_writer(&mut *lines, line) {
        Ok(()) => lines.push(b'\n'),
        // Text, numbers and lists can always be written as JSON.
        Err(_) => lines.truncate(before),
    }
}

/// The number of lines.
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
        let long = Notice { detail: Some("x".repeat(64 * 1024)), ..Notice::default() };
        for _ in 0..200 {
            line.push(long.clone(), now);
        }
        assert!(!line.is_writable());
        let work = line.waiting.take(Duration::ZERO, true);
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
