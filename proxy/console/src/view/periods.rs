//! Counts by time, so that a report can cover the time since a repair: minutes for the last hour, hours for the last week. A
//! change of the configuration in force begins a new period, so that the time since then is exact. Bounded: if there is too
//! much to keep, the oldest periods are merged.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use lockwarden_control::clock::Moment;

use super::tally::{Counts, Noted, Tally};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
/// How far back a report reaches.
const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Counts of all periods, some 400 bytes each with the example.
const MAX_ENTRIES: usize = 32_768;
/// Periods: the minutes of an hour, the hours of a week, and changes.
const MAX_PERIODS: usize = 512;

/// See the module. The oldest first.
#[derive(Default)]
pub(super) struct Periods {
    all: VecDeque<Period>,
    /// Older periods were dropped.
    forgotten: bool,
    /// What was counted since the start, or since the last reset, before the last period began.
    ended: Tally,
    /// When an operator reset them.
    pub(super) reset: Option<Moment>,
}

struct Period {
    begin: Moment,
    /// The time of its last count.
    last: Instant,
    /// It begins with a change and is never merged with the period before.
    marked: bool,
    tally: Tally,
}

impl Period {
    /// Whether it was not over by then.
    fn reaches(&self, from: Moment) -> bool {
        self.begin.at >= from.at || self.last >= from.at
    }
}

impl Periods {
    /// Counts an event of this moment.
    pub(super) fn note(&mut self, at: Moment, noted: &Noted<'_>) {
        let begun = self.all.iter().rposition(|one| one.begin.at <= at.at);
        let goes_on = |place: usize| {
            let begin = self.all[place].begin.at;
            // A late report belongs to a period that is over.
            place + 1 < self.all.len() || at.at.saturating_duration_since(begin) < MINUTE
        };
        let place = match begun {
            Some(place) if goes_on(place) => place,
            None if !self.all.is_empty() => 0,
            Some(_) | None => {
                self.begin(at, false);
                self.all.len() - 1
            }
        };
        let is_late = place + 1 < self.all.len();
        if is_late && self.reset.is_none_or(|reset| reset.at <= at.at) {
            self.ended.note(noted);
        }
        let period = &mut self.all[place];
        period.last = period.last.max(at.at);
        period.tally.note(noted);
    }

    /// Begins a new period; `marked` if a change begins it.
    pub(super) fn begin(&mut self, at: Moment, marked: bool) {
        // Before any are merged: the last one is not among those that have ended yet.
        if let Some(last) = self.all.back_mut() {
            self.ended.add(&last.tally);
            last.tally.applications.forget_callers();
        }
        self.thin(at.at);
        self.all.push_back(Period { begin: at, last: at.at, marked, tally: Tally::default() });
    }

    /// The total begins anew.
    pub(super) fn reset(&mut self, now: Moment) {
        self.begin(now, true);
        (self.ended, self.reset) = (Tally::default(), Some(now));
    }

    /// The counts since the start, or since the last reset.
    pub(super) fn total(&self) -> Tally {
        let mut total = Tally::default();
        total.add(&self.ended);
        if let Some(last) = self.all.back() {
            total.add(&last.tally);
        }
        total
    }

    /// The counts since a moment, and their exact begin: a period counts as a whole.
    pub(super) fn since(&self, from: Moment) -> (Tally, u64) {
        let mut tally = Tally::default();
        let mut since_ms = from.unix_ms;
        for period in self.all.iter().filter(|period| period.reaches(from)) {
            // The period that had begun before.
            if period.begin.at < from.at {
                since_ms = since_ms.min(period.begin.unix_ms);
            }
            tally.add(&period.tally);
        }
        if let (true, Some(first)) = (self.forgotten, self.all.front()) {
            since_ms = since_ms.max(first.begin.unix_ms);
        }
        (tally, since_ms)
    }

    /// The counts of one namespace since a moment, and the begin of its first period.
    pub(super) fn of_namespace(&self, name: &str, from: Moment) -> (Counts, Option<Instant>) {
        let (mut counts, mut begun) = (Counts::default(), None);
        for period in self.all.iter().filter(|period| period.reaches(from)) {
            if let Some(here) = period.tally.namespaces.get(name) {
                counts.add(here);
                begun = begun.or(Some(period.begin.at));
            }
        }
        (counts, begun)
    }

    /// Merges minutes that are older than an hour into hours, and forgets periods older than a week.
    fn thin(&mut self, now: Instant) {
        let age = |period: &Period| now.saturating_duration_since(period.begin.at);
        while self.all.get(1).is_some_and(|next| age(next) > MAX_AGE) {
            self.all.pop_front();
            self.forgotten = true;
        }
        let mut place = 0;
        while place + 1 < self.all.len() && age(&self.all[place + 1]) > HOUR {
            let (one, next) = (&self.all[place], &self.all[place + 1]);
            let apart = next.begin.at.saturating_duration_since(one.begin.at);
            match next.marked || apart >= HOUR {
                true => place += 1,
                false => self.merge(place),
            }
        }
        let entries = |all: &VecDeque<Period>| all.iter().map(|one| one.tally.size()).sum::<usize>();
        while self.all.len() > 1 && (self.all.len() >= MAX_PERIODS || entries(&self.all) > MAX_ENTRIES) {
            self.merge(0);
        }
    }

