use lockwarden_policy_sdk::testing::{
    OPERATIONS, assert_silent_beyond_judged, configure, denial, obligations, request,
};

use super::*;

const MINUTE: u64 = 60_000;

fn policy(settings: &[(&str, &str)]) -> TtlCeiling {
    configure(settings).unwrap()
}

fn with_ttl(operation: Operation, ttl_ms: u64) -> Request {
    Request { ttl_ms: Some(ttl_ms), ..request(operation) }
}

#[test]
fn the_defaults_are_those_of_the_documentation() {
    let want = TtlCeiling {
        default_ms: 30_000,
        ceiling_ms: 3_600_000,
        on_excess: OnExcess::Cap,
        keep_alive_ms: Some(86_400_000),
        max_hold_ms: None,
    };
    assert_eq!(policy(&[]), want);
}

#[test]
fn whatever_sets_a_ttl_is_bounded_and_nothing_else_is() {
    let policy = policy(&[("default", "10s"), ("ceiling", "1m"), ("keep_alive", "2h"), ("max_hold", "3h")]);
    assert_silent_beyond_judged(&policy);
    let bounds = Obligations {
        ttl_default_ms: Some(10_000),
        ttl_cap_ms: Some(MINUTE),
        keep_alive_ms: Some(7_200_000),
        max_hold_ms: Some(10_800_000),
        ..Obligations::default()
    };
    for operation in OPERATIONS {
        let sets_a_ttl = matches!(operation, Operation::Acquire | Operation::TakeOver | Operation::Extend);
        let want = if sets_a_ttl { bounds } else { Obligations::default() };
        // With `on_excess = "cap"` even the longest TTL is only cut.
        for ttl_ms in [1, MINUTE, u64::MAX] {
            let decision = policy.decide(&with_ttl(operation, ttl_ms));
            assert_eq!(obligations(&decision), &want, "{operation:?} {ttl_ms}");
        }
    }
}

#[test]
fn an_acquire_without_a_ttl_gets_the_default() {
    let decision = policy(&[]).decide(&request(Operation::Acquire));
    assert_eq!(obligations(&decision).ttl_default_ms, Some(DEFAULT_MS));
}

#[test]
fn deny_refuses_what_is_above_the_ceiling_and_says_what_to_ask_for() {
    let policy = policy(&[("ceiling", "1m"), ("on_excess", "deny")]);
    for operation in [Operation::Acquire, Operation::TakeOver, Operation::Extend] {
        let decision = policy.decide(&with_ttl(operation, MINUTE + 1));
        assert_eq!(denial(&decision).code, Code::TtlTooLong, "{operation:?}");
        let hint = denial(&decision).detail.as_deref();
        assert_eq!(hint, Some("ask for at most 1m and extend"));
        obligations(&policy.decide(&with_ttl(operation, MINUTE)));
    }
    // Neither has a TTL that could be too long.
    obligations(&policy.decide(&with_ttl(Operation::Release, MINUTE + 1)));
    obligations(&policy.decide(&request(Operation::Acquire)));
}

#[test]
fn persist_is_refused_and_a_new_value_without_a_ttl_is_not() {
    let policy = policy(&[]);
    let persist = policy.decide(&request(Operation::Extend));
    assert_eq!(denial(&persist).code, Code::NoTtl);

    let new_value = Request { owner_token: Some(b"next".to_vec()), ..request(Operation::Extend) };
    let decision = policy.decide(&new_value);
    assert_eq!(obligations(&decision).ttl_default_ms, Some(DEFAULT_MS));
}

#[test]
fn keep_alive_can_be_switched_off() {
    let decision = policy(&[("keep_alive", "off")]).decide(&request(Operation::Acquire));
    assert_eq!(obligations(&decision).keep_alive_ms, None);
}

#[test]
fn a_low_ceiling_alone_lowers_the_default_too() {
    let policy = policy(&[("ceiling", "10s")]);
    assert_eq!((policy.default_ms, policy.ceiling_ms), (10_000, 10_000));
}

#[test]
fn settings_are_checked() {
    for (settings, problem) in [
        (&[("default", "90s"), ("ceiling", "1m")][..], "default (90s) must be above zero and at most ceiling (1m)"),
        (&[("default", "2h")], "default (2h) must be above zero and at most ceiling (1h)"),
        (&[("default", "0s")], "default (0ms) must be above zero"),
        (&[("ceiling", "0s")], "at most ceiling (0ms)"),
        (&[("default", "30")], "write a whole number and a unit"),
        (&[("on_excess", "cut")], "must be one of \"cap\", \"deny\""),
        (&[("keep_alive", "0s")], "write \"off\" for none"),
        (&[("keep_alive_by", "process")], "must be one of \"identity\", \"connection\""),
        (
            &[("keep_alive.ttl", "all")],
            "keep_alive.ttl = \"all\" needs max_hold: a holder that hangs would block for ever",
        ),
        (
            &[("keep_alive", "off"), ("keep_alive.ttl", "all"), ("max_hold", "1h")],
            "keep_alive = \"off\" keeps no TTL alive: leave out keep_alive.ttl",
        ),
        (&[("keep_alive.ttl", "every")], "must be one of \"proxy\", \"all\""),
        (&[("grace", "0s")], "grace = \"0s\": write \"off\" for none"),
        (&[("grace", "5")], "write a whole number and a unit"),
        (&[("max_hold", "forever")], "or \"off\""),
        (&[("cieling", "1m")], "did you mean ceiling?"),
    ] {
        let error = configure::<TtlCeiling>(settings).unwrap_err();
        assert!(error.contains(problem), "{settings:?}: {error}");
    }
}
