//! Changes by their description, each with its applications and an example.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Applications that are counted by name for one change.
const MAX_NAMES: usize = 100;
/// The longest text of a change that is kept, in characters.
const MAX_CHARS: usize = 300;

/// Answers that differ in the same way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub change: String,
    pub questions: u64,
    pub applications: BTreeMap<String, u64>,
    /// The first of them.
    pub example: Example,
}

/// One question, as an example.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Example {
    /// Unix ms.
    pub at: u64,
    /// Its line in the audit trail; 0 if it does not come from there.
    pub seq: u64,
    pub namespace: String,
    pub command: String,
    pub key: String,
}

/// The changes so far.
#[derive(Debug)]
pub struct Changes {
    /// How many are distinguished; all further ones are counted as one.
    most: usize,
    changes: Vec<Change>,
    /// The place of each change, by its description.
    places: BTreeMap<String, usize>,
}

impl Changes {
    /// An empty list of at most this many changes.
    pub fn at_most(most: usize) -> Changes {
        Changes { most, changes: Vec::new(), places: BTreeMap::new() }
    }

    /// Counts a change with this description.
    pub fn add(&mut self, change: &str, application: &str, example: impl FnOnce() -> Example) {
        let change = short(change);
        let is_new = !self.places.contains_key(&change);
        let words = match is_new && self.places.len() >= self.most {
            true => "something else".to_owned(),
            false => change,
        };
        let changes = &mut self.changes;
        let place = *self.places.entry(words.clone()).or_insert_with(|| {
            let Example { at, seq, namespace, command, key } = example();
            changes.push(Change {
                change: words,
                questions: 0,
                applications: BTreeMap::new(),
                example: Example { at, seq, namespace: short(&namespace), command: short(&command), key: short(&key) },
            });
            changes.len() - 1
        });
        if let Some(change) = changes.get_mut(place) {
            change.questions += 1;
            count(&mut change.applications, application);
        }
    }

    /// All of them, the most frequent first.
    pub fn listed(&self) -> Vec<Change> {
        let mut changes = self.changes.clone();
        changes.sort_by_key(|change| std::cmp::Reverse(change.questions));
        changes
    }
}

/// Counts one by its name; beyond a limit all others share one entry.
pub fn count(by_name: &mut BTreeMap<String, u64>, name: &str) {
    let name = short(name);
    let is_counted = by_name.contains_key(&name) || by_name.len() < MAX_NAMES;
    let name = if is_counted { name } else { "others".to_owned() };
    *by_name.entry(name).or_default() += 1;
}

/// A text, cut to a limited length, as it may contain anything.
fn short(text: &str) -> String {
    text.chars().take(MAX_CHARS).collect()
}
