//! The patterns of the keys that were seen. Shapes that differ in only one word become one pattern as soon as there are
//! many such words, for example tenants' names. Bounded, whatever the keys are.

use std::collections::HashMap;

use crate::shape::Shape;

/// Patterns that are distinguished.
pub const MAX_PATTERNS: usize = 1_000;
/// Distinct words in one place, for all places but the first.
const MAX_WORDS: usize = 12;
/// The same for the first word, which most often names the application: keys of different applications have nothing in
/// common.
const MAX_FIRST_WORDS: usize = 24;
/// Distinct single digits in one place: v1, v2 and v3 are names, u0 to u9 are not.
const MAX_DIGITS: usize = 3;
/// Words of a shape that may turn out to vary.
const MAX_PLACES: usize = 8;

/// The place of a pattern among all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PatternId(usize);

/// One pattern was merged into another, more general one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merged {
    /// The pattern that was merged.
    pub from: PatternId,
    /// The more general pattern.
    pub into: PatternId,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Patterns {
    /// Every shape that was ever a pattern, and what it was merged into.
    all: Vec<(Shape, Option<PatternId>)>,
    by_shape: HashMap<Shape, PatternId>,
    /// Patterns that differ only in one word, by their common part.
    alike: HashMap<Shape, Vec<PatternId>>,
    /// Patterns that were learnt by merging.
    learnt: Vec<PatternId>,
}

impl Patterns {
    /// The pattern of a key; `merged` gets the patterns that became one because of it. `None` if there is no room for
    /// another pattern.
    pub fn find(&mut self, key: &[u8], merged: &mut Vec<Merged>) -> Option<PatternId> {
        let shape = Shape::of(key);
        if let Some(known) = self.known(&shape) {
            return Some(known);
        }
        // Merged shapes keep their places, so that counts stored under them are still found.
        if self.by_shape.len() >= MAX_PATTERNS || self.all.len() >= 4 * MAX_PATTERNS {
            return None;
        }
        let id = self.add(shape, merged);
        Some(self.current(id))
    }

    /// The pattern of a shape, if it is known.
    pub(crate) fn known(&self, shape: &Shape) -> Option<PatternId> {
        let exact = self.by_shape.get(shape).copied();
        let of_numbers = || {
            let mut places = shape.digits();
            places.find_map(|at| self.by_shape.get(&shape.with_any(at)).copied())
        };
        exact.or_else(of_numbers).or_else(|| {
            let covers = |id: &&PatternId| self.shape(**id).covers(shape);
            self.learnt.iter().find(covers).copied()
        })
    }

    /// As a Redis glob.
    pub fn glob(&self, id: PatternId) -> Vec<u8> {
        self.shape(id).glob()
    }

    /// Its shape.
    pub(crate) fn shape(&self, id: PatternId) -> &Shape {
        &self.all[id.0].0
    }

    /// The pattern that this one has been merged into by now.
    pub fn current(&self, id: PatternId) -> PatternId {
        let mut at = id;
        while let Some(next) = self.all[at.0].1 {
            at = next;
        }
        at
    }

    fn add(&mut self, shape: Shape, merged: &mut Vec<Merged>) -> PatternId {
        let id = PatternId(self.all.len());
        self.all.push((shape.clone(), None));
        self.by_shape.insert(shape.clone(), id);
        self.take_digits(&shape, id, merged);
        let words: Vec<usize> = shape.words().take(MAX_PLACES).collect();
        for (number, at) in words.into_iter().enumerate() {
            let common = shape.with_any(at);
            // The common part must still distinguish these keys from all others.
            if !common.is_named() {
                continue;
            }
            let most = if number == 0 { MAX_FIRST_WORDS } else { MAX_WORDS };
            let alike = self.alike.entry(common.clone()).or_default();
            alike.push(id);
            if alike.len() > most.min(MAX_DIGITS) {
                alike.retain(|one| self.all[one.0].1.is_none());
            }
            let digits = alike.iter().filter(|one| self.all[one.0].0.is_digit(at));
            if alike.len() > most || (shape.is_digit(at) && digits.count() > MAX_DIGITS) {
                let into = self.learn(common, merged);
                if into != id {
                    return into;
                }
            }
        }
        id
    }

    /// Patterns with a single digit where this one has numbers become part of it.
    fn take_digits(&mut self, shape: &Shape, into: PatternId, merged: &mut Vec<Merged>) {
        let Some(alike) = self.alike.get_mut(shape) else {
            return;
        };
        let all = &self.all;
        let is_digit = |one: &PatternId| {
            let (other, part_of) = &all[one.0];
            part_of.is_none() && shape.varying().any(|at| other.is_digit(at))
        };
        let digits: Vec<PatternId> = alike.extract_if(.., |one| is_digit(one)).collect();
        for from in digits {
            self.by_shape.remove(&self.all[from.0].0);
            self.all[from.0].1 = Some(into);
            merged.push(Merged { from, into });
        }
    }

