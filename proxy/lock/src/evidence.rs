//! What one connection has done and seen that may prove something later: leases that it was granted, values that it
//! read, acquires that were refused. It proves nothing by itself: all of it is passed to the script, which compares it
//! with Redis. Pure; the caller brings the time.

mod attempts;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::db_key::DbKey;
pub use attempts::{ATTEMPTS_WINDOW, MAX_TRIED};

use crate::db_key::DbMap;
use crate::time::Tick;
use crate::token::{FencingToken, Grant, KeptToken, OwnerToken, StoredToken, ValueHash, looks_like_deadline};
use attempts::Attempts;

/// How long a connection's expired lease is remembered.
pub const LAPSED_MEMORY: Duration = Duration::from_secs(600);
/// How long before its end a lease is certainly not over: in a block, ends are calculated from the reply, which may
/// come this much later than Redis's grant.
pub const SURELY_BEFORE_END: Duration = Duration::from_secs(1);
/// Keys whose read value a connection remembers; the oldest are forgotten first.
pub const MAX_OBSERVED: usize = 256;
/// The most locks that one connection remembers; beyond that, those whose leases end first are forgotten first.
pub const MAX_LOCKS: usize = 65_536;
/// Leases that are found without searching everything that is remembered.
pub const MAX_LATEST: usize = 8;

/// A lease that this connection was granted.
#[derive(Clone, Debug)]
pub struct Own {
    /// The lease's name.
    pub grant: Grant,
    /// Its fencing token; 0 until the reply has arrived (inside MULTI).
    pub fence: FencingToken,
    /// The value that was stored.
    pub stored: KeptToken,
    /// When it ends, as far as this proxy knows; `None` without a TTL.
    pub ends: Option<Tick>,
    /// When the requested TTL is over, if one was requested: later than `ends` if it was shortened.
    pub asked_end: Option<Tick>,
    /// When a script reported that it is over, though this connection did not release it.
    pub lapsed: Option<Tick>,
    /// This connection tried to release or extend it after its end.
    pub came_back: bool,
    /// A call that could not be judged named the lock: it may have released it.
    pub unwitnessed: bool,
}

/// A value that this connection read.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The grant under which it was read, if there was a record.
    pub grant: Option<Grant>,
    /// The value.
    pub stored: StoredToken,
    /// Whether it differs from other clients' values.
    pub distinctive: bool,
    /// Whether it has the shape of a deadline.
    pub deadline: bool,
    /// Whether it was read under a WATCH; no longer valid when the WATCH ends.
    pub watched: bool,
}

#[derive(Debug, Default)]
struct Memory {
    own: Option<Own>,
    /// Rare, and as large as the lease.
    seen: Option<Box<Seen>>,
    refused: bool,
    refused_with: Option<ValueHash>,
    /// The lease before its own expired, and this connection had not come back to it before the next grant.
    overran: bool,
}

impl Memory {
    fn is_empty(&self) -> bool {
        self.own.is_none() && self.seen.is_none() && !self.refused
    }
}

/// What a connection knows of one lock at one moment.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Its latest lease that it has not released.
    pub own: Option<Own>,
    /// Grants drawn by commands queued earlier in the same MULTI block.
    pub queued: Vec<Grant>,
    /// The value that it read last.
    pub seen: Option<Seen>,
    /// Its last acquire of this lock was refused.
    pub refused_since: bool,
    /// The value of that acquire, where it is known.
    pub refused_with: Option<ValueHash>,
    /// The time of that lease is certainly not over. So if another lease is current, this one was released in another
    /// way, for example over another connection of its pool, and no client is late.
    pub own_runs: bool,
    /// The current lease was granted to a client with the same distinctive identity, as far as this proxy has seen.
    pub same_identity: bool,
    /// Acquires in the last ten seconds, without those that a policy refused.
    pub attempts: u32,
    /// Another client was granted a lock with the value that this command carries.
    pub shared_token: bool,
}

impl Facts {
    /// Whether its last acquire of this lock was refused, and may have had this value.
    pub fn lost_with(&self, token: &OwnerToken) -> bool {
        let same = |hash| hash == ValueHash::of(token.expose());
        self.refused_since && self.refused_with.is_none_or(same)
    }
}

