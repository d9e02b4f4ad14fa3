//! Simulated programs before and after a switch.

use lockwarden_control::telemetry::events::{Caller, EventKind, LockEvent, SessionNumber, Verdict, example};
use lockwarden_control::telemetry::vocabulary::DecisionKind;
use lockwarden_lock::decision::Operation;
use lockwarden_lock::reason::Reason;
use lockwarden_lock::rules::Mode;

use super::super::store::{Mark, Seen};
use super::*;

const ACQUIRED: EventKind = EventKind::Acquired { again: false, replaced: false, ran_out: false, kept: false };
const MINUTE: u64 = 60_000;

/// One namespace with its findings, and the current time.
struct Played {
    seen: Seen,
    start: Instant,
    at_ms: u64,
    mode: Mode,
    fence: u64,
    found: Vec<Harmed>,
}

impl Played {
    /// In monitor mode.
    fn new() -> Played {
        let mut seen = Seen::default();
        seen.follow(&[("orders".into(), Extent::Nobody)], None);
        Played { seen, start: Instant::now(), at_ms: 0, mode: Mode::Monitor, fence: 0, found: Vec::new() }
    }

    fn now(&self) -> Moment {
        Moment { at: self.start + Duration::from_millis(self.at_ms), unix_ms: 1_790_000_000_000 + self.at_ms }
    }

    fn is(&mut self, extent: Extent) -> &mut Played {
        self.mode = match extent {
            Extent::Nobody | Extent::Some => Mode::Monitor,
            Extent::All => Mode::Enforce,
        };
        let now = self.now();
        self.seen.follow(&[("orders".into(), extent)], Some(now));
        self.seen.mark(Mark::Switched, now);
        self
    }

    /// Checks once a second, as the proxy does, and notes found harm.
    fn passes(&mut self, ms: u64) -> &mut Played {
        let until = self.at_ms + ms;
        while self.at_ms < until {
            self.at_ms = (self.at_ms / 1_000 * 1_000 + 1_000).min(until);
            let now = self.now();
            self.seen.tick(now.at);
            self.found.extend(self.seen.look_for_harm(now));
        }
        self
    }

    fn tells(&mut self, happened: EventKind, key: &'static str, operation: Operation) {
        self.tells_more(happened, key, operation, |_| {});
    }

    fn tells_more(
        &mut self,
        happened: EventKind,
        key: &'static str,
        operation: Operation,
        more: impl FnOnce(&mut LockEvent),
    ) {
        let now = self.now();
        let mut entry = LockEvent {
            at: now.at,
            at_ms: now.unix_ms,
            happened,
            operation: Some(operation),
            mode: self.mode,
            fence: Some(self.fence),
            caller: Some(caller(1)),
            ..example(key)
        };
        more(&mut entry);
        self.seen.fold(&entry, &mut Vec::new());
    }

    fn takes(&mut self, key: &'static str) -> &mut Played {
        self.fence += 1;
        self.tells_more(ACQUIRED, key, Operation::Acquire, |entry| {
            (entry.ttl_ms, entry.asked_ms) = (Some(30_000), Some(30_000));
        });
        self
    }

    fn returns(&mut self, key: &'static str, held_ms: u64) -> &mut Played {
        let released = EventKind::Released { taken_over: false };
        self.tells_more(released, key, Operation::Release, |entry| {
            entry.held_ms = Some(held_ms);
        });
        self
    }

    fn tries_in_vain(&mut self, key: &'static str) -> &mut Played {
        self.tells(EventKind::Contended { own: false }, key, Operation::Acquire);
        self
    }

    /// A release is refused that may be the holder's.
    fn is_refused(&mut self, key: &'static str) -> &mut Played {
        self.tells_more(EventKind::Refused, key, Operation::Release, |entry| {
            let deny = DecisionKind::Deny;
            entry.verdict = Some(Verdict::refused(deny, Reason::NotOwner, "owner-token", None));
        });
        self
    }

    /// Works `turns` times, `each_ms` long, with `in_vain` failed tries before each turn.
    fn works(&mut self, turns: u64, each_ms: u64, in_vain: u64) -> &mut Played {
        for _ in 0..turns {
            for _ in 0..in_vain {
                self.tries_in_vain("lock:a");
            }
            self.takes("lock:a").passes(each_ms / 10);
            self.returns("lock:a", each_ms / 10).passes(each_ms - each_ms / 10);
        }
        self
    }

    fn found(&self) -> Vec<&str> {
        self.found.iter().map(|one| &*one.words).collect()
    }

    fn harm(&self) -> Option<String> {
        self.seen.aftermath.harm("orders")
    }
}

fn caller(session: u64) -> Arc<Caller> {
    Arc::new(Caller {
        session: SessionNumber(session),
        address: ([10, 0, 0, 1], 4711).into(),
        name: format!("worker-{session}").into(),
        user: Default::default(),
        library: None,
        known_by: Arc::default(),
    })
}

