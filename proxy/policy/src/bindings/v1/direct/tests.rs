use lockwarden_lock::decision::{Decide, Decision, FaultKind, Operation};
use lockwarden_lock::namespace::NamespaceId;

use super::*;
use crate::{
    BUILT_IN_NAMES, ChainSpec, Chains, Limits, LoadError, ModuleSource, PolicyHost, PolicySource,
    builtin,
};

type Settings = &'static [(&'static str, &'static str)];

/// What each built-in policy is configured with here: its defaults, then every other choice, then
/// what it rejects.
const CASES: [(&str, &[Settings]); 3] = [
    (
        "owner-token",
        &[
            &[],
            &[
                ("proofs", "token"),
                ("take_over", "never"),
                ("shared_tokens", "deny"),
            ],
            &[("void_after_refusal", "session,identity")],
            &[("proofs", ""), ("prooves", "token")],
        ],
    ),
    (
        "fencing",
        &[&[], &[("counter", "sequential")], &[("counter", "\u{7f}é")]],
    ),
    (
        "ttl-ceiling",
        &[
            &[],
            &[
                ("ceiling", "20s"),
                ("on_excess", "deny"),
                ("keep_alive", "off"),
                ("max_hold", "1h"),
            ],
            &[("default", "2d"), ("ceiling", "soon")],
        ],
    ),
];

/// The chain of one policy, loaded by its core exports or, from the same bytes, as a component.
fn load(policy: &str, settings: Settings, directly: bool) -> Result<Chains, Vec<String>> {
    let built_in = builtin(policy).unwrap();
    let mut source = PolicySource::built_in(built_in);
    if !directly {
        source.module = ModuleSource::Bytes(built_in.module.to_vec());
    }
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let spec = ChainSpec {
        namespace: "orders".to_owned(),
        policies: vec![(policy.to_owned(), settings.iter().map(owned).collect())],
    };
    let host = PolicyHost::new().unwrap();
    let loaded = host.load(&[source], &[spec]);
    let generation =
        loaded.map_err(|errors| errors.iter().map(LoadError::to_string).collect::<Vec<_>>())?;
    let mut chains = Chains::new();
    chains.follow(&generation.into());
    Ok(chains)
}

