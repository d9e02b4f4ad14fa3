//! The register itself: the leases, and the queues in which they wait. `Renewals` guards it.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use lockwarden_control::net::wakeup::Wakeup;
use lockwarden_control::telemetry::events::SessionNumber;
use lockwarden_lock::db_key::{DbKey, DbMap};
use lockwarden_lock::time::Tick;

use super::index::Listing;
use super::lease::{AGAIN_AFTER, IndexWork, KeptLease, Turn};

/// A renewal may come this much before it is due, if another one is sent anyway.
const EARLY: Duration = Duration::from_millis(20);
/// No lock is before it in the order of locks.
static FIRST_LOCK: LazyLock<DbKey> = LazyLock::new(|| DbKey::new(0, b""));

#[derive(Default)]
pub(super) struct Register {
    pub(super) leases: DbMap<Box<KeptLease>>,
    /// Those that are not due yet, by when they will be.
    pub(super) waiting: BTreeSet<(Tick, DbKey)>,
    /// Those that are due, by when they end: the lease that ends first is renewed first.
    pub(super) due: BTreeSet<(Tick, DbKey)>,
    by_session: BTreeSet<(SessionNumber, DbKey)>,
    pub(super) listing: Listing,
    /// When the renewing task will wake next.
    pub(super) sleeps_until: Option<Instant>,
}

impl Register {
    /// The lease waits until then. It must not be in a queue.
    pub(super) fn wait(&mut self, key: &DbKey, until: Tick) {
        if let Some(lease) = self.leases.get_mut(key) {
            lease.turn = Turn::Waiting(until);
            self.waiting.insert((until, key.clone()));
        }
    }

    /// The lease is due. It must not be in a queue.
    pub(super) fn is_due(&mut self, key: DbKey) {
        if let Some(lease) = self.leases.get_mut(&key) {
            lease.turn = Turn::Due(lease.ends);
            self.due.insert((lease.ends, key));
        }
    }

    /// Moves the leases that are due by now, or nearly so, to the queue of those that are due.
    pub(super) fn find_due(&mut self, now: Instant) {
        let now = Tick::from(now);
        while let Some((at, key)) = self.waiting.first() {
            let ttl = self.leases.get(key).map_or(Duration::ZERO, |lease| lease.ttl());
            let early = EARLY.min(ttl / AGAIN_AFTER);
            if *at > now && (self.due.is_empty() || *at > now + early) {
                return;
            }
            if let Some((_, key)) = self.waiting.pop_first() {
                self.is_due(key);
            }
        }
    }

    pub(super) fn leave_queue(&mut self, key: &DbKey, turn: Turn) {
        match turn {
            Turn::Waiting(at) => self.waiting.remove(&(at, key.clone())),
            Turn::Due(at) => self.due.remove(&(at, key.clone())),
        };
    }

    pub(super) fn put(&mut self, mut lease: KeptLease, list: Instant) {
        let (key, due) = (lease.lock().clone(), lease.due);
        self.listing.wait(&mut lease, list.into());
        self.by_session.insert((lease.session, key.clone()));
        self.leases.insert(key.clone(), Box::new(lease));
        self.wait(&key, due);
    }

    /// The entries that are to be written to the index and removed from it.
    pub(super) fn take_listing(&mut self, now: Instant, most: usize) -> IndexWork {
        let mut work = IndexWork::default();
        while work.written.len() < most
            && let Some(key) = self.listing.pop_due(now)
        {
            if let Some(lease) = self.leases.get_mut(&key) {
                work.written.extend(self.listing.list(lease, now));
            }
        }
        self.listing.take_rest(&mut work, most, now);
        work
    }

    pub(super) fn of_session(&self, session: SessionNumber) -> impl Iterator<Item = &DbKey> {
        let from_there = self.by_session.range((session, FIRST_LOCK.clone())..);
        from_there.take_while(move |(of, _)| *of == session).map(|(_, key)| key)
    }

    /// The handle to wake each session.
    pub(super) fn nudges(&self) -> Vec<Arc<Wakeup>> {
        let mut last = None;
        let firsts = self.by_session.iter().filter(|(session, _)| last.replace(*session) != Some(*session));
        firsts.filter_map(|(_, key)| Some(self.leases.get(key)?.wakeup.clone())).collect()
    }

    /// The lease is over, at least here.
    pub(super) fn end(&mut self, key: &DbKey) -> Option<KeptLease> {
        let lease = self.remove(key)?;
        self.listing.leave(&lease);
        Some(lease)
    }

    pub(super) fn remove(&mut self, key: &DbKey) -> Option<KeptLease> {
        let mut lease = self.leases.remove(key)?;
        self.leave_queue(key, lease.turn);
        self.listing.forget(&mut lease);
        self.by_session.remove(&(lease.session, key.clone()));
        Some(*lease)
    }
}
