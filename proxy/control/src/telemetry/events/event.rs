//! One thing that happened to a lock, or was prevented. Owner tokens occur only as fingerprints.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::decision::{Denial, Operation};
use lockwarden_lock::outcome::StandsFor;
use lockwarden_lock::plan::EnforcedTerms;
use lockwarden_lock::reason::Reason;
use lockwarden_lock::rules::Mode;
use lockwarden_lock::token::Process;

use super::fingerprint::Fingerprint;
use super::questions::Asked;
use crate::clock::Moment;
use crate::net::peer::PeerAddress;
use crate::telemetry::applications::{KnownBy, Looks};
use crate::telemetry::vocabulary::{DecisionKind, Observation, UnjudgedWhy};
use crate::text::escape::spell;

/// See the module.
#[derive(Clone, Debug)]
pub struct LockEvent {
    /// When, on this machine's monotonic clock.
    pub at: Instant,
    /// When, Unix time, ms.
    pub at_ms: u64,
    /// The id in the error reply and the log line of a refusal.
    pub id: Option<Box<str>>,
    /// What.
    pub happened: EventKind,
    /// The namespace's name.
    pub namespace: Arc<str>,
    /// How refusals were treated.
    pub mode: Mode,
    /// The lock.
    pub key: DbKey,
    /// The command's name, lower case; empty if no command caused this.
    pub command: &'static str,
    /// The command's operation on the lock.
    pub operation: Option<Operation>,
    /// The client; `None`: the proxy noticed or did it itself.
    pub caller: Option<Arc<Caller>>,
    /// A former holder acted while another held the lock, whatever the result.
    pub overlap: bool,
    /// How a release that did not end the lease, or would not have, was interpreted.
    pub stands_for: StandsFor,
    /// What was decided; `None` where nothing was judged.
    pub verdict: Option<Verdict>,
    /// The owner token that the command carries, or the lease got.
    pub token: Option<Fingerprint>,
    /// The fencing token of the lease in question; for a refusal, the lock's newest.
    pub fence: Option<u64>,
    /// The TTL from now on, ms; 0 for none.
    pub ttl_ms: Option<u64>,
    /// The requested TTL, ms; 0 for none.
    pub asked_ms: Option<u64>,
    /// Where nothing is enforced: the terms that the lease would have had in enforce mode.
    pub would_give: Option<EnforcedTerms>,
    /// How long the lease has been held, ms; for a refusal, the lease in the way.
    pub held_ms: Option<u64>,
    /// The data that the command would write, if the lock guards it.
    pub guarded: Option<Arc<GuardedData>>,
    /// How long the decision took; `None` where nothing was judged.
    pub took: Option<Took>,
    /// The questions to the policies and their answers; empty unless a follower stores them.
    pub asked: Box<[Asked]>,
}

impl LockEvent {
    /// A copy for a follower that stores it for long: without the questions to the policies, and with a key of its own,
    /// because a slice keeps the whole buffer of the client's bytes alive.
    pub fn in_short(&self, key: DbKey) -> LockEvent {
        LockEvent {
            at: self.at,
            at_ms: self.at_ms,
            id: self.id.clone(),
            happened: self.happened,
            namespace: self.namespace.clone(),
            mode: self.mode,
            key,
            command: self.command,
            operation: self.operation,
            caller: self.caller.clone(),
            overlap: self.overlap,
            stands_for: self.stands_for,
            verdict: self.verdict.clone(),
            token: self.token,
            fence: self.fence,
            ttl_ms: self.ttl_ms,
            asked_ms: self.asked_ms,
            would_give: self.would_give,
            held_ms: self.held_ms,
            guarded: self.guarded.clone(),
            took: self.took,
            asked: Box::default(),
        }
    }
}

impl LockEvent {
    /// Whether it was refused, or would have been in enforce mode.
    pub fn is_refused(&self) -> bool {
        let verdict = self.verdict.as_ref();
        verdict.is_some_and(|verdict| verdict.reason.is_some())
    }

    /// Something that happened to a lock of this namespace, without further details.
    pub fn new(now: Moment, happened: EventKind, (namespace, mode): (Arc<str>, Mode), key: DbKey) -> LockEvent {
        LockEvent {
            at: now.at,
            at_ms: now.unix_ms,
            id: None,
            happened,
            namespace,
            mode,
            key,
            command: "",
            operation: None,
            caller: None,
            overlap: false,
            stands_for: StandsFor::Nothing,
            verdict: None,
            token: None,
            fence: None,
            ttl_ms: None,
            asked_ms: None,
            would_give: None,
            held_ms: None,
            guarded: None,
            took: None,
            asked: Box::default(),
        }
    }
}

