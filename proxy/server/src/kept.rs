//! Leases whose TTL the proxy chose, and when each has to be renewed. The register only says what
//! is due; the upkeep connection renews, in a script that asks Redis whether the lease is still
//! that lease.

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
    /// Wakes the session, where the proxy's own connection cannot renew it.
    pub(crate) nudge: Arc<Nudge>,
    due: (Instant, u64),
    /// Its place among its session's.
    place: u64,
}

#[derive(Default)]
struct Register {
    leases: DbMap<KeptLease>,
    due: BTreeMap<(Instant, u64), DbKey>,
    by_session: BTreeMap<(SessionNumber, u64), DbKey>,
    next: u64,
    /// Until when whoever renews has said that it sleeps.
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
        let mut register = self.lock();
        register.remove(&key);
        let due = register.place(&key, now + ttl / 3);
        let lease = KeptLease {
            session: holder.session,
            kin,
            namespace,
            renewal,
            ends: now + ttl,
            nudge: holder.nudge.clone(),
            due,
            place: due.1,
        };
        self.put(register, key, lease);
    }

    /// Keeps a lease alive whose session is gone, from now on for this one. A newer lease stays.
    pub(crate) fn adopt(&self, holder: &Holder, key: DbKey, mut lease: KeptLease, now: Instant) {
        let mut register = self.lock();
        if register.leases.contains_key(&key) {
            return;
        }
        lease.due = register.place(&key, now);
        (lease.session, lease.nudge) = (holder.session, holder.nudge.clone());
        self.put(register, key, lease);
    }

    /// No longer: it was given back, or its holder chose a TTL himself.
    pub(crate) fn remove(&self, key: &DbKey, session: Option<SessionNumber>) {
        if self.count.load(Ordering::Acquire) == 0 {
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

    /// The leases that are due, at most `most` of them.
    pub(crate) fn due(&self, now: Instant, most: usize) -> Vec<(DbKey, KeptLease)> {
        let register = self.lock();
        register
            .due
            .range(..=(now, u64::MAX))
            .take(most)
            .filter_map(|(_, key)| Some((key.clone(), register.leases.get(key)?.clone())))
            .collect()
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

    /// Every lease, for the last renewal of a stopping proxy.
    pub(crate) fn all(&self) -> Vec<(DbKey, KeptLease)> {
        let register = self.lock();
        register
            .leases
            .iter()
            .map(|(key, lease)| (key.clone(), lease.clone()))
            .collect()
    }

    /// It was renewed to this TTL.
    pub(crate) fn renewed(&self, key: &DbKey, lease: &KeptLease, ttl: Duration, now: Instant) {
        self.replace(key, lease, now + ttl, now + ttl / 3);
    }

    /// It has to wait until then.
    pub(crate) fn postpone(&self, key: &DbKey, lease: &KeptLease, until: Instant) {
        self.replace(key, lease, lease.ends, until);
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

    /// Until when whoever renews may sleep. One that was due by then and is no more lets it wake for
    /// nothing; so a lease that comes and goes, one after another, does not wake it each time.
    pub(crate) fn next_due(&self, now: Instant) -> Option<Instant> {
        let mut register = self.lock();
        let first = register.due.keys().next().map(|(at, _)| *at);
        let before = register.sleeps_until.filter(|at| *at > now);
        register.sleeps_until = first.or(before);
        register.sleeps_until
    }

    /// Waits until a lease was added that is due before the time that [`Kept::next_due`] said.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn replace(&self, key: &DbKey, lease: &KeptLease, ends: Instant, due: Instant) {
        let mut register = self.lock();
        let Some(old) = register
            .leases
            .get(key)
            .filter(|now| now.renewal.grant == lease.renewal.grant)
            .map(|now| now.due)
        else {
            return;
        };
        register.due.remove(&old);
        let due = register.place(key, due);
        if let Some(lease) = register.leases.get_mut(key) {
            (lease.ends, lease.due) = (ends, due);
        }
    }

    fn put(&self, mut register: MutexGuard<'_, Register>, key: DbKey, lease: KeptLease) {
        let due = lease.due.0;
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
    fn place(&mut self, key: &DbKey, at: Instant) -> (Instant, u64) {
        let due = (at, self.next);
        self.next += 1;
        self.due.insert(due, key.clone());
        due
    }

    fn put(&mut self, key: DbKey, lease: KeptLease) {
        let place = (lease.session, lease.place);
        self.by_session.insert(place, key.clone());
        self.leases.insert(key, lease);
    }

    fn of_session(&self, session: SessionNumber) -> impl Iterator<Item = &DbKey> {
        let all = self.by_session.range((session, 0)..=(session, u64::MAX));
        all.map(|(_, key)| key)
    }

    fn remove(&mut self, key: &DbKey) -> Option<KeptLease> {
        let lease = self.leases.remove(key)?;
        self.due.remove(&lease.due);
        self.by_session.remove(&(lease.session, lease.place));
        Some(lease)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn holder(session: SessionNumber) -> Holder {
        Holder {
            session,
            nudge: Arc::default(),
        }
    }

    fn lease(key: &'static str, grant: u8) -> (DbKey, Renewal) {
        let lock = Bytes::from_static(key.as_bytes());
        let renewal = Renewal {
            lock: lock.clone(),
            grant: Grant([grant; 16]),
            ttl_ms: 3000,
            keep_alive_ms: 60_000,
            outlive_ms: 600_000,
        };
        (DbKey::new(0, lock), renewal)
    }

    #[test]
    fn a_lease_is_due_after_a_third_of_its_ttl() {
        let (kept, now) = (Kept::default(), Instant::now());
        let (key, renewal) = lease("a", 1);
        kept.add(
            &holder(1),
            Kin::Nobody,
            NamespaceId(0),
            key.clone(),
            renewal,
            now,
        );
        assert!(kept.due(now, 10).is_empty());
        let later = now + Duration::from_secs(1);
        let due = kept.due(later, 10);
        assert_eq!(due.len(), 1);
        kept.renewed(&key, &due[0].1, Duration::from_secs(3), later);
        assert!(kept.due(later, 10).is_empty());
        assert_eq!(kept.next_due(later), Some(later + Duration::from_secs(1)));
    }

    #[test]
    fn nothing_is_kept_for_a_session_that_is_gone() {
        let (kept, now) = (Kept::default(), Instant::now());
        for (session, name) in [(1, "a"), (1, "b"), (2, "c")] {
            let (key, renewal) = lease(name, 1);
            kept.add(
                &holder(session),
                Kin::Nobody,
                NamespaceId(0),
                key,
                renewal,
                now,
            );
        }
        assert_eq!(kept.end_session(1).len(), 2);
        let left = kept.all();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].1.session, 2);
    }

    #[test]
    fn a_lease_is_adopted_unless_there_is_a_newer_one() {
        let (kept, now) = (Kept::default(), Instant::now());
        let (key, renewal) = lease("a", 1);
        kept.add(
            &holder(1),
            Kin::Nobody,
            NamespaceId(0),
            key.clone(),
            renewal,
            now,
        );
        let (_, orphan) = kept.end_session(1).remove(0);
        kept.adopt(&holder(2), key.clone(), orphan.clone(), now);
        assert_eq!(kept.due(now, 10).len(), 1, "it is renewed at once");
        assert_eq!(kept.end_session(2).len(), 1);
        kept.add(
            &holder(3),
            Kin::Nobody,
            NamespaceId(0),
            key.clone(),
            lease("a", 2).1,
            now,
        );
        kept.adopt(&holder(2), key, orphan, now);
        assert_eq!(kept.all()[0].1.session, 3);
    }

    #[test]
    fn a_renewal_of_an_older_lease_changes_nothing() {
        let (kept, now) = (Kept::default(), Instant::now());
        let (key, old) = lease("a", 1);
        kept.add(
            &holder(1),
            Kin::Nobody,
            NamespaceId(0),
            key.clone(),
            old,
            now,
        );
        let before = kept.all().remove(0).1;
        kept.add(
            &holder(1),
            Kin::Nobody,
            NamespaceId(0),
            key.clone(),
            lease("a", 2).1,
            now,
        );
        kept.ended(&key, &before);
        assert_eq!(kept.all().len(), 1, "the newer lease stays");
        kept.remove(&key, Some(9));
        assert_eq!(kept.all().len(), 1, "another session's word does not count");
        kept.remove(&key, Some(1));
        assert!(kept.all().is_empty());
    }

    #[tokio::test]
    async fn whoever_renews_is_woken_by_what_is_due_before_it_wakes_anyway() {
        let (kept, now) = (Kept::default(), Instant::now());
        let add = |name, now| {
            let (key, renewal) = lease(name, 1);
            let holder = holder(1);
            kept.add(
                &holder,
                Kin::Nobody,
                NamespaceId(0),
                key.clone(),
                renewal,
                now,
            );
            key
        };
        let is_woken = async || {
            let woken = tokio::time::timeout(Duration::ZERO, kept.changed());
            woken.await.is_ok()
        };
        let first = add("a", now);
        assert!(is_woken().await);
        let due = now + Duration::from_secs(1);
        assert_eq!(kept.next_due(now), Some(due));
        add("b", now + Duration::from_millis(1));
        kept.remove(&first, None);
        assert!(!is_woken().await, "it is due later");
        let (_, orphan) = kept.end_session(1).remove(0);
        assert_eq!(kept.next_due(now), Some(due), "it may wake for nothing");
        add("c", now + Duration::from_millis(2));
        assert!(!is_woken().await);
        kept.adopt(&holder(2), first, orphan, now);
        assert!(is_woken().await, "an orphan is due at once");
        assert_eq!(kept.next_due(now), Some(now));
    }
}
