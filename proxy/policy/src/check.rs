//! Tests a chain before it is used: each policy is instantiated and configured, asked sample requests about every
//! operation that it judges, and the answers are compared pairwise. Nothing of this appears in metrics as a client's.

use lockwarden_lock::classify::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use lockwarden_lock::decision::{ClientDescription, FaultKind, Obligations, Operation, Proofs, Question};
use lockwarden_lock::time::AskedMs;

use crate::bindings::v1;
use crate::error::LoadError;
use crate::generation::Chain;
use crate::instance::{Asked, Budget, Failure, Instance, Member, NotStarted};

/// Finds everything that is wrong with a chain, and records which operations its policies judge.
pub(crate) fn check(chain: &mut Chain, errors: &mut Vec<LoadError>) {
    let mut asked = Vec::with_capacity(chain.members.len());
    let keys = keys(chain);
    let samples = samples(&keys);
    for member in &mut chain.members {
        let objections = objections(&chain.namespace, member);
        if !objections.is_empty() {
            errors.extend(objections);
            continue;
        }
        match answers(&chain.namespace, member, &samples) {
            Ok(Tried { judged, most_fuel, answers }) => {
                (member.judged, member.most_fuel) = (judged, most_fuel);
                asked.push((&*member, answers));
            }
            Err(error) => errors.push(*error),
        }
    }
    for (place, (member, answers)) in asked.iter().enumerate() {
        let empty = answers.iter().find(|(_, wants)| wants.require.is_some_and(|proofs| proofs.is_empty()));
        if let Some((operation, _)) = empty {
            errors.push(LoadError::NoProofCounts {
                namespace: chain.namespace.clone(),
                policy: member.meter.policy().to_string(),
                operation: *operation,
            });
            continue;
        }
        for (other, others) in &asked[place + 1..] {
            let contradiction =
                answers.iter().zip(others).find_map(|((operation, a), (_, b))| Some((*operation, a.contradiction(b)?)));
            if let Some((operation, what)) = contradiction {
                errors.push(LoadError::Contradiction {
                    namespace: chain.namespace.clone(),
                    first: member.meter.policy().to_string(),
                    second: other.meter.policy().to_string(),
                    operation,
                    what,
                });
            }
        }
    }
}

/// How often a policy may be asked about the longest key until it answers in time.
const STRICT_TRIES: u32 = 3;

/// A policy's obligations, sample by sample; a denial has none, nor has a policy that is not asked.
type Answers = Vec<(Operation, Obligations)>;

/// The result of testing a policy.
struct Tried {
    judged: v1::Operations,
    most_fuel: u64,
    answers: Answers,
}

