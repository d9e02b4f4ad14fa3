//! The lease table of the whole process: a view for metrics and people, in shards so that sessions seldom wait for
//! each other. It decides nothing.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use lockwarden_control::clock;
use lockwarden_control::ruleset::Active;
use lockwarden_control::telemetry::metrics::NamespaceMirror;
use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::lease::{Counted, End, Held, Lapse, Lease, LeaseEvent, LeaseTable, Placed, Transition};
use lockwarden_lock::token::{Grant, SessionId};

const SHARDS: usize = 16;
/// Leases of one shard that are over and remembered; when there are more, the oldest is dropped.
const MAX_OVER: usize = 1024;

/// A lease that is over.
#[derive(Clone, Debug)]
pub(crate) struct Over {
    pub(crate) key: DbKey,
    pub(crate) grant: Grant,
    pub(crate) transition: Transition,
    /// Since when the lock is free.
    pub(crate) at: Instant,
    /// By then, most sentinels had not been heard for longer than the time within which they are asked again.
    pub(crate) unheard: bool,
}

impl Over {
    /// The same as a doubted lease, if another server may have been the primary since then.
    fn doubted_since(self, since: Instant) -> Option<Over> {
        let unheard = self.at > since + ASKED_WITHIN;
        (self.at > since).then_some(Over { unheard, ..self })
    }
}

/// Each sentinel that can be reached is asked once within this time.
const ASKED_WITHIN: Duration = Duration::from_secs(2);

/// The view.
#[derive(Default)]
pub struct LeaseMirror {
    shards: [Mutex<LeaseTable>; SHARDS],
    /// Leases that ended lately, kept where another server may become the primary unnoticed.
    over: Option<[Mutex<VecDeque<Over>>; SHARDS]>,
    /// Those for which it is unknown whether the new primary has ever had them.
    doubted: Mutex<Vec<Over>>,
    /// Since when another server may have been the primary, until all of them were looked for.
    doubted_since: Mutex<Option<Instant>>,
    /// A lease was granted since the last call of `has_worked`.
    has_granted: AtomicBool,
    /// There may be leases for which it is unknown whether the server has them.
    is_doubted: AtomicBool,
    /// A lease has vanished since the process began.
    has_lost: AtomicBool,
}

impl LeaseMirror {
    /// A mirror that remembers leases that are over, in case it turns out later that another server was the primary
    /// by then.
    pub(crate) fn that_remembers() -> LeaseMirror {
        LeaseMirror { over: Some(Default::default()), ..LeaseMirror::default() }
    }

    /// Applies what happened; returns the lease that it ended.
    pub fn apply(&self, key: &DbKey, event: LeaseEvent, now: Instant) -> Option<Transition> {
        if let LeaseEvent::Granted { .. } = event
            && !self.has_granted.load(Ordering::Relaxed)
        {
            self.has_granted.store(true, Ordering::Relaxed);
        }
        let mut shard = lock(self.shard(key));
        let before = self.over.as_ref().and_then(|_| shard.get(key));
        let grant = before.map(|lease| lease.grant);
        let ended = shard.apply(key, event, now);
        drop(shard);
        if let (Some(grant), Some(transition)) = (grant, &ended) {
            self.remember(Over { key: key.clone(), grant, transition: transition.clone(), at: now, unheard: false });
        }
        ended
    }

    /// Attaches a lease to the count of its holder's application.
    pub fn count(&self, key: &DbKey, grant: Grant, counted: Counted) {
        lock(self.shard(key)).count(key, grant, counted);
    }

    fn remember(&self, over: Over) {
        // For other leases, it was not this proxy that granted a client the lock.
        if let (Some(remembered), Some(_)) = (&self.over, over.transition.session) {
            let mut shard = lock(&remembered[over.key.shard() % SHARDS]);
            if shard.len() >= MAX_OVER {
                shard.pop_front();
            }
            shard.push_back(over);
        }
    }

    /// Another server has become the primary, at this moment or later: it need not have the leases that were over by
    /// then. Returns how many others there are.
    pub(crate) fn doubt_over(&self, since: Instant) -> usize {
        *lock(&self.doubted_since) = Some(since);
        let remembered = self.over.iter().flatten();
        let over = remembered.flat_map(|shard| std::mem::take(&mut *lock(shard)));
        let mut doubted = lock(&self.doubted);
        doubted.extend(over.filter_map(|over| over.doubted_since(since)));
        doubted.len()
    }

    /// A lease that had run out by then, and that was not noted yet: returns it as doubted, if it is.
    pub(crate) fn as_doubted(&self, over: Over) -> Option<Over> {
        let is_of_this_proxy = over.transition.session.is_some();
        over.doubted_since((*lock(&self.doubted_since))?).filter(|_| is_of_this_proxy)
    }

    /// The leases that are over for which that is unknown.
    pub(crate) fn doubted(&self) -> Vec<Over> {
        lock(&self.doubted).clone()
    }

    /// All of them were looked for.
    pub(crate) fn no_more_doubted(&self) {
        lock(&self.doubted).clear();
        *lock(&self.doubted_since) = None;
    }

    fn shard(&self, key: &DbKey) -> &Mutex<LeaseTable> {
        &self.shards[key.shard() % SHARDS]
    }

    /// Which lease of a lock is current, and whose, as far as this proxy has seen.
    pub fn current(&self, key: &DbKey) -> Option<(Grant, Option<SessionId>)> {
        let shard = lock(self.shard(key));
        shard.get(key).map(|lease| (lease.grant, lease.session))
    }

