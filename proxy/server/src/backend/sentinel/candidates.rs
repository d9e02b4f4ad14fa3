//! What each sentinel said last, and which primary to follow. Decides by what was said and when; connects to nothing.
//!
//! The highest epoch counts: a sentinel that was cut off from the others names the old primary with an older one. An answer
//! that its own server does not confirm is not followed for ever, so that one sentinel cannot stop everybody: after a while
//! the primary that proved to be one counts again, where most sentinels go on naming it. And sentinels that were set up
//! anew begin to count from 0: what all of them say together counts, whatever the epoch.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lockwarden_lock::promise::most_since;

use super::named::{Named, Place, SentinelError};

/// A sentinel that has not answered for so long is not heard.
const HEARD_WITHIN: Duration = Duration::from_secs(5);
/// How long one that is named and is no primary is tried before the last one may count again. Sentinels tell one another
/// of a failover within 2 s.
const TRIED_FOR: Duration = Duration::from_secs(5);

/// One that is not in the backend's URL, and that no other has named for so long, is gone: it was replaced, at another address.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// See the module.
pub(super) struct Candidates {
    sentinels: BTreeMap<Place, Told>,
    /// The last that said of itself that it is the primary.
    proved: Option<Named>,
    /// One that did not, and since when.
    doubtful: Option<(Named, Instant)>,
}

#[derive(Default)]
struct Told {
    /// The backend's URL names it.
    configured: bool,
    /// When another sentinel named it last.
    listed: Option<Instant>,
    last: Option<(Named, Instant)>,
    failure: Option<SentinelError>,
}

impl Told {
    fn configured() -> Told {
        Told { configured: true, ..Told::default() }
    }

    /// Whether it is one of those of which most have to be heard.
    fn counts(&self, now: Instant) -> bool {
        let heard = self.last.as_ref().map(|(_, at)| *at);
        let known = [self.listed, heard].into_iter().flatten().max();
        let is_known = |at: Instant| now.saturating_duration_since(at) < FORGOTTEN_AFTER;
        self.configured || known.is_some_and(is_known)
    }

    fn fresh(&self, now: Instant) -> Option<&Named> {
        let (named, at) = self.last.as_ref()?;
        let is_fresh = self.failure.is_none() && now.saturating_duration_since(*at) < HEARD_WITHIN;
        is_fresh.then_some(named)
    }
}

impl Candidates {
    pub(super) fn new(places: impl Iterator<Item = Place>) -> Candidates {
        Candidates {
            sentinels: places.map(|place| (place, Told::configured())).collect(),
            proved: None,
            doubtful: None,
        }
    }

    pub(super) fn places(&self) -> Vec<Place> {
        self.sentinels.keys().cloned().collect()
    }

    /// Another sentinel has named this one.
    pub(super) fn learn(&mut self, place: Place, most: usize, now: Instant) {
        if let Some(told) = self.sentinels.get_mut(&place) {
            told.listed = Some(now);
            return;
        }
        self.sentinels.retain(|_, told| told.counts(now));
        if self.sentinels.len() < most {
            let listed = Some(now);
            self.sentinels.insert(place, Told { listed, ..Told::default() });
        }
    }

    fn counted(&self, now: Instant) -> impl Iterator<Item = &Told> {
        self.sentinels.values().filter(move |told| told.counts(now))
    }

    /// One was asked at this moment, and named this primary.
    pub(super) fn named(&mut self, from: &Place, named: Named, asked: Instant) {
        if let Some(told) = self.sentinels.get_mut(from) {
            told.last = Some((named, asked));
            told.failure = None;
        }
    }

    pub(super) fn failed(&mut self, from: &Place, error: SentinelError) {
        if let Some(told) = self.sentinels.get_mut(from) {
            told.failure = Some(error);
        }
    }

    pub(super) fn heard(&self, now: Instant) -> (usize, usize) {
        (self.fresh(now).count(), self.counted(now).count())
    }

    pub(super) fn proved(&mut self, named: &Named) {
        self.proved = Some(named.clone());
        // Another that was tried in vain is not tried again because this one is a primary.
        self.doubtful.take_if(|(doubtful, _)| doubtful == named);
    }

    pub(super) fn disproved(&mut self, named: &Named, now: Instant) {
        match &self.doubtful {
            Some((doubtful, _)) if doubtful == named => {}
            _ => self.doubtful = Some((named.clone(), now)),
        }
    }

