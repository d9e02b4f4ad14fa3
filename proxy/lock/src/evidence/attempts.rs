//! How often a connection tried which lock lately. A view for policies: it proves nothing.

use std::time::{Duration, Instant};

use crate::db_key::{DbKey, KeyHash};

/// `attempts` are those of a window of this length that goes along with the time: of the tries before, as many count as
/// would if they had come evenly. So they wear off one by one, and not all at once.
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
    /// When the window that is counted now began.
    since: Instant,
    times: u32,
    /// In the window before.
    before: u32,
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
            *tried = tried.at(now);
            tried.times = tried.times.saturating_add(1);
            return;
        }
        // A free place is worth least, then what is over, then what was tried least.
        let worth = |place: &&mut Option<Tried>| place.map(|tried| (tried.lately(now), tried.since));
        if let Some(least) = set.iter_mut().min_by_key(worth) {
            *least = Some(Tried { key: key.hashed(), since: now, times: 1, before: 0 });
        }
    }

    /// How often it was tried lately.
    pub(super) fn of(&self, key: &DbKey, now: Instant) -> u32 {
        let set = self.places.get(set_of(key)).unwrap_or_default();
        let tried = set.iter().find(|place| is_of(place, key));
        let tried = tried.copied().flatten();
        tried.map_or(0, |tried| tried.lately(now))
    }

    /// The last try was refused by a policy, so it is none: else a client that goes on trying would be refused for ever.
    pub(super) fn take_back(&mut self, key: &DbKey) {
        let set = self.places.get_mut(set_of(key)).unwrap_or_default();
        if let Some(Some(tried)) = set.iter_mut().find(|place| is_of(place, key)) {
            tried.times = tried.times.saturating_sub(1);
        }
    }
}

impl Tried {
    /// The same in the window of that time.
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
