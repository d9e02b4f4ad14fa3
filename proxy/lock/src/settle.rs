//! From what the policies say to what may be done: here the mode, `on_fault` and `on_violation` of
//! a namespace are applied. A [`Permitted`] is made nowhere else, and a plan only from one, so the
//! backend never gets an operation that was not judged.

mod judge;

pub use judge::judge;

use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;

use crate::decision::{Decision, Denial, Obligations, Proofs, Verdict};
use crate::evidence::{DbKey, Facts};
use crate::namespace::NamespaceId;
use crate::op::{Command, Comparison, ExtendSpelling, LockCommand, LockOp, OpaqueCommand, OpaqueKind, Target};
use crate::outcome::NothingRun;
use crate::pass_through::PassThrough;
use crate::plan::{lengthened_to, may_repeat};
use crate::reason::Reason;
use crate::rules::{Durability, Mode, OnFault, OnViolation, OpaqueScripts, Rules};
use crate::time::ProxyTime;
use crate::token::Grant;

/// The circumstances of a command that are the same for all its keys.
#[derive(Clone, Copy, Debug)]
pub struct Circumstances {
    /// The logical database.
    pub db: u32,
    /// A handle for the `clients.describe` import.
    pub client: u64,
    /// The moment on the proxy's clock.
    pub time: ProxyTime,
    /// The same moment for spans.
    pub now: Instant,
    /// Queued in a MULTI block.
    pub transactional: bool,
}

/// One lock of a command, on the whole way of that: what is known of it goes along.
#[derive(Clone, Debug)]
pub struct Lock {
    /// The lock.
    pub target: Target,
    /// The same with its database.
    pub key: DbKey,
    /// What its client knows of it.
    pub facts: Facts,
    /// The name drawn for the lease that the step may grant.
    pub(crate) grant: Option<Grant>,
}

impl Lock {
    /// A lock whose command was not judged yet.
    pub fn new(target: Target, key: DbKey, facts: Facts) -> Lock {
        Lock { target, key, facts, grant: None }
    }

    /// The name drawn for the lease that the step may grant, where it may grant one.
    pub fn grant(&self) -> Option<Grant> {
        self.grant
    }
}

/// A lock, and what the policies say.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The lock.
    pub lock: Lock,
    /// What the policies say.
    pub said: Said,
}

/// What the policies say of one lock. None of it can be missing, so that nothing is permitted because no policy was asked:
///
/// ```compile_fail,E0599
/// use lockwarden_lock::decision::Decision;
/// let missing: Option<Decision> = None;
/// missing.unwrap_or_default();
/// ```
#[derive(Clone, Debug)]
pub enum Said {
    /// To what the command means.
    Command(Decision),
    /// To a script whose meaning is not known: one for each thing that it may do, in the order of `DEEDS`.
    Script(Box<[Decision; 3]>),
}

impl Said {
    /// What is said to the command as a whole: where it may do several things, what is said to all of them.
    pub fn whole(self) -> Decision {
        match self {
            Said::Command(decision) => decision,
            Said::Script(each) => {
                let [acquire, extend, release] = *each;
                acquire.and(extend).and(release)
            }
        }
    }

    /// What is said first: of what a script may do, an acquire comes first.
    pub fn first(&self) -> &Decision {
        match self {
            Said::Command(decision) => decision,
            Said::Script(each) => &each[0],
        }
    }

    fn each(self) -> [Decision; 3] {
        match self {
            Said::Command(decision) => [decision.clone(), decision.clone(), decision],
            Said::Script(each) => *each,
        }
    }
}

/// One lock of a command that may go on.
#[derive(Clone, Debug)]
pub struct Allowed {
    /// The lock.
    pub lock: Lock,
    /// What must be done with it.
    pub obligations: Obligations,
    /// The rules of its namespace.
    pub rules: Rules,
    /// What a policy would have refused, in monitor mode; in enforce mode a rule that only reports.
    pub would: Option<Denial>,
    /// Of a script whose meaning is not known: what holds for each thing that it may do. Then
    /// `obligations` are those of an acquire and an extension.
    pub terms: Option<Box<Terms>>,
}

