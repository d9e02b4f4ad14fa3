//! The path of one question: through the policies of its namespace that judge its operation, in order, until one
//! refuses. Each thread has its own instances, made when they are first needed and dropped after a failure, so nothing
//! here is shared or locked. How answers are merged is defined by the domain, in `lockwarden_lock::decision`.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem;
use std::sync::Arc;
use std::time::Instant;

use lockwarden_lock::decision::{
    Contradiction, Decide, Decision, Denial, Fault, FaultKind, Holdings, Operation, Question, Verdict, WhoAsks,
};
use lockwarden_lock::namespace::NamespaceId;
use lockwarden_lock::reason::Reason;

use crate::bindings::v1;
use crate::breaker::{Asker, Breakers};
use crate::deadline::thread_time;
use crate::generation::Generation;
use crate::history::Asking;
use crate::instance::{Asked, Budget, Failure, Instance, Kind, Member, NotStarted};
use crate::kept_answers::{Kept, KeptAnswers};
use crate::meter::{Meter, Tally};

/// One thread's chains. They follow a [`Generation`] and answer by it.
#[derive(Default)]
pub struct Chains {
    generation: Option<Arc<Generation>>,
    /// By namespace, then by place in its chain.
    live: Vec<Vec<Slot>>,
    request: Option<v1::Request>,
    without_rules: bool,
    asks_always: bool,
}

/// The place of one policy of one chain.
struct Slot {
    instance: Option<Instance>,
    answers: KeptAnswers,
    tally: Tally,
    /// By operation: a policy that fails on releases may still be asked about acquires.
    breakers: [Breakers; Operation::ALL.len()],
    meter: Arc<Meter>,
}

/// The policy named in a fault if a namespace has no chain.
const NO_CHAIN: &str = "(none loaded)";

impl Chains {
    /// Chains that follow no generation yet: every question is a fault.
    #[must_use]
    pub fn new() -> Chains {
        Chains::default()
    }

    /// Chains without the policy `rules`: a rule may treat one lock differently from the next, so its answer about a
    /// sample lock means nothing.
    #[must_use]
    pub fn without_rules() -> Chains {
        Chains { without_rules: true, ..Chains::default() }
    }

    /// Chains whose policies are asked each question, however often they have failed: for use where no client waits,
    /// and each answer must depend on its question alone.
    #[must_use]
    pub fn that_ask_always() -> Chains {
        Chains { asks_always: true, ..Chains::default() }
    }

    /// Uses this generation from now on. Does nothing if it is already in use; otherwise drops all instances, which are
    /// made again when they are needed. Call it between two questions.
    pub fn follow(&mut self, generation: &Arc<Generation>) {
        if self.generation.as_ref().is_some_and(|current| current.id == generation.id) {
            return;
        }
        self.live = generation.chains.iter().map(|chain| chain.members.iter().map(Slot::empty).collect()).collect();
        self.generation = Some(generation.clone());
    }

    /// The generation in use.
    #[must_use]
    pub fn generation(&self) -> Option<&Arc<Generation>> {
        self.generation.as_ref()
    }
}

impl Decide for Chains {
    fn decide(&mut self, namespace: NamespaceId, question: &Question<'_>, who: &dyn WhoAsks) -> Decision {
        let place = usize::from(namespace.0);
        let chain = self.generation.as_ref().and_then(|generation| generation.chains.get(place));
        let (Some(chain), Some(live)) = (chain, self.live.get_mut(place)) else {
            return no_chain();
        };
        let operation = v1::as_set(question.operation);
        let request = self.request.get_or_insert_with(v1::empty_request);
        let mut asked = Asked::new(question, request);
        let asking = chain.asks_history().then(|| {
            let application = who.describe(question.client).map(|known| known.application).unwrap_or_default();
            let holdings = if chain.asks_holdings() { who.holdings(question) } else { Holdings::default() };
            Asking::new(&chain.namespace, question, &application, holdings)
        });
        if let (Some(asking), Operation::Acquire) = (&asking, question.operation) {
            chain.tried(asking);
        }
        let mut decision = Decision::permit();
        let mut wanted_before: Option<&Member> = None;
        for (member, slot) in chain.members.iter().zip(live) {
            let is_left_out = self.without_rules && member.kind != Kind::Policy;
            if is_left_out || !member.judged.contains(operation) {
                continue;
            }
            let answer = ask(member, slot, &mut asked, (who, asking.as_ref()), self.asks_always);
            if member.kind == Kind::Reports {
                // Its obligations are ignored, and its faults are only counted.
                if let Ok(v1::Answer::Deny { reason, rule, detail }) = answer {
                    decision.reported = Some(Box::new(member.denial(reason, rule, detail)));
                }
                continue;
            }
            match answer {
                Ok(v1::Answer::Permit(wants)) => {
                    let so_far = mem::take(&mut decision.obligations);
                    // If a policy denied all samples when the chain was loaded, only a client's command reveals this.
                    if let (Some(other), Some(what)) = (wanted_before, so_far.contradiction(&wants)) {
                        contradicts(member, other, question.operation, what);
                    }
                    wanted_before = Some(member);
                    decision.obligations = so_far.merge(wants);
                }
                Ok(v1::Answer::Deny { reason, rule, detail }) => {
                    decision.verdict = Verdict::Deny(member.denial(reason, rule, detail));
                    break;
                }
                Err(kind) => {
                    decision.fault.get_or_insert_with(|| Fault { kind, policy: member.meter.policy().clone() });
                }
            }
        }
        decision
    }
}

