use bytes::Bytes;
use lockwarden_lua::{Replies, Reply};
use lockwarden_resp::{RequestDecoder, RequestLimits};
use smallvec::smallvec;

use super::*;
use crate::decision::{Decision, Fence, Obligations, Proofs};
use crate::evidence::{Facts, Own, Seen};
use crate::namespace::NamespaceId;
use crate::op::{
    AcquireReply, AskedTtl, ComparedBy, Comparison, ExpireCondition, LockCommand, ReleaseSpelling, Target, Test,
};
use crate::rules::{Adopt, Doubt, Mode, OnFault, OnRepeat, OnViolation, OpaqueScripts, Rules, RulesTag, TrustAddress};
use crate::settle::tests::{lock, target};
use crate::settle::{Judged, Said, Settled, settle};
use crate::time::OutliveMs;
use crate::token::{FencingToken, Identity, OwnerToken, Process, SessionId};

pub(crate) const ENFORCE: Rules = Rules {
    mode: Mode::Enforce,
    on_violation: OnViolation::Native,
    on_fault: OnFault::Deny,
    adopt: Adopt::Report,
    scripts: OpaqueScripts::Wrap,
    counter_locks: false,
    on_repeat: OnRepeat::Refuse,
    trust_address: TrustAddress::Auto,
    doubt: Doubt::Refuse,
    tag: RulesTag(*b"01234567"),
    keep_alive_by: crate::rules::KeepAliveBy::Identity,
    hand_over: false,
    quarantined: false,
    longest_ms: None,
    tokens_ahead_ms: 0,
    holder_lost: crate::rules::HolderLost::Keep,
    released: crate::rules::Released::Record,
    keep_alive_ttl: crate::rules::KeepAliveTtl::Proxy,
    grace_ms: 0,
    debt_max_age_ms: None,
    durability: None,
};

fn who() -> Who {
    Who {
        session: SessionId([1; 16]),
        client: Identity::of(&[b"app"]),
        application: None,
        process: Process::None,
        local: true,
        trust: None,
        db: 0,
        may_ask_back: false,
        looks_first: false,
    }
}

/// The words of the request that a permitted command becomes.
fn planned(op: LockOp, obligations: Obligations, facts: &Facts, rules: Rules) -> Vec<Vec<u8>> {
    planned_by(&who(), op, obligations, facts, rules)
}

fn planned_by(who: &Who, op: LockOp, obligations: Obligations, facts: &Facts, rules: Rules) -> Vec<Vec<u8>> {
    let mut permitted = permitted(op, obligations, facts, rules);
    let mut drawn = 0;
    let mut draw = || {
        drawn += 1;
        Grant([drawn; 16])
    };
    let plan = plan(&mut permitted, who, b"lw:", &mut draw);
    let words = words(&plan, Form::Sha);
    is_the_same_where_its_slot_moves(&plan, &words);
    words
}

fn permitted(op: LockOp, obligations: Obligations, facts: &Facts, rules: Rules) -> Permitted {
    let argv = smallvec![Bytes::from_static(b"DEL"), Bytes::from_static(b"lock:a")];
    let command = LockCommand { name: "del", op, argv, frame: Bytes::new() };
    let decision = Decision { obligations, ..Decision::permit() };
    let judged = Judged { lock: lock(target(), facts.clone()), said: Said::Command(decision) };
    let Settled::Permitted(permitted) = settle(Box::new(command).into(), smallvec![judged], &|_| rules) else {
        panic!("not permitted");
    };
    permitted
}

fn words(plan: &Plan, form: Form) -> Vec<Vec<u8>> {
    let mut out = BytesMut::new();
    plan.put(&mut out, form);
    let mut decoder = RequestDecoder::new(RequestLimits::default());
    decoder.decode(&out).expect("a canonical request");
    decoder.request(&out).args().map(<[u8]>::to_vec).collect()
}

/// Of a step about one lock: it is the only key that is declared, and its record follows the arguments.
fn is_the_same_where_its_slot_moves(plan: &Plan, usual: &[Vec<u8>]) {
    let moving = words(plan, Form::Moving);
    let Some((lock, record)) = plan.one_lock() else {
        assert_eq!(moving, words(plan, Form::Text));
        return;
    };
    assert_eq!([&usual[2][..], &usual[3], &usual[4]], [b"2", lock, record]);
    let [command, text, keys @ ..] = &moving[..] else { panic!("no script") };
    assert_eq!(command, b"EVAL");
    assert_eq!(text, &[RECORD_LAST.as_bytes(), &words(plan, Form::Text)[1]].concat());
    let expected = [&[b"1".to_vec(), lock.to_vec()], &usual[5..], &[record.to_vec()]].concat();
    assert_eq!(keys, expected);
}

