//! Decides when a policy is not asked for a while, because its failures take too much of its thread's time. The cause
//! is charged first: the session, then its application; only failures caused by several applications stop the policy
//! for all. Each thread has these breakers for each policy and operation. They know no policy; `chains.rs` asks them.

use std::time::{Duration, Instant};

/// How much time failed calls may take, and what happens beyond that.
#[derive(Clone, Copy, Debug)]
struct Terms {
    /// The divisor for the share of their thread's time that failures may take.
    share: u32,
    /// The time that they may take at once.
    allowance: Duration,
    /// How long the policy is not asked then. After that, one question is a probe: if it fails, the breaker opens
    /// again.
    open_for: Duration,
}

/// For all clients: plain commands can bear this much. Calls are not counted, because a policy that traps on the keys
/// of one application costs the others nothing.
const ALL: Terms = Terms { share: 10, allowance: Duration::from_millis(20), open_for: Duration::from_secs(1) };

/// For one application and for one session: less, so that their breaker opens before that for all; and for longer, so
/// that another client comes first when the policy is asked again.
const APPLICATION: Terms = Terms { share: 20, allowance: Duration::from_millis(12), open_for: Duration::from_secs(2) };
const SESSION: Terms = Terms { share: 40, allowance: Duration::from_millis(8), open_for: Duration::from_secs(2) };

/// Opens when failed calls have used up their allowance, which recovers with time. Only the time counts, not the
/// number: a policy that immediately traps on the keys of one application costs the others nothing, and they would be
/// refused with it.
#[derive(Debug)]
struct Breaker {
    terms: Terms,
    /// `None` if nothing has failed recently: the usual case.
    trouble: Option<Trouble>,
}

#[derive(Debug)]
struct Trouble {
    /// The time of failures that has not yet been recovered.
    debt: Duration,
    since: Instant,
    open_until: Option<Instant>,
}

/// The change of a breaker's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    Opened,
    Closed,
}

impl Breaker {
    const fn on(terms: Terms) -> Breaker {
        Breaker { terms, trouble: None }
    }

    /// Whether a call failed recently, so that the next ones must be timed.
    fn is_wary(&self) -> bool {
        self.trouble.is_some()
    }

    fn is_open(&self) -> bool {
        self.open_until().is_some()
    }

    /// Whether the policy may be asked, possibly as a probe.
    fn may_ask(&self, now: Instant) -> bool {
        self.open_until().is_none_or(|until| now >= until)
    }

    fn open_until(&self) -> Option<Instant> {
        self.trouble.as_ref().and_then(|trouble| trouble.open_until)
    }

    /// Records that the policy answered.
    fn answered(&mut self, now: Instant) -> Change {
        let Some(trouble) = &mut self.trouble else {
            return Change::None;
        };
        trouble.make_up(now, self.terms.share);
        let closed = trouble.open_until.take().is_some();
        if trouble.debt.is_zero() {
            self.trouble = None;
        }
        if closed { Change::Closed } else { Change::None }
    }

    /// Records that the policy failed after this time.
    fn failed(&mut self, took: Duration, now: Instant) -> Change {
        let terms = self.terms;
        let trouble = self.trouble.get_or_insert(Trouble { debt: Duration::ZERO, since: now, open_until: None });
        trouble.make_up(now, terms.share);
        trouble.debt = trouble.debt.saturating_add(took);
        if trouble.debt <= terms.allowance && trouble.open_until.is_none() {
            return Change::None;
        }
        let open_for = terms.open_for.max(took.saturating_mul(terms.share));
        let was_closed = trouble.open_until.is_none();
        trouble.open_until = now.checked_add(open_for);
        if was_closed { Change::Opened } else { Change::None }
    }
}

impl Trouble {
    fn make_up(&mut self, now: Instant, share: u32) {
        let passed = now.saturating_duration_since(self.since);
        self.debt = self.debt.saturating_sub(passed / share);
        self.since = now;
    }
}