/// What the policies say to each thing that a script may do to a lock.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Where it takes the lock: who refuses that.
    pub acquire: Option<Denial>,
    /// Where it extends or changes the lease: the proofs that count, and who refuses that.
    pub extend: (Obligations, Option<Denial>),
    /// Where it gives the lock back: the same.
    pub release: (Obligations, Option<Denial>),
}

/// A command that may go on, with what must be done for each of its locks. Only [`settle`] makes one:
///
/// ```compile_fail,E0451
/// use lockwarden_lock::op::LockCommand;
/// use lockwarden_lock::settle::Permitted;
/// fn permitted(command: Box<LockCommand>) -> Permitted {
///     Permitted { command, locks: Default::default() }
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Permitted {
    command: Box<LockCommand>,
    locks: SmallVec<[Allowed; 1]>,
}

impl Allowed {
    /// Which policy a refusal for this reason comes from, where the policies were asked about each thing that a script may do.
    pub fn refused_by(&self, reason: Reason) -> Option<&Denial> {
        let terms = self.terms.as_ref()?;
        let denials = [&terms.acquire, &terms.extend.1, &terms.release.1];
        denials.into_iter().flatten().find(|denial| denial.reason == reason)
    }
}

impl Terms {
    /// Where no policy was asked: it may do nothing.
    pub(crate) fn nothing() -> Terms {
        let no = Some(unsafe_script());
        Terms {
            acquire: no.clone(),
            extend: (Obligations::default(), no.clone()),
            release: (Obligations::default(), no),
        }
    }
}

impl Permitted {
    /// The command.
    pub fn command(&self) -> &LockCommand {
        &self.command
    }

    /// Its locks, in the order of [`LockOp::targets`].
    pub fn locks(&self) -> &[Allowed] {
        &self.locks
    }

    /// What replicas must confirm before its client hears of a success; `None` where nothing is enforced, and for what only
    /// gives locks back: a release that is lost keeps a lock closed for a TTL, and gives it to no other client.
    pub fn durability(&self) -> Option<Durability> {
        match &self.command.op {
            LockOp::Release { .. } | LockOp::ReleaseMany { .. } => return None,
            LockOp::Acquire { .. }
            | LockOp::Take { .. }
            | LockOp::AcquireAll { .. }
            | LockOp::Store { .. }
            | LockOp::Extend { .. }
            | LockOp::Wrapped { .. } => {}
        }
        let rules = self.locks.iter().map(|allowed| allowed.rules);
        let enforced = rules.filter(|rules| rules.mode == Mode::Enforce);
        let wanted = enforced.filter_map(|rules| rules.durability);
        wanted.reduce(Durability::and)
    }

    /// The lock that this must not be done to any more: by the rules of now less may be promised than when it was settled, and so
    /// much less that it does not fit. `None` where it may go on.
    pub fn promised_no_more(&self, rules: &dyn Fn(NamespaceId) -> Rules) -> Option<&Target> {
        let op = &self.command.op;
        let has_become_so = |allowed: &&Allowed| {
            let (then, now) = (&allowed.rules, rules(allowed.lock.target.namespace));
            let exceeds = |rules: &Rules| {
                let repeats = matches!(op, LockOp::Acquire { .. }) && !may_repeat(&allowed.obligations, rules);
                repeats || unpromised(op, &allowed.obligations, rules).is_some()
            };
            let takes = !matches!(op, LockOp::Extend { .. });
            let is_withheld = takes && now.quarantined && !then.quarantined && now.mode == Mode::Enforce;
            is_withheld || (exceeds(&now) && !exceeds(then))
        };
        match op {
            LockOp::Release { .. } | LockOp::ReleaseMany { .. } => None,
            LockOp::Acquire { .. }
            | LockOp::Take { .. }
            | LockOp::AcquireAll { .. }
            | LockOp::Store { .. }
            | LockOp::Extend { .. }
            | LockOp::Wrapped { .. } => self.locks.iter().find(has_become_so).map(|allowed| &allowed.lock.target),
        }
    }

