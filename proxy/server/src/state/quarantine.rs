//! How long a quarantine goes on. Every proxy reckons it from the same entry on the server. Where `durability` is strict there is
//! one, too, while the server is not what that needs, and after a clock has jumped.

use std::time::{Duration, Instant};

use super::ProxyState;
use crate::ruleset::NamespaceDetails;

/// Two clocks are reckoned with, which do not go at quite the same speed.
const MARGIN: Duration = Duration::from_secs(1);

/// When a quarantine ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// After so long.
    For(Duration),
    /// Once more than half of the sentinels are heard: until then another primary might not be noticed.
    FewSentinels,
    /// Once it is known since when the server is the primary.
    NoEra,
    /// Once the server is what `durability = "strict:…"` needs, with so many replicas.
    Unfit(u16),
    /// After so long, because a clock has jumped.
    ClockJumped(Duration),
}

/// For how long yet no free lock is granted in a namespace; `None` where they are.
pub(crate) fn left(details: &NamespaceDetails, shared: &ProxyState, now: Instant) -> Option<Left> {
    let quarantine = details.quarantine?;
    let strict = &shared.backend.strict;
    if let Some(replicas) = (details.strict()).filter(|replicas| !strict.are_met(*replicas)) {
        return Some(Left::Unfit(replicas));
    }
    if let Some(sentinels) = shared.backend.address.sentinels() {
        let (heard, known) = sentinels.heard(now);
        // The others may have agreed on another primary, and it would not be heard here.
        if heard * 2 <= known {
            return Some(Left::FewSentinels);
        }
    }
    let Some(since) = shared.backend.server.primary_since() else {
        return Some(Left::NoEra);
    };
    let left = quarantine
        .saturating_add(MARGIN)
        .checked_sub(since.age(now))
        .filter(|left| !left.is_zero());
    let jumped = (details.strict()).and_then(|_| strict.clock_jumped(quarantine, now));
    match jumped.filter(|jumped| left.is_none_or(|left| *jumped > left)) {
        Some(jumped) => Some(Left::ClockJumped(jumped)),
        None => left.map(Left::For),
    }
}
