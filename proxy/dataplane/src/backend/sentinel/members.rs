//! Which sentinels there are, and the last answer of each. Those of the backend's URL always count. A sentinel that
//! others name counts once most of the URL's sentinels name it, so that a foreign sentinel at an address of the URL
//! does not bring its friends along. A sentinel that answers under two addresses, or under a name and its address,
//! counts once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lockwarden_lock::promise::most_since;

use super::super::heard::HEARD_WITHIN;
use super::named::{Named, Place, SentinelError};

/// A sentinel that is not in the backend's URL, and that for this long was neither named by the others nor answered,
/// is gone: it was replaced, at another address.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// Another sentinel, as a sentinel names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Other {
    pub(crate) place: Place,
    /// The id of the sentinel, independent of its address.
    pub(crate) id: Option<String>,
}

/// The answer of one sentinel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub(crate) named: Named,
    /// The id of the sentinel itself; Redis before 6.2 does not give it.
    pub(crate) id: Option<String>,
    /// The other sentinels that it knows.
    pub(crate) others: Vec<Other>,
}

/// See the module.
pub(super) struct Members {
    by_place: BTreeMap<Place, Told>,
    /// The most sentinels that are known.
    most: usize,
}

/// One of them.
#[derive(Default)]
struct Told {
    /// The backend's URL names it.
    configured: bool,
    /// When the sentinels that named it were last asked.
    named: Option<Instant>,
    id: Option<String>,
    last: Option<(Asked, Instant)>,
    failure: Option<SentinelError>,
}

impl Told {
    /// Whether it is one of the sentinels of which most have to be heard.
    fn counts(&self, now: Instant) -> bool {
        let known = self.named.max(self.asked());
        self.configured || known.is_some_and(|at| is_recent(at, now))
    }

    /// When the question was sent to which it last gave an answer.
    fn asked(&self) -> Option<Instant> {
        self.last.as_ref().map(|(_, at)| *at)
    }

    fn was_asked(&self) -> bool {
        self.last.is_some() || self.failure.is_some()
    }

    fn fresh(&self, now: Instant) -> Option<&Named> {
        let (asked, at) = self.last.as_ref()?;
        let is_fresh = self.failure.is_none() && now.saturating_duration_since(*at) < HEARD_WITHIN;
        is_fresh.then_some(&asked.named)
    }
}

/// A sentinel that says which others there are.
struct Sayer<'a> {
    place: &'a Place,
    id: Option<&'a String>,
    others: &'a [Other],
    asked: Instant,
}

impl Sayer<'_> {
    fn is(&self, other: &Other) -> bool {
        *self.place == other.place || (self.id.is_some() && self.id == other.id.as_ref())
    }
}

fn is_recent(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) < FORGOTTEN_AFTER
}

impl Members {
    pub(super) fn new(places: impl Iterator<Item = Place>, most: usize) -> Members {
        let configured = || Told { configured: true, ..Told::default() };
        Members { by_place: places.map(|place| (place, configured())).collect(), most }
    }

    /// The addresses of the sentinels.
    pub(super) fn places(&self) -> Vec<Place> {
        self.by_place.keys().cloned().collect()
    }

    pub(super) fn has(&self, place: &Place) -> bool {
        self.by_place.contains_key(place)
    }

    /// A sentinel was asked at this moment, and gave this answer.
    pub(super) fn answered(&mut self, from: &Place, asked: Asked, at: Instant) {
        let Some(told) = self.by_place.get_mut(from) else {
            return;
        };
        told.id = asked.id.clone().or(told.id.take());
        (told.last, told.failure) = (Some((asked, at)), None);
        self.learn(at);
    }

    pub(super) fn failed(&mut self, from: &Place, error: SentinelError) {
        if let Some(told) = self.by_place.get_mut(from) {
            told.failure = Some(error);
        }
    }

    /// Whether each sentinel of the URL was asked once, with any result.
    pub(super) fn all_were_asked(&self) -> bool {
        self.by_place.values().filter(|told| told.configured).all(Told::was_asked)
    }

    /// Takes in the sentinels that the others name, and forgets those that none of them names.
    fn learn(&mut self, now: Instant) {
        // The sentinel that is asked first must not decide alone which others there are.
        if !self.all_were_asked() {
            return;
        }
        for (other, at) in self.named_others(now) {
            if let Some(told) = self.by_place.get_mut(&other.place) {
                told.named = told.named.max(Some(at));
                told.id = told.id.take().or(other.id);
                continue;
            }
            let mut known = self.by_place.values();
            let is_known = known.any(|told| told.fresh(now).is_some() && told.id.is_some() && told.id == other.id);
            if !is_known && self.by_place.len() < self.most {
                let told = Told { named: Some(at), id: other.id, ..Told::default() };
                self.by_place.insert(other.place, told);
            }
        }
        self.by_place.retain(|_, told| told.counts(now));
    }

