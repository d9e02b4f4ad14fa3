//! The metrics of one namespace, with a handle for each, so that counting on the data path is one
//! addition. A namespace's series live in a registry of its own and leave the page with it; a
//! namespace that stays over a reload keeps its numbers. `decisions.rs` has the largest metric.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use lockwarden_lock::decision::Operation;
use lockwarden_lock::reason::Reason;
use prometheus::{GaugeVec, Histogram, IntCounter, IntCounterVec, IntGauge, Registry, Result};

use super::catalogue as names;
use super::decisions::{Decisions, FOLDED};
use super::register::{ByLabel, Registrar};
use crate::telemetry::vocabulary::{
    AcquireOutcome, DecisionKind, DurabilityResult, HeldTtl, HoldEnd, KeepAliveOutcome, ModeLabel, Observation,
    ReleaseOutcome, UndeliveredOutcome, UnjudgedWhy,
};

/// A hold shorter than the first bucket is a few round trips; past the last, look at single locks. Few
/// buckets, because each costs 62 series in the worst case: the view has percentiles.
const HOLD_SECONDS: [f64; 10] = [0.01, 0.05, 0.25, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0];

/// Whoever waits less than the first bucket was refused once; past the last, people wait, too.
const WAIT_SECONDS: [f64; 5] = [0.01, 0.1, 1.0, 10.0, 60.0];

/// Below the first bucket the next slow day is an overlap; above the last there is room.
const REMAINING_SHARES: [f64; 4] = [0.05, 0.1, 0.25, 0.5];

/// What is counted about one namespace.
pub(crate) struct NamespaceMetrics {
    pub(super) registry: Registry,
    decisions: Decisions,
    /// Counts here stand for several namespaces; each one says so.
    folded: Option<IntCounter>,
    /// Attempts to acquire.
    pub(crate) acquires: ByLabel<AcquireOutcome, IntCounter>,
    /// Attempts to release.
    pub(crate) releases: ByLabel<ReleaseOutcome, IntCounter>,
    /// Leases that ran out under their holder.
    pub(crate) expired_while_held: IntCounter,
    pub(crate) holders_lost: IntCounter,
    /// Acts of a former holder while another one held.
    pub(crate) overlaps: IntCounter,
    /// Leases that a failover has lost.
    pub(crate) leases_lost: IntCounter,
    /// Leases whose TTL was cut.
    pub(crate) ttl_clamped: IntCounter,
    pub(crate) late_ttls: IntCounter,
    /// Renewals.
    pub(crate) keep_alive: ByLabel<KeepAliveOutcome, IntCounter>,
    /// Grants that nobody heard of.
    pub(crate) undelivered: ByLabel<UndeliveredOutcome, IntCounter>,
    /// What replicas said to grants and extensions: few namespaces ask them, and the others need no series.
    durability: (IntCounterVec, OnceLock<ByLabel<DurabilityResult, IntCounter>>),
    /// Operations on leases without a record.
    pub(crate) ungoverned: IntCounter,
    /// Locks for which a script was refused whose effects on other keys stand.
    pub(crate) script_effects_left: IntCounter,
    /// Lock commands forwarded unjudged.
    pub(crate) unjudged: ByLabel<UnjudgedWhy, IntCounter>,
    /// Findings.
    pub(crate) observations: ByLabel<Observation, IntCounter>,
    /// Seconds from grant to end.
    pub(crate) hold_duration: ByLabel<HoldEnd, Histogram>,
    /// Seconds from the first try that was refused to the acquire.
    pub(crate) wait_duration: Histogram,
    /// TTL left at the release, as a share of the TTL given.
    pub(crate) remaining_ttl: Histogram,
    /// Leases that were changed or ended around all proxies.
    pub(crate) bypass: IntCounter,
    enforced: IntGauge,
    harms: IntGauge,
    waiters: IntGauge,
    held: ByLabel<HeldTtl, IntGauge>,
    unknown: IntGauge,
    quarantine_until: IntGauge,
    ungoverned_locks: ByLabel<HeldTtl, IntGauge>,
    oldest: GaugeVec,
}

/// What the lease table knows about one namespace when the page is asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct NamespaceMirror {
    /// The namespace.
    pub(crate) name: Arc<str>,
    /// Locks held with a TTL.
    pub(crate) held_finite: u64,
    /// Locks held without one.
    pub(crate) held_none: u64,
    /// Locks of which nobody knows since a failover.
    pub(crate) unknown: u64,
    /// When the oldest of them was acquired, Unix seconds.
    pub(crate) oldest_unix_seconds: Option<f64>,
    /// Connections that poll a lock that is held.
    pub(crate) waiting: u64,
    /// Whether anybody is refused anything here.
    pub(crate) enforced: bool,
    /// Whether that harms.
    pub(crate) harms: bool,
    /// Until when no free lock is granted, Unix seconds; 0 where they are.
    pub(crate) quarantine_until: u64,
}

