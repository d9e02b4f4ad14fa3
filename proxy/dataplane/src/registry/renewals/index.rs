//! Which kept leases stand in the index on Redis, and when their entries have to be written: a little after
//! the grant, so that short leases never come there, and then twice in a TTL. Part of the register.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use bytes::Bytes;
use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::plan::IndexEntry;

use super::lease::{IndexWork, KeptLease, Listed};

/// A lease that is held so long is listed, or for the other part of its TTL where that is shorter.
const LISTED_AFTER: Duration = Duration::from_millis(250);
const LISTED_AFTER_PART: u32 = 6;
/// The proxy answers for a lease this part of its TTL, and says so anew after a third of it. A renewal is due after a third, too:
/// when a proxy ends, each lease has two thirds of its TTL left, and others must know of it before that is over.
const ANSWERED_FOR: (u32, u32) = (1, 2);
const AGAIN_AFTER: u32 = 3;
/// For a lease whose renewal is so late the proxy does not answer any more.
const TOO_LATE: u32 = 6;
/// Entries of others, and entries to be removed, that wait for a connection; above that the index is left as it is
/// to whoever finds them.
const MAX_WAITING: usize = 65_536;

/// When a lease that is granted now is listed.
pub(super) fn first(ttl: Duration, now: Instant) -> Instant {
    now + LISTED_AFTER.min(ttl / LISTED_AFTER_PART)
}

/// The entries that are to be written and removed.
#[derive(Default)]
pub(super) struct Listing {
    waiting: BTreeMap<(Instant, u64), DbKey>,
    /// Entries of leases that this proxy does not keep alive, and when each is overdue.
    others: Vec<(Instant, Bytes)>,
    removed: HashSet<Bytes>,
}

impl Listing {
    /// The lease's entry is to be written then.
    pub(super) fn wait(&mut self, key: &DbKey, listed: &mut Listed, turn: (Instant, u64)) {
        if listed.worthwhile {
            listed.turn = Some(turn);
            self.waiting.insert(turn, key.clone());
        }
    }

    /// Not any more.
    pub(super) fn forget(&mut self, listed: &mut Listed) {
        if let Some(turn) = listed.turn.take() {
            self.waiting.remove(&turn);
        }
    }

    /// The lease is over, or cannot be kept alive.
    pub(super) fn leave(&mut self, key: &DbKey, lease: &KeptLease) {
        if lease.listed.written {
            self.remove(entry(key, lease).encoded());
        }
    }

    /// The lease is for another proxy to keep alive. Where its client ended its connection, the entry
    /// says so and when; else it is that of a proxy that does not answer for it any more.
    pub(super) fn offer(&mut self, key: &DbKey, lease: &KeptLease, ended: Option<Instant>) {
        let mut entry = entry(key, lease);
        if ended.is_some() {
            self.leave(key, lease);
            entry = entry.offer();
        }
        self.write(ended.unwrap_or_else(Instant::now), entry.encoded());
    }

    /// An entry is overdue then.
    pub(super) fn write(&mut self, overdue: Instant, entry: Bytes) {
        if self.others.len() < MAX_WAITING {
            self.others.push((overdue, entry));
        }
    }

    /// It is not offered any more.
    pub(super) fn withdraw(&mut self, key: &DbKey, lease: &KeptLease) {
        let offer = entry(key, lease).offer().encoded();
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
        self.waiting.keys().next().map(|(at, _)| *at)
    }

    /// Takes a lease whose entry is to be written by now.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<DbKey> {
        let (&(at, _), _) = self.waiting.first_key_value()?;
        if at > now {
            return None;
        }
        self.waiting.pop_first().map(|(_, key)| key)
    }

    /// The entry of this lease, whose turn was taken, and when it is overdue. None for one that could not
    /// be renewed in time: others may try.
    pub(super) fn list(
        &mut self,
        key: &DbKey,
        lease: &mut KeptLease,
        number: u64,
        now: Instant,
    ) -> Option<(i64, Bytes)> {
        let ttl = lease.ttl();
        let again = now + ttl / AGAIN_AFTER;
        self.wait(key, &mut lease.listed, (again, number));
        if now > lease.due + ttl / TOO_LATE {
            return None;
        }
        lease.listed.written = true;
        let entry = entry(key, lease).encoded();
        // A removal that still waits would take away what is written now.
        self.removed.remove(&entry);
        let (part, of) = ANSWERED_FOR;
        let answered_for = ttl / of * part;
        Some((ms(answered_for), entry))
    }

    /// What else there is to do: entries of others, and entries to remove.
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

pub(super) fn entry(key: &DbKey, lease: &KeptLease) -> IndexEntry {
    IndexEntry::of(&lease.renewal, key.db)
}

fn ms(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
