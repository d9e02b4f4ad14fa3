//! How often something happened in the last hour or day.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Pieces of a span: the count is off by one piece at most.
const PIECES: u32 = 60;

/// Counts over a moving time span.
pub(super) struct Lately {
    piece: Duration,
    /// The counts by the begin of their piece, the oldest first; at most [`PIECES`] plus one.
    counts: VecDeque<(Instant, u64)>,
}

impl Lately {
    pub(super) fn new(span: Duration) -> Lately {
        Lately { piece: span / PIECES, counts: VecDeque::new() }
    }

    /// Counts one occurrence.
    pub(super) fn add(&mut self, now: Instant) {
        match self.counts.back_mut() {
            Some((begin, count)) if now.saturating_duration_since(*begin) < self.piece => {
                *count += 1;
            }
            Some(_) | None => self.counts.push_back((now, 1)),
        }
        self.forget(now);
    }

    /// How often it happened in the span before `now`.
    pub(super) fn count(&self, now: Instant) -> u64 {
        let span = self.piece * PIECES;
        let is_in = |(begin, _): &&(Instant, u64)| now.saturating_duration_since(*begin) < span;
        self.counts.iter().filter(is_in).map(|(_, count)| count).sum()
    }

    fn forget(&mut self, now: Instant) {
        let span = self.piece * PIECES;
        while let Some((begin, _)) = self.counts.front()
            && now.saturating_duration_since(*begin) >= span
        {
            self.counts.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_longer_ago_than_the_span_does_not_count() {
        let (mut hour, start) = (Lately::new(Duration::from_secs(3600)), Instant::now());
        let at = |minutes: u64| start + Duration::from_secs(minutes * 60);
        for minute in 0..90 {
            hour.add(at(minute));
        }
        assert_eq!(hour.count(at(89)), 60);
        assert_eq!(hour.count(at(119)), 30);
        assert_eq!(hour.count(at(200)), 0);
        assert!(hour.counts.len() <= 61);
    }
}
