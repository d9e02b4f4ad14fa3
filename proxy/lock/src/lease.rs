//! The lease table: a view of the leases that this proxy has seen, for metrics and people. It decides nothing; Redis is
//! the authority, and the table may be wrong about anything that happened elsewhere. Pure: the caller brings the time.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::db_key::{DbKey, DbMap};
use crate::namespace::Namespaces;
use crate::time::Tick;
use crate::token::{FencingToken, Grant, SessionId};

/// The most leases in one table; beyond that new ones are not shown.
pub const MAX_LEASES: usize = 1_000_000;

/// How much earlier than in this view a lease may end without counting as lost: the view counts from a reply, Redis
/// from the request before it.
pub const GRAIN: Duration = Duration::from_millis(20);

/// How long after a lease was last seen on the server its record still exists, whatever happened to the lease: a
/// release keeps it for ten minutes.
pub const RECORD_REMAINS: Duration = Duration::from_secs(590);

/// Leases of one table that are remembered as vanished; the oldest are forgotten first.
const MAX_VANISHED: usize = 256;

/// One lease as seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Its name.
    pub grant: Grant,
    /// Its fencing token.
    pub fence: FencingToken,
    /// The connection to which it was granted, if that was seen.
    pub session: Option<SessionId>,
    /// When it began.
    pub since: Tick,
    /// When it ends, if it has a TTL.
    pub ends: Option<Tick>,
    /// When it was last seen on the server.
    pub seen: Tick,
    /// Another server has become the primary since, and it was not yet checked whether the lease exists there.
    pub unknown: bool,
    /// Until when its holder was told that it lasts, if it ends earlier on the new primary: an extension did not reach
    /// that server, or its clock is ahead.
    pub promised: Option<Tick>,
    /// A call that could not be judged named the lock: it may have released it.
    pub unwitnessed: bool,
}

/// Counts one lease until it is dropped.
#[derive(Debug)]
pub struct Counted(Arc<AtomicU32>);

impl Counted {
    /// Adds one to this count.
    pub fn new(count: Arc<AtomicU32>) -> Counted {
        count.fetch_add(1, Ordering::Relaxed);
        Counted(count)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Lease {
    /// Whether the lease must have vanished if the server has no record of it now: this proxy granted it, and has not
    /// seen its release.
    fn needs_record(&self, now: Tick) -> bool {
        let is_recent = now.saturating_duration_since(self.seen) <= RECORD_REMAINS;
        is_recent && self.session.is_some() && !self.unwitnessed && !self.unknown
    }

    /// Whether it lasts at least until then, unless it is ended, provided that everything that happens to it is seen.
    pub fn surely_lasts(&self, until: Instant) -> bool {
        !self.unknown && !self.unwitnessed && self.ends.is_none_or(|ends| ends > until)
    }

    /// Until when its holder may rely on it, if the server may have a different end: another server has taken over.
    fn told(&self) -> Option<Tick> {
        match self.unknown {
            _ if self.unwitnessed => None,
            true => self.ends,
            false => self.promised,
        }
    }
}

/// How a lease ended that was not released and was over at this time: it was lost if its holder could still rely on it.
fn how_it_ended(told: Option<Tick>, over: Tick) -> End {
    match told {
        Some(told) if told > over + GRAIN => End::Lost,
        _ => End::Expired,
    }
}

/// Something that happened to a lock.
#[derive(Clone, Debug)]
pub enum LeaseEvent {
    /// A lease began.
    Granted {
        /// Its name.
        grant: Grant,
        /// Its fencing token.
        fence: FencingToken,
        /// The connection that holds it.
        session: SessionId,
        /// Its TTL.
        ttl: Option<Duration>,
    },
    /// A lease was found on the server that this view did not know; known leases are unchanged.
    Found {
        /// Its name.
        grant: Grant,
        /// Its fencing token.
        fence: FencingToken,
        /// When it began.
        since: Instant,
        /// Its TTL from now on.
        ttl: Option<Duration>,
    },
    /// The lease continues with this TTL from now on.
    Extended {
        /// The TTL.
        ttl: Option<Duration>,
    },
    /// A call that cannot be judged names the lock: it may release it.
    Unwitnessed,
    /// The lock was released.
    Released,
}

/// How a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Released by its holder.
    Released,
    /// Its TTL expired, or another lease replaced it.
    Expired,
    /// The new primary does not have it, or had it for a shorter time than its holder was told.
    Lost,
}

/// A lease that is over, and how long it was held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// How it ended.
    pub end: End,
    /// How long it was held.
    pub held: Duration,
    /// The connection to which it was granted, if that was seen.
    pub session: Option<SessionId>,
    /// Its fencing token.
    pub fence: FencingToken,
}

