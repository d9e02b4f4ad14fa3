//! What may be promised in a namespace now, according to what this proxy knows of the server, and of those who name
//! it the primary. The rule is `lockwarden_lock::promise`; with strict `durability` there are more reasons for which
//! free locks are not granted.

use std::time::{Duration, Instant};

use lockwarden_control::ruleset::NamespaceDetails;
use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::promise::{self, Heard, Promise, Withheld};
use lockwarden_lock::time::RedisTime;

use super::ProxyState;

/// When a quarantine ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// After this time.
    For(Duration),
    /// Once more than half of the members that say which server is the primary are heard: until then a change might
    /// not be noticed.
    Unheard,
    /// Once it is known since when the server has been the primary.
    NoEra,
    /// Once the server meets the needs of `durability = "strict:…"`, with this many replicas.
    Unfit(u16),
    /// After this time, because a clock has jumped.
    ClockJumped(Duration),
}

/// What may be promised; `None` in a namespace without a quarantine, where nothing is asked.
pub(crate) fn promise(details: &NamespaceDetails, shared: &ProxyState, now: Instant) -> Option<Promise> {
    details.quarantine?;
    let active = shared.active.load();
    let terms = details.terms(&active)?;
    let reckoned = shared.backend.server.reckoned();
    let heard = heard(shared);
    Some(promise::now(&terms, reckoned.as_deref(), heard, now))
}

/// The longest TTL that a lease of this lock may be promised now, in ms; `None` if nothing limits it.
pub(crate) fn longest_ms(shared: &ProxyState, key: &DbKey, now: Instant) -> Option<u64> {
    let active = shared.active.load();
    let longest = promise(active.of_lock(key.bytes())?, shared, now)?.longest?;
    Some(longest.as_millis().try_into().unwrap_or(u64::MAX))
}

/// Whether the server has a record of each successor of a lease that was granted at this moment. In a namespace
/// without a quarantine this is assumed.
pub(crate) fn knows_successors(
    details: &NamespaceDetails,
    shared: &ProxyState,
    now: Instant,
    granted: RedisTime,
) -> bool {
    let active = shared.active.load();
    details.terms(&active).is_none_or(|terms| {
        let reckoned = shared.backend.server.reckoned();
        promise::knows_successors(&terms, reckoned.as_deref(), heard(shared), now, granted)
    })
}

fn heard(shared: &ProxyState) -> Heard {
    shared.backend.address.authority.heard()
}

/// For how long no free lock is granted in a namespace yet; `None` if free locks are granted.
pub fn left(details: &NamespaceDetails, shared: &ProxyState, now: Instant) -> Option<Left> {
    let promise = promise(details, shared, now)?;
    withheld(&promise, details, shared, now)
}

/// The same, if it is already known what may be promised.
pub(crate) fn withheld(
    promise: &Promise,
    details: &NamespaceDetails,
    shared: &ProxyState,
    now: Instant,
) -> Option<Left> {
    let strict = &shared.backend.strict;
    if let Some(replicas) = (details.strict()).filter(|replicas| !strict.are_met(*replicas)) {
        return Some(Left::Unfit(replicas));
    }
    let authority = &shared.backend.address.authority;
    if authority.hears_too_few(now) {
        return Some(Left::Unheard);
    }
    let left = match promise.free {
        Ok(()) => None,
        Err(Withheld::For(left)) => Some(left),
        Err(Withheld::NoEra) => return Some(Left::NoEra),
        Err(Withheld::Unheard) if authority.heard() != Heard::Needless => return Some(Left::Unheard),
        Err(Withheld::Unheard) => return Some(Left::NoEra),
    };
    let lasts = details.quarantine.unwrap_or_default();
    let jumped = (details.strict()).and_then(|_| strict.clock_jumped(lasts, now));
    match jumped.filter(|jumped| left.is_none_or(|left| *jumped > left)) {
        Some(jumped) => Some(Left::ClockJumped(jumped)),
        None => left.map(Left::For),
    }
}