#[test]
fn half_as_many_grants_are_harm_after_a_minute_where_clients_ask_as_before() {
    let mut played = Played::new();
    played.works(150, 2_000, 1).is(Extent::All);
    played.works(8, 7_000, 6);
    assert_eq!((played.found(), played.harm()), (vec![], None));
    played.works(1, 7_000, 6);
    let words = "9.0 locks a minute are granted, 30 before it was enforced";
    assert_eq!(played.found(), [words]);
    // It is found once. Its text is up to date.
    played.works(20, 7_000, 6);
    assert_eq!(played.found().len(), 1);
    let words = "enforcing harms: 8.5 locks a minute are granted, 30 before it was enforced";
    assert_eq!(played.harm().as_deref(), Some(words));
}

#[test]
fn ten_seconds_are_enough_where_a_hundred_grants_are_missing() {
    let mut played = Played::new();
    played.works(200, 100, 0).is(Extent::All);
    for _ in 0..9 {
        played.tries_in_vain("lock:a").passes(1_000);
    }
    assert_eq!(played.harm(), None);
    played.tries_in_vain("lock:a").passes(1_000);
    assert!(played.harm().is_some(), "{:?}", played.found());
}

#[test]
fn where_fewer_ask_fewer_grants_are_no_harm() {
    // At night: one client in ten works, and none waits.
    let mut played = Played::new();
    played.works(300, 1_000, 2).is(Extent::All);
    played.works(30, 10_000, 0).passes(MINUTE);
    assert_eq!((played.found(), played.harm()), (vec![], None));
    // No client works.
    let mut played = Played::new();
    played.works(300, 1_000, 0).is(Extent::All).passes(10 * MINUTE);
    assert_eq!((played.found(), played.harm()), (vec![], None));
    // As many clients work, and get as many grants as before or slightly fewer.
    let mut played = Played::new();
    played.works(300, 1_000, 2).is(Extent::All).works(300, 1_900, 4);
    assert_eq!((played.found(), played.harm()), (vec![], None));
}

#[test]
fn grants_that_came_of_deleting_the_locks_of_others_are_not_missed() {
    // Three work at the same time, each a third of the time.
    let works = |deletes: bool| {
        let mut played = Played::new();
        for turn in 0..150 {
            played.takes("lock:a").passes(1_000);
            if deletes && turn % 3 > 0 {
                let released = EventKind::Released { taken_over: false };
                played.tells_more(released, "lock:a", Operation::Release, |entry| {
                    let kind = DecisionKind::WouldDeny;
                    let verdict = Verdict::refused(kind, Reason::NotOwner, "owner-token", None);
                    (entry.verdict, entry.caller) = (Some(verdict), Some(caller(2)));
                });
            } else {
                played.returns("lock:a", 1_000);
            }
        }
        played.is(Extent::All).works(60, 3_000, 2);
        played.found.len()
    };
    assert_eq!((works(true), works(false)), (0, 1));
}

#[test]
fn a_job_system_whose_scripts_are_refused_is_harmed() {
    for (operation, found) in [(Operation::Write, 1), (Operation::Release, 0)] {
        let mut played = Played::new();
        played.works(300, 1_000, 0).is(Extent::All);
        for _ in 0..120 {
            played.tells_more(EventKind::Refused, "lock:a", operation, |entry| {
                let deny = DecisionKind::Deny;
                let verdict = Verdict::refused(deny, Reason::UnsafeScript, "owner-token", None);
                entry.verdict = Some(verdict);
            });
            played.passes(1_000);
        }
        // A release without a lock to release is no try.
        assert_eq!(played.found.len(), found, "{operation:?}");
    }
}

#[test]
fn too_little_before_is_nothing_to_compare_with() {
    for (turns, each_ms) in [(19, 10_000), (90, 100)] {
        let mut played = Played::new();
        played.works(turns, each_ms, 0).is(Extent::All);
        for _ in 0..600 {
            played.tries_in_vain("lock:a").passes(1_000);
        }
        assert_eq!((played.found(), played.harm()), (vec![], None));
    }
}

#[test]
fn a_day_without_work_before_it_makes_no_rate_lower_and_an_hour_ago_counts_no_more() {
    let mut played = Played::new();
    played.works(60, 100, 0).passes(24 * 60 * MINUTE);
    played.works(120, 500, 0).is(Extent::All);
    // Half of 120 grants a minute is 60.
    played.works(50, 1_300, 3);
    assert_eq!(played.found().len(), 1, "{:?}", played.found());
    assert!(played.found()[0].ends_with(" 120 before it was enforced"));
}