/// A lease that has expired according to the view. It may have been extended or released elsewhere, so Redis must be
/// asked.
#[derive(Clone, Debug)]
pub struct Lapse {
    /// The lock.
    pub key: DbKey,
    /// The lease.
    pub grant: Grant,
    /// The transition if it has really ended.
    pub transition: Transition,
    /// Until when its holder may have relied on it, if another server has taken over meanwhile.
    told: Option<Tick>,
    /// If there is no record of it, it was not released.
    pub needs_record: bool,
}

impl Lapse {
    /// The transition if another lease was granted then.
    pub fn was_followed(mut self, since: Instant) -> Transition {
        if self.transition.end == End::Expired {
            self.transition.end = how_it_ended(self.told, since.into());
        }
        self.transition
    }
}

/// The leases of a namespace at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Leases with a TTL.
    pub finite: u64,
    /// Leases without a TTL.
    pub endless: u64,
    /// Leases of which it is unknown whether they exist; these are counted only here.
    pub unknown: u64,
    /// When the oldest began.
    pub oldest: Option<Instant>,
}

/// The view.
#[derive(Debug, Default)]
pub struct LeaseTable {
    /// Boxed, since half of the places of a hash map may be empty.
    leases: DbMap<Box<Placed>>,
    /// When leases end, to find the expired ones. Each lease with a TTL is in here once.
    ends: BTreeSet<(Tick, DbKey)>,
    /// Leases that were removed on the server itself.
    vanished: VecDeque<Grant>,
}

/// A lease in a table.
#[derive(Debug)]
pub struct Placed {
    lease: Lease,
    /// Counts it for its holder's application.
    counted: Option<Counted>,
}

impl LeaseTable {
    /// Counts a lease, if it is the present one.
    pub fn count(&mut self, key: &DbKey, grant: Grant, counted: Counted) {
        if let Some(placed) = self.leases.get_mut(key).filter(|placed| placed.lease.grant == grant) {
            placed.counted = Some(counted);
        }
    }

    /// Applies one event to the view; returns the lease that it ended, if any.
    pub fn apply(&mut self, key: &DbKey, event: LeaseEvent, now: Instant) -> Option<Transition> {
        let now = Tick::from(now);
        let ended = match event {
            LeaseEvent::Granted { grant, fence, session, ttl } => {
                let lease = Lease {
                    grant,
                    fence,
                    session: Some(session),
                    since: now,
                    ends: ttl.map(|ttl| now + ttl),
                    seen: now,
                    unknown: false,
                    promised: None,
                    unwitnessed: false,
                };
                self.begin(key, lease, None)
            }
            LeaseEvent::Found { grant, fence, since, ttl } => {
                let known = self.get(key).is_some_and(|lease| lease.grant == grant);
                let ends = ttl.map(|ttl| now + ttl);
                if known {
                    // Extended through another proxy, or bypassing all of them.
                    self.is_there(key, grant, ttl, now);
                    None
                } else {
                    let lease = Lease {
                        grant,
                        fence,
                        session: None,
                        since: since.into(),
                        ends,
                        seen: now,
                        unknown: false,
                        promised: None,
                        unwitnessed: false,
                    };
                    self.begin(key, lease, None)
                }
            }
            LeaseEvent::Extended { ttl } => {
                self.goes_on(key, ttl.map(|ttl| now + ttl));
                if let Some(placed) = self.leases.get_mut(key) {
                    (placed.lease.unknown, placed.lease.promised) = (false, None);
                    placed.lease.unwitnessed = false;
                    placed.lease.seen = now;
                }
                None
            }
            LeaseEvent::Unwitnessed => {
                if let Some(placed) = self.leases.get_mut(key) {
                    placed.lease.unwitnessed = true;
                }
                None
            }
            LeaseEvent::Released => self.remove(key, End::Released, now),
        };
        debug_assert_eq!(self.check_invariants(), Ok(()));
        ended
    }

