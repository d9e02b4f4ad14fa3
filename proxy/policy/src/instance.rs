//! One live instance of a policy: its store, its limits, one call at a time. An instance that has failed is never
//! called again. It knows no chain; next: `chains.rs`.

use std::sync::Arc;
use std::time::Duration;

use lockwarden_lock::decision::{ClientDescription, FaultKind, Operation, Question};
use wasmtime::{Store, Trap};

use crate::bindings::v1;
use crate::error::one_line;
use crate::history::{Asking, History};
use crate::kept_answers::QuestionKind;
use crate::loader::Compiled;
use crate::meter::Meter;
use crate::source::Limits;
use crate::store::State;
use crate::ticker::Ticker;

/// A policy as used by one chain: compiled, with the settings of its namespace.
pub(crate) struct Member {
    pub(crate) compiled: Arc<Compiled>,
    pub(crate) settings: Vec<v1::Setting>,
    /// The operations that it judges, as it declared when it was tested; it permits all others.
    pub(crate) judged: v1::Operations,
    /// The most fuel that one of the samples used when it was tested.
    pub(crate) most_fuel: u64,
    pub(crate) limits: Limits,
    pub(crate) meter: Arc<Meter>,
    pub(crate) ticker: Arc<Ticker>,
    /// Whether it can ask for the client's identity under these settings.
    pub(crate) asks_clients: bool,
    /// Set if it can ask for clients' recent actions under these settings.
    pub(crate) history: Option<Arc<History>>,
    /// Whether it can ask for clients' holdings.
    pub(crate) asks_holdings: bool,
    pub(crate) kind: Kind,
    /// It only gets the kind of a question.
    pub(crate) judges_kinds: bool,
}

/// The kind of a member, which decides what its answers mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An ordinary policy.
    Policy,
    /// The built-in policy `rules`: the first line of its text is the name of a rule.
    Rules,
    /// The same for rules that only report: its answers have no effect.
    Reports,
}

/// Why there is no answer.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: FaultKind,
    pub(crate) detail: String,
}

/// Why an instance could not be made.
#[derive(Debug)]
pub(crate) enum NotStarted {
    /// It failed while starting.
    Failed(Failure),
    /// It refused its settings, in its own words.
    Rejected(String),
}

/// The limits of one call.
#[derive(Clone, Copy)]
pub(crate) struct Budget {
    fuel: u64,
    /// The limit of its thread's CPU time.
    deadline: Duration,
}

impl Budget {
    /// A decision about a client's command.
    pub(crate) fn decide(limits: &Limits) -> Budget {
        Budget { fuel: limits.fuel, deadline: limits.deadline }
    }

    /// Instantiating and configuring: rare, and repeated only after a failure.
    pub(crate) fn configure(limits: &Limits) -> Budget {
        Budget { fuel: limits.fuel.saturating_mul(10), deadline: limits.deadline.saturating_mul(10) }
    }

    /// The same with more time, for loading: no client waits, and what is done for the first time takes longer.
    #[must_use]
    pub(crate) fn patient(self) -> Budget {
        Budget { deadline: self.deadline.saturating_mul(50), ..self }
    }
}

/// A configured policy that can be asked.
pub(crate) struct Instance {
    store: Store<State>,
    exports: v1::Policy,
    judged: v1::Operations,
}

/// A question, and the request in the form that components need, which is filled for the first policy that needs it.
pub(crate) struct Asked<'a> {
    question: &'a Question<'a>,
    request: &'a mut v1::Request,
    filled: Option<Filled>,
}

/// What a request contains.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Filled {
    Question,
    /// Only its kind.
    Kind,
}

impl<'a> Asked<'a> {
    pub(crate) fn new(question: &'a Question<'a>, request: &'a mut v1::Request) -> Asked<'a> {
        Asked { question, request, filled: None }
    }

    pub(crate) fn client(&self) -> u64 {
        self.question.client
    }

    pub(crate) fn operation(&self) -> Operation {
        self.question.operation
    }

    pub(crate) fn kind(&self) -> QuestionKind {
        QuestionKind::of(self.question)
    }

    /// The request in the form for this policy.
    fn request(&mut self, member: &Member) -> &v1::Request {
        let wanted = if member.judges_kinds { Filled::Kind } else { Filled::Question };
        if self.filled != Some(wanted) {
            match wanted {
                Filled::Kind => v1::fill(self.request, &self.kind().question()),
                Filled::Question => v1::fill(self.request, self.question),
            }
            self.filled = Some(wanted);
        }
        self.request
    }
}

impl Instance {
    /// Makes an instance and configures it.
    pub(crate) fn start(member: &Member, budget: Budget) -> Result<Instance, NotStarted> {
        let state = State::new(member, budget.deadline);
        let mut store = Store::new(member.compiled.policy.engine(), state);
        store.limiter(|state| state);
        store.epoch_deadline_callback(|mut store| Ok(store.data_mut().epoch_moved()));
        let said = if member.compiled.is_for_debugging { SAID_BYTES } else { 0 };
        store.set_hostcall_fuel(hostcall_fuel(&member.limits).saturating_add(said));
        prepare(&mut store, budget).map_err(NotStarted::Failed)?;
        let (exports, judged) = configured(member, &mut store)?;
        Ok(Instance { store, exports, judged })
    }

