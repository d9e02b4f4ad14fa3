//! Leases whose TTL the proxy chose, when each has to be renewed, and when its entry in the index has to be written.
//! The register only says what is due, and in which order; `renewals` does it, with scripts that check on Redis
//! whether the lease is still the same one.

mod index;
mod lease;
mod queues;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use lockwarden_control::telemetry::events::SessionNumber;
use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::plan::{IndexEntry, Renewal};
use lockwarden_lock::time::Tick;
use lockwarden_lock::token::Grant;
use tokio::sync::Notify;

use super::clients::Holder;
use lease::AGAIN_AFTER;
pub use lease::{IndexWork, KeptLease, SameClient};
use queues::Register;

/// A renewal is due when this part of its TTL has passed.
const DUE_AFTER: u32 = 3;
/// The bounds of that time.
const AGAIN_AT_LEAST: Duration = Duration::from_millis(5);
const AGAIN_AT_MOST: Duration = Duration::from_secs(5);

/// The register. Bounded by the leases that sessions hold.
#[derive(Default)]
pub struct Renewals {
    register: Mutex<Register>,
    /// How many leases there are: most releases are of a lease that is not among them, and need not look.
    count: AtomicUsize,
    /// The holders' own connections renew, because the proxy's may not.
    over_holders: AtomicBool,
    changed: Notify,
}

impl Renewals {
    /// Keeps a lease alive from now on.
    pub fn add(&self, holder: &Holder, same_client: SameClient, renewal: Renewal, now: Instant) {
        let mut lease = KeptLease::new(holder, same_client, renewal, now);
        let ttl = lease.ttl();
        lease.due = Tick::from(now) + ttl / DUE_AFTER;
        let mut register = self.lock();
        // An earlier lease of this lock is over, and so is its entry in the index.
        register.end(lease.lock());
        let list = index::first(ttl, now);
        self.put(register, lease, list);
    }

    /// Keeps a lease whose session is gone alive for this holder from now on. A newer lease stays.
    pub(crate) fn adopt(&self, holder: &Holder, lease: KeptLease, now: Instant) {
        self.adopt_later(holder, lease, (now, now.into()));
    }

    /// The same; but it need not be renewed before it is `due`.
    pub(crate) fn adopt_later(&self, holder: &Holder, mut lease: KeptLease, (now, due): (Instant, Tick)) {
        let mut register = self.lock();
        if register.leases.contains_key(lease.lock()) {
            return;
        }
        lease.due = due;
        (lease.session, lease.wakeup) = (holder.session, holder.wakeup.clone());
        register.listing.withdraw(&lease);
        self.put(register, lease, now);
    }

    /// Removes and returns the leases of these locks, which belong to another server from now on; there they stay
    /// with their sessions.
    pub(crate) fn take_away(&self, of: impl Fn(&DbKey) -> bool) -> Vec<KeptLease> {
        let mut register = self.lock();
        let keys: Vec<DbKey> = register.leases.keys().filter(|key| of(key)).cloned().collect();
        let taken = keys.iter().filter_map(|key| register.end(key)).collect();
        self.counted(&register);
        taken
    }

    /// Leaves a lease to other proxies; `ended` is when its client closed its connection, if the client did.
    pub(crate) fn offer(&self, lease: &KeptLease, ended: Option<Instant>) {
        self.lock().listing.offer(lease, ended);
        self.changed.notify_one();
    }

    /// Lists a lease that is not kept alive yet, for the proxy that has its client.
    pub(crate) fn announce(&self, entry: Bytes, overdue: Instant) {
        self.lock().listing.write(overdue, entry);
        self.changed.notify_one();
    }

    /// Lets a lease expire by its TTL.
    pub fn leave(&self, lease: &KeptLease) {
        self.lock().listing.leave(lease);
    }

    /// The entries that are to be written to the index, at most `most`, and those that are to be removed from it.
    pub(crate) fn take_listing(&self, now: Instant, most: usize) -> IndexWork {
        self.lock().take_listing(now, most)
    }

    /// An entry in the index that has no purpose any more.
    pub(crate) fn is_stale(&self, entry: Bytes) {
        self.lock().listing.remove(entry);
    }

    /// An entry of another proxy becomes overdue only then.
    pub(crate) fn is_answered_for(&self, entry: Bytes, until: Instant) {
        self.lock().listing.write(until, entry);
    }

    /// The entry of this lock's lease, if it is kept alive here.
    pub fn entry(&self, key: &DbKey) -> Option<IndexEntry> {
        let register = self.lock();
        let lease = register.leases.get(key)?;
        Some(index::entry(lease))
    }

    /// Whether an entry is due to be written to the index.
    pub(crate) fn has_listing(&self, now: Instant) -> bool {
        let next = self.lock().listing.next_due(now);
        next.is_some_and(|due| due <= now)
    }

    /// Stops keeping a lease alive: it was released, or its holder chose a TTL itself.
    pub(crate) fn remove(&self, key: &DbKey, session: Option<SessionNumber>) {
        if self.is_empty() {
            return;
        }
        let mut register = self.lock();
        let same = register.leases.get(key).is_some_and(|lease| session.is_none_or(|session| session == lease.session));
        if same {
            register.end(key);
            self.counted(&register);
        }
    }

    /// The session is gone: its leases expire by their TTL, unless they are adopted.
    pub(crate) fn end_session(&self, session: SessionNumber) -> Vec<KeptLease> {
        let mut register = self.lock();
        let keys: Vec<DbKey> = register.of_session(session).cloned().collect();
        let leases = keys.iter().filter_map(|key| register.remove(key)).collect();
        self.counted(&register);
        leases
    }

