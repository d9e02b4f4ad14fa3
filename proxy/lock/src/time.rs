//! Moments and spans in milliseconds, each with a type of its own. The proxy's clock and Redis's may differ, so a moment
//! on one is never compared with a moment on the other; and a TTL that was cut is never taken for the one that was asked for.

use std::time::Duration;

/// A moment on the proxy's clock, in Unix milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProxyTime(pub u64);

/// A moment on Redis's clock, in Unix milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RedisTime(pub u64);

impl RedisTime {
    /// The milliseconds since `earlier`; 0 where that lies ahead.
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

/// The TTL that a client asked for, before it was cut to the ceiling, in milliseconds; 0 for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AskedMs(pub u64);

impl AskedMs {
    /// The TTL, if one was asked for.
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