/// Everything one connection remembers.
#[derive(Debug, Default)]
pub struct Evidence {
    /// Boxed, since half of the places of a hash map may be empty.
    memory: DbMap<Box<Memory>>,
    observed: VecDeque<DbKey>,
    attempts: Attempts,
    /// Its latest leases that it has not released, by their locks.
    latest: Vec<DbKey>,
}

impl Evidence {
    /// What is known of a lock at `now`.
    pub fn facts(&mut self, key: &DbKey, now: Instant) -> Facts {
        let attempts = self.attempts.of(key, now);
        let Some(memory) = self.memory.get_mut(key) else {
            return Facts { attempts, ..Facts::default() };
        };
        if memory.own.as_ref().is_some_and(|own| forgotten(own, now)) {
            memory.own = None;
        }
        Facts {
            own: memory.own.clone(),
            queued: Vec::new(),
            seen: memory.seen.as_deref().cloned(),
            refused_since: memory.refused,
            refused_with: memory.refused_with,
            own_runs: memory.own.as_ref().is_some_and(|own| is_surely_running(own, now)),
            same_identity: false,
            attempts,
            shared_token: false,
        }
    }

    /// Its latest lease of this lock that it has not released.
    pub fn own(&self, key: &DbKey, now: Instant) -> Option<&Own> {
        let own = self.memory.get(key)?.own.as_ref();
        own.filter(|own| !forgotten(own, now))
    }

    /// Whether its last acquire of this lock was refused.
    pub fn was_refused(&self, key: &DbKey) -> bool {
        self.memory.get(key).is_some_and(|memory| memory.refused)
    }

    /// An acquire is about to be tried.
    pub fn attempted(&mut self, key: &DbKey, now: Instant) {
        self.attempts.add(key, now);
    }

    /// A policy refused the acquire that was to be tried: it does not count.
    pub fn turned_away(&mut self, key: &DbKey) {
        self.attempts.take_back(key);
    }

    /// Whether its lease of this lock follows one that expired, and that it had not tried to release by then.
    pub fn overran(&self, key: &DbKey) -> bool {
        let memory = self.memory.get(key);
        memory.is_some_and(|memory| memory.own.is_some() && memory.overran)
    }

    /// This connection was granted a lease. `ran_out` is the time at which the lease before it expired unreleased, if
    /// it did.
    pub fn granted(&mut self, key: DbKey, own: Own, ran_out: Option<Instant>) {
        self.latest.retain(|known| *known != key);
        if self.latest.len() >= MAX_LATEST {
            self.latest.remove(0);
        }
        self.latest.push(key.clone());
        let memory = self.memory.entry(key).or_default();
        let before = memory.own.as_ref();
        // A repeated reply about the same grant is not another lease.
        if before.is_none_or(|before| before.grant != own.grant) {
            let is_left = |now| before.is_some_and(|before| !before.came_back && is_over(before, now));
            memory.overran = ran_out.is_some_and(is_left);
        }
        memory.refused = false;
        memory.refused_with = None;
        memory.own = Some(own);
        self.bound_locks();
    }

    /// Its lease continues with another end, and perhaps another value.
    pub fn extended(&mut self, key: &DbKey, ends: Option<Instant>, stored: Option<KeptToken>) {
        if let Some(own) = self.memory.get_mut(key).and_then(|memory| memory.own.as_mut()) {
            (own.ends, own.unwitnessed) = (ends.map(Tick::from), false);
            if let Some(stored) = stored {
                own.stored = stored;
            }
        }
    }

    /// A call that cannot be judged names its lock: it may release the lease, and then no client is late.
    pub fn unwitnessed(&mut self, key: &DbKey) {
        let memory = self.memory.get_mut(key);
        if let Some(own) = memory.and_then(|memory| memory.own.as_mut()) {
            own.unwitnessed = true;
        }
    }

    /// Sets when the requested TTL of its lease ends; `None` without a TTL.
    pub fn asked(&mut self, key: &DbKey, end: Option<Instant>) {
        if let Some(own) = self.memory.get_mut(key).and_then(|memory| memory.own.as_mut()) {
            own.asked_end = end.map(Tick::from);
        }
    }

    /// Its acquire was refused. `value` is the value it would have stored, if known.
    pub fn refused(&mut self, key: &DbKey, value: Option<&Bytes>) {
        let memory = self.memory.entry(key.clone()).or_default();
        memory.refused = true;
        memory.refused_with = value.map(|value| ValueHash::of(value));
        self.bound_locks();
    }

