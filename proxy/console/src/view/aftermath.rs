//! The effect of enforcing: compares the grants and the lost lock time of a namespace in the ten minutes after it is enforced
//! with the ten minutes before. Pure, and it changes nothing; `app/control/aftermath.rs` reports harm and takes the change
//! back.
//!
//! Two things are harm. First, more than one part in twenty of the lock time is lost: locks stay locked after the work under
//! them has ended. Second, less than half as much is granted as before, though clients ask as before: then tries fail. When
//! clients ask less, as at night, tries fall with the grants, and a try succeeds as often as before or more often. Where
//! clients deleted each other's locks, there were more grants than one holder at a time can have: those do not count. A minute
//! decides; less than that where it is plain.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockwarden_control::clock::Moment;
use lockwarden_control::clock::ms;
use lockwarden_control::text::durations::{duration, share};
use lockwarden_control::text::numbers::number;
use lockwarden_lock::db_key::NamedMap;

use super::lock_time::Costs;
use super::periods::Periods;
use super::tally::Counts;

/// How long after a switch harm is looked for, and how long before it the comparison begins.
const WATCHED: Duration = Duration::from_secs(10 * 60);
/// A shorter time says nothing.
const LEAST_MS: u64 = 10_000;
/// From this time on even small numbers count.
const ENOUGH_MS: u64 = 60_000;
/// Grants needed before, and expected now: if 20 come on average, fewer than 10 come by chance once in 200 times.
const FEW_GRANTS: u64 = 20;
/// The same before a minute is over, so that a short burst does not count.
const MANY_GRANTS: u64 = 100;
/// Lost lock time that is needed; before a minute is over, as much as one lock the whole time.
const LITTLE_LOST_MS: u64 = 1_000;
const MUCH_LOST_MS: u64 = 10_000;

/// For how many clients a namespace is enforced. Other names in `enforce_for` are no switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Extent {
    Nobody,
    Some,
    All,
}

/// See the module. By namespace: those in force.
#[derive(Default)]
pub(super) struct Aftermath {
    namespaces: NamedMap<Arc<str>, Watch>,
}

struct Watch {
    extent: Extent,
    /// When that began; `None` since the process start, which is no switch.
    since: Option<Moment>,
    /// The counts before, where they are enough for a comparison.
    before: Option<Span>,
    harm: Option<Harm>,
}

/// The harm of enforcing.
struct Harm {
    words: String,
    found: Instant,
    /// The proxy has set the namespace back to monitor mode.
    taken_back: bool,
}

/// Newly found harm.
#[derive(Debug, PartialEq, Eq)]
pub struct Harmed {
    pub namespace: Arc<str>,
    pub words: String,
}

/// Counts of a namespace over some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    ms: u64,
    /// Without grants whose leases another client ended: as many grants resulted from that, and enforcing is meant to refuse
    /// it.
    grants: u64,
    /// Tries to acquire, those that were granted included.
    tries: u64,
}

/// Lock time since a switch.
#[derive(Clone, Copy, Debug)]
struct Time {
    lost_ms: u64,
    /// All lock time.
    locked_ms: u64,
}

impl Aftermath {
    /// These namespaces are in force from now on, each enforced to this extent; without a moment at the start of the process.
    pub(super) fn follow(&mut self, in_force: &[(Arc<str>, Extent)], at: Option<Moment>, periods: &Periods) {
        let is_in_force = |name: &Arc<str>| in_force.iter().any(|(one, _)| one == name);
        self.namespaces.retain(|name, _| is_in_force(name));
        for (name, extent) in in_force {
            let was = self.namespaces.get(name);
            if was.is_some_and(|was| was.extent == *extent) {
                continue;
            }
            let is_stricter = was.is_none_or(|was| was.extent < *extent);
            let since = was.and_then(|was| was.since);
            let before = at.filter(|_| is_stricter);
            let watch = Watch {
                extent: *extent,
                since: at,
                before: before.and_then(|at| Span::before(at, since, name, periods)),
                harm: None,
            };
            self.namespaces.insert(name.clone(), watch);
        }
    }

    /// Looks for namespaces that enforcing harms, and returns the new ones. `held_ms` returns for how long the locks of a
    /// namespace that are held now have been held since a moment.
    pub(super) fn look(
        &mut self,
        now: Moment,
        periods: &Periods,
        held_ms: impl Fn(&Arc<str>, Instant) -> u64,
    ) -> Vec<Harmed> {
        let mut found = Vec::new();
        for (name, watch) in &mut self.namespaces {
            watch.harm.take_if(|harm| harm.taken_back && now.at.saturating_duration_since(harm.found) >= WATCHED);
            let (Some(since), Extent::Some | Extent::All) = (watch.since, watch.extent) else {
                continue;
            };
            let is_late = now.at.saturating_duration_since(since.at) > WATCHED;
            if is_late && watch.harm.is_none() {
                continue;
            }
            let from = since.or_ago(WATCHED, now);
            let words = watch.words(from, now, name, (periods, &held_ms));
            match (words, &mut watch.harm) {
                (Some(words), Some(harm)) => harm.words = words,
                (Some(words), none) => {
                    *none = Some(Harm { words: words.clone(), found: now.at, taken_back: false });
                    let namespace = name.clone();
                    found.push(Harmed { namespace, words });
                }
                // Harm stays reported for this time, so that a value near the limit is not reported again and again.
                (None, harm) if is_late => *harm = None,
                (None, _) => {}
            }
        }
        found
    }

