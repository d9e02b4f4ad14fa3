//! What may be promised now. A proxy that is cut off from the majority, was frozen, or meets a server that has become the
//! primary lately, must not promise what another proxy may give to another client. One rule says so for all: for a free lock, an
//! extension, a renewal and a guarded write. Pure: when the authority was heard, and what the entry of the server says, comes in.
//!
//! Why it holds. A lease that was promised is over at the latest `reach` after the moment at which most of the authority was
//! last heard naming this very primary. Another primary is taken for one only when most name that; the two majorities have a
//! member in common, which named the older one first. So when the era of the newer one begins, that moment has passed, and a
//! quarantine of that length outlasts every older lease. All that is needed of clocks is that the proxies' go equally fast.

use std::time::{Duration, Instant};

use crate::era::Reckoned;
use crate::time::RedisTime;

/// Clocks of different machines do not go at quite the same speed.
const MARGIN: Duration = Duration::from_secs(1);

/// What a namespace has to do with it.
#[derive(Clone, Debug)]
pub struct Terms<'a> {
    /// For how long no free lock is granted.
    pub quarantine: Duration,
    /// The longest lease, with its grace; `None` where nothing bounds it.
    pub longest: Option<Duration>,
    /// How long after the authority was heard a lease may end; `None` where nothing bounds it.
    pub reach: Option<Duration>,
    /// Tells these rules from others.
    pub rules: &'a str,
}

/// When the authority was heard naming the server that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Nothing is there to be heard: the server behind the backend's name is the primary.
    Needless,
    /// By most of its members, at this moment or later; `None` where that never was.
    ByMost(Option<Instant>),
}

/// What may be promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// Whether a free lock may be granted, or else why not.
    pub free: Result<(), Withheld>,
    /// No lease may be longer from now on, its grace included; `None` where nothing bounds it.
    pub longest: Option<Duration>,
}

/// Why no free lock is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withheld {
    /// It is not known since when the server is the primary.
    NoEra,
    /// The server became the primary lately; the quarantine is over after so long.
    For(Duration),
    /// Most of the authority was not heard for so long that a lease could outlast what this proxy may promise.
    Unheard,
}

/// What may be promised in a namespace with a quarantine.
pub fn now(terms: &Terms<'_>, reckoned: Option<&Reckoned>, heard: Heard, now: Instant) -> Promise {
    let nothing = |why| Promise { free: Err(why), longest: Some(Duration::ZERO) };
    // Longer leases than the entry tells others of must not be promised before it does.
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

/// Whether a lease that was granted at `granted`, by the server's clock, is known to have no successor but those that this server
/// has a record of. A lease that came along from another server, or from before the clock jumped, may have one that was lost;
/// and a server that is the primary no more hears nothing of the newer ones. Such a lease counts only while it is held.
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
    // No free lock is granted before that, so this takes no look at any clock.
    let span = u64::try_from(quarantine(terms, known).as_millis()).unwrap_or(u64::MAX);
    let granted_here = granted.0 >= known.era.since.0.saturating_add(span);
    granted_here && self::now(terms, reckoned, heard, now).longest != Some(Duration::ZERO)
}

/// How long the quarantine is: leases by other rules than this proxy's may be longer.
fn quarantine(terms: &Terms<'_>, Reckoned { era, .. }: &Reckoned) -> Duration {
    let is_mixed = era.since < era.mixed_until || *era.rules != *terms.rules;
    match is_mixed {
        true => terms.quarantine.max(Duration::from_millis(era.longest_ms)),
        false => terms.quarantine,
    }
}

/// The latest moment since which most have been heard; `None` stands for one that was not.
pub fn most_since(heard: impl Iterator<Item = Option<Instant>>) -> Option<Instant> {
    let mut heard: Vec<_> = heard.collect();
    heard.sort_unstable_by(|one, other| other.cmp(one));
    heard.get(heard.len() / 2).copied().flatten()
}

#[cfg(test)]
mod explorer;
#[cfg(test)]
mod tests;
