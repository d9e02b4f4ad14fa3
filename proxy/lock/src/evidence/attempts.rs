//! How often a connection recently tried to acquire each lock. A view for policies: it proves nothing.

use std::time::{Duration, Instant};

use crate::db_key::{DbKey, KeyHash};

/// The length of the sliding window for `attempts`. Of the attempts in the window before, as many count as would if
/// they had come evenly. So attempts expire one by one, and not all at once.
pub const ATTEMPTS_WINDOW: Duration = Duration::from_secs(10);
/// The most locks whose attempts one connection counts at a time; the least tried ones are dropped. One place for every
/// lock ever tried cost a connection 250 bytes each, and most were tried once.
pub const MAX_TRIED: usize = 128;

/// How often locks were tried recently. A key is stored as its hash, so no buffer is kept alive and nothing is
/// allocated per attempt; two keys with the same hash would be counted together.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    /// Sets of [`WAYS`] places; none before the first try.
    pub(super) places: Vec<Option<Tried>>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Tried {
    key: KeyHash,
    /// When the present window began.
    since: Instant,
    times: u32,
    /// Attempts in the window before.
    before: u32,
}

/// The number of places that a key may take.
const WAYS: usize = 8;

impl Attempts {
    /// Counts one more attempt.
    pub(super) fn add(&mut self, key: &DbKey, now: Instant) {
        if self.places.is_empty() {
            self.places = vec![None; MAX_TRIED];
        }
        let set = &mut self.places[set_of(key)];
        let known = set.iter().position(|place| is_of(place, key));
        if let Some(Some(tried)) = known.map(|at| &mut set[at]) {
            *tried = tried.at(now);
            tried.times = tried.times.saturating_add(1);
            return;
        }
        // A free place is taken first, then one whose window is over, then the least tried.
        let worth = |place: &&mut Option<Tried>| place.map(|tried| (tried.lately(now), tried.since));
        if let Some(least) = set.iter_mut().min_by_key(worth) {
            *least = Some(Tried { key: key.hashed(), since: now, times: 1, before: 0 });
        }
    }

    /// How often it was tried recently.
    pub(super) fn of(&self, key: &DbKey, now: Instant) -> u32 {
        let set = self.places.get(set_of(key)).unwrap_or_default();
        let tried = set.iter().find(|place| is_of(place, key));
        let tried = tried.copied().flatten();
        tried.map_or(0, |tried| tried.lately(now))
    }

    /// The last attempt was refused by a policy, so it does not count: otherwise a client that keeps trying would be
    /// refused for ever.
    pub(super) fn take_back(&mut self, key: &DbKey) {
        let set = self.places.get_mut(set_of(key)).unwrap_or_default();
        if let Some(Some(tried)) = set.iter_mut().find(|place| is_of(place, key)) {
            tried.times = tried.times.saturating_sub(1);
        }
    }
}

impl Tried {
    /// The same, moved to the window of this time.
    fn at(self, now: Instant) -> Tried {
        let age = now.saturating_duration_since(self.since);
        if age < ATTEMPTS_WINDOW {
            return self;
        }
        let (since, before) = match self.since.checked_add(ATTEMPTS_WINDOW) {
            Some(next) if age < ATTEMPTS_WINDOW * 2 => (next, self.times),
            Some(_) | None => (now, 0),
        };
        Tried { since, times: 0, before, ..self }
    }

    fn lately(self, now: Instant) -> u32 {
        let window = self.at(now);
        let passed = now.saturating_duration_since(window.since).as_secs_f64();
        let left = 1.0 - passed / ATTEMPTS_WINDOW.as_secs_f64();
        let before = f64::from(window.before) * left.max(0.0);
        window.times.saturating_add(before.floor() as u32)
    }
}

fn set_of(key: &DbKey) -> std::ops::Range<usize> {
    let set = key.hashed().0 as usize % (MAX_TRIED / WAYS) * WAYS;
    set..set + WAYS
}

fn is_of(place: &Option<Tried>, key: &DbKey) -> bool {
    place.is_some_and(|tried| tried.key == key.hashed())
}
