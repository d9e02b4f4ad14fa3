//! How long the last leases lasted, and which TTL to ask for.

use std::collections::VecDeque;

use lockwarden_control::text::durations::{duration, times};

use super::{api, mending};

/// Fewer leases say nothing about a percentile.
pub(super) const ENOUGH: u64 = 20;
/// One in this many leases may run out by bad luck.
const RAN_OUT_BY_MISFORTUNE: u64 = 1_000;
/// TTLs that people choose, ms. Above the last, whole hours.
const USUAL_TTLS: [u64; 17] = [
    100, 250, 500, 1_000, 2_000, 3_000, 5_000, 10_000, 15_000, 20_000, 30_000, 60_000, 120_000, 300_000, 600_000,
    1_800_000, 3_600_000,
];

/// A lease that is over. Small, because there are many; durations above 49 days count as 49 days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    /// Its end, Unix time, s.
    at_s: u32,
    held_ms: u32,
    ttl_ms: u32,
    /// It ran out before it was released.
    pub(super) ran_out: bool,
    /// Its holder released it, in time or late.
    given_back: bool,
    /// The proxy renewed it.
    kept: bool,
}

impl Hold {
    /// A lease that was over at this Unix time, ms, and lasted this long, with the last TTL that it was given, 0 for none.
    pub(super) fn new(until_ms: u64, held_ms: u64, ttl_ms: u64, (ran_out, kept): (bool, bool)) -> Hold {
        Hold {
            at_s: small(until_ms / 1_000),
            held_ms: small(held_ms),
            ttl_ms: small(ttl_ms),
            ran_out,
            given_back: !ran_out,
            kept,
        }
    }
}

fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The last ended leases.
pub(super) struct Holds {
    last: VecDeque<Hold>,
    most: usize,
}

impl Holds {
    /// Keeps the last `most` leases.
    pub(super) fn new(most: usize) -> Holds {
        Holds { last: VecDeque::new(), most }
    }

    pub(super) fn add(&mut self, hold: Hold) {
        if self.last.len() >= self.most {
            self.last.pop_front();
        }
        self.last.push_back(hold);
    }

    /// The holder of a lease that ran out after `held_ms` turned out to have worked until `worked_ms`.
    pub(super) fn worked(&mut self, held_ms: u64, worked_ms: u64) {
        let ran_out = |hold: &&mut Hold| hold.ran_out && hold.held_ms == small(held_ms);
        if let Some(hold) = self.last.iter_mut().rev().find(ran_out) {
            hold.held_ms = hold.held_ms.max(small(worked_ms));
            hold.given_back = true;
        }
    }

    /// Those that ended since this Unix time, ms.
    pub(super) fn since(&self, from_ms: u64) -> Holds {
        let from_s = small(from_ms / 1_000);
        let last = self.last.iter().filter(|hold| hold.at_s >= from_s);
        Holds { last: last.copied().collect(), most: self.most }
    }

    /// Adds the leases of another pattern that was merged into this one.
    pub(super) fn merge(&mut self, other: &Holds) {
        self.last.extend(&other.last);
        self.last.make_contiguous().sort_by_key(|hold| hold.at_s);
        let more = self.last.len().saturating_sub(self.most);
        self.last.drain(..more);
    }

    /// The usual TTL that they were given; `None` where they had none.
    pub(super) fn usual_ttl_ms(&self) -> Option<u64> {
        let given = self.last.iter().filter(|hold| hold.ttl_ms > 0);
        let mut given: Vec<u64> = given.map(|hold| hold.ttl_ms.into()).collect();
        given.sort_unstable();
        (!given.is_empty()).then(|| percentile(&given, 500))
    }

    /// How many of them keep-alive renewed.
    pub(super) fn kept(&self) -> u64 {
        self.last.iter().filter(|hold| hold.kept).count() as u64
    }

    pub(super) fn summary(&self) -> api::Holds {
        let mut held: Vec<u64> = self.last.iter().map(|hold| hold.held_ms.into()).collect();
        held.sort_unstable();
        let ran_out = self.last.iter().filter(|hold| hold.ran_out);
        api::Holds {
            count: held.len() as u64,
            p50_ms: percentile(&held, 500),
            p99_ms: percentile(&held, 990),
            p999_ms: percentile(&held, 999),
            max_ms: held.last().copied().unwrap_or(0),
            ran_out: ran_out.count() as u64,
        }
    }

    /// Leases that ran out, where locks are usually released: where at least every second lease is. Other locks are left to
    /// their TTLs. One in a thousand does not count: it may run out because its holder died.
    pub(super) fn ran_out_while_held(&self) -> u64 {
        let ran_out = self.last.iter().filter(|hold| hold.ran_out).count() as u64;
        let by_misfortune = ran_out.saturating_mul(RAN_OUT_BY_MISFORTUNE) <= self.count();
        match self.are_given_back() && !by_misfortune {
            true => ran_out,
            false => 0,
        }
    }

