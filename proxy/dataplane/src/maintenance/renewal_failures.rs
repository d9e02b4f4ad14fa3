//! Repeated refusals of Redis on the connection that renews: one log line for many refusals, and one when it succeeds
//! again.

use std::time::{Duration, Instant};

/// How soon after the first line the same trouble is logged again; the pause is doubled each time.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
/// The longest time between two lines about the same trouble.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// The refusals since the last success.
pub(super) struct Failures {
    /// What they mean, for the log.
    trouble: &'static str,
    /// What their end means, for the log.
    all_clear: &'static str,
    /// Refusals since the last line.
    untold: u64,
    last: String,
    told: Option<Told>,
}

/// The last line.
struct Told {
    /// Its error, without the parts that differ from one refusal to the next.
    error: String,
    next: Instant,
    pause: Duration,
    /// Refusals since the trouble began.
    all: u64,
}

/// A line that is to be written.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Trouble { count: u64 },
    AllClear { count: u64 },
}

impl Failures {
    pub(super) fn new(trouble: &'static str, all_clear: &'static str) -> Failures {
        Failures { trouble, all_clear, untold: 0, last: String::new(), told: None }
    }

    pub(super) fn count(&mut self, error: &[u8]) {
        self.untold += 1;
        self.last = String::from_utf8_lossy(error).into_owned();
    }

    /// Writes the line that is due. `succeeded`: nothing was refused just now.
    pub(super) fn log(&mut self, succeeded: bool) {
        match self.line(succeeded, Instant::now()) {
            None => {}
            Some(Line::Trouble { count }) => {
                tracing::warn!(count, error = self.last, "{}", self.trouble);
            }
            Some(Line::AllClear { count }) => tracing::info!(count, "{}", self.all_clear),
        }
    }

    fn line(&mut self, succeeded: bool, now: Instant) -> Option<Line> {
        if succeeded {
            let count = self.told.take()?.all + std::mem::take(&mut self.untold);
            return Some(Line::AllClear { count });
        }
        if self.untold == 0 {
            return None;
        }
        let kind = self.last.split_whitespace().next().unwrap_or_default();
        let (pause, all) = match &self.told {
            Some(told) if told.error == kind && now < told.next => return None,
            Some(told) if told.error == kind => ((told.pause * 2).min(LONGEST_PAUSE), told.all),
            Some(told) => (FIRST_PAUSE, told.all),
            None => (FIRST_PAUSE, 0),
        };
        let count = std::mem::take(&mut self.untold);
        self.told = Some(Told { error: kind.to_owned(), next: now + pause, pause, all: all + count });
        Some(Line::Trouble { count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_trouble_is_told_ever_more_seldom_and_its_end_once() {
        let (mut failures, start) = (Failures::new("", ""), Instant::now());
        let mut lines = Vec::new();
        for second in 0..1_000 {
            failures.count(b"OOM command not allowed");
            let line = failures.line(false, start + Duration::from_secs(second));
            lines.extend(line.map(|_| second));
        }
        assert_eq!(lines, [0, 10, 30, 70, 150, 310, 630]);
        let later = start + Duration::from_secs(1_000);
        let over = Some(Line::AllClear { count: 1_000 });
        assert_eq!(failures.line(true, later), over);
        assert_eq!(failures.line(true, later), None);
    }

    #[test]
    fn other_trouble_is_told_at_once() {
        let (mut failures, now) = (Failures::new("", ""), Instant::now());
        failures.count(b"OOM command not allowed");
        assert_eq!(failures.line(false, now), Some(Line::Trouble { count: 1 }));
        failures.count(b"OOM command not allowed");
        assert_eq!(failures.line(false, now), None);
        failures.count(b"NOPERM this user has no permissions");
        assert_eq!(failures.line(false, now), Some(Line::Trouble { count: 2 }));
    }
}
