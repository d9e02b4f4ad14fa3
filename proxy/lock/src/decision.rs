//! The question to a policy chain, and its answer. The chain itself runs elsewhere (the Wasm host); this module owns
//! the question, the answer and how the answers of several policies are merged into one. Nothing here does I/O or knows
//! about WebAssembly.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::namespace::NamespaceId;
use crate::reason::Reason;
use crate::time::{AskedMs, ProxyTime};
use crate::token::FencingToken;

/// What the client's command means for the lock, however it is spelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Take the lock if it is free.
    Acquire,
    /// Give the current lease a new TTL, or a new value, or both.
    Extend,
    /// Release the lock.
    Release,
    /// Replace a lease whose holder let its own deadline pass.
    TakeOver,
    /// Read the lock.
    Inspect,
    /// Any other change of a lock key.
    Write,
    /// A write to a data key that a lock protects.
    GuardedWrite,
}

impl Operation {
    /// Every operation.
    pub const ALL: [Operation; 7] = [
        Operation::Acquire,
        Operation::Extend,
        Operation::Release,
        Operation::TakeOver,
        Operation::Inspect,
        Operation::Write,
        Operation::GuardedWrite,
    ];

    /// The word used in records and logs.
    pub const fn word(self) -> &'static str {
        match self {
            Operation::Acquire => "acquire",
            Operation::Extend => "extend",
            Operation::Release => "release",
            Operation::TakeOver => "take-over",
            Operation::Inspect => "inspect",
            Operation::Write => "write",
            Operation::GuardedWrite => "guarded-write",
        }
    }
}

/// A small set of named bits, printed by name.
macro_rules! bit_set {
    ($(#[$doc:meta])* $name:ident { $($(#[$bit_doc:meta])* $bit:ident = $value:expr, $word:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
        pub struct $name(u8);

        impl $name {
            /// The empty set.
            pub const NONE: $name = $name(0);
            $($(#[$bit_doc])* pub const $bit: $name = $name($value);)*

            /// Every member with the word it is known by.
            pub const WORDS: &'static [($name, &'static str)] = &[$(($name::$bit, $word)),*];

            /// The set as bits; the layout is private to this process.
            pub const fn bits(self) -> u8 {
                self.0
            }

            /// The words of the set's members.
            pub fn words(self) -> impl Iterator<Item = &'static str> {
                let members = $name::WORDS.iter().filter(move |(bit, _)| self.contains(*bit));
                members.map(|(_, word)| *word)
            }

            /// Whether every member of `other` is in this set.
            pub const fn contains(self, other: $name) -> bool {
                self.0 & other.0 == other.0
            }

            /// Whether the set has no member.
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }

            /// The members of both sets.
            #[must_use]
            pub const fn union(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }

            /// The members that are in both sets.
            #[must_use]
            pub const fn intersection(self, other: $name) -> $name {
                $name(self.0 & other.0)
            }

            /// The members of this set that are not in `other`.
            #[must_use]
            pub const fn without(self, other: $name) -> $name {
                $name(self.0 & !other.0)
            }

            /// This set with `other` added where `condition` holds.
            #[must_use]
            pub const fn with_if(self, condition: bool, other: $name) -> $name {
                if condition { self.union(other) } else { self }
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_set().entries(self.words()).finish()
            }
        }
    };
}

bit_set! {
    /// Proofs of ownership. In a question: those that hold as far as the proxy has seen. In
    /// obligations: any one of these must hold, checked again in the atomic step.
    Proofs {
        /// The command carries the stored value.
        TOKEN = 1, "token";
        /// This connection made the current grant.
        SESSION = 2, "session";
        /// This connection read the value under the current grant.
        OBSERVED = 4, "observed";
        /// The client has the same distinctive identity as the grant.
        IDENTITY = 8, "identity";
    }
}

impl Proofs {
    /// Every proof.
    pub const ALL: Proofs = Proofs(15);
}

