//! The way of one question: through the policies of its namespace that judge its operation, in order,
//! until one says no. Each thread has its own instances, made when they are first needed and dropped after a failure, so
//! nothing here is shared or locked. How answers are merged is the domain's, in
//! `lockwarden_lock::decision`.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::time::Instant;

use lockwarden_lock::decision::{
    ClientDescription, Decide, Decision, Denial, Fault, FaultKind, Question, Verdict,
};
use lockwarden_lock::namespace::NamespaceId;

use crate::bindings::v1;
use crate::generation::Generation;
use crate::instance::{Asked, Budget, Failure, Instance, Member, NotStarted};
use crate::meter::Tally;

/// One thread's chains. Follows a [`Generation`] and answers by it.
#[derive(Default)]
pub struct Chains {
    generation: Option<Arc<Generation>>,
    /// By namespace, then by place in its chain.
    live: Vec<Vec<Slot>>,
    request: Option<v1::Request>,
}

/// The place of one policy of one chain.
struct Slot {
    instance: Option<Instance>,
    tally: Tally,
}

/// What a fault names as its policy where a namespace has no chain.
const NO_CHAIN: &str = "(none loaded)";

impl Chains {
    /// Chains that follow no generation yet: every question is a fault.
    #[must_use]
    pub fn new() -> Chains {
        Chains::default()
    }

    /// Answers by this generation from now on. Does nothing if it does so already; otherwise drops
    /// all instances, which are made again when they are needed. Call it between two questions.
    pub fn follow(&mut self, generation: &Arc<Generation>) {
        if self
            .generation
            .as_ref()
            .is_some_and(|current| current.id == generation.id)
        {
            return;
        }
        self.live = generation
            .chains
            .iter()
            .map(|chain| chain.members.iter().map(Slot::empty).collect())
            .collect();
        self.generation = Some(generation.clone());
    }

    /// The generation that is followed.
    #[must_use]
    pub fn generation(&self) -> Option<&Arc<Generation>> {
        self.generation.as_ref()
    }
}

impl Decide for Chains {
    fn decide(
        &mut self,
        namespace: NamespaceId,
        question: &Question<'_>,
        describe: &dyn Fn(u64) -> Option<ClientDescription>,
    ) -> Decision {
        let place = usize::from(namespace.0);
        let chain = self
            .generation
            .as_ref()
            .and_then(|generation| generation.chains.get(place));
        let (Some(chain), Some(live)) = (chain, self.live.get_mut(place)) else {
            return no_chain();
        };
        let operation = v1::as_set(question.operation);
        let request = self.request.get_or_insert_with(v1::empty_request);
        let mut asked = Asked::new(question, request);
        let mut decision = Decision::default();
        for (member, slot) in chain.members.iter().zip(live) {
            if !member.judged.contains(operation) {
                continue;
            }
            match ask(member, slot, &mut asked, describe) {
                Ok(v1::Answer::Permit(wants)) => {
                    let so_far = mem::take(&mut decision.obligations);
                    decision.obligations = so_far.merge(wants);
                }
                Ok(v1::Answer::Deny { reason, detail }) => {
                    decision.verdict = Verdict::Deny(Denial {
                        reason,
                        detail,
                        policy: member.meter.policy().clone(),
                    });
                    break;
                }
                Err(kind) => {
                    decision.fault.get_or_insert_with(|| Fault {
                        kind,
                        policy: member.meter.policy().clone(),
                    });
                }
            }
        }
        decision
    }
}

/// How much longer a policy is waited for when the wall clock stopped it before.
const PATIENCE: [u64; 3] = [1, 4, 16];

impl Slot {
    fn empty(member: &Member) -> Slot {
        Slot {
            instance: None,
            tally: Tally::new(&member.meter),
        }
    }
}

/// Asks one policy. One that the wall clock stopped is asked again on a fresh instance, with more
/// time: the machine may have been busy, and the limit that really judges a policy is its fuel. A
/// guest that burns its time on purpose runs out of fuel long before.
fn ask(
    member: &Member,
    slot: &mut Slot,
    asked: &mut Asked<'_>,
    describe: &dyn Fn(u64) -> Option<ClientDescription>,
) -> Result<v1::Answer, FaultKind> {
    let timed = slot.tally.called().then(Instant::now);
    let mut answer = attempt(member, slot, asked, describe, PATIENCE[0]);
    for patience in &PATIENCE[1..] {
        if !matches!(&answer, Err(failure) if failure.kind == FaultKind::Timeout) {
            break;
        }
        answer = attempt(member, slot, asked, describe, *patience);
    }
    if let Some(start) = timed {
        member
            .meter
            .evaluated(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
    answer.map_err(|failure| {
        member.meter.failed(failure.kind, &failure.detail);
        failure.kind
    })
}

/// Asks once; makes the instance if there is none, drops it if it failed.
fn attempt(
    member: &Member,
    slot: &mut Slot,
    asked: &mut Asked<'_>,
    describe: &dyn Fn(u64) -> Option<ClientDescription>,
    patience: u64,
) -> Result<v1::Answer, Failure> {
    let instance = match &mut slot.instance {
        Some(instance) => instance,
        empty @ None => empty.insert(start(member, patience)?),
    };
    // Looked up before the guest runs, so that nothing borrowed has to live inside its store.
    let client = match member.compiled.asks_clients {
        true => describe(asked.client()).map(|description| (asked.client(), description)),
        false => None,
    };
    let budget = Budget::decide(&member.limits).times(patience);
    let answer = instance.ask(member, budget, asked, client);
    slot.tally.burnt(instance.burnt(budget));
    if answer.is_err() {
        slot.instance = None;
    }
    answer
}

fn start(member: &Member, patience: u64) -> Result<Instance, Failure> {
    match Instance::start(member, Budget::configure(&member.limits).times(patience)) {
        Ok(instance) => Ok(instance),
        Err(NotStarted::Failed(failure)) => Err(failure),
        // It took the same settings when it was loaded.
        Err(NotStarted::Rejected(words)) => Err(Failure {
            kind: FaultKind::BadReply,
            detail: format!("rejected settings that it had accepted: {words}"),
        }),
    }
}

fn no_chain() -> Decision {
    Decision {
        fault: Some(Fault {
            kind: FaultKind::Trap,
            policy: NO_CHAIN.into(),
        }),
        ..Decision::default()
    }
}

impl fmt::Debug for Chains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slots = self.live.iter().flatten();
        let instances = slots.filter(|slot| slot.instance.is_some()).count();
        f.debug_struct("Chains")
            .field("generation", &self.generation)
            .field("instances", &instances)
            .finish_non_exhaustive()
    }
}