    /// This connection released the lock.
    pub fn released(&mut self, key: &DbKey) {
        self.latest.retain(|known| known != key);
        if let Some(memory) = self.memory.get_mut(key) {
            memory.own = None;
            memory.overran = false;
            memory.refused = false;
            memory.refused_with = None;
            if memory.is_empty() {
                self.memory.remove(key);
            }
        }
    }

    /// The latest of this connection's leases, as far as it knows.
    pub fn latest(&self) -> impl Iterator<Item = (&DbKey, &Own)> {
        self.latest.iter().filter_map(|key| {
            let own = self.memory.get(key)?.own.as_ref();
            Some((key, own.filter(|own| own.lapsed.is_none() && !own.unwitnessed)?))
        })
    }

    /// This connection's leases, as far as it knows.
    pub fn held(&self) -> impl Iterator<Item = (&DbKey, &Own)> {
        self.memory.iter().filter_map(|(key, memory)| {
            let own = memory.own.as_ref().filter(|own| own.lapsed.is_none())?;
            Some((key, own))
        })
    }

    /// The locks in a database that this connection holds, without `lock`, ordered by fencing token; only the highest
    /// `most`.
    pub fn held_beside(&self, db: u32, lock: &[u8], now: Instant, most: usize) -> Vec<Bytes> {
        let others = self.held().filter(|(key, own)| {
            key.db() == db && key.bytes() != lock && !own.unwitnessed && own.ends.is_none_or(|ends| ends > now)
        });
        // A connection may remember many thousands: those that are not among the highest are dropped at once.
        let mut highest = BinaryHeap::with_capacity(most + 1);
        for (key, own) in others {
            highest.push(Reverse((own.fence, key.bytes())));
            if highest.len() > most {
                highest.pop();
            }
        }
        let ordered = highest.into_sorted_vec().into_iter().rev();
        ordered.map(|Reverse((_, key))| Bytes::copy_from_slice(key)).collect()
    }

    /// A script found that this connection's lease is over.
    pub fn lapsed(&mut self, key: &DbKey, now: Instant) {
        if let Some(own) = self.memory.get_mut(key).and_then(|memory| memory.own.as_mut()) {
            own.lapsed.get_or_insert(now.into());
        }
    }

    /// This connection wants to release or extend a lock. Returns whether a lease is over to which it comes back now
    /// for the first time: its own, or another one of its identity (which a step `found`).
    pub fn comes_back(&mut self, key: &DbKey, found: bool, now: Instant) -> bool {
        let own = self.memory.get_mut(key).and_then(|memory| memory.own.as_mut());
        let Some(own) = own else {
            return found;
        };
        let is_over = found || (!own.unwitnessed && own.ends.is_some_and(|ends| ends <= now));
        is_over && !std::mem::replace(&mut own.came_back, true)
    }

    /// This connection read a value (`None`: there was none). If its own lease is not the current one, though its time
    /// is not over, it was released in another way, for example over another connection of its pool. It is then
    /// forgotten, because a client that lost nothing is not late.
    pub fn observed(&mut self, key: DbKey, grant: Option<Grant>, value: Option<&Bytes>, watched: bool, now: Instant) {
        let Some(value) = value else {
            if let Some(memory) = self.memory.get_mut(&key)
                && memory.seen.take().is_some()
            {
                self.observed.retain(|other| *other != key);
                self.drop_if_empty(&key);
            }
            return;
        };
        let token = OwnerToken::copy_of(value);
        let seen = Seen {
            grant,
            stored: token.stored_form(),
            distinctive: token.is_distinctive(),
            deadline: looks_like_deadline(value),
            watched,
        };
        let memory = self.memory.entry(key.clone()).or_default();
        if let (Some(own), Some(current)) = (&memory.own, grant)
            && own.grant != current
            && is_surely_running(own, now)
        {
            memory.own = None;
        }
        if memory.seen.replace(Box::new(seen)).is_none() {
            self.observed.push_back(key);
            self.bound_observed();
        }
    }

    /// Every WATCH of this connection has ended.
    pub fn unwatched(&mut self) {
        for key in &self.observed {
            if let Some(seen) = self.memory.get_mut(key).and_then(|memory| memory.seen.as_mut()) {
                seen.watched = false;
            }
        }
    }

