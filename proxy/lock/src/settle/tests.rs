use bytes::Bytes;
use lockwarden_lua::{Replies, Reply};
use smallvec::smallvec;

use super::*;
use crate::decision::{Decide, Fault, FaultKind, Operation, Question, TakeOverRule, Traits, WhoAsks};
use crate::evidence::Own;
use crate::op::{AcquireReply, AskedTtl, ComparedBy, ExpireCondition, Test};
use crate::rules::{Adopt, Doubt, HolderLost, KeepAliveBy, KeepAliveTtl, OnRepeat, Released, RulesTag, TrustAddress};
use crate::token::{FencingToken, OwnerToken, stored_form};

/// A chain that answers every question alike and remembers what it was asked.
struct Fake {
    decision: Decision,
    asked: Vec<(Operation, Option<u64>, Traits, Proofs)>,
}

impl Fake {
    fn saying(decision: Decision) -> Fake {
        Fake { decision, asked: Vec::new() }
    }
}

impl Decide for Fake {
    fn decide(&mut self, _: NamespaceId, question: &Question<'_>, _: &dyn WhoAsks) -> Decision {
        self.asked.push((question.operation, question.ttl_ms.map(|ms| ms.0), question.traits, question.proofs));
        self.decision.clone()
    }
}

pub(crate) fn target() -> Target {
    Target { namespace: NamespaceId(0), key: Bytes::from_static(b"lock:a") }
}

fn command(op: LockOp) -> Command {
    Command::Lock(Box::new(LockCommand {
        name: "x",
        op,
        argv: smallvec![Bytes::from_static(b"X")],
        frame: Bytes::new(),
    }))
}

fn acquire() -> Command {
    let value = Bytes::from_static(b"1");
    command(LockOp::Acquire { target: target(), value, ttl: AskedTtl::None, reply: AcquireReply::Integer })
}

fn store(only_if_exists: bool, wants_old: bool) -> Command {
    let value = Bytes::from_static(b"1");
    command(LockOp::Store {
        target: target(),
        value,
        ttl: AskedTtl::For(5),
        only_if_exists,
        wants_old,
        comparison: None,
    })
}

/// `SET lock:a 1 IFEQ claim`, or with another test.
fn compared(claim: &str, test: Test) -> Command {
    let mut command = store(test != Test::Differs, false);
    if let Command::Lock(command) = &mut command
        && let LockOp::Store { comparison, .. } = &mut command.op
    {
        *comparison = Some(Box::new(Comparison {
            claim: OwnerToken::copy_of(claim.as_bytes()),
            test,
            by: ComparedBy::Command,
            replies: Replies {
                done: Reply::CommandResult,
                different: Reply::Nil,
                absent: Reply::Nil,
                no_ttl: None,
                other_type: None,
            },
            then: smallvec![Bytes::from_static(b"SET")],
        }));
    }
    command
}

fn release() -> Command {
    command(LockOp::Release { target: target(), spelling: crate::op::ReleaseSpelling::Del, comparison: None })
}

fn extend(ttl: AskedTtl, spelling: ExtendSpelling) -> Command {
    command(LockOp::Extend { target: target(), ttl, condition: ExpireCondition::Always, spelling, comparison: None })
}

fn opaque(kind: OpaqueKind) -> Command {
    Command::Opaque(Box::new(OpaqueCommand { name: "x", target: target(), kind, frame: Bytes::new() }))
}

fn rules(mode: Mode, on_violation: OnViolation) -> Rules {
    Rules {
        mode,
        on_violation,
        on_fault: OnFault::Deny,
        adopt: Adopt::Report,
        scripts: OpaqueScripts::Wrap,
        counter_locks: false,
        on_repeat: OnRepeat::Refuse,
        trust_address: TrustAddress::Auto,
        doubt: Doubt::Refuse,
        tag: RulesTag(*b"01234567"),
        keep_alive_by: KeepAliveBy::Identity,
        hand_over: false,
        quarantined: false,
        longest_ms: None,
        tokens_ahead_ms: 0,
        holder_lost: HolderLost::Keep,
        released: Released::Record,
        keep_alive_ttl: KeepAliveTtl::Proxy,
        grace_ms: 0,
        debt_max_age_ms: None,
        durability: None,
    }
}

fn denied(reason: Reason) -> Decision {
    let denial = Denial { reason, detail: None, policy: "p".into(), rule: None };
    Decision { verdict: Verdict::Deny(denial), ..Decision::permit() }
}