    /// The operations that it judges.
    pub(crate) fn judged(&self) -> v1::Operations {
        self.judged
    }

    /// Asks once. After a failure the instance must be dropped.
    pub(crate) fn ask(
        &mut self,
        member: &Member,
        budget: Budget,
        asked: &mut Asked<'_>,
        (client, asking): (Option<(u64, ClientDescription)>, Option<&Asking>),
    ) -> Result<v1::Answer, Failure> {
        prepare(&mut self.store, budget)?;
        // Only stored if a policy can ask: a write to the store's data is not free.
        if member.asks_clients {
            self.store.data_mut().client = client;
        }
        if member.history.is_some() {
            self.store.data_mut().asking = asking.cloned();
        }
        let answer = self.exports.call_decide(&mut self.store, asked.request(member));
        let mut answer = v1::Answer::from(answer.map_err(|error| failure(&self.store, &error))?);
        accept(&mut answer, member)?;
        Ok(answer)
    }

    /// How often it has asked for the client's identity since the last call of this function.
    pub(crate) fn take_client_questions(&mut self) -> u64 {
        match self.store.data().client_questions {
            0 => 0,
            _ => std::mem::take(&mut self.store.data_mut().client_questions),
        }
    }

    /// The fuel that the last call used of its budget.
    pub(crate) fn burnt(&self, budget: Budget) -> u64 {
        // The store counts fuel, so there is an amount.
        budget.fuel.saturating_sub(self.store.get_fuel().unwrap_or(0))
    }
}

/// The longest text that a policy built for debugging may output at once.
const SAID_BYTES: usize = 1 << 20;

/// The host's limit for what a guest passes in one call: its texts and the fixed parts.
fn hostcall_fuel(limits: &Limits) -> usize {
    const FIXED_PARTS: usize = 1 << 10;
    limits.output_bytes.saturating_add(FIXED_PARTS)
}

/// Instantiates a policy and passes its settings.
fn configured(member: &Member, store: &mut Store<State>) -> Result<(v1::Policy, v1::Operations), NotStarted> {
    let configured = (|| {
        let exports = member.compiled.policy.instantiate(&mut *store)?;
        let judged = exports.call_configure(&mut *store, &member.settings)?;
        Ok((exports, judged))
    })();
    match configured {
        Ok((exports, Ok(judged))) => Ok((exports, judged)),
        Ok((_, Err(words))) => Err(NotStarted::Rejected(one_line(&words))),
        Err(error) => Err(NotStarted::Failed(failure(store, &error))),
    }
}

fn prepare(store: &mut Store<State>, budget: Budget) -> Result<(), Failure> {
    // Written only if it changes, which is rare: a write to the store's data is not free.
    if !store.data().is_armed(budget.deadline) {
        store.data_mut().arm(budget.deadline);
    }
    store.set_epoch_deadline(1);
    store.data().ticker.promise(1);
    let fuelled = store.set_fuel(budget.fuel);
    fuelled.map_err(|error| failure(store, &error))
}

/// Checks that an answer is not longer than the policy's limit, and makes its text one line: after the name of the
/// rule, which a custom policy does not have.
fn accept(answer: &mut v1::Answer, member: &Member) -> Result<(), Failure> {
    let v1::Answer::Deny { rule, detail, .. } = answer else {
        return Ok(());
    };
    let Some(text) = detail else {
        return Ok(());
    };
    if text.len() > member.limits.output_bytes {
        return Err(Failure { kind: FaultKind::BadReply, detail: format!("a text of {} bytes", text.len()) });
    }
    if let (Kind::Rules | Kind::Reports, Some((name, words))) = (member.kind, text.split_once('\n')) {
        *rule = Some(name.into());
        *text = words.to_owned();
    }
    if text.contains(char::is_control) {
        *text = text.replace(char::is_control, " ");
    }
    if text.is_empty() {
        *detail = None;
    }
    Ok(())
}

fn failure(store: &Store<State>, error: &wasmtime::Error) -> Failure {
    let kind = if store.data().memory_refused {
        // The guest stopped itself by a trap; the cause of that is what people look for.
        FaultKind::Memory
    } else {
        match error.downcast_ref::<Trap>() {
            Some(Trap::Interrupt) => FaultKind::Timeout,
            Some(Trap::OutOfFuel) => FaultKind::Fuel,
            Some(Trap::StackOverflow | Trap::AllocationTooLarge) => FaultKind::Memory,
            Some(_) => FaultKind::Trap,
            // Not the guest's code failed but its answer: not text, no such case, outside its memory, or too long.
            None => FaultKind::BadReply,
        }
    };
    Failure { kind, detail: one_line(&format!("{error:#}")) }
}