    /// The command, and its locks to draw names for.
    pub(crate) fn parts(&mut self) -> (&LockCommand, &mut [Allowed]) {
        (&self.command, &mut self.locks)
    }

    /// The command, to be forwarded after all: its step has run nothing.
    pub fn unrun(self, _proof: &NothingRun) -> Box<LockCommand> {
        self.command
    }

    /// Whether refusals are carried out: where any of the locks enforces, for all.
    pub fn enforces(&self) -> bool {
        self.locks.iter().any(|allowed| allowed.rules.mode == Mode::Enforce)
    }
}

/// The word that an error reply begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// A policy refused.
    Denied,
    /// A policy failed.
    Policy,
    /// A limit of the proxy.
    Limit,
}

/// A no that needs nothing from Redis.
#[derive(Clone, Debug)]
pub struct Refused {
    /// The command.
    pub command: Command,
    /// The lock that it was about.
    pub target: Target,
    /// The error's first word.
    pub code: Code,
    /// Why, by whom, with which words.
    pub denial: Denial,
    /// Whether it is answered as Redis answers when nothing happened.
    pub native: bool,
}

impl Refused {
    /// The refusal of a script or function that computes names of keys, with a word on what it did or may do.
    pub fn computes_names(command: Command, target: Target, detail: String) -> Refused {
        Refused { command, target, code: Code::Denied, denial: computes_names(detail), native: false }
    }

    /// The refusal of a command that would write a key of the proxy's own which is about no lock: it is no data of any
    /// application, so this does not depend on a mode.
    pub fn of_own_key(command: &Command) -> Option<Refused> {
        let Command::Opaque(opaque) = command else {
            return None;
        };
        (opaque.kind == OpaqueKind::Own).then(|| Refused {
            target: opaque.target.clone(),
            command: command.clone(),
            code: Code::Denied,
            denial: Denial {
                reason: opaque.kind.reason(),
                detail: Some("this key is lockwarden's own, for all locks on this server".to_owned()),
                policy: built_in(),
                rule: None,
            },
            native: false,
        })
    }
}

/// Why a script or function that computes names of keys is refused, with a word on what it did or may do.
pub fn computes_names(detail: String) -> Denial {
    Denial { detail: Some(detail), ..unsafe_script() }
}

/// What is to be done with a command.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every command is permitted, and a box would be an allocation for each"
)]
#[derive(Debug)]
pub enum Settled {
    /// One atomic step.
    Permitted(Permitted),
    /// A no.
    Refused(Refused),
    /// Monitor mode: the client's own command, and what enforce would have said.
    Forward(Forwarded, Denial),
    /// A script that its operator lets run unjudged.
    Unjudged(Forwarded),
}

/// A command that goes to Redis as it came. Only [`settle`] makes one:
///
/// ```compile_fail,E0423
/// use lockwarden_lock::op::Command;
/// use lockwarden_lock::settle::Forwarded;
/// fn leave(command: Command) -> Forwarded {
///     Forwarded(command)
/// }
/// ```
#[derive(Debug)]
pub struct Forwarded(Command);

impl Forwarded {
    /// The command.
    pub fn command(&self) -> &Command {
        &self.0
    }

    /// Leave to forward it.
    pub fn pass(&self) -> PassThrough<'_> {
        PassThrough::of(self.0.frame(), false)
    }
}

/// The policy that is named where the proxy itself says no.
pub fn built_in() -> Arc<str> {
    Arc::from("lockwarden")
}