fn answers(namespace: &str, member: &Member, samples: &[Question<'_>]) -> Result<Tried, Box<LoadError>> {
    let mut instance = configured(namespace, member)?;
    let judged = instance.judged();
    let (mut answers, mut most_fuel) = (Vec::new(), 0);
    let mut request = v1::empty_request();
    for question in samples {
        if !judged.contains(v1::as_set(question.operation)) {
            answers.push((question.operation, Obligations::default()));
            continue;
        }
        let is_longest = question.key.len() == MAX_KEY_BYTES;
        let doing = || {
            let longest = match is_longest {
                true => format!(" with a key of {MAX_KEY_BYTES} bytes and an owner token of {MAX_VALUE_BYTES}"),
                false => String::new(),
            };
            format!("asked about a sample {}{longest}", question.operation.word())
        };
        let (patient, strict) = (Budget::decide(&member.limits).patient(), Budget::decide(&member.limits));
        let mut ask = |instance: &mut Instance, budget| {
            let client = Some((question.client, ClientDescription::default()));
            instance.ask(member, budget, &mut Asked::new(question, &mut request), (client, None))
        };
        let refused = |failure| faulty(namespace, member, doing(), failure);
        let mut answer = ask(&mut instance, patient).map_err(refused)?;
        // Within the time limit of a client's command, once all one-time work is done.
        for tries_left in (0..STRICT_TRIES).rev().take_while(|_| is_longest) {
            match ask(&mut instance, strict) {
                Ok(again) => {
                    answer = again;
                    break;
                }
                // The machine may have delayed it. A policy that is too slow is slow each time.
                Err(failure) if failure.kind == FaultKind::Timeout && tries_left > 0 => {
                    instance = configured(namespace, member)?;
                    ask(&mut instance, patient).map_err(refused)?;
                }
                Err(failure) => return Err(refused(failure)),
            }
        }
        most_fuel = most_fuel.max(instance.burnt(patient));
        let wants = match answer {
            v1::Answer::Permit(obligations) => obligations,
            v1::Answer::Deny { .. } => Obligations::default(),
        };
        answers.push((question.operation, wants));
    }
    Ok(Tried { judged, most_fuel, answers })
}

fn configured(namespace: &str, member: &Member) -> Result<Instance, Box<LoadError>> {
    let budget = Budget::configure(&member.limits).patient();
    Instance::start(member, budget).map_err(|error| match error {
        NotStarted::Failed(failure) => faulty(namespace, member, "configured".to_owned(), failure),
        NotStarted::Rejected(message) => Box::new(LoadError::Rejected {
            namespace: namespace.to_owned(),
            policy: member.meter.policy().to_string(),
            message,
        }),
    })
}

fn faulty(namespace: &str, member: &Member, doing: String, failure: Failure) -> Box<LoadError> {
    Box::new(LoadError::Faulty {
        namespace: namespace.to_owned(),
        policy: member.meter.policy().to_string(),
        kind: failure.kind,
        doing,
        detail: failure.detail,
    })
}

/// The longest key and owner token that a client can send.
static LONGEST: [u8; MAX_VALUE_BYTES] = {
    let mut bytes = [b'x'; MAX_VALUE_BYTES];
    bytes.split_at_mut(SAMPLE.len()).0.copy_from_slice(SAMPLE);
    bytes
};

const SAMPLE: &[u8] = b"lock:sample";

/// The keys about which a chain is asked: ours, and those that the authors of its policies declare as permitted.
/// Otherwise obligations hidden by a refusal would not be found.
fn keys(chain: &Chain) -> Vec<Vec<u8>> {
    let mut keys = vec![SAMPLE.to_vec()];
    for metadata in chain.members.iter().filter_map(|member| member.compiled.metadata.as_ref()) {
        let theirs = metadata.samples.iter().map(|key| key.as_bytes().to_vec());
        keys.extend(theirs.filter(|key| (1..=MAX_KEY_BYTES).contains(&key.len())));
    }
    keys
}

/// What is wrong with a policy's settings, according to its author's declaration.
fn objections(namespace: &str, member: &Member) -> Vec<LoadError> {
    let settings: Vec<_> = member.settings.iter().map(|one| (one.name.clone(), one.value.clone())).collect();
    let metadata = member.compiled.metadata.as_ref();
    let objections = metadata.map_or_else(Vec::new, |metadata| metadata.objections(&settings)).into_iter();
    let rejected = |message| LoadError::Rejected {
        namespace: namespace.to_owned(),
        policy: member.meter.policy().to_string(),
        message,
    };
    objections.map(rejected).collect()
}

/// Requests of every operation: ordinary ones with and without a TTL, an owner token and proofs, about each key, and the longest.
fn samples(keys: &[Vec<u8>]) -> Vec<Question<'_>> {
    let mut samples = Vec::new();
    for (operation, key) in
        Operation::ALL.into_iter().flat_map(|operation| keys.iter().map(move |key| (operation, key)))
    {
        for ttl_ms in [None, Some(AskedMs(1_000)), Some(AskedMs(30_000))] {
            for owner_token in [None, Some(&b"0123456789abcdef"[..])] {
                for proofs in [Proofs::NONE, Proofs::ALL] {
                    let plain = Question::plain(operation, key);
                    samples.push(Question { owner_token, ttl_ms, proofs, ..plain });
                }
            }
        }
    }
    let longest = samples.iter().step_by(samples.len() / Operation::ALL.len());
    let longest: Vec<_> = longest
        .map(|question| Question { key: &LONGEST[..MAX_KEY_BYTES], owner_token: Some(&LONGEST), ..question.clone() })
        .collect();
    samples.extend(longest);
    samples
}
