//! Jobs of a shell: `redis-cli SETNX`, minutes of work, `redis-cli DEL`, each a process of its own. The lock does not
//! belong to that process but to the job: the nearest of its ancestor processes that is still alive. While that one
//! lives, the lease is kept alive, and what the job's other clients send counts as its own. Redis decides by the
//! identity in the record; this module only says which process a client speaks for. Whether a job on another machine
//! lives cannot be seen: its lease is kept alive for as long as such jobs of the namespace were seen to take.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lockwarden_lock::db_key::{DbKey, DbMap};
use lockwarden_lock::token::{Grant, Identity, Process};

use super::clients::{ClientConnection, Holder};
use super::processes::{Lineage, Processes, Running};
use super::renewals::KeptLease;

/// A client that takes a lock and closes its connection within this time was started only for that.
const SHORT_LIVED: Duration = Duration::from_secs(3);
/// How long the first acquire of a connection waits for its process to be found: that takes some milliseconds, unless
/// the machine is loaded. A job whose first process was not found cannot be told from others.
const LOOK_UP_WITHIN: Duration = Duration::from_secs(1);
/// After this many look-ups in a row that found nothing, only one in `LOOK_ONE_IN` is made.
const MAX_IN_VAIN: u32 = 8;
const LOOK_ONE_IN: u32 = 64;
/// Beyond this limit the lock of one more job ends with its client.
const MAX_JOBS: usize = 4096;

/// A job that took a lock, as far as it is known.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    grant: Grant,
    /// The client that was granted the lock, as its record names it.
    identity: Identity,
    /// The process that asked for it, and its ancestors; empty for a client on another machine.
    lineage: Lineage,
    namespace: Arc<str>,
    granted: Instant,
    /// When a job on another machine counts as over.
    until: Option<Instant>,
    /// Its client has left.
    pub(crate) holder: Option<Holder>,
    /// Which process the job is, once that is decided.
    settled: Option<Running>,
}

impl Job {
    /// The process that the job is now; `None` once it is over.
    pub(crate) fn leader(&self) -> Option<&Running> {
        match &self.settled {
            Some(leader) => Some(leader).filter(|leader| leader.is_alive()),
            None => self.lineage.processes.iter().find(|running| running.is_alive()),
        }
    }

    fn is_elsewhere(&self) -> bool {
        self.lineage.processes.is_empty()
    }

    /// Whether the process that took the lock lives: a process that goes on without its connection is no part of a
    /// job.
    pub(crate) fn taker_lives(&self) -> bool {
        self.lineage.processes.first().is_some_and(Running::is_alive)
    }

    /// Whether the job goes on; `is_decided`: it should be known by now which process it is.
    pub(crate) fn lives(&self, is_decided: bool) -> bool {
        match self.until {
            Some(until) => Instant::now() < until,
            None if is_decided && self.settled.is_none() && self.taker_lives() => false,
            None => self.leader().is_some(),
        }
    }

    /// Whether the client that took the lock was started only for that.
    fn is_short_lived(&self, now: Instant) -> bool {
        now < self.granted + SHORT_LIVED
    }
}

/// The locks of short-lived clients.
#[derive(Default)]
pub(crate) struct Jobs {
    jobs: Mutex<DbMap<Job>>,
    /// By namespace, the longest time for which jobs on other machines held a lock.
    longest: Mutex<HashMap<Arc<str>, Duration>>,
    /// How many there are: most proxies have none, and need not look.
    count: AtomicUsize,
    /// How many processes in a row could not be found.
    in_vain: AtomicU32,
}

impl Jobs {
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Whether a job took this lock by another lease than this one of the asking connection: with its own lease, a
    /// connection speaks for itself.
    pub(crate) fn has(&self, key: &DbKey, own: Option<Grant>) -> bool {
        self.lock().get(key).is_some_and(|job| own != Some(job.grant))
    }