#[test]
fn a_twentieth_of_lock_time_is_harm_and_less_is_none() {
    for (refused_each, harms) in [(2, true), (200, false)] {
        let mut played = Played::new();
        played.is(Extent::All);
        // Holders work half a minute, and for one in so many the first release is refused: half a second is lost.
        for turn in 1..=20 {
            played.takes("lock:b").passes(25_000);
            if turn % refused_each == 0 {
                played.is_refused("lock:b").passes(5_000);
                let ran_out = EventKind::RanOut;
                played.tells_more(ran_out, "lock:b", Operation::Acquire, |entry| {
                    (entry.operation, entry.held_ms) = (None, Some(30_000));
                });
            } else {
                played.returns("lock:b", 25_000).passes(1_000);
            }
        }
        assert_eq!(played.found().len(), usize::from(harms), "{:?}", played.found());
        assert_eq!(played.harm().is_some(), harms);
    }
}

#[test]
fn what_is_held_now_is_lock_time_too() {
    let mut played = Played::new();
    played.takes("lock:long").is(Extent::All);
    // Two seconds lost and a minute held, of which the end was not seen.
    played.passes(2 * MINUTE).takes("lock:b");
    played.is_refused("lock:b").passes(2_000);
    played.returns("lock:b", 2_000).passes(1_000);
    assert_eq!(played.found(), Vec::<&str>::new());
}

#[test]
fn harm_is_said_while_it_lasts_and_for_ten_minutes_at_least() {
    let mut played = Played::new();
    played.works(300, 1_000, 0).is(Extent::All);
    let spoilt = |played: &mut Played, seconds| {
        for _ in 0..seconds {
            played.tries_in_vain("lock:a").passes(1_000);
        }
    };
    spoilt(&mut played, 300);
    assert!(played.harm().is_some());
    // Repaired within the ten minutes.
    played.works(295, 1_000, 0);
    assert!(played.harm().is_some());
    played.works(300, 1_000, 0);
    assert_eq!((played.found().len(), played.harm()), (1, None));
    // After them harm is not looked for.
    spoilt(&mut played, 900);
    assert_eq!((played.found().len(), played.harm()), (1, None));

    let mut played = Played::new();
    played.works(300, 1_000, 0).is(Extent::All);
    spoilt(&mut played, 3_600);
    assert!(played.harm().is_some());
    played.is(Extent::Nobody);
    assert_eq!(played.harm(), None);
}

#[test]
fn what_was_taken_back_is_said_for_ten_minutes_or_until_it_is_enforced_again() {
    let taken_back = || {
        let mut played = Played::new();
        played.works(300, 1_000, 0).is(Extent::All);
        for _ in 0..60 {
            played.tries_in_vain("lock:a").passes(1_000);
        }
        let harmed = played.found.pop().expect("it was found");
        played.is(Extent::Nobody);
        let now = played.now().at;
        played.seen.aftermath.was_taken_back(harmed, now);
        played
    };
    let mut played = taken_back();
    played.works(500, 1_000, 0);
    let words = played.harm().unwrap();
    assert!(words.starts_with("enforcing harmed, so it was set back to monitor mode: 0.0 locks"), "{words}");
    played.works(101, 1_000, 0);
    assert_eq!(played.harm(), None);
    let mut played = taken_back();
    played.works(30, 1_000, 0).is(Extent::All);
    assert_eq!(played.harm(), None);
    // Grants in enforce mode are no measure for the next switch.
    for _ in 0..70 {
        played.tries_in_vain("lock:a").passes(1_000);
    }
    assert!(played.found()[0].ends_with(" 60 before it was enforced"), "{:?}", played.found());
}

#[test]
fn more_clients_are_a_switch_and_fewer_or_a_start_in_enforce_mode_are_none() {
    let spoilt = |played: &mut Played| {
        for _ in 0..120 {
            played.tries_in_vain("lock:a").passes(1_000);
        }
        played.found.len()
    };
    for (first, then, switches) in [
        (Extent::Nobody, Extent::Some, true),
        (Extent::Some, Extent::All, true),
        (Extent::All, Extent::All, false),
        (Extent::All, Extent::Some, false),
        (Extent::All, Extent::Nobody, false),
    ] {
        let mut played = Played::new();
        played.is(first).passes(11 * MINUTE);
        played.works(300, 1_000, 0).is(then);
        let found = spoilt(&mut played);
        assert_eq!(found, usize::from(switches), "{first:?} {then:?}");
    }
    let mut played = Played::new();
    played.seen = Seen::default();
    played.seen.follow(&[("orders".into(), Extent::All)], None);
    played.mode = Mode::Enforce;
    played.works(300, 1_000, 0);
    assert_eq!(spoilt(&mut played), 0);
    // A namespace that the configuration no longer has is forgotten, together with its harm.
    let mut played = Played::new();
    played.works(300, 1_000, 0).is(Extent::All);
    assert_eq!(spoilt(&mut played), 1);
    let now = played.now();
    played.seen.follow(&[("stock".into(), Extent::All)], Some(now));
    assert_eq!(played.harm(), None);
}
