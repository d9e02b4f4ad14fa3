//! The built-in policy `rules` in the host: what names a rule, what a rule may cost, whom it asks.

use std::sync::Arc;

use lockwarden_lock::decision::{ClientDescription, Decide, Decision, Operation, Question, Verdict};
use lockwarden_lock::namespace::NamespaceId;
use lockwarden_lock::reason::Reason;
use lockwarden_lock::time::AskedMs;
use lockwarden_policy::{ChainSpec, Chains, Generation, Limits, LoadError, PolicyHost};

fn load(host: &PolicyHost, settings: &[(String, String)]) -> Result<Generation, Vec<LoadError>> {
    let chain = ChainSpec { namespace: "orders".to_owned(), policies: vec![("rules".to_owned(), settings.to_vec())] };
    host.load(&[], &[chain])
}

fn chains(host: &PolicyHost, settings: &[(&str, &str)]) -> Chains {
    let settings: Vec<_> = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let mut chains = Chains::new();
    chains.follow(&Arc::new(load(host, &settings).expect("the rules are right")));
    chains
}

fn acquire(key: &[u8]) -> Question<'_> {
    Question {
        owner_token: Some(b"6f9619ff-8b86-d011-b42d-00c04fc964ff"),
        ttl_ms: Some(AskedMs(1_000)),
        client: 1,
        ..Question::plain(Operation::Acquire, key)
    }
}

fn ask(chains: &mut Chains, question: &Question<'_>) -> Decision {
    chains.decide(NamespaceId(0), question, &|_| None)
}

#[test]
fn a_refusal_names_its_rule_beside_its_policy() {
    let host = PolicyHost::new().expect("this machine runs it");
    let mut chains = chains(
        &host,
        &[
            ("rule.names.deny", "!key.like('lock:billing:*')"),
            ("rule.names.hint", "say \"please\""),
            ("rule.sure.deny", "key.endsWith(':never')"),
            ("rule.sure.code", "other"),
            ("rule.short.ttl_cap", "5s"),
        ],
    );
    let mut said = |key: &[u8]| match ask(&mut chains, &acquire(key)).verdict {
        Verdict::Deny(denial) => {
            (denial.reason, denial.policy.to_string(), denial.rule.map(|rule| rule.to_string()), denial.detail)
        }
        Verdict::Permit => panic!("permitted"),
    };
    let rules = || "rules".to_owned();
    let names = (Reason::Limited, rules(), Some("names".to_owned()), Some("say \"please\"".to_owned()));
    assert_eq!(said(b"lock:sales:7"), names);
    assert_eq!(said(b"lock:billing:never"), (Reason::Other, rules(), Some("sure".to_owned()), None));
    let permitted = ask(&mut chains, &acquire(b"lock:billing:7"));
    assert_eq!((permitted.verdict, permitted.obligations.ttl_cap_ms), (Verdict::Permit, Some(5_000)));
}

#[test]
fn a_rule_asks_who_the_client_is_only_where_it_says_so() {
    let host = PolicyHost::new().expect("this machine runs it");
    let known = ClientDescription {
        name: "worker-1".to_owned(),
        user: "billing".to_owned(),
        address: "10.0.0.7".to_owned(),
        certificate: Some("shop.corp".to_owned()),
        application: "shop".to_owned(),
    };
    let asked = std::cell::Cell::new(0);
    let describe = |_| {
        asked.set(asked.get() + 1);
        Some(known.clone())
    };
    let mut silent = chains(&host, &[("rule.a.deny", "key == 'lock:other'")]);
    assert_eq!(silent.decide(NamespaceId(0), &acquire(b"lock:x"), &describe).verdict, Verdict::Permit);
    assert_eq!(asked.get(), 0);
    let mut curious = chains(
        &host,
        &[
            ("rule.a.deny", "client.certificate != 'shop.corp' || client.application != 'shop'"),
            (
                "rule.b.deny",
                "client.name == 'worker-1' && client.user == 'billing' && client.address.startsWith('10.')",
            ),
        ],
    );
    let decision = curious.decide(NamespaceId(0), &acquire(b"lock:x"), &describe);
    assert!(matches!(&decision.verdict, Verdict::Deny(denial) if denial.rule.as_deref() == Some("b")), "{decision:?}");
    assert_eq!(asked.get(), 1);
}

/// As many rules of this condition as their bound lets through, and what the costliest question burns.
fn burnt(condition: &str, key: &[u8], token: &[u8], name: &str) -> (u64, usize) {
    let host = PolicyHost::new().expect("this machine runs it");
    let mut settings: Vec<(String, String)> = Vec::new();
    let mut before = None;
    // One rule has at most 1,024 bytes, all have at most 4,096 of literals and so many steps.
    let mut width = 1_024 / (condition.len() + 4);
    while width > 0 && settings.len() < 64 {
        let deny = vec![format!("({condition})"); width].join("||");
        settings.push((format!("rule.r{}.deny", settings.len()), deny));
        match load(&host, &settings) {
            Ok(generation) => before = Some(generation),
            Err(errors) => {
                let words = errors.iter().map(LoadError::to_string).collect::<String>();
                assert!(words.contains("too many rules, or too long ones"), "{words}");
                settings.pop();
                width /= 2;
            }
        }
    }
    let generation = before.expect("one rule fits");
    let mut chains = Chains::new();
    chains.follow(&Arc::new(generation));
    let known = ClientDescription { name: name.to_owned(), ..ClientDescription::default() };
    let question = Question { owner_token: Some(token), ..acquire(key) };
    let fuel = || host.counters().iter().map(|(_, counters)| counters.fuel).sum::<u64>();
    let mut most = 0;
    for _ in 0..3 {
        let burnt_before = fuel();
        let decision = chains.decide(NamespaceId(0), &question, &|_| Some(known.clone()));
        assert_eq!((decision.verdict, decision.fault), (Verdict::Permit, None), "{condition}");
        most = most.max(fuel() - burnt_before);
    }
    (most, settings.len())
}

#[test]
fn rules_within_their_bound_never_use_up_the_fuel() {
    let key = vec![b'a'; 1_024];
    let token = vec![b'a'; 16_384];
    let name = "a".repeat(1_024);
    let hex = vec![b'a'; 255];
    for (condition, token) in [
        ("key.contains('aaaaaaab')", &token),
        ("key.like('*aaaaaaab*')", &token),
        ("key.like('*a*a*a*a*a*a*b*')", &token),
        ("client.name.contains('aab')", &token),
        ("client.name != key", &token),
        ("key in ['b','c','d','e','f']", &token),
        ("token.class in ['none']", &hex),
        ("hour+minute*weekday-1 > 9999", &token),
        ("db in [1,2,3,4,5,6,7,8,9]", &token),
        ("!has_ttl", &token),
        ("ttl>5s", &token),
        ("key.endsWith('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaab')", &token),
    ] {
        let (most, rules) = burnt(condition, &key, token, &name);
        println!("{condition}: {most} fuel, {rules} rules");
        assert!(most * 10 < Limits::default().fuel * 9, "{condition}: {most} fuel by {rules} rules");
    }
}