fn settled(command: Command, decision: Decision, rules: Rules) -> Settled {
    let judged = judged(&command, [decision]);
    settle(command, judged, &|_| rules)
}

/// A lock of which this is known.
pub(crate) fn lock(target: Target, facts: Facts) -> Lock {
    let key = DbKey::new(0, &target.key);
    Lock::new(target, key, facts)
}

fn locks(command: &Command, facts: &Facts) -> SmallVec<[Lock; 1]> {
    let targets = command.targets().into_iter();
    targets.map(|target| lock(target.clone(), facts.clone())).collect()
}

fn judged(command: &Command, decisions: impl IntoIterator<Item = Decision>) -> SmallVec<[Judged; 1]> {
    let locks = locks(command, &Facts::default()).into_iter();
    let judged = locks.zip(decisions).map(|(lock, decision)| Judged { lock, said: Said::Command(decision) });
    judged.collect()
}

fn circumstances() -> Circumstances {
    Circumstances { db: 0, client: 1, time: ProxyTime(1_000_000), now: Instant::now(), transactional: false }
}

#[test]
fn each_command_is_asked_about_as_what_it_means() {
    for (command, asked) in [
        (acquire(), vec![Operation::Acquire]),
        (store(false, false), vec![Operation::Acquire, Operation::Extend]),
        (store(true, false), vec![Operation::Extend]),
        (store(false, true), vec![Operation::TakeOver]),
        (compared("v", Test::Equal), vec![Operation::Extend]),
        (compared("v", Test::Differs), vec![Operation::Acquire, Operation::Extend]),
        // What is replaced may be a deadline that has passed.
        (compared("1795261000", Test::Equal), vec![Operation::Extend, Operation::TakeOver]),
        (release(), vec![Operation::Release]),
        (extend(AskedTtl::For(5), ExtendSpelling::Expire), vec![Operation::Extend]),
        (extend(AskedTtl::For(0), ExtendSpelling::Expire), vec![Operation::Release]),
        (extend(AskedTtl::Until(999_999), ExtendSpelling::Expire), vec![Operation::Release]),
        (opaque(OpaqueKind::Command), vec![Operation::Write]),
    ] {
        let mut fake = Fake::saying(Decision::permit());
        let rules = rules(Mode::Enforce, OnViolation::Native);
        let locks = locks(&command, &Facts::default());
        judge(&mut fake, &command, locks, &|_| rules, &circumstances(), &|_| None);
        let operations: Vec<Operation> = fake.asked.iter().map(|asked| asked.0).collect();
        assert_eq!(operations, asked, "{command:?}");
    }
}

#[test]
fn a_policy_is_told_the_ttl_and_the_mode() {
    let mut fake = Fake::saying(Decision::permit());
    let rules = rules(Mode::Monitor, OnViolation::Native);
    let facts = Facts { refused_since: true, ..Facts::default() };
    let command = extend(AskedTtl::Until(1_000_500), ExtendSpelling::Expire);
    let locks = locks(&command, &facts);
    judge(&mut fake, &command, locks, &|_| rules, &circumstances(), &|_| None);
    let (_, ttl, traits, _) = fake.asked[0];
    assert_eq!(ttl, Some(500));
    assert!(traits.contains(Traits::MONITORED.union(Traits::REFUSED_SINCE)));
}

#[test]
fn an_owner_token_proves_to_a_policy_however_long_it_is() {
    for length in [16, 64, 65, 4096] {
        let value = Bytes::from(vec![b'a'; length]);
        let own = |stored| Own {
            grant: Grant([1; 16]),
            fence: FencingToken(1),
            stored: stored_form(stored).into(),
            ends: None,
            asked_end: None,
            lapsed: None,
            came_back: false,
            unwitnessed: false,
        };
        let command = command(LockOp::Store {
            target: target(),
            value: value.clone(),
            ttl: AskedTtl::For(500),
            only_if_exists: true,
            wants_old: false,
            comparison: None,
        });
        let mut fake = Fake::saying(Decision::permit());
        for stored in [&value, &Bytes::from_static(b"another")] {
            let facts = Facts { own: Some(own(stored)), ..Facts::default() };
            let locks = locks(&command, &facts);
            judge(
                &mut fake,
                &command,
                locks,
                &|_| rules(Mode::Enforce, OnViolation::Native),
                &circumstances(),
                &|_| None,
            );
        }
        let proves = |at: usize| fake.asked[at].3.contains(Proofs::TOKEN);
        assert_eq!((proves(0), proves(1)), (true, false), "{length} bytes");
    }
}

