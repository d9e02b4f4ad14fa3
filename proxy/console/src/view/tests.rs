//! The fold, with made-up entries and a simulated clock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use lockwarden_control::telemetry::events::{Caller, EventKind, LockEvent, SessionNumber, Took, Verdict, example};
use lockwarden_control::telemetry::vocabulary::{DecisionKind, Observation, UnjudgedWhy};
use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::decision::Operation;
use lockwarden_lock::plan::EnforcedTerms;
use lockwarden_lock::reason::Reason;
use lockwarden_lock::rules::Mode;
use lockwarden_lock::time::TtlMs;
use lockwarden_lock::token::Process;
use proptest::prelude::*;

use super::api::LockState;
use super::applications::Here;
use super::decisions::lost_of;
use super::remarks::remarks;
use super::store::{Measure, Seen};
use super::{api, losses, report};

/// A view, and the current time.
struct Played {
    seen: Seen,
    start: Instant,
    at_ms: u64,
    measures: Vec<Measure>,
}

const ACQUIRED: EventKind = EventKind::Acquired { again: false, replaced: false, ran_out: false, kept: false };
const AFTER_ONE_THAT_RAN_OUT: EventKind =
    EventKind::Acquired { again: false, replaced: false, ran_out: true, kept: false };
const RELEASED: EventKind = EventKind::Released { taken_over: false };
const MET_NONE: EventKind = EventKind::Absent { ran_out: false };
const CONTENDED: EventKind = EventKind::Contended { own: false };

impl Played {
    fn new() -> Played {
        Played { seen: Seen::default(), start: Instant::now(), at_ms: 0, measures: Vec::new() }
    }

    fn now(&self) -> Instant {
        self.start + Duration::from_millis(self.at_ms)
    }

    fn after(&mut self, ms: u64) -> &mut Played {
        self.at_ms += ms;
        let now = self.now();
        self.seen.tick(now);
        self
    }

    /// An event of the client with this number, which is named `app-NUMBER`.
    fn by(&mut self, who: u64, happened: EventKind, key: &'static str) -> &mut Played {
        self.tells(who, happened, key, |_| {})
    }

    fn acquires(&mut self, who: u64, key: &'static str, ttl_ms: u64, fence: u64) -> &mut Played {
        self.tells(who, ACQUIRED, key, |entry| {
            (entry.ttl_ms, entry.fence) = (Some(ttl_ms), Some(fence));
        })
    }

