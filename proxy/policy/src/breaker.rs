//! When a policy is asked no more for a while, because its failures take too much of its thread's time. Each thread
//! has one breaker for each policy and operation. A breaker knows no policy; `chains.rs` asks it.

use std::time::{Duration, Instant};

/// Failed calls may take one part in so many of their thread's time: so much plain commands can bear. Calls are not
/// counted, because a policy that traps on the keys of one application costs the others nothing.
const SHARE: u32 = 10;

/// So much time they may take at once.
const ALLOWANCE: Duration = Duration::from_millis(20);

/// How long the policy is not asked. Then one question is a probe: its failure opens the breaker again.
const OPEN_FOR: Duration = Duration::from_secs(1);

/// Opens when failed calls have used up their allowance, which comes back with time. Only the time counts, not the
/// number: a policy that traps on the keys of one application at once costs the others nothing, and they
/// would be refused with it.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    /// `None` where nothing has failed lately: the usual case.
    trouble: Option<Trouble>,
}

#[derive(Debug)]
struct Trouble {
    /// Time that failures took and that has not been made up for yet.
    debt: Duration,
    since: Instant,
    open_until: Option<Instant>,
}

/// What a breaker became.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    None,
    Opened,
    Closed,
}

impl Breaker {
    /// Whether a call failed lately, so that the next ones have to be timed.
    pub(crate) fn is_wary(&self) -> bool {
        self.trouble.is_some()
    }

    pub(crate) fn is_open(&self) -> bool {
        let trouble = self.trouble.as_ref();
        trouble.is_some_and(|trouble| trouble.open_until.is_some())
    }

    /// Whether the policy may be asked, by a probe if need be.
    pub(crate) fn may_ask(&self, now: Instant) -> bool {
        let open_until = self.trouble.as_ref().and_then(|trouble| trouble.open_until);
        open_until.is_none_or(|until| now >= until)
    }

    /// It answered.
    pub(crate) fn answered(&mut self, now: Instant) -> Change {
        let Some(trouble) = &mut self.trouble else {
            return Change::None;
        };
        trouble.make_up(now);
        let closed = trouble.open_until.take().is_some();
        if trouble.debt.is_zero() {
            self.trouble = None;
        }
        if closed { Change::Closed } else { Change::None }
    }

    /// It failed after this time.
    pub(crate) fn failed(&mut self, took: Duration, now: Instant) -> Change {
        let trouble = self.trouble.get_or_insert(Trouble {
            debt: Duration::ZERO,
            since: now,
            open_until: None,
        });
        trouble.make_up(now);
        trouble.debt = trouble.debt.saturating_add(took);
        if trouble.debt <= ALLOWANCE && trouble.open_until.is_none() {
            return Change::None;
        }
        let open_for = OPEN_FOR.max(took.saturating_mul(SHARE));
        let was_closed = trouble.open_until.is_none();
        trouble.open_until = now.checked_add(open_for);
        if was_closed {
            Change::Opened
        } else {
            Change::None
        }
    }
}

impl Trouble {
    fn make_up(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.since);
        self.debt = self.debt.saturating_sub(passed / SHARE);
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn it_opens_when_failures_took_their_allowance_and_closes_at_an_answer() {
        let mut breaker = Breaker::default();
        let start = Instant::now();
        for failure in 1..=10 {
            assert_eq!(breaker.failed(ms(2), start), Change::None, "{failure}");
            assert!(breaker.may_ask(start));
        }
        assert_eq!(breaker.failed(ms(2), start), Change::Opened);
        assert!(!breaker.may_ask(start + OPEN_FOR - ms(1)));
        // The probe fails, and the next one does not.
        let probe = start + OPEN_FOR;
        assert!(breaker.may_ask(probe));
        assert_eq!(breaker.failed(ms(2), probe), Change::None);
        assert!(!breaker.may_ask(probe + OPEN_FOR - ms(1)));
        let probe = probe + OPEN_FOR;
        assert!(breaker.may_ask(probe));
        assert_eq!(breaker.answered(probe), Change::Closed);
        assert!(!breaker.is_open() && !breaker.is_wary());
    }

    #[test]
    fn failures_that_take_less_than_their_share_never_open_it() {
        let mut breaker = Breaker::default();
        let start = Instant::now();
        for call in 0..10_000_u32 {
            let now = start + call * ms(25);
            assert_eq!(breaker.failed(ms(2), now), Change::None, "{call}");
        }
        assert!(breaker.is_wary());
        assert_eq!(breaker.answered(start + 10_000 * ms(25)), Change::None);
    }

    #[test]
    fn answers_in_between_do_not_hide_failures() {
        let mut breaker = Breaker::default();
        let now = Instant::now();
        let opened = (0..100).find(|_| {
            breaker.answered(now);
            breaker.failed(ms(2), now) == Change::Opened
        });
        assert_eq!(opened, Some(10));
    }

    #[test]
    fn a_long_failure_keeps_it_open_for_longer() {
        let mut breaker = Breaker::default();
        let now = Instant::now();
        assert_eq!(breaker.failed(ms(500), now), Change::Opened);
        assert!(!breaker.may_ask(now + ms(4_999)));
        assert!(breaker.may_ask(now + ms(5_000)));
    }
}