    /// Whether at least every second lease is released.
    pub(super) fn are_given_back(&self) -> bool {
        let given_back = self.given_back();
        given_back > 0 && given_back * 2 >= self.count()
    }

    /// Leases that were released, in time or late.
    pub(super) fn given_back(&self) -> u64 {
        self.last.iter().filter(|hold| hold.given_back).count() as u64
    }

    /// Ended leases.
    pub(super) fn count(&self) -> u64 {
        self.last.len() as u64
    }

    /// A TTL that suffices for 999 of 1,000; `None` if too little was seen, or if the locks are left to their TTLs.
    pub(super) fn wanted_ttl_ms(&self) -> Option<u64> {
        let is_known = self.count() >= ENOUGH && self.are_given_back();
        is_known.then(|| enough(self.held(|_| true).at(999)))
    }

    /// The durations of some of them.
    fn held(&self, of: impl Fn(&&Hold) -> bool) -> Sorted {
        Sorted::new(self.last.iter().filter(of).map(|hold| hold.held_ms.into()))
    }

    /// The TTL to ask for, in words, with the line to write; `None` where the current TTL is right or too little was seen.
    pub(super) fn advice(&self, namespace: &str, key: &str) -> Option<String> {
        let own = |hold: &&Hold| !hold.kept && hold.ttl_ms > 0;
        let kept = |hold: &&Hold| hold.kept && hold.ttl_ms > 0;
        if !self.are_given_back() {
            return None;
        }
        let for_own = || {
            let ran_out = self.last.iter().filter(|hold| own(hold) && hold.ran_out);
            let ttls = self.last.iter().filter(own).map(|hold| hold.ttl_ms.into());
            own_ttl(&self.held(own), &Sorted::new(ttls), ran_out.count() as u64, key)
        };
        let for_kept = || {
            let ttls = self.last.iter().filter(kept).map(|hold| hold.ttl_ms.into());
            kept_ttl(&self.held(kept), &Sorted::new(ttls), namespace)
        };
        for_own().or_else(for_kept)
    }
}

/// The TTL to ask for, where applications ask for one.
fn own_ttl(held: &Sorted, ttls: &Sorted, ran_out: u64, key: &str) -> Option<String> {
    let of = held.count();
    if of < ENOUGH {
        return None;
    }
    let (work, ttl) = (held.at(999), ttls.at(500));
    let (longest, given, wanted) = (held.longest(), duration(ttl), enough(work));
    let ask = format!(
        "ask for at least {} ({}), or extend while working",
        duration(wanted),
        mending::acquire(key, Some(wanted))
    );
    if ran_out.saturating_mul(RAN_OUT_BY_MISFORTUNE) > of {
        let ran_out = times(ran_out, "lease");
        return Some(format!(
            "{ran_out} of the last {of} ran out before they were given back; {longest}, with a TTL of {given}: {ask}"
        ));
    }
    if work.saturating_mul(2) > ttl {
        let why = match work > ttl {
            true => "the lock is free for others before the work is done",
            false => "that is little room for a slow day",
        };
        return Some(format!("{longest}, with a TTL of {given}: {why}; {ask}"));
    }
    let generous = enough(work.max(1_000).saturating_mul(10)).max(30_000);
    (ttl > generous.saturating_mul(2)).then(|| {
        format!(
            "{longest}, with a TTL of {given}: when a holder dies, others wait that long; {} would do ({})",
            duration(generous),
            mending::acquire(key, Some(generous))
        )
    })
}

/// The TTL to give, where the proxy chooses it and renews it. A short TTL does no harm while keep-alive works.
fn kept_ttl(held: &Sorted, ttls: &Sorted, namespace: &str) -> Option<String> {
    let (work, ttl) = (held.at(999), ttls.at(500));
    (held.count() >= ENOUGH && work > ttl).then(|| {
        let line = mending::default_ttl(namespace, enough(work)).words();
        format!(
            "{}, with a TTL of {} that the proxy gives and renews: it goes on only while its connection does; \
             {line}, or extend while working",
            held.longest(),
            duration(ttl)
        )
    })
}

/// Durations, the shortest first.
struct Sorted(Vec<u64>);

impl Sorted {
    fn new(all: impl Iterator<Item = u64>) -> Sorted {
        let mut all: Vec<u64> = all.collect();
        all.sort_unstable();
        Sorted(all)
    }

    fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// See [`percentile`].
    fn at(&self, per_mille: usize) -> u64 {
        percentile(&self.0, per_mille)
    }

    /// How long nearly all of them were, in words.
    fn longest(&self) -> String {
        let work = duration(self.at(999));
        match self.0.len() {
            0..1_000 => format!("they are held for {work} at most"),
            _ => format!("999 of 1,000 are held for {work} at most"),
        }
    }
}

/// A TTL with room for half as much again as the longest usual work.
pub(super) fn enough(work_ms: u64) -> u64 {
    let wanted = work_ms.saturating_add(work_ms / 2);
    let usual = USUAL_TTLS.into_iter().find(|ttl| *ttl >= wanted);
    let hour = 3_600_000;
    usual.unwrap_or_else(|| wanted.div_ceil(hour).saturating_mul(hour))
}

