//! How often a connection tried which lock lately. A view for policies: it proves nothing.

use std::time::{Duration, Instant};

use crate::db_key::{DbKey, KeyHash};

/// The window in which `attempts` are counted.
pub const ATTEMPTS_WINDOW: Duration = Duration::from_secs(10);
/// Locks whose attempts one connection counts at a time; those that were tried least give way.
/// A place for every lock that was ever tried cost a connection 250 bytes each, and most were tried once.
pub const MAX_TRIED: usize = 128;

/// How often locks were tried lately. A key is known by its hash here, so nothing is kept alive and
/// nothing allocated per try; two keys that share one would be counted together.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    /// Sets of [`WAYS`] places; none before the first try.
    pub(super) places: Vec<Option<Tried>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Tried {
    key: KeyHash,
    since: Instant,
    times: u32,
}

/// Places of which a key may take any.
const WAYS: usize = 8;

impl Attempts {
    /// It is tried once more.
    pub(super) fn add(&mut self, key: &DbKey, now: Instant) {
        if self.places.is_empty() {
            self.places = vec![None; MAX_TRIED];
        }
        let set = &mut self.places[set_of(key)];
        let known = set.iter().position(|place| is_of(place, key));
        if let Some(Some(tried)) = known.map(|at| &mut set[at]) {
            if is_lately(tried, now) {
                tried.times += 1;
            } else {
                (tried.since, tried.times) = (now, 1);
            }
            return;
        }
        // A free place is worth least, then what is over, then what was tried least.
        let worth = |place: &&mut Option<Tried>| {
            place.map(|tried| (is_lately(&tried, now), tried.times, tried.since))
        };
        if let Some(least) = set.iter_mut().min_by_key(worth) {
            *least = Some(Tried {
                key: key.hashed(),
                since: now,
                times: 1,
            });
        }
    }

    /// How often it was tried lately.
    pub(super) fn of(&self, key: &DbKey, now: Instant) -> u32 {
        let set = self.places.get(set_of(key)).unwrap_or_default();
        let tried = set.iter().find(|place| is_of(place, key));
        let tried = tried.copied().flatten();
        let lately = tried.filter(|tried| is_lately(tried, now));
        lately.map_or(0, |tried| tried.times)
    }
}

fn is_lately(tried: &Tried, now: Instant) -> bool {
    now.saturating_duration_since(tried.since) <= ATTEMPTS_WINDOW
}

fn set_of(key: &DbKey) -> std::ops::Range<usize> {
    let set = key.hashed().0 as usize % (MAX_TRIED / WAYS) * WAYS;
    set..set + WAYS
}

fn is_of(place: &Option<Tried>, key: &DbKey) -> bool {
    place.is_some_and(|tried| tried.key == key.hashed())
}
