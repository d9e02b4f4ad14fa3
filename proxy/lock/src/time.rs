//! Moments and durations in milliseconds, each with its own type. The proxy's clock and Redis's may differ, so a moment
//! on one is never compared with a moment on the other; and a shortened TTL is never taken for the requested one. And
//! [`Tick`], by which the proxy measures time.

use std::cmp::Ordering;
use std::num::NonZeroU64;
use std::ops::Add;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// An [`Instant`] in eight bytes instead of sixteen, for what is kept of each lock: to the nanosecond, within 292 years.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tick(NonZeroU64);

/// The tick of [`ORIGIN`]: later ticks are above it, earlier ones below.
const ORIGIN_TICK: u64 = 1 << 63;
static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Tick {
    /// The same moment.
    pub fn instant(self) -> Instant {
        let from = |ticks| Duration::from_nanos(ticks);
        match self.0.get().checked_sub(ORIGIN_TICK) {
            Some(after) => *ORIGIN + from(after),
            // No clock of a system reads so early that this could fail.
            None => ORIGIN.checked_sub(from(ORIGIN_TICK - self.0.get())).unwrap_or(*ORIGIN),
        }
    }

    /// The time since `earlier`; none if that is in the future.
    pub fn saturating_duration_since(self, earlier: impl Into<Tick>) -> Duration {
        Duration::from_nanos(self.0.get().saturating_sub(earlier.into().0.get()))
    }
}

impl From<Instant> for Tick {
    fn from(at: Instant) -> Tick {
        let ticks = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let at = match at.checked_duration_since(*ORIGIN) {
            Some(after) => ORIGIN_TICK.saturating_add(ticks(after)),
            None => ORIGIN_TICK.saturating_sub(ticks(ORIGIN.saturating_duration_since(at))),
        };
        Tick(NonZeroU64::new(at).unwrap_or(NonZeroU64::MIN))
    }
}

impl Add<Duration> for Tick {
    type Output = Tick;

    fn add(self, time: Duration) -> Tick {
        Tick(self.0.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl PartialEq<Instant> for Tick {
    fn eq(&self, other: &Instant) -> bool {
        *self == Tick::from(*other)
    }
}

impl PartialOrd<Instant> for Tick {
    fn partial_cmp(&self, other: &Instant) -> Option<Ordering> {
        self.partial_cmp(&Tick::from(*other))
    }
}

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
    fn a_tick_is_its_instant_before_and_after_the_first() {
        let start = Instant::now();
        let origin = Tick::from(start);
        for time in [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(86_400 * 365)] {
            let later = start + time;
            assert_eq!(Tick::from(later).instant(), later);
            assert_eq!(origin + time, later);
            assert_eq!(Tick::from(later).saturating_duration_since(origin), time);
        }
        let earlier = start.checked_sub(Duration::from_millis(7)).expect("the system runs for longer");
        assert_eq!(Tick::from(earlier).instant(), earlier);
        assert!(Tick::from(earlier) < start && origin > earlier);
        assert_eq!(Tick::from(earlier).saturating_duration_since(origin), Duration::ZERO);
        assert!(origin + Duration::MAX > start + Duration::from_secs(1 << 32));
    }

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