    /// The present lease of a lock, as far as this view knows.
    pub fn get(&self, key: &DbKey) -> Option<&Lease> {
        self.leases.get(key).map(|placed| &placed.lease)
    }

    /// Every lease, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&DbKey, &Lease)> {
        let leases = self.leases.iter();
        leases.map(|(key, placed)| (key, &placed.lease))
    }

    /// Removes the leases that have expired by `now`, as far as this view knows.
    pub fn expire(&mut self, now: Instant) -> Vec<Lapse> {
        let now = Tick::from(now);
        let mut ended = Vec::new();
        while let Some((end, key)) = self.ends.first() {
            let end = *end;
            if end > now {
                break;
            }
            let key = key.clone();
            let lease = self.get(&key);
            let grant = lease.map(|lease| lease.grant);
            // Its end here is that on the server, unless that was not checked yet.
            let told = lease.and_then(Lease::told);
            let how = match lease {
                Some(lease) if !lease.unknown => how_it_ended(told, end),
                _ => End::Expired,
            };
            let needs_record = lease.is_some_and(|lease| lease.needs_record(now) && !self.has_vanished(lease.grant));
            let transition = self.remove(&key, how, end);
            if let (Some(grant), Some(transition)) = (grant, transition) {
                ended.push(Lapse { key, grant, transition, told, needs_record });
            }
        }
        ended
    }

    /// The server has no record of a lock, and the lock is free. Returns the lease that existed, as far as this view
    /// knows, and that was not released: once for each lease.
    pub fn is_unrecorded(&mut self, key: &DbKey, now: Instant) -> Option<Lease> {
        let lease = self.get(key).filter(|lease| lease.needs_record(now.into()))?;
        if self.has_vanished(lease.grant) {
            return None;
        }
        let lease = lease.clone();
        if self.vanished.len() >= MAX_VANISHED {
            self.vanished.pop_front();
        }
        self.vanished.push_back(lease.grant);
        Some(lease)
    }

    /// Whether this lease was removed on the server itself.
    pub fn has_vanished(&self, grant: Grant) -> bool {
        self.vanished.contains(&grant)
    }

    /// Another server has become the primary: it is unknown which leases exist there. Returns their number.
    pub fn doubt(&mut self) -> usize {
        for placed in self.leases.values_mut() {
            placed.lease.unknown = true;
        }
        self.leases.len()
    }

    /// This lease was found on the server, with this TTL, if any.
    pub fn is_there(&mut self, key: &DbKey, grant: Grant, ttl: Option<Duration>, now: impl Into<Tick>) {
        let now = now.into();
        let Some(placed) = self.leases.get_mut(key) else {
            return;
        };
        let lease = &mut placed.lease;
        if lease.grant != grant {
            return;
        }
        let ends = ttl.map(|ttl| now + ttl);
        let told = lease.promised.max(lease.ends.filter(|_| lease.unknown));
        lease.promised = told.filter(|told| ends.is_some_and(|ends| ends + GRAIN < *told));
        (lease.unknown, lease.seen) = (false, now);
        if ends.is_some() {
            self.goes_on(key, ends);
        }
    }

    /// This lease no longer existed on the server at this time, or was over there. Returns how it ended, if it is the
    /// present one here: one that was not released was lost if its holder could still rely on it.
    pub fn is_not_there(&mut self, key: &DbKey, grant: Grant, end: End, at: Instant) -> Option<Transition> {
        let at = Tick::from(at);
        let lease = self.get(key).filter(|lease| lease.grant == grant)?;
        let end = match end {
            End::Expired => how_it_ended(lease.told(), at),
            end => end,
        };
        self.remove(key, end, at)
    }

    /// Forgets the leases of a database, or of all, that began before: they were erased with the database.
    pub fn forget(&mut self, db: Option<u32>, before: Instant) {
        let erased = |key: &DbKey, lease: &Lease| db.is_none_or(|db| db == key.db()) && lease.since < before;
        let keys: Vec<DbKey> =
            self.iter().filter(|(key, lease)| erased(key, lease)).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.remove(&key, End::Released, before.into());
        }
        debug_assert_eq!(self.check_invariants(), Ok(()));
    }

    /// Removes the leases of these locks, which belong to another server from now on.
    pub fn take_away(&mut self, of: impl Fn(&DbKey) -> bool) -> Vec<(DbKey, Placed)> {
        let keys: Vec<DbKey> = self.leases.keys().filter(|key| of(key)).cloned().collect();
        let taken = keys.into_iter().filter_map(|key| {
            let placed = *self.leases.remove(&key)?;
            self.leave(&key, placed.lease.ends);
            Some((key, placed))
        });
        let taken = taken.collect();
        debug_assert_eq!(self.check_invariants(), Ok(()));
        taken
    }

    /// Adds a lease that belonged to another server before, unless a newer one of the lock is known here.
    pub fn take_in(&mut self, key: &DbKey, Placed { lease, counted }: Placed) {
        if self.get(key).is_none_or(|known| known.fence < lease.fence) {
            self.begin(key, lease, counted);
        }
    }

    /// Adds what each namespace holds at `now`. The namespace of each lock is looked up again: a reload may have
    /// changed it.
    pub fn held(&self, namespaces: &Namespaces, held: &mut [Held], now: Instant) {
        let live = |(_, lease): &(&DbKey, &Lease)| lease.ends.is_none_or(|ends| ends > now);
        for (key, lease) in self.iter().filter(live) {
            let namespace = namespaces.find(key.bytes());
            let Some(held) = namespace.and_then(|id| held.get_mut(usize::from(id.0))) else {
                continue;
            };
            if lease.unknown {
                held.unknown += 1;
                continue;
            }
            match lease.ends {
                Some(_) => held.finite += 1,
                None => held.endless += 1,
            }
            let since = lease.since.instant();
            held.oldest = Some(held.oldest.map_or(since, |oldest| oldest.min(since)));
        }
    }

    /// What must be true of the table at any moment.
    ///
    /// # Errors
    /// The rule that is broken, in words.
    pub fn check_invariants(&self) -> Result<(), &'static str> {
        if self.leases.len() > MAX_LEASES {
            return Err("the table is bounded");
        }
        if self.ends.len() > self.leases.len() {
            return Err("a lease ends once");
        }
        // Looking at every lease after every event would make a test quadratic.
        for (key, placed) in self.leases.iter().take(64) {
            let end = placed.lease.ends;
            if end.is_some_and(|end| !self.ends.contains(&(end, key.clone()))) {
                return Err("a lease with a TTL stands in the order of ends");
            }
        }
        for (end, key) in self.ends.iter().take(64) {
            if self.get(key).and_then(|lease| lease.ends) != Some(*end) {
                return Err("every end belongs to a lease with a TTL");
            }
        }
        Ok(())
    }

    /// Adds a new lease, if there is room; returns the one before, which was over when this one began.
    fn begin(&mut self, key: &DbKey, lease: Lease, counted: Option<Counted>) -> Option<Transition> {
        let before = self.get(key).filter(|before| before.grant != lease.grant);
        let how = how_it_ended(before.and_then(Lease::told), lease.since);
        let over = self.remove(key, how, lease.since);
        if self.leases.len() < MAX_LEASES {
            self.enter(key, lease.ends);
            self.leases.insert(key.clone(), Box::new(Placed { lease, counted }));
        }
        over
    }

    /// Sets the end of a lease.
    fn goes_on(&mut self, key: &DbKey, ends: Option<Tick>) {
        if let Some(placed) = self.leases.get_mut(key) {
            let before = std::mem::replace(&mut placed.lease.ends, ends);
            self.leave(key, before);
            self.enter(key, ends);
        }
    }

    /// Puts a lease into the order of ends.
    fn enter(&mut self, key: &DbKey, ends: Option<Tick>) {
        if let Some(end) = ends {
            self.ends.insert((end, key.clone()));
        }
    }

    fn leave(&mut self, key: &DbKey, ends: Option<Tick>) {
        if let Some(end) = ends {
            self.ends.remove(&(end, key.clone()));
        }
    }

    fn remove(&mut self, key: &DbKey, end: End, at: Tick) -> Option<Transition> {
        let Placed { lease, .. } = *self.leases.remove(key)?;
        self.leave(key, lease.ends);
        // A lease that had expired before was not held longer than its TTL.
        let over = lease.ends.map_or(at, |ends| ends.min(at));
        let is_late = over < at && how_it_ended(lease.told(), at) == End::Expired;
        Some(Transition {
            end: if is_late { End::Expired } else { end },
            held: over.saturating_duration_since(lease.since),
            session: lease.session,
            fence: lease.fence,
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::glob::Glob;

    fn key(name: u8) -> DbKey {
        DbKey::new(0, &[name])
    }

    /// What the only namespace holds, to which every key belongs.
    fn held(table: &LeaseTable, now: Instant) -> Held {
        let namespaces = Namespaces::new(vec![vec![Glob::new(Bytes::from_static(b"*"))]]);
        let mut held = [Held::default()];
        table.held(&namespaces, &mut held, now);
        held[0]
    }

    fn granted(ttl_ms: Option<u64>) -> LeaseEvent {
        LeaseEvent::Granted {
            grant: Grant([1; 16]),
            fence: FencingToken(1),
            session: SessionId([1; 16]),
            ttl: ttl_ms.map(Duration::from_millis),
        }
    }

    fn found(ttl_ms: u64, since: Instant) -> LeaseEvent {
        LeaseEvent::Found {
            grant: Grant([2; 16]),
            fence: FencingToken(2),
            since,
            ttl: Some(Duration::from_millis(ttl_ms)),
        }
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// A lease of 300 ms, which the new primary knows for only 100 ms.
    fn cut(start: Instant) -> LeaseTable {
        let mut table = LeaseTable::default();
        table.apply(&key(1), granted(Some(300)), start);
        table.doubt();
        table.is_there(&key(1), Grant([1; 16]), Some(ms(100)), start);
        table
    }

    #[test]
    fn leases_of_a_slot_that_moves_go_from_one_table_to_another() {
        let now = Instant::now();
        let ttl = Some(Duration::from_secs(9));
        let granted = |number: u8, fence| LeaseEvent::Granted {
            grant: Grant([number; 16]),
            fence: FencingToken(fence),
            session: SessionId([1; 16]),
            ttl,
        };
        let (mut source, mut target) = (LeaseTable::default(), LeaseTable::default());
        for number in 0..4 {
            source.apply(&key(number), granted(number, 10), now);
        }
        target.apply(&key(2), granted(9, 20), now);
        for (key, lease) in source.take_away(|key| key.bytes()[0] >= 2) {
            target.take_in(&key, lease);
        }
        assert_eq!((held(&source, now).finite, held(&target, now).finite), (2, 2));
        assert_eq!(target.get(&key(2)).map(|lease| lease.grant), Some(Grant([9; 16])), "the newer one stays");
        let over = target.expire(now + Duration::from_secs(9));
        assert_eq!(over.len(), 2);
    }

    #[test]
    fn a_lease_without_a_record_vanished_where_it_was_seen_lately_and_nobody_gave_it_back() {
        let start = Instant::now();
        let vanishes = |event: LeaseEvent, then: Option<LeaseEvent>, after: Duration| {
            let mut table = LeaseTable::default();
            table.apply(&key(1), event, start);
            if let Some(then) = then {
                table.apply(&key(1), then, start + ms(1));
            }
            let first = table.is_unrecorded(&key(1), start + after).is_some();
            let second = table.is_unrecorded(&key(1), start + after).is_some();
            assert!(!second, "it is told once");
            assert_eq!(first, table.has_vanished(Grant([1; 16])));
            first
        };
        let lately = RECORD_REMAINS;
        assert!(vanishes(granted(Some(60_000)), None, ms(5)));
        assert!(vanishes(granted(None), None, lately));
        // Another proxy may have released it so long ago that its record is gone.
        assert!(!vanishes(granted(None), None, lately + ms(1)));
        let extended = LeaseEvent::Extended { ttl: None };
        assert!(vanishes(granted(None), Some(extended), lately + ms(1)));
        assert!(!vanishes(granted(None), Some(LeaseEvent::Released), ms(5)));
        assert!(!vanishes(granted(None), Some(LeaseEvent::Unwitnessed), ms(5)));
        // It is unknown to which client it was granted, and through which proxy.
        assert!(!vanishes(found(60_000, start), None, ms(5)));
    }

    #[test]
    fn a_lease_that_ends_earlier_than_its_holder_was_told_is_lost() {
        let start = Instant::now();
        let mut table = cut(start);
        assert_eq!(table.expire(start + ms(99)).len(), 0);
        let lapse = table.expire(start + ms(250)).remove(0);
        assert_eq!(lapse.transition.end, End::Lost);
        assert_eq!(lapse.transition.held, ms(100));
        assert_eq!(lapse.transition.fence, FencingToken(1));
    }

    #[test]
    fn one_that_another_takes_the_place_of_meanwhile_is_lost() {
        let start = Instant::now();
        for after in [50, 150] {
            let now = start + ms(after);
            let ended = cut(start).apply(&key(1), found(300, now), now);
            assert_eq!(ended.map(|ended| ended.end), Some(End::Lost), "{after}");
        }
        let now = start + ms(290);
        let ended = cut(start).apply(&key(1), found(300, now), now);
        assert_eq!(ended.map(|ended| ended.end), Some(End::Expired));
    }

    #[test]
    fn one_that_is_extended_or_given_back_in_time_is_not() {
        let start = Instant::now();
        let mut table = cut(start);
        let ttl = Some(ms(300));
        table.apply(&key(1), LeaseEvent::Extended { ttl }, start + ms(50));
        let lapse = table.expire(start + ms(350)).remove(0);
        assert_eq!(lapse.transition.end, End::Expired);
        let ended = cut(start).apply(&key(1), LeaseEvent::Released, start + ms(50));
        assert_eq!(ended.map(|ended| ended.end), Some(End::Released));
    }

    #[test]
    fn what_had_run_out_on_the_server_is_lost_where_its_holder_may_rely_on_it() {
        let start = Instant::now();
        for (after, end) in [(100, End::Lost), (290, End::Expired), (400, End::Expired)] {
            let mut table = LeaseTable::default();
            table.apply(&key(1), granted(Some(300)), start);
            table.doubt();
            let (grant, now) = (Grant([1; 16]), start + ms(after));
            let ended = table.is_not_there(&key(1), grant, End::Expired, now);
            assert_eq!(ended.map(|ended| ended.end), Some(end), "{after}");
        }
    }

    #[test]
    fn one_that_another_had_the_place_of_while_its_holder_relied_on_it_is_lost_however_late_that_is_seen() {
        let start = Instant::now();
        for (since, end) in [(150, End::Lost), (290, End::Expired)] {
            let (since, late) = (start + ms(since), start + ms(900));
            let mut doubted = LeaseTable::default();
            doubted.apply(&key(1), granted(Some(300)), start);
            doubted.doubt();
            let lapse = doubted.expire(late).remove(0);
            assert_eq!(lapse.transition.end, End::Expired, "nobody has looked");
            assert_eq!(lapse.was_followed(since).end, end);

            let ended = cut(start).apply(&key(1), found(300, since), late);
            assert_eq!(ended.map(|ended| ended.end), Some(end));
            let ended = cut(start).is_not_there(&key(1), Grant([1; 16]), End::Lost, since);
            assert_eq!(ended.map(|ended| ended.end), Some(end));
        }
        // If no other server has taken over, nothing follows.
        let mut table = LeaseTable::default();
        table.apply(&key(1), granted(Some(300)), start);
        let lapse = table.expire(start + ms(900)).remove(0);
        assert_eq!(lapse.was_followed(start + ms(100)).end, End::Expired);
    }

    #[test]
    fn a_lease_that_was_found_began_when_its_record_says() {
        let (mut table, start) = (LeaseTable::default(), Instant::now());
        let now = start + Duration::from_secs(5);
        table.apply(&key(1), found(300, start), now);
        table.apply(&key(1), found(300, now), now);
        assert_eq!(held(&table, now).oldest, Some(start), "once");
    }

    #[test]
    fn a_lease_that_ran_out_was_held_for_its_ttl() {
        let (mut table, start) = (LeaseTable::default(), Instant::now());
        table.apply(&key(1), granted(Some(100)), start);
        let late = start + Duration::from_millis(500);
        let ended = table.apply(&key(1), granted(None), late).expect("the first lease ended");
        assert_eq!((ended.end, ended.held), (End::Expired, Duration::from_millis(100)));
        assert_eq!(held(&table, late), Held { unknown: 0, finite: 0, endless: 1, oldest: Some(late) });
    }

    #[test]
    fn a_release_in_time_is_a_release() {
        let (mut table, start) = (LeaseTable::default(), Instant::now());
        table.apply(&key(1), granted(Some(100)), start);
        let ended = table.apply(&key(1), LeaseEvent::Released, start + Duration::from_millis(40)).expect("it was held");
        assert_eq!((ended.end, ended.held), (End::Released, Duration::from_millis(40)));
    }

    #[test]
    fn a_flush_takes_what_was_there_before_it_in_its_database() {
        let (mut table, start) = (LeaseTable::default(), Instant::now());
        let flushed = start + Duration::from_millis(10);
        let elsewhere = DbKey::new(1, key(2).bytes());
        table.apply(&key(1), granted(Some(100)), start);
        table.apply(&elsewhere, granted(None), start);
        table.apply(&key(3), granted(None), flushed);
        table.forget(Some(0), flushed);
        let left: Vec<bool> = [key(1), elsewhere, key(3)].iter().map(|key| table.leases.contains_key(key)).collect();
        assert_eq!(left, [false, true, true]);
        table.forget(None, flushed + Duration::from_millis(1));
        assert!(table.leases.is_empty() && table.ends.is_empty());
    }

    proptest! {
        #[test]
        fn the_table_keeps_its_rules(steps in prop::collection::vec((0_u8..6, 0_u8..6, 1_u64..300), 1..300)) {
            let start = Instant::now();
            let (mut table, mut now) = (LeaseTable::default(), start);
            for (name, what, ms) in steps {
                now += Duration::from_millis(ms / 3);
                let ttl = Some(Duration::from_millis(ms));
                match what {
                    0 => drop(table.apply(&key(name), granted(Some(ms)), now)),
                    1 => drop(table.apply(&key(name), granted(None), now)),
                    2 => drop(table.apply(&key(name), LeaseEvent::Extended { ttl }, now)),
                    3 => drop(table.apply(&key(name), LeaseEvent::Released, now)),
                    4 => drop(table.apply(&key(name), found(ms, now), now)),
                    _ => drop(table.expire(now)),
                }
                prop_assert_eq!(table.check_invariants(), Ok(()));
                let counted = held(&table, start).finite + held(&table, start).endless;
                prop_assert_eq!(counted, table.leases.len() as u64);
            }
            table.expire(now + Duration::from_secs(1));
            prop_assert!(table.ends.is_empty());
        }
    }
}
