//! Which kept leases have an entry in the index on Redis, and when the entries have to be written: a little after the
//! grant, so that short leases never get one, and then twice in a TTL. Part of the register.

use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, Instant};

use bytes::Bytes;
use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::plan::IndexEntry;
use lockwarden_lock::time::Tick;

use super::lease::{IndexWork, KeptLease};

/// A lease is listed once it is held this long, or this part of its TTL if that is shorter.
const LISTED_AFTER: Duration = Duration::from_millis(250);
const LISTED_AFTER_PART: u32 = 6;
/// By its entry, the proxy answers for a lease for this part of its TTL; it renews the entry after a third of the
/// TTL. A renewal of the lease is due after a third, too: when a proxy ends, each lease has two thirds of its TTL
/// left, and others must know of it before that is over.
const ANSWERED_FOR: (u32, u32) = (1, 2);
const AGAIN_AFTER: u32 = 3;
/// If a renewal is later than this part of the TTL, the proxy does not answer for the lease any more.
const TOO_LATE: u32 = 6;
/// Entries of others, and entries to be removed, that wait for a connection. Beyond this limit the index is left as
/// it is, for the proxy that finds them.
const MAX_WAITING: usize = 65_536;

/// When a lease that is granted now is listed.
pub(super) fn first(ttl: Duration, now: Instant) -> Instant {
    now + LISTED_AFTER.min(ttl / LISTED_AFTER_PART)
}

/// The entries that are to be written and removed.
#[derive(Default)]
pub(super) struct Listing {
    waiting: BTreeSet<(Tick, DbKey)>,
    /// Entries of leases that this proxy does not keep alive, and when each is overdue.
    others: Vec<(Instant, Bytes)>,
    removed: HashSet<Bytes>,
}

impl Listing {
    /// The lease's entry is to be written then.
    pub(super) fn wait(&mut self, lease: &mut KeptLease, at: Tick) {
        if lease.listed.worthwhile {
            lease.listed.turn = Some(at);
            self.waiting.insert((at, lease.lock().clone()));
        }
    }

    /// The lease's entry is not to be written any more.
    pub(super) fn forget(&mut self, lease: &mut KeptLease) {
        if let Some(at) = lease.listed.turn.take() {
            self.waiting.remove(&(at, lease.lock().clone()));
        }
    }

    /// The lease is over, or cannot be kept alive.
    pub(super) fn leave(&mut self, lease: &KeptLease) {
        if lease.listed.written {
            self.remove(entry(lease).encoded());
        }
    }

    /// Leaves the lease for another proxy to keep alive. If its client closed its connection, the entry says that and
    /// when. Otherwise it is the entry of a proxy that does not answer for the lease any more.
    pub(super) fn offer(&mut self, lease: &KeptLease, ended: Option<Instant>) {
        let mut entry = entry(lease);
        if ended.is_some() {
            self.leave(lease);
            entry = entry.offer();
        }
        self.write(ended.unwrap_or_else(Instant::now), entry.encoded());
    }

    /// Writes an entry, which becomes overdue then.
    pub(super) fn write(&mut self, overdue: Instant, entry: Bytes) {
        if self.others.len() < MAX_WAITING {
            self.others.push((overdue, entry));
        }
    }

    /// The lease is not offered any more.
    pub(super) fn withdraw(&mut self, lease: &KeptLease) {
        let offer = entry(lease).offer().encoded();
        self.others.retain(|(_, other)| *other != offer);
        self.remove(offer);
    }

    pub(super) fn remove(&mut self, entry: Bytes) {
        if self.removed.len() < MAX_WAITING {
            self.removed.insert(entry);
        }
    }

    /// When there is something to write.
    pub(super) fn next_due(&self, now: Instant) -> Option<Instant> {
        if !self.others.is_empty() {
            return Some(now);
        }
        self.waiting.first().map(|(at, _)| at.instant())
    }

    /// Takes a lease whose entry is due to be written.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<DbKey> {
        let (at, _) = self.waiting.first()?;
        if *at > now {
            return None;
        }
        self.waiting.pop_first().map(|(_, key)| key)
    }

    /// The entry of this lease, whose turn was taken, and when it becomes overdue. `None` for a lease that could not
    /// be renewed in time: other proxies may try.
    pub(super) fn list(&mut self, lease: &mut KeptLease, now: Instant) -> Option<(i64, Bytes)> {
        let ttl = lease.ttl();
        self.wait(lease, Tick::from(now) + ttl / AGAIN_AFTER);
        if lease.due + ttl / TOO_LATE < now {
            return None;
        }
        lease.listed.written = true;
        let entry = entry(lease).encoded();
        // A removal that still waits would remove what is written now.
        self.removed.remove(&entry);
        let (part, of) = ANSWERED_FOR;
        let answered_for = ttl / of * part;
        Some((ms(answered_for), entry))
    }

    /// Adds the rest of the work: entries of others, and entries to remove.
    pub(super) fn take_rest(&mut self, work: &mut IndexWork, most: usize, now: Instant) {
        let others = self.others.len().min(most);
        let from_now = |at: Instant| match at.checked_duration_since(now) {
            Some(left) => ms(left),
            None => -ms(now - at),
        };
        let others = self.others.drain(..others);
        let others = others.map(|(overdue, entry)| (from_now(overdue), entry));
        work.written.extend(others);
        let removed: Vec<Bytes> = self.removed.iter().take(most).cloned().collect();
        for entry in &removed {
            self.removed.remove(entry);
        }
        work.removed = removed;
    }
}

pub(super) fn entry(lease: &KeptLease) -> IndexEntry {
    IndexEntry::of(&lease.renewal)
}

fn ms(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