bit_set! {
    /// Circumstances of a command that a policy may care about.
    Traits {
        /// The command has its own condition (NX, XX, IFEQ, EXPIRE … GT).
        CONDITIONAL = 1, "conditional";
        /// Queued in a MULTI block.
        TRANSACTIONAL = 2, "transactional";
        /// Sent as a script.
        SCRIPTED = 4, "scripted";
        /// The namespace is in monitor mode: the verdict is only counted.
        MONITORED = 8, "monitored";
        /// Others were granted a lock with this owner token in the last hour, as far as this
        /// proxy has seen.
        SHARED_TOKEN = 16, "shared-token";
        /// This connection's last acquire of this lock was refused, with no grant to it since.
        REFUSED_SINCE = 32, "refused-since";
    }
}

/// One operation with its facts, as every policy of a chain is asked about it.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// What the command means for the lock.
    pub operation: Operation,
    /// The logical database.
    pub db: u32,
    /// The lock key, exactly as sent.
    pub key: &'a [u8],
    /// The value that the command stores or proves, if it has one.
    pub owner_token: Option<&'a [u8]>,
    /// The TTL that the command requests.
    pub ttl_ms: Option<AskedMs>,
    /// Proofs that hold as far as the proxy has seen.
    pub proofs: Proofs,
    /// Circumstances of the command.
    pub traits: Traits,
    /// The newest fencing token that this session was granted for this lock; 0 if none.
    pub fencing_token: FencingToken,
    /// Milliseconds left of this session's own lease, as far as the proxy knows; 0 if none.
    pub remaining_ms: u64,
    /// Acquires of this lock by this session in the last ten seconds, as far as this proxy saw.
    pub attempts: u32,
    /// A handle for the `clients.describe` import.
    pub client: u64,
    /// The time of the question.
    pub now: ProxyTime,
}

impl<'a> Question<'a> {
    /// A question about this operation, for a first attempt without any proofs, at a fixed time (2026-01-01T00:00:00Z):
    /// a base for questions that set only some fields.
    /// made of that says a part of this only.
    pub fn plain(operation: Operation, key: &'a [u8]) -> Question<'a> {
        Question {
            operation,
            db: 0,
            key,
            owner_token: None,
            ttl_ms: None,
            proofs: Proofs::NONE,
            traits: Traits::NONE,
            fencing_token: FencingToken(0),
            remaining_ms: 0,
            attempts: 1,
            client: 0,
            now: ProxyTime(1_767_225_600_000),
        }
    }
}

/// A client's identity, for a policy that asks for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientDescription {
    /// `CLIENT SETNAME`, empty if none.
    pub name: String,
    /// ACL user, `default` if none.
    pub user: String,
    /// Peer address.
    pub address: String,
    /// The verified name in its certificate.
    pub certificate: Option<String>,
    /// The name of its application.
    pub application: String,
}

/// The locks that a client holds, as far as this proxy has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// The keys of the connection's other locks in the question's database, ordered by fencing token; only the highest,
    /// [`MAX_HOLDINGS`] at most.
    pub connection: Vec<Bytes>,
    /// How many locks all clients of its application hold.
    pub application: u32,
}

/// The most locks of a connection that a policy is told about.
pub const MAX_HOLDINGS: usize = 32;

/// Looks up the client for policies that ask for it. A function that describes clients is an implementation that knows
/// nothing else.
pub trait WhoAsks {
    /// The identity of the client with this handle.
    fn describe(&self, client: u64) -> Option<ClientDescription>;

    /// The locks that it holds at the time of this question.
    fn holdings(&self, _: &Question<'_>) -> Holdings {
        Holdings::default()
    }
}

impl<Describe: Fn(u64) -> Option<ClientDescription>> WhoAsks for Describe {
    fn describe(&self, client: u64) -> Option<ClientDescription> {
        self(client)
    }
}

/// Whether grants are numbered, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fence {
    /// Not numbered.
    #[default]
    None,
    /// max(stored + 1, Redis TIME in µs).
    Hybrid,
    /// stored + 1.
    Sequential,
}

