//! The lease table of the whole process: a view for metrics and people, in shards so that sessions
//! seldom meet. It decides nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use lockwarden_lock::evidence::DbKey;
use lockwarden_lock::lease::{End, Held, Lapse, Lease, LeaseEvent, LeaseTable, Transition};
use lockwarden_lock::token::{Grant, SessionId};

use crate::clock;
use crate::ruleset::Active;
use crate::telemetry::metrics::NamespaceMirror;

const SHARDS: usize = 16;

/// The view.
#[derive(Default)]
pub(crate) struct LeaseMirror {
    shards: [Mutex<LeaseTable>; SHARDS],
    /// A lease was granted since somebody asked.
    has_granted: AtomicBool,
    /// There may be leases of which nobody knows whether they are there.
    is_doubted: AtomicBool,
    /// A lease has vanished since the process began.
    has_lost: AtomicBool,
}

impl LeaseMirror {
    /// Folds in what happened; answers the lease that it ended.
    pub(crate) fn apply(&self, key: &DbKey, event: LeaseEvent, now: Instant) -> Option<Transition> {
        if let LeaseEvent::Granted { .. } = event
            && !self.has_granted.load(Ordering::Relaxed)
        {
            self.has_granted.store(true, Ordering::Relaxed);
        }
        lock(self.shard(key)).apply(key, event, now)
    }

    fn shard(&self, key: &DbKey) -> &Mutex<LeaseTable> {
        &self.shards[key.shard() % SHARDS]
    }

    /// Which lease of a lock is current, and whose, as far as this proxy has seen.
    pub(crate) fn current(&self, key: &DbKey) -> Option<(Grant, Option<SessionId>)> {
        let shard = lock(self.shard(key));
        shard.get(key).map(|lease| (lease.grant, lease.session))
    }

    /// Shows every lease that this proxy knows of, some of them together. `look` must be quick: sessions
    /// may wait for it.
    pub(crate) fn visit(&self, mut look: impl FnMut(&DbKey, &Lease)) {
        for shard in &self.shards {
            for (key, lease) in lock(shard).iter() {
                look(key, lease);
            }
        }
    }

    /// Whether there is a record to be expected on the server: a lease is held, or one was granted since
    /// the last call.
    pub(crate) fn has_worked(&self) -> bool {
        let holds = |shard| lock(shard).iter().next().is_some();
        self.has_granted.swap(false, Ordering::Relaxed) || self.shards.iter().any(holds)
    }

    /// The lease of a lock, as far as this proxy has seen.
    pub(crate) fn lease(&self, key: &DbKey) -> Option<Lease> {
        lock(self.shard(key)).get(key).cloned()
    }

    /// There is no record of a lock on the server, and nobody holds it. Returns the lease that was there, as far as this proxy has seen, and
    /// that nobody gave back: once for each.
    pub(crate) fn is_unrecorded(&self, key: &DbKey, now: Instant) -> Option<Lease> {
        let lease = lock(self.shard(key)).is_unrecorded(key, now)?;
        self.has_lost.store(true, Ordering::Release);
        Some(lease)
    }

    /// Whether any lease was taken away on the server itself.
    pub(crate) fn has_lost(&self) -> bool {
        self.has_lost.load(Ordering::Acquire)
    }

    /// Whether this lease of a lock was.
    pub(crate) fn has_vanished(&self, key: &DbKey, grant: Grant) -> bool {
        self.has_lost() && lock(self.shard(key)).has_vanished(grant)
    }

    /// The leases that seem to have run out since the last call.
    pub(crate) fn expire(&self, now: Instant) -> Vec<Lapse> {
        self.shards.iter().flat_map(|shard| lock(shard).expire(now)).collect()
    }

    /// Another server has become the primary: nobody knows which leases are there. Returns how many they are.
    pub(crate) fn doubt(&self) -> usize {
        self.is_doubted.store(true, Ordering::Release);
        self.shards.iter().map(|shard| lock(shard).doubt()).sum()
    }

    /// The leases of which nobody knows whether they are there.
    pub(crate) fn unknown(&self) -> Vec<(DbKey, Lease)> {
        let mut unknown = Vec::new();
        // Asked at each heartbeat, and a look at all of them takes time in which sessions may wait.
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

    /// This lease was not there any more at this time, or was over there; answers how it ended, where it is the one of now.
    pub(crate) fn is_not_there(&self, key: &DbKey, grant: Grant, end: End, at: Instant) -> Option<Transition> {
        lock(self.shard(key)).is_not_there(key, grant, end, at)
    }

    /// Forgets what a FLUSH of a database, or of all, has erased.
    pub(crate) fn forget(&self, db: Option<u32>, before: Instant) {
        self.has_granted.store(false, Ordering::Relaxed);
        for shard in &self.shards {
            lock(shard).forget(db, before);
        }
    }

    /// What each namespace holds, for the metrics page.
    pub(crate) fn held(&self, active: &Active) -> Vec<NamespaceMirror> {
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

fn lock(shard: &Mutex<LeaseTable>) -> std::sync::MutexGuard<'_, LeaseTable> {
    // A table that a panic left behind is still a view that decides nothing.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unix_seconds(ago: Duration) -> f64 {
    clock::unix_now().saturating_sub(ago).as_secs_f64()
}
