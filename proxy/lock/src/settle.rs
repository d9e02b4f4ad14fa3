//! From the policies' answers to what may be done: here the mode, `on_fault` and `on_violation` of a namespace are
//! applied. Only this module makes a [`Permitted`], and a plan is made only from one, so the backend never gets an
//! operation that was not judged.

mod judge;

pub use judge::judge;

use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;

use crate::db_key::DbKey;
use crate::decision::{Decision, Denial, Obligations, Proofs, Verdict};
use crate::evidence::Facts;
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
    /// The same moment, for durations.
    pub now: Instant,
    /// Queued in a MULTI block.
    pub transactional: bool,
}

/// One lock of a command, with what is known of it, from judging to the reply.
#[derive(Clone, Debug)]
pub struct Lock {
    /// The lock.
    pub target: Target,
    /// Its key with its database.
    pub key: DbKey,
    /// What its client knows of it.
    pub facts: Facts,
    /// The name drawn for the lease that the step may grant.
    pub(crate) grant: Option<Grant>,
}

impl Lock {
    /// A lock whose command was not yet judged.
    pub fn new(target: Target, key: DbKey, facts: Facts) -> Lock {
        Lock { target, key, facts, grant: None }
    }

    /// The name drawn for the lease that the step may grant, if it may grant one.
    pub fn grant(&self) -> Option<Grant> {
        self.grant
    }
}

/// A lock, and the policies' answers.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The lock.
    pub lock: Lock,
    /// The policies' answers.
    pub said: Said,
}

/// The policies' answers about one lock. None of them can be missing, so nothing is permitted because no policy was
/// asked:
///
/// ```compile_fail,E0599
/// use lockwarden_lock::decision::Decision;
/// let missing: Option<Decision> = None;
/// missing.unwrap_or_default();
/// ```
#[derive(Clone, Debug)]
pub enum Said {
    /// The answer about the command's operation.
    Command(Decision),
    /// The answers about a script with unknown effect: one for each thing that it may do, in the order of `DEEDS`.
    Script(Box<[Decision; 3]>),
}

impl Said {
    /// The answer about the command as a whole: if it may do several things, the combination of all answers.
    pub fn whole(self) -> Decision {
        match self {
            Said::Command(decision) => decision,
            Said::Script(each) => {
                let [acquire, extend, release] = *each;
                acquire.and(extend).and(release)
            }
        }
    }

    /// The first answer: for a script, that about an acquire.
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

/// One lock of a permitted command.
#[derive(Clone, Debug)]
pub struct Allowed {
    /// The lock.
    pub lock: Lock,
    /// The obligations for it.
    pub obligations: Obligations,
    /// The rules of its namespace.
    pub rules: Rules,
    /// What a policy would have refused, in monitor mode; in enforce mode, what a reporting rule would have refused.
    pub would: Option<Denial>,
    /// For a script with unknown effect: what applies to each thing that it may do. Then `obligations` are those of an
    /// acquire and an extension.
    pub terms: Option<Box<Terms>>,
}

/// The policies' answers about each thing that a script may do to a lock.
#[derive(Clone, Debug)]
pub struct Terms {
    /// If it takes the lock: the denial, if any.
    pub acquire: Option<Denial>,
    /// If it extends or changes the lease: the proofs that count, and the denial, if any.
    pub extend: (Obligations, Option<Denial>),
    /// If it releases the lock: the same.
    pub release: (Obligations, Option<Denial>),
}

/// A permitted command, with the obligations for each of its locks. Only [`settle`] makes one:
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
    /// The policy's denial that a refusal for this reason comes from, if the policies were asked about each thing that
    /// a script may do.
    pub fn refused_by(&self, reason: Reason) -> Option<&Denial> {
        let terms = self.terms.as_ref()?;
        let denials = [&terms.acquire, &terms.extend.1, &terms.release.1];
        denials.into_iter().flatten().find(|denial| denial.reason == reason)
    }
}

impl Terms {
    /// If no policy was asked: the script may do nothing.
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

    /// What replicas must confirm before its client gets the reply of a success. `None` if nothing is enforced, and for
    /// a command that only releases locks: a lost release keeps a lock held for one TTL, but gives it to no other
    /// client.
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

    /// The lock on which the command must not be executed any more: under the present rules less may be promised than
    /// when it was settled, and the command exceeds that. `None` if it may continue.
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

    /// The command, and its locks, for which names are drawn.
    pub(crate) fn parts(&mut self) -> (&LockCommand, &mut [Allowed]) {
        (&self.command, &mut self.locks)
    }

    /// The command, to be forwarded after all: its step has run nothing.
    pub fn unrun(self, _proof: &NothingRun) -> Box<LockCommand> {
        self.command
    }

    /// Whether refusals are carried out: if any of the locks enforces, for all.
    pub fn enforces(&self) -> bool {
        self.locks.iter().any(|allowed| allowed.rules.mode == Mode::Enforce)
    }
}

/// The first word of an error reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// A policy refused.
    Denied,
    /// A policy failed.
    Policy,
    /// A limit of the proxy.
    Limit,
}