impl Fence {
    /// The word in records and case files; `None` if grants are not numbered.
    pub const fn word(self) -> Option<&'static str> {
        match self {
            Fence::None => None,
            Fence::Hybrid => Some("hybrid"),
            Fence::Sequential => Some("sequential"),
        }
    }
}

/// Whether GETSET may replace a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TakeOverRule {
    /// No lease is taken over.
    Never,
    /// A lease whose value is a deadline that has passed on Redis's clock may be taken over.
    AfterDeadline,
}

impl TakeOverRule {
    /// The word in records and case files.
    pub const fn word(self) -> &'static str {
        match self {
            TakeOverRule::Never => "never",
            TakeOverRule::AfterDeadline => "after-deadline",
        }
    }
}

/// What the proxy must do in the same atomic step as the operation. The default requires nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Obligations {
    /// The lease's TTL if the command requests none, in milliseconds.
    pub ttl_default_ms: Option<u64>,
    /// The longest TTL, in milliseconds.
    pub ttl_cap_ms: Option<u64>,
    /// Renew a default or shortened TTL while the holder lives, up to this age in milliseconds.
    pub keep_alive_ms: Option<u64>,
    /// The age in milliseconds at which the holder's own extensions end.
    pub max_hold_ms: Option<u64>,
    /// The operation continues only if one of these proofs holds; `None` requires no proof.
    pub require: Option<Proofs>,
    /// Whether a grant is numbered.
    pub fence: Fence,
    /// Continue only if the session's newest fencing token for this lock is the lock's newest.
    pub current_fence_only: bool,
    /// Whether GETSET may replace a lease.
    pub take_over: Option<TakeOverRule>,
}

/// Two policies of one chain have requirements that exclude each other.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Contradiction {
    /// No proof satisfies every policy.
    #[error("no proof of ownership would satisfy both ({0:?} and {1:?} have nothing in common)")]
    NoCommonProof(Proofs, Proofs),
    /// Two kinds of fencing counter.
    #[error("one counts fencing tokens as {0:?}, the other as {1:?}")]
    TwoFences(Fence, Fence),
}

impl Obligations {
    /// Merges the requirements of two policies of a chain. The merge is associative and its neutral element is the
    /// default, so the order of a chain does not matter. At run time a contradiction is resolved on the stricter side
    /// (no proof suffices, the first fence stays), but chains are checked by [`Obligations::contradiction`] when they
    /// are loaded.
    #[must_use]
    pub fn merge(self, other: Obligations) -> Obligations {
        let ttl_cap_ms = smaller(self.ttl_cap_ms, other.ttl_cap_ms);
        Obligations {
            ttl_default_ms: clip(smaller(self.ttl_default_ms, other.ttl_default_ms), ttl_cap_ms),
            ttl_cap_ms,
            keep_alive_ms: smaller(self.keep_alive_ms, other.keep_alive_ms),
            max_hold_ms: smaller(self.max_hold_ms, other.max_hold_ms),
            require: match (self.require, other.require) {
                (Some(a), Some(b)) => Some(a.intersection(b)),
                (a, b) => a.or(b),
            },
            fence: match self.fence {
                Fence::None => other.fence,
                Fence::Hybrid | Fence::Sequential => self.fence,
            },
            current_fence_only: self.current_fence_only || other.current_fence_only,
            take_over: match (self.take_over, other.take_over) {
                (Some(TakeOverRule::Never), _) | (_, Some(TakeOverRule::Never)) => Some(TakeOverRule::Never),
                (a, b) => a.or(b),
            },
        }
    }

    /// What makes it impossible to satisfy both, if anything.
    pub fn contradiction(&self, other: &Obligations) -> Option<Contradiction> {
        if let (Some(a), Some(b)) = (self.require, other.require)
            && a.intersection(b).is_empty()
        {
            return Some(Contradiction::NoCommonProof(a, b));
        }
        match (self.fence, other.fence) {
            (Fence::Hybrid, Fence::Sequential) | (Fence::Sequential, Fence::Hybrid) => {
                Some(Contradiction::TwoFences(self.fence, other.fence))
            }
            (Fence::None | Fence::Hybrid | Fence::Sequential, _) => None,
        }
    }
}

