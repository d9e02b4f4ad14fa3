//! Renewals that Redis refused: one line of log for many.

use std::time::{Duration, Instant};

/// How often they are logged.
const LOG_PAUSE: Duration = Duration::from_secs(10);

/// What was refused since the last line.
#[derive(Default)]
pub(super) struct Failures {
    count: u64,
    last: String,
    logged: Option<Instant>,
}

impl Failures {
    pub(super) fn count(&mut self, error: &[u8]) {
        self.count += 1;
        self.last = String::from_utf8_lossy(error).into_owned();
    }

    pub(super) fn log(&mut self) {
        let now = Instant::now();
        let is_time = self.logged.is_none_or(|at| now >= at + LOG_PAUSE);
        if self.count > 0 && is_time {
            let (count, error) = (self.count, &self.last);
            tracing::warn!(
                count,
                error,
                "leases could not be renewed: they are tried again until they end"
            );
            (self.count, self.logged) = (0, Some(now));
        }
    }
}