    /// It acquires or extends with the requested TTL, 0 for none; enforce mode would give another one.
    fn watched(
        &mut self,
        who: u64,
        happened: EventKind,
        (key, asked_ms): (&'static str, u64),
        (would_ms, kept): (u64, bool),
    ) -> &mut Played {
        self.watched_as(who, happened, (key, asked_ms), (would_ms, kept), |_| {})
    }

    /// The same, with more details.
    fn watched_as(
        &mut self,
        who: u64,
        happened: EventKind,
        asked: (&'static str, u64),
        would: (u64, bool),
        more: impl FnOnce(&mut LockEvent),
    ) -> &mut Played {
        let (key, asked_ms) = asked;
        self.tells(who, happened, key, |entry| {
            watched(entry, asked_ms, would);
            more(entry);
        })
    }

    /// How often this was found about an application.
    fn found(&self, who: u64, what: &str) -> u64 {
        let told = self.told(&format!("app-{who}"));
        let findings = told.namespaces.iter().flat_map(|usage| &usage.findings);
        let these = findings.filter(|finding| finding.what == what);
        these.map(|finding| finding.count).sum()
    }

    fn tells(
        &mut self,
        who: u64,
        happened: EventKind,
        key: &'static str,
        more: impl FnOnce(&mut LockEvent),
    ) -> &mut Played {
        let operation = match happened {
            EventKind::Released { .. } | EventKind::Absent { .. } | EventKind::Refused => Some(Operation::Release),
            EventKind::Extended { .. } => Some(Operation::Extend),
            EventKind::RanOut | EventKind::Lost | EventKind::Observed(_) => None,
            _ => Some(Operation::Acquire),
        };
        let mut entry = LockEvent {
            at: self.now(),
            at_ms: 1_790_000_000_000 + self.at_ms,
            happened,
            operation,
            caller: (who > 0).then(|| caller(who)),
            ..example(key)
        };
        more(&mut entry);
        let mut measures = Vec::new();
        self.seen.fold(&entry, &mut measures);
        assert!(measures.iter().all(|(namespace, _)| &**namespace == "orders"));
        self.measures.extend(measures.into_iter().map(|(_, measure)| measure));
        self
    }

    fn waiters(&self, key: &'static str) -> usize {
        let lock = self.seen.lock(&of(key));
        lock.map_or(0, |lock| lock.waiting(self.now()).count())
    }

    fn remarks(&self, key: &'static str) -> Vec<String> {
        let lock = self.seen.lock(&of(key)).expect("it was seen");
        remarks(lock, None, &self.seen.circles, self.now())
    }

    fn told(&self, application: &str) -> api::Application {
        let all = self.seen.periods.total().applications.told(&Default::default(), &self.seen.patterns, |_| Here {
            mode: "monitor",
            grants_repeats: false,
            believes: false,
        });
        let mut found = all.into_iter().filter(|one| one.application == application);
        found.next().expect("it did something")
    }

    fn reported(&self) -> api::NamespaceReport {
        let standing = report::Standing {
            namespace: "orders",
            enforced: false,
            grants_repeats: false,
            harm: None,
            without_ttl: 0,
            without_ttl_examples: Vec::new(),
            equal_values: 0,
            equal_values_examples: Vec::new(),
            watched: report::Watched {
                patterns: &self.seen.patterns,
                since: 1_790_000_000_000,
                now: 1_790_000_000_000 + self.at_ms,
                enough: None,
                names: &["orders".to_owned()],
            },
        };
        report::namespace(standing, &self.seen.periods.total())
    }
}

fn watched(entry: &mut LockEvent, asked_ms: u64, (would_ms, kept): (u64, bool)) {
    entry.mode = Mode::Monitor;
    (entry.ttl_ms, entry.asked_ms) = (Some(asked_ms), Some(asked_ms));
    entry.verdict = Some(Verdict::permitted(DecisionKind::Allow));
    if would_ms != asked_ms {
        entry.verdict = Some(Verdict::permitted(DecisionKind::WouldModify));
        entry.would_give = Some(EnforcedTerms { ttl_ms: TtlMs(would_ms), kept });
    }
}

fn caller(who: u64) -> Arc<Caller> {
    Arc::new(caller_of(who))
}

fn caller_of(who: u64) -> Caller {
    Caller {
        session: SessionNumber(who),
        address: ([10, 0, 0, 1], 4711).into(),
        name: Bytes::from(format!("app-{who}")),
        user: Bytes::new(),
        library: Some("jedis 2.9".into()),
        known_by: Arc::default(),
    }
}

fn of(key: &'static str) -> DbKey {
    DbKey::new(0, key.as_bytes())
}

fn would_refuse(reason: Reason) -> Option<Verdict> {
    let kind = DecisionKind::WouldDeny;
    Some(Verdict::refused(kind, reason, "owner-token", None))
}

#[test]
fn who_is_refused_twice_waits_until_it_gets_the_lock() {
    let mut played = Played::new();
    played.acquires(1, "lock:a", 30_000, 1);
    played.after(100).by(2, CONTENDED, "lock:a");
    assert_eq!(played.waiters("lock:a"), 0, "one try is no wait");
    played.after(100).by(2, CONTENDED, "lock:a").by(3, CONTENDED, "lock:a");
    assert_eq!(played.waiters("lock:a"), 1);
    played.after(50).by(1, RELEASED, "lock:a");
    assert_eq!(played.waiters("lock:a"), 0, "nobody waits for what is free");
    played.after(50).acquires(2, "lock:a", 30_000, 2);
    assert_eq!(played.waiters("lock:a"), 0);
    let waited = Measure::Waited(Duration::from_millis(200));
    assert!(played.measures.contains(&waited), "{:?}", played.measures);
}

#[test]
fn who_falls_silent_does_not_wait_any_more() {
    let mut played = Played::new();
    played.acquires(1, "lock:a", 600_000, 1);
    for _ in 0..10 {
        played.after(1_000).by(2, CONTENDED, "lock:a");
    }
    played.after(3_900);
    assert_eq!(played.waiters("lock:a"), 1, "its pauses are a second long");
    played.after(200);
    assert_eq!(played.waiters("lock:a"), 0);
    // It comes back later: that is another wait.
    played.after(60_000).by(2, CONTENDED, "lock:a");
    played.after(500).by(1, RELEASED, "lock:a").acquires(2, "lock:a", 1_000, 2);
    let waited = Measure::Waited(Duration::from_millis(500));
    assert!(played.measures.contains(&waited), "{:?}", played.measures);
}

#[test]
fn a_contended_lock_keeps_its_story() {
    let mut played = Played::new();
    played.acquires(1, "lock:a", 600_000, 1);
    for round in 0..1_000 {
        played.after(10).by(2 + round % 100, CONTENDED, "lock:a");
    }
    played.by(1, RELEASED, "lock:a");
    let lock = played.seen.lock(&of("lock:a")).unwrap();
    let begins = lock.timeline.front().unwrap().happened;
    assert_eq!((lock.timeline.len(), begins), (32, ACQUIRED));
    assert_eq!(lock.timeline.back().unwrap().happened, RELEASED);
}

#[test]
fn late_work_is_told_with_the_ttl_that_would_have_been_enough() {
    let mut played = Played::new();
    played.acquires(3, "lock:order:42", 5_000, 42).after(5_106);
    played.tells(7, AFTER_ONE_THAT_RAN_OUT, "lock:order:42", |entry| {
        (entry.ttl_ms, entry.fence) = (Some(30_000), Some(43));
    });
    played.after(712);
    played.tells(3, EventKind::Refused, "lock:order:42", |entry| {
        entry.overlap = true;
        let deny = DecisionKind::Deny;
        entry.verdict = Some(Verdict::refused(deny, Reason::Expired, "owner-token", None));
    });
    let lock = played.seen.lock(&of("lock:order:42")).unwrap();
    let holding = lock.holding.as_ref().unwrap();
    assert!(holding.overlapped && holding.fence == 43);
    assert_eq!(
        played.remarks("lock:order:42"),
        ["app-3's work took 5.8 s, its TTL was 5.0 s: ask for at least 10 s, or extend while working"]
    );
    assert_eq!(played.seen.overlaps.count(played.now()), 1);
    assert_eq!(played.seen.refused.count(played.now()), 1);
    assert_eq!(played.told("app-3").namespaces[0].findings[0].what, "ran-out");
}

#[test]
fn a_holder_that_was_not_heard_of_again_may_have_died() {
    let mut played = Played::new();
    played.acquires(3, "lock:a", 5_000, 1).after(5_400);
    played.tells(0, EventKind::RanOut, "lock:a", |entry| entry.held_ms = Some(5_000));
    assert!(played.remarks("lock:a")[0].starts_with("app-3's lease ran out after its TTL of 5.0 s"));
}

#[test]
fn news_of_an_old_end_is_not_about_the_lease_of_now() {
    let mut played = Played::new();
    played.acquires(3, "lock:a", 1_000, 1).after(1_500);
    played.acquires(4, "lock:a", 1_000, 2);
    played.tells(0, EventKind::RanOut, "lock:a", |entry| entry.held_ms = Some(1_000));
    let lock = played.seen.lock(&of("lock:a")).unwrap();
    assert_eq!(lock.holding.as_ref().map(|holding| holding.fence), Some(2));
}

#[test]
fn how_much_ttl_was_left_is_measured_where_nobody_renews() {
    let mut played = Played::new();
    played.acquires(1, "lock:a", 1_000, 1).after(900).by(1, RELEASED, "lock:a");
    let [Measure::TtlLeft(left)] = &played.measures[..] else {
        panic!("{:?}", played.measures);
    };
    assert!((left - 0.1).abs() < 1e-6, "{left}");
    let kept = EventKind::Acquired { again: false, replaced: false, ran_out: false, kept: true };
    played.tells(1, kept, "lock:b", |entry| entry.ttl_ms = Some(1_000));
    played.by(1, RELEASED, "lock:b");
    assert_eq!(played.measures.len(), 1);
}

#[test]
fn a_lease_that_ended_around_the_proxy_is_told_from_one_that_ran_out() {
    let gone = EventKind::Absent { ran_out: true };
    let bypassed = [Measure::Bypassed(of("lock:a"), 9)];
    let elsewhere = [Measure::Gone(of("lock:a"), 9)];
    for (after_ms, happened, measured) in [
        (1_000, gone, &bypassed[..]),
        (1_000, EventKind::Ungoverned, &bypassed),
        (59_500, gone, &[]),
        (61_000, gone, &[]),
        (61_000, EventKind::Ungoverned, &[]),
        (1_000, EventKind::Absent { ran_out: false }, &elsewhere),
        (61_000, EventKind::Absent { ran_out: false }, &[]),
    ] {
        let mut played = Played::new();
        played.acquires(1, "lock:a", 60_000, 9).after(after_ms);
        played.by(1, happened, "lock:a").by(1, happened, "lock:a");
        assert_eq!(played.measures, measured, "{happened:?} after {after_ms} ms");
    }
    // The proxy was stopped before it read the reply.
    let mut played = Played::new();
    played.tells(1, ACQUIRED, "lock:a", |entry| {
        (entry.ttl_ms, entry.fence) = (Some(60_000), Some(9));
        entry.took = Some(Took { redis: Some(Duration::from_secs(70)), ..Took::default() });
    });
    played.after(1_000).by(1, gone, "lock:a");
    assert_eq!(played.measures, [], "it had run out before it was heard of");
    let mut played = Played::new();
    let forwarded = EventKind::Unjudged(UnjudgedWhy::NoRights);
    played.acquires(1, "lock:a", 60_000, 9).after(5);
    played.by(2, forwarded, "lock:a").by(1, gone, "lock:a");
    assert_eq!(played.measures, [], "the proxy itself let something through");
    let mut played = Played::new();
    played.acquires(1, "lock:a", 60_000, 9);
    played.by(2, EventKind::Forwarded, "lock:b").by(1, gone, "lock:a");
    assert!(played.measures.is_empty(), "a FLUSH that went through names one lock of all");
}

#[test]
fn a_circle_of_waiters_is_told_and_ends_with_the_wait() {
    let mut played = Played::new();
    played.acquires(1, "lock:a", 600_000, 1).acquires(2, "lock:b", 600_000, 2);
    for _ in 0..3 {
        played.after(500).by(1, CONTENDED, "lock:b").by(2, CONTENDED, "lock:a");
    }
    played.after(1_000);
    let [circle] = &played.seen.circles[..] else {
        panic!("{:?}", played.seen.circles);
    };
    assert_eq!(circle.since_ms(), 1_790_000_000_500);
    assert_eq!(
        played.remarks("lock:a"),
        ["they wait for each other: app-2 holds lock:b and waits for lock:a; app-1 holds lock:a and waits \
          for lock:b: take locks in one order everywhere"]
    );
    played.by(2, RELEASED, "lock:b").after(1_000);
    assert!(played.seen.circles.is_empty());
}

#[test]
fn who_polls_what_it_holds_itself_or_tries_now_and_then_is_in_no_deadlock() {
    let mut played = Played::new();
    played.acquires(1, "lock:a", 600_000, 1);
    for _ in 0..4 {
        let own = EventKind::Contended { own: true };
        played.after(500).by(1, own, "lock:a");
    }
    played.after(1_000);
    assert!(played.seen.circles.is_empty());

    let mut played = Played::new();
    played.acquires(1, "lock:a", 600_000, 1).acquires(2, "lock:b", 600_000, 2);
    for _ in 0..4 {
        played.after(5_000).by(1, CONTENDED, "lock:b").by(2, CONTENDED, "lock:a");
    }
    played.after(1_000);
    assert!(played.seen.circles.is_empty());
}

/// Whether two connections that each hold a lock and poll the other's are reported as a circle.
fn is_circle(changed: impl Fn(u64, &mut Caller)) -> bool {
    let mut played = Played::new();
    for round in 0..4 {
        for who in [1, 2] {
            let (own, others) = if who == 1 { ("lock:a", "lock:b") } else { ("lock:b", "lock:a") };
            let key = if round == 0 { own } else { others };
            let happened = if round == 0 { ACQUIRED } else { CONTENDED };
            played.after(250).tells(who, happened, key, |entry| {
                (entry.ttl_ms, entry.fence) = (Some(600_000), Some(who));
                let caller = entry.caller.as_mut().map(Arc::make_mut);
                changed(who, caller.expect("the entry has one"));
            });
        }
    }
    played.after(1_000);
    !played.seen.circles.is_empty()
}

#[test]
fn connections_of_one_client_do_not_wait_for_each_other() {
    let process = |number: u8| Process::Known([number; 8]);
    let known_as = |caller: &mut Caller, number: u8| {
        caller.name = Bytes::from_static(b"worker");
        caller.known_by = Arc::default();
        caller.known_by.is_process(process(number));
    };
    // One process, or one pool of a remote client.
    assert!(!is_circle(|_, caller| known_as(caller, 7)));
    assert!(!is_circle(|_, caller| caller.name = Bytes::from_static(b"pool")));
    // Two processes with one name, two names, two hosts.
    assert!(is_circle(|who, caller| {
        known_as(caller, if who == 1 { 1 } else { 2 });
    }));
    assert!(is_circle(|_, _| {}));
    assert!(is_circle(|who, caller| {
        caller.name = Bytes::from_static(b"worker");
        let last = if who == 1 { 1 } else { 2 };
        caller.address = ([10, 0, 0, last], 4000).into();
    }));
}

#[test]
fn applications_are_told_apart_with_reasons_examples_and_advice() {
    let mut played = Played::new();
    for _ in 0..98 {
        played.after(10).acquires(1, "lock:a", 1_000, 1).by(1, RELEASED, "lock:a");
    }
    played.acquires(1, "lock:a", 1_000, 1).after(10);
    for _ in 0..4 {
        played.tells(2, RELEASED, "lock:a", |entry| {
            entry.verdict = would_refuse(Reason::NotOwner);
        });
    }
    played.by(2, EventKind::Observed(Observation::SharedToken), "lock:a");
    let (good, bad) = (played.told("app-1"), played.told("app-2"));
    assert!(good.ready, "{good:?}");
    assert_eq!(good.verdict, "ready: nothing to refuse in 197 calls");
    assert_eq!(good.libraries, ["jedis 2.9"]);
    assert!(!bad.ready);
    assert_eq!(bad.verdict, "enforce mode would refuse 4 of 4 calls (100.0 %)");
    let usage = &bad.namespaces[0];
    let refusal = &usage.refusals[0];
    assert_eq!((refusal.what.as_str(), refusal.count), ("not-owner", 4));
    assert_eq!(refusal.example.client.as_ref().unwrap().application, "app-2");
    assert!(refusal.advice.contains("compare-and-delete"));
    let report = played.reported();
    assert_eq!((report.operations, report.would_refuse, report.ready), (201, 4, false));
    assert_eq!(
        report.verdict,
        "would refuse 4 of 201 calls (1.9 %): 4 not-owner (most by app-2); \
         too little was seen: watch for 799 calls more, or until 2026-09-28T14:13:20.000Z"
    );
}

#[test]
fn a_namespace_is_ready_when_nothing_speaks_against_it() {
    let mut played = Played::new();
    assert_eq!(played.reported().verdict, "nothing was seen yet");
    for _ in 0..600 {
        played.after(10).acquires(1, "lock:a", 1_000, 1).by(1, RELEASED, "lock:a");
    }
    let report = played.reported();
    assert!(report.ready);
    assert_eq!(report.verdict, "ready for enforce: nothing to refuse in 1,200 calls");
    assert_eq!(report.tokenless_releases, 600);
}

#[test]
fn releases_over_other_connections_are_found() {
    let mut played = Played::new();
    played.acquires(1, "lock:a", 1_000, 1).by(2, RELEASED, "lock:a");
    let findings = &played.told("app-2").namespaces[0].findings;
    let what: Vec<&str> = findings.iter().map(|found| found.what.as_str()).collect();
    assert_eq!(what, ["pooled", "tokenless-release"]);
}

#[test]
fn work_that_lives_on_keep_alive_is_found_once() {
    let mut played = Played::new();
    let kept = EventKind::Acquired { again: false, replaced: false, ran_out: false, kept: true };
    played.tells(1, kept, "lock:a", |entry| entry.ttl_ms = Some(30_000));
    played.after(29_000);
    assert_eq!(played.reported().kept_alive, 0);
    played.after(2_000).after(2_000);
    assert_eq!(played.reported().kept_alive, 1);
    assert_eq!(played.told("app-1").namespaces[0].findings[0].what, "kept-alive");
}

#[test]
fn applications_without_room_are_told_together() {
    let mut played = Played::new();
    for who in 1..2_000 {
        played.by(who, CONTENDED, "lock:a");
    }
    let all =
        played.seen.periods.total().applications.told(&Default::default(), &played.seen.patterns, |_| Here::default());
    assert_eq!(all.len(), 257);
    let rest = played.told("__other__");
    assert_eq!(rest.namespaces[0].operations, 1_999 - 256);
}

#[test]
fn very_many_locks_are_remembered_shortly_and_no_more_of_them_than_there_is_room_for() {
    let mut played = Played::new();
    let now = played.now();
    for round in 0..12 {
        for number in 0..10_000 {
            let entry = LockEvent {
                at: now,
                at_ms: round,
                key: DbKey::new(0, format!("lock:{number}").as_bytes()),
                happened: if round % 2 == 0 { ACQUIRED } else { RELEASED },
                ..example("")
            };
            played.seen.fold(&entry, &mut Vec::new());
        }
    }
    let locks = played.seen.locks.iter();
    let moments: Vec<usize> = locks.map(|(_, lock)| lock.timeline.len()).collect();
    assert!(moments.len() <= 8_192, "{}", moments.len());
    assert!(moments.iter().sum::<usize>() <= 65_536);
    for _ in 0..12 {
        for number in 0..8_000 {
            let key = DbKey::new(0, format!("lock:{number}").as_bytes());
            let entry = LockEvent { key, ..example("") };
            played.seen.fold(&entry, &mut Vec::new());
        }
    }
    let locks = played.seen.locks.iter();
    assert!(locks.map(|(_, lock)| lock.timeline.len()).sum::<usize>() <= 65_536);
}

#[test]
fn states_are_sorted_by_what_is_worse() {
    let mut states = [LockState::Held, LockState::NoTtl, LockState::Overlap, LockState::Deadlock];
    states.sort();
    let sorted = [LockState::Overlap, LockState::Deadlock, LockState::NoTtl, LockState::Held];
    assert_eq!(states, sorted);
}

fn any_happened() -> impl Strategy<Value = EventKind> {
    let flag = any::<bool>;
    prop_oneof![
        (flag(), flag(), flag(), flag())
            .prop_map(|(again, replaced, ran_out, kept)| { EventKind::Acquired { again, replaced, ran_out, kept } }),
        flag().prop_map(|own| EventKind::Contended { own }),
        flag().prop_map(|kept| EventKind::Extended { kept }),
        flag().prop_map(|taken_over| EventKind::Released { taken_over }),
        flag().prop_map(|ran_out| EventKind::Absent { ran_out }),
        Just(EventKind::Refused),
        Just(EventKind::Different),
        Just(EventKind::RanOut),
        Just(EventKind::Unchanged),
        Just(EventKind::Ungoverned),
        Just(EventKind::Forwarded),
        Just(EventKind::Unconfirmed),
        Just(EventKind::Failed),
        Just(EventKind::Broken),
        Just(EventKind::Observed(Observation::Debt)),
    ]
}

#[test]
fn what_enforce_mode_would_change_is_told_of_those_who_bring_it_about() {
    let mut played = Played::new();
    const EXTENDED: EventKind = EventKind::Extended { kept: false };
    for _ in 0..300 {
        let without = ("lock:a", 0);
        played.watched(1, ACQUIRED, without, (30_000, true)).after(5).by(1, RELEASED, "lock:a");
    }
    // SETNX and EXPIRE are one idiom.
    played
        .watched(2, ACQUIRED, ("lock:b", 0), (30_000, true))
        .after(3)
        .watched(2, EXTENDED, ("lock:b", 20_000), (20_000, true))
        .after(19_000)
        .by(2, RELEASED, "lock:b");
    // One that comes much later is not part of it.
    played
        .watched(3, ACQUIRED, ("lock:c", 0), (30_000, true))
        .after(1_500)
        .watched(3, EXTENDED, ("lock:c", 20_000), (20_000, true))
        .by(3, RELEASED, "lock:c");
    played.watched(4, ACQUIRED, ("lock:d", 90_000), (60_000, true)).after(61_000).by(4, RELEASED, "lock:d");
    played.watched(5, ACQUIRED, ("lock:e", 0), (30_000, false)).after(31_000).after(5_000).by(5, RELEASED, "lock:e");
    for (who, what, times) in [
        (1, "no-ttl", 300),
        (1, "needs-keep-alive", 0),
        (2, "no-ttl", 0),
        (3, "no-ttl", 1),
        (4, "ttl-cut", 1),
        (4, "no-ttl", 0),
        (4, "needs-keep-alive", 1),
        (5, "no-ttl", 1),
        (5, "would-run-out", 1),
    ] {
        assert_eq!(played.found(who, what), times, "{what} of app-{who}");
    }
    let billing = played.told("app-1");
    assert!(billing.ready);
    assert!(billing.verdict.ends_with("enforce mode would change no-ttl (300 times)"), "{}", billing.verdict);
    assert_eq!(billing.namespaces[0].would_modify, 300);
    assert!(!played.told("app-5").ready, "nobody would renew its lease");
    let said = played.reported();
    assert_eq!(said.would_modify, 304);
    assert!(said.verdict.contains("would change no-ttl in app-1 (300 times)"), "{}", said.verdict);
    assert!(!said.ready && said.verdict.contains("would-run-out in app-5 (1 time)"));
}

/// The reported data of a pattern.
fn pattern(played: &Played, glob: &str) -> api::LockPattern {
    let seen = &played.seen.patterns;
    let mut all = seen.of("orders").map(|(id, one)| (seen.glob(id), one));
    let (glob, one) = all.find(|(name, _)| name == glob).expect("it was seen");
    one.told(("orders", glob), 0, &[], true)
}

/// The durations of the last leases of a pattern: their number, the median and the longest, ms.
fn lengths(played: &Played, glob: &str) -> (u64, u64, u64) {
    let holds = pattern(played, glob).holds;
    (holds.count, holds.p50_ms, holds.max_ms)
}

fn ends(pattern: &api::LockPattern) -> Vec<(&str, u64, Option<u64>)> {
    let all = pattern.history.iter();
    all.map(|one| (&*one.end, one.until.expect("it is over") - one.since, one.held_ms)).collect()
}

/// The client that did not get the lock deletes it all the same, and so on: each worked for 150 ms.
#[test]
fn a_lease_is_held_until_its_own_holder_gives_it_back() {
    let mut played = Played::new();
    for round in 0..10_u64 {
        let who = 1 + round % 2;
        played.acquires(who, "lock:order:7", 10_000, round + 1).after(50);
        if round > 0 {
            // The client before finishes now. It deletes a lock that is no longer its own.
            played.after(50).tells(3 - who, RELEASED, "lock:order:7", |entry| {
                entry.fence = Some(round + 1);
                entry.verdict = would_refuse(Reason::Expired);
            });
        } else {
            played.tells(3, RELEASED, "lock:order:7", |entry| {
                entry.fence = Some(round + 1);
                entry.verdict = would_refuse(Reason::NotOwner);
            });
        }
    }
    // All but the last were released by their holders: the first 150 ms after its grant, the others 200 ms.
    assert_eq!(lengths(&played, "lock:order:*"), (9, 200, 200));
    let told = pattern(&played, "lock:order:*");
    assert_eq!(told.holds.ran_out, 0);
    assert_eq!(ends(&told)[..2], [("deleted-by-another", 50, Some(150)), ("deleted-by-another", 100, Some(200))]);
    assert_eq!(ends(&told)[9], ("deleted-by-another", 100, None), "it works on");
    let lock = played.seen.lock(&of("lock:order:7")).unwrap();
    assert_eq!(lock.holds.summary(), told.holds);
}

/// It works for 500 ms with a TTL of 300 ms, and deletes the lock that others hold by then.
#[test]
fn work_that_outlasts_its_lease_counts_with_its_whole_length() {
    let mut played = Played::new();
    let mut fence = 0;
    for _ in 0..40 {
        fence += 1;
        played.tells(1, if fence == 1 { ACQUIRED } else { AFTER_ONE_THAT_RAN_OUT }, "lock:invoice", |entry| {
            (entry.ttl_ms, entry.fence) = (Some(300), Some(fence));
        });
        fence += 1;
        played.after(310).tells(2, AFTER_ONE_THAT_RAN_OUT, "lock:invoice", |entry| {
            (entry.ttl_ms, entry.fence) = (Some(300), Some(fence));
        });
        played.after(190).tells(1, RELEASED, "lock:invoice", |entry| {
            entry.fence = Some(fence);
            entry.overlap = true;
            entry.verdict = would_refuse(Reason::Expired);
        });
        fence += 1;
        played.after(10).acquires(3, "lock:invoice", 300, fence);
        played.after(300).tells(2, RELEASED, "lock:invoice", |entry| {
            entry.fence = Some(fence);
            entry.overlap = true;
            entry.verdict = would_refuse(Reason::Expired);
        });
        played.after(200).by(3, EventKind::Absent { ran_out: false }, "lock:invoice");
    }
    let told = pattern(&played, "lock:invoice");
    assert_eq!((told.holds.count, told.holds.p50_ms, told.holds.max_ms), (120, 500, 500));
    assert_eq!(told.holds.ran_out, 40);
    let advice = told.advice.expect("its TTL is too short");
    assert!(advice.contains("1.0 s"), "{advice}");
    assert!(played.remarks("lock:invoice")[0].contains("work took 500 ms, its TTL was 300 ms"));
}

/// The events of two connections are reported in another order than they happened.
#[test]
fn a_release_that_is_told_after_the_next_grant_is_not_that_ones() {
    let mut played = Played::new();
    let step = EventKind::Extended { kept: true };
    let release = |played: &mut Played, who, fence| {
        played.tells(who, RELEASED, "lock:a", |entry| entry.fence = Some(fence));
    };
    for fence in (1..=99).step_by(2) {
        let named = |fence| move |entry: &mut LockEvent| entry.fence = Some(fence);
        played.watched_as(1, ACQUIRED, ("lock:a", 0), (30_000, true), named(fence));
        played.watched_as(1, step, ("lock:a", 20_000), (20_000, true), named(fence));
        played.after(40);
        // It was free; but the release is reported 1 ms later.
        played.watched_as(2, ACQUIRED, ("lock:a", 0), (30_000, true), named(fence + 1));
        played.after(1);
        release(&mut played, 1, fence);
        played.watched_as(2, step, ("lock:a", 20_000), (20_000, true), named(fence + 1));
        played.after(29);
        release(&mut played, 2, fence + 1);
        played.after(20);
    }
    for what in ["no-ttl", "pooled"] {
        assert_eq!((played.found(1, what), played.found(2, what)), (0, 0), "{what}");
    }
    assert_eq!(lengths(&played, "lock:a"), (100, 30, 41));
    assert!(ends(&pattern(&played, "lock:a")).iter().all(|(end, _, _)| *end == "released"));
}

/// A late holder deletes the next one's lock, and this is reported before the next grant.
#[test]
fn a_late_release_that_is_told_before_the_next_grant_is_not_that_of_the_lease_before() {
    let mut played = Played::new();
    played.acquires(1, "lock:a", 400, 1).after(450);
    played.tells(1, RELEASED, "lock:a", |entry| {
        entry.fence = Some(2);
        entry.overlap = true;
        entry.verdict = would_refuse(Reason::Expired);
    });
    played.tells(2, AFTER_ONE_THAT_RAN_OUT, "lock:a", |entry| {
        (entry.ttl_ms, entry.fence) = (Some(60_000), Some(2));
    });
    assert_eq!((played.found(1, "ran-out"), played.found(2, "pooled")), (1, 0));
    assert_eq!(ends(&pattern(&played, "lock:a"))[1].0, "deleted-by-another");
    assert!(played.seen.lock(&of("lock:a")).unwrap().holding.is_none());
    assert!(played.remarks("lock:a")[0].starts_with("app-1's work took 450 ms, its TTL was 400 ms"));
}

#[test]
fn a_job_that_others_are_meant_to_give_back_is_held_until_they_do() {
    let mut played = Played::new();
    for fence in 1..=30 {
        played.acquires(1, "lock:job", 60_000, fence).after(700);
        if fence > 5 {
            played.by(2, EventKind::Observed(Observation::HandedOver), "lock:job");
        }
        played.tells(2, RELEASED, "lock:job", |entry| {
            entry.fence = Some(fence);
            entry.verdict = would_refuse(Reason::NotOwner);
        });
    }
    assert_eq!(lengths(&played, "lock:job"), (25, 700, 700));
}

/// Reported by its own release, by the next grant, or by the proxy, and any number of times.
#[test]
fn a_lease_that_ran_out_is_counted_once() {
    let mut played = Played::new();
    played.acquires(1, "lock:a", 1_000, 1).after(1_100);
    played.by(1, EventKind::Absent { ran_out: true }, "lock:a");
    played.after(200).tells(0, EventKind::RanOut, "lock:a", |entry| entry.held_ms = Some(1_000));
    let told = pattern(&played, "lock:a").holds;
    assert_eq!((told.count, told.ran_out, told.max_ms), (1, 1, 1_100));
    assert_eq!(played.reported().ran_out, 1);
    // The server does not know that others deleted it.
    played.acquires(1, "lock:b", 1_000, 1).after(50);
    played.tells(2, RELEASED, "lock:b", |entry| {
        entry.fence = Some(1);
        entry.verdict = would_refuse(Reason::NotOwner);
    });
    played.after(50).tells(2, AFTER_ONE_THAT_RAN_OUT, "lock:b", |entry| entry.fence = Some(2));
    assert_eq!(played.reported().ran_out, 1);
    // Here nothing else is known.
    played.by(3, AFTER_ONE_THAT_RAN_OUT, "lock:c");
    assert_eq!(played.reported().ran_out, 2);
}

#[test]
fn a_holder_that_takes_the_lock_anew_did_not_work_since_the_first_time() {
    let mut played = Played::new();
    played.acquires(1, "lock:cool", 1_000, 1).after(60_000);
    played.tells(1, AFTER_ONE_THAT_RAN_OUT, "lock:cool", |entry| {
        (entry.ttl_ms, entry.fence) = (Some(1_000), Some(2));
    });
    played.after(100).tells(1, RELEASED, "lock:cool", |entry| entry.fence = Some(2));
    assert_eq!(lengths(&played, "lock:cool"), (2, 100, 1_000));
    assert!(played.remarks("lock:cool")[0].contains("took the lock anew"));
}

#[test]
fn patterns_are_told_apart_by_namespace_and_are_of_a_bounded_number() {
    let mut played = Played::new();
    let letters = |number: usize| [number / 26, number % 26].map(|place| char::from(b'a' + place as u8));
    for number in 0..600 {
        let word: String = letters(number).iter().collect();
        for (namespace, fence) in [("orders", 1), ("stock", 2)] {
            let key = DbKey::new(0, format!("{word}:{word}q:{word}z").as_bytes());
            let entry = LockEvent {
                at: played.now(),
                key,
                happened: ACQUIRED,
                namespace: namespace.into(),
                fence: Some(fence),
                ..example("")
            };
            played.seen.fold(&entry, &mut Vec::new());
        }
    }
    let count = |namespace| played.seen.patterns.of(namespace).count();
    assert!(count("orders") + count("stock") <= 256 + 2);
    let rest = pattern(&played, "*");
    assert!(rest.acquired > 0);
    let all: u64 =
        played.seen.patterns.of("orders").map(|(_, one)| one.told(("", String::new()), 0, &[], false).acquired).sum();
    assert_eq!(all, 600);
}

fn pattern_advices(played: &Played) -> Vec<Option<String>> {
    let all = played.seen.patterns.of("orders");
    all.map(|(_, one)| one.advice("orders")).collect()
}

#[test]
fn too_little_is_seen_until_a_thousand_calls_or_a_week() {
    let mut played = Played::new();
    let round = |played: &mut Played| {
        played.after(10).acquires(1, "lock:a", 1_000, 1).by(1, RELEASED, "lock:a");
    };
    (0..499).for_each(|_| round(&mut played));
    let said = played.reported();
    assert_eq!((said.ready, said.wanted_calls, said.wanted_until), (false, 2, Some(1_790_604_800_000)));
    round(&mut played);
    assert!(played.reported().ready);
    // A lock that is taken once a day.
    let mut played = Played::new();
    for _ in 0..6 {
        round(&mut played);
        played.after(24 * 3_600_000);
    }
    assert!(!played.reported().ready);
    played.after(24 * 3_600_000);
    let said = played.reported();
    assert_eq!((said.ready, said.wanted_calls, said.wanted_until), (true, 0, None));
    assert_eq!(said.verdict, "ready for enforce: nothing to refuse in 12 calls");
}

#[test]
fn a_namespace_is_not_ready_where_leases_run_out_while_held() {
    let mut played = Played::new();
    let good = |played: &mut Played, rounds: u64| {
        for _ in 0..rounds {
            played.after(10).acquires(1, "lock:a", 1_000, 1).by(1, RELEASED, "lock:a");
        }
    };
    let runs_out = |played: &mut Played| {
        played.acquires(1, "lock:a", 1_000, 1).after(1_500);
        played.tells(0, EventKind::RanOut, "lock:a", |entry| entry.held_ms = Some(1_000));
    };
    good(&mut played, 999);
    runs_out(&mut played);
    assert!(played.reported().ready, "one in a thousand is misfortune");
    runs_out(&mut played);
    let said = played.reported();
    assert_eq!((said.ready, said.ran_out_while_held), (false, 2));
    assert!(said.verdict.contains("2 leases ran out while held"), "{}", said.verdict);
}

/// Marks that something was done, mixed with locks.
#[test]
fn families_that_work_differently_are_told_with_the_namespace_to_write() {
    let mut played = Played::new();
    for round in 0..600_u64 {
        played.after(10).acquires(1, "lock:order:7", 10_000, round + 1).by(1, RELEASED, "lock:order:7");
    }
    let day = |entry: &mut LockEvent| {
        (entry.ttl_ms, entry.asked_ms) = (Some(86_400_000), Some(86_400_000));
    };
    for key in ["lock:done:1", "lock:done:2", "lock:done:3", "lock:done:4"] {
        played.tells(2, ACQUIRED, key, day);
        played.by(2, EventKind::Observed(Observation::Outlived), key);
    }
    assert_eq!(played.reported().mixed, [], "too few to tell");
    played.tells(2, ACQUIRED, "lock:done:5", day);
    played.by(2, EventKind::Observed(Observation::Outlived), "lock:done:5");
    let said = played.reported();
    let [family] = &said.mixed[..] else {
        panic!("{:?}", said.mixed);
    };
    assert!(!said.ready);
    assert_eq!((&*family.way, &family.patterns[..]), ("left-to-ttl", &["lock:done:*".to_owned()][..]));
    assert_eq!(
        family.toml,
        "[[namespace]]\nname = \"lock-done\"\nkeys = [\"lock:done:*\"]\nmode = \"monitor\"\n\
         [namespace.settings.ttl-ceiling]\nceiling = \"1d\" # the longest TTL that was asked for\n\
         keep_alive = \"off\" # the TTL is what they are for\n"
    );
    let words = "lock:done:* wants a namespace of its own: it is left to its TTL, and most of this namespace is given \
                 back by whoever takes it";
    assert!(said.verdict.contains(words), "{}", said.verdict);
}

/// 40 leases of each of two kinds of locks, held for 2 s and for 40 ms, all without a TTL.
#[test]
fn every_misuse_names_its_keys_and_the_line_that_mends_it() {
    let mut played = Played::new();
    for number in 0..40_u64 {
        for (key, held_ms) in [("lock:report:7", 2_000), ("lock:mail:9", 40)] {
            played.watched_as(1, ACQUIRED, (key, 0), (30_000, true), |entry| entry.fence = Some(number + 1));
            played.after(held_ms).tells(1, RELEASED, key, |entry| entry.fence = Some(number + 1));
        }
    }
    let told = played.told("app-1");
    let findings = &told.namespaces[0].findings;
    let found = findings.iter().find(|found| found.what == "no-ttl").expect("it is found");
    let lines: Vec<_> = found
        .patterns
        .iter()
        .map(|one| {
            (&*one.pattern, &*one.key, one.count, one.code.as_deref(), one.toml.as_ref().map(|toml| &*toml.line))
        })
        .collect();
    let default = Some("default = \"30s\"");
    assert_eq!(
        lines,
        [
            ("lock:mail:*", "lock:mail:9", 40, Some("SET lock:mail:9 VALUE NX PX 100"), default),
            ("lock:report:*", "lock:report:7", 40, Some("SET lock:report:7 VALUE NX PX 3000"), default),
        ]
    );
    assert_eq!(found.count, 80);
}

proptest! {
    /// With any events in any order, nothing panics and every bound holds.
    #[test]
    fn any_story_can_be_folded(
        steps in prop::collection::vec(
            (any_happened(), any::<bool>(), 0_u64..5, 0_usize..4, 0_u64..3_000, any::<[Option<u64>; 4]>()),
            1..300,
        )
    ) {
        let mut played = Played::new();
        let keys = ["lock:a", "lock:b", "lock:c", "lock:d"];
        for (happened, overlap, who, key, passed, [ttl_ms, asked_ms, held_ms, fence]) in steps {
            played.after(passed).tells(who, happened, keys[key], |entry| {
                (entry.ttl_ms, entry.asked_ms) = (ttl_ms, asked_ms);
                (entry.held_ms, entry.fence) = (held_ms, fence);
                entry.overlap = overlap;
            });
            for key in keys.iter().filter(|key| played.seen.lock(&of(key)).is_some()) {
                let lock = played.seen.lock(&of(key)).unwrap();
                prop_assert!(lock.timeline.len() <= 32 && lock.former.len() <= 4);
                played.remarks(key);
            }
            played.reported();
            pattern_advices(&played);
        }
        for measure in &played.measures {
            if let Measure::TtlLeft(left) = measure {
                prop_assert!((0.0..=1.0).contains(left));
            }
        }
    }
}

impl Played {
    /// A lease of this client is missing on the server that became the primary.
    fn loses(&mut self, who: u64, key: &'static str, fence: u64) -> &mut Played {
        self.tells(who, EventKind::Lost, key, |entry| {
            (entry.fence, entry.id) = (Some(fence), Some("7F3K2A".into()));
        })
    }

    fn losses(&self) -> Vec<api::Incident> {
        let query = api::DecisionsQuery::default();
        losses::incidents(&self.seen, &lost_of(&self.seen, &query, usize::MAX))
    }
}

#[test]
fn a_lost_lease_is_told_with_who_works_on_and_who_holds_the_lock_by_then() {
    let mut played = Played::new();
    played.acquires(1, "lock:a", 60_000, 7).after(3_000);
    played.loses(1, "lock:a", 7);
    let [lost] = &played.losses()[..] else {
        panic!("one application has lost locks");
    };
    assert_eq!(lost.sentence, "app-1 lost lock:a in the failover and works on without it");
    assert_eq!((lost.overlap, lost.count), (false, 1));
    assert_eq!((&*lost.reason, &*lost.decision), ("lease-lost", "lost"));
    assert_eq!(lost.id.as_deref(), Some("7F3K2A"));
    assert_eq!(played.found(1, "lease-lost"), 1);
    assert!(played.told("app-1").ready, "it does nothing wrong");

    played.after(10).acquires(2, "lock:a", 60_000, 8);
    let while_held =
        "app-1 lost lock:a (fencing token 7) in the failover and works on without it, while app-2 holds it";
    assert_eq!(played.remarks("lock:a"), [while_held]);
    let lost = played.losses().swap_remove(0);
    assert_eq!((lost.overlap, lost.holder.as_deref()), (true, Some("app-2")));

    // Its holder releases it, as far as it knows.
    played.after(500).by(1, EventKind::Absent { ran_out: false }, "lock:a");
    let lost = played.losses().swap_remove(0);
    assert!(!lost.overlap, "{lost:?}");
    assert_eq!(lost.sentence, "app-1 lost lock:a in the failover, and has given it back or taken it anew since");
}

#[test]
fn many_lost_leases_of_one_application_are_one_sentence_and_what_is_remembered_is_bounded() {
    let mut played = Played::new();
    for fence in 1..=2_000 {
        played.loses(1, "lock:a", fence).loses(0, "lock:b", fence);
    }
    let told = played.losses();
    let sentences: Vec<_> = told.iter().map(|one| one.sentence.as_str()).collect();
    assert_eq!(
        sentences,
        [
            "a client lost lock:b and 511 more locks in the failover, and works on without them",
            "app-1 lost lock:a and 511 more locks in the failover, and works on without them",
        ]
    );
    assert_eq!(played.seen.lost_lately.count(played.now()), 4_000);
    let query = api::DecisionsQuery { application: Some("app-1".to_owned()), ..Default::default() };
    assert_eq!(lost_of(&played.seen, &query, 5).len(), 5);
    let query = api::DecisionsQuery { reason: Some(api::ReasonWord(Reason::Other)), ..Default::default() };
    assert!(lost_of(&played.seen, &query, 5).is_empty(), "it is no refusal");
}

/// One of several connections of one client.
fn pooled(session: u64) -> Arc<Caller> {
    Arc::new(Caller { session: SessionNumber(session), name: Bytes::from_static(b"pool"), ..caller_of(session) })
}

impl Played {
    /// A connection of the pool takes the lock, in monitor mode or not.
    fn pool_takes(&mut self, session: u64, mode: Mode, fence: u64) -> &mut Played {
        self.tells(session, ACQUIRED, "lock:a", |entry| {
            (entry.mode, entry.fence, entry.caller) = (mode, Some(fence), Some(pooled(session)));
            (entry.ttl_ms, entry.asked_ms) = (Some(1_000), Some(1_000));
        })
    }

    /// A connection of the pool releases it, with proof.
    fn pool_returns(&mut self, session: u64, mode: Mode, fence: u64) -> &mut Played {
        self.tells(session, RELEASED, "lock:a", |entry| {
            (entry.mode, entry.fence, entry.caller) = (mode, Some(fence), Some(pooled(session)));
            entry.held_ms = Some(0);
        })
    }

    /// A release is refused, or would be; the client may be the holder or, with `stranger`, is not.
    fn is_refused(&mut self, session: u64, mode: Mode, fence: u64, stranger: bool) -> &mut Played {
        self.is_refused_as(session, mode, fence, (stranger, Reason::NotOwner))
    }

    fn is_refused_as(
        &mut self,
        session: u64,
        mode: Mode,
        fence: u64,
        (stranger, reason): (bool, Reason),
    ) -> &mut Played {
        let (happened, kind) = match mode {
            Mode::Monitor => (RELEASED, DecisionKind::WouldDeny),
            Mode::Enforce => (EventKind::Refused, DecisionKind::Deny),
        };
        self.tells(session, happened, "lock:a", |entry| {
            (entry.mode, entry.fence) = (mode, Some(fence));
            entry.held_ms = Some(100);
            let verdict = Verdict::refused(kind, reason, "owner-token", None);
            entry.verdict = Some(verdict);
            if !stranger {
                entry.caller = Some(pooled(session));
            }
        })
    }

    /// A connection of the pool finds the lock held or, at its release, free.
    fn pool_meets(&mut self, session: u64, happened: EventKind) -> &mut Played {
        self.tells(session, happened, "lock:a", |entry| {
            (entry.mode, entry.caller) = (Mode::Monitor, Some(pooled(session)));
        })
    }

    /// Lock time of the namespace.
    fn lock_time(&self) -> (api::LockTime, api::LockTime) {
        let report = self.reported();
        (report.foretold, report.seen)
    }
}

#[test]
fn a_refusal_that_may_be_the_holders_is_foretold_to_leave_the_lock_until_its_ttl_ends() {
    let mut played = Played::new();
    played.pool_takes(1, Mode::Monitor, 1).after(100);
    played.is_refused(2, Mode::Monitor, 1, false).after(300);
    // In enforce mode it would still be locked: this grant is lost, and its connection waits for the rest of the TTL.
    played.pool_takes(3, Mode::Monitor, 2).after(50);
    // A lock that would be locked already loses nothing more.
    played.is_refused(4, Mode::Monitor, 2, false).after(5_000);
    let (foretold, seen) = played.lock_time();
    assert_eq!(seen, api::LockTime::default());
    let expected = api::LockTime { grants: 1, held_ms: 100, unheld_ms: 900, lost_grants: 1, waits_ms: 600, cut_ms: 0 };
    assert_eq!(foretold, expected);
    let verdict = played.reported().verdict;
    let cost = "would leave locks unheld for 900 ms beside 100 ms held (90.0 %), lose 1 grant of 2, add waits of 600 ms; \
                would refuse 2 of 4 calls";
    assert!(verdict.starts_with(cost), "{verdict}");
    let pool = played.told("pool");
    assert_eq!(pool.namespaces[0].foretold, expected);
}

#[test]
fn a_refusal_costs_nothing_where_the_holder_was_at_work_or_another_client_was_refused() {
    // A late `finally` of one thread deletes the lock under another thread, which finds no lock when it finishes.
    let mut played = Played::new();
    played.pool_takes(1, Mode::Monitor, 1).after(100);
    played.is_refused(2, Mode::Monitor, 1, false).after(400);
    // Passed time is counted once a second, and at each event of the lock.
    played.tells(3, CONTENDED, "lock:a", |entry| entry.mode = Mode::Monitor);
    assert_eq!(played.lock_time().0.unheld_ms, 400);
    played.pool_meets(1, MET_NONE).after(2_000);
    let (foretold, _) = played.lock_time();
    assert_eq!((foretold.unheld_ms, foretold.waits_ms), (0, 0));

    // The first release was for an earlier lease, as its client still owed one: in enforce mode the next one would be accepted.
    let mut played = Played::new();
    played.pool_takes(1, Mode::Monitor, 1).after(100);
    let late = (false, Reason::Expired);
    played.is_refused_as(2, Mode::Monitor, 1, late).after(400).pool_meets(3, MET_NONE).after(2_000);
    assert_eq!(played.lock_time().0.unheld_ms, 0);

    // Refusing a stranger is the gain.
    let mut played = Played::new();
    played.pool_takes(1, Mode::Monitor, 1).after(100);
    played.is_refused(7, Mode::Monitor, 1, true).after(2_000);
    assert_eq!(played.lock_time().0.unheld_ms, 0);
    let mut played = Played::new();
    played.pool_takes(1, Mode::Enforce, 1).after(100);
    played.is_refused(7, Mode::Enforce, 1, true).after(400);
    played.by(0, EventKind::RanOut, "lock:a").after(2_000);
    assert_eq!(played.lock_time().1.unheld_ms, 0);
}

#[test]
fn a_finally_block_on_a_pool_is_foretold_to_leave_its_lock_until_the_ttl_ends() {
    // In enforce mode the holder's own release would be refused like the loser's, which has deleted the lock here.
    let mut played = Played::new();
    played.pool_takes(1, Mode::Monitor, 1).after(10);
    played.is_refused(2, Mode::Monitor, 1, false).after(40);
    played.pool_meets(3, MET_NONE);
    for fence in 2..=10 {
        let own = fence % 3 + 1;
        played.pool_takes(own, Mode::Monitor, fence).after(20);
        played.pool_returns(own, Mode::Monitor, fence).after(20);
    }
    played.after(5_000);
    let (foretold, _) = played.lock_time();
    let expected = api::LockTime {
        grants: 1,
        held_ms: 100,
        unheld_ms: 990,
        lost_grants: 9,
        waits_ms: foretold.waits_ms,
        cut_ms: 0,
    };
    assert_eq!(foretold, expected);

    // The connection that took it proves nothing after it was refused the lock, before the first release or since.
    for is_before in [true, false] {
        let mut played = Played::new();
        played.pool_takes(1, Mode::Monitor, 1).after(10);
        if is_before {
            played.pool_meets(1, CONTENDED);
        }
        played.is_refused(2, Mode::Monitor, 1, false).after(10);
        if !is_before {
            played.pool_takes(1, Mode::Monitor, 2);
            played.pool_returns(1, Mode::Monitor, 2).after(10);
        }
        played.pool_meets(1, MET_NONE).after(5_000);
        assert_eq!(played.lock_time().0.unheld_ms, 990, "{is_before}");
    }
}

#[test]
fn further_refusals_take_nothing_back_of_what_the_first_has_left_unheld() {
    let mut played = Played::new();
    played.pool_takes(1, Mode::Enforce, 1).after(100);
    for session in [2, 3, 2, 3] {
        played.is_refused(session, Mode::Enforce, 1, false).after(200);
    }
    played.after(5_000);
    assert_eq!(played.lock_time().1.unheld_ms, 900);

    // Its own connection is believed: it worked until now.
    let mut played = Played::new();
    played.pool_takes(1, Mode::Enforce, 1).after(100);
    for session in [2, 3] {
        played.is_refused(session, Mode::Enforce, 1, false).after(200);
    }
    played.pool_returns(1, Mode::Enforce, 1).after(5_000);
    assert_eq!(played.lock_time().1.unheld_ms, 0);
}

#[test]
fn what_a_refusal_leaves_unheld_is_seen_until_the_lease_ends() {
    let mut played = Played::new();
    for fence in 1..=5 {
        played.pool_takes(1, Mode::Enforce, fence).after(100);
        played.pool_returns(1, Mode::Enforce, fence).after(100);
    }
    played.pool_takes(1, Mode::Enforce, 6).after(100);
    played.is_refused(2, Mode::Enforce, 6, false).after(100);
    for _ in 0..8 {
        played.by(3, CONTENDED, "lock:a").after(100);
    }
    played.tells(0, EventKind::RanOut, "lock:a", |entry| {
        (entry.mode, entry.held_ms) = (Mode::Enforce, Some(1_000));
    });
    played.after(5_000);
    let (foretold, seen) = played.lock_time();
    assert_eq!(foretold, api::LockTime::default());
    assert_eq!((seen.unheld_ms, seen.grants), (900, 6));
    // Five grants, each 200 ms after the one before.
    assert_eq!(seen.lost_grants, 4);
    assert!((600..=800).contains(&seen.waits_ms), "{seen:?}");
    assert_eq!(seen.held_ms, 600);

    // If an accepted release comes after all, nothing was left unheld.
    let mut played = Played::new();
    played.pool_takes(1, Mode::Enforce, 1).after(100);
    played.is_refused(2, Mode::Enforce, 1, false).after(300);
    played.by(3, CONTENDED, "lock:a");
    assert_eq!(played.lock_time().1.unheld_ms, 300);
    played.pool_returns(1, Mode::Enforce, 1).after(2_000);
    assert_eq!(played.lock_time().1.unheld_ms, 0);
}

#[test]
fn a_ttl_that_is_cut_under_work_costs_the_time_that_is_worked_without_the_lock() {
    let mut played = Played::new();
    played.watched(1, ACQUIRED, ("lock:a", 60_000), (2_000, false));
    played.after(5_000).tells(1, RELEASED, "lock:a", |entry| {
        entry.mode = Mode::Monitor;
    });
    assert_eq!(played.lock_time().0.cut_ms, 3_000);

    let mut played = Played::new();
    played.tells(1, ACQUIRED, "lock:a", |entry| {
        (entry.ttl_ms, entry.asked_ms) = (Some(2_000), Some(60_000));
        entry.fence = Some(1);
    });
    played.after(2_000).tells(0, EventKind::RanOut, "lock:a", |entry| {
        entry.held_ms = Some(2_000);
    });
    played.after(3_000).by(1, EventKind::Absent { ran_out: false }, "lock:a");
    let (_, seen) = played.lock_time();
    assert_eq!((seen.cut_ms, seen.held_ms), (3_000, 2_000));
}

proptest! {
    #[test]
    fn a_lock_is_unheld_for_no_longer_than_it_was_watched(
        steps in prop::collection::vec((0..6_u8, 1..4_u64, 1..700_u64), 1..60),
    ) {
        let mut played = Played::new();
        let mut fence = 0;
        for (what, session, pause) in steps {
            let mode = if what % 2 == 0 { Mode::Monitor } else { Mode::Enforce };
            match what {
                0 | 1 => {
                    fence += 1;
                    played.pool_takes(session, mode, fence);
                }
                2 | 3 => {
                    played.is_refused(session, mode, fence, session == 3);
                }
                4 => {
                    played.pool_returns(session, mode, fence);
                }
                _ => {
                    played.tells(session, EventKind::Absent { ran_out: false }, "lock:a", |entry| {
                        (entry.mode, entry.caller) = (mode, Some(pooled(session)));
                    });
                }
            }
            played.after(pause);
            let costs = played.seen.periods.total().namespaces.get("orders").unwrap().costs;
            let watched = i64::try_from(played.at_ms).unwrap();
            for cost in [costs.foretold, costs.seen] {
                prop_assert!((0..=watched).contains(&cost.unheld_ms), "{cost:?}");
                prop_assert!(cost.lost_grants >= 0 && cost.waits_ms >= 0, "{cost:?}");
            }
        }
    }
}