/// What a walk found in one namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SweepCounts {
    /// Locks with a record.
    pub(crate) governed: u64,
    /// Locks without a record that end by themselves.
    pub(crate) ungoverned_finite: u64,
    /// Locks without a record and without a TTL.
    pub(crate) ungoverned_endless: u64,
    /// Locks that were given a TTL.
    pub(crate) adopted: u64,
}

impl NamespaceMetrics {
    fn new(name: &str, overflow: IntCounter, folded: Option<IntCounter>) -> Result<Self> {
        let registry = Registry::new();
        let make = Registrar::with_label(&registry, "namespace", name);
        Ok(NamespaceMetrics {
            decisions: Decisions::new(make.counter_vec(&names::DECISIONS)?, overflow),
            folded,
            acquires: make.counters(&names::ACQUIRES)?,
            releases: make.counters(&names::RELEASES)?,
            expired_while_held: make.counter(&names::EXPIRED_WHILE_HELD)?,
            holders_lost: make.counter(&names::HOLDERS_LOST)?,
            overlaps: make.counter(&names::OVERLAPS)?,
            leases_lost: make.counter(&names::LEASES_LOST)?,
            ttl_clamped: make.counter(&names::TTL_CLAMPED)?,
            late_ttls: make.counter(&names::LATE_TTLS)?,
            keep_alive: make.counters(&names::KEEP_ALIVE)?,
            undelivered: make.counters(&names::UNDELIVERED)?,
            durability: (make.counter_vec(&names::DURABILITY)?, OnceLock::new()),
            ungoverned: make.counter(&names::UNGOVERNED)?,
            unjudged: make.counters(&names::UNJUDGED)?,
            observations: make.counters(&names::OBSERVATIONS)?,
            hold_duration: make.histograms(&names::HOLD_DURATION, &HOLD_SECONDS)?,
            wait_duration: make.histogram(&names::WAIT_DURATION, &WAIT_SECONDS)?,
            remaining_ttl: make.histogram(&names::REMAINING_TTL, &REMAINING_SHARES)?,
            bypass: make.counter(&names::BYPASS)?,
            script_effects_left: make.counter(&names::SCRIPT_EFFECTS_LEFT)?,
            enforced: make.gauge(&names::NAMESPACE_ENFORCED)?,
            harms: make.gauge(&names::ENFORCE_HARMS)?,
            waiters: make.gauge(&names::WAITERS)?,
            held: make.gauges(&names::LOCKS_HELD)?,
            unknown: make.gauge(&names::LOCKS_UNKNOWN)?,
            quarantine_until: make.gauge(&names::QUARANTINE_UNTIL)?,
            ungoverned_locks: make.gauges(&names::UNGOVERNED_LOCKS)?,
            oldest: make.float_gauge_vec(&names::OLDEST_LOCK)?,
            registry,
        })
    }

    /// Replicas are asked here: what they say is there at 0.
    pub(crate) fn expect_replicas(&self) {
        self.said_by_replicas();
    }

    /// Counts what replicas said.
    pub(crate) fn durability(&self, result: DurabilityResult) {
        self.said_by_replicas().at(result).inc();
    }

    fn said_by_replicas(&self) -> &ByLabel<DurabilityResult, IntCounter> {
        let (vec, counters) = &self.durability;
        counters.get_or_init(|| ByLabel::new(|word| vec.with_label_values(&[word])))
    }

    /// Counts one decision. `reason` and `policy` say who refused and why; they count only for
    /// `Deny` and `WouldDeny`, which find their series in a short list instead of by a handle.
    pub(crate) fn decision(
        &self,
        operation: Operation,
        decision: DecisionKind,
        reason: Option<Reason>,
        policy: &str,
        mode: ModeLabel,
    ) {
        if let Some(folded) = &self.folded {
            folded.inc();
        }
        self.decisions.count(operation.into(), decision, reason, policy, mode);
    }

    /// Makes the series of a mode that is in force here beside the namespace's own.
    pub(crate) fn expect_mode(&self, mode: ModeLabel) {
        self.decisions.expect_mode(mode);
    }

    /// What a walk over the server's keys has found.
    pub(crate) fn swept(&self, found: &SweepCounts) {
        let locks = &self.ungoverned_locks;
        locks.at(HeldTtl::Finite).set(gauge(found.ungoverned_finite));
        locks.at(HeldTtl::None).set(gauge(found.ungoverned_endless));
    }

    /// Locks without a record that the last walk over the server's keys has found.
    pub(crate) fn ungoverned_found(&self) -> u64 {
        let locks = [HeldTtl::Finite, HeldTtl::None].map(|ttl| self.ungoverned_locks.at(ttl).get());
        locks.into_iter().filter_map(|count| u64::try_from(count).ok()).sum()
    }

