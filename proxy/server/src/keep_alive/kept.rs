//! Leases whose TTL the proxy chose, and when each has to be renewed. The register only says what
//! is due, and in which order; `renewals` renews, in a script that asks Redis whether the lease is
//! still that lease.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lockwarden_lock::db_key::{DbKey, DbMap};
use lockwarden_lock::namespace::NamespaceId;
use lockwarden_lock::plan::Renewal;
use lockwarden_lock::token::{Grant, Identity};
use tokio::sync::Notify;

use crate::nudge::Nudge;
use crate::peers::Peer;

/// A renewal is due when this part of its TTL has passed.
const DUE_AFTER: u32 = 3;
/// A renewal that was sent and not answered, or that failed, is due again after this part of its TTL.
const AGAIN_AFTER: u32 = 12;
/// The bounds of that time.
const AGAIN_AT_LEAST: Duration = Duration::from_millis(5);
const AGAIN_AT_MOST: Duration = Duration::from_secs(5);
/// A renewal may come so much before it is due, where another is sent anyway.
const EARLY: Duration = Duration::from_millis(20);

/// A session, for as long as the process lives.
pub(crate) type SessionNumber = u64;

/// The session that holds a lease.
#[derive(Clone, Debug)]
pub(crate) struct Holder {
    pub(crate) session: SessionNumber,
    pub(crate) nudge: Arc<Nudge>,
}

/// Who keeps a lease alive beside the session that took it.
#[derive(Clone, Debug)]
pub(crate) enum Kin {
    /// Nobody: who else comes from there may be another process.
    Nobody,
    /// Whoever is the same client, for its address is one process.
    Address(Identity),
    /// Whoever is the same client and the same process of this machine as this one.
    Process(Identity, Arc<Peer>),
}

/// One lease to keep alive.
#[derive(Clone, Debug)]
pub(crate) struct KeptLease {
    pub(crate) session: SessionNumber,
    pub(crate) kin: Kin,
    pub(crate) namespace: NamespaceId,
    pub(crate) renewal: Renewal,
    /// When it ends unless it is renewed.
    pub(crate) ends: Instant,
    /// When its next renewal is due.
    pub(crate) due: Instant,
    /// Until when its record lives long enough without a renewal of its own.
    pub(crate) record_until: Instant,
    /// Wakes the session, where the proxy's own connection cannot renew it.
    pub(crate) nudge: Arc<Nudge>,
    turn: Turn,
    /// Its place among its session's.
    place: u64,
}

/// Where a lease stands in the queue.
#[derive(Clone, Copy, Debug)]
enum Turn {
    /// Among those that wait.
    Waiting((Instant, u64)),
    /// Among those that are due.
    Due((Instant, u64)),
}

impl KeptLease {
    fn ttl(&self) -> Duration {
        Duration::from_millis(self.renewal.ttl_ms)
    }
}

#[derive(Default)]
struct Register {
    leases: DbMap<KeptLease>,
    /// Those that are not due yet, by when they are.
    waiting: BTreeMap<(Instant, u64), DbKey>,
    /// Those that are due, by when they end: what ends first is renewed first.
    due: BTreeMap<(Instant, u64), DbKey>,
    by_session: BTreeMap<(SessionNumber, u64), DbKey>,
    next: u64,
    /// When the renewing task will wake next.
    sleeps_until: Option<Instant>,
}

/// The register. Bounded by the leases that sessions hold.
#[derive(Default)]
pub(crate) struct Kept {
    register: Mutex<Register>,
    /// How many leases there are: most releases are of one that is none of them, and need not look.
    count: AtomicUsize,
    changed: Notify,
}

