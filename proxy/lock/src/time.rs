//! Moments and durations in milliseconds, each with its own type. The proxy's clock and Redis's may differ, so a moment
//! on one is never compared with a moment on the other; and a shortened TTL is never taken for the requested one.

use std::time::Duration;

/// A moment on the proxy's clock, in Unix milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProxyTime(pub u64);

/// A moment on Redis's clock, in Unix milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RedisTime(pub u64);

impl RedisTime {
    /// The milliseconds since `earlier`; 0 if that is in the future.
    pub fn ms_since(self, earlier: RedisTime) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// The TTL that a lease has, in milliseconds; 0 for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TtlMs(pub u64);

impl TtlMs {
    /// The TTL, if there is one.
    pub fn span(self) -> Option<Duration> {
        (self.0 > 0).then(|| Duration::from_millis(self.0))
    }
}

/// The TTL that a client requested, before it was cut to the ceiling, in milliseconds; 0 for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AskedMs(pub u64);

impl AskedMs {
    /// The TTL, if one was requested.
    pub fn span(self) -> Option<Duration> {
        (self.0 > 0).then(|| Duration::from_millis(self.0))
    }
}

/// The age up to which keep-alive renews a lease, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeepAliveMs(pub u64);

/// How much longer than its lease a companion record lives, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OutliveMs(pub u64);

/// A duration in milliseconds in words, as exact as needed for a decision: `40 ms`, `5.8 s`, `12 s`, `4 min 05 s`, `3 h
/// 12 min`, `2 d 3 h`. The rest is cut off, not rounded: 59.96 s is not yet a minute.
pub fn in_words(ms: u64) -> String {
    let seconds = ms / 1_000;
    let two = |whole: u64, unit: &str, rest: u64, of_rest: &str, width: usize| match rest {
        0 => format!("{whole} {unit}"),
        _ => format!("{whole} {unit} {rest:0width$} {of_rest}"),
    };
    match seconds {
        0 => format!("{ms} ms"),
        1..10 => format!("{seconds}.{} s", ms % 1_000 / 100),
        10..60 => format!("{seconds} s"),
        60..3_600 => two(seconds / 60, "min", seconds % 60, "s", 2),
        3_600..86_400 => two(seconds / 3_600, "h", seconds / 60 % 60, "min", 2),
        _ => two(seconds / 86_400, "d", seconds / 3_600 % 24, "h", 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_reads_as_people_say_it() {
        for (ms, text) in [
            (0, "0 ms"),
            (850, "850 ms"),
            (1_000, "1.0 s"),
            (5_812, "5.8 s"),
            (9_999, "9.9 s"),
            (12_449, "12 s"),
            (59_999, "59 s"),
            (60_000, "1 min"),
            (245_000, "4 min 05 s"),
            (3_600_000, "1 h"),
            (11_520_000, "3 h 12 min"),
            (183_600_000, "2 d 3 h"),
            (345_600_000, "4 d"),
        ] {
            assert_eq!(in_words(ms), text);
        }
    }
}
