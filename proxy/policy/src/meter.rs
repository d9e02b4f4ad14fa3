//! Counts what policies do. A meter belongs to a policy's name and lives as long as the host, so a reload does not
//! reset a counter. It is told what happened and decides nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use lockwarden_lock::decision::FaultKind;

/// Is called about policies while they run, on the threads on which they run; must not block.
pub trait Observer: Send + Sync {
    /// One evaluation took this long. Sampled: one in 64 evaluations of a policy
    /// by a thread.
    fn evaluated(&self, policy: &str, nanos: u64);
    /// A policy failed.
    fn failed(&self, policy: &str, kind: FaultKind);
}

/// What a policy did since the host was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PolicyCounters {
    /// Decisions asked for, failed ones included.
    pub calls: u64,
    /// Fuel burnt in decisions.
    pub fuel: u64,
    /// How often it has asked for a client's identity.
    pub client_questions: u64,
    /// Linear memory of all live instances, in bytes.
    pub memory_bytes: usize,
    /// The number of threads, chains and operations for which it is not asked now.
    pub open_breakers: usize,
    failures: [u64; FaultKind::ALL.len()],
}

impl PolicyCounters {
    /// Decisions that failed in this way.
    #[must_use]
    pub fn failures(&self, kind: FaultKind) -> u64 {
        self.failures[place(kind)]
    }
}

/// The meters of a host, by policy.
#[derive(Default)]
pub(crate) struct Meters {
    by_policy: Mutex<BTreeMap<Arc<str>, Arc<Meter>>>,
    observer: Option<Arc<dyn Observer>>,
}

impl Meters {
    pub(crate) fn new(observer: Option<Arc<dyn Observer>>) -> Meters {
        Meters { by_policy: Mutex::default(), observer }
    }

    pub(crate) fn of(&self, policy: &str) -> Arc<Meter> {
        let mut meters = self.by_policy.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(meter) = meters.get(policy) {
            return meter.clone();
        }
        let name: Arc<str> = policy.into();
        let meter = Arc::new(Meter::new(name.clone(), self.observer.clone()));
        meters.insert(name, meter.clone());
        meter
    }

    pub(crate) fn read(&self) -> Vec<(Arc<str>, PolicyCounters)> {
        let meters = self.by_policy.lock().unwrap_or_else(PoisonError::into_inner);
        meters.iter().map(|(name, meter)| (name.clone(), meter.read())).collect()
    }
}

/// The counters of one policy.
pub(crate) struct Meter {
    policy: Arc<str>,
    observer: Option<Arc<dyn Observer>>,
    tallies: Mutex<Tallies>,
    memory_bytes: AtomicUsize,
    open_breakers: AtomicUsize,
    failures: [AtomicU64; FaultKind::ALL.len()],
    made: Instant,
    /// When the next failure of each kind may be logged, in milliseconds since `made`.
    next_lines: [AtomicU64; FaultKind::ALL.len()],
}

/// The counters of each thread that asks a policy.
#[derive(Default)]
struct Tallies {
    /// As many as there are threads, chains with this policy, and generations still in use.
    live: Vec<Arc<Counters>>,
    ended: Counters,
}

/// Counters that one thread writes: a count is then a plain addition, and threads that ask the same
/// policy do not wait for each other's cache lines.
#[derive(Default)]
#[repr(align(128))]
struct Counters {
    calls: AtomicU64,
    fuel: AtomicU64,
    client_questions: AtomicU64,
}

impl Counters {
    /// Adds; returns the value before.
    fn add(counter: &AtomicU64, more: u64) -> u64 {
        let before = counter.load(Ordering::Relaxed);
        counter.store(before.wrapping_add(more), Ordering::Relaxed);
        before
    }
}

/// One thread's counters of one policy, merged when it is dropped.
pub(crate) struct Tally {
    counters: Arc<Counters>,
    meter: Arc<Meter>,
}

impl Tally {
    pub(crate) fn new(meter: &Arc<Meter>) -> Tally {
        let counters = Arc::<Counters>::default();
        meter.tallies().live.push(counters.clone());
        Tally { counters, meter: meter.clone() }
    }

    /// Counts a call; returns whether it should be timed.
    pub(crate) fn called(&self) -> bool {
        let before = Counters::add(&self.counters.calls, 1);
        self.meter.observer.is_some() && before.is_multiple_of(SAMPLED)
    }