/// The smallest of the sorted values that `per_mille` of 1,000 values do not exceed; 0 if there are no values.
fn percentile(sorted: &[u64], per_mille: usize) -> u64 {
    let place = (sorted.len() * per_mille).div_ceil(1_000).max(1) - 1;
    sorted.get(place).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(each: impl IntoIterator<Item = (u64, u64, bool)>) -> Holds {
        let mut holds = Holds::new(1_000);
        for (held_ms, ttl_ms, ran_out) in each {
            holds.add(Hold::new(0, held_ms, ttl_ms, (ran_out, false)));
        }
        holds
    }

    #[test]
    fn percentiles_are_those_of_the_last_leases() {
        let mut holds = Holds::new(100);
        for held_ms in 1..=250 {
            holds.add(Hold::new(0, held_ms, 0, (held_ms == 200, false)));
        }
        let expected = api::Holds { count: 100, p50_ms: 200, p99_ms: 249, p999_ms: 250, max_ms: 250, ran_out: 1 };
        assert_eq!(holds.summary(), expected);
        assert_eq!(Holds::new(100).summary(), api::Holds::default());
    }

    #[test]
    fn work_that_went_on_after_the_end_counts_as_long_as_it_took() {
        let mut holds = holds([(5_000, 5_000, true), (40, 5_000, false)]);
        holds.worked(5_000, 6_100);
        assert_eq!(holds.summary().max_ms, 6_100);
    }

    fn advice(holds: &Holds) -> Option<String> {
        holds.advice("shop", "lock:a")
    }

    #[test]
    fn the_advice_follows_from_the_work() {
        let long = holds((0..99).map(|_| (4_000, 5_000, false)).chain([(6_100, 5_000, true)]));
        assert_eq!(
            advice(&long).unwrap(),
            "1 lease of the last 100 ran out before they were given back; they are held for 6.1 s at most, \
             with a TTL of 5.0 s: ask for at least 10 s (SET lock:a VALUE NX PX 10000), or extend while working"
        );
        let tight = holds((0..50).map(|_| (4_000, 5_000, false)));
        assert!(advice(&tight).unwrap().contains("ask for at least 10 s"));
        // Others deleted the lock before its TTL was over, and the work went on.
        let late = holds((0..50).map(|_| (500, 300, false)));
        let said = advice(&late).unwrap();
        assert!(said.contains("before the work is done") && said.contains("PX 1000"), "{said}");
        let idle = holds((0..50).map(|_| (20, 600_000, false)));
        assert!(advice(&idle).unwrap().ends_with("30 s would do (SET lock:a VALUE NX PX 30000)"));
        assert_eq!(advice(&holds((0..50).map(|_| (400, 5_000, false)))), None);
        assert_eq!(advice(&holds((0..5).map(|_| (6_000, 5_000, true)))), None);
        assert_eq!(advice(&holds((0..50).map(|_| (6_000, 0, false)))), None);
    }

    #[test]
    fn one_long_lease_of_a_thousand_is_not_what_the_others_need() {
        let seldom = holds((0..1_000).map(|number| (if number == 7 { 9_000 } else { 400 }, 5_000, false)));
        assert_eq!((seldom.summary().p99_ms, seldom.summary().p999_ms), (400, 400));
        assert_eq!((advice(&seldom), seldom.wanted_ttl_ms()), (None, Some(1_000)));
        let twice = holds((0..1_000).map(|number| (if number < 2 { 9_000 } else { 400 }, 5_000, false)));
        assert_eq!(twice.wanted_ttl_ms(), Some(15_000));
        assert!(advice(&twice).unwrap().starts_with("999 of 1,000 are held for 9.0 s at most"));
    }

    #[test]
    fn what_keep_alive_carries_is_told_with_the_line_of_the_configuration() {
        let mut kept = Holds::new(1_000);
        for _ in 0..50 {
            kept.add(Hold::new(0, 45_000, 30_000, (false, true)));
        }
        let said = advice(&kept).unwrap();
        let line = "default = \"2m\" in [namespace.settings.ttl-ceiling] of namespace shop";
        assert!(said.contains(line), "{said}");
    }

    #[test]
    fn what_nobody_gives_back_is_meant_to_run_out() {
        let markers = holds((0..50).map(|_| (5_000, 5_000, true)));
        assert_eq!((advice(&markers), markers.ran_out_while_held()), (None, 0));
        let mut late = holds((0..50).map(|_| (5_000, 5_000, true)));
        for _ in 0..50 {
            late.worked(5_000, 6_000);
        }
        assert_eq!(late.ran_out_while_held(), 50);
    }

    #[test]
    fn a_ttl_has_room_and_is_a_round_number() {
        for (work, ttl) in [(0, 100), (6_100, 10_000), (700, 2_000), (4_000_000, 7_200_000)] {
            assert_eq!(enough(work), ttl);
        }
    }
}
