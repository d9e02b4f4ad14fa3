//! The built-in policies in the real host: the default chain's answers, chains that contradict
//! themselves, and generations that replace each other.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use std::collections::BTreeSet;
use std::sync::Arc;

use lockwarden_lock::decision::{
    Decide, Decision, FaultKind, Fence, Operation, Proofs, Question, TakeOverRule, Traits, Verdict,
};
use lockwarden_lock::namespace::NamespaceId;
use lockwarden_lock::reason::Reason;
use lockwarden_lock::time::AskedMs;
use lockwarden_policy::{
    BUILT_IN_NAMES, ChainSpec, Chains, DEFAULT_CHAIN, Generation, Limits, LoadError, ModuleSource, PolicyHost,
    PolicySource, builtin,
};

type Settings<'a> = &'a [(&'a str, &'a str)];

fn chain(namespace: &str, policies: &[(&str, Settings<'_>)]) -> ChainSpec {
    ChainSpec {
        namespace: namespace.to_owned(),
        policies: policies
            .iter()
            .map(|(policy, settings)| {
                let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
                ((*policy).to_owned(), settings.iter().map(owned).collect())
            })
            .collect(),
    }
}

fn default_chain(namespace: &str) -> ChainSpec {
    chain(namespace, &DEFAULT_CHAIN.map(|name| (name, &[][..])))
}

fn question(operation: Operation) -> Question<'static> {
    Question { client: 1, ..Question::plain(operation, b"lock:order:42") }
}

fn follow(generation: Generation) -> Chains {
    let mut chains = Chains::new();
    chains.follow(&Arc::new(generation));
    chains
}

fn ask(chains: &mut Chains, namespace: u16, question: &Question<'_>) -> Decision {
    chains.decide(NamespaceId(namespace), question, &|_| None)
}

fn denied(decision: &Decision) -> (Reason, &str) {
    match &decision.verdict {
        Verdict::Deny(denial) => (denial.reason, &denial.policy),
        Verdict::Permit => panic!("permitted: {decision:?}"),
    }
}

fn load_errors(chains: &[ChainSpec]) -> Vec<String> {
    let errors = PolicyHost::new().unwrap().load(&[], chains).unwrap_err();
    errors.iter().map(LoadError::to_string).collect()
}

#[test]
fn the_default_chain_answers_every_operation() {
    let host = PolicyHost::new().unwrap();
    let mut chains = follow(host.load(&[], &[default_chain("orders")]).unwrap());

    let acquire = ask(&mut chains, 0, &question(Operation::Acquire));
    assert_eq!(acquire.verdict, Verdict::Permit);
    assert_eq!(acquire.obligations.ttl_default_ms, Some(30_000));
    assert_eq!(acquire.obligations.ttl_cap_ms, Some(3_600_000));
    assert_eq!(acquire.obligations.keep_alive_ms, Some(86_400_000));
    assert_eq!(acquire.obligations.fence, Fence::Hybrid);
    assert_eq!(acquire.obligations.require, None);

    let release = ask(&mut chains, 0, &question(Operation::Release));
    assert_eq!(release.obligations.require, Some(Proofs::ALL));
    assert_eq!(release.obligations.take_over, Some(TakeOverRule::AfterDeadline));
    assert_eq!(release.obligations.ttl_cap_ms, None);
    assert_eq!(release.obligations.fence, Fence::None);

    let take_over = ask(&mut chains, 0, &question(Operation::TakeOver));
    assert_eq!(take_over.obligations.take_over, Some(TakeOverRule::AfterDeadline));
    assert_eq!(take_over.obligations.fence, Fence::Hybrid);

    let persist = ask(&mut chains, 0, &question(Operation::Extend));
    assert_eq!(denied(&persist), (Reason::NoTtl, "ttl-ceiling"));
    let write = ask(&mut chains, 0, &question(Operation::Write));
    assert_eq!(denied(&write), (Reason::OpaqueWrite, "owner-token"));
    for operation in [Operation::Inspect, Operation::GuardedWrite] {
        assert_eq!(ask(&mut chains, 0, &question(operation)), Decision::permit());
    }
}

/// What is kept is what would be said, whatever else a question has in it.
#[test]
fn an_answer_that_is_kept_is_the_one_that_asking_gets() {
    let host = PolicyHost::new().unwrap();
    let settings: [(&str, Settings<'_>); 3] = [
        ("owner-token", &[("shared_tokens", "deny"), ("void_after_refusal", "identity")]),
        ("fencing", &[]),
        ("ttl-ceiling", &[("ceiling", "10s"), ("on_excess", "deny")]),
    ];
    let generation = Arc::new(host.load(&[], &[default_chain("orders"), chain("strict", &settings)]).unwrap());
    let (mut keeping, mut asking) = (Chains::new(), Chains::that_ask_always());
    keeping.follow(&generation);
    asking.follow(&generation);
    let mut questions = Vec::new();
    for operation in Operation::ALL {
        for ttl_ms in [None, Some(AskedMs(5_000)), Some(AskedMs(20_000))] {
            for owner_token in [None, Some(&b"1"[..]), Some(&b"0123456789abcdef"[..])] {
                for traits in [Traits::NONE, Traits::SHARED_TOKEN, Traits::REFUSED_SINCE, Traits::SCRIPTED] {
                    questions.push(Question { ttl_ms, owner_token, traits, ..question(operation) });
                }
            }
        }
    }
    for key in [&b"lock:a"[..], b"lock:b"] {
        for question in &questions {
            let question = Question { key, attempts: key.len() as u32, ..question.clone() };
            for namespace in [0, 1] {
                let said = [&mut keeping, &mut asking].map(|chains| ask(chains, namespace, &question));
                assert_eq!(said[0], said[1], "{question:?}");
            }
        }
    }
    // It counts as what it was when it was asked for.
    let of = |chains: &mut Chains| {
        let read = || host.counters().into_iter().map(|(_, read)| (read.calls, read.fuel)).collect::<Vec<_>>();
        let before = read();
        ask(chains, 0, &questions[0]);
        before.into_iter().zip(read()).map(|(before, now)| (now.0 - before.0, now.1 - before.1)).collect::<Vec<_>>()
    };
    ask(&mut keeping, 0, &questions[0]);
    let (kept, asked) = (of(&mut keeping), of(&mut asking));
    assert_eq!(kept, asked);
    assert!(kept.iter().any(|(calls, fuel)| *calls == 1 && *fuel > 0), "{kept:?}");
}

#[test]
fn traits_reach_the_policies() {
    let host = PolicyHost::new().unwrap();
    let void: Settings<'_> = &[("void_after_refusal", "identity")];
    let specs = [default_chain("orders"), chain("jobs", &[("owner-token", void)])];
    let mut chains = follow(host.load(&[], &specs).unwrap());
    let refused = Question { traits: Traits::REFUSED_SINCE, ..question(Operation::Release) };
    let mut required = |namespace| ask(&mut chains, namespace, &refused).obligations.require;
    assert_eq!(required(0), Some(Proofs::ALL));
    assert_eq!(required(1), Some(Proofs::ALL.without(Proofs::IDENTITY)));
}

#[test]
fn after_a_no_nobody_else_is_asked() {
    let host = PolicyHost::new().unwrap();
    let mut chains = follow(host.load(&[], &[default_chain("orders")]).unwrap());
    ask(&mut chains, 0, &question(Operation::Write));
    let calls: Vec<(String, u64)> =
        host.counters().into_iter().map(|(policy, counters)| (policy.to_string(), counters.calls)).collect();
    let want = [("fencing", 0), ("owner-token", 1), ("ttl-ceiling", 0)];
    assert_eq!(calls, want.map(|(policy, calls)| (policy.to_owned(), calls)));
    let fuel = host.counters()[1].1.fuel;
    assert!((1..10_000).contains(&fuel), "one small decision burnt {fuel}");
}

#[test]
fn only_those_are_asked_who_judge_the_operation() {
    let host = PolicyHost::new().unwrap();
    let mut chains = follow(host.load(&[], &[default_chain("orders")]).unwrap());
    for operation in
        [Operation::Inspect, Operation::Release, Operation::Release, Operation::Acquire, Operation::TakeOver]
    {
        ask(&mut chains, 0, &question(operation));
    }
    let calls = host.counters();
    let calls: Vec<(&str, u64)> = calls.iter().map(|(name, c)| (&**name, c.calls)).collect();
    let want = [("fencing", 2), ("owner-token", 3), ("ttl-ceiling", 2)];
    assert_eq!(calls, want);
}

#[test]
fn each_namespace_has_settings_of_its_own() {
    let host = PolicyHost::new().unwrap();
    let strict: Settings<'_> = &[("ceiling", "10s"), ("on_excess", "deny")];
    let specs =
        [chain("orders", &[("ttl-ceiling", &[])]), chain("stock", &[("ttl-ceiling", strict)]), chain("free", &[])];
    let mut chains = follow(host.load(&[], &specs).unwrap());
    let long = Question { ttl_ms: Some(AskedMs(20_000)), ..question(Operation::Acquire) };
    assert_eq!(ask(&mut chains, 0, &long).verdict, Verdict::Permit);
    assert_eq!(denied(&ask(&mut chains, 1, &long)), (Reason::TtlTooLong, "ttl-ceiling"));
    assert_eq!(ask(&mut chains, 2, &long), Decision::permit());
}

#[test]
fn a_namespace_without_a_chain_is_a_fault_and_not_a_yes() {
    let mut chains = Chains::new();
    let unloaded = ask(&mut chains, 0, &question(Operation::Acquire));
    assert_eq!(unloaded.fault.unwrap().kind, FaultKind::Trap);
    let host = PolicyHost::new().unwrap();
    let mut chains = follow(host.load(&[], &[default_chain("orders")]).unwrap());
    assert!(ask(&mut chains, 1, &question(Operation::Acquire)).fault.is_some());
}

#[test]
fn a_new_generation_replaces_the_old_one_as_a_whole() {
    let host = PolicyHost::new().unwrap();
    let first = Arc::new(host.load(&[], &[default_chain("orders")]).unwrap());
    let counter: Settings<'_> = &[("counter", "sequential")];
    let second = Arc::new(host.load(&[], &[chain("orders", &[("fencing", counter)])]).unwrap());
    assert!(first.id() < second.id());

    let mut chains = Chains::new();
    chains.follow(&first);
    let before = ask(&mut chains, 0, &question(Operation::Acquire));
    assert_eq!(before.obligations.fence, Fence::Hybrid);
    chains.follow(&second);
    let after = ask(&mut chains, 0, &question(Operation::Acquire));
    assert_eq!(after.obligations.fence, Fence::Sequential);
    assert_eq!(after.obligations.ttl_default_ms, None);
    chains.follow(&first);
    assert_eq!(ask(&mut chains, 0, &question(Operation::Acquire)), before);

    // Counters belong to the policy, whatever generation asked it.
    let fencing = &host.counters()[0];
    assert_eq!((&*fencing.0, fencing.1.calls), ("fencing", 3));
    assert_eq!(first.counters(), second.counters());
}

#[test]
fn following_the_same_generation_keeps_the_instances() {
    let host = PolicyHost::new().unwrap();
    let generation = Arc::new(host.load(&[], &[default_chain("orders")]).unwrap());
    let mut chains = Chains::new();
    chains.follow(&generation);
    assert!(format!("{chains:?}").contains("instances: 0"), "instances are made lazily");
    ask(&mut chains, 0, &question(Operation::TakeOver));
    chains.follow(&generation);
    assert!(format!("{chains:?}").contains("instances: 3"));
}

#[test]
fn chains_that_contradict_themselves_are_refused() {
    let fencing = builtin("fencing").unwrap();
    let owner_token = builtin("owner-token").unwrap();
    let renamed = |name: &str, policy| PolicySource {
        name: name.to_owned(),
        module: ModuleSource::BuiltIn(policy),
        ..PolicySource::built_in(policy)
    };
    let sources = [renamed("other-fencing", fencing), renamed("other-owner", owner_token)];
    let sequential: Settings<'_> = &[("counter", "sequential")];
    let token: Settings<'_> = &[("proofs", "token")];
    let session: Settings<'_> = &[("proofs", "session")];
    let specs = [
        chain("orders", &[("fencing", &[]), ("other-fencing", sequential)]),
        chain("stock", &[("owner-token", token), ("other-owner", session)]),
        chain("fine", &[("owner-token", token), ("other-owner", &[])]),
    ];
    let errors = PolicyHost::new().unwrap().load(&sources, &specs).unwrap_err();
    let lines: Vec<String> = errors.iter().map(LoadError::to_string).collect();
    assert_eq!(lines.len(), 2, "{lines:#?}");
    assert!(
        lines[0].starts_with("namespace orders: policies fencing and other-fencing contradict each other on acquire"),
        "{}",
        lines[0]
    );
    assert!(
        lines[1].starts_with("namespace stock: policies owner-token and other-owner contradict each other on extend"),
        "{}",
        lines[1]
    );
}

#[test]
fn everything_wrong_is_reported_at_once() {
    let bad_ttl: Settings<'_> = &[("default", "2m"), ("ceiling", "1m")];
    let bad_proof: Settings<'_> = &[("proofs", "luck")];
    let lines = load_errors(&[
        chain("orders", &[("ttl-ceiling", bad_ttl), ("fencing", &[]), ("fencing", &[])]),
        chain("stock", &[("owner-token", bad_proof), ("typo", &[])]),
    ]);
    assert_eq!(
        lines,
        [
            "namespace orders: policy fencing stands twice in its chain",
            "namespace orders: policy ttl-ceiling rejected its settings: \
             default (2m) must be above zero and at most ceiling (1m)",
            "namespace stock: there is no policy typo; there are owner-token, fencing, ttl-ceiling, rules",
            "namespace stock: policy owner-token rejected its settings: \
             proofs = \"luck\": must be one of \"token\", \"session\", \"observed\", \"identity\"",
        ]
    );
}

/// A guest that kept what it was handed would hold more memory with each question.
#[test]
fn memory_that_was_given_out_for_a_question_or_an_answer_is_given_back() {
    let host = PolicyHost::new().unwrap();
    let generation = host.load(&[], &[default_chain("orders")]).unwrap();
    let mut chains = follow(generation);
    let key = [b'k'; 60_000];
    let mut ask_about_everything = || {
        for operation in Operation::ALL {
            for (ttl_ms, owner_token) in [(None, None), (Some(AskedMs(u64::MAX)), Some(&key[1..]))] {
                let question = Question { key: &key, owner_token, ttl_ms, ..question(operation) };
                ask(&mut chains, 0, &question);
            }
        }
        let held = host.counters().into_iter();
        held.map(|(_, counters)| counters.memory_bytes).sum::<usize>()
    };
    let first = ask_about_everything();
    for _ in 0..100 {
        assert_eq!(ask_about_everything(), first);
    }
}

#[test]
fn the_limits_hold_for_the_built_in_policies() {
    let starved = Limits { fuel: 20, ..Limits::default() };
    let cramped = Limits { memory_bytes: 64 << 10, ..Limits::default() };
    for (limits, kind) in [(starved, FaultKind::Fuel), (cramped, FaultKind::Memory)] {
        for name in BUILT_IN_NAMES {
            let source = PolicySource { limits, ..PolicySource::built_in(builtin(name).unwrap()) };
            let specs = [chain("orders", &[(name, &[])])];
            let errors = PolicyHost::new().unwrap().load(&[source], &specs);
            let errors = errors.unwrap_err();
            assert!(
                matches!(&errors[..], [LoadError::Faulty { kind: found, .. }] if *found == kind),
                "{name}: {errors:?}"
            );
        }
    }
}

#[test]
fn a_name_stands_for_one_module() {
    let policy = PolicySource::built_in(builtin("fencing").unwrap());
    let sources = [policy.clone(), policy];
    let errors = PolicyHost::new().unwrap().load(&sources, &[]).unwrap_err();
    assert!(matches!(&errors[..], [LoadError::DefinedTwice { policy }] if policy == "fencing"));
}

#[test]
fn limits_are_checked_and_room_is_counted() {
    let mut policy = PolicySource::built_in(builtin("fencing").unwrap());
    policy.limits.memory_bytes = 65 << 20;
    let host = PolicyHost::new().unwrap();
    let errors = host.load(std::slice::from_ref(&policy), &[]).unwrap_err();
    assert!(errors[0].to_string().contains("at most 64 MiB"));
    policy.limits.memory_bytes = 8 << 20;
    policy.limits.fuel = 0;
    let errors = host.load(&[policy], &[]).unwrap_err();
    assert!(errors[0].to_string().contains("above zero"));

    if !host.is_pooled() {
        return;
    }
    let threads = std::thread::available_parallelism().unwrap().get();
    let too_many = 4_096 / (threads * 2) + 1;
    let specs: Vec<ChainSpec> = (0..too_many).map(|n| chain(&n.to_string(), &[("fencing", &[])])).collect();
    let errors = host.load(&[], &specs).unwrap_err();
    assert!(matches!(&errors[..], [LoadError::TooMany { room: 4_096, .. }]), "{errors:?}");
}

#[test]
fn built_in_policies_are_described() {
    let host = PolicyHost::new().unwrap();
    let generation = host.load(&[], &[default_chain("orders")]).unwrap();
    let names: Vec<&str> = generation.policies().iter().map(|policy| &*policy.name).collect();
    assert_eq!(names, DEFAULT_CHAIN);
    let digests: BTreeSet<&str> = generation.policies().iter().map(|policy| policy.digest()).collect();
    assert_eq!(digests.len(), 3);
    for policy in generation.policies() {
        assert_eq!(policy.version.as_deref(), Some(env!("CARGO_PKG_VERSION")));
        assert!(!policy.asks_clients, "{} imports what it does not call", policy.name);
    }
    let chain: Vec<&str> = generation.chain(NamespaceId(0)).map(|name| &**name).collect();
    assert_eq!(chain, DEFAULT_CHAIN);
    assert!(builtin("nothing").is_none());
}

#[test]
fn two_threads_answer_independently() {
    let host = PolicyHost::new().unwrap();
    let generation = Arc::new(host.load(&[], &[default_chain("orders")]).unwrap());
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let generation = generation.clone();
            std::thread::spawn(move || {
                let mut chains = Chains::new();
                chains.follow(&generation);
                for _ in 0..200 {
                    let decision = ask(&mut chains, 0, &question(Operation::TakeOver));
                    assert_eq!((decision.verdict, decision.fault), (Verdict::Permit, None));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(host.counters().iter().all(|(_, counters)| counters.calls == 400));
}
