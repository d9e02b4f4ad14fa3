//! Whether this process stood still: it was stopped, or its machine slept or was paused. Meanwhile another server may
//! have become the primary, and what this process knew before says nothing about that. So after such a gap nothing is
//! forwarded until it was asked again which server is the primary, which `maintenance::standstill` does.
//!
//! A gap is noticed by the next look at the clock: by a ticker, a thread that wakes, or a session that handles a lock
//! and reads the time anyway. All other commands look at one number.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// If nothing of this process ran for this long, it stood still.
pub(crate) const TOO_LONG: Duration = Duration::from_secs(2);
/// Between two looks while waiting.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// See the module.
pub struct Standstill {
    begun: Instant,
    /// When time was last seen to pass normally, ms since the beginning.
    looked: AtomicU64,
    /// Gaps that were noticed, but after which it was not yet asked which server is the primary.
    unasked: AtomicU32,
    noticed: Notify,
}

impl Default for Standstill {
    fn default() -> Self {
        let (looked, unasked) = (AtomicU64::new(0), AtomicU32::new(0));
        Standstill { begun: Instant::now(), looked, unasked, noticed: Notify::new() }
    }
}

impl Standstill {
    /// Checks whether time has passed as usual. Returns true if it has and nothing has to be asked.
    pub fn look(&self, now: Instant) -> bool {
        let at = self.ms(now);
        if Duration::from_millis(at.saturating_sub(self.looked.load(Ordering::Acquire))) > TOO_LONG {
            self.notice();
            // After that: a thread that sees this value sees the gap, too.
            self.looked.fetch_max(at, Ordering::AcqRel);
        }
        self.goes_on()
    }

    /// The same, for the ticker that records for the others that time passes.
    pub(crate) fn tick(&self, now: Instant) {
        self.look(now);
        self.looked.fetch_max(self.ms(now), Ordering::AcqRel);
    }

    /// There was a gap.
    pub fn notice(&self) {
        self.unasked.fetch_add(1, Ordering::AcqRel);
        self.noticed.notify_one();
    }

    /// Whether nothing has to be asked, as far as gaps were noticed.
    pub(crate) fn goes_on(&self) -> bool {
        self.unasked.load(Ordering::Acquire) == 0
    }

    /// Waits until it was asked which server is the primary.
    pub(crate) async fn is_over(&self) {
        while !self.goes_on() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits for a gap, and returns how many were noticed.
    pub(crate) async fn gaps(&self) -> u32 {
        loop {
            let noticed = self.noticed.notified();
            match self.unasked.load(Ordering::Acquire) {
                0 => noticed.await,
                gaps => return gaps,
            }
        }
    }

    /// After this many gaps it was asked which server is the primary.
    pub(crate) fn was_asked(&self, gaps: u32) {
        self.unasked.fetch_sub(gaps, Ordering::AcqRel);
    }

    fn ms(&self, now: Instant) -> u64 {
        let passed = now.saturating_duration_since(self.begun);
        passed.as_secs().saturating_mul(1000) + u64::from(passed.subsec_millis())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_gap_is_noticed_by_whoever_looks_first_and_over_once_it_was_asked() {
        let still = Standstill::default();
        let at = |ms| still.begun + Duration::from_millis(ms);
        still.tick(at(100));
        assert!(still.look(at(2_100)) && still.goes_on());
        assert!(!still.look(at(2_101)));
        assert!(!still.look(at(2_102)), "it was noticed, and not asked");
        still.tick(at(2_200));
        assert!(!still.goes_on());
        let gaps = still.gaps().await;
        still.tick(at(9_000));
        still.was_asked(gaps);
        assert!(!still.goes_on(), "another gap came while it was asked");
        still.was_asked(still.gaps().await);
        still.is_over().await;
        assert!(still.look(at(9_100)));
        assert!(still.look(at(100)), "a moment from before is no gap");
    }
}
