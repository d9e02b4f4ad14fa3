//! How long the last leases lasted, and what that says about the TTL to ask for.

use std::collections::VecDeque;

use super::api;
use crate::text::durations::{duration, times};

/// Fewer than so many say nothing about a percentile.
pub(super) const ENOUGH: u64 = 20;
/// A lease in so many may run out by misfortune.
const RAN_OUT_BY_MISFORTUNE: u64 = 1_000;
/// TTLs that people ask for, ms. Above the last, whole hours.
const USUAL_TTLS: [u64; 17] = [
    100, 250, 500, 1_000, 2_000, 3_000, 5_000, 10_000, 15_000, 20_000, 30_000, 60_000, 120_000,
    300_000, 600_000, 1_800_000, 3_600_000,
];

/// A lease that is over. Small, because there are many; what is longer than 49 days is 49 days long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    /// When it was over, Unix time, s.
    at_s: u32,
    held_ms: u32,
    ttl_ms: u32,
    /// It ran out before it was given back.
    pub(super) ran_out: bool,
    /// The proxy renewed it.
    kept: bool,
}

impl Hold {
    /// Of a lease that was over at this Unix time, ms, and lasted so long, with the TTL that it was given last, 0 for
    /// none.
    pub(super) fn new(
        until_ms: u64,
        held_ms: u64,
        ttl_ms: u64,
        (ran_out, kept): (bool, bool),
    ) -> Hold {
        Hold {
            at_s: small(until_ms / 1_000),
            held_ms: small(held_ms),
            ttl_ms: small(ttl_ms),
            ran_out,
            kept,
        }
    }
}

fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The last of them.
pub(super) struct Holds {
    last: VecDeque<Hold>,
    most: usize,
}

impl Holds {
    /// The last so many.
    pub(super) fn new(most: usize) -> Holds {
        Holds {
            last: VecDeque::new(),
            most,
        }
    }

    pub(super) fn add(&mut self, hold: Hold) {
        if self.last.len() >= self.most {
            self.last.pop_front();
        }
        self.last.push_back(hold);
    }

    /// The holder of a lease that ran out after `held_ms` was at work until `worked_ms`.
    pub(super) fn worked(&mut self, held_ms: u64, worked_ms: u64) {
        let ran_out = |hold: &&mut Hold| hold.ran_out && hold.held_ms == small(held_ms);
        if let Some(hold) = self.last.iter_mut().rev().find(ran_out) {
            hold.held_ms = hold.held_ms.max(small(worked_ms));
        }
    }

    /// Those of them that were over since this Unix time, ms.
    pub(super) fn since(&self, from_ms: u64) -> Holds {
        let from_s = small(from_ms / 1_000);
        let last = self.last.iter().filter(|hold| hold.at_s >= from_s);
        Holds {
            last: last.copied().collect(),
            most: self.most,
        }
    }

    /// Adds those of another pattern that is the same by now.
    pub(super) fn merge(&mut self, other: &Holds) {
        self.last.extend(&other.last);
        self.last.make_contiguous().sort_by_key(|hold| hold.at_s);
        let more = self.last.len().saturating_sub(self.most);
        self.last.drain(..more);
    }

    /// The TTL that most of them were given; `None` where they had none.
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

    /// What TTL to ask for, in words; `None` where the one that is asked for is right, or too little
    /// was seen. What is kept alive needs no advice.
    pub(super) fn advice(&self) -> Option<String> {
        let own: Vec<&Hold> = self
            .last
            .iter()
            .filter(|hold| !hold.kept && hold.ttl_ms > 0)
            .collect();
        if (own.len() as u64) < ENOUGH {
            return None;
        }
        let sorted = |of: fn(&Hold) -> u32| {
            let mut all: Vec<u64> = own.iter().map(|hold| of(hold).into()).collect();
            all.sort_unstable();
            all
        };
        let p99 = percentile(&sorted(|hold| hold.held_ms), 990);
        let ttl = percentile(&sorted(|hold| hold.ttl_ms), 500);
        let ran_out = own.iter().filter(|hold| hold.ran_out).count() as u64;
        let (work, given, wanted) = (duration(p99), duration(ttl), duration(enough(p99)));
        let of = own.len();
        if ran_out.saturating_mul(RAN_OUT_BY_MISFORTUNE) > of as u64 {
            let (ran_out, lasts) = (
                times(ran_out, "lease"),
                format!("99 of 100 last {work} at most"),
            );
            return Some(format!(
                "{ran_out} of the last {of} ran out before they were given back; {lasts}, with a TTL of \
                 {given}: ask for at least {wanted}, or extend while working"
            ));
        }
        if p99.saturating_mul(2) > ttl {
            return Some(format!(
                "99 of 100 leases last {work} at most, with a TTL of {given}: that is little room for a \
                 slow day; ask for {wanted}, or extend while working"
            ));
        }
        let generous = enough(p99.max(1_000).saturating_mul(10));
        (ttl > generous.max(30_000).saturating_mul(2)).then(|| {
            format!(
                "99 of 100 leases last {work} at most, with a TTL of {given}: when a holder dies, others \
                 wait that long; {} would do",
                duration(generous.max(30_000))
            )
        })
    }
}

/// A TTL with room for half as much again as the longest usual work.
pub(super) fn enough(work_ms: u64) -> u64 {
    let wanted = work_ms.saturating_add(work_ms / 2);
    let usual = USUAL_TTLS.into_iter().find(|ttl| *ttl >= wanted);
    let hour = 3_600_000;
    usual.unwrap_or_else(|| wanted.div_ceil(hour).saturating_mul(hour))
}

/// The smallest of the sorted values that so many of 1,000 do not exceed; 0 of none.
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
        let expected = api::Holds {
            count: 100,
            p50_ms: 200,
            p99_ms: 249,
            p999_ms: 250,
            max_ms: 250,
            ran_out: 1,
        };
        assert_eq!(holds.summary(), expected);
        assert_eq!(Holds::new(100).summary(), api::Holds::default());
    }

    #[test]
    fn work_that_went_on_after_the_end_counts_as_long_as_it_took() {
        let mut holds = holds([(5_000, 5_000, true), (40, 5_000, false)]);
        holds.worked(5_000, 6_100);
        assert_eq!(holds.summary().max_ms, 6_100);
    }

    #[test]
    fn the_advice_follows_from_the_work() {
        let long = holds(
            (0..99)
                .map(|_| (4_000, 5_000, false))
                .chain([(6_100, 5_000, true)]),
        );
        assert_eq!(
            long.advice().unwrap(),
            "1 lease of the last 100 ran out before they were given back; 99 of 100 last 4.0 s at most, \
             with a TTL of 5.0 s: ask for at least 10 s, or extend while working"
        );
        let tight = holds((0..50).map(|_| (4_000, 5_000, false)));
        assert!(tight.advice().unwrap().contains("ask for 10 s"));
        let idle = holds((0..50).map(|_| (20, 600_000, false)));
        assert!(idle.advice().unwrap().ends_with("30 s would do"));
        assert_eq!(holds((0..50).map(|_| (400, 5_000, false))).advice(), None);
        assert_eq!(holds((0..5).map(|_| (6_000, 5_000, true))).advice(), None);
        assert_eq!(holds((0..50).map(|_| (6_000, 0, false))).advice(), None);
    }

    #[test]
    fn a_ttl_has_room_and_is_a_round_number() {
        for (work, ttl) in [
            (0, 100),
            (6_100, 10_000),
            (700, 2_000),
            (4_000_000, 7_200_000),
        ] {
            assert_eq!(enough(work), ttl);
        }
    }
}