impl Kept {
    /// Keeps a lease alive from now on.
    pub(crate) fn add(
        &self,
        holder: &Holder,
        kin: Kin,
        namespace: NamespaceId,
        key: DbKey,
        renewal: Renewal,
        now: Instant,
    ) {
        let ttl = Duration::from_millis(renewal.ttl_ms);
        let lease = KeptLease {
            session: holder.session,
            kin,
            namespace,
            renewal,
            ends: now + ttl,
            due: now + ttl / DUE_AFTER,
            record_until: now,
            nudge: holder.nudge.clone(),
            turn: Turn::Waiting((now, 0)),
            place: 0,
        };
        let mut register = self.lock();
        register.remove(&key);
        self.put(register, key, lease);
    }

    /// Keeps a lease alive whose session is gone, from now on for this one. A newer lease stays.
    pub(crate) fn adopt(&self, holder: &Holder, key: DbKey, mut lease: KeptLease, now: Instant) {
        let register = self.lock();
        if register.leases.contains_key(&key) {
            return;
        }
        lease.due = now;
        (lease.session, lease.nudge) = (holder.session, holder.nudge.clone());
        self.put(register, key, lease);
    }

    /// No longer: it was given back, or its holder chose a TTL himself.
    pub(crate) fn remove(&self, key: &DbKey, session: Option<SessionNumber>) {
        if self.is_empty() {
            return;
        }
        let mut register = self.lock();
        let same = register
            .leases
            .get(key)
            .is_some_and(|lease| session.is_none_or(|session| session == lease.session));
        if same {
            register.remove(key);
            self.counted(&register);
        }
    }

    /// The session is gone: its leases go by their TTL, unless somebody adopts them.
    pub(crate) fn end_session(&self, session: SessionNumber) -> Vec<(DbKey, KeptLease)> {
        let mut register = self.lock();
        let keys: Vec<DbKey> = register.of_session(session).cloned().collect();
        let leases = keys.into_iter().filter_map(|key| {
            let lease = register.remove(&key)?;
            Some((key, lease))
        });
        let leases = leases.collect();
        self.counted(&register);
        leases
    }

    /// Takes the leases that are due, at most `most`, those that end first before the others. Each is
    /// due again after a while, unless it is said before what came of its renewal.
    pub(crate) fn take_due(&self, now: Instant, most: usize) -> Vec<(DbKey, KeptLease)> {
        let mut register = self.lock();
        register.find_due(now);
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some((_, key)) = register.due.pop_first()
        {
            let Some(lease) = register.leases.get(&key) else {
                continue;
            };
            let lease = lease.clone();
            let again = lease.ttl() / AGAIN_AFTER;
            let again = now + again.clamp(AGAIN_AT_LEAST, AGAIN_AT_MOST);
            register.wait(&key, again);
            taken.push((key, lease));
        }
        taken
    }

    /// Every lease is due now.
    pub(crate) fn all_are_due(&self) {
        let mut register = self.lock();
        let waiting = std::mem::take(&mut register.waiting);
        for key in waiting.into_values() {
            register.is_due(key);
        }
    }

    /// The leases of one session.
    pub(crate) fn of_session(&self, session: SessionNumber) -> Vec<(DbKey, KeptLease)> {
        let register = self.lock();
        let keys = register.of_session(session);
        keys.filter_map(|key| Some((key.clone(), register.leases.get(key)?.clone())))
            .collect()
    }

    /// Whether a session has any.
    pub(crate) fn has(&self, session: SessionNumber) -> bool {
        self.lock().of_session(session).next().is_some()
    }

