//! How long one call of a policy may take: this much of its thread's CPU time, which on a free core equals wall time.
//! The engine's epoch only triggers a check; the system is then asked for the time used. So a call that answers in
//! time, as all good ones do, is never checked; one that uses up its time is stopped at its deadline, whatever its
//! fuel; and one that the machine does not let run is not at fault, and continues. Guests cannot sleep, so each call
//! ends.

use std::time::Duration;

/// The unit of time between checks: the engine's epoch.
pub(crate) const TICK: Duration = Duration::from_millis(1);

/// A call that is still running at a tick: the time that its thread had used by then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overdue(Duration);

impl Overdue {
    /// At the first tick of a call.
    pub(crate) fn begin() -> Overdue {
        Overdue(thread_time())
    }

    /// After how many ticks to check again; `None` if the deadline has passed.
    pub(crate) fn look(self, deadline: Duration) -> Option<u64> {
        let used = thread_time().saturating_sub(self.0);
        let left = deadline.checked_sub(used).filter(|left| !left.is_zero());
        left.map(ticks)
    }
}

/// The number of ticks that last at least this long.
fn ticks(time: Duration) -> u64 {
    let whole = time.as_nanos().div_ceil(TICK.as_nanos());
    u64::try_from(whole).unwrap_or(u64::MAX).max(1)
}

/// The CPU time of this thread.
pub(crate) fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is ours and large enough. The clock is there on every system that we run on; where it is
    // not, nothing is written and no time has passed.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanos)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_call_is_over_when_its_thread_has_run_for_so_long_and_not_before() {
        let overdue = Overdue::begin();
        let asleep = Instant::now();
        std::thread::sleep(ms(60));
        assert!(asleep.elapsed() >= ms(60));
        let after_sleep = overdue.look(ms(20)).expect("it has not run");
        assert!((1..=20).contains(&after_sleep), "{after_sleep}");
        while thread_time() - overdue.0 < ms(20) {
            std::hint::spin_loop();
        }
        assert_eq!(overdue.look(ms(20)), None);
        assert!(overdue.look(Duration::MAX).is_some());
    }

    #[test]
    fn a_look_is_never_too_early() {
        for (left, want) in
            [(Duration::ZERO, 1), (Duration::from_micros(1), 1), (ms(2), 2), (Duration::from_micros(2_001), 3)]
        {
            assert_eq!(ticks(left), want, "{left:?}");
        }
        assert_eq!(ticks(Duration::MAX), u64::MAX);
    }
}
