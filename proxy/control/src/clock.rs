//! A moment on both clocks of this machine. Reading a clock costs as much as a look-up in a map, so the command path
//! reads the clocks only where time may have passed, and passes the moment on.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lockwarden_lock::time::ProxyTime;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// On the monotonic clock.
    pub at: Instant,
    /// Unix time, ms.
    pub unix_ms: u64,
}

impl Moment {
    /// Reads both clocks.
    pub fn now() -> Moment {
        Moment { at: Instant::now(), unix_ms: now_ms() }
    }

    /// This long before the moment.
    pub fn ago(self, span: Duration) -> Moment {
        let span_ms = ms(span);
        Moment { at: self.at.checked_sub(span).unwrap_or(self.at), unix_ms: self.unix_ms.saturating_sub(span_ms) }
    }

    /// This moment, or the moment this long before `now`, whichever is later.
    pub fn or_ago(self, span: Duration, now: Moment) -> Moment {
        match now.at.saturating_duration_since(self.at) > span {
            true => now.ago(span),
            false => self,
        }
    }

    /// A moment soon after this one, given on the monotonic clock.
    pub fn then(self, at: Instant) -> Moment {
        let passed: Duration = at.saturating_duration_since(self.at);
        let passed_ms = ms(passed);
        Moment { at, unix_ms: self.unix_ms.saturating_add(passed_ms) }
    }
}

/// Unix time by this machine's clock.
pub fn unix_now() -> Duration {
    // A clock before 1970 is wrong anyway; then the result is 0.
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The time of this machine, in the domain's type.
pub fn proxy_time() -> ProxyTime {
    ProxyTime(now_ms())
}

/// A span in whole ms.
pub fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Unix time by this machine's clock, ms.
pub fn now_ms() -> u64 {
    ms(unix_now())
}