/// Applies the rules of the namespaces to what their chains said.
pub fn settle(command: Command, locks: SmallVec<[Judged; 1]>, rules: &dyn Fn(NamespaceId) -> Rules) -> Settled {
    let command = match command {
        Command::Lock(command) => command,
        Command::Opaque(command) => {
            let said = locks.into_iter().next().map(|judged| judged.said.whole());
            let rules = rules(command.target.namespace);
            return settle_opaque(command, said, rules);
        }
    };
    // A refusal is of the whole command, so one lock that is enforced decides for all.
    let enforces = locks.iter().any(|judged| rules(judged.lock.target.namespace).mode == Mode::Enforce);
    if let LockOp::Wrapped { .. } = command.op {
        return settle_script(command, locks, rules, enforces);
    }
    let mut allowed = SmallVec::new();
    for Judged { lock, said } in locks {
        let decision = said.whole();
        let rules = rules(lock.target.namespace);
        let (mut obligations, mut would) = (decision.obligations, decision.reported.map(|denial| *denial));
        let no = match decision.verdict {
            Verdict::Deny(denial) => Some((Code::Denied, denial)),
            Verdict::Permit => fault_of(decision.fault, rules),
        };
        let no = no.or_else(|| Some((Code::Denied, unpromised(&command.op, &obligations, &rules)?)));
        if let Some((code, denial)) = no {
            // Who releases must know where it could not even be judged.
            let native = code == Code::Denied
                && rules.on_violation == OnViolation::Native
                && answers_natively(&command.op, &denial);
            if !enforces {
                would = Some(denial);
            } else if native && matches!(command.op, LockOp::ReleaseMany { .. }) {
                // The other keys of the command are none of this policy's business.
                obligations.require = Some(Proofs::NONE);
            } else {
                let target = lock.target;
                return Settled::Refused(Refused { command: command.into(), target, code, denial, native });
            }
        }
        allowed.push(Allowed { lock, obligations, rules, would, terms: None });
    }
    let locks = allowed;
    Settled::Permitted(Permitted { command, locks })
}

/// What has no lock meaning cannot be done to a lock, even where no policy objects.
fn settle_opaque(command: Box<OpaqueCommand>, said: Option<Decision>, rules: Rules) -> Settled {
    let denial = match (command.kind, said.map(|decision| decision.verdict)) {
        (OpaqueKind::Script, _) => unsafe_script(),
        (_, Some(Verdict::Deny(denial))) => denial,
        (OpaqueKind::Command | OpaqueKind::Companion | OpaqueKind::Own, Some(Verdict::Permit) | None) => {
            Denial { reason: command.kind.reason(), detail: None, policy: built_in(), rule: None }
        }
    };
    match rules.mode {
        Mode::Monitor => Settled::Forward(Forwarded(command.into()), denial),
        Mode::Enforce => Settled::Refused(Refused {
            target: command.target.clone(),
            command: command.into(),
            code: Code::Denied,
            denial,
            native: false,
        }),
    }
}