/// Counts that a policy's obligations contradict those of the policies before it.
fn contradicts(member: &Member, other: &Member, operation: Operation, what: Contradiction) {
    let other = other.meter.policy();
    let detail = format!("it contradicts {other}, or a policy before that, on {}: {what}", operation.word());
    member.meter.failed(FaultKind::BadReply, &detail);
}

impl Member {
    fn denial(&self, reason: Reason, rule: Option<Arc<str>>, detail: Option<String>) -> Denial {
        Denial { reason, detail, policy: self.meter.policy().clone(), rule }
    }
}

impl Slot {
    fn empty(member: &Member) -> Slot {
        Slot {
            instance: None,
            answers: KeptAnswers::default(),
            tally: Tally::new(&member.meter),
            breakers: Default::default(),
            meter: member.meter.clone(),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let open = self.breakers.iter().map(Breakers::open).sum();
        self.meter.breakers_changed(open, 0);
    }
}

/// Asks one policy, unless its answer is kept, or its breaker is open.
fn ask(
    member: &Member,
    slot: &mut Slot,
    asked: &mut Asked<'_>,
    (who, asking): (&dyn WhoAsks, Option<&Asking>),
    asks_always: bool,
) -> Result<v1::Answer, FaultKind> {
    // Operations are numbered in the order of their list.
    let place = asked.operation() as usize;
    let wary = slot.breakers[place].is_wary();
    let sampled = slot.tally.called();
    let begun = (sampled || wary).then(Instant::now);
    let kind = (member.judges_kinds && !asks_always).then(|| asked.kind());
    if let Some(kept) = kind.and_then(|kind| slot.answers.of(kind)) {
        slot.tally.burnt(kept.fuel);
        timed(member, begun.filter(|_| sampled));
        return Ok(kept.answer.clone());
    }
    let cpu_before = wary.then(thread_time);
    let mut asker = None;
    if let (true, Some(now)) = (wary, begun) {
        let one = *asker.insert(charged(asked.client(), who));
        if !watched(slot, place, |breakers| breakers.may_ask(one, now)) {
            let kind = FaultKind::BreakerOpen;
            member.meter.failed(kind, "it failed too much lately");
            return Err(kind);
        }
    }
    let answer = attempt(member, slot, asked, (who, asking));
    timed(member, begun.filter(|_| sampled));
    if let (Some(kind), Ok(answer), Some(instance)) = (kind, &answer, &slot.instance) {
        let fuel = instance.burnt(Budget::decide(&member.limits));
        slot.answers.keep(Kept { kind, answer: answer.clone(), fuel });
    }
    if wary || (answer.is_err() && !asks_always) {
        // The first failure was not timed.
        let used = cpu_before.map(|before| thread_time().saturating_sub(before));
        let used = used.unwrap_or(member.limits.deadline);
        let asker = asker.unwrap_or_else(|| charged(asked.client(), who));
        let (is_answered, now) = (answer.is_ok(), Instant::now());
        watched(slot, place, |breakers| match is_answered {
            true => breakers.answered(asker, now),
            false => breakers.failed(asker, used, now),
        });
    }
    answer.map_err(|failure| {
        member.meter.failed(failure.kind, &failure.detail);
        failure.kind
    })
}

/// Reports how long an answer took, if it is sampled.
fn timed(member: &Member, begun: Option<Instant>) {
    if let Some(begun) = begun {
        member.meter.evaluated(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
    }
}

/// Changes the breakers of an operation, and counts those that this opens or closes.
fn watched<T>(slot: &mut Slot, operation: usize, change: impl FnOnce(&mut Breakers) -> T) -> T {
    let breakers = &mut slot.breakers[operation];
    let before = breakers.open();
    let done = change(breakers);
    slot.meter.breakers_changed(before, breakers.open());
    done
}

/// The client to be charged with a failure of this question. Its application is identified by what the client cannot
/// choose for itself: the user, the address and the certificate.
fn charged(client: u64, who: &dyn WhoAsks) -> Asker {
    let application = who.describe(client).map(|known| {
        let mut hasher = DefaultHasher::new();
        (known.user, known.address, known.certificate).hash(&mut hasher);
        hasher.finish()
    });
    Asker { session: client, application }
}

/// Asks once; makes the instance if there is none, and drops it if it failed.
fn attempt(
    member: &Member,
    slot: &mut Slot,
    asked: &mut Asked<'_>,
    (who, asking): (&dyn WhoAsks, Option<&Asking>),
) -> Result<v1::Answer, Failure> {
    let instance = match &mut slot.instance {
        Some(instance) => instance,
        empty @ None => empty.insert(start(member)?),
    };
    // Looked up before the guest runs, so that its store need not contain borrowed data.
    let client = match member.asks_clients {
        true => who.describe(asked.client()).map(|description| (asked.client(), description)),
        false => None,
    };
    let budget = Budget::decide(&member.limits);
    let answer = instance.ask(member, budget, asked, (client, asking));
    slot.tally.burnt(instance.burnt(budget));
    if member.asks_clients {
        slot.tally.asked_who(instance.take_client_questions());
    }
    if answer.is_err() {
        slot.instance = None;
    }
    answer
}

fn start(member: &Member) -> Result<Instance, Failure> {
    match Instance::start(member, Budget::configure(&member.limits)) {
        Ok(instance) => Ok(instance),
        Err(NotStarted::Failed(failure)) => Err(failure),
        // It accepted the same settings when it was loaded.
        Err(NotStarted::Rejected(words)) => Err(Failure {
            kind: FaultKind::BadReply,
            detail: format!("rejected settings that it had accepted: {words}"),
        }),
    }
}

fn no_chain() -> Decision {
    Decision { fault: Some(Fault { kind: FaultKind::Trap, policy: NO_CHAIN.into() }), ..Decision::permit() }
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