    pub(crate) fn burnt(&self, fuel: u64) {
        Counters::add(&self.counters.fuel, fuel);
    }

    pub(crate) fn asked_who(&self, times: u64) {
        Counters::add(&self.counters.client_questions, times);
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        let mut tallies = self.meter.tallies();
        tallies.live.retain(|live| !Arc::ptr_eq(live, &self.counters));
        let (ended, ours) = (&tallies.ended, &*self.counters);
        for (ended, ours) in
            [(&ended.calls, &ours.calls), (&ended.fuel, &ours.fuel), (&ended.client_questions, &ours.client_questions)]
        {
            Counters::add(ended, ours.load(Ordering::Relaxed));
        }
    }
}

/// One in this many evaluations is timed: reading the clock twice costs a fifth of a decision.
const SAMPLED: u64 = 64;

/// The time between lines about failures of one kind.
const LINES_APART_MS: u64 = 60_000;

impl Meter {
    fn new(policy: Arc<str>, observer: Option<Arc<dyn Observer>>) -> Meter {
        Meter {
            policy,
            observer,
            tallies: Mutex::default(),
            memory_bytes: AtomicUsize::new(0),
            open_breakers: AtomicUsize::new(0),
            failures: Default::default(),
            made: Instant::now(),
            next_lines: Default::default(),
        }
    }

    pub(crate) fn policy(&self) -> &Arc<str> {
        &self.policy
    }

    fn tallies(&self) -> MutexGuard<'_, Tallies> {
        self.tallies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn evaluated(&self, nanos: u64) {
        if let Some(observer) = &self.observer {
            observer.evaluated(&self.policy, nanos);
        }
    }

    /// Counts a failure. One failure of each kind per minute gets a line, with the number of all so far, so that a
    /// policy that always fails cannot fill the log.
    pub(crate) fn failed(&self, kind: FaultKind, detail: &str) {
        let count = self.failures[place(kind)].fetch_add(1, Ordering::Relaxed) + 1;
        if self.gets_a_line(kind) {
            tracing::error!(policy = &*self.policy, kind = kind.word(), count, detail, "policy did not answer");
        }
        if let Some(observer) = &self.observer {
            observer.failed(&self.policy, kind);
        }
    }

    fn gets_a_line(&self, kind: FaultKind) -> bool {
        let now = u64::try_from(self.made.elapsed().as_millis()).unwrap_or(u64::MAX);
        let next_line = &self.next_lines[place(kind)];
        let due = next_line.load(Ordering::Relaxed);
        let next = now.saturating_add(LINES_APART_MS);
        now >= due && next_line.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Updates the number of a thread's open breakers.
    pub(crate) fn breakers_changed(&self, before: usize, now: usize) {
        self.open_breakers.fetch_add(now, Ordering::Relaxed);
        self.open_breakers.fetch_sub(before, Ordering::Relaxed);
    }

    pub(crate) fn memory_taken(&self, bytes: usize) {
        self.memory_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn memory_returned(&self, bytes: usize) {
        self.memory_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> PolicyCounters {
        let tallies = self.tallies();
        let sum = |counter: fn(&Counters) -> &AtomicU64| {
            let all = tallies.live.iter().map(|live| &**live);
            all.chain([&tallies.ended])
                .map(|counters| counter(counters).load(Ordering::Relaxed))
                .fold(0, u64::wrapping_add)
        };
        PolicyCounters {
            calls: sum(|counters| &counters.calls),
            fuel: sum(|counters| &counters.fuel),
            client_questions: sum(|counters| &counters.client_questions),
            memory_bytes: self.memory_bytes.load(Ordering::Relaxed),
            open_breakers: self.open_breakers.load(Ordering::Relaxed),
            failures: std::array::from_fn(|i| self.failures[i].load(Ordering::Relaxed)),
        }
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meter").field("policy", &self.policy).field("counters", &self.read()).finish_non_exhaustive()
    }
}

fn place(kind: FaultKind) -> usize {
    match kind {
        FaultKind::Trap => 0,
        FaultKind::Timeout => 1,
        FaultKind::Fuel => 2,
        FaultKind::Memory => 3,
        FaultKind::BadReply => 4,
        FaultKind::BreakerOpen => 5,
    }
}