    fn drop_if_empty(&mut self, key: &DbKey) {
        if self.memory.get(key).is_some_and(|memory| memory.is_empty()) {
            self.memory.remove(key);
        }
    }

    fn bound_observed(&mut self) {
        while self.observed.len() > MAX_OBSERVED {
            let oldest = self.observed.pop_front().expect("longer than a bound above zero");
            if let Some(memory) = self.memory.get_mut(&oldest) {
                memory.seen = None;
            }
            self.drop_if_empty(&oldest);
        }
    }

    /// When there are too many locks, forgets a quarter of them: first those that were only refused, then those whose
    /// leases end first.
    fn bound_locks(&mut self) {
        if self.memory.len() <= MAX_LOCKS {
            return;
        }
        // Losing the record of a refusal does the least harm: it only affects which proofs are doubted.
        self.memory.retain(|_, memory| memory.own.is_some() || memory.seen.is_some());
        let mut ends: Vec<(Option<Tick>, DbKey)> = self
            .memory
            .iter()
            .filter(|(_, memory)| memory.seen.is_none())
            .map(|(key, memory)| (memory.own.as_ref().and_then(|own| own.ends), key.clone()))
            .collect();
        // Leases without a TTL go last: they may be held for as long as the connection lives.
        ends.sort_by_key(|(end, _)| (end.is_none(), *end));
        // A quarter at once, so that this sort is needed only once in thousands of locks.
        let surplus = self.memory.len().saturating_sub(MAX_LOCKS / 4 * 3);
        for (_, key) in ends.into_iter().take(surplus) {
            self.memory.remove(&key);
        }
    }
}

fn forgotten(own: &Own, now: Instant) -> bool {
    own.lapsed.is_some_and(|at| Tick::from(now).saturating_duration_since(at) > LAPSED_MEMORY)
}

fn is_over(own: &Own, now: Instant) -> bool {
    own.lapsed.is_some() || own.ends.is_some_and(|ends| ends <= now)
}