    /// Merges all patterns with this common part into one.
    fn learn(&mut self, common: Shape, merged: &mut Vec<Merged>) -> PatternId {
        let into = match self.by_shape.get(&common) {
            Some(known) => *known,
            None => self.add(common.clone(), merged),
        };
        let into = self.current(into);
        self.learnt.push(into);
        self.alike.remove(&common);
        let shape = self.shape(into).clone();
        let covered: Vec<PatternId> =
            self.by_shape.iter().filter(|(one, id)| **id != into && shape.covers(one)).map(|(_, id)| *id).collect();
        for from in covered {
            self.by_shape.remove(&self.all[from.0].0);
            self.learnt.retain(|learnt| *learnt != from);
            self.all[from.0].1 = Some(into);
            merged.push(Merged { from, into });
        }
        into
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(patterns: &mut Patterns, keys: impl IntoIterator<Item = String>) -> Vec<String> {
        for key in keys {
            patterns.find(key.as_bytes(), &mut Vec::new());
        }
        let mut shapes: Vec<String> = patterns.by_shape.keys().map(Shape::to_string).collect();
        shapes.sort();
        shapes
    }

    #[test]
    fn names_of_tenants_are_learnt_and_names_of_families_stay() {
        let mut patterns = Patterns::default();
        let tenants = ('a'..='z').flat_map(|first| ["job", "mail"].map(|family| format!("{first}corp:{family}:lock")));
        let shapes = found(&mut patterns, tenants);
        assert_eq!(shapes, ["*:job:lock", "*:mail:lock"]);

        let few = ["order", "stock", "invoice"].map(|name| format!("{name}:17:lock"));
        let shapes = found(&mut patterns, few);
        let expected = ["*:job:lock", "*:mail:lock", "invoice:*:lock", "order:*:lock", "stock:*:lock"];
        assert_eq!(shapes, expected);
    }

    #[test]
    fn numbers_of_one_digit_are_part_of_those_of_more_and_a_few_are_names() {
        let numbered = |numbers: std::ops::Range<u32>| numbers.map(|number| format!("job:u{number}:lock"));
        for numbers in [0..40, 0..10, 0..5, 8..12] {
            let all = found(&mut Patterns::default(), numbered(numbers.clone()));
            assert_eq!(all, ["job:u*:lock"], "{numbers:?}");
        }
        let versions = found(&mut Patterns::default(), numbered(1..4));
        assert_eq!(versions, ["job:u1:lock", "job:u2:lock", "job:u3:lock"]);
        let names = ["stock", "s3", "12"].map(|name| format!("lock:{name}"));
        let all = found(&mut Patterns::default(), names);
        assert_eq!(all, ["lock:*", "lock:s3", "lock:stock"]);
        let both = ["v2:u3:lock", "v2:u4:lock", "v2:u17:lock"].map(str::to_owned);
        assert_eq!(found(&mut Patterns::default(), both), ["v2:u*:lock"]);
    }

    #[test]
    fn what_was_counted_under_a_name_is_found_under_the_pattern() {
        let mut patterns = Patterns::default();
        let mut merged = Vec::new();
        let mut first = None;
        for name in 'a'..='z' {
            let id = patterns.find(format!("lock:{name}x").as_bytes(), &mut merged);
            first = first.or(id);
        }
        let first = first.expect("there is room");
        let now = patterns.current(first);
        assert_eq!(patterns.shape(now).to_string(), "lock:*");
        assert!(merged.iter().any(|one| one.from == first && one.into == now));
        // A word that comes later belongs to the same pattern.
        assert_eq!(patterns.find(b"lock:later", &mut merged), Some(now));
    }

    #[test]
    fn keys_that_have_nothing_in_common_are_not_put_together() {
        let mut patterns = Patterns::default();
        let names = (b'a'..=b'z').map(|first| {
            let letter = char::from(first);
            format!("{letter}{letter}{letter}")
        });
        let shapes = found(&mut patterns, names);
        assert_eq!(shapes.len(), 26, "{shapes:?}");
    }

    #[test]
    fn there_is_a_bound_whatever_the_keys_are() {
        let mut patterns = Patterns::default();
        let mut merged = Vec::new();
        for number in 0..20_000 {
            let key = crate::tests::unlike_others(number);
            patterns.find(key.as_bytes(), &mut merged);
        }
        assert!(patterns.by_shape.len() <= MAX_PATTERNS);
        assert!(patterns.all.len() <= 4 * MAX_PATTERNS + 1);
        let memory: usize = patterns.alike.values().map(Vec::len).sum();
        assert!(memory <= 4 * MAX_PATTERNS * MAX_PLACES, "{memory}");
    }
}
