//! Leases whose connections have ended: the holder of each, if it is known exactly, and which other connections have
//! extended it. This module only remembers; `holders::lost` checks whether the holders are still there, and Redis
//! decides.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lockwarden_lock::db_key::{DbKey, DbMap};
use lockwarden_lock::lease::Lease;
use lockwarden_lock::plan::Shorten;
use lockwarden_lock::token::{Grant, SessionId};

use super::clients::{ClientConnection, Host};
use super::processes::Running;

/// Leases that are watched; a further one expires by its TTL.
const MAX_WATCHED: usize = 10_000;
/// Leases that other connections than their holders' have extended; beyond this limit those that are over are
/// forgotten, or all.
const MAX_EXTENDED: usize = 10_000;

/// How it is known whether a holder is there.
#[derive(Clone, Debug)]
pub(crate) enum KnownAs {
    /// By its process on this machine.
    Process(Running),
    /// By the connections of its address, which all belong to it.
    Address {
        host: Host,
        /// Its client closed the last of them: a client that the proxy or Redis has cut off may come back.
        took_leave: bool,
    },
}

/// A lease whose connection has ended.
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    pub(crate) session: SessionId,
    pub(crate) grant: Grant,
    /// How much longer the lease lasts once its holder is gone, if that shortens it.
    pub(crate) within: Option<Duration>,
    pub(crate) holder: KnownAs,
    /// When the holder was last known to be there.
    pub(crate) seen: Instant,
}

/// By how much more than expected a lease may last before it must have been renewed: times are reported after the
/// fact.
const SLACK: Duration = Duration::from_millis(100);

impl Lost {
    /// The question for Redis, with the lease as the proxy has seen it.
    pub(crate) fn shorten(&self, seen: Option<Lease>) -> Shorten {
        let (now, watched) = (Instant::now(), &self.lease);
        let ends = seen.filter(|lease| lease.grant == watched.grant);
        let ends = ends.and_then(|lease| lease.ends);
        Shorten {
            session: watched.session,
            grant: watched.grant,
            within: self.within,
            gone: now.saturating_duration_since(watched.seen),
            longest: ends.map_or(Duration::ZERO, |ends| ends.saturating_duration_since(now) + SLACK),
        }
    }
}

/// A lease whose holder is gone, which is to be shortened.
#[derive(Clone, Debug)]
pub(crate) struct Lost {
    pub(crate) key: DbKey,
    pub(crate) lease: Watched,
    /// How much longer it lasts.
    pub(crate) within: Duration,
}

#[derive(Default)]
struct Register {
    watched: DbMap<Watched>,
    extended: DbMap<(Grant, Arc<ClientConnection>)>,
    /// A task is checking them.
    is_looked_after: bool,
}

/// The register.
#[derive(Default)]
pub(crate) struct LostHolders {
    register: Mutex<Register>,
    /// How many are watched: most proxies watch none, and need not look.
    count: AtomicUsize,
}

impl LostHolders {
    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Watches a lease from now on, if there is room. Returns whether a task has to be started to check them.
    pub(crate) fn watch(&self, key: DbKey, lease: Watched) -> bool {
        let mut register = self.lock();
        if register.watched.len() >= MAX_WATCHED && !register.watched.contains_key(&key) {
            return false;
        }
        register.watched.insert(key, lease);
        self.count.store(register.watched.len(), Ordering::Release);
        !std::mem::replace(&mut register.is_looked_after, true)
    }

    /// All watched leases. If there are none, the task ends.
    pub(crate) fn all(&self) -> Vec<(DbKey, Watched)> {
        let mut register = self.lock();
        register.is_looked_after = !register.watched.is_empty();
        let watched = register.watched.iter();
        watched.map(|(key, lease)| (key.clone(), lease.clone())).collect()
    }

    /// Stops watching, if it is still that lease.
    pub(crate) fn remove(&self, key: &DbKey, grant: Grant) {
        let mut register = self.lock();
        if register.watched.get(key).is_some_and(|lease| lease.grant == grant) {
            register.watched.remove(key);
        }
        if register.extended.get(key).is_some_and(|(of, _)| *of == grant) {
            register.extended.remove(key);
        }
        self.count.store(register.watched.len(), Ordering::Release);
    }

    /// The holder of this lease is there.
    pub(crate) fn seen(&self, key: &DbKey, grant: Grant, now: Instant) {
        let mut register = self.lock();
        if let Some(lease) = register.watched.get_mut(key).filter(|lease| lease.grant == grant) {
            lease.seen = now;
        }
    }

    /// A connection from this host has ended.
    pub(crate) fn ended(&self, from: &Host, by_client: bool, now: Instant) {
        if self.is_empty() {
            return;
        }
        for lease in self.lock().watched.values_mut() {
            if let KnownAs::Address { host, took_leave } = &mut lease.holder
                && host == from
            {
                (lease.seen, *took_leave) = (now, by_client);
            }
        }
    }

    /// Another connection than the one that took this lease has extended it. `is_held` says which leases are still
    /// held.
    pub(crate) fn extended(
        &self,
        key: &DbKey,
        (grant, by): (Grant, &Arc<ClientConnection>),
        is_held: impl Fn(&DbKey, Grant) -> bool,
    ) {
        let extended = &mut self.lock().extended;
        if extended.len() >= MAX_EXTENDED && !extended.contains_key(key) {
            extended.retain(|key, (grant, _)| is_held(key, *grant));
        }
        if extended.len() >= MAX_EXTENDED {
            extended.clear();
        }
        extended.insert(key.clone(), (grant, by.clone()));
    }

    /// The connection that last extended this lease, if it is another than the one that took it.
    pub(crate) fn extended_by(&self, key: &DbKey, grant: Grant) -> Option<Arc<ClientConnection>> {
        let register = self.lock();
        let (of, by) = register.extended.get(key)?;
        (*of == grant).then(|| by.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Register> {
        self.register.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_ends_says_that_its_own_host_was_there() {
        let (lost, before) = (LostHolders::default(), Instant::now());
        let hosts: [Host; 2] = [1, 2].map(|last| ([10, 0, 0, last].into(), None));
        for host in &hosts {
            let lease = Watched {
                session: SessionId([1; 16]),
                grant: Grant([1; 16]),
                within: None,
                holder: KnownAs::Address { host: host.clone(), took_leave: false },
                seen: before,
            };
            lost.watch(DbKey::new(0, host.0.to_string().as_bytes()), lease);
        }
        let now = before + Duration::from_secs(1);
        lost.ended(&hosts[1], true, now);
        for (key, lease) in lost.all() {
            let is_its_own = key.bytes() == b"10.0.0.2";
            assert_eq!(lease.seen == now, is_its_own, "{key:?}");
            assert!(
                matches!(lease.holder, KnownAs::Address { took_leave, .. } if took_leave == is_its_own),
                "{lease:?}"
            );
        }
    }
}