    /// The sentinels that most of those name that may name others, and when the last of these was asked.
    fn named_others(&self, now: Instant) -> Vec<(Other, Instant)> {
        let mut sayers = self.sayers(true, now);
        if sayers.is_empty() {
            sayers = self.sayers(false, now);
        }
        let others = sayers.iter().flat_map(|sayer| sayer.others.iter());
        let others: BTreeMap<&Place, &Other> = others.map(|other| (&other.place, other)).collect();
        let found = others.into_iter().filter_map(|(place, other)| {
            // No sentinel names itself.
            let may_name = sayers.iter().filter(|sayer| !sayer.is(other)).count();
            let naming = sayers.iter().filter(|sayer| sayer.others.iter().any(|named| named.place == *place));
            let asked: Vec<Instant> = naming.map(|sayer| sayer.asked).collect();
            let at = asked.iter().max().filter(|_| asked.len() * 2 > may_name)?;
            Some((other.clone(), *at))
        });
        found.collect()
    }

    /// The sentinels that say which others there are.
    fn sayers(&self, configured: bool, now: Instant) -> Vec<Sayer<'_>> {
        let each = self.counted(now).into_iter().filter(|(_, told)| told.configured || !configured);
        let saying = each.filter_map(|(place, told)| {
            let (said, asked) = told.last.as_ref().filter(|(_, at)| is_recent(*at, now))?;
            Some(Sayer { place, id: told.id.as_ref(), others: &said.others, asked: *asked })
        });
        saying.collect()
    }

    /// Each sentinel once: of several addresses of one, the first that is heard, or the one that was heard last.
    fn counted(&self, now: Instant) -> Vec<(&Place, &Told)> {
        let all: Vec<_> = self.by_place.iter().filter(|(_, told)| told.counts(now)).collect();
        let rank = |told: &Told| (told.fresh(now).is_some(), told.configured, told.asked());
        let is_first = |at: usize| {
            let (_, told) = all[at];
            let same = |other: &Told| told.id.is_some() && told.id == other.id;
            let mut others = all.iter().enumerate().filter(|(other, (_, told))| *other != at && same(told));
            others.all(|(other, (_, of))| rank(told) > rank(of) || (rank(told) == rank(of) && at < other))
        };
        (0..all.len()).filter(|at| is_first(*at)).map(|at| all[at]).collect()
    }

    fn fresh(&self, now: Instant) -> Vec<&Named> {
        self.counted(now).into_iter().filter_map(|(_, told)| told.fresh(now)).collect()
    }

    /// How many are heard, and how many there are.
    pub(super) fn heard(&self, now: Instant) -> (usize, usize) {
        (self.fresh(now).len(), self.counted(now).len())
    }

    /// Since when most of them have been heard naming this server.
    pub(super) fn heard_by_most(&self, named: &Named, now: Instant) -> Option<Instant> {
        most_since(self.counted(now).into_iter().map(|(_, told)| {
            let last = told.last.as_ref().filter(|(last, _)| last.named == *named);
            last.map(|(_, asked)| *asked)
        }))
    }

    /// Until when more than half of them count as heard, whatever they name.
    pub(super) fn most_heard_until(&self, now: Instant) -> Option<Instant> {
        let since =
            most_since(self.counted(now).into_iter().map(|(_, told)| told.asked().filter(|_| told.failure.is_none())));
        since.map(|since| since + HEARD_WITHIN)
    }

    /// What each says now; for one that is not heard: why, if that is known.
    pub(super) fn said(&self, now: Instant) -> Vec<(Place, Result<Named, Option<SentinelError>>)> {
        let said = self.counted(now).into_iter().map(|(place, told)| {
            let fresh = told.fresh(now).cloned();
            (place.clone(), fresh.ok_or_else(|| told.failure.clone()))
        });
        said.collect()
    }

    /// What the sentinels that are heard name, and how many of them do: most first, and among equals the newest.
    pub(super) fn ranking(&self, now: Instant) -> Vec<(Named, usize)> {
        let mut ranking: Vec<(Named, usize)> = Vec::new();
        for named in self.fresh(now) {
            match ranking.iter_mut().find(|(other, _)| other == named) {
                Some((_, number)) => *number += 1,
                None => ranking.push((named.clone(), 1)),
            }
        }
        ranking.sort_by_key(|(named, number)| std::cmp::Reverse((*number, named.epoch)));
        ranking
    }

    /// The server that most of all known sentinels name now.
    pub(super) fn most_name(&self, now: Instant) -> Option<Named> {
        let (_, known) = self.heard(now);
        let first = self.ranking(now).into_iter().next();
        first.filter(|(_, number)| number * 2 > known).map(|(named, _)| named)
    }

    /// The server that every sentinel of the URL names now, and every other that is heard, if all name the same.
    pub(super) fn all_name(&self, now: Instant) -> Option<Named> {
        let heard = self.ranking(now);
        let [(named, _)] = &heard[..] else {
            return None;
        };
        let mut configured = self.by_place.values().filter(|told| told.configured);
        configured.all(|told| told.fresh(now).is_some()).then(|| named.clone())
    }
}

#[cfg(test)]
mod tests;
