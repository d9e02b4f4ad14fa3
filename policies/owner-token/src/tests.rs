use lockwarden_policy_sdk::testing::{assert_silent_beyond_judged, configure, denial, obligations, request};

use super::*;

fn policy(settings: &[(&str, &str)]) -> OwnerToken {
    configure(settings).unwrap()
}

fn refused_since(operation: Operation) -> Request {
    Request { traits: Traits::REFUSED_SINCE | Traits::CONDITIONAL, ..request(operation) }
}

#[test]
fn release_and_extension_need_a_proof_and_an_acquire_does_not() {
    let policy = policy(&[]);
    for (operation, require) in [
        (Operation::Release, Some(Proofs::all())),
        (Operation::Extend, Some(Proofs::all())),
        (Operation::TakeOver, Some(Proofs::all())),
        (Operation::Acquire, None),
        (Operation::Inspect, None),
        (Operation::GuardedWrite, None),
    ] {
        let decision = policy.decide(&request(operation));
        assert_eq!(obligations(&decision).require, require, "{operation:?}");
    }
}

#[test]
fn proofs_already_seen_change_nothing_because_redis_checks_them() {
    let policy = policy(&[]);
    let seen = Request { proofs: Proofs::all(), owner_token: Some(b"mine".to_vec()), ..request(Operation::Release) };
    assert_eq!(policy.decide(&seen), policy.decide(&request(Operation::Release)));
}

#[test]
fn after_a_refusal_the_void_proofs_do_not_count() {
    let all = Proofs::all();
    for (settings, require) in [
        // The proxy knows what an identity that was refused has done.
        (&[][..], all),
        (&[("doubt", "believe")], all),
        (&[("doubt", "refuse")], all - Proofs::IDENTITY),
        (&[("doubt", "refuse"), ("void_after_refusal", "")], all),
        (&[("void_after_refusal", "session,identity")], Proofs::TOKEN | Proofs::OBSERVED),
        (&[("proofs", "token,session"), ("doubt", "refuse")], Proofs::TOKEN | Proofs::SESSION),
    ] {
        let policy = policy(settings);
        for operation in [Operation::Release, Operation::Extend, Operation::TakeOver] {
            let decision = policy.decide(&refused_since(operation));
            assert_eq!(obligations(&decision).require, Some(require), "{settings:?}");
        }
        let acquire = policy.decide(&refused_since(Operation::Acquire));
        assert_eq!(acquire, Decision::permit());
    }
}

#[test]
fn a_release_or_extension_that_names_its_owner_token_keeps_all_proofs_after_a_refusal() {
    let policy = policy(&[("void_after_refusal", "session,identity")]);
    for (operation, require) in [
        (Operation::Release, Proofs::all()),
        (Operation::Extend, Proofs::all()),
        // The value of a GETSET is the new one, which proves nothing.
        (Operation::TakeOver, Proofs::TOKEN | Proofs::OBSERVED),
    ] {
        let named = Request { owner_token: Some(b"0123456789abcdef".to_vec()), ..refused_since(operation) };
        let decision = policy.decide(&named);
        assert_eq!(obligations(&decision).require, Some(require), "{operation:?}");
    }
}

#[test]
fn where_every_proof_is_void_nobody_satisfies_the_requirement() {
    let policy = policy(&[("proofs", "identity"), ("doubt", "refuse")]);
    for (operation, asked) in [
        (Operation::Release, Some(TakeOverRule::AfterDeadline)),
        (Operation::Extend, None),
        (Operation::TakeOver, Some(TakeOverRule::AfterDeadline)),
    ] {
        let decision = policy.decide(&refused_since(operation));
        assert_eq!(obligations(&decision).require, Some(Proofs::empty()));
        assert_eq!(obligations(&decision).take_over, asked);
    }
}

#[test]
fn whatever_may_end_a_strangers_lease_carries_the_take_over_rule() {
    for (settings, rule) in [
        (&[][..], TakeOverRule::AfterDeadline),
        (&[("take_over", "after-deadline")], TakeOverRule::AfterDeadline),
        (&[("take_over", "never")], TakeOverRule::Never),
    ] {
        let policy = policy(settings);
        for operation in [Operation::TakeOver, Operation::Release] {
            let decision = policy.decide(&request(operation));
            assert_eq!(obligations(&decision).take_over, Some(rule), "{operation:?}");
        }
        for operation in [Operation::Extend, Operation::Acquire] {
            let decision = policy.decide(&request(operation));
            assert_eq!(obligations(&decision).take_over, None, "{operation:?}");
        }
    }
}

#[test]
fn an_opaque_write_is_refused_with_what_to_do_instead() {
    let decision = policy(&[]).decide(&request(Operation::Write));
    let denial = denial(&decision);
    assert_eq!(denial.code, Code::OpaqueWrite);
    assert!(denial.detail.as_ref().is_some_and(|hint| hint.contains("acquire, extend and release")));
}

#[test]
fn nothing_is_said_about_what_is_not_judged() {
    assert_silent_beyond_judged(&policy(&[("take_over", "never")]));
}

#[test]
fn settings_are_checked() {
    for (settings, problem) in [
        (&[("proofs", "")][..], "nobody could ever release"),
        (&[("proofs", "token,luck")], "must be one of \"token\", \"session\""),
        (&[("proofs", "token,token")], "twice"),
        (&[("proofs", "token"), ("void_after_refusal", "identity")], "not in proofs"),
        (&[("void_after_refusal", "sessions")], "must be one of"),
        (&[("trust_address", "maybe")], "must be one of \"auto\", \"process\", \"no\""),
        (&[("doubt", "perhaps")], "must be one of \"believe\", \"refuse\""),
        (&[("debt_max_age", "0s")], "debt_max_age is zero"),
        (&[("debt_max_age", "soon")], "write a whole number and a unit"),
        (&[("take_over", "always")], "must be one of"),
        (&[("shared_tokens", "refuse")], "must be one of \"report\", \"deny\""),
        (&[("take-over", "never")], "did you mean take_over?"),
    ] {
        let error = configure::<OwnerToken>(settings).unwrap_err();
        assert!(error.contains(problem), "{settings:?}: {error}");
    }
    assert_eq!(policy(&[("debt_max_age", "10m")]), policy(&[]));
    for trust in ["auto", "process", "no"] {
        assert_eq!(policy(&[("trust_address", trust)]), policy(&[]));
    }
}

#[test]
fn a_shared_owner_token_takes_no_lock_where_it_is_denied_and_gives_one_back() {
    let (report, deny) = (policy(&[]), policy(&[("shared_tokens", "deny")]));
    let shared = |operation| Request {
        traits: Traits::SHARED_TOKEN | Traits::CONDITIONAL,
        owner_token: Some(b"1".to_vec()),
        ..request(operation)
    };
    let acquire = shared(Operation::Acquire);
    assert_eq!(report.decide(&acquire), Decision::permit());
    assert_eq!(denial(&deny.decide(&acquire)).code, Code::SharedToken);
    let own = request(Operation::Acquire);
    assert_eq!(deny.decide(&own), Decision::permit());
    for operation in [Operation::Release, Operation::Extend, Operation::TakeOver] {
        let request = shared(operation);
        assert_eq!(deny.decide(&request), report.decide(&request));
    }
    assert_silent_beyond_judged(&report);
    assert_silent_beyond_judged(&deny);
}