    /// Calls `look` for every lease that this proxy knows of, those of one shard under one lock. `look` must be
    /// quick: sessions may wait for it.
    pub fn visit(&self, mut look: impl FnMut(&DbKey, &Lease)) {
        for shard in &self.shards {
            for (key, lease) in lock(shard).iter() {
                look(key, lease);
            }
        }
    }

    /// Whether the server should have a record: a lease is held, or one was granted since the last call.
    pub(crate) fn has_worked(&self) -> bool {
        let holds = |shard: &Mutex<LeaseTable>| lock(shard).iter().next().is_some();
        self.has_granted.swap(false, Ordering::Relaxed) || self.shards.iter().any(holds)
    }

    /// The lease of a lock, as far as this proxy has seen.
    pub fn lease(&self, key: &DbKey) -> Option<Lease> {
        lock(self.shard(key)).get(key).cloned()
    }

    /// The server has no record of a lock, and the lock is free. Returns the lease that was there, as far as this
    /// proxy has seen, and that was not released: once for each.
    pub(crate) fn is_unrecorded(&self, key: &DbKey, now: Instant) -> Option<Lease> {
        let lease = lock(self.shard(key)).is_unrecorded(key, now)?;
        self.has_lost.store(true, Ordering::Release);
        Some(lease)
    }

    /// Whether any lease was taken away on the server itself.
    pub(crate) fn has_lost(&self) -> bool {
        self.has_lost.load(Ordering::Acquire)
    }

    /// Whether this lease of a lock was taken away there.
    pub(crate) fn has_vanished(&self, key: &DbKey, grant: Grant) -> bool {
        self.has_lost() && lock(self.shard(key)).has_vanished(grant)
    }

    /// The leases that seem to have run out since the last call.
    pub(crate) fn expire(&self, now: Instant) -> Vec<Lapse> {
        let lapses: Vec<Lapse> = self.shards.iter().flat_map(|shard| lock(shard).expire(now)).collect();
        if self.over.is_some() {
            for Lapse { key, grant, transition, .. } in &lapses {
                let (key, transition) = (key.clone(), transition.clone());
                self.remember(Over { key, grant: *grant, transition, at: now, unheard: false });
            }
        }
        lapses
    }

    /// Another server has become the primary: it is unknown which leases it has. Returns how many leases that
    /// concerns.
    pub fn doubt(&self) -> usize {
        self.is_doubted.store(true, Ordering::Release);
        self.shards.iter().map(|shard| lock(shard).doubt()).sum()
    }

    /// The leases for which it is unknown whether the server has them.
    pub(crate) fn unknown(&self) -> Vec<(DbKey, Lease)> {
        let mut unknown = Vec::new();
        // This is called at each heartbeat, and a look at all leases takes time in which sessions may wait.
        if !self.is_doubted.load(Ordering::Acquire) {
            return unknown;
        }
        self.visit(|key, lease| {
            if lease.unknown {
                unknown.push((key.clone(), lease.clone()));
            }
        });
        if unknown.is_empty() {
            self.is_doubted.store(false, Ordering::Release);
        }
        unknown
    }

    /// This lease was found on the server, with this TTL, if it has one.
    pub(crate) fn is_there(&self, key: &DbKey, grant: Grant, ttl: Option<Duration>) {
        lock(self.shard(key)).is_there(key, grant, ttl, Instant::now());
    }

    /// The server did not have this lease any more at this time, or it was over there. Returns how it ended, if it is
    /// the current one.
    pub(crate) fn is_not_there(&self, key: &DbKey, grant: Grant, end: End, at: Instant) -> Option<Transition> {
        lock(self.shard(key)).is_not_there(key, grant, end, at)
    }

    /// Removes and returns the leases of these locks, which belong to another server from now on.
    pub(crate) fn take_away(&self, of: impl Fn(&DbKey) -> bool) -> Vec<(DbKey, Placed)> {
        self.shards.iter().flat_map(|shard| lock(shard).take_away(&of)).collect()
    }

    /// Takes in a lease that belonged to another server before.
    pub(crate) fn take_in(&self, key: &DbKey, lease: Placed) {
        self.has_granted.store(true, Ordering::Relaxed);
        lock(self.shard(key)).take_in(key, lease);
    }

    /// Forgets the leases that a FLUSH of one database, or of all, has erased.
    pub(crate) fn forget(&self, db: Option<u32>, before: Instant) {
        self.has_granted.store(false, Ordering::Relaxed);
        for shard in &self.shards {
            lock(shard).forget(db, before);
        }
    }

    /// What each namespace holds, for the metrics page.
    pub fn held(&self, active: &Active) -> Vec<NamespaceMirror> {
        let now = Instant::now();
        let mut held = vec![Held::default(); active.details.len()];
        for shard in &self.shards {
            lock(shard).held(&active.namespaces, &mut held, now);
        }
        held.into_iter()
            .zip(&active.details)
            .map(|(held, details)| NamespaceMirror {
                name: details.name.clone(),
                held_finite: held.finite,
                held_none: held.endless,
                unknown: held.unknown,
                oldest_unix_seconds: held.oldest.map(|at| unix_seconds(now - at)),
                waiting: 0,
                enforced: false,
                harms: false,
                quarantine_until: 0,
            })
            .collect()
    }
}

fn lock<T>(shard: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // A table that a panic left behind is still a view that decides nothing.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unix_seconds(ago: Duration) -> f64 {
    clock::unix_now().saturating_sub(ago).as_secs_f64()
}