fn release() -> LockOp {
    LockOp::Release {
        target: Target { namespace: NamespaceId(0), key: Bytes::from_static(b"lock:a") },
        spelling: ReleaseSpelling::Del,
        comparison: None,
    }
}

fn needing(proofs: Proofs) -> Obligations {
    Obligations { require: Some(proofs), ..Obligations::default() }
}

fn flags(facts: &Facts, proofs: Proofs) -> String {
    let words = planned(release(), needing(proofs), facts, ENFORCE);
    String::from_utf8(words[5].clone()).expect("letters")
}

fn own(stored: &'static str) -> Own {
    Own {
        grant: Grant([9; 16]),
        fence: FencingToken(7),
        stored: OwnerToken::copy_of(stored.as_bytes()).stored_form().into(),
        ends: None,
        asked_end: None,
        lapsed: None,
        came_back: false,
        unwitnessed: false,
    }
}

fn seen(value: &'static str, watched: bool) -> Seen {
    let token = OwnerToken::copy_of(value.as_bytes());
    Seen {
        grant: Some(Grant([8; 16])),
        stored: token.stored_form(),
        distinctive: token.is_distinctive(),
        deadline: crate::token::looks_like_deadline(value.as_bytes()),
        watched,
    }
}

#[test]
fn a_release_names_its_keys_its_proofs_and_the_clients_own_words() {
    let facts = Facts { own: Some(own("1")), ..Facts::default() };
    let words = planned(release(), needing(Proofs::ALL), &facts, ENFORCE);
    assert_eq!(words[0], b"EVALSHA");
    assert_eq!(words[1], scripts::RELEASE.sha().as_bytes());
    assert_eq!(words[2], b"2");
    assert_eq!(words[3], b"lock:a");
    assert!(words[4].starts_with(b"lw:{") && words[4].ends_with(b"}:lock:a"));
    assert_eq!(words[5], b"rsk");
    assert_eq!(words[6], [9; 16]);
    assert_eq!(words[8].len(), 40);
    assert_eq!(words[8][32..], *b"01234567", "the rules");
    assert_eq!(words[9..], [b"DEL".to_vec()]);
}

#[test]
fn only_what_may_count_is_offered_as_a_proof() {
    let with = |seen| Facts { seen: Some(seen), ..Facts::default() };
    for (facts, proofs, expected) in [
        (Facts::default(), Proofs::ALL, "rsk"),
        (Facts::default(), Proofs::TOKEN, "rk"),
        (Facts { refused_since: true, ..Facts::default() }, Proofs::ALL, "rsk"),
        (with(seen("8c1f0a2e9b7d4f6a", false)), Proofs::ALL, "rsko"),
        (with(seen("1", false)), Proofs::ALL, "rsk"),
        (with(seen("1", true)), Proofs::ALL, "rsko"),
        (with(seen("1736941234", false)), Proofs::ALL, "rskox"),
        (with(seen("8c1f0a2e9b7d4f6a", false)), Proofs::SESSION, "rsk"),
        (Facts { queued: vec![Grant([3; 16])], ..Facts::default() }, Proofs::SESSION, "rsnk"),
    ] {
        assert_eq!(flags(&facts, proofs), expected, "{facts:?}");
    }
}

#[test]
fn where_no_proof_is_wanted_none_is_asked_for() {
    let words = planned(release(), Obligations::default(), &Facts::default(), ENFORCE);
    assert_eq!(words[5], b"k");
}

#[test]
fn monitor_mode_is_told_to_the_script() {
    let monitor = Rules { mode: Mode::Monitor, ..ENFORCE };
    let words = planned(release(), needing(Proofs::SESSION), &Facts::default(), monitor);
    assert_eq!(words[5], b"mrsk");
}

fn acquiring(value: Bytes, ttl: AskedTtl, reply: AcquireReply) -> LockOp {
    LockOp::Acquire {
        target: Target { namespace: NamespaceId(0), key: Bytes::from_static(b"lock:a") },
        value,
        ttl,
        reply,
    }
}