    /// Since when most sentinels that are known have been heard naming this one.
    pub(super) fn heard_by_most(&self, named: &Named, now: Instant) -> Option<Instant> {
        most_since(self.counted(now).map(|told| {
            let last = told.last.as_ref().filter(|(last, _)| last == named);
            last.map(|(_, asked)| *asked)
        }))
    }

    /// Until when more than half of those that are known count as heard, whatever they name.
    pub(super) fn most_heard_until(&self, now: Instant) -> Option<Instant> {
        let since = most_since(self.counted(now).map(|told| {
            let last = told.last.as_ref().filter(|_| told.failure.is_none());
            last.map(|(_, asked)| *asked)
        }));
        since.map(|since| since + HEARD_WITHIN)
    }

    /// The primary to follow.
    pub(super) fn choose(&self, now: Instant) -> Option<Named> {
        let told = self.sentinels.values().filter_map(|told| told.last.as_ref());
        let newest = told.map(|(named, _)| named).max_by_key(|named| named.epoch)?;
        let proved = self.proved.as_ref();
        if proved.is_some_and(|proved| newest.epoch <= proved.epoch) {
            return self.all_name(now).or(proved).cloned();
        }
        let is_given_up = self
            .doubtful
            .as_ref()
            .is_some_and(|(doubtful, since)| doubtful == newest && now.saturating_duration_since(*since) >= TRIED_FOR);
        let instead = self.most_name(now).filter(|_| is_given_up);
        Some(instead.unwrap_or(newest).clone())
    }

    pub(super) fn said(&self, now: Instant) -> Vec<(Place, Result<Named, Option<SentinelError>>)> {
        let counted = self.sentinels.iter().filter(|(_, told)| told.counts(now));
        let said = counted.map(|(place, told)| {
            let fresh = told.fresh(now).cloned();
            (place.clone(), fresh.ok_or_else(|| told.failure.clone()))
        });
        said.collect()
    }

    fn fresh(&self, now: Instant) -> impl Iterator<Item = &Named> {
        self.sentinels.values().filter_map(move |told| told.fresh(now))
    }

    /// What most sentinels that are known say now.
    pub(super) fn most_name(&self, now: Instant) -> Option<&Named> {
        let named_by = |named: &&Named| self.fresh(now).filter(|other| other == named).count();
        let most = self.fresh(now).max_by_key(named_by)?;
        (named_by(&most) * 2 > self.counted(now).count()).then_some(most)
    }