    /// The proxy has set the namespace back to monitor mode because of this; that is reported for a while.
    pub(super) fn was_taken_back(&mut self, harmed: Harmed, now: Instant) {
        if let Some(watch) = self.namespaces.get_mut(&harmed.namespace) {
            watch.harm = Some(Harm { words: harmed.words, found: now, taken_back: true });
        }
    }

    /// The harm of enforcing this namespace, present or before the proxy took it back, in words.
    pub(super) fn harm(&self, namespace: &str) -> Option<String> {
        let harm = self.namespaces.get(namespace)?.harm.as_ref()?;
        Some(match harm.taken_back {
            true => format!("enforcing harmed, so it was set back to monitor mode: {}", harm.words),
            false => format!("enforcing harms: {}", harm.words),
        })
    }
}

impl Watch {
    /// The harm in the counts since a moment, in words.
    fn words(
        &self,
        from: Moment,
        now: Moment,
        name: &Arc<str>,
        (periods, held_ms): (&Periods, &impl Fn(&Arc<str>, Instant) -> u64),
    ) -> Option<String> {
        let (counts, begun) = periods.of_namespace(name, from);
        let begun = begun.map_or(from.at, |begun| begun.min(from.at));
        let since = Span::of(&counts, ms(now.at.saturating_duration_since(begun)));
        // All locks are looked through only where some time is lost.
        let lost = |held_ms| Some(Time::of(&counts, held_ms)).filter(|time| time.is_lost_within(since.ms));
        let lost = lost(0).and_then(|_| lost(held_ms(name, begun)));
        let fell = self.before.filter(|before| before.fell_to(&since));
        let fell = fell.map(|before| {
            let (was, is) = (before.a_minute(), since.a_minute());
            format!("{is} locks a minute are granted, {was} before it was enforced")
        });
        let lost = lost.map(|time| {
            format!(
                "{} of {} of lock time are lost ({})",
                duration(time.lost_ms),
                duration(time.locked_ms),
                share(time.lost_ms, time.locked_ms)
            )
        });
        let parts: Vec<String> = fell.into_iter().chain(lost).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

impl Span {
    fn of(counts: &Counts, ms: u64) -> Span {
        let Costs { foretold, seen } = counts.costs;
        let grants = foretold.grants + foretold.lost_grants + seen.grants;
        Span { ms, grants: u64::try_from(grants).unwrap_or(0).saturating_sub(counts.broken), tries: counts.tries }
    }

    /// Counts before a switch, but after the one before it. They begin with the first count, so that a day without work does
    /// not lower a rate.
    fn before(at: Moment, since: Option<Moment>, name: &str, periods: &Periods) -> Option<Span> {
        let from = since.map_or(at.ago(WATCHED), |since| since.or_ago(WATCHED, at));
        let (counts, begun) = periods.of_namespace(name, from);
        let span = Span::of(&counts, ms(at.at.saturating_duration_since(begun?)));
        (span.ms >= LEAST_MS && span.grants >= FEW_GRANTS).then_some(span)
    }

    /// Whether less than half as much is granted since, and a smaller share of the tries succeeds.
    fn fell_to(&self, since: &Span) -> bool {
        let of = |count: u64, other: u64| u128::from(count) * u128::from(other);
        let expected = of(self.grants, since.ms) / u128::from(self.ms.max(1));
        let enough = match since.ms >= ENOUGH_MS {
            true => FEW_GRANTS,
            false => MANY_GRANTS,
        };
        since.ms >= LEAST_MS
            && expected >= u128::from(enough)
            && of(since.grants, 2) < expected
            // Nine tenths, to allow for chance.
            && of(since.grants, self.tries) * 10 < of(self.grants, since.tries) * 9
    }

    /// Grants a minute: `480`, or `2.4` for small numbers.
    fn a_minute(&self) -> String {
        let tenths = u128::from(self.grants) * 600_000 / u128::from(self.ms.max(1));
        let tenths = u64::try_from(tenths).unwrap_or(u64::MAX);
        match tenths / 10 {
            few @ 0..10 => format!("{few}.{}", tenths % 10),
            many => number(many),
        }
    }
}

impl Time {
    fn of(counts: &Counts, held_ms: u64) -> Time {
        let seen = counts.costs.seen;
        // Time that is taken back may have been counted before.
        let count = |ms: i64| u64::try_from(ms).unwrap_or(0);
        let lost_ms = count(seen.unheld_ms).saturating_add(count(seen.cut_ms));
        Time { lost_ms, locked_ms: lost_ms.saturating_add(count(seen.held_ms)).saturating_add(held_ms) }
    }

    fn is_lost_within(&self, ms: u64) -> bool {
        let enough = match ms >= ENOUGH_MS {
            true => LITTLE_LOST_MS,
            false => MUCH_LOST_MS,
        };
        let is_much = self.lost_ms.saturating_mul(20) > self.locked_ms;
        ms >= LEAST_MS && self.lost_ms >= enough && is_much
    }
}

#[cfg(test)]
mod tests;