    /// Takes the leases that are due, at most `most`; those that end first come first. Each is due again after a
    /// while, unless the outcome of its renewal is reported before.
    pub(crate) fn take_due(&self, now: Instant, most: usize) -> Vec<KeptLease> {
        let mut register = self.lock();
        register.find_due(now);
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some((_, key)) = register.due.pop_first()
        {
            let Some(lease) = register.leases.get(&key) else {
                continue;
            };
            let lease = KeptLease::clone(lease);
            let again = lease.ttl() / AGAIN_AFTER;
            // If no reply comes, it is tried again: renewing twice does no harm.
            register.wait(&key, Tick::from(now) + again.clamp(AGAIN_AT_LEAST, AGAIN_AT_MOST));
            taken.push(lease);
        }
        taken
    }

    /// Every lease is due now.
    pub(crate) fn all_are_due(&self) {
        let mut register = self.lock();
        let waiting = std::mem::take(&mut register.waiting);
        for (_, key) in waiting {
            register.is_due(key);
        }
    }

    /// The leases of one session.
    pub(crate) fn of_session(&self, session: SessionNumber) -> Vec<KeptLease> {
        let register = self.lock();
        let keys = register.of_session(session);
        keys.filter_map(|key| Some(KeptLease::clone(register.leases.get(key)?))).collect()
    }

    /// Whether a session has any leases here.
    pub fn has(&self, session: SessionNumber) -> bool {
        self.lock().of_session(session).next().is_some()
    }

    /// Sets whether the holders' own connections renew.
    pub(crate) fn renew_over_holders(&self, do_they: bool) {
        self.over_holders.store(do_they, Ordering::Relaxed);
    }

    pub(crate) fn are_renewed_over_holders(&self) -> bool {
        self.over_holders.load(Ordering::Relaxed)
    }

    /// Wakes every session that has a lease here.
    pub(crate) fn wake_holders(&self) {
        if !self.is_empty() {
            let nudges = self.lock().nudges();
            nudges.iter().for_each(|wakeup| wakeup.work());
        }
    }

    /// Whether this lease is kept alive here now.
    pub fn keeps(&self, key: &DbKey, grant: Grant) -> bool {
        let register = self.lock();
        let lease = register.leases.get(key);
        lease.is_some_and(|lease| lease.renewal.grant == grant)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// The lease was renewed to this TTL; `with_record`: its record was, too.
    pub(crate) fn renewed(&self, lease: &KeptLease, ttl: Duration, with_record: bool, now: Instant) {
        let now = Tick::from(now);
        self.change(lease, |lease| {
            lease.ends = now + ttl;
            if with_record {
                lease.record_until = now + lease.renewal.record_reserve();
            }
            now + ttl / DUE_AFTER
        });
    }

    /// The lease was renewed, but too few replicas have it: it is due again after half the usual time.
    pub(crate) fn try_sooner(&self, lease: &KeptLease, now: Instant) {
        self.change(lease, |lease| Tick::from(now) + lease.ttl() / (2 * DUE_AFTER));
    }

    /// Its renewal has to wait until then.
    pub(crate) fn postpone(&self, lease: &KeptLease, until: Instant) {
        self.change(lease, |_| until.into());
    }

    /// The lease is over, if it is still the same one.
    pub(crate) fn ended(&self, lease: &KeptLease) {
        let mut register = self.lock();
        if register.leases.get(lease.lock()).is_some_and(|now| now.renewal.grant == lease.renewal.grant) {
            register.end(lease.lock());
            self.counted(&register);
        }
    }

    /// When the renewing task has to wake, to renew or, if it does that, to write to the index. It may wake for a
    /// lease that was due by then but is no more. So short leases that follow each other do not wake it each time.
    pub(crate) fn next_due(&self, now: Instant, writes_index: bool) -> Option<Instant> {
        let mut register = self.lock();
        let first =
            if register.due.is_empty() { register.waiting.first().map(|(at, _)| at.instant()) } else { Some(now) };
        let list = register.listing.next_due(now).filter(|_| writes_index);
        let first = first.into_iter().chain(list).min();
        let before = register.sleeps_until.filter(|at| *at > now);
        register.sleeps_until = first.or(before);
        register.sleeps_until
    }

    /// Waits until a lease was added that is due before the time that `Renewals::next_due` returned.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Changes a lease if it is still the same one; `change` returns when it is due again.
    fn change(&self, lease: &KeptLease, change: impl FnOnce(&mut KeptLease) -> Tick) {
        let mut register = self.lock();
        let (key, meant) = (lease.lock(), lease.renewal.grant);
        // While the reply was awaited, the lock may have been granted again.
        let current = register.leases.get_mut(key);
        let Some(current) = current.filter(|current| current.renewal.grant == meant) else {
            return;
        };
        let turn = current.turn;
        let due = change(current);
        current.due = due;
        register.leave_queue(key, turn);
        register.wait(key, due);
    }

    fn put(&self, mut register: MutexGuard<'_, Register>, lease: KeptLease, list: Instant) {
        let due = match lease.listed.worthwhile {
            true => lease.due.instant().min(list),
            false => lease.due.instant(),
        };
        let is_early = register.sleeps_until.is_none_or(|until| due < until);
        if is_early {
            register.sleeps_until = Some(due);
        }
        register.put(lease, list);
        self.counted(&register);
        // The woken task takes this lock at once.
        drop(register);
        if is_early {
            self.changed.notify_one();
        }
    }

    fn counted(&self, register: &Register) {
        self.count.store(register.leases.len(), Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Register> {
        self.register.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
