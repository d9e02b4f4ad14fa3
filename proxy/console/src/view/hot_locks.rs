//! The most requested locks, by a space-saving sketch: a fixed number of counters, in which a lock that is not counted replaces
//! the one with the lowest count and inherits that count as its possible error. So a lock with more tries than that is never
//! missed. Two sketches take turns, so that locks that were hot an hour ago are not reported now.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockwarden_lock::db_key::{DbKey, DbMap};

/// Counters of one sketch.
const COUNTED: usize = 64;
/// How long one sketch counts: a reply covers the last one to two turns.
const TURN: Duration = Duration::from_secs(300);

/// One counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) namespace: Arc<str>,
    /// The upper bound of its tries.
    pub(super) tries: u64,
    /// How many of them may belong to another lock.
    pub(super) error: u64,
    /// The lower bound of the tries that met a held lock.
    pub(super) contended: u64,
}

#[derive(Default)]
struct Sketch {
    counts: Vec<(DbKey, Count)>,
    places: DbMap<usize>,
    /// No count is lower, and the counts before `next` are higher: counts only grow.
    lowest: u64,
    next: usize,
}

/// The sketches of this turn and the one before.
#[derive(Default)]
pub(super) struct HotLocks {
    now: Sketch,
    before: Sketch,
    turned: Option<Instant>,
}

impl HotLocks {
    /// Counts a try to take a lock.
    pub(super) fn tried(&mut self, key: &DbKey, namespace: &Arc<str>, contended: bool, at: Instant) {
        let since = *self.turned.get_or_insert(at);
        let passed = at.saturating_duration_since(since);
        if passed >= TURN {
            let over = std::mem::take(&mut self.now);
            // After a turn without any try the older counts are obsolete.
            self.before = if passed >= 2 * TURN { Sketch::default() } else { over };
            self.turned = Some(at);
        }
        self.now.tried(key, namespace, contended);
    }

    /// The hottest first, over the last one to two turns.
    pub(super) fn hottest(&self, now: Instant) -> Vec<(DbKey, Count)> {
        let passed = self.turned.map(|since| now.saturating_duration_since(since));
        let sketches = match passed {
            None => return Vec::new(),
            Some(passed) if passed >= 2 * TURN => return Vec::new(),
            Some(_) => [&self.now, &self.before],
        };
        let mut merged: HashMap<&DbKey, Count> = HashMap::new();
        for (sketch, other) in [(0, 1), (1, 0)].map(|(one, other)| (sketches[one], sketches[other])) {
            for (key, count) in &sketch.counts {
                // A lock without a counter in the other sketch may have had as many tries there as its lowest count.
                let elsewhere = other.get(key).cloned().unwrap_or_else(|| Count {
                    namespace: count.namespace.clone(),
                    tries: other.unseen(),
                    error: other.unseen(),
                    contended: 0,
                });
                merged.entry(key).or_insert_with(|| Count {
                    namespace: count.namespace.clone(),
                    tries: count.tries + elsewhere.tries,
                    error: count.error + elsewhere.error,
                    contended: count.contended + elsewhere.contended,
                });
            }
        }
        let mut hottest: Vec<(DbKey, Count)> = merged.into_iter().map(|(key, count)| (key.clone(), count)).collect();
        hottest.sort_by(|(key, count), (other, of_other)| {
            let sure = |count: &Count| count.tries - count.error;
            sure(of_other).cmp(&sure(count)).then_with(|| key.cmp(other))
        });
        hottest.truncate(COUNTED);
        hottest
    }
}

impl Sketch {
    fn tried(&mut self, key: &DbKey, namespace: &Arc<str>, contended: bool) {
        if let Some(&place) = self.places.get(key) {
            let (_, count) = &mut self.counts[place];
            count.tries += 1;
            count.contended += u64::from(contended);
            return;
        }
        let count = |inherited| Count {
            namespace: namespace.clone(),
            tries: inherited + 1,
            error: inherited,
            contended: u64::from(contended),
        };
        let place = self.counts.len();
        if place < COUNTED {
            self.counts.push((key.clone(), count(0)));
            self.places.insert(key.clone(), place);
            return;
        }
        let place = self.least();
        let (before, lowest) = &mut self.counts[place];
        self.places.remove(before);
        self.places.insert(key.clone(), place);
        (*before, *lowest) = (key.clone(), count(lowest.tries));
    }

    /// The place of a lowest count. One pass over all counts serves as many replacements as there are counts that low.
    fn least(&mut self) -> usize {
        let is_lowest = |(_, count): &(DbKey, Count)| count.tries == self.lowest;
        let rest = &self.counts[self.next.min(self.counts.len())..];
        let place = match rest.iter().position(is_lowest) {
            Some(further) => self.next + further,
            None => {
                let counts = self.counts.iter().map(|(_, count)| count.tries);
                self.lowest = counts.min().unwrap_or(0);
                let is_lowest = |(_, count): &(DbKey, Count)| count.tries == self.lowest;
                self.counts.iter().position(is_lowest).unwrap_or(0)
            }
        };
        self.next = place + 1;
        place
    }

    fn get(&self, key: &DbKey) -> Option<&Count> {
        let place = self.places.get(key)?;
        self.counts.get(*place).map(|(_, count)| count)
    }

    /// How many tries a lock without a counter may have had.
    fn unseen(&self) -> u64 {
        if self.counts.len() < COUNTED {
            return 0;
        }
        let tries = self.counts.iter().map(|(_, count)| count.tries);
        tries.min().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    fn key(name: u64) -> DbKey {
        DbKey::new(0, format!("lock:{name}").as_bytes())
    }

    #[test]
    fn a_hot_lock_is_found_among_very_many() {
        let (mut hot, start, orders) = (HotLocks::default(), Instant::now(), "orders".into());
        for number in 0..100_000 {
            hot.tried(&key(number), &orders, false, start);
            if number % 10 == 0 {
                hot.tried(&key(7), &orders, true, start);
            }
        }
        let hottest = hot.hottest(start);
        let (first, count) = &hottest[0];
        assert_eq!(*first, key(7));
        assert!(count.tries >= 10_001 && count.tries - count.error <= 10_001, "{count:?}");
        assert!(hottest.len() <= COUNTED);
    }

    #[test]
    fn few_locks_are_counted_exactly() {
        let (mut hot, start, orders) = (HotLocks::default(), Instant::now(), "orders".into());
        let later = start + TURN;
        for at in [start, start, later] {
            hot.tried(&key(1), &orders, true, at);
        }
        hot.tried(&key(2), &orders, false, start);
        let hottest = hot.hottest(later);
        let told: Vec<(&DbKey, u64, u64, u64)> =
            hottest.iter().map(|(key, count)| (key, count.tries, count.error, count.contended)).collect();
        assert_eq!(told, [(&key(1), 3, 0, 3), (&key(2), 1, 0, 0)]);
    }

    #[test]
    fn what_was_hot_long_ago_is_not_hot_now() {
        let (mut hot, start, orders) = (HotLocks::default(), Instant::now(), "orders".into());
        hot.tried(&key(1), &orders, true, start);
        assert!(hot.hottest(start + 3 * TURN).is_empty());
        hot.tried(&key(2), &orders, true, start + 3 * TURN);
        assert_eq!(hot.hottest(start + 3 * TURN).len(), 1);
    }
}
