//! The era of a server: which run of which server is the primary, and since when. It is one entry on the server, beside
//! the locks, and every proxy uses it. This module defines what the entry contains, how it changes when a proxy looks
//! at it, and the clock by which a proxy reads it. `plan::era` asks Redis; [`crate::promise`] defines the consequences
//! for locks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::time::RedisTime;

/// How much more than the proxy's clock a server's clock may advance between two looks: no clock is adjusted faster
/// without a jump.
const TOLERATED: Duration = Duration::from_millis(250);
/// The word in the entry for an unknown value.
const UNKNOWN: &str = "-";

/// The contents of the entry.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Era {
    /// The run of the server.
    pub run: Arc<str>,
    /// The authority's number for this server's time as the primary, if the authority counts. Without it, a server that
    /// becomes the primary again looks as if it had never been a replica.
    pub epoch: Option<u64>,
    /// Since when it is the primary, or since its clock last jumped; by that clock.
    pub since: RedisTime,
    /// The rules by which the leases are granted.
    pub rules: Arc<str>,
    /// The longest quarantine under these rules, and under the earlier rules for as long as they matter, ms.
    pub longest_ms: u64,
    /// Until when leases may last that were granted under other rules.
    pub mixed_until: RedisTime,
    /// How far fencing tokens run ahead of the server's clock, ms: that clock is behind the one by which older tokens
    /// were made.
    pub ahead_ms: u64,
}

/// What a proxy knows when it looks at the entry.
#[derive(Clone, Debug)]
pub struct Look {
    /// The run that replied.
    pub run: Arc<str>,
    /// The authority's number for it, where the authority counts.
    pub epoch: Option<u64>,
    /// The rules of this proxy.
    pub rules: Arc<str>,
    /// The longest quarantine of this proxy, ms.
    pub longest_ms: u64,
    /// The server's time.
    pub now: RedisTime,
    /// How long, by the proxy's own clock, the era has lasted that this proxy knew last.
    pub age: Option<Duration>,
    /// The present value of the token clock that this proxy knew last, as if it had continued; `None` if it knew none.
    pub tokens: Option<RedisTime>,
    /// Whether this proxy has since seen another primary, or seen the server's clock jump forward.
    pub anew: bool,
}

impl Era {
    /// What the entry must contain after a look. It never contains less than before, nor less than this proxy knew
    /// last: a shorter quarantine counts only once every lease granted under other rules is over.
    pub fn after(before: Option<&Era>, known: Option<&Era>, look: &Look) -> Era {
        let same = before.filter(|era| era.run == look.run && !look.anew);
        // A lower number comes from an authority that was set up anew, or that lags behind.
        let is_older = |era: &&Era| era.epoch.is_some() && era.epoch < look.epoch;
        let same = same.filter(|era| !is_older(era));
        let mut era = Era {
            run: look.run.clone(),
            epoch: same.and_then(|era| era.epoch).or(look.epoch),
            since: same.map_or(look.now, |era| era.since_by(known, look)),
            rules: look.rules.clone(),
            longest_ms: look.longest_ms,
            mixed_until: RedisTime(0),
            ahead_ms: Era::ahead(before, same.is_some(), known, look),
        };
        for earlier in before.into_iter().chain(known) {
            era.heed(earlier, look);
        }
        era
    }

    /// How far tokens must run ahead of the clock so that none is lower than an older one. A few milliseconds do not
    /// matter: no free lock is granted during a quarantine.
    fn ahead(before: Option<&Era>, is_same: bool, known: Option<&Era>, look: &Look) -> u64 {
        const SLACK: u64 = TOLERATED.as_millis() as u64;
        let tokens = look.tokens.map_or(0, |tokens| tokens.ms_since(look.now));
        let told = before.map_or(0, |era| era.ahead_ms);
        if tokens > told.saturating_add(SLACK) {
            return tokens;
        }
        // The clock that this proxy knew is the former server's: it need not also run ahead of this one.
        let follows = before.zip(known).is_some_and(|(before, known)| before.run == known.run);
        match look.tokens {
            Some(_) if !is_same && follows && tokens <= SLACK => 0,
            Some(_) if !is_same && follows => tokens,
            _ => told.max(known.map_or(0, |era| era.ahead_ms)),
        }
    }

    /// Since when the same era lasts, by the clock in its present state: it may have been set back.
    fn since_by(&self, known: Option<&Era>, look: &Look) -> RedisTime {
        let own = known.filter(|known| known.run == self.run && known.since == self.since);
        let own = own.and(look.age).map(|age| {
            let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
            RedisTime(look.now.0.saturating_sub(age))
        });
        let later = |own: &RedisTime| Duration::from_millis(self.since.ms_since(*own)) > TOLERATED;
        own.filter(later).unwrap_or(self.since).min(look.now)
    }

