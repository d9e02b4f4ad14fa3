//! What a policy chain is asked and what it answers. The chain itself runs elsewhere (the Wasm
//! host); this module owns the question, the answer and how the answers of several policies are
//! merged into one. Nothing here does I/O or knows about WebAssembly.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::namespace::NamespaceId;
use crate::reason::Reason;
use crate::time::{AskedMs, ProxyTime};
use crate::token::FencingToken;

/// What the client's command means for the lock, whatever its spelling on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Take the lock if it is free.
    Acquire,
    /// Give the current lease a new TTL, or a new value, or both.
    Extend,
    /// Give the lock back.
    Release,
    /// Replace a lease whose holder let its own deadline pass.
    TakeOver,
    /// Look at the lock.
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
    /// The value that the command stores or proves, where it carries one.
    pub owner_token: Option<&'a [u8]>,
    /// The TTL that the command asks for.
    pub ttl_ms: Option<AskedMs>,
    /// Proofs that hold as far as the proxy has seen.
    pub proofs: Proofs,
    /// Circumstances of the command.
    pub traits: Traits,
    /// The newest fencing token that this session was granted for this lock; 0 if none.
    pub fencing_token: FencingToken,
    /// Milliseconds left of this session's own lease as far as the proxy knows; 0 if none.
    pub remaining_ms: u64,
    /// Acquires of this lock by this session in the last ten seconds, as far as this proxy saw.
    pub attempts: u32,
    /// A handle for the `clients.describe` import.
    pub client: u64,
    /// When it is asked.
    pub now: ProxyTime,
}

impl<'a> Question<'a> {
    /// One about this operation by a first attempt that brings nothing along, at some time (2026-01-01T00:00:00Z): what a question is
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

/// Who a client says it is, answered to a policy that asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientDescription {
    /// `CLIENT SETNAME`, empty if none.
    pub name: String,
    /// ACL user, `default` if none.
    pub user: String,
    /// Peer address.
    pub address: String,
    /// The name in its certificate, which was verified.
    pub certificate: Option<String>,
    /// What its application is called.
    pub application: String,
}

/// What a client holds, as far as this proxy has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// The keys of the other locks of its connection in the database of a question, ordered by their fencing tokens, the highest:
    /// [`MAX_HOLDINGS`] at most.
    pub connection: Vec<Bytes>,
    /// How many locks all clients of its application hold.
    pub application: u32,
}

/// The most locks of a connection that a policy is told of.
pub const MAX_HOLDINGS: usize = 32;

/// Who asks, looked up for policies that want to know. A function that describes clients is one of whom nothing else is known.
pub trait WhoAsks {
    /// Who the client with this handle says it is.
    fn describe(&self, client: u64) -> Option<ClientDescription>;

    /// What it holds at this question.
    fn holdings(&self, _: &Question<'_>) -> Holdings {
        Holdings::default()
    }
}

impl<Describe: Fn(u64) -> Option<ClientDescription>> WhoAsks for Describe {
    fn describe(&self, client: u64) -> Option<ClientDescription> {
        self(client)
    }
}

/// Whether a grant is numbered, and how.
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
    /// The word in records and case files; `None` where grants are not numbered.
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

/// What the proxy must do in the same atomic step as the operation. The default says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Obligations {
    /// The lease's TTL where the command names none, in milliseconds.
    pub ttl_default_ms: Option<u64>,
    /// The longest TTL, in milliseconds.
    pub ttl_cap_ms: Option<u64>,
    /// Renew an invented or cut TTL while the holder lives, up to this age in milliseconds.
    pub keep_alive_ms: Option<u64>,
    /// The age in milliseconds at which the holder's own extensions end.
    pub max_hold_ms: Option<u64>,
    /// The operation goes on only if one of these proofs holds; `None` asks for no proof.
    pub require: Option<Proofs>,
    /// Whether a grant is numbered.
    pub fence: Fence,
    /// Go on only if the session's newest fencing token for this lock is the lock's newest.
    pub current_fence_only: bool,
    /// Whether GETSET may replace a lease.
    pub take_over: Option<TakeOverRule>,
}

/// Two policies of one chain want things that exclude each other.
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
    /// Merges what two policies of a chain want. The merge is associative and its neutral element
    /// is the default, so the order of a chain does not matter. At run time a contradiction is
    /// answered by the stricter side (no proof suffices, the first fence stays), but chains are
    /// checked by [`Obligations::contradiction`] when they are loaded.
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

    /// What makes these two impossible to satisfy together, if anything.
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

/// A policy's no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// The refused thing.
    pub reason: Reason,
    /// The policy's own words, for the hint of an error reply.
    pub detail: Option<String>,
    /// The policy that said it.
    pub policy: Arc<str>,
    /// Which of its rules, where it is one of several in a configuration.
    pub rule: Option<Arc<str>>,
}

/// How a policy failed to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// The guest trapped.
    Trap,
    /// The guest passed its deadline.
    Timeout,
    /// The guest used up its fuel.
    Fuel,
    /// The guest wanted more memory or stack than it may have.
    Memory,
    /// The answer was not acceptable, for example longer than allowed.
    BadReply,
    /// It was not asked, because its failures took too much time lately.
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

/// A policy that did not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// How it failed.
    pub kind: FaultKind,
    /// The policy that failed.
    pub policy: Arc<str>,
}

/// What the chain as a whole says. There is no default: a decision that was not made is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No policy said no.
    Permit,
    /// Some policy said no; the words of the first.
    Deny(Denial),
}

/// The merged answer of a chain. `fault` is the first policy that did not answer; it contributed
/// nothing to the rest, and what that means is the namespace's `on_fault`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether anybody said no.
    pub verdict: Verdict,
    /// Merged over the policies that permitted.
    pub obligations: Obligations,
    /// The first policy that did not answer.
    pub fault: Option<Fault>,
    /// What a rule that only reports would have refused. It changes nothing.
    pub reported: Option<Box<Denial>>,
    /// The chain that is to be in force later said it.
    pub by_next: bool,
}

impl Verdict {
    /// The no, if it is one.
    pub fn denial(self) -> Option<Denial> {
        match self {
            Verdict::Permit => None,
            Verdict::Deny(denial) => Some(denial),
        }
    }
}

impl Decision {
    /// Where every policy that was asked permitted, and wanted nothing.
    pub fn permit() -> Decision {
        Decision {
            verdict: Verdict::Permit,
            obligations: Obligations::default(),
            fault: None,
            reported: None,
            by_next: false,
        }
    }

    /// What is said to a command that may turn out as either of two things: the stricter of each.
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

/// A policy chain, as the way of a command sees it. The Wasm host implements it; tests have a fake.
pub trait Decide {
    /// Asks the chain of one namespace. Never blocks longer than the chain's deadlines.
    fn decide(&mut self, namespace: NamespaceId, question: &Question<'_>, who: &dyn WhoAsks) -> Decision;
}