    /// Merges a period with the next.
    fn merge(&mut self, place: usize) {
        if let Some(next) = self.all.remove(place + 1) {
            let one = &mut self.all[place];
            one.last = one.last.max(next.last);
            one.tally.add(&next.tally);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn at(start: Instant, seconds: u64) -> Moment {
        Moment { at: start + Duration::from_secs(seconds), unix_ms: seconds * 1_000 }
    }

    /// One call every ten seconds, for `seconds`.
    fn played(start: Instant, seconds: u64) -> Periods {
        let mut periods = Periods::default();
        let (name, one): (Arc<str>, _) = ("orders".into(), one());
        for second in (0..seconds).step_by(10) {
            periods.note(at(start, second), &Noted::Counts(&name, &one));
        }
        periods
    }

    fn one() -> Counts {
        Counts { operations: 1, ..Counts::default() }
    }

    fn operations(counted: &(Tally, u64)) -> u64 {
        counted.0.namespaces.values().map(|one| one.operations).sum()
    }

    fn total(periods: &Periods) -> u64 {
        periods.total().namespaces.values().map(|one| one.operations).sum()
    }

    #[test]
    fn what_is_asked_for_is_counted_by_whole_minutes_and_later_by_hours() {
        let start = Instant::now();
        let periods = played(start, 3 * 3_600);
        assert!(periods.all.len() <= 64, "{}", periods.all.len());
        let counted = periods.since(at(start, 3 * 3_600 - 600));
        assert_eq!((operations(&counted), counted.1), (60, 10_200_000));
        // A moment within a minute includes that whole minute, and the result says so.
        let counted = periods.since(at(start, 3 * 3_600 - 590));
        assert_eq!((operations(&counted), counted.1), (60, 10_200_000));
        let all = periods.since(at(start, 0));
        assert_eq!(operations(&all), 1_080);
        assert_eq!(operations(&periods.since(at(start, 3 * 3_600))), 0);
    }

    #[test]
    fn a_change_begins_a_period_and_what_is_told_late_belongs_before_it() {
        let start = Instant::now();
        let mut periods = played(start, 100);
        periods.begin(at(start, 95), true);
        let (name, one): (Arc<str>, _) = ("orders".into(), one());
        for second in [94, 96, 97] {
            periods.note(at(start, second), &Noted::Counts(&name, &one));
        }
        let counted = periods.since(at(start, 95));
        assert_eq!((operations(&counted), counted.1), (2, 95_000));
        assert_eq!(operations(&periods.since(at(start, 0))), 13);
        // Two hours later it still begins a period.
        for minute in 2..130 {
            periods.note(at(start, minute * 60), &Noted::Counts(&name, &one));
        }
        let counted = periods.since(at(start, 95));
        assert_eq!((operations(&counted), counted.1), (130, 95_000));
    }

    #[test]
    fn two_weeks_are_a_bounded_number_of_periods_and_a_week_is_known() {
        let start = Instant::now();
        let mut periods = Periods::default();
        let (name, one): (Arc<str>, _) = ("orders".into(), one());
        for hour in 0..14 * 24 {
            for minute in [0, 20, 40] {
                let second = hour * 3_600 + minute * 60;
                periods.note(at(start, second), &Noted::Counts(&name, &one));
            }
        }
        assert!(periods.all.len() < 180, "{}", periods.all.len());
        let known = operations(&periods.since(at(start, 7 * 24 * 3_600)));
        assert!((504..=507).contains(&known), "{known}");
        let (_, since_ms) = periods.since(at(start, 0));
        assert!(since_ms >= 6 * 24 * 3_600_000, "the first week is forgotten");
        assert_eq!(total(&periods), 14 * 24 * 3, "but not in the total");
    }

    #[test]
    fn the_total_is_of_what_happened_since_the_last_reset() {
        let start = Instant::now();
        let mut periods = played(start, 3 * 3_600);
        assert_eq!(total(&periods), 1_080);
        let reset = 3 * 3_600;
        periods.reset(at(start, reset));
        assert_eq!(total(&periods), 0);
        let (name, one): (Arc<str>, _) = ("orders".into(), one());
        // The first is told late, as is the third: a minute after it another period has begun.
        for second in [reset - 1, reset + 100, reset + 1, reset + 7_200] {
            periods.note(at(start, second), &Noted::Counts(&name, &one));
        }
        assert_eq!(total(&periods), 3);
        assert_eq!(operations(&periods.since(at(start, 0))), 1_084);
    }
}