    /// Whether this lease is renewed now.
    pub(crate) fn keeps(&self, key: &DbKey, grant: Grant) -> bool {
        let register = self.lock();
        let lease = register.leases.get(key);
        lease.is_some_and(|lease| lease.renewal.grant == grant)
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// It was renewed to this TTL; whether its record was, too.
    pub(crate) fn renewed(
        &self,
        key: &DbKey,
        lease: &KeptLease,
        ttl: Duration,
        with_record: bool,
        now: Instant,
    ) {
        self.change(key, lease, |lease| {
            lease.ends = now + ttl;
            if with_record {
                lease.record_until = now + lease.renewal.record_reserve();
            }
            now + ttl / DUE_AFTER
        });
    }

    /// It has to wait until then.
    pub(crate) fn postpone(&self, key: &DbKey, lease: &KeptLease, until: Instant) {
        self.change(key, lease, |_| until);
    }

    /// That lease is over, if it is still the one that was meant.
    pub(crate) fn ended(&self, key: &DbKey, lease: &KeptLease) {
        let mut register = self.lock();
        if register
            .leases
            .get(key)
            .is_some_and(|now| now.renewal.grant == lease.renewal.grant)
        {
            register.remove(key);
            self.counted(&register);
        }
    }

    /// When the renewing task has to wake. One that was due by then and is no more lets it wake for
    /// nothing; so a lease that comes and goes, one after another, does not wake it each time.
    pub(crate) fn next_due(&self, now: Instant) -> Option<Instant> {
        let mut register = self.lock();
        let first = if register.due.is_empty() {
            register.waiting.keys().next().map(|(at, _)| *at)
        } else {
            Some(now)
        };
        let before = register.sleeps_until.filter(|at| *at > now);
        register.sleeps_until = first.or(before);
        register.sleeps_until
    }

    /// Waits until a lease was added that is due before the time that [`Kept::next_due`] said.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Changes a lease if it is still the one that was meant; `change` says when it is due again.
    fn change(
        &self,
        key: &DbKey,
        lease: &KeptLease,
        change: impl FnOnce(&mut KeptLease) -> Instant,
    ) {
        let mut register = self.lock();
        let meant = lease.renewal.grant;
        let current = register.leases.get_mut(key);
        let Some(current) = current.filter(|current| current.renewal.grant == meant) else {
            return;
        };
        let turn = current.turn;
        let due = change(current);
        current.due = due;
        register.leave_queue(turn);
        register.wait(key, due);
    }

    fn put(&self, mut register: MutexGuard<'_, Register>, key: DbKey, lease: KeptLease) {
        let due = lease.due;
        let is_early = register.sleeps_until.is_none_or(|until| due < until);
        if is_early {
            register.sleeps_until = Some(due);
        }
        register.put(key, lease);
        self.counted(&register);
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

impl Register {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The lease waits until then. It must not be in the queue.
    fn wait(&mut self, key: &DbKey, until: Instant) {
        let turn = (until, self.number());
        if let Some(lease) = self.leases.get_mut(key) {
            lease.turn = Turn::Waiting(turn);
            self.waiting.insert(turn, key.clone());
        }
    }

    /// The lease is due. It must not be in the queue.
    fn is_due(&mut self, key: DbKey) {
        let number = self.number();
        if let Some(lease) = self.leases.get_mut(&key) {
            let turn = (lease.ends, number);
            lease.turn = Turn::Due(turn);
            self.due.insert(turn, key);
        }
    }

    /// Moves what is due by now, or nearly so, to where it is taken from.
    fn find_due(&mut self, now: Instant) {
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

    fn leave_queue(&mut self, turn: Turn) {
        match turn {
            Turn::Waiting(turn) => self.waiting.remove(&turn),
            Turn::Due(turn) => self.due.remove(&turn),
        };
    }

    fn put(&mut self, key: DbKey, mut lease: KeptLease) {
        lease.place = self.number();
        let (place, due) = ((lease.session, lease.place), lease.due);
        self.by_session.insert(place, key.clone());
        self.leases.insert(key.clone(), lease);
        self.wait(&key, due);
    }

    fn of_session(&self, session: SessionNumber) -> impl Iterator<Item = &DbKey> {
        let all = self.by_session.range((session, 0)..=(session, u64::MAX));
        all.map(|(_, key)| key)
    }

    fn remove(&mut self, key: &DbKey) -> Option<KeptLease> {
        let lease = self.leases.remove(key)?;
        self.leave_queue(lease.turn);
        self.by_session.remove(&(lease.session, lease.place));
        Some(lease)
    }
}

#[cfg(test)]
mod tests;