#[test]
fn a_refused_extension_of_a_plain_set_only_means_that_no_proof_will_do() {
    struct OnlyAcquires;
    impl Decide for OnlyAcquires {
        fn decide(&mut self, _: NamespaceId, question: &Question<'_>, _: &dyn WhoAsks) -> Decision {
            match question.operation {
                Operation::Acquire => Decision::permit(),
                _ => denied(Reason::Limited),
            }
        }
    }
    let rules = rules(Mode::Enforce, OnViolation::Native);
    let command = store(false, false);
    let locks = locks(&command, &Facts::default());
    let decisions = judge(&mut OnlyAcquires, &command, locks, &|_| rules, &circumstances(), &|_| None);
    assert_eq!(decisions[0].said.first().verdict, Verdict::Permit);
    assert_eq!(decisions[0].said.first().obligations.require, Some(Proofs::NONE));
}

#[test]
fn a_no_is_native_only_where_that_cannot_be_read_as_a_yes() {
    let native = rules(Mode::Enforce, OnViolation::Native);
    let loud = rules(Mode::Enforce, OnViolation::Error);
    for (op, reason, rules, natively) in [
        (release(), Reason::Limited, native, true),
        (release(), Reason::Limited, loud, false),
        (extend(AskedTtl::For(5), ExtendSpelling::Expire), Reason::TtlTooLong, native, true),
        (extend(AskedTtl::For(5), ExtendSpelling::GetEx), Reason::TtlTooLong, native, false),
        (extend(AskedTtl::None, ExtendSpelling::Persist), Reason::NoTtl, native, false),
        (acquire(), Reason::Limited, native, false),
        (store(true, false), Reason::Limited, native, true),
        (store(false, false), Reason::Limited, native, false),
        (store(false, true), Reason::TakeOver, native, false),
        (opaque(OpaqueKind::Command), Reason::OpaqueWrite, native, false),
    ] {
        let label = format!("{op:?} {reason}");
        match settled(op, denied(reason), rules) {
            Settled::Refused(refused) => assert_eq!(refused.native, natively, "{label}"),
            other => panic!("{label}: {other:?}"),
        }
    }
}

#[test]
fn what_has_no_lock_meaning_is_refused_though_no_policy_objects() {
    let enforce = rules(Mode::Enforce, OnViolation::Native);
    for (kind, reason, policy) in [
        (OpaqueKind::Command, Reason::OpaqueWrite, "lockwarden"),
        (OpaqueKind::Companion, Reason::OpaqueWrite, "lockwarden"),
        (OpaqueKind::Script, Reason::UnsafeScript, "scripts"),
    ] {
        match settled(opaque(kind), Decision::permit(), enforce) {
            Settled::Refused(refused) => {
                assert_eq!((refused.denial.reason, &*refused.denial.policy), (reason, policy));
            }
            other => panic!("{kind:?}: {other:?}"),
        }
    }
}

/// Whatever is missing: what a script may do follows from what was said to each of it, and nothing from nothing.
#[test]
fn what_nobody_was_asked_about_is_permitted_nowhere() {
    let enforce = rules(Mode::Enforce, OnViolation::Error);
    for kind in [OpaqueKind::Command, OpaqueKind::Companion, OpaqueKind::Script] {
        let settled = settle(opaque(kind), SmallVec::new(), &|_| enforce);
        assert!(matches!(settled, Settled::Refused(_)), "{kind:?}");
    }
    for denied_place in 0..3 {
        let mut each = [0; 3].map(|_| Decision::permit());
        each[denied_place] = denied(Reason::Limited);
        let said = Said::Script(Box::new(each));
        assert_eq!(said.whole().verdict, denied(Reason::Limited).verdict);
    }
    let Terms { acquire, extend, release } = Terms::nothing();
    assert!(acquire.is_some() && extend.1.is_some() && release.1.is_some());
}