/// A script whose meaning is not known: what the chains say to each thing that it may do goes along,
/// because only its run tells which it does.
fn settle_script(
    command: Box<LockCommand>,
    locks: SmallVec<[Judged; 1]>,
    rules: &dyn Fn(NamespaceId) -> Rules,
    enforces: bool,
) -> Settled {
    let has = |judged: &Judged, wanted| rules(judged.lock.target.namespace).scripts == wanted;
    // The strictest choice among the locks counts, because the script runs once for all of them.
    let denies = |judged: &&Judged| has(judged, OpaqueScripts::Deny);
    if let Some(judged) = locks.iter().find(denies) {
        let (target, denial) = (judged.lock.target.clone(), unsafe_script());
        if !enforces {
            return Settled::Forward(Forwarded(command.into()), denial);
        }
        return Settled::Refused(Refused {
            command: command.into(),
            target,
            code: Code::Denied,
            denial,
            native: false,
        });
    }
    if locks.iter().all(|judged| has(judged, OpaqueScripts::Forward)) {
        return Settled::Unjudged(Forwarded(command.into()));
    }
    let mut allowed = SmallVec::with_capacity(locks.len());
    for Judged { lock, said } in locks {
        let rules = rules(lock.target.namespace);
        let [acquire, extend, release] = said.each();
        let faults = [&acquire, &extend, &release].map(|decision| decision.fault.clone());
        if let Some((code, denial)) = faults.into_iter().find_map(|fault| fault_of(fault, rules)) {
            let target = lock.target;
            return Settled::Refused(Refused { command: command.into(), target, code, denial, native: false });
        }
        let obligations = acquire.obligations.merge(extend.obligations.clone());
        let mut terms = Terms {
            acquire: acquire.verdict.denial(),
            extend: (extend.obligations, extend.verdict.denial()),
            release: (release.obligations, release.verdict.denial()),
        };
        if rules.quarantined && rules.mode == Mode::Enforce {
            terms.acquire.get_or_insert_with(quarantine);
        }
        if let Some(denial) = unpromised(&command.op, &obligations, &rules) {
            terms.extend.1.get_or_insert(denial);
        }
        allowed.push(Allowed { lock, obligations, rules, would: None, terms: Some(Box::new(terms)) });
    }
    let locks = allowed;
    Settled::Permitted(Permitted { command, locks })
}

/// The refusal of what would make a lease longer than may be promised now.
fn unpromised(op: &LockOp, obligations: &Obligations, rules: &Rules) -> Option<Denial> {
    rules.longest_ms?;
    let ttl_ms = lengthened_to(op, obligations)?;
    (!rules.may_promise(ttl_ms)).then(quarantine)
}

/// The refusal where less may be promised than was asked for.
pub fn quarantine() -> Denial {
    Denial { reason: Reason::Quarantine, detail: None, policy: built_in(), rule: None }
}

/// To a policy a script is a write like any other; people are told which.
fn unsafe_script() -> Denial {
    Denial { reason: Reason::UnsafeScript, detail: None, policy: Arc::from("scripts"), rule: None }
}

/// What a policy that did not answer means.
fn fault_of(fault: Option<crate::decision::Fault>, rules: Rules) -> Option<(Code, Denial)> {
    match (fault, rules.on_fault, rules.mode) {
        (Some(fault), OnFault::Deny, Mode::Enforce) => {
            let detail = Some(format!("the policy failed ({}); try again", fault.kind.word()));
            let denial = Denial { reason: Reason::Other, detail, policy: fault.policy, rule: None };
            Some((Code::Policy, denial))
        }
        (Some(_), OnFault::Deny, Mode::Monitor) | (Some(_), OnFault::Allow, _) | (None, ..) => None,
    }
}

/// Whether a refusal of this may look like Redis's own "nothing happened": a release or extension
/// that proves nothing may, whatever would be read as a success may not.
pub fn answers_natively(op: &LockOp, denial: &Denial) -> bool {
    match op {
        LockOp::ReleaseMany { .. } => true,
        LockOp::Release { comparison, .. } => comparison.as_ref().is_none_or(Comparison::has_plain_no),
        LockOp::Extend { spelling, comparison, .. } => {
            *spelling == ExtendSpelling::Expire
                && denial.reason != Reason::NoTtl
                && comparison.as_ref().is_none_or(Comparison::has_plain_no)
        }
        LockOp::Store { only_if_exists, wants_old, .. } => *only_if_exists && !wants_old,
        LockOp::Acquire { .. } | LockOp::Take { .. } | LockOp::AcquireAll { .. } | LockOp::Wrapped { .. } => false,
    }
}

/// Leave to forward a command that could not be judged, in a namespace that is only watched.
/// `None` where refusals are carried out.
pub fn forward_unjudged(command: &Command, rules: Rules) -> Option<PassThrough<'_>> {
    match rules.mode {
        Mode::Monitor => Some(PassThrough::of(command.frame(), false)),
        Mode::Enforce => None,
    }
}

#[cfg(test)]
pub(crate) mod tests;