/// The session and application that are charged with a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asker {
    /// The session.
    pub(crate) session: u64,
    /// Its application, if known.
    pub(crate) application: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suspect {
    Session(u64),
    Application(u64),
}

impl Asker {
    fn is(&self, suspect: Suspect) -> bool {
        match suspect {
            Suspect::Session(session) => self.session == session,
            Suspect::Application(application) => self.application == Some(application),
        }
    }

    fn suspects(&self) -> impl Iterator<Item = Suspect> + use<> {
        let application = self.application.map(Suspect::Application);
        std::iter::once(Suspect::Session(self.session)).chain(application)
    }
}

/// The most sessions and applications that are charged individually; beyond that, failures are charged only to all.
const MAX_SUSPECTS: usize = 64;

/// The breakers of one policy and operation.
#[derive(Debug)]
pub(crate) struct Breakers {
    all: Breaker,
    suspects: Vec<(Suspect, Breaker)>,
}

impl Default for Breakers {
    fn default() -> Breakers {
        Breakers { all: Breaker::on(ALL), suspects: Vec::new() }
    }
}

impl Breakers {
    /// Whether a call failed recently, so that the next ones must be timed.
    pub(crate) fn is_wary(&self) -> bool {
        self.all.is_wary() || !self.suspects.is_empty()
    }

    /// The number of open breakers.
    pub(crate) fn open(&self) -> usize {
        let suspects = self.suspects.iter().map(|(_, breaker)| breaker);
        let each = suspects.chain(std::iter::once(&self.all));
        each.filter(|breaker| breaker.is_open()).count()
    }

    /// Whether the policy may be asked for this client, possibly as a probe: after the policy was stopped for all, a
    /// client that caused failures is not the first. Clients whose failures are recovered are forgotten.
    pub(crate) fn may_ask(&mut self, asker: Asker, now: Instant) -> bool {
        let closed_to_all = self.all.open_until();
        self.suspects.retain_mut(|(_, breaker)| {
            let share = breaker.terms.share;
            let may_ask = breaker.may_ask(now) && closed_to_all.is_none();
            breaker.trouble.as_mut().is_some_and(|trouble| {
                trouble.make_up(now, share);
                !may_ask || !trouble.debt.is_zero()
            })
        });
        let mut own = self.suspects.iter().filter(|(suspect, _)| asker.is(*suspect));
        let later = match own.clone().next() {
            Some(_) => ALL.open_for,
            None => Duration::ZERO,
        };
        closed_to_all.is_none_or(|until| now >= until + later) && own.all(|(_, breaker)| breaker.may_ask(now))
    }

    /// Records that the policy answered this client.
    pub(crate) fn answered(&mut self, asker: Asker, now: Instant) {
        self.all.answered(now);
        for (suspect, breaker) in &mut self.suspects {
            if asker.is(*suspect) {
                breaker.answered(now);
            }
        }
        self.suspects.retain(|(_, breaker)| breaker.is_wary());
    }

    /// Records that the policy failed for this client after this time.
    pub(crate) fn failed(&mut self, asker: Asker, took: Duration, now: Instant) {
        self.all.failed(took, now);
        for suspect in asker.suspects() {
            let known = self.suspects.iter().position(|(other, _)| *other == suspect);
            let place = match known {
                Some(place) => place,
                None if self.suspects.len() == MAX_SUSPECTS => continue,
                None => {
                    let terms = match suspect {
                        Suspect::Session(_) => SESSION,
                        Suspect::Application(_) => APPLICATION,
                    };
                    self.suspects.push((suspect, Breaker::on(terms)));
                    self.suspects.len() - 1
                }
            };
            self.suspects[place].1.failed(took, now);
        }
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
        let mut breaker = Breaker::on(ALL);
        let start = Instant::now();
        for failure in 1..=10 {
            assert_eq!(breaker.failed(ms(2), start), Change::None, "{failure}");
            assert!(breaker.may_ask(start));
        }
        assert_eq!(breaker.failed(ms(2), start), Change::Opened);
        assert!(!breaker.may_ask(start + ALL.open_for - ms(1)));
        // The probe fails, and the next call does not.
        let probe = start + ALL.open_for;
        assert!(breaker.may_ask(probe));
        assert_eq!(breaker.failed(ms(2), probe), Change::None);
        assert!(!breaker.may_ask(probe + ALL.open_for - ms(1)));
        let probe = probe + ALL.open_for;
        assert!(breaker.may_ask(probe));
        assert_eq!(breaker.answered(probe), Change::Closed);
        assert!(!breaker.is_open() && !breaker.is_wary());
    }