    /// What every sentinel of the URL says now, and every other that is heard, if all say the same.
    fn all_name(&self, now: Instant) -> Option<&Named> {
        let mut configured = self.sentinels.values().filter(|told| told.configured);
        let first = self.fresh(now).next()?;
        let agree = configured.all(|told| told.fresh(now).is_some()) && self.fresh(now).all(|other| other == first);
        agree.then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(port: u16) -> Place {
        Place { host: "s".to_owned(), port }
    }

    fn named(port: u16, epoch: u64) -> Named {
        Named { place: place(port), epoch }
    }

    fn three() -> Candidates {
        Candidates::new([1, 2, 3].into_iter().map(place))
    }

    #[test]
    fn the_highest_epoch_counts_whoever_says_it_and_an_older_one_never() {
        let now = Instant::now();
        let mut all = three();
        assert_eq!(all.choose(now), None);
        all.named(&place(1), named(100, 4), now);
        assert_eq!(all.choose(now), Some(named(100, 4)));
        all.proved(&named(100, 4));
        all.named(&place(2), named(200, 5), now);
        assert_eq!(all.choose(now), Some(named(200, 5)));
        all.proved(&named(200, 5));
        // One that was cut off comes back with what it knew, and the others are silent.
        let later = now + 2 * HEARD_WITHIN;
        all.named(&place(3), named(100, 4), later);
        assert_eq!(all.choose(later), Some(named(200, 5)));
        assert_eq!(all.heard(later), (1, 3));
    }

    #[test]
    fn one_that_names_what_is_no_primary_is_not_followed_for_ever() {
        let now = Instant::now();
        let mut all = three();
        for sentinel in 1..=3 {
            all.named(&place(sentinel), named(100, 4), now);
        }
        all.proved(&named(100, 4));
        all.named(&place(3), named(666, 99), now);
        assert_eq!(all.choose(now), Some(named(666, 99)));
        all.disproved(&named(666, 99), now);
        let soon = now + TRIED_FOR / 2;
        all.disproved(&named(666, 99), soon);
        assert_eq!(all.choose(soon), Some(named(666, 99)));
        let late = now + TRIED_FOR;
        assert_eq!(all.choose(late), Some(named(666, 99)), "nobody names the other one now");
        for sentinel in 1..=2 {
            all.named(&place(sentinel), named(100, 4), late);
        }
        assert_eq!(all.choose(late), Some(named(100, 4)));
    }

    #[test]
    fn before_any_proved_to_be_one_what_most_name_counts_in_the_end() {
        let now = Instant::now();
        let mut all = three();
        all.named(&place(3), named(666, 99), now);
        for sentinel in 1..=2 {
            all.named(&place(sentinel), named(100, 4), now);
        }
        all.disproved(&named(666, 99), now);
        assert_eq!(all.choose(now), Some(named(666, 99)));
        let late = now + TRIED_FOR;
        for sentinel in 1..=2 {
            all.named(&place(sentinel), named(100, 4), late);
        }
        assert_eq!(all.choose(late), Some(named(100, 4)));
        all.proved(&named(100, 4));
        assert_eq!(all.choose(late), Some(named(100, 4)), "and it stays so");
        for sentinel in [1, 3] {
            all.named(&place(sentinel), named(666, 99), late);
        }
        assert_eq!(all.choose(late), Some(named(666, 99)), "most name it");
    }

    #[test]
    fn sentinels_that_count_from_the_beginning_are_believed_where_all_of_them_agree() {
        let now = Instant::now();
        let mut all = three();
        all.named(&place(1), named(100, 7), now);
        all.proved(&named(100, 7));
        all.learn(place(4), 10, now);
        for sentinel in 1..=3 {
            assert_eq!(all.choose(now), Some(named(100, 7)));
            all.named(&place(sentinel), named(200, 0), now);
        }
        assert_eq!(all.choose(now), Some(named(200, 0)));
        all.failed(&place(2), SentinelError::Late);
        assert_eq!(all.choose(now), Some(named(100, 7)), "one of them is silent");
    }

    #[test]
    fn most_are_heard_since_the_moment_at_which_the_last_of_them_was_asked() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let mut all = three();
        all.named(&place(1), named(100, 4), at(1));
        assert_eq!(all.heard_by_most(&named(100, 4), at(4)), None);
        assert_eq!(all.most_heard_until(at(4)), None);
        all.named(&place(2), named(100, 4), at(3));
        assert_eq!(all.heard_by_most(&named(100, 4), at(4)), Some(at(1)));
        assert_eq!(all.most_heard_until(at(4)), Some(at(1) + HEARD_WITHIN));
        all.named(&place(3), named(100, 4), at(2));
        assert_eq!(all.heard_by_most(&named(100, 4), at(4)), Some(at(2)));
        // What one said before it was silent stays true; and one that names another is none of them.
        all.failed(&place(2), SentinelError::Late);
        assert_eq!(all.heard_by_most(&named(100, 4), at(4)), Some(at(2)));
        assert_eq!(all.most_heard_until(at(4)), Some(at(1) + HEARD_WITHIN));
        all.named(&place(2), named(200, 5), at(4));
        assert_eq!(all.heard_by_most(&named(100, 4), at(4)), Some(at(1)));
        assert_eq!(all.heard_by_most(&named(200, 5), at(4)), None);
    }

    #[test]
    fn one_that_was_replaced_is_forgotten_once_no_other_names_it() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let mut all = Candidates::new([place(1)].into_iter());
        for number in 2..=3 {
            all.learn(place(number), 10, now);
        }
        for number in 1..=3 {
            all.named(&place(number), named(100, 4), now);
        }
        assert_eq!(all.heard(now), (3, 3));
        // The second stands at another address now; the third is silent, but the first goes on naming it.
        for seconds in [30, 60, 90] {
            all.learn(place(3), 10, at(seconds));
            all.learn(place(4), 10, at(seconds));
            for number in [1, 4] {
                all.named(&place(number), named(100, 4), at(seconds));
            }
        }
        assert_eq!(all.heard(at(90)), (2, 3));
        assert_eq!(all.heard_by_most(&named(100, 4), at(90)), Some(at(90)));
        assert_eq!(all.most_name(at(90)), Some(&named(100, 4)));
    }

    #[test]
    fn only_so_many_sentinels_are_learned() {
        let mut all = three();
        for port in 1..100 {
            all.learn(place(port), 10, Instant::now());
        }
        assert_eq!(all.places().len(), 10);
    }
}
