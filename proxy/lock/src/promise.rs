//! What may be promised now. A proxy that is cut off from the majority, was frozen, or uses a server that has recently
//! become the primary, must not promise what another proxy may give to another client. One rule covers all cases: a
//! free lock, an extension, a renewal and a guarded write. Pure: the caller provides when the authority was heard, and
//! the server's entry.
//!
//! Why this is correct. A promised lease is over at the latest `reach` after the moment at which most of the authority
//! was last heard naming this same primary. Another server counts as the primary only when most members name it; the
//! two majorities share a member, which named the older primary first. So when the newer primary's era begins, that
//! moment has passed, and a quarantine of that length outlasts every older lease. The only requirement on clocks is
//! that the proxies' run at the same speed.

use std::time::{Duration, Instant};

use crate::era::Reckoned;
use crate::time::RedisTime;

/// Clocks of different machines do not run at exactly the same speed.
const MARGIN: Duration = Duration::from_secs(1);

/// The settings of a namespace that matter here.
#[derive(Clone, Debug)]
pub struct Terms<'a> {
    /// How long no free lock is granted.
    pub quarantine: Duration,
    /// The longest lease, including its grace; `None` if it is not limited.
    pub longest: Option<Duration>,
    /// How long after the authority was heard a lease may end; `None` if that is not limited.
    pub reach: Option<Duration>,
    /// Distinguishes these rules from others.
    pub rules: &'a str,
}

/// When the authority was heard naming the server in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// There is no authority: the server at the backend's address is the primary.
    Needless,
    /// By most of its members, at this moment or later; `None` if that never happened.
    ByMost(Option<Instant>),
}

/// What may be promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// Whether a free lock may be granted, otherwise why not.
    pub free: Result<(), Withheld>,
    /// The longest lease from now on, including its grace; `None` if it is not limited.
    pub longest: Option<Duration>,
}

/// Why no free lock is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withheld {
    /// It is unknown since when the server has been the primary.
    NoEra,
    /// The server has recently become the primary; the quarantine is over after this time.
    For(Duration),
    /// Most of the authority was not heard for so long that a lease could outlast this proxy's limit.
    Unheard,
}

/// What may be promised in a namespace with a quarantine.
pub fn now(terms: &Terms<'_>, reckoned: Option<&Reckoned>, heard: Heard, now: Instant) -> Promise {
    let nothing = |why| Promise { free: Err(why), longest: Some(Duration::ZERO) };
    // Leases longer than the entry announces to other proxies must not be promised before it does.
    let tells = |reckoned: &&Reckoned| terms.quarantine <= Duration::from_millis(reckoned.era.longest_ms);
    let Some(reckoned) = reckoned.filter(tells) else {
        return nothing(Withheld::NoEra);
    };
    let heard = match heard {
        Heard::Needless => reckoned.read.sent,
        Heard::ByMost(Some(at)) => at.min(reckoned.read.sent),
        Heard::ByMost(None) => return nothing(Withheld::Unheard),
    };
    let silent = now.saturating_duration_since(heard);
    let longest = match terms.reach {
        Some(reach) => Some(reach.saturating_sub(silent)),
        None => (silent > terms.quarantine).then_some(Duration::ZERO),
    };
    let fits = match (terms.longest, longest) {
        (Some(lease), Some(longest)) => lease <= longest,
        (None, Some(longest)) => !longest.is_zero(),
        (_, None) => true,
    };
    let left = quarantine(terms, reckoned).saturating_add(MARGIN).saturating_sub(reckoned.age(now));
    let free = match fits {
        false => Err(Withheld::Unheard),
        true if left.is_zero() => Ok(()),
        true => Err(Withheld::For(left)),
    };
    Promise { free, longest }
}

/// Whether a lease that was granted at `granted`, by the server's clock, is known to have no successors but those in
/// this server's records. A lease from another server, or from before the clock jumped, may have a successor that was
/// lost; and a former primary does not learn of newer ones. Such a lease counts only while it is held.
pub fn knows_successors(
    terms: &Terms<'_>,
    reckoned: Option<&Reckoned>,
    heard: Heard,
    now: Instant,
    granted: RedisTime,
) -> bool {
    let Some(known) = reckoned else {
        return false;
    };
    // No free lock is granted before that, so no clock needs to be read.
    let span = u64::try_from(quarantine(terms, known).as_millis()).unwrap_or(u64::MAX);
    let granted_here = granted.0 >= known.era.since.0.saturating_add(span);
    granted_here && self::now(terms, reckoned, heard, now).longest != Some(Duration::ZERO)
}

/// The length of the quarantine: leases under other rules than this proxy's may be longer.
fn quarantine(terms: &Terms<'_>, Reckoned { era, .. }: &Reckoned) -> Duration {
    let is_mixed = era.since < era.mixed_until || *era.rules != *terms.rules;
    match is_mixed {
        true => terms.quarantine.max(Duration::from_millis(era.longest_ms)),
        false => terms.quarantine,
    }
}

/// The latest moment since which most have been heard; `None` for a member means that it was never heard.
pub fn most_since(heard: impl Iterator<Item = Option<Instant>>) -> Option<Instant> {
    let mut heard: Vec<_> = heard.collect();
    heard.sort_unstable_by(|one, other| other.cmp(one));
    heard.get(heard.len() / 2).copied().flatten()
}

#[cfg(test)]
mod explorer;
#[cfg(test)]
mod tests;
