use lockwarden_policy_sdk::testing::{OPERATIONS as ALL, assert_silent_beyond_judged, configure, denial, request};

use super::*;

/// 2026-11-26, a Thursday, 16:43 UTC.
const NOW_MS: u64 = 1_795_711_380_000;

fn acquire(key: &str, ttl_ms: Option<u64>) -> Request {
    Request { key: key.as_bytes().to_vec(), ttl_ms, now_ms: NOW_MS, ..request(Operation::Acquire) }
}

/// The team of the documentation.
const TEAM: &[(&str, &str)] = &[
    ("rule.team.deny", "!(key.like('lock:billing:*') || key.like('lock:stock:*'))"),
    ("rule.team.hint", "name the lock lock:<team>:<thing>"),
    ("rule.hours.deny", "hour < 8 || hour >= 18 || weekday > 5"),
    ("rule.hours.on", "acquire,take-over"),
    ("rule.hours.zone", "Europe/Berlin"),
    ("rule.ttl.ttl_cap", "5s"),
    ("rule.ttl.ttl_default", "2s"),
    ("rule.token.deny", "token.class != 'uuid'"),
    ("rule.token.code", "shared-token"),
    ("zone.Europe/Berlin.changes", "3600 1774746000=7200 1792890000=3600"),
];

const UUID: &[u8] = b"6f9619ff-8b86-d011-b42d-00c04fc964ff";

#[test]
fn the_first_rule_that_refuses_is_the_answer() {
    let policy: Rules = configure(TEAM).unwrap();
    let good = Request { owner_token: Some(UUID.to_vec()), ..acquire("lock:billing:7", Some(3_000)) };
    let wants = Obligations { ttl_cap_ms: Some(5_000), ttl_default_ms: Some(2_000), ..Obligations::default() };
    assert_eq!(policy.decide(&good), wants.into());

    let name = policy.decide(&Request { key: b"lock:sales:7".to_vec(), owner_token: None, ..good.clone() });
    let said = denial(&name);
    assert_eq!((said.code, said.detail.as_deref()), (Code::Limited, Some("team\nname the lock lock:<team>:<thing>")));

    // 17:43 in Berlin is early enough, 18:00 is not; a Saturday is no day.
    for (later_min, refused) in [(16, false), (17, true), (40 * 60, true)] {
        let asked = Request { now_ms: NOW_MS + later_min * 60_000, ..good.clone() };
        let decision = policy.decide(&asked);
        assert_eq!(matches!(&decision, Decision::Deny(said) if said.detail.as_deref() == Some("hours\n")), refused);
    }
    let token = policy.decide(&Request { owner_token: Some(b"worker-1".to_vec()), ..good });
    assert_eq!(denial(&token).code, Code::SharedToken);
}

#[test]
fn a_rule_is_asked_about_what_it_is_on() {
    let policy: Rules = configure(TEAM).unwrap();
    // The rule `ttl` only wants something, so extensions are its affair, too.
    assert_eq!(policy.judges(), Operations::ACQUIRE | Operations::TAKE_OVER | Operations::EXTEND);
    let extend = policy.decide(&Request { key: b"lock:sales:7".to_vec(), ..request(Operation::Extend) });
    let wants = Obligations { ttl_cap_ms: Some(5_000), ttl_default_ms: Some(2_000), ..Obligations::default() };
    assert_eq!(extend, wants.into());
    assert_silent_beyond_judged(&policy);

    let frozen: Rules = configure(&[("rule.f.deny", "true"), ("rule.f.on", "take-over,release")]).unwrap();
    assert_eq!(frozen.judges(), Operations::TAKE_OVER | Operations::RELEASE);
    assert_silent_beyond_judged(&frozen);
    assert_eq!(configure::<Rules>(&[]).unwrap().judges(), Operations::empty());
}

#[test]
fn when_says_where_a_rule_holds_and_wishes_are_merged() {
    let policy: Rules = configure(&[
        ("rule.a.when", "key.startsWith('lock:billing:')"),
        ("rule.a.ttl_cap", "5s"),
        ("rule.b.ttl_cap", "1m"),
        ("rule.b.max_hold", "1h"),
        ("rule.c.when", "operation == 'extend'"),
        ("rule.c.deny", "!has_ttl"),
        ("rule.c.on", "extend"),
        ("rule.c.keep_alive", "10m"),
    ])
    .unwrap();
    let cap = |key: &str| match policy.decide(&acquire(key, None)) {
        Decision::Permit(wants) => (wants.ttl_cap_ms, wants.max_hold_ms, wants.keep_alive_ms),
        Decision::Deny(said) => panic!("{said:?}"),
    };
    assert_eq!(cap("lock:billing:7"), (Some(5_000), Some(3_600_000), None));
    assert_eq!(cap("lock:stock:7"), (Some(60_000), Some(3_600_000), None));
    let extend = Request { ttl_ms: Some(1), ..request(Operation::Extend) };
    assert!(matches!(policy.decide(&extend), Decision::Permit(wants) if wants.keep_alive_ms == Some(600_000)));
    assert!(matches!(policy.decide(&request(Operation::Extend)), Decision::Deny(_)));
}

#[test]
fn an_operation_is_called_by_its_own_word() {
    for operation in ALL {
        let Some((word, set)) = known_as(operation) else {
            continue;
        };
        let test = ["operation == '", word, "'"].concat();
        let policy: Rules = configure(&[("rule.it.deny", &test), ("rule.it.on", word)]).unwrap();
        assert_eq!(policy.judges(), set);
        assert!(matches!(policy.decide(&request(operation)), Decision::Deny(_)), "{word}");
    }
}

#[test]
fn settings_are_checked() {
    let long = std::vec!["key.contains('aaaaaaaaaaaaaaaa')"; 21].join("||");
    for (settings, problem) in [
        (&[("rule.a.deny", "kay == 'a'")][..], "rule a: deny is no condition"),
        (&[("rule.a.deni", "true")], "rule a: unknown setting \"deni\", did you mean deny?"),
        (&[("rule.a.hint", "x")], "rule a: it neither refuses nor wants anything"),
        (&[("rule.a.deny", "true"), ("rule.a.zone", "Mars")], "rule a: the zone has no changes"),
        (&[("rule.a.deny", "true"), ("rule.a.code", "no")], "rule a: code = \"no\": must be one of"),
        (&[("zone.Mars.changes", "x")], "zone: changes are no times and offsets"),
        (&[("rule.a.deny", &long)], "there are too many rules, or too long ones"),
        (&[("rules", "1")], "unknown setting \"rules\""),
    ] {
        let error = configure::<Rules>(settings).unwrap_err();
        assert!(error.contains(problem), "{settings:?}: {error}");
    }
}
