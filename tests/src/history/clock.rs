//! The clock that all processes of a run share. It only reads it.

use std::time::Duration;

/// A moment on CLOCK_MONOTONIC, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At(pub u64);

impl At {
    /// This moment.
    pub fn now() -> At {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the call writes one `timespec`, which this function owns.
        let failed = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
        assert_eq!(failed, 0, "Linux has this clock");
        let seconds = u64::try_from(time.tv_sec).expect("the clock is not negative");
        let nanos = u64::try_from(time.tv_nsec).expect("the clock is not negative");
        At(seconds * 1_000_000_000 + nanos)
    }

    /// So much later.
    #[must_use]
    pub fn plus(self, time: Duration) -> At {
        At(self.0.saturating_add(nanos(time)))
    }

    /// So much earlier.
    #[must_use]
    pub fn minus(self, time: Duration) -> At {
        At(self.0.saturating_sub(nanos(time)))
    }

    /// How long it is since then; nothing, if that is later.
    pub fn since(self, earlier: At) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