#[test]
fn a_lease_carries_what_its_record_begins_with_and_its_terms() {
    let obligations = Obligations {
        ttl_default_ms: Some(30_000),
        ttl_cap_ms: Some(60_000),
        keep_alive_ms: Some(1),
        fence: Fence::Sequential,
        ..Obligations::default()
    };
    let adopt = Rules { adopt: Adopt::Cap, ..ENFORCE };
    let of = |ttl, reply| {
        let op = acquiring(Bytes::from_static(b"1"), ttl, reply);
        planned(op, obligations.clone(), &Facts::default(), adopt)
    };
    let text = |words: &[Vec<u8>]| {
        let words = words.iter().map(|word| String::from_utf8_lossy(word));
        words.map(String::from).collect::<Vec<_>>()
    };
    let words = of(AskedTtl::None, AcquireReply::OldValue);
    assert_eq!(words[5], *b"1");
    assert_eq!(words[6][..3], *b"1LB", "kept alive");
    assert_eq!(words[6][3..35], [1; 32]);
    assert_eq!(words[6][35..], Identity::of(&[b"app"]).0);
    assert_eq!(
        text(&words[7..]),
        ["30000", "0000000000000", "86430000", "s", "Ag", "01234567600000 60000"],
        "the application's own command is not needed"
    );
    let words = of(AskedTtl::For(5_000), AcquireReply::Integer);
    assert_eq!(words[6][..3], *b"1L@");
    assert_eq!(text(&words[7..10]), ["5000", "0000000005000", "86405000"]);

    let words = of(AskedTtl::Until(1234), AcquireReply::Integer);
    assert_eq!(words[6][..3], *b"1L@");
    assert_eq!(text(&words[7..]), ["@", "", "", "s", "A", "01234567600000 60000 @1234 30000 60000 10 86400000"]);
}

#[test]
fn an_extension_carries_a_ttl_or_all_that_there_is_to_it() {
    let of = |ttl, condition, max_hold_ms, rules| {
        let op = LockOp::Extend {
            target: Target { namespace: NamespaceId(0), key: Bytes::from_static(b"lock:a") },
            ttl,
            condition,
            spelling: crate::op::ExtendSpelling::Expire,
            comparison: None,
        };
        let obligations =
            Obligations { ttl_cap_ms: Some(60_000), keep_alive_ms: Some(1), max_hold_ms, ..needing(Proofs::ALL) };
        let words = planned(op, obligations, &Facts::default(), rules);
        let text = |at: usize| String::from_utf8(words[at].clone()).expect("letters");
        [5, 9, 10, 11].map(text)
    };
    let monitor = Rules { mode: Mode::Monitor, ..ENFORCE };
    let always = ExpireCondition::Always;
    let five = AskedTtl::For(5_000);
    for (ttl, condition, max_hold_ms, rules, expected) in [
        (five, always, None, ENFORCE, ["rske", "5000", "0000000005000", "605000"]),
        (AskedTtl::For(90_000), always, None, ENFORCE, ["rskeA", "60000", "0000000090000", "660000"]),
        (five, ExpireCondition::Gt, None, ENFORCE, ["rske", "5000 60000 10 600000 GT 0", "", ""]),
        (five, always, Some(7), ENFORCE, ["rske", "5000 60000 10 600000 - 7", "", ""]),
        (five, always, None, monitor, ["mrske", "5000 60000 10 600000 - 0", "", ""]),
        (AskedTtl::Until(-9), always, None, ENFORCE, ["rske", "@-9 60000 10 600000 - 0", "", ""]),
        (AskedTtl::Further(9), always, None, ENFORCE, ["rske", "+9 60000 10 600000 - 0", "", ""]),
        (AskedTtl::None, always, Some(7), ENFORCE, ["rske", "- 60000 10 600000 - 7", "", ""]),
        (
            AskedTtl::For(5_000),
            always,
            None,
            Rules { grace_ms: 2_000, ..ENFORCE },
            ["rske", "7000", "0000000005000", "607000"],
        ),
        (
            AskedTtl::Until(1234),
            always,
            None,
            Rules { grace_ms: 2_000, ..ENFORCE },
            ["rske", "@1234 60000 12000 600000 - 0", "", ""],
        ),
    ] {
        let found = of(ttl, condition, max_hold_ms, rules);
        assert_eq!(found, expected, "{ttl:?} {condition:?}");
    }
}

