//! How long a ticker is needed. Callers promise ticks; the ticker falls asleep once it has counted them, and the next
//! caller wakes it. `tests/wakeups` compiles this file with loom's types and tries its steps in every order.

use crate::sync::{AtomicU64, Ordering};

/// The value of `until` while the ticker sleeps.
const ASLEEP: u64 = 0;

/// See the module.
pub(crate) struct Need {
    /// Ticks so far.
    pub(super) ticks: AtomicU64,
    /// The thread does not sleep before this many ticks; [`ASLEEP`] while it does.
    until: AtomicU64,
    /// How many ticks it continues after the last one that was promised.
    linger: u64,
}

impl Need {
    /// It is not needed yet.
    pub(crate) fn new(linger: u64) -> Need {
        Need { ticks: AtomicU64::new(1), until: AtomicU64::new(ASLEEP), linger }
    }

    /// Promises this many ticks from now on; `wake` is called if the ticker sleeps.
    pub(crate) fn promise(&self, ticks: u64, wake: impl FnOnce()) {
        // One more, because the count on which the promise was based may be newer than the count read here.
        let until = self.ticks.load(Ordering::Relaxed).saturating_add(ticks).saturating_add(1);
        if self.until.load(Ordering::Relaxed) < until {
            self.promise_until(until, wake);
        }
    }

    #[cold]
    fn promise_until(&self, until: u64, wake: impl FnOnce()) {
        let until = until.saturating_add(self.linger);
        if self.until.fetch_max(until, Ordering::AcqRel) == ASLEEP {
            wake();
        }
    }

    /// Counts one tick, and falls asleep if no more are needed. `count` is called in between: its count is never ahead.
    pub(crate) fn tick(&self, count: impl FnOnce()) {
        let ticks = self.ticks.fetch_add(1, Ordering::Relaxed) + 1;
        count();
        let until = self.until.load(Ordering::Relaxed);
        if until <= ticks {
            // Fails if more ticks were promised meanwhile. A caller that promises ticks from here on finds the ticker
            // asleep and wakes it.
            let _ = self.until.compare_exchange(until, ASLEEP, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_asleep(&self) -> bool {
        self.until.load(Ordering::Acquire) == ASLEEP
    }
}