    /// Takes into account that leases granted under earlier rules may last.
    fn heed(&mut self, earlier: &Era, look: &Look) {
        let is_same = earlier.rules == look.rules;
        if is_same && look.now >= earlier.mixed_until {
            return;
        }
        self.longest_ms = self.longest_ms.max(earlier.longest_ms);
        let in_a_while = |times: u64| {
            let span = times.saturating_mul(self.longest_ms);
            RedisTime(look.now.0.saturating_add(span))
        };
        if is_same {
            self.mixed_until = self.mixed_until.max(earlier.mixed_until);
        } else if earlier.mixed_until >= in_a_while(1) {
            // Proxies with different rules must not overwrite the entry in turns.
            self.rules = earlier.rules.clone();
            self.mixed_until = self.mixed_until.max(earlier.mixed_until);
        } else {
            self.mixed_until = in_a_while(2);
        }
    }

    /// Reads the entry. `None` if it is invalid. Earlier versions wrote only the run and since when.
    pub fn read(entry: &str) -> Option<Era> {
        let mut words = entry.split(' ');
        let (run, since) = (words.next()?, words.next()?.parse().ok()?);
        let mut number = || -> Option<u64> { words.next()?.parse().ok() };
        let (epoch, longest, mixed) = (number(), number(), number());
        Some(Era {
            run: run.into(),
            epoch,
            since: RedisTime(since),
            rules: words.next().unwrap_or(UNKNOWN).into(),
            ahead_ms: words.next().and_then(|word| word.parse().ok()).unwrap_or(0),
            longest_ms: longest.unwrap_or(0),
            mixed_until: RedisTime(mixed.unwrap_or(0)),
        })
    }

    /// The entry as text.
    pub fn entry(&self) -> String {
        let Era { run, since, rules, longest_ms, ahead_ms, .. } = self;
        let epoch = self.epoch.map_or(UNKNOWN.to_owned(), |epoch| epoch.to_string());
        format!("{run} {} {epoch} {longest_ms} {} {rules} {ahead_ms}", since.0, self.mixed_until.0)
    }
}

/// The entry as it was read, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reckoned {
    /// Its contents.
    pub era: Era,
    /// When it was read.
    pub read: Reading,
}

impl Reckoned {
    /// How long the server has been the primary, at least. The server's clock may have jumped since, the proxy's has
    /// not.
    pub fn age(&self, now: Instant) -> Duration {
        let then = Duration::from_millis(self.read.redis.ms_since(self.era.since));
        then + now.saturating_duration_since(self.read.heard)
    }
}

/// A time of the server's clock, and the interval in which it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// The server's time.
    pub redis: RedisTime,
    /// A moment before the reading.
    pub sent: Instant,
    /// A moment after the reading.
    pub heard: Instant,
}