    /// Those of them without a TTL.
    pub(crate) fn endless_found(&self) -> u64 {
        let endless = self.ungoverned_locks.at(HeldTtl::None).get();
        u64::try_from(endless).unwrap_or(0)
    }

    fn show(&self, mirror: &NamespaceMirror) {
        self.held.at(HeldTtl::Finite).set(gauge(mirror.held_finite));
        self.held.at(HeldTtl::None).set(gauge(mirror.held_none));
        self.unknown.set(gauge(mirror.unknown));
        self.quarantine_until.set(gauge(mirror.quarantine_until));
        self.enforced.set(i64::from(mirror.enforced));
        self.harms.set(i64::from(mirror.harms));
        self.waiters.set(gauge(mirror.waiting));
        match mirror.oldest_unix_seconds {
            Some(seconds) => self.oldest.with_label_values::<&str>(&[]).set(seconds),
            // Absent, not 0: `time() - 0` would be a lock held since 1970.
            None => self.oldest.reset(),
        }
    }
}

/// The namespaces of one configuration, by their place in it.
pub(super) struct Namespaces {
    by_index: Vec<Arc<NamespaceMetrics>>,
    by_name: HashMap<Box<str>, Arc<NamespaceMetrics>>,
    rest: Arc<NamespaceMetrics>,
    shows_rest: bool,
}

impl Namespaces {
    /// The state before any configuration.
    pub(super) fn none(decisions_full: &IntCounter, namespaces_full: &IntCounter) -> Result<Self> {
        let folded = Some(namespaces_full.clone());
        Ok(Namespaces {
            by_index: Vec::new(),
            by_name: HashMap::new(),
            rest: Arc::new(NamespaceMetrics::new(FOLDED, decisions_full.clone(), folded)?),
            shows_rest: false,
        })
    }

    /// The next configuration; a name that stays keeps its numbers.
    pub(super) fn with(
        &self,
        namespaces: &[(&str, ModeLabel)],
        max: usize,
        decisions_full: &IntCounter,
    ) -> Result<Namespaces> {
        let mut next = Namespaces {
            by_index: Vec::with_capacity(namespaces.len()),
            by_name: HashMap::new(),
            rest: self.rest.clone(),
            shows_rest: false,
        };
        for (name, mode) in namespaces {
            let metrics = match next.by_name.get(*name).or_else(|| self.by_name.get(*name)) {
                Some(known) if next.has_room(name, max) => known.clone(),
                None if next.has_room(name, max) => {
                    Arc::new(NamespaceMetrics::new(name, decisions_full.clone(), None)?)
                }
                Some(_) | None => {
                    // Beyond the limit all share one set of series: no reload can make the page grow without
                    // bound.
                    next.shows_rest = true;
                    next.rest.decisions.expect_mode(*mode);
                    next.by_index.push(next.rest.clone());
                    continue;
                }
            };
            metrics.decisions.expect_mode(*mode);
            next.by_name.insert((*name).into(), metrics.clone());
            next.by_index.push(metrics);
        }
        Ok(next)
    }

    fn has_room(&self, name: &str, max: usize) -> bool {
        self.by_name.contains_key(name) || self.by_name.len() < max
    }

    pub(super) fn get(&self, index: usize) -> &Arc<NamespaceMetrics> {
        self.by_index.get(index).unwrap_or(&self.rest)
    }

    /// Sets the gauges of locks held; what the mirror does not name holds nothing.
    pub(super) fn show(&self, mirror: &[NamespaceMirror]) {
        let nothing = NamespaceMirror::default();
        let known: HashMap<&str, _> = mirror.iter().map(|known| (&*known.name, known)).collect();
        for (name, metrics) in &self.by_name {
            metrics.show(known.get(&**name).copied().unwrap_or(&nothing));
        }
        let mut rest = nothing;
        let unnamed = |known: &&NamespaceMirror| !self.by_name.contains_key(&*known.name);
        mirror.iter().filter(unnamed).for_each(|known| rest.add(known));
        self.rest.show(&rest);
    }

    pub(super) fn registries(&self) -> impl Iterator<Item = &Registry> {
        let rest = self.shows_rest.then_some(&self.rest);
        self.by_name.values().chain(rest).map(|metrics| &metrics.registry)
    }
}

impl NamespaceMirror {
    fn add(&mut self, other: &NamespaceMirror) {
        self.held_finite += other.held_finite;
        self.held_none += other.held_none;
        self.waiting += other.waiting;
        self.enforced |= other.enforced;
        self.harms |= other.harms;
        self.unknown += other.unknown;
        self.quarantine_until = self.quarantine_until.max(other.quarantine_until);
        self.oldest_unix_seconds = match (self.oldest_unix_seconds, other.oldest_unix_seconds) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
}

fn gauge(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
