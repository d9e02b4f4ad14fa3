//! A map that forgets values that were not used for long: bounded, and as cheap as two hash maps. It has a young half and an
//! old half; using a value makes it young, and when the young half is full, the old half is forgotten. Values are boxed: many
//! are large, and half of the places of a hash map may be empty.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};

/// See the module.
pub(super) struct Recent<K, V, S = RandomState> {
    young: HashMap<K, Box<V>, S>,
    old: HashMap<K, Box<V>, S>,
    half: usize,
    /// Selects values to keep even if they were not used for long, as far as there is room.
    keeps: fn(&V) -> bool,
}

impl<K: Clone + Eq + Hash, V, S: BuildHasher + Default> Recent<K, V, S> {
    /// Holds at most `most` values.
    pub(super) fn new(most: usize, keeps: fn(&V) -> bool) -> Recent<K, V, S> {
        Recent { young: HashMap::default(), old: HashMap::default(), half: (most / 2).max(1), keeps }
    }

    /// The value, without counting as a use.
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.young.get(key).or_else(|| self.old.get(key)).map(Box::as_ref)
    }

    /// The same, mutable.
    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let value = match self.young.get_mut(key) {
            Some(value) => Some(value),
            None => self.old.get_mut(key),
        };
        value.map(Box::as_mut)
    }

    /// Uses the value. A missing one is created.
    pub(super) fn used(&mut self, key: &K, make: impl FnOnce(&K) -> V) -> &mut V {
        if !self.young.contains_key(key) {
            let old = self.old.remove_entry(key);
            let (key, value) = old.unwrap_or_else(|| (key.clone(), Box::new(make(key))));
            if self.young.len() >= self.half {
                self.grow_old();
            }
            self.young.insert(key, value);
        }
        self.young.get_mut(key).expect("it was there or has just been put there")
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.young.iter().chain(&self.old).map(|(key, value)| (key, &**value))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.young.iter_mut().chain(&mut self.old).map(|(key, value)| (key, &mut **value))
    }

    fn grow_old(&mut self) {
        let forgotten = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
        let kept = forgotten.into_iter().filter(|(_, value)| (self.keeps)(value));
        self.young.extend(kept.take(self.half / 2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn use_up_to(recent: &mut Recent<u32, u32>, count: u32) {
        for number in 0..count {
            *recent.used(&number, |_| 0) += number;
        }
    }

    #[test]
    fn it_is_bounded_and_the_latest_stay() {
        let mut recent: Recent<u32, u32> = Recent::new(100, |_| false);
        use_up_to(&mut recent, 10_000);
        assert!(recent.iter().count() <= 100);
        assert!((9_950..10_000).all(|number| recent.get(&number).is_some()));
        assert_eq!(recent.get(&0), None);
    }

    #[test]
    fn what_is_used_stays() {
        let mut recent: Recent<u32, u32> = Recent::new(100, |_| false);
        for number in 1..10_000 {
            *recent.used(&0, |_| 0) += 1;
            recent.used(&number, |_| 0);
        }
        assert_eq!(recent.get(&0), Some(&9_999));
    }

    #[test]
    fn what_is_worth_it_stays_as_far_as_there_is_room() {
        let mut recent: Recent<u32, u32> = Recent::new(100, |value| value % 100 == 7);
        use_up_to(&mut recent, 1_000);
        assert_eq!(recent.get(&7), Some(&7));
        let mut all: Recent<u32, u32> = Recent::new(100, |_| true);
        use_up_to(&mut all, 10_000);
        assert!(all.iter().count() <= 100);
    }
}