    #[test]
    fn failures_that_take_less_than_their_share_never_open_it() {
        let mut breaker = Breaker::on(ALL);
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
        let mut breaker = Breaker::on(ALL);
        let now = Instant::now();
        let opened = (0..100).find(|_| {
            breaker.answered(now);
            breaker.failed(ms(2), now) == Change::Opened
        });
        assert_eq!(opened, Some(10));
    }

    #[test]
    fn a_long_failure_keeps_it_open_for_longer() {
        let mut breaker = Breaker::on(ALL);
        let now = Instant::now();
        assert_eq!(breaker.failed(ms(500), now), Change::Opened);
        assert!(!breaker.may_ask(now + ms(4_999)));
        assert!(breaker.may_ask(now + ms(5_000)));
    }

    const fn asker(session: u64, application: u64) -> Asker {
        Asker { session, application: Some(application) }
    }

    #[test]
    fn a_session_that_causes_failures_bears_them_alone() {
        let mut breakers = Breakers::default();
        let start = Instant::now();
        let (hostile, honest) = (asker(1, 1), asker(2, 1));
        let mut asked = 0;
        for call in 0..1_000_u32 {
            let now = start + call * ms(10);
            assert!(breakers.may_ask(honest, now), "{call}");
            breakers.answered(honest, now);
            if breakers.may_ask(hostile, now) {
                asked += 1;
                breakers.failed(hostile, ms(2), now);
            }
        }
        // Three before its breaker opens, and a few each two seconds.
        assert!((3..=50).contains(&asked), "{asked}");
    }

    #[test]
    fn an_application_that_makes_new_sessions_bears_them_alone() {
        let mut breakers = Breakers::default();
        let start = Instant::now();
        let honest = asker(1, 2);
        let mut asked = 0;
        for call in 0..1_000_u32 {
            let now = start + call * ms(10);
            assert!(breakers.may_ask(honest, now), "{call}");
            let hostile = asker(u64::from(call) + 10, 1);
            if breakers.may_ask(hostile, now) {
                asked += 1;
                breakers.failed(hostile, ms(2), now);
            }
        }
        assert!((6..=50).contains(&asked), "{asked}");
        assert!(breakers.suspects.len() <= MAX_SUSPECTS);
    }

    #[test]
    fn what_several_applications_cause_closes_the_policy_to_all_and_another_one_probes() {
        let mut breakers = Breakers::default();
        let now = Instant::now();
        let hostile: Vec<Asker> = (1..=4).map(|each| asker(each, each)).collect();
        while breakers.may_ask(asker(9, 9), now) {
            for asker in &hostile {
                breakers.failed(*asker, ms(2), now);
            }
        }
        assert!(breakers.open() >= 1, "{breakers:?}");
        // When it may be asked again, the clients that caused the failures may not yet ask.
        let probe = now + ALL.open_for;
        assert!(hostile.iter().all(|hostile| !breakers.may_ask(*hostile, probe)));
        assert!(breakers.may_ask(asker(9, 9), probe));
        breakers.answered(asker(9, 9), probe);
        assert!(breakers.may_ask(asker(8, 8), probe));
        // All is forgotten with time.
        let later = now + Duration::from_secs(60);
        assert!(breakers.may_ask(hostile[0], later));
        breakers.answered(hostile[0], later);
        assert!(!breakers.is_wary() && breakers.open() == 0);
    }
}