#[test]
fn monitor_mode_refuses_nothing_and_remembers_what_it_would_have() {
    let monitor = rules(Mode::Monitor, OnViolation::Error);
    match settled(release(), denied(Reason::Limited), monitor) {
        Settled::Permitted(permitted) => {
            assert!(!permitted.enforces());
            let would = permitted.locks()[0].would.as_ref().expect("a policy said no");
            assert_eq!(would.reason, Reason::Limited);
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(settled(opaque(OpaqueKind::Command), denied(Reason::OpaqueWrite), monitor), Settled::Forward(..)));
}

#[test]
fn a_fault_is_answered_as_the_namespace_says() {
    let fault = || {
        let fault = Fault { kind: FaultKind::Fuel, policy: "p".into() };
        Decision { fault: Some(fault), ..Decision::permit() }
    };
    let deny = rules(Mode::Enforce, OnViolation::Native);
    let allow = Rules { on_fault: OnFault::Allow, ..deny };
    let monitor = Rules { mode: Mode::Monitor, ..deny };
    match settled(acquire(), fault(), deny) {
        Settled::Refused(refused) => assert_eq!(refused.code, Code::Policy),
        other => panic!("{other:?}"),
    }
    for rules in [allow, monitor] {
        let settled = settled(acquire(), fault(), rules);
        assert!(matches!(settled, Settled::Permitted(_)), "{settled:?}");
    }
}

#[test]
fn one_lock_that_enforces_makes_the_whole_command_enforce() {
    let second = Target { namespace: NamespaceId(1), key: Bytes::from_static(b"b") };
    let op = LockOp::ReleaseMany { locks: vec![target(), second], others: vec![], unlink: false };
    let both = |namespace: NamespaceId| match namespace.0 {
        0 => rules(Mode::Monitor, OnViolation::Native),
        _ => rules(Mode::Enforce, OnViolation::Native),
    };
    let decisions = [Decision::permit(), denied(Reason::Limited)];
    let command = command(op);
    let judged = judged(&command, decisions);
    match settle(command, judged, &both) {
        Settled::Permitted(permitted) => {
            assert!(permitted.enforces());
            assert_eq!(permitted.locks()[1].obligations.require, Some(Proofs::NONE));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_refused_take_over_leaves_a_comparison_its_extension() {
    struct NoTakeOver;
    impl Decide for NoTakeOver {
        fn decide(&mut self, _: NamespaceId, question: &Question<'_>, _: &dyn WhoAsks) -> Decision {
            if question.operation == Operation::TakeOver {
                return denied(Reason::TakeOver);
            }
            let obligations = Obligations { require: Some(Proofs::ALL), ..Obligations::default() };
            Decision { obligations, ..Decision::permit() }
        }
    }
    let rules = rules(Mode::Enforce, OnViolation::Native);
    let command = compared("1795261000", Test::Equal);
    let decisions =
        judge(&mut NoTakeOver, &command, locks(&command, &Facts::default()), &|_| rules, &circumstances(), &|_| None);
    assert!(matches!(decisions[0].said.first().verdict, Verdict::Permit));
    let obligations = &decisions[0].said.first().obligations;
    assert_eq!(obligations.take_over, Some(TakeOverRule::Never));
    assert_eq!(obligations.require, Some(Proofs::ALL));
}

/// What was settled may be carried out later: a block when it is executed.
#[test]
fn what_was_settled_under_more_is_promised_no_more_under_less() {
    let now = rules(Mode::Enforce, OnViolation::Native);
    let longest = |ms| Rules { longest_ms: Some(ms), ..now };
    let quarantined = Rules { quarantined: true, ..now };
    let lengthens = extend(AskedTtl::For(500), ExtendSpelling::Expire);
    let capped = Obligations { ttl_cap_ms: Some(1_000), ..Obligations::default() };
    let monitor = |rules| Rules { mode: Mode::Monitor, ..rules };
    for (command, then, rules, expected) in [
        (acquire(), now, now, true),
        (acquire(), now, quarantined, false),
        (acquire(), quarantined, quarantined, true),
        (acquire(), longest(1_000), longest(999), false),
        (acquire(), longest(999), longest(998), true),
        (lengthens.clone(), longest(1_000), longest(500), true),
        (lengthens.clone(), longest(1_000), longest(499), false),
        (lengthens.clone(), now, quarantined, true),
        (store(false, false), now, quarantined, false),
        (release(), now, Rules { longest_ms: Some(0), ..quarantined }, true),
        (acquire(), monitor(now), monitor(quarantined), true),
        (lengthens, monitor(now), monitor(longest(0)), true),
    ] {
        let label = format!("{command:?}");
        let permit = Decision { obligations: capped.clone(), ..Decision::permit() };
        let Settled::Permitted(permitted) = settled(command, permit, then) else {
            panic!("{label} was not permitted");
        };
        let target = permitted.promised_no_more(&|_| rules);
        assert_eq!(target.is_none(), expected, "{label} {rules:?}");
    }
}
