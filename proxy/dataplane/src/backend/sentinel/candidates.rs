//! Which primary to follow, by what the sentinels said and when. Connects to nothing.
//!
//! The highest epoch is not enough: a foreign sentinel that has the address of one of ours, or one that was set up
//! anew, has epochs of its own. So another primary is followed only if it has proved that it goes on with the data of
//! the previous one, or if most of the sentinels name it: most of all that are known, or most of those that are
//! heard, but only while the primary that is followed cannot be reached. Older epochs count if all sentinels agree,
//! as they do when they begin to count from 0, and if the newest leads nowhere.

use std::time::{Duration, Instant};

use super::members::{Asked, Members};
use super::named::{Named, Place, SentinelError};

/// How long a followed server that is no primary is tried, before the server that most sentinels keep naming counts
/// again. Sentinels inform each other of a failover within 2 s.
const TRIED_FOR: Duration = Duration::from_secs(5);

/// See the module.
pub(super) struct Candidates {
    pub(super) members: Members,
    followed: Option<Followed>,
}

/// The primary that is followed.
struct Followed {
    named: Named,
    /// It has said itself that it is the primary.
    has_said_so: bool,
    /// Since when it cannot be reached, or says that it is not the primary.
    doubted: Option<Instant>,
}

impl Candidates {
    pub(super) fn new(places: impl Iterator<Item = Place>, most: usize) -> Candidates {
        Candidates { members: Members::new(places, most), followed: None }
    }

    /// The primary to follow, once one was named.
    pub(super) fn followed(&self) -> Option<&Named> {
        self.followed.as_ref().map(|followed| &followed.named)
    }

    /// Takes in the result of asking this sentinel at this moment.
    pub(super) fn told(&mut self, from: &Place, told: Result<Asked, SentinelError>, asked: Instant, now: Instant) {
        match told {
            Ok(told) => self.members.answered(from, told, asked),
            Err(error) => self.members.failed(from, error),
        }
        self.weigh(now);
    }

    /// This server has said itself that it is the primary.
    pub(super) fn is_primary(&mut self, named: &Named) {
        if let Some(followed) = self.followed.as_mut().filter(|followed| followed.named == *named) {
            (followed.has_said_so, followed.doubted) = (true, None);
        }
    }

    /// This server could not be reached, or did not say so.
    pub(super) fn is_not_primary(&mut self, named: &Named, now: Instant) {
        if let Some(followed) = self.followed.as_mut().filter(|followed| followed.named == *named) {
            followed.doubted.get_or_insert(now);
        }
        self.weigh(now);
    }

    /// Servers that some sentinels name with a higher epoch than that of the one that is followed. A server that
    /// proves its descent is followed at once.
    pub(super) fn contenders(&self, now: Instant) -> Vec<Named> {
        let Some(followed) = self.followed() else {
            return Vec::new();
        };
        // At the same address there is nothing to prove.
        let contends = |named: &Named| named.epoch > followed.epoch && named.place != followed.place;
        let named = self.members.ranking(now).into_iter().map(|(named, _)| named);
        named.filter(contends).collect()
    }

    /// This server has proved that it goes on with the data of the one that is followed.
    pub(super) fn descends(&mut self, named: &Named, now: Instant) {
        if self.contenders(now).contains(named) {
            self.follow(named.clone());
        }
    }

    fn follow(&mut self, named: Named) {
        if self.followed() != Some(&named) {
            self.followed = Some(Followed { named, has_said_so: false, doubted: None });
        }
    }

    fn weigh(&mut self, now: Instant) {
        if let Some(named) = self.chosen(now) {
            self.follow(named);
        }
    }

    /// The primary to follow instead of the present one, if the sentinels say so.
    fn chosen(&self, now: Instant) -> Option<Named> {
        let most = self.members.most_name(now);
        let ranking = self.members.ranking(now);
        let Some(followed) = &self.followed else {
            // The first to answer may be wrong.
            let likely = ranking.into_iter().next().filter(|_| self.members.all_were_asked());
            return most.or(likely.map(|(named, _)| named));
        };
        let is_newer = |named: &Named| named.epoch > followed.named.epoch;
        let is_given_up = followed.doubted.is_some_and(|since| now.saturating_duration_since(since) >= TRIED_FOR);
        let all = || self.members.all_name(now);
        if let Some(named) = most.filter(|most| is_given_up || is_newer(most)).or_else(all) {
            return Some(named);
        }
        let heard: usize = ranking.iter().map(|(_, number)| number).sum();
        let is_reached = followed.has_said_so && followed.doubted.is_none();
        // A server that was never seen to be the primary is no better than the next.
        let is_wrong = is_given_up && !followed.has_said_so;
        let counts = |(named, number): &(Named, usize)| is_wrong || (is_newer(named) && number * 2 > heard);
        let mut others = ranking.into_iter().filter(|(named, _)| *named != followed.named);
        others.next().filter(|other| !is_reached && counts(other)).map(|(named, _)| named)
    }
}

#[cfg(test)]
mod tests;
