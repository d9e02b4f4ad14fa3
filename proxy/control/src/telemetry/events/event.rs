//! One thing that happened to a lock, or was kept from happening. Owner tokens come in as
//! fingerprints only.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use lockwarden_lock::decision::{Denial, Operation};
use lockwarden_lock::evidence::DbKey;
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
    /// When, on this machine's clock that only goes on.
    pub at: Instant,
    /// When, Unix time, ms.
    pub at_ms: u64,
    /// What the error reply and the log line of a refusal carry.
    pub id: Option<Box<str>>,
    /// What.
    pub happened: EventKind,
    /// The namespace's name.
    pub namespace: Arc<str>,
    /// How refusals were treated.
    pub mode: Mode,
    /// The lock.
    pub key: DbKey,
    /// The command's name, lower case; empty for what no command did.
    pub command: &'static str,
    /// What the command means to a lock.
    pub operation: Option<Operation>,
    /// Who; `None`: the proxy noticed or did it itself.
    pub caller: Option<Arc<Caller>>,
    /// A former holder acted while another held the lock, whatever came of it.
    pub overlap: bool,
    /// What a release was taken for that did not end the lease, or would not have.
    pub stands_for: StandsFor,
    /// What was decided; `None` where nothing was judged.
    pub verdict: Option<Verdict>,
    /// The owner token that the command carries, or the lease got.
    pub token: Option<Fingerprint>,
    /// The fencing token of the lease that this is about; of a refusal, the lock's newest.
    pub fence: Option<u64>,
    /// The TTL from now on, ms; 0 for none.
    pub ttl_ms: Option<u64>,
    /// The TTL that was asked for, ms; 0 for none.
    pub asked_ms: Option<u64>,
    /// Where nothing is enforced: the terms that enforce mode would have given the lease instead.
    pub would_give: Option<EnforcedTerms>,
    /// How long the lease has been held, ms; of a refusal, the lease that stood in the way.
    pub held_ms: Option<u64>,
    /// The data that the command would write, where the lock guards some.
    pub guarded: Option<Arc<GuardedData>>,
    /// How long the decision took; `None` where nothing was judged.
    pub took: Option<Took>,
    /// What the policies were asked and said; empty unless a follower keeps that.
    pub asked: Box<[Asked]>,
}

impl LockEvent {
    /// For a follower that keeps it for long: without what the policies were asked, and with a key of its own,
    /// because a slice keeps the whole buffer that the client's bytes came in.
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
    /// Whether it was refused, or would have been where nothing is enforced.
    pub fn is_refused(&self) -> bool {
        let verdict = self.verdict.as_ref();
        verdict.is_some_and(|verdict| verdict.reason.is_some())
    }

    /// Something that happened to a lock of this namespace, of which no more is known.
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

/// Data that only the holder of a lock may write, and who wanted to.
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
        /// It is the lease that the client had been granted before without hearing of it.
        again: bool,
        /// It replaced one whose deadline had passed, or, where nothing is enforced, any.
        replaced: bool,
        /// The lease before ran out unreleased, unnoticed until now.
        ran_out: bool,
        /// Keep-alive renews it.
        kept: bool,
    },
    /// The lock is held.
    Contended {
        /// This very connection does: several threads share it.
        own: bool,
    },
    /// The lease goes on with another TTL or value.
    Extended {
        /// Keep-alive renews it.
        kept: bool,
    },
    /// The lock is free now.
    Released {
        /// Its deadline had passed, and a client that had read that deleted it.
        taken_over: bool,
    },
    /// There was no lease to release, extend or write over.
    Absent {
        /// The connection's own lease had run out, unnoticed until now.
        ran_out: bool,
    },
    /// A lease ran out before its holder gave it back, noticed by the proxy itself.
    RanOut,
    /// The server that became the primary does not have the lease.
    Lost,
    /// Nothing was done.
    Refused,
    /// The command's own comparison failed.
    Different,
    /// The command's own condition did not hold, or a script left the lock as it was.
    Unchanged,
    /// The lease has no record: Redis alone answered.
    Ungoverned,
    /// Forwarded unjudged.
    Unjudged(UnjudgedWhy),
    /// Forwarded as it came, though it was judged; what came of it is not known.
    Forwarded,
    /// A lease was granted and given back, because too few replicas confirmed it: its client was told that it has not got it.
    Unconfirmed,
    /// Redis answered with an error.
    Failed,
    /// A finding about how the lock is used.
    Observed(Observation),
    /// An operator ended the lease.
    Broken,
    /// The holder is gone, and the lease was shortened.
    HolderLost,
}

impl EventKind {
    /// The one word for it in the API and in the audit trail.
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
    /// Allowed, changed, refused, or only said to be refused in enforce mode.
    pub kind: DecisionKind,
    /// Why it was, or would have been, refused.
    pub reason: Option<Reason>,
    /// By which policy.
    pub policy: Box<str>,
    /// By which of its rules.
    pub rule: Option<Box<str>>,
    /// The policy's own words.
    pub detail: Option<Box<str>>,
}

impl Verdict {
    /// Allowed, as asked or with another TTL.
    pub fn permitted(kind: DecisionKind) -> Verdict {
        Verdict { kind, reason: None, policy: "".into(), rule: None, detail: None }
    }