#[test]
fn only_a_value_of_ones_own_may_be_acquired_again() {
    let words = |value: &'static str, facts: &Facts, on_repeat| {
        let value = Bytes::from_static(value.as_bytes());
        let op = acquiring(value, AskedTtl::None, AcquireReply::Integer);
        let rules = Rules { on_repeat, ..ENFORCE };
        let words = planned(op, Obligations::default(), facts, rules);
        String::from_utf8(words[11].clone()).expect("letters")
    };
    let (nothing, known) = (Facts::default(), "8c1f0a2e9b7d4f6a");
    assert_eq!(words(known, &nothing, OnRepeat::Refuse), "u");
    assert_eq!(words("1", &nothing, OnRepeat::Refuse), "");
    let shared = Facts { shared_token: true, ..Facts::default() };
    assert_eq!(words(known, &shared, OnRepeat::Refuse), "");
    // Whether who asks can be told from others is the script's to say.
    assert_eq!(words(known, &nothing, OnRepeat::Grant), "ua");
}

#[test]
fn a_repetition_is_granted_where_the_value_is_ones_own_and_the_namespace_wants_it() {
    let (own, shared) = (Facts::default(), Facts { shared_token: true, ..Facts::default() });
    let grants = Rules { on_repeat: OnRepeat::Grant, ..ENFORCE };
    let known = "8c1f0a2e9b7d4f6a";
    for (value, facts, rules, expected) in [
        (known, &own, grants, true),
        (known, &own, ENFORCE, false),
        (known, &own, Rules { mode: Mode::Monitor, ..grants }, false),
        (known, &shared, grants, false),
        ("1", &own, grants, false),
    ] {
        let op = acquiring(Bytes::from_static(value.as_bytes()), AskedTtl::None, AcquireReply::Integer);
        let is_granted = grants_repetition(&permitted(op, Obligations::default(), facts, rules));
        assert_eq!(is_granted, expected, "{value} {facts:?} {rules:?}");
    }
    assert!(!grants_repetition(&permitted(release(), Obligations::default(), &own, grants)));
}

#[test]
fn a_mark_names_the_session_and_the_grant() {
    let words = |grant| {
        let mut out = BytesMut::new();
        undelivered(b"lock:a", SessionId([7; 16]), grant, b"lw:").put(&mut out, Form::Sha);
        let mut decoder = RequestDecoder::new(RequestLimits::default());
        decoder.decode(&out).expect("a canonical request");
        let words: Vec<_> = decoder.request(&out).args().map(<[u8]>::to_vec).collect();
        words[5..].to_vec()
    };
    assert_eq!(words(Some(Grant([9; 16]))), [[7; 16], [9; 16]]);
    assert_eq!(words(None), [&[7; 16][..], b""]);
}

#[test]
fn a_companion_outlives_its_lease_by_ten_ceilings_or_ten_minutes() {
    let with = |cap, fence, debt_max_age_ms| Allowed {
        lock: lock(target(), Facts::default()),
        obligations: Obligations { ttl_cap_ms: Some(cap), fence, ..Obligations::default() },
        rules: Rules { debt_max_age_ms, ..ENFORCE },
        would: None,
        terms: None,
    };
    assert_eq!(outlive_ms(&with(1_000, Fence::Hybrid, None)), OutliveMs(600_000));
    assert_eq!(outlive_ms(&with(3_600_000, Fence::Hybrid, None)), OutliveMs(36_000_000));
    assert_eq!(outlive_ms(&with(1_000, Fence::Sequential, None)), OutliveMs(86_400_000));
    let owed = Some(7_000_000);
    assert_eq!(outlive_ms(&with(1_000, Fence::Hybrid, owed)), OutliveMs(7_000_000));
}

fn trusting(trust_address: TrustAddress) -> Rules {
    Rules { trust_address, ..ENFORCE }
}

#[test]
fn an_address_is_trusted_as_the_namespace_says_and_a_name_always() {
    let remote = Who { local: false, ..who() };
    let named = Who { application: Some(Identity::of(&[b"its name"])), ..who() };
    for (trust, local, far) in
        [(TrustAddress::Auto, false, true), (TrustAddress::Process, true, true), (TrustAddress::No, false, false)]
    {
        let rules = trusting(trust);
        assert_eq!(who().is_distinctive(&rules), local, "{trust:?}");
        assert_eq!(remote.is_distinctive(&rules), far, "{trust:?}");
        assert!(named.is_distinctive(&rules), "{trust:?}");
    }
}

#[test]
fn a_process_belongs_to_the_identity_unless_the_address_is_one() {
    let known = Who { process: Process::of(&[b"1"]), ..who() };
    let whole = known.client.with_process(known.process);
    assert_eq!(known.identity(&trusting(TrustAddress::Auto)), whole);
    assert_eq!(known.identity(&trusting(TrustAddress::No)), whole);
    assert_eq!(known.identity(&trusting(TrustAddress::Process)), known.client);
    let remote = Who { local: false, ..known };
    assert_eq!(remote.identity(&trusting(TrustAddress::Auto)), known.client);
}

