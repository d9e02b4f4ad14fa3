//! Folds repeated events: the first gets a line at once, and those that follow within a window share one later line. It
//! counts nothing, writes nothing and reads no clock; each user of this module defines which events are equal, and what
//! is stored of those that wait for their line.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Recent events, with one place for each key.
pub(super) struct Folder<K, F> {
    window: Duration,
    places: HashMap<K, Place<F>>,
}

struct Place<F> {
    /// When the last line was written.
    line: Instant,
    /// The events that are in no line yet.
    folded: Option<F>,
}

/// What to do with the new event.
pub(super) enum Turn<'a, F> {
    /// It gets a line now, which also includes those folded since the last one.
    Line(Option<F>),
    /// Add it to those that wait for a line.
    Fold(&'a mut Option<F>),
}

impl<K: Eq + Hash, F> Folder<K, F> {
    /// An empty folder; lines about one key are at least `window` apart.
    pub(super) fn new(window: Duration) -> Folder<K, F> {
        Folder { window, places: HashMap::new() }
    }

    /// Whether there is a place for this key, with at most `max_places` in all.
    pub(super) fn has_room(&self, key: &K, max_places: usize) -> bool {
        self.places.len() < max_places || self.places.contains_key(key)
    }

    /// A new event arrived.
    pub(super) fn turn(&mut self, key: K, now: Instant) -> Turn<'_, F> {
        match self.places.entry(key) {
            Entry::Vacant(empty) => {
                empty.insert(Place { line: now, folded: None });
                Turn::Line(None)
            }
            Entry::Occupied(known) => {
                let place = known.into_mut();
                if !place.is_due(now, self.window) {
                    return Turn::Fold(&mut place.folded);
                }
                place.line = now;
                Turn::Line(place.folded.take())
            }
        }
    }

    /// Takes the events that have waited for a window since the last line. Their place then waits for its next line; a
    /// place that was quiet for the window is forgotten. Call this about once a second.
    pub(super) fn drain(&mut self, now: Instant, mut told: impl FnMut(&K, F)) {
        self.places.retain(|key, place| {
            if !place.is_due(now, self.window) {
                return true;
            }
            let Some(folded) = place.folded.take() else {
                return false;
            };
            place.line = now;
            told(key, folded);
            true
        });
    }

    /// Like [`Folder::drain`], but forgets every place that it takes from, so that the next event with its key gets a
    /// line at once.
    pub(super) fn forget(&mut self, now: Instant) -> impl Iterator<Item = F> {
        let window = self.window;
        self.places.extract_if(move |_, place| place.is_due(now, window)).filter_map(|(_, place)| place.folded)
    }
}

impl<F> Place<F> {
    fn is_due(&self, now: Instant, window: Duration) -> bool {
        now.saturating_duration_since(self.line) >= window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(1);

    /// Counts one more event; returns how many were folded if it gets a line.
    fn turn(folder: &mut Folder<&str, u32>, key: &'static str, now: Instant) -> Option<u32> {
        match folder.turn(key, now) {
            Turn::Line(folded) => Some(folded.unwrap_or(0)),
            Turn::Fold(folded) => {
                *folded.get_or_insert(0) += 1;
                None
            }
        }
    }

    #[test]
    fn one_line_a_window_and_key_tells_of_all_since_the_line_before() {
        let (mut folder, start) = (Folder::new(WINDOW), Instant::now());
        assert_eq!(turn(&mut folder, "a", start), Some(0));
        assert_eq!(turn(&mut folder, "a", start), None);
        assert_eq!(turn(&mut folder, "b", start), Some(0));
        assert_eq!(turn(&mut folder, "a", start), None);
        assert_eq!(turn(&mut folder, "a", start + WINDOW), Some(2));
        assert_eq!(turn(&mut folder, "a", start + WINDOW), None);
    }

    #[test]
    fn what_waits_is_drained_after_a_window_and_quiet_places_are_forgotten() {
        let (mut folder, start) = (Folder::new(WINDOW), Instant::now());
        for key in ["a", "a", "b"] {
            turn(&mut folder, key, start);
        }
        let mut drained = |seconds: u32| {
            let mut told = Vec::new();
            folder.drain(start + seconds * WINDOW, |key, folded| {
                told.push((*key, folded));
            });
            (told, folder.places.len())
        };
        assert_eq!(drained(0), (vec![], 2));
        assert_eq!(drained(1), (vec![("a", 1)], 1));
        assert_eq!(drained(1), (vec![], 1));
        assert_eq!(drained(2), (vec![], 0));
    }

    #[test]
    fn a_forgotten_place_gives_up_what_waits_and_begins_anew() {
        let (mut folder, start) = (Folder::new(WINDOW), Instant::now());
        for key in ["a", "a", "b"] {
            turn(&mut folder, key, start);
        }
        assert_eq!(folder.forget(start).count(), 0);
        let later = start + WINDOW;
        assert_eq!(folder.forget(later).collect::<Vec<_>>(), [1]);
        assert!(folder.places.is_empty());
        assert_eq!(turn(&mut folder, "a", later), Some(0));
    }

    #[test]
    fn a_full_folder_has_room_for_what_it_knows() {
        let (mut folder, now) = (Folder::new(WINDOW), Instant::now());
        turn(&mut folder, "a", now);
        assert!(folder.has_room(&"b", 2));
        assert!(!folder.has_room(&"b", 1));
        assert!(folder.has_room(&"a", 1));
    }
}
