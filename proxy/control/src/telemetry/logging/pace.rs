//! One line per minute about one problem, with the number of times that it occurred. It logs nothing itself.

use std::time::{Duration, Instant};

/// Lines about the same problem are at least this far apart.
const LINES_APART: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Default)]
pub struct Pace {
    next: Option<Instant>,
    untold: u64,
}

impl Pace {
    /// How often it occurred since the last line, if a line is due now.
    pub fn line(&mut self, now: Instant) -> Option<u64> {
        self.untold += 1;
        if self.next.is_some_and(|next| now < next) {
            return None;
        }
        self.next = now.checked_add(LINES_APART);
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_gets_a_line_a_minute_that_says_how_often_it_happened() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(pace.line(at(0)), Some(1));
        for ms in 1..1_000 {
            assert_eq!(pace.line(at(ms * 50)), None);
        }
        assert_eq!(pace.line(at(60_000)), Some(1_000));
    }
}