/// A refusal for which Redis is not needed.
#[derive(Clone, Debug)]
pub struct Refused {
    /// The command.
    pub command: Command,
    /// The lock that caused it.
    pub target: Target,
    /// The error's first word.
    pub code: Code,
    /// The reason, the policy and its words.
    pub denial: Denial,
    /// Whether the reply is Redis's own for "nothing happened".
    pub native: bool,
}

impl Refused {
    /// The refusal of a script or function that computes key names; `detail` says what it did or may do.
    pub fn computes_names(command: Command, target: Target, detail: String) -> Refused {
        Refused { command, target, code: Code::Denied, denial: computes_names(detail), native: false }
    }

    /// The refusal of a command that would write one of the proxy's own keys that is about no lock: that key is no
    /// application's data, so this does not depend on a mode.
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

/// Why a script or function that computes key names is refused; `detail` says what it did or may do.
pub fn computes_names(detail: String) -> Denial {
    Denial { detail: Some(detail), ..unsafe_script() }
}

/// What to do with a command.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every command is permitted, and a box would be an allocation for each"
)]
#[derive(Debug)]
pub enum Settled {
    /// One atomic step.
    Permitted(Permitted),
    /// A refusal.
    Refused(Refused),
    /// Monitor mode: forward the client's own command; enforce mode would have given this denial.
    Forward(Forwarded, Denial),
    /// A script that its operator allows to run unjudged.
    Unjudged(Forwarded),
}

/// A command that goes to Redis unchanged. Only [`settle`] makes one:
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

    /// Permission to forward it.
    pub fn pass(&self) -> PassThrough<'_> {
        PassThrough::of(self.0.frame(), false)
    }
}

/// The policy that is named if the proxy itself refuses.
pub fn built_in() -> Arc<str> {
    Arc::from("lockwarden")
}

/// Applies the rules of the namespaces to their chains' answers.
pub fn settle(command: Command, locks: SmallVec<[Judged; 1]>, rules: &dyn Fn(NamespaceId) -> Rules) -> Settled {
    let command = match command {
        Command::Lock(command) => command,
        Command::Opaque(command) => {
            let said = locks.into_iter().next().map(|judged| judged.said.whole());
            let rules = rules(command.target.namespace);
            return settle_opaque(command, said, rules);
        }
    };
    // A refusal affects the whole command, so one enforced lock decides for all.
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
            // A client that releases must know if its release could not even be judged.
            let native = code == Code::Denied
                && rules.on_violation == OnViolation::Native
                && answers_natively(&command.op, &denial);
            if !enforces {
                would = Some(denial);
            } else if native && matches!(command.op, LockOp::ReleaseMany { .. }) {
                // The other keys of the command do not concern this policy.
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

/// A command without a lock meaning cannot be executed on a lock, even if no policy objects.
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

/// A script with unknown effect: the chains' answers about each thing that it may do are kept, because only its run
/// shows which it does.
fn settle_script(
    command: Box<LockCommand>,
    locks: SmallVec<[Judged; 1]>,
    rules: &dyn Fn(NamespaceId) -> Rules,
    enforces: bool,
) -> Settled {
    let has = |judged: &Judged, wanted| rules(judged.lock.target.namespace).scripts == wanted;
    // The strictest setting among the locks counts, because the script runs once for all of them.
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

/// The refusal of a command that would make a lease longer than may be promised now.
fn unpromised(op: &LockOp, obligations: &Obligations, rules: &Rules) -> Option<Denial> {
    rules.longest_ms?;
    let ttl_ms = lengthened_to(op, obligations)?;
    (!rules.may_promise(ttl_ms)).then(quarantine)
}

/// The refusal if less may be promised than was requested.
pub fn quarantine() -> Denial {
    Denial { reason: Reason::Quarantine, detail: None, policy: built_in(), rule: None }
}

/// For a policy a script is an ordinary write; people get this more exact reason.
fn unsafe_script() -> Denial {
    Denial { reason: Reason::UnsafeScript, detail: None, policy: Arc::from("scripts"), rule: None }
}

/// The consequence of a policy's failure.
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

/// Whether a refusal of this operation may look like Redis's own "nothing happened": a release or extension without
/// proof may, but nothing that would be read as a success.
pub fn answers_natively(op: &LockOp, denial: &Denial) -> bool {
    match op {
        LockOp::ReleaseMany { .. } => true,
        LockOp::Release { comparison, .. } => comparison.as_deref().is_none_or(Comparison::has_plain_no),
        LockOp::Extend { spelling, comparison, .. } => {
            *spelling == ExtendSpelling::Expire
                && denial.reason != Reason::NoTtl
                && comparison.as_deref().is_none_or(Comparison::has_plain_no)
        }
        LockOp::Store { only_if_exists, wants_old, .. } => *only_if_exists && !wants_old,
        LockOp::Acquire { .. } | LockOp::Take { .. } | LockOp::AcquireAll { .. } | LockOp::Wrapped { .. } => false,
    }
}

/// Permission to forward a command that could not be judged, in a namespace in monitor mode. `None` if refusals are
/// carried out.
pub fn forward_unjudged(command: &Command, rules: Rules) -> Option<PassThrough<'_>> {
    match rules.mode {
        Mode::Monitor => Some(PassThrough::of(command.frame(), false)),
        Mode::Enforce => None,
    }
}

#[cfg(test)]
pub(crate) mod tests;