    /// Refused, or only said to be.
    pub fn refused(kind: DecisionKind, reason: Reason, policy: &str, detail: Option<&str>) -> Verdict {
        Verdict { kind, reason: Some(reason), policy: policy.into(), rule: None, detail: detail.map(Into::into) }
    }

    /// By this rule of its policy.
    pub fn of_rule(self, rule: Option<&str>) -> Verdict {
        Verdict { rule: rule.map(Into::into), ..self }
    }

    /// Let through where nothing is enforced.
    pub fn would_refuse(denial: &Denial) -> Verdict {
        Verdict::refused(DecisionKind::WouldDeny, denial.reason, &denial.policy, denial.detail.as_deref())
            .of_rule(denial.rule.as_deref())
    }
}

/// How long a decision took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Took {
    /// The policies, and making a step of what they said.
    pub judging: Duration,
    /// From then on until Redis had answered. `None` where it had no part in the decision, and inside
    /// a block, where its answer comes with all others at EXEC.
    pub redis: Option<Duration>,
}

impl Took {
    /// All of it.
    pub(crate) fn whole(&self) -> Duration {
        self.judging + self.redis.unwrap_or_default()
    }
}

/// The user of a connection that has not logged in as another one.
pub const DEFAULT_USER: &[u8] = b"default";

/// This process's number for a session, or for the job of one that is gone; for as long as the process lives. On Redis, and
/// to other proxies, a session goes by its `SessionId`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionNumber(pub u64);

/// A client, as it presented itself at that moment.
#[derive(Clone)]
pub struct Caller {
    pub session: SessionNumber,
    /// Where it comes from.
    pub address: PeerAddress,
    /// `CLIENT SETNAME`; empty for none.
    pub name: Bytes,
    /// The user that it logged in as.
    pub user: Bytes,
    /// `CLIENT SETINFO`: its library and that one's version, spelled.
    pub library: Option<Arc<str>>,
    /// What its application is known by beside that; may be learnt later.
    pub known_by: Arc<KnownBy>,
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Caller({:?} {})", self.session, self.address)
    }
}

impl Caller {
    /// What tells one application from another: what the operator calls it; else the name that its connections
    /// take, as it is, because whether `worker-7` is the seventh of several is for its owner to know; else the user,
    /// where it logged in as one; else the name in its certificate; else its process, where that was found; else where it
    /// comes from. It may be another one later: see [`KnownBy::stamp`].
    pub fn application(&self) -> String {
        self.program().unwrap_or_else(|| self.steady_application())
    }

    /// The same without its process, which is found a moment later, where no `[[application]]` goes by it. This is what policies
    /// are told.
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

    /// What is known of its application beyond what the client says of itself: what the operator calls it, or, of a
    /// nameless one, its process.
    pub(crate) fn told_by_others(&self) -> Option<String> {
        self.named().map(|named| named.to_string()).or_else(|| self.program())
    }

    /// The process of one that says nothing else of itself, where that was found.
    pub fn program(&self) -> Option<String> {
        let program = self.known_by.program().filter(|_| self.is_nameless() && self.named().is_none())?;
        Some(program.label().to_owned())
    }

    /// Whether it tells itself from others of its address: by its process, a name, or a user of its own.
    pub fn is_distinctive(&self) -> bool {
        let is_known = matches!(self.known_by.process(), Process::Known(_));
        let has_user = !self.user.is_empty() && self.user != DEFAULT_USER;
        is_known || has_user || !self.name.is_empty()
    }

    /// Whether both may be one client, as far as they tell: their users, names and addresses are equal, and their processes
    /// are not known to differ. The scripts compare the same of a record (`kin`).
    pub fn may_be(&self, other: &Caller) -> bool {
        let processes = (self.known_by.process(), other.known_by.process());
        let differ = matches!(processes, (Process::Known(one), Process::Known(two)) if one != two);
        let looks = |caller: &Caller| (caller.user.clone(), caller.name.clone(), caller.address.host());
        let certificate = self.known_by.certificate() == other.known_by.certificate();
        !differ && certificate && looks(self) == looks(other)
    }

    /// What the operator calls its application.
    pub fn named(&self) -> Option<Arc<str>> {
        self.known_by.named(&Looks {
            name: &self.name,
            user: &self.user,
            address: self.address,
            certificate: self.known_by.certificate(),
            entrance: self.known_by.entrance(),
        })
    }

    /// Whether its process would tell more of it, and may be asked for.
    pub fn wants_program(&self) -> bool {
        self.known_by.wants_program(|| self.is_nameless())
    }

    /// Whether it cannot be told from others on its machine, because the proxy may not see its process.
    pub fn is_hidden(&self) -> bool {
        self.known_by.is_hidden() && self.is_nameless()
    }

    /// Whether it says nothing of itself that tells it from others, and has no certificate that does.
    fn is_nameless(&self) -> bool {
        self.name.is_empty()
            && (self.user.is_empty() || self.user == DEFAULT_USER)
            && self.known_by.certificate().is_none()
    }
}

/// A plain entry, for the tests of what reads events.
pub fn example(key: &'static str) -> LockEvent {
    let now = Moment { at: Instant::now(), unix_ms: 1_790_000_000_000 };
    let key = DbKey::new(0, Bytes::from_static(key.as_bytes()));
    let happened = EventKind::Contended { own: false };
    LockEvent {
        command: "setnx",
        operation: Some(Operation::Acquire),
        ..LockEvent::new(now, happened, ("orders".into(), Mode::Enforce), key)
    }
}