/// Data that only the holder of a lock may write, and the attempt to write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardedData {
    /// The `[[guard]]`.
    pub guard: Arc<str>,
    /// The key.
    pub key: Bytes,
    /// The fencing token of the writer's own lease.
    pub own_fence: Option<u64>,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A lease began.
    Acquired {
        /// It is the lease that the client had been granted before, but whose reply was lost.
        again: bool,
        /// It replaced a lease whose deadline had passed; where nothing is enforced, any lease.
        replaced: bool,
        /// The lease before it expired unreleased, which was not noticed until now.
        ran_out: bool,
        /// Keep-alive renews it.
        kept: bool,
    },
    /// The lock is held.
    Contended {
        /// By this same connection, which several threads share.
        own: bool,
    },
    /// The lease continues with another TTL or value.
    Extended {
        /// Keep-alive renews it.
        kept: bool,
    },
    /// The lock is free now.
    Released {
        /// Its deadline had passed, and it was deleted by a client that had read the deadline.
        taken_over: bool,
    },
    /// There was no lease to release, extend or overwrite.
    Absent {
        /// The connection's own lease had expired, which was not noticed until now.
        ran_out: bool,
    },
    /// A lease expired before its holder released it; the proxy itself noticed.
    RanOut,
    /// The new primary does not have the lease.
    Lost,
    /// Nothing was done.
    Refused,
    /// The command's own comparison failed.
    Different,
    /// The command's own condition did not hold, or a script left the lock as it was.
    Unchanged,
    /// The lease has no record: Redis alone decided.
    Ungoverned,
    /// Forwarded unjudged.
    Unjudged(UnjudgedWhy),
    /// Forwarded unchanged, though it was judged; the result is unknown.
    Forwarded,
    /// A lease was granted and released again, because too few replicas confirmed it: the client was told that it does
    /// not hold the lock.
    Unconfirmed,
    /// Redis replied with an error.
    Failed,
    /// A finding about how the lock is used.
    Observed(Observation),
    /// An operator ended the lease.
    Broken,
    /// The holder is gone, and the lease was shortened.
    HolderLost,
}

impl EventKind {
    /// The word for it in the API and in the audit trail.
    pub fn word(self) -> &'static str {
        match self {
            EventKind::Acquired { .. } => "acquired",
            EventKind::Contended { .. } => "contended",
            EventKind::Extended { .. } => "extended",
            EventKind::Released { .. } => "released",
            EventKind::Absent { .. } => "absent",
            EventKind::RanOut => "ran-out",
            EventKind::Lost => "lease-lost",
            EventKind::Refused => "refused",
            EventKind::Different => "different",
            EventKind::Unchanged => "unchanged",
            EventKind::Ungoverned => "ungoverned",
            EventKind::Unjudged(_) => "unjudged",
            EventKind::Forwarded => "forwarded",
            EventKind::Unconfirmed => "unconfirmed",
            EventKind::Failed => "failed",
            EventKind::Observed(_) => "observed",
            EventKind::Broken => "broken",
            EventKind::HolderLost => "holder-lost",
        }
    }
}

/// What was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Allowed, changed, refused, or, although in enforce mode, only reported as refused.
    pub kind: DecisionKind,
    /// Why it was refused, or would have been.
    pub reason: Option<Reason>,
    /// By which policy.
    pub policy: Box<str>,
    /// The rule of that policy.
    pub rule: Option<Box<str>>,
    /// The policy's own words.
    pub detail: Option<Box<str>>,
}

impl Verdict {
    /// Allowed, unchanged or with another TTL.
    pub fn permitted(kind: DecisionKind) -> Verdict {
        Verdict { kind, reason: None, policy: "".into(), rule: None, detail: None }
    }

    /// Refused, or only reported as refused.
    pub fn refused(kind: DecisionKind, reason: Reason, policy: &str, detail: Option<&str>) -> Verdict {
        Verdict { kind, reason: Some(reason), policy: policy.into(), rule: None, detail: detail.map(Into::into) }
    }

    /// Adds the rule of its policy.
    pub fn of_rule(self, rule: Option<&str>) -> Verdict {
        Verdict { rule: rule.map(Into::into), ..self }
    }

    /// Forwarded because nothing is enforced.
    pub fn would_refuse(denial: &Denial) -> Verdict {
        Verdict::refused(DecisionKind::WouldDeny, denial.reason, &denial.policy, denial.detail.as_deref())
            .of_rule(denial.rule.as_deref())
    }
}

/// How long a decision took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Took {
    /// The policies, and making a plan step of their answers.
    pub judging: Duration,
    /// From then until Redis replied. `None` if Redis had no part in the decision, and inside `MULTI`, where its reply
    /// comes with all others at EXEC.
    pub redis: Option<Duration>,
}

impl Took {
    /// The sum of both.
    pub(crate) fn whole(&self) -> Duration {
        self.judging + self.redis.unwrap_or_default()
    }
}

