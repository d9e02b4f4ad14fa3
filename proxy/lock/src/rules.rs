//! What an operator chose for a namespace. Here are only the choices; `settle` and `administration` say what
//! follows from them.

/// Whether refusals are carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Answers stay Redis's own; misuse is counted and recorded.
    #[default]
    Monitor,
    /// Misuse is refused.
    Enforce,
}

impl Mode {
    /// The word of the configuration and the metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Mode::Monitor => "monitor",
            Mode::Enforce => "enforce",
        }
    }
}

/// How a refused release or extension is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnViolation {
    /// As Redis answers when nothing happened.
    #[default]
    Native,
    /// With an error.
    Error,
}

/// What happens when a policy does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFault {
    /// The operation is refused with `LOCKPOLICY`.
    #[default]
    Deny,
    /// The policy is passed over.
    Allow,
}

/// What happens to leases that came to be without the proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Adopt {
    /// Never touched, only counted.
    #[default]
    Report,
    /// One without TTL gets the ceiling when somebody contends for it.
    Cap,
}

/// What happens to a script on lock keys whose meaning is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OpaqueScripts {
    /// It runs, and what it did is judged in the same step.
    #[default]
    Wrap,
    /// It is refused.
    Deny,
    /// It runs unjudged, and is counted.
    Forward,
}

/// Whether a client that holds a lock gets it when it acquires it once more, with the same
/// distinctive value. One that did not read that it holds it always does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnRepeat {
    /// No: it is held.
    #[default]
    Refuse,
    /// Yes, where its identity can be told from others'.
    Grant,
}

/// Whether a client's bare address tells it from others. A name, an ACL user of its own or a known
/// process do so in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrustAddress {
    /// Unless it is a loopback address, which all clients of a machine share.
    #[default]
    Auto,
    /// Yes, and all its connections belong to one process, which lives while one of them does.
    Process,
    /// Never: many applications come from one address.
    No,
}

/// For whom a lease whose TTL the proxy chose is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepAliveBy {
    /// The client that was granted it, over whichever connection.
    Identity,
    /// The connection that was granted it, or its one process where that is known.
    Connection,
}

/// How many replicas must confirm a grant or an extension before its client hears of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durability {
    /// At least 1.
    pub replicas: u16,
    /// How long they have for that, ms.
    pub within_ms: u16,
    /// No free lock is granted where a failover could give it a second holder. Such a namespace always has a quarantine.
    pub is_strict: bool,
}

impl Durability {
    /// What satisfies both.
    #[must_use]
    pub fn and(self, other: Durability) -> Durability {
        Durability {
            replicas: self.replicas.max(other.replicas),
            within_ms: self.within_ms.max(other.within_ms),
            is_strict: self.is_strict || other.is_strict,
        }
    }
}

/// Which TTLs are kept alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeepAliveTtl {
    /// Those that the proxy chose: invented or cut.
    #[default]
    Proxy,
    /// Those that the application chose, too.
    All,
}

/// What becomes of a lease whose holder is known to be gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HolderLost {
    /// It goes by its TTL.
    #[default]
    Keep,
    /// It has at most this TTL from then on.
    Shorten {
        /// In milliseconds.
        ms: u64,
    },
}

/// What an operator chose for a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Whether refusals are carried out.
    pub mode: Mode,
    /// How a refused release or extension is answered.
    pub on_violation: OnViolation,
    /// What happens when a policy does not answer.
    pub on_fault: OnFault,
    /// What happens to leases that came to be without the proxy.
    pub adopt: Adopt,
    /// What happens to scripts whose meaning is not known.
    pub scripts: OpaqueScripts,
    /// Whether `INCR` takes a lock.
    pub counter_locks: bool,
    /// Whether a holder that acquires once more gets its lock.
    pub on_repeat: OnRepeat,
    /// Whether a bare address tells a client from others.
    pub trust_address: TrustAddress,
    /// For whom leases are kept alive.
    pub keep_alive_by: KeepAliveBy,
    /// What becomes of a lease whose holder is known to be gone.
    pub holder_lost: HolderLost,
    /// Which TTLs are kept alive.
    pub keep_alive_ttl: KeepAliveTtl,
    /// How much longer than the TTL that was asked for a lock lives, ms: its key goes so much later, unless it is given back.
    pub grace_ms: u64,
    /// Whether locks are taken by one process of an application and given back by another: then the
    /// ACL user, or the client's name, is the whole identity of a client that has one.
    pub hand_over: bool,
    /// No free lock is granted now: whether it is free, only the server before this one could say.
    pub quarantined: bool,
    /// How long an identity owes a release, ms; `None` for ten ceilings.
    pub debt_max_age_ms: Option<u64>,
    /// What replicas must have confirmed before a client hears that it holds a lock.
    pub durability: Option<Durability>,
}
