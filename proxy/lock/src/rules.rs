//! What an operator chose for a namespace. Here are only the choices; `settle` and `administration` say what
//! follows from them.

use sha1::{Digest, Sha1};

use crate::record::RULES;
use crate::token::hex;

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
    /// One without TTL gets the ceiling when another client contends for it.
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

/// What becomes of a release or extension that is not proven, and not proven wrong either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Doubt {
    /// It counts, unless its identity has given back more than it was granted.
    #[default]
    Believe,
    /// It is refused.
    Refuse,
}

/// What tells the rules of a namespace about ownership from those of another, and from those of before a reload. What was
/// held against a client under other rules does not count any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RulesTag(pub [u8; RULES]);

impl RulesTag {
    /// Of a namespace with these settings of the policy about ownership, in whatever order.
    pub fn of<'a>(namespace: &str, settings: impl Iterator<Item = (&'a str, &'a str)>) -> RulesTag {
        let mut settings: Vec<_> = settings.collect();
        settings.sort_unstable();
        let mut digest = Sha1::new();
        // Each with its length in front, so that no two lists read the same.
        let pairs = settings.iter().flat_map(|(key, value)| [*key, *value]);
        for word in std::iter::once(namespace).chain(pairs) {
            digest.update((word.len() as u64).to_le_bytes());
            digest.update(word);
        }
        let digits = hex(&digest.finalize());
        let mut tag = [0; RULES];
        tag.copy_from_slice(&digits.as_bytes()[..RULES]);
        RulesTag(tag)
    }
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

impl Rules {
    /// Whether a lease of so many ms, without its grace, may be promised now.
    pub fn may_promise(&self, ttl_ms: u64) -> bool {
        let longest = self.longest_ms.filter(|_| self.mode == Mode::Enforce);
        longest.is_none_or(|longest| ttl_ms.saturating_add(self.grace_ms) <= longest)
    }
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
    /// What becomes of doubtful releases and extensions.
    pub doubt: Doubt,
    /// What tells these rules about ownership from others.
    pub tag: RulesTag,
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
    /// No lease may be longer from now on, its grace included, ms: a longer one could outlast what this proxy hears of another
    /// primary. `None` where nothing bounds it.
    pub longest_ms: Option<u64>,
    /// By how much fencing tokens run ahead of the server's clock, ms.
    pub tokens_ahead_ms: u64,
    /// How long an identity owes a release, ms; `None` for ten ceilings.
    pub debt_max_age_ms: Option<u64>,
    /// What replicas must have confirmed before a client hears that it holds a lock.
    pub durability: Option<Durability>,
}