fn smaller(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

fn clip(value: Option<u64>, cap: Option<u64>) -> Option<u64> {
    match (value, cap) {
        (Some(value), Some(cap)) => Some(value.min(cap)),
        (value, _) => value,
    }
}

/// A policy's refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The reason of the refusal.
    pub reason: Reason,
    /// The policy's own words, for the hint of an error reply.
    pub detail: Option<String>,
    /// The policy that refused.
    pub policy: Arc<str>,
    /// The rule of that policy, if it has several in a configuration.
    pub rule: Option<Arc<str>>,
}

/// How a policy failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// The guest trapped.
    Trap,
    /// The guest passed its deadline.
    Timeout,
    /// The guest used up its fuel.
    Fuel,
    /// The guest needed more memory or stack than it may have.
    Memory,
    /// The answer was invalid, for example longer than allowed.
    BadReply,
    /// It was not asked, because its recent failures took too much time.
    BreakerOpen,
}

impl FaultKind {
    /// Every kind, for metrics that exist from the start.
    pub const ALL: [FaultKind; 6] = [
        FaultKind::Trap,
        FaultKind::Timeout,
        FaultKind::Fuel,
        FaultKind::Memory,
        FaultKind::BadReply,
        FaultKind::BreakerOpen,
    ];

    /// The word used in metrics and logs.
    pub const fn word(self) -> &'static str {
        match self {
            FaultKind::Trap => "trap",
            FaultKind::Timeout => "timeout",
            FaultKind::Fuel => "fuel",
            FaultKind::Memory => "memory",
            FaultKind::BadReply => "bad-reply",
            FaultKind::BreakerOpen => "breaker-open",
        }
    }
}

/// A policy that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// How it failed.
    pub kind: FaultKind,
    /// The policy that failed.
    pub policy: Arc<str>,
}

/// The verdict of the whole chain. There is no default: a missing decision must not look like one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No policy refused.
    Permit,
    /// Some policy refused; with the reason and words of the first.
    Deny(Denial),
}

/// The merged answer of a chain. `fault` is the first policy that failed; it contributed nothing to the rest, and the
/// namespace's `on_fault` decides what its failure means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether any policy refused.
    pub verdict: Verdict,
    /// Merged from the policies that permitted.
    pub obligations: Obligations,
    /// The first policy that failed.
    pub fault: Option<Fault>,
    /// What a rule that only reports would have refused. It has no effect.
    pub reported: Option<Box<Denial>>,
    /// The answer is that of the `next` chain.
    pub by_next: bool,
}

impl Verdict {
    /// The denial, if it is one.
    pub fn denial(self) -> Option<Denial> {
        match self {
            Verdict::Permit => None,
            Verdict::Deny(denial) => Some(denial),
        }
    }
}

impl Decision {
    /// The answer if every policy permitted and required nothing.
    pub fn permit() -> Decision {
        Decision {
            verdict: Verdict::Permit,
            obligations: Obligations::default(),
            fault: None,
            reported: None,
            by_next: false,
        }
    }

    /// The answer for a command that may turn out as either of two operations: the stricter of each part.
    #[must_use]
    pub fn and(self, other: Decision) -> Decision {
        Decision {
            verdict: match self.verdict {
                Verdict::Deny(denial) => Verdict::Deny(denial),
                Verdict::Permit => other.verdict,
            },
            obligations: self.obligations.merge(other.obligations),
            fault: self.fault.or(other.fault),
            reported: self.reported.or(other.reported),
            by_next: self.by_next,
        }
    }
}

/// A policy chain, as seen by the command path. The Wasm host implements it; tests have a fake.
pub trait Decide {
    /// Asks the chain of one namespace. Never blocks longer than the chain's deadlines.
    fn decide(&mut self, namespace: NamespaceId, question: &Question<'_>, who: &dyn WhoAsks) -> Decision;
}