    /// Finds the process of a client that asks for a lock with the first command of its connection, and may end with
    /// the reply. If processes cannot be seen, this does not wait.
    pub(crate) async fn look_up(&self, processes: &Processes, peer: &Arc<ClientConnection>) {
        let in_vain = self.in_vain.load(Ordering::Relaxed);
        if !peer.may_have_lineage() {
            return;
        }
        if in_vain < MAX_IN_VAIN || in_vain.is_multiple_of(LOOK_ONE_IN) {
            // A process that is not found in time stays unknown, as before.
            let _ = tokio::time::timeout(LOOK_UP_WITHIN, processes.lineage_of(peer)).await;
        }
        match peer.process() {
            Process::Known(_) => self.in_vain.store(0, Ordering::Relaxed),
            Process::None => self.in_vain.store(in_vain.wrapping_add(1), Ordering::Relaxed),
            // A result that came too late says nothing of the next one.
            Process::Pending => {}
        }
    }

    /// A client was granted a lock by the first command of its connection: this process, or one on another machine.
    /// Returns whether that is remembered.
    pub(crate) fn took(
        &self,
        key: &DbKey,
        (grant, identity): (Grant, Identity),
        of: Option<&Lineage>,
        namespace: &Arc<str>,
    ) -> bool {
        let now = Instant::now();
        let job = Job {
            grant,
            identity,
            lineage: of.cloned().unwrap_or_default(),
            namespace: namespace.clone(),
            granted: now,
            until: None,
            holder: None,
            settled: None,
        };
        let mut jobs = self.lock();
        if jobs.len() >= MAX_JOBS {
            // Jobs that never released their lock teach nothing any more.
            jobs.retain(|_, job| job.holder.is_some() || job.is_short_lived(now));
        }
        let has_room = jobs.len() < MAX_JOBS || jobs.contains_key(key);
        if has_room {
            jobs.insert(key.clone(), job);
            self.counted(&jobs);
        }
        has_room
    }

    /// The process that holds the lock for a client of this lineage, if both belong to one job. `Process::None` if
    /// they may belong to one and it cannot be told.
    pub(crate) fn stands_for(&self, key: &DbKey, client: Identity, lineage: &Lineage) -> Option<Process> {
        let job = self.lock().get(key)?.clone();
        let has_left = job.holder.is_some() || job.is_short_lived(Instant::now());
        let same_client = job.identity.with_process(Process::None) == client;
        // A client that is still connected belongs to no other job.
        if !same_client || !has_left || job.taker_lives() || job.is_elsewhere() {
            return None;
        }
        match job.leader() {
            Some(leader) if lineage.processes.contains(leader) => Some(job.identity.process()),
            Some(_) if !lineage.is_whole => Some(Process::None),
            None if !job.lineage.is_whole => Some(Process::None),
            Some(_) | None => None,
        }
    }

    /// A lock was released, late or in time. This learns how long a job on another machine held it.
    pub(crate) fn released(&self, key: &DbKey, client: Identity) {
        if self.is_empty() {
            return;
        }
        let mut jobs = self.lock();
        let is_its = |job: &&Job| job.is_elsewhere() && job.identity == client;
        if jobs.get(key).filter(is_its).is_none() {
            return;
        }
        let job = jobs.remove(key);
        self.counted(&jobs);
        drop(jobs);
        if let Some(job) = job {
            let mut longest = self.longest();
            let longest = longest.entry(job.namespace).or_default();
            *longest = job.granted.elapsed().max(*longest);
        }
    }

    /// The client of this lock's lease is gone. Returns whether its job still holds the lease.
    pub(crate) fn left(&self, key: &DbKey, grant: Grant, in_order: bool) -> bool {
        let mut jobs = self.lock();
        let job = jobs.get_mut(key).filter(|job| job.grant == grant);
        let Some(job) = job.filter(|job| in_order && job.is_short_lived(Instant::now())) else {
            return false;
        };
        if job.is_elsewhere() {
            let longest = self.longest().get(&job.namespace).copied();
            // The next job may take longer.
            job.until = longest.map(|longest| job.granted + longest + longest / 2);
        }
        if job.until.is_some() || !job.is_elsewhere() {
            job.holder = Some(Holder::new());
        }
        true
    }