impl Reading {
    /// How much more than the elapsed time the server's clock advanced until `redis`, if that is too much. A late reply
    /// only makes the result smaller.
    pub fn jump(&self, redis: RedisTime, heard: Instant) -> Option<Duration> {
        let passed = heard.saturating_duration_since(self.sent);
        let went_on = Duration::from_millis(redis.ms_since(self.redis));
        went_on.checked_sub(passed).filter(|by| *by > TOLERATED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(run: &str, epoch: Option<u64>, now: u64) -> Look {
        let (now, rules) = (RedisTime(now), "r".into());
        Look { run: run.into(), epoch, rules, longest_ms: 50, now, age: None, tokens: None, anew: false }
    }

    #[test]
    fn the_entry_is_read_as_it_was_written() {
        for epoch in [None, Some(7)] {
            let mut era = Era::after(None, None, &look("a", epoch, 1_000));
            era.mixed_until = RedisTime(3);
            era.ahead_ms = 9;
            assert_eq!(Era::read(&era.entry()), Some(era));
        }
        for text in ["", "a", "a b", "a -1"] {
            assert_eq!(Era::read(text), None, "{text}");
        }
        let earlier = Era::read("a 5").expect("an entry of an earlier version");
        assert_eq!((&*earlier.run, earlier.since), ("a", RedisTime(5)));
    }

    #[test]
    fn an_era_begins_with_another_run_with_a_higher_number_and_when_it_is_said_so() {
        let first = Era::after(None, None, &look("a", Some(2), 1_000));
        let since = |look: &Look| Era::after(Some(&first), None, look).since.0;
        assert_eq!(since(&look("a", Some(2), 5_000)), 1_000);
        assert_eq!(since(&look("a", None, 5_000)), 1_000, "it does not count");
        assert_eq!(since(&look("a", Some(1), 5_000)), 1_000, "it lags behind");
        assert_eq!(since(&look("a", Some(3), 5_000)), 5_000);
        assert_eq!(since(&look("b", Some(2), 5_000)), 5_000);
        assert_eq!(since(&look("a", Some(2), 900)), 900, "the clock was put back");
        let by_own_clock = |now, known| {
            let look = Look { age: Some(Duration::from_millis(4_000)), ..look("a", Some(2), now) };
            Era::after(Some(&first), known, &look).since.0
        };
        assert_eq!(by_own_clock(5_100, Some(&first)), 1_000);
        assert_eq!(by_own_clock(4_500, Some(&first)), 500, "put back by half a second");
        assert_eq!(by_own_clock(4_500, None), 1_000);
        let anew = Look { anew: true, ..look("a", Some(2), 5_000) };
        assert_eq!(since(&anew), 5_000);
        let uncounted = Era::after(None, None, &look("a", None, 1_000));
        let counted = Era::after(Some(&uncounted), None, &look("a", Some(9), 5_000));
        assert_eq!((counted.since.0, counted.epoch), (1_000, Some(9)));
    }

    #[test]
    fn shorter_rules_count_once_all_leases_of_the_longer_ones_are_over() {
        let long = Era::after(None, None, &look("a", None, 1_000));
        let short = |now| Look { rules: "s".into(), longest_ms: 10, ..look("a", None, now) };
        let mixed = Era::after(Some(&long), None, &short(2_000));
        assert_eq!((mixed.longest_ms, mixed.mixed_until.0), (50, 2_100));
        assert_eq!((mixed.since.0, &*mixed.rules), (1_000, "s"));
        let elsewhere = Era::after(Some(&mixed), None, &Look { run: "b".into(), ..short(2_050) });
        assert_eq!((elsewhere.longest_ms, elsewhere.mixed_until.0), (50, 2_100));
        let emptied = Era::after(None, Some(&long), &short(2_000));
        assert_eq!(emptied.longest_ms, 50, "this proxy knew of them");
        let over = Era::after(Some(&mixed), None, &short(2_100));
        assert_eq!((over.longest_ms, over.mixed_until.0), (10, 0));
    }

    #[test]
    fn proxies_with_different_rules_do_not_write_in_turns() {
        let first = Era::after(None, None, &look("a", None, 1_000));
        let other = |now| Look { rules: "s".into(), ..look("a", None, now) };
        let mixed = Era::after(Some(&first), None, &other(1_000));
        assert_eq!(mixed.mixed_until.0, 1_100);
        assert_eq!(Era::after(Some(&mixed), None, &look("a", None, 1_050)), mixed);
        assert_eq!(Era::after(Some(&mixed), None, &other(1_050)), mixed);
        let further = Era::after(Some(&mixed), None, &look("a", None, 1_051));
        assert_eq!((&*further.rules, further.mixed_until.0), ("r", 1_151));
    }

    #[test]
    fn fencing_tokens_run_ahead_of_a_clock_that_is_behind() {
        let first = Era::after(None, None, &look("a", Some(1), 10_000));
        let at = |run, now, tokens: u64| Look { tokens: Some(RedisTime(tokens)), ..look(run, Some(1), now) };
        let after = |era: &Era, look: &Look| Era::after(Some(era), Some(era), look);
        assert_eq!(after(&first, &at("a", 11_000, 11_200)).ahead_ms, 0, "an answer that came late");
        let back = after(&first, &at("a", 4_000, 11_000));
        assert_eq!(back.ahead_ms, 7_000, "put back");
        assert_eq!(after(&back, &at("a", 5_000, 12_010)).ahead_ms, 7_000);
        let promoted = after(&back, &at("b", 2_000, 13_000));
        assert_eq!(promoted.ahead_ms, 11_000, "the promoted server's clock is behind");
        assert_eq!(after(&promoted, &at("c", 15_000, 14_000)).ahead_ms, 0, "this one's is not");
        assert_eq!(Era::after(Some(&promoted), None, &look("c", Some(2), 15_000)).ahead_ms, 11_000, "nobody knows");
        let another = Era::after(None, Some(&promoted), &at("c", 14_000, 14_000));
        assert_eq!(another.ahead_ms, 11_000, "another proxy may have given tokens that this one has not seen");
        // A proxy that enters it later knows of higher ones.
        let lower = Era::after(Some(&back), None, &look("b", Some(2), 2_000));
        assert_eq!(Era::after(Some(&lower), Some(&back), &at("b", 2_500, 13_500)).ahead_ms, 11_000);
    }

    #[test]
    fn a_clock_that_goes_on_by_more_than_time_does_has_jumped() {
        let sent = Instant::now();
        let ms = Duration::from_millis;
        let reading = Reading { redis: RedisTime(10_000), sent, heard: sent + ms(5) };
        assert_eq!(reading.jump(RedisTime(11_000), sent + ms(1_000)), None);
        assert_eq!(reading.jump(RedisTime(11_250), sent + ms(1_000)), None);
        assert_eq!(reading.jump(RedisTime(13_000), sent + ms(1_000)), Some(ms(2_000)));
        assert_eq!(reading.jump(RedisTime(9_000), sent + ms(1_000)), None, "put back");
        assert_eq!(reading.jump(RedisTime(11_000), sent + ms(9_000)), None, "late");
    }
}