/// Questions that differ in everything that a policy may look at.
fn questions(of: &mut dyn FnMut(&Question<'_>)) {
    let long = [0xff; 5_000];
    for operation in Operation::ALL {
        for owner_token in [None, Some(&b""[..]), Some(b"\0worker 7\r\n"), Some(&long)] {
            for ttl_ms in [None, Some(0), Some(20_000), Some(20_001), Some(u64::MAX)] {
                for (proofs, traits) in [
                    (Proofs::NONE, Traits::NONE),
                    (Proofs::SESSION, Traits::REFUSED_SINCE),
                    (Proofs::ALL, Traits::SHARED_TOKEN.union(Traits::SCRIPTED)),
                ] {
                    of(&Question {
                        operation,
                        db: u32::MAX,
                        key: if ttl_ms.is_some() { b"lock:a" } else { b"" },
                        owner_token,
                        ttl_ms,
                        proofs,
                        traits,
                        fencing_token: u64::MAX - 1,
                        remaining_ms: 1 << 40,
                        attempts: u32::MAX,
                        client: 7,
                        now_ms: 1_767_225_600_000,
                    });
                }
            }
        }
    }
}

#[test]
fn every_answer_is_the_one_that_the_component_gives() {
    let (mut permits, mut denials, mut rejected) = (0, 0, 0);
    for (policy, cases) in CASES {
        for settings in cases {
            let (mut direct, mut component) =
                match (load(policy, settings, true), load(policy, settings, false)) {
                    (Ok(direct), Ok(component)) => (direct, component),
                    (Err(direct), Err(component)) => {
                        assert_eq!(direct, component);
                        rejected += 1;
                        continue;
                    }
                    (direct, component) => panic!("{policy}: {direct:?}, {component:?}"),
                };
            questions(&mut |question| {
                let ask = |chains: &mut Chains| -> Decision {
                    chains.decide(NamespaceId(0), question, &|_| None)
                };
                let answer = ask(&mut direct);
                assert_eq!(answer, ask(&mut component), "{policy}, {question:?}");
                assert_eq!(answer.fault, None);
                match answer.verdict {
                    lockwarden_lock::decision::Verdict::Permit => permits += 1,
                    lockwarden_lock::decision::Verdict::Deny(_) => denials += 1,
                }
            });
        }
    }
    assert!(permits > 1_000 && denials > 100, "{permits}, {denials}");
    assert_eq!(rejected, 3);
}

#[test]
fn memory_that_was_given_out_for_a_question_or_an_answer_is_given_back() {
    let host = PolicyHost::new().unwrap();
    let spec = ChainSpec {
        namespace: "orders".to_owned(),
        policies: vec![("ttl-ceiling".to_owned(), Vec::new())],
    };
    let mut chains = Chains::new();
    chains.follow(&host.load(&[], &[spec]).unwrap().into());
    let key = [b'k'; 60_000];
    let mut ask = || {
        questions(&mut |question| {
            let question = Question {
                key: &key,
                ..question.clone()
            };
            chains.decide(NamespaceId(0), &question, &|_| None);
        });
        host.counters()[0].1.memory_bytes
    };
    let first = ask();
    for _ in 0..10 {
        assert_eq!(ask(), first);
    }
}

#[test]
fn the_limits_hold_for_policies_that_are_called_directly() {
    for (limits, kind) in [
        (
            Limits {
                fuel: 20,
                ..Limits::default()
            },
            FaultKind::Fuel,
        ),
        (
            Limits {
                memory_bytes: 64 << 10,
                ..Limits::default()
            },
            FaultKind::Memory,
        ),
    ] {
        for name in BUILT_IN_NAMES {
            let source = PolicySource {
                limits,
                ..PolicySource::built_in(builtin(name).unwrap())
            };
            let spec = ChainSpec {
                namespace: "orders".to_owned(),
                policies: vec![(name.to_owned(), Vec::new())],
            };
            let errors = PolicyHost::new().unwrap().load(&[source], &[spec]);
            let errors = errors.unwrap_err();
            assert!(
                matches!(&errors[..], [LoadError::Faulty { kind: found, .. }] if *found == kind),
                "{name}: {errors:?}"
            );
        }
    }
}

/// A permit that asks for nothing, at address 8.
fn plain_permit() -> Vec<u8> {
    vec![0; 96]
}

/// A denial with this detail behind it.
fn denial(code: u8, address: u32, length: u32) -> Vec<u8> {
    let mut memory = vec![0; 88];
    memory[8] = 1;
    memory[16] = code;
    memory[20] = 1;
    memory[24..28].copy_from_slice(&address.to_le_bytes());
    memory[28..32].copy_from_slice(&length.to_le_bytes());
    memory.extend_from_slice("é\n".as_bytes());
    memory
}

fn read(memory: &[u8], address: u32) -> Result<Answer> {
    Returned::at(memory, address, 8, 80)?.decision(100)
}

#[test]
fn an_answer_that_breaks_the_contract_is_an_error() {
    assert!(read(&plain_permit(), 8).is_ok());
    assert!(read(&denial(12, 88, 3), 8).is_ok());

    let changed = |place: usize, value: u8| {
        let mut memory = plain_permit();
        memory[8 + place] = value;
        memory
    };
    for (memory, address, problem) in [
        (plain_permit(), 4, "not aligned"),
        (plain_permit(), 24, "outside"),
        (plain_permit(), u32::MAX - 7, "outside"),
        (changed(0, 2), 8, "no case 2"),
        (changed(8, 2), 8, "no 2"),
        (changed(72, 255), 8, "no 255"),
        (changed(74, 3), 8, "of 3 cases"),
        (changed(76, 9), 8, "no 9"),
        (denial(13, 88, 3), 8, "of 13 cases"),
        (denial(0, 89, 3), 8, "outside"),
        (denial(0, u32::MAX, 3), 8, "outside"),
        (denial(0, 88, 101), 8, "a text of 101 bytes"),
        (denial(0, 88, 1), 8, "utf-8"),
    ] {
        let Err(error) = read(&memory, address) else {
            panic!("{problem}: it was accepted");
        };
        assert!(error.to_string().contains(problem), "{problem}: {error}");
    }
    // Bits of no meaning are passed over.
    let Ok(Answer::Permit(wants)) = read(&changed(72, 1), 8) else {
        panic!("an empty set is a set");
    };
    assert_eq!(wants.require, Some(Proofs::NONE));
}

#[test]
fn whatever_lies_there_is_read_without_a_panic() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut memory = vec![0; 256];
    for round in 0..20_000_u32 {
        for byte in &mut memory {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // Small numbers mostly, so that it gets beyond the first tag.
            *byte = (state >> 32) as u8 & if state & 7 == 0 { 0xff } else { 1 };
        }
        let _ = read(&memory, round * 4 % 300);
        if let Ok(returned) = Returned::at(&memory, round % 300, 4, 12) {
            let _ = returned.judged(100);
        }
    }
}