    /// The holder for which this lease is kept alive now that its client has left.
    pub(crate) fn holder(&self, lease: &KeptLease) -> Option<Holder> {
        if self.is_empty() {
            return None;
        }
        self.of(lease.lock(), lease.renewal.grant)?.holder
    }

    /// The job that took this lease.
    pub(crate) fn of(&self, key: &DbKey, grant: Grant) -> Option<Job> {
        let jobs = self.lock();
        jobs.get(key).filter(|job| job.grant == grant).cloned()
    }

    /// It was decided which process the job is.
    pub(crate) fn settle(&self, key: &DbKey, grant: Grant, leader: &Running) {
        let mut jobs = self.lock();
        if let Some(job) = jobs.get_mut(key).filter(|job| job.grant == grant) {
            job.settled.get_or_insert_with(|| leader.clone());
        }
    }

    /// The lease is not kept alive any more.
    pub(crate) fn over(&self, key: &DbKey, job: &Job) {
        let mut jobs = self.lock();
        if let Some(job) = jobs.get_mut(key).filter(|now| now.grant == job.grant && now.is_elsewhere()) {
            // When the lock is released, this may learn that the job took longer.
            (job.holder, job.until) = (None, None);
            return;
        }
        drop(jobs);
        self.remove(key, job.grant);
    }

    fn longest(&self) -> MutexGuard<'_, HashMap<Arc<str>, Duration>> {
        self.longest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lease belongs to no job any more.
    pub(crate) fn remove(&self, key: &DbKey, grant: Grant) {
        let mut jobs = self.lock();
        if jobs.get(key).is_some_and(|job| job.grant == grant) {
            jobs.remove(key);
            self.counted(&jobs);
        }
    }

    fn counted(&self, jobs: &DbMap<Job>) {
        self.count.store(jobs.len(), Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, DbMap<Job>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn of_a_client_whose_ancestors_could_not_be_read_nobody_says_that_it_is_another_job() {
        let ours = Running::of(std::process::id()).expect("this one runs");
        let mut child = Command::new("true").spawn().expect("it can be started");
        let taker = Running::of(child.id()).expect("nobody has taken note of its end");
        child.wait().expect("it ends");
        let lineage = |processes: &[&Running], is_whole| Lineage {
            processes: processes.iter().copied().cloned().collect(),
            is_whole,
        };
        let known = Process::Known([7; 8]);
        let client = Identity::of(&[b"nobody"]);
        let key = DbKey::new(0, b"lock:job");
        let whose = (Grant([1; 16]), client.with_process(known));
        let jobs = Jobs::default();
        for (of_job, of_client, expected) in [
            (lineage(&[&taker, &ours], true), lineage(&[&ours], true), Some(known)),
            (lineage(&[&taker, &ours], true), lineage(&[&taker], true), None),
            // Its process was gone before its ancestors could be read.
            (lineage(&[&taker, &ours], true), lineage(&[&taker], false), Some(Process::None)),
            // The job's were not read in time.
            (lineage(&[&taker], false), lineage(&[&ours], true), Some(Process::None)),
            // The job is over.
            (lineage(&[&taker], true), lineage(&[&ours], true), None),
        ] {
            assert!(jobs.took(&key, whose, Some(&of_job), &"locks".into()));
            let found = jobs.stands_for(&key, client, &of_client);
            assert_eq!(found, expected, "{of_job:?} {of_client:?}");
            assert_eq!(jobs.stands_for(&key, Identity::of(&[b"other"]), &of_client), None);
        }
    }
}
