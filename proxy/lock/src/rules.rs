//! An operator's settings for a namespace. Only the settings are defined here; `settle` and `administration` define
//! their effects.

use sha1::{Digest, Sha1};

use crate::record::RULES;
use crate::token::hex;

/// Whether refusals are carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Replies stay Redis's own; misuse is counted and recorded.
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

/// The reply to a refused release or extension.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnViolation {
    /// As Redis replies when nothing happened.
    #[default]
    Native,
    /// With an error.
    Error,
}

/// What happens when a policy fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFault {
    /// The operation is refused with `LOCKPOLICY`.
    #[default]
    Deny,
    /// The policy is skipped.
    Allow,
}

/// What happens to leases that were taken without the proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Adopt {
    /// Never touched, only counted.
    #[default]
    Report,
    /// One without TTL gets the ceiling when another client contends for it.
    Cap,
}

/// What happens to a script on lock keys with unknown effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OpaqueScripts {
    /// It runs, and its effects are judged in the same step.
    #[default]
    Wrap,
    /// It is refused.
    Deny,
    /// It runs unjudged, and is counted.
    Forward,
}

/// Whether a client that holds a lock and acquires it again gets it, with the same distinctive value. If it never read
/// the reply to its grant, it always does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnRepeat {
    /// No: the lock is held.
    #[default]
    Refuse,
    /// Yes, if its identity is distinctive.
    Grant,
}

/// Whether a client's address alone distinguishes it from others. A name, its own ACL user or a known process do so in
/// any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrustAddress {
    /// Unless it is a loopback address, which all clients on a machine share.
    #[default]
    Auto,
    /// Yes, and all connections from it belong to one process, which lives as long as one of them does.
    Process,
    /// Never: many applications use one address.
    No,
}

/// What happens to a release or extension that is neither proven nor disproven.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Doubt {
    /// It counts, unless its identity has released more than it was granted.
    #[default]
    Believe,
    /// It is refused.
    Refuse,
}

/// Distinguishes a namespace's rules about ownership from those of another one, and from those before a reload. What
/// was held against a client under other rules no longer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RulesTag(pub [u8; RULES]);

impl RulesTag {
    /// For a namespace with these settings of the policy about ownership, in any order.
    pub fn of<'a>(namespace: &str, settings: impl Iterator<Item = (&'a str, &'a str)>) -> RulesTag {
        let mut settings: Vec<_> = settings.collect();
        settings.sort_unstable();
        let mut digest = Sha1::new();
        // Each with its length before it, so that no two lists look the same.
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

/// For which connection a lease is renewed whose TTL the proxy chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepAliveBy {
    /// For the client to which it was granted, over any connection.
    Identity,
    /// For the connection to which it was granted, or its process where that is known.
    Connection,
}

/// How many replicas must confirm a grant or an extension before its client gets the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Durability {
    /// At least 1.
    pub replicas: u16,
    /// How long they have for that, ms.
    pub within_ms: u16,
    /// No free lock is granted if a failover could give it a second holder. Such a namespace always has a quarantine.
    pub is_strict: bool,
}

impl Durability {
    /// The value that satisfies both.
    #[must_use]
    pub fn and(self, other: Durability) -> Durability {
        Durability {
            replicas: self.replicas.max(other.replicas),
            within_ms: self.within_ms.max(other.within_ms),
            is_strict: self.is_strict || other.is_strict,
        }
    }
}

/// Which TTLs have keep-alive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeepAliveTtl {
    /// Those that the proxy chose: default or shortened TTLs.
    #[default]
    Proxy,
    /// Also those that the application chose.
    All,
}

/// What happens to a lease whose holder is known to be gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HolderLost {
    /// It ends by its TTL.
    #[default]
    Keep,
    /// It has at most this TTL from then on.
    Shorten {
        /// In milliseconds.
        ms: u64,
    },
}

/// What happens to the record of a lock that its own session released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Released {
    /// It stays for ten minutes.
    #[default]
    Record,
    /// It goes with the lock. One key for all such locks keeps their fencing tokens growing.
    Forget,
}

impl Rules {
    /// Whether a lease of this many ms, without its grace, may be promised now.
    pub fn may_promise(&self, ttl_ms: u64) -> bool {
        let longest = self.longest_ms.filter(|_| self.mode == Mode::Enforce);
        longest.is_none_or(|longest| ttl_ms.saturating_add(self.grace_ms) <= longest)
    }
}

/// An operator's settings for a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Whether refusals are carried out.
    pub mode: Mode,
    /// The reply to a refused release or extension.
    pub on_violation: OnViolation,
    /// What happens when a policy fails.
    pub on_fault: OnFault,
    /// What happens to leases that were taken without the proxy.
    pub adopt: Adopt,
    /// What happens to scripts with unknown effect.
    pub scripts: OpaqueScripts,
    /// Whether `INCR` takes a lock.
    pub counter_locks: bool,
    /// Whether a holder that acquires its lock again gets it.
    pub on_repeat: OnRepeat,
    /// Whether an address alone distinguishes a client from others.
    pub trust_address: TrustAddress,
    /// What happens to doubtful releases and extensions.
    pub doubt: Doubt,
    /// Distinguishes these rules about ownership from others.
    pub tag: RulesTag,
    /// For which connection leases are kept alive.
    pub keep_alive_by: KeepAliveBy,
    /// What happens to a lease whose holder is known to be gone.
    pub holder_lost: HolderLost,
    /// What happens to the records of released locks.
    pub released: Released,
    /// Which TTLs have keep-alive.
    pub keep_alive_ttl: KeepAliveTtl,
    /// How much longer than the requested TTL a lock lives, ms: its key is deleted this much later, unless it is
    /// released.
    pub grace_ms: u64,
    /// Whether locks are taken by one process of an application and released by another: then the ACL user, or the
    /// client's name, is the whole identity of a client that has one.
    pub hand_over: bool,
    /// No free lock is granted now: only the former primary could tell whether it is really free.
    pub quarantined: bool,
    /// The longest lease from now on, including its grace, ms: a longer one could outlast the time until this proxy
    /// learns of another primary. `None` if it is not limited.
    pub longest_ms: Option<u64>,
    /// How far fencing tokens run ahead of the server's clock, ms.
    pub tokens_ahead_ms: u64,
    /// How long an identity owes a release, ms; `None` for ten ceilings.
    pub debt_max_age_ms: Option<u64>,
    /// What replicas must have confirmed before a client gets the reply that it holds a lock.
    pub durability: Option<Durability>,
}
