//! The register itself: the leases, and the queues in which they wait. `Renewals` guards it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockwarden_control::net::wakeup::Wakeup;
use lockwarden_control::telemetry::events::SessionNumber;
use lockwarden_lock::db_key::{DbKey, DbMap};

use super::index::Listing;
use super::lease::{AGAIN_AFTER, IndexWork, KeptLease, Turn};

/// A renewal may come this much before it is due, if another one is sent anyway.
const EARLY: Duration = Duration::from_millis(20);

#[derive(Default)]
pub(super) struct Register {
    pub(super) leases: DbMap<KeptLease>,
    /// Those that are not due yet, by when they will be.
    pub(super) waiting: BTreeMap<(Instant, u64), DbKey>,
    /// Those that are due, by when they end: the lease that ends first is renewed first.
    pub(super) due: BTreeMap<(Instant, u64), DbKey>,
    by_session: BTreeMap<(SessionNumber, u64), DbKey>,
    pub(super) listing: Listing,
    next: u64,
    /// When the renewing task will wake next.
    pub(super) sleeps_until: Option<Instant>,
}

impl Register {
    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The lease waits until then. It must not be in a queue.
    pub(super) fn wait(&mut self, key: &DbKey, until: Instant) {
        // The number keeps apart leases that are due at the same instant.
        let turn = (until, self.number());
        if let Some(lease) = self.leases.get_mut(key) {
            lease.turn = Turn::Waiting(turn);
            self.waiting.insert(turn, key.clone());
        }
    }

    /// The lease is due. It must not be in a queue.
    pub(super) fn is_due(&mut self, key: DbKey) {
        let number = self.number();
        if let Some(lease) = self.leases.get_mut(&key) {
            let turn = (lease.ends, number);
            lease.turn = Turn::Due(turn);
            self.due.insert(turn, key);
        }
    }

    /// Moves the leases that are due by now, or nearly so, to the queue of those that are due.
    pub(super) fn find_due(&mut self, now: Instant) {
        while let Some((&(at, _), key)) = self.waiting.first_key_value() {
            let ttl = self.leases.get(key).map_or(Duration::ZERO, KeptLease::ttl);
            let early = EARLY.min(ttl / AGAIN_AFTER);
            if at > now && (self.due.is_empty() || at > now + early) {
                return;
            }
            if let Some((_, key)) = self.waiting.pop_first() {
                self.is_due(key);
            }
        }
    }

    pub(super) fn leave_queue(&mut self, turn: Turn) {
        match turn {
            Turn::Waiting(turn) => self.waiting.remove(&turn),
            Turn::Due(turn) => self.due.remove(&turn),
        };
    }

    pub(super) fn put(&mut self, key: DbKey, mut lease: KeptLease, list: Instant) {
        lease.place = self.number();
        let (place, due) = ((lease.session, lease.place), lease.due);
        self.listing.wait(&key, &mut lease.listed, (list, lease.place));
        self.by_session.insert(place, key.clone());
        self.leases.insert(key.clone(), lease);
        self.wait(&key, due);
    }

    /// The entries that are to be written to the index and removed from it.
    pub(super) fn take_listing(&mut self, now: Instant, most: usize) -> IndexWork {
        let mut work = IndexWork::default();
        while work.written.len() < most
            && let Some(key) = self.listing.pop_due(now)
        {
            let number = self.number();
            if let Some(lease) = self.leases.get_mut(&key) {
                work.written.extend(self.listing.list(&key, lease, number, now));
            }
        }
        self.listing.take_rest(&mut work, most, now);
        work
    }

    pub(super) fn of_session(&self, session: SessionNumber) -> impl Iterator<Item = &DbKey> {
        let all = self.by_session.range((session, 0)..=(session, u64::MAX));
        all.map(|(_, key)| key)
    }

    /// The handle to wake each session.
    pub(super) fn nudges(&self) -> Vec<Arc<Wakeup>> {
        let mut last = None;
        let firsts = self.by_session.iter().filter(|((session, _), _)| last.replace(*session) != Some(*session));
        firsts.filter_map(|(_, key)| Some(self.leases.get(key)?.wakeup.clone())).collect()
    }

    /// The lease is over.
    pub(super) fn end(&mut self, key: &DbKey) {
        if let Some(lease) = self.remove(key) {
            self.listing.leave(key, &lease);
        }
    }

    pub(super) fn remove(&mut self, key: &DbKey) -> Option<KeptLease> {
        let mut lease = self.leases.remove(key)?;
        self.leave_queue(lease.turn);
        self.listing.forget(&mut lease.listed);
        self.by_session.remove(&(lease.session, lease.place));
        Some(lease)
    }
}