/// The user of a connection that has not logged in as another user.
pub const DEFAULT_USER: &[u8] = b"default";

/// This process's number for a session, or for the job of a session that has ended; valid for the life of the process.
/// On Redis, and to other proxies, a session is identified by its `SessionId`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionNumber(pub u64);

/// A client, with the identity that it had at that moment.
#[derive(Clone)]
pub struct Caller {
    pub session: SessionNumber,
    /// Where it comes from.
    pub address: PeerAddress,
    /// `CLIENT SETNAME`; empty for none.
    pub name: Bytes,
    /// The user that it logged in as.
    pub user: Bytes,
    /// `CLIENT SETINFO`: its library and the library's version, escaped.
    pub library: Option<Arc<str>>,
    /// What else is known of its application; may be learnt later.
    pub known_by: Arc<KnownBy>,
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Caller({:?} {})", self.session, self.address)
    }
}

impl Caller {
    /// The application's name, from the first of these that is known: the operator's name for it; the name that its
    /// connections set, unchanged, because only its owner knows whether `worker-7` is the seventh of several; the user,
    /// if it logged in as one; the name in its certificate; its process, if found; its address. It may change later:
    /// see [`KnownBy::stamp`].
    pub fn application(&self) -> String {
        self.program().unwrap_or_else(|| self.steady_application())
    }

    /// The same without its process, which is found a moment later, unless an `[[application]]` matched by it. This is
    /// the name that policies get.
    pub fn steady_application(&self) -> String {
        if let Some(named) = self.named() {
            return named.to_string();
        }
        if !self.name.is_empty() {
            return spell(&self.name);
        }
        if !self.user.is_empty() && self.user != DEFAULT_USER {
            return spell(&self.user);
        }
        match self.known_by.certificate() {
            Some(certificate) => spell(certificate.as_bytes()),
            None => self.address.host(),
        }
    }

    /// What is known of its application beyond what the client itself sends: the operator's name for it, or, for a
    /// nameless client, its process.
    pub(crate) fn told_by_others(&self) -> Option<String> {
        self.named().map(|named| named.to_string()).or_else(|| self.program())
    }

    /// The process of a client that sends no other identity, if it was found.
    pub fn program(&self) -> Option<String> {
        let program = self.known_by.program().filter(|_| self.is_nameless() && self.named().is_none())?;
        Some(program.label().to_owned())
    }

    /// Whether it differs from other clients with its address: by its process, a name, or a user of its own.
    pub fn is_distinctive(&self) -> bool {
        let is_known = matches!(self.known_by.process(), Process::Known(_));
        let has_user = !self.user.is_empty() && self.user != DEFAULT_USER;
        is_known || has_user || !self.name.is_empty()
    }

    /// Whether both may be the same client, as far as is known: their users, names and addresses are equal, and their
    /// processes are not known to differ. The scripts make the same comparison with a record (`kin`).
    pub fn may_be(&self, other: &Caller) -> bool {
        let processes = (self.known_by.process(), other.known_by.process());
        let differ = matches!(processes, (Process::Known(one), Process::Known(two)) if one != two);
        !differ
            && self.user == other.user
            && self.name == other.name
            && self.address.ip() == other.address.ip()
            && self.known_by.certificate() == other.known_by.certificate()
    }

    /// The operator's name for its application.
    pub fn named(&self) -> Option<Arc<str>> {
        self.known_by.named(&Looks {
            name: &self.name,
            user: &self.user,
            address: self.address,
            certificate: self.known_by.certificate(),
            entrance: self.known_by.entrance(),
        })
    }

    /// Whether its process would identify it better, and may be looked up.
    pub fn wants_program(&self) -> bool {
        self.known_by.wants_program(|| self.is_nameless())
    }

    /// Whether it cannot be distinguished from others on its machine, because the proxy may not inspect its process.
    pub fn is_hidden(&self) -> bool {
        self.known_by.is_hidden() && self.is_nameless()
    }

    /// Whether it sends nothing that distinguishes it from others, and has no certificate that does.
    fn is_nameless(&self) -> bool {
        self.name.is_empty()
            && (self.user.is_empty() || self.user == DEFAULT_USER)
            && self.known_by.certificate().is_none()
    }
}

/// A plain entry, for tests of code that reads events.
pub fn example(key: &'static str) -> LockEvent {
    let now = Moment { at: Instant::now(), unix_ms: 1_790_000_000_000 };
    let key = DbKey::new(0, key.as_bytes());
    let happened = EventKind::Contended { own: false };
    LockEvent {
        command: "setnx",
        operation: Some(Operation::Acquire),
        ..LockEvent::new(now, happened, ("orders".into(), Mode::Enforce), key)
    }
}