#[test]
fn where_locks_are_handed_over_an_application_is_one_on_every_machine() {
    let hand_over = Rules { hand_over: true, ..ENFORCE };
    let web = Who { application: Some(Identity::of(&[b"orders"])), process: Process::of(&[b"1"]), ..who() };
    let worker = Who { client: Identity::of(&[b"elsewhere"]), process: Process::Pending, ..web };
    assert_eq!(web.identity(&hand_over), worker.identity(&hand_over));
    assert_ne!(web.identity(&ENFORCE), worker.identity(&ENFORCE));
    // Who does not say who it is, is who it was.
    let nameless = Who { application: None, ..web };
    assert_eq!(nameless.identity(&hand_over), web.identity(&ENFORCE));
    assert!(!nameless.is_distinctive(&hand_over));
}

#[test]
fn identity_is_offered_where_it_can_be_told_or_may_still_be() {
    let base = "rs";
    for (process, named, may_ask_back, letters) in [
        (Process::None, false, true, "k"),
        (Process::None, true, false, "iDk"),
        (Process::Pending, false, false, "k"),
        (Process::Pending, false, true, "ipk"),
        (Process::of(&[b"1"]), false, false, "ik"),
    ] {
        let who = Who { process, application: named.then(|| Identity::of(&[b"its name"])), may_ask_back, ..who() };
        let words = planned_by(&who, release(), needing(Proofs::ALL), &Facts::default(), ENFORCE);
        let expected = [base.as_bytes(), letters.as_bytes()].concat();
        assert_eq!(words[5], expected, "{process:?} {named} {may_ask_back}");
    }
}

#[test]
fn where_doubt_is_believed_any_identity_is_offered_and_a_refused_connection_says_so() {
    let believing = Rules { doubt: Doubt::Believe, ..ENFORCE };
    let refused = Facts { refused_since: true, ..Facts::default() };
    for (facts, rules, letters) in
        [(Facts::default(), believing, "rsibk"), (refused.clone(), believing, "rsibBk"), (refused, ENFORCE, "rsk")]
    {
        let who = Who { process: Process::None, ..who() };
        let words = planned_by(&who, release(), needing(Proofs::ALL), &facts, rules);
        assert_eq!(words[5], letters.as_bytes());
    }
}

#[test]
fn other_settings_or_another_name_are_other_rules() {
    let tag = |name, settings: &[(&'static str, &'static str)]| RulesTag::of(name, settings.iter().copied());
    let usual = tag("orders", &[("doubt", "believe"), ("take_over", "never")]);
    assert_eq!(usual, tag("orders", &[("take_over", "never"), ("doubt", "believe")]));
    for other in [
        tag("order", &[("doubt", "believe"), ("take_over", "never")]),
        tag("orders", &[("doubt", "believe")]),
        tag("orders", &[("doubt", "believet"), ("ake_over", "never")]),
        tag("orders", &[]),
    ] {
        assert_ne!(usual, other);
    }
    assert!(usual.0.iter().all(u8::is_ascii_hexdigit));
}

#[test]
fn a_comparison_proves_only_where_it_names_the_value() {
    let with = |test: Test| {
        let LockOp::Release { target, spelling, .. } = release() else {
            panic!("a release");
        };
        let op = LockOp::Release {
            target,
            spelling,
            comparison: Some(Box::new(Comparison {
                claim: OwnerToken::copy_of(b"8c1f0a2e9b7d4f6a"),
                test,
                by: ComparedBy::Command,
                replies: Replies {
                    done: Reply::CommandResult,
                    different: Reply::Integer(0),
                    absent: Reply::Integer(0),
                    no_ttl: None,
                    other_type: None,
                },
                then: smallvec![Bytes::from_static(b"DEL"), Bytes::from_static(b"lock:a")],
            })),
        };
        let words = planned(op, needing(Proofs::ALL), &Facts::default(), ENFORCE);
        let text = |at: usize| String::from_utf8(words[at].clone()).expect("letters");
        (text(5), text(7))
    };
    let claim = "8c1f0a2e9b7d4f6a".to_owned();
    assert_eq!(with(Test::Equal), ("rsct".to_owned(), claim.clone()));
    assert_eq!(with(Test::Differs), ("rscuk".to_owned(), claim));
    assert_eq!(with(Test::Failed), ("rscz".to_owned(), String::new()));
}