/// Whether its time is certainly not over; also true if a release of it may have gone unseen.
fn is_surely_running(own: &Own, now: Instant) -> bool {
    let runs = |ends: Tick| ends > now + SURELY_BEFORE_END;
    own.lapsed.is_none() && (own.unwitnessed || own.ends.is_some_and(runs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::stored_form;

    fn key(name: &'static str) -> DbKey {
        DbKey::new(0, name.as_bytes())
    }

    #[test]
    fn a_value_has_lost_where_the_last_acquire_was_refused_and_may_have_had_it() {
        let token = OwnerToken::copy_of(b"8c1f0a2e9b7d4f6a");
        let (same, other) = (Some(ValueHash::of(token.expose())), Some(ValueHash::of(b"another")));
        for (refused_since, refused_with, expected) in
            [(true, same, true), (true, None, true), (true, other, false), (false, same, false), (false, None, false)]
        {
            let facts = Facts { refused_since, refused_with, ..Facts::default() };
            assert_eq!(facts.lost_with(&token), expected, "{facts:?}");
        }
    }

    fn own(byte: u8) -> Own {
        Own {
            grant: Grant([byte; 16]),
            fence: FencingToken(1),
            stored: stored_form(&Bytes::from_static(b"v")).into(),
            ends: None,
            asked_end: None,
            lapsed: None,
            came_back: false,
            unwitnessed: false,
        }
    }

    #[test]
    fn what_is_held_beside_a_lock_is_ordered_and_has_a_bound() {
        let (mut evidence, start) = (Evidence::default(), Instant::now());
        let lease = |fence, ends| Own { fence: FencingToken(fence), ends, ..own(1) };
        for (name, fence) in [("c", 30), ("a", 10), ("d", 40), ("b", 20)] {
            evidence.granted(key(name), lease(fence, Some(Tick::from(start) + Duration::from_secs(9))), None);
        }
        evidence.granted(DbKey::new(1, b"elsewhere"), lease(50, None), None);
        evidence.granted(key("over"), lease(60, Some(start.into())), None);
        evidence.granted(key("lapsed"), lease(70, None), None);
        evidence.lapsed(&key("lapsed"), start);
        evidence.granted(key("perhaps"), lease(80, None), None);
        evidence.unwitnessed(&key("perhaps"));
        let held = |lock, most| evidence.held_beside(0, str::as_bytes(lock), start, most);
        assert_eq!(held("x", 32), ["a", "b", "c", "d"]);
        assert_eq!(held("c", 32), ["a", "b", "d"]);
        assert_eq!(held("x", 2), ["c", "d"]);
        evidence.released(&key("d"));
        assert_eq!(evidence.held_beside(0, b"x", start, 2), ["b", "c"]);
    }

    #[test]
    fn a_lapsed_lease_is_remembered_for_ten_minutes() {
        let (mut evidence, start) = (Evidence::default(), Instant::now());
        evidence.granted(key("a"), own(1), None);
        evidence.lapsed(&key("a"), start);
        assert!(evidence.facts(&key("a"), start + LAPSED_MEMORY).own.is_some());
        let later = start + LAPSED_MEMORY + Duration::from_secs(1);
        assert!(evidence.facts(&key("a"), later).own.is_none());
    }

    #[test]
    fn a_lease_that_another_replaced_before_its_time_was_over_is_forgotten() {
        let start = Instant::now();
        let ends = start + Duration::from_secs(20);
        let value = Bytes::from_static(b"v");
        let own_after_reading = |grant: Option<Grant>, lapsed, now| {
            let mut evidence = Evidence::default();
            let own = Own { ends: Some(ends.into()), lapsed, ..own(1) };
            evidence.granted(key("a"), own, None);
            evidence.observed(key("a"), grant, Some(&value), false, now);
            evidence.facts(&key("a"), now).own
        };
        let (mine, others) = (Some(Grant([1; 16])), Some(Grant([2; 16])));
        assert!(own_after_reading(others, None, start).is_none());

        assert!(own_after_reading(mine, None, start).is_some());
        assert!(own_after_reading(None, None, start).is_some(), "no record");
        let late = ends - SURELY_BEFORE_END;
        assert!(own_after_reading(others, None, late).is_some(), "may be over");
        let lapsed = own_after_reading(others, Some(start.into()), start);
        assert!(lapsed.is_some(), "a script said that it is over");
    }

    #[test]
    fn a_grant_ends_the_memory_of_a_refusal() {
        let (mut evidence, now) = (Evidence::default(), Instant::now());
        evidence.refused(&key("a"), None);
        assert!(evidence.facts(&key("a"), now).refused_since);
        evidence.granted(key("a"), own(1), None);
        assert!(!evidence.facts(&key("a"), now).refused_since);
    }

    #[test]
    fn the_oldest_reading_is_forgotten_first() {
        let (mut evidence, now) = (Evidence::default(), Instant::now());
        for i in 0..=MAX_OBSERVED {
            let name = DbKey::new(0, format!("k{i}").as_bytes());
            let value = Bytes::from_static(b"value");
            evidence.observed(name, None, Some(&value), false, now);
        }
        assert!(evidence.facts(&key("k0"), now).seen.is_none());
        assert!(evidence.facts(&key("k1"), now).seen.is_some());
        assert_eq!(evidence.memory.len(), MAX_OBSERVED);
    }

    #[test]
    fn a_reading_under_watch_outlives_the_watch_as_a_plain_one() {
        let (mut evidence, now) = (Evidence::default(), Instant::now());
        evidence.observed(key("a"), None, Some(&Bytes::from_static(b"1")), true, now);
        evidence.unwatched();
        assert!(!evidence.facts(&key("a"), now).seen.expect("was read").watched);
    }

    #[test]
    fn attempts_are_counted_over_ten_seconds() {
        let (mut evidence, start) = (Evidence::default(), Instant::now());
        evidence.attempted(&key("a"), start);
        evidence.attempted(&key("a"), start);
        assert_eq!(evidence.facts(&key("a"), start).attempts, 2);
        let attempts = |evidence: &mut Evidence, ms: u64| {
            let later = start + Duration::from_millis(ms);
            evidence.facts(&key("a"), later).attempts
        };
        assert_eq!(attempts(&mut evidence, 9_999), 2);
        assert_eq!(attempts(&mut evidence, 10_000), 2);
        assert_eq!(attempts(&mut evidence, 14_000), 1);
        assert_eq!(attempts(&mut evidence, 16_000), 0);
    }

    #[test]
    fn a_client_that_tries_steadily_gets_its_share_evenly() {
        let (mut evidence, start) = (Evidence::default(), Instant::now());
        let mut let_through = Vec::new();
        for second in 0..120 {
            let now = start + Duration::from_secs(second);
            evidence.attempted(&key("a"), now);
            match evidence.facts(&key("a"), now).attempts {
                ..=3 => let_through.push(second),
                _ => evidence.turned_away(&key("a")),
            }
        }
        // A limit of three in ten seconds, with tries that come once a second.
        let in_all = let_through.len();
        assert!((33..=40).contains(&in_all), "{in_all}: {let_through:?}");
        let waits = let_through.windows(2).map(|pair| pair[1] - pair[0]);
        let longest = waits.skip(3).max();
        assert!(longest <= Some(5), "{let_through:?}");
    }

    #[test]
    fn a_lock_that_is_tried_again_and_again_is_counted_among_very_many_others() {
        let (mut evidence, start) = (Evidence::default(), Instant::now());
        for i in 0..10_000 {
            let now = start + Duration::from_micros(i);
            evidence.attempted(&key("polled"), now);
            let other = DbKey::new(0, format!("k{i}").as_bytes());
            evidence.attempted(&other, now);
            assert_eq!(evidence.facts(&other, now).attempts, 1);
        }
        assert_eq!(evidence.facts(&key("polled"), start).attempts, 10_000);
        assert_eq!(evidence.attempts.places.len(), MAX_TRIED);
        assert!(evidence.memory.is_empty(), "a try leaves nothing else");
    }

    #[test]
    fn the_leases_that_were_granted_last_are_found_until_they_end() {
        let mut evidence = Evidence::default();
        let now = Instant::now();
        let names = |evidence: &Evidence| {
            let keys = evidence.latest().map(|(key, _)| key.bytes().to_vec());
            keys.map(|key| String::from_utf8(key).expect("it is text")).collect::<Vec<_>>().join(" ")
        };
        for name in ["a", "b", "a", "c"] {
            evidence.granted(key(name), own(1), None);
        }
        evidence.refused(&key("d"), None);
        assert_eq!(names(&evidence), "b a c");
        evidence.released(&key("a"));
        evidence.lapsed(&key("b"), now);
        assert_eq!(names(&evidence), "c");
        for number in 0..100 {
            evidence.granted(DbKey::new(0, format!("{number}").as_bytes()), own(1), None);
        }
        assert_eq!(names(&evidence), "92 93 94 95 96 97 98 99");
    }

    #[test]
    fn the_number_of_locks_is_bounded() {
        let mut evidence = Evidence::default();
        for i in 0..=MAX_LOCKS {
            evidence.granted(DbKey::new(0, format!("k{i}").as_bytes()), own(1), None);
        }
        assert!(evidence.memory.len() <= MAX_LOCKS);
        assert!(evidence.memory.len() >= MAX_LOCKS / 2);
    }

    #[test]
    fn a_release_forgets_the_lease() {
        let mut evidence = Evidence::default();
        evidence.granted(key("a"), own(1), None);
        evidence.released(&key("a"));
        assert!(evidence.memory.is_empty());
    }

    #[test]
    fn a_lease_that_follows_one_that_ran_out_unreleased_is_told() {
        let (mut evidence, start) = (Evidence::default(), Instant::now());
        let lock = key("a");
        let until = |byte: u8, s: u64| Own { ends: Some(Tick::from(start) + Duration::from_secs(s)), ..own(byte) };
        let at = |s: u64| start + Duration::from_secs(s);
        evidence.granted(lock.clone(), until(1, 5), Some(at(0)));
        assert!(!evidence.overran(&lock), "there is none before it");
        evidence.granted(lock.clone(), until(2, 15), Some(at(6)));
        assert!(evidence.overran(&lock));
        evidence.granted(lock.clone(), until(2, 15), None);
        assert!(evidence.overran(&lock), "it is the same once more");
        evidence.granted(lock.clone(), until(3, 25), Some(at(10)));
        assert!(!evidence.overran(&lock), "its own had time left");
        evidence.granted(lock.clone(), until(4, 35), None);
        assert!(!evidence.overran(&lock), "given back over another connection");
        assert!(evidence.comes_back(&lock, false, at(36)));
        evidence.granted(lock.clone(), until(5, 45), Some(at(36)));
        assert!(!evidence.overran(&lock), "it was to be given back, late");
        evidence.granted(lock.clone(), until(6, 55), Some(at(46)));
        assert!(evidence.overran(&lock));
        evidence.released(&lock);
        assert!(!evidence.overran(&lock));
    }
}
