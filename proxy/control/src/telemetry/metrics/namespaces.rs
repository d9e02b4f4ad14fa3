//! The metrics of one namespace, with a handle for each, so that counting on the data path is one
//! addition. A namespace's series live in a registry of its own and leave the page with it; a
//! namespace that stays over a reload keeps its numbers. `decisions.rs` has the largest metric.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use lockwarden_lock::decision::Operation;
use lockwarden_lock::reason::Reason;
use prometheus::{GaugeVec, Histogram, IntCounter, IntCounterVec, IntGauge, Registry, Result};

use super::decisions::{Decisions, FOLDED};
use super::declaration::{ByLabel, Registrar, metrics};
use crate::telemetry::vocabulary::{
    AcquireOutcome, DecisionKind, DurabilityResult, HeldTtl, HoldEnd, KeepAliveOutcome, Label, ModeLabel, NextAnswer,
    Observation, OperationLabel, ReleaseOutcome, UndeliveredOutcome, UnjudgedWhy,
};

/// A hold shorter than the first bucket is a few round trips; past the last, look at single locks. Few
/// buckets, because each costs 62 series in the worst case: the view has percentiles.
const HOLD_SECONDS: [f64; 10] = [0.01, 0.05, 0.25, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0];

/// Whoever waits less than the first bucket was refused once; past the last, people wait, too.
const WAIT_SECONDS: [f64; 5] = [0.01, 0.1, 1.0, 10.0, 60.0];

/// Below the first bucket the next slow day is an overlap; above the last there is room.
const REMAINING_SHARES: [f64; 4] = [0.05, 0.1, 0.25, 0.5];

/// What a rule says that is counted by its name.
const RULE_DECISIONS: [DecisionKind; 2] = [DecisionKind::Deny, DecisionKind::WouldDeny];

metrics! {
    /// What is counted about one namespace.
    pub struct NamespaceMetrics by "namespace": "a `name` of the configuration, or `__other__`" {
        /// Operations on locks, by what was decided about them.
        decisions: Decisions = "lockwarden_decisions_total" {
            "operation" of OperationLabel,
            "decision" of DecisionKind,
            "reason": "a reason of the error replies; empty where nothing was refused",
            "policy": "the policy that refused; empty where nothing was refused",
            "mode" of ModeLabel
        };
        /// Operations that a rule (`[[namespace.rule]]`) refused, or would have refused in enforce mode or without
        /// `only = "report"`.
        rules: IntCounterVec = "lockwarden_rule_refusals_total" {
            "rule": "a `name` of a `[[namespace.rule]]`, at most 64 a namespace, or `__other__`",
            "decision": "`deny`, or `would-deny` where it was not carried out"
        };
        /// Attempts to acquire a lock, by outcome.
        pub acquires: ByLabel<AcquireOutcome, IntCounter> = "lockwarden_lock_acquires_total" { "outcome" };
        /// Attempts to release a lock, by outcome.
        pub releases: ByLabel<ReleaseOutcome, IntCounter> = "lockwarden_lock_releases_total" { "outcome" };
        /// Leases whose holders were found to be gone before they gave them back; with `holder_lost = "shorten:…"` they
        /// were shortened.
        pub holders_lost: IntCounter = "lockwarden_holders_lost_total" {};
        /// Leases whose TTL ran out before their holder released them, and those that were evicted or deleted on Redis
        /// itself.
        pub expired_while_held: IntCounter = "lockwarden_lock_expired_while_held_total" {};
        /// Times a former holder acted while somebody else held the lock.
        pub overlaps: IntCounter = "lockwarden_lock_overlaps_total" {};
        /// Leases that the server which became the primary does not have: their holders work on without a lock. Each is
        /// an ERROR line of the log with its holder.
        pub leases_lost: IntCounter = "lockwarden_leases_lost_total" {};
        /// Leases whose TTL was cut to what a policy allows.
        pub ttl_clamped: IntCounter = "lockwarden_ttl_clamped_total" {};
        /// Leases that were taken without a TTL in monitor mode and got the default once they were enforced.
        pub late_ttls: IntCounter = "lockwarden_late_ttls_total" {};
        /// Renewals of TTLs that the proxy chose, while their holder lives.
        pub keep_alive: ByLabel<KeepAliveOutcome, IntCounter> = "lockwarden_keep_alive_renewals_total" {
            "outcome"
        };
        /// Leases whose holder did not read that it was granted them.
        pub undelivered: ByLabel<UndeliveredOutcome, IntCounter> = "lockwarden_undelivered_grants_total" {
            "outcome"
        };
        /// Grants, extensions and renewals that replicas had to confirm (`durability`), by what came of that.
        replicas: IntCounterVec = "lockwarden_durability_total" { "result" of DurabilityResult };
        /// Questions to the chain that is asked beside the one in force (`next`), by how its answer differs.
        next: IntCounterVec = "lockwarden_next_answers_total" { "change" of NextAnswer };
        /// Operations on leases without a record, answered by the backend alone.
        pub ungoverned: IntCounter = "lockwarden_ungoverned_operations_total" {};
        /// Leases that were changed or ended before their time without any proxy having done it.
        pub bypass: IntCounter = "lockwarden_lock_bypass_total" {};
        /// Refusals of a script whose locks were put back, while what it did to other keys stands.
        pub script_effects_left: IntCounter = "lockwarden_script_effects_left_total" {};
        /// Commands on locks that were forwarded unjudged: scripts and functions that the configuration lets run in any
        /// mode, the others in monitor mode.
        pub unjudged: ByLabel<UnjudgedWhy, IntCounter> = "lockwarden_unjudged_commands_total" { "why" };
        /// Findings about how clients use their locks.
        pub observations: ByLabel<Observation, IntCounter> = "lockwarden_observations_total" { "kind" };
        /// Locks held now, as far as this proxy has seen.
        held: ByLabel<HeldTtl, IntGauge> = "lockwarden_locks_held" { "ttl" };
        /// Locks that were held when another server became the primary, and that nobody has looked for there yet.
        unknown: IntGauge = "lockwarden_locks_unknown" {};
        /// Until then no free lock is granted, because the server has become the primary so lately (`quarantine`), or
        /// is not what strict `durability` needs; 0 where that is over.
        quarantine_until: IntGauge = "lockwarden_quarantine_until_timestamp_seconds" {};
        /// 1 where enforce mode holds, for everybody or for some (`enforce_for`), 0 where a namespace is only watched.
        enforced: IntGauge = "lockwarden_namespace_enforced" {};
        /// 1 where enforcing harms: within ten minutes after a switch less than half as many locks were granted as
        /// before, though clients ask as before, or more than 5 % of lock time was lost. For ten minutes also after the
        /// proxy has set the namespace back (`auto_back`). Else 0.
        harms: IntGauge = "lockwarden_enforce_harms" {};
        /// Locks without a record that the last walk over the server's keys has found: older than the proxy, or taken
        /// around it.
        ungoverned_locks: ByLabel<HeldTtl, IntGauge> = "lockwarden_ungoverned_locks" { "ttl" };
        /// When the lock that is held longest was acquired, Unix time; absent while none is held.
        oldest: GaugeVec = "lockwarden_oldest_lock_acquired_timestamp_seconds" {};
        /// Connections that were refused a lock at least twice while it was held, and go on trying.
        waiters: IntGauge = "lockwarden_lock_waiters" {};
        /// From the first refused try to the acquire of the same connection.
        pub wait_duration: Histogram = "lockwarden_lock_wait_duration_seconds" in WAIT_SECONDS {};
        /// How much of the TTL was left when a lock was given back, as a share of the TTL given last; near 0 is about
        /// to be unsafe. Leases that the proxy renews are left out.
        pub remaining_ttl: Histogram = "lockwarden_lock_remaining_ttl_ratio" in REMAINING_SHARES {};
        /// How long leases lasted, by how they ended.
        pub hold_duration: ByLabel<HoldEnd, Histogram> = "lockwarden_lock_hold_duration_seconds" in HOLD_SECONDS {
            "end"
        };
    } with {
        pub(super) registry: Registry,
        /// Decisions that have no series of their own.
        overflow: IntCounter,
        /// Counts here stand for several namespaces; each one says so.
        folded: Option<IntCounter>,
        /// The rules that have series.
        named_rules: Mutex<Vec<Box<str>>>,
        /// The series of replicas, which few namespaces ask, and the others do not need.
        asked_replicas: OnceLock<ByLabel<DurabilityResult, IntCounter>>,
        /// The same of what is asked beside.
        asked_beside: OnceLock<ByLabel<NextAnswer, IntCounter>>,
    }
}

/// What the lease table knows about one namespace when the page is asked for.
#[derive(Clone, Debug, Default)]
pub struct NamespaceMirror {
    /// The namespace.
    pub name: Arc<str>,
    /// Locks held with a TTL.
    pub held_finite: u64,
    /// Locks held without one.
    pub held_none: u64,
    /// Locks of which nobody knows since a failover.
    pub unknown: u64,
    /// When the oldest of them was acquired, Unix seconds.
    pub oldest_unix_seconds: Option<f64>,
    /// Connections that poll a lock that is held.
    pub waiting: u64,
    /// Whether anybody is refused anything here.
    pub enforced: bool,
    /// Whether that harms.
    pub harms: bool,
    /// Until when no free lock is granted, Unix seconds; 0 where they are.
    pub quarantine_until: u64,
}

impl NamespaceMirror {
    /// Together with what another server holds of the same namespace.
    pub fn and(self, other: &NamespaceMirror) -> NamespaceMirror {
        let oldest = [self.oldest_unix_seconds, other.oldest_unix_seconds].into_iter().flatten();
        NamespaceMirror {
            held_finite: self.held_finite + other.held_finite,
            held_none: self.held_none + other.held_none,
            unknown: self.unknown + other.unknown,
            oldest_unix_seconds: oldest.reduce(f64::min),
            ..self
        }
    }
}

/// What a walk found in one namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepCounts {
    /// Locks with a record.
    pub governed: u64,
    /// Locks without a record that end by themselves.
    pub ungoverned_finite: u64,
    /// Locks without a record and without a TTL.
    pub ungoverned_endless: u64,
    /// Locks that were given a TTL.
    pub adopted: u64,
}

impl NamespaceMetrics {
    fn new(name: &str, overflow: IntCounter, folded: Option<IntCounter>) -> Result<Self> {
        let registry = Registry::new();
        let make = Registrar::with_label(&registry, "namespace", name);
        NamespaceMetrics::declare(
            &make,
            registry.clone(),
            overflow,
            folded,
            Mutex::default(),
            OnceLock::new(),
            OnceLock::new(),
        )
    }

    /// Replicas are asked here: what they say is there at 0.
    pub(crate) fn expect_replicas(&self) {
        self.said_by_replicas();
    }

    /// Counts what replicas said.
    pub fn durability(&self, result: DurabilityResult) {
        self.said_by_replicas().at(result).inc();
    }

    fn said_by_replicas(&self) -> &ByLabel<DurabilityResult, IntCounter> {
        self.asked_replicas.get_or_init(|| ByLabel::new(|word| self.replicas.with_label_values(&[word])))
    }

    /// Another chain is asked here, too: how it answers is there at 0.
    pub(crate) fn expect_next(&self) {
        self.said_beside();
    }

    /// Counts what another chain answered.
    pub fn answered_beside(&self, answer: NextAnswer) {
        self.said_beside().at(answer).inc();
    }

    fn said_beside(&self) -> &ByLabel<NextAnswer, IntCounter> {
        self.asked_beside.get_or_init(|| ByLabel::new(|word| self.next.with_label_values(&[word])))
    }

    /// Counts one decision. `reason` and `policy` say who refused and why; they count only for
    /// `Deny` and `WouldDeny`, which find their series in a short list instead of by a handle.
    pub fn decision(
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
        self.decisions.count(operation.into(), decision, reason, policy, mode, &self.overflow);
    }

    /// Follows a reload: each rule is there at 0, and those that went leave the page. Of namespaces that share their series
    /// the rules have none of their own.
    pub(crate) fn set_rules<'a>(&self, rules: impl Iterator<Item = &'a str>) {
        let rules: Vec<Box<str>> = if self.folded.is_some() { Vec::new() } else { rules.map(Into::into).collect() };
        let mut named = self.named_rules.lock().unwrap_or_else(PoisonError::into_inner);
        for (rule, decision) in rules.iter().flat_map(|rule| RULE_DECISIONS.map(|decision| (rule, decision))) {
            self.rules.with_label_values(&[&**rule, decision.word()]);
        }
        for gone in named.iter().filter(|rule| !rules.contains(rule)) {
            for decision in RULE_DECISIONS {
                // It is there since it was named.
                let _ = self.rules.remove_label_values(&[&**gone, decision.word()]);
            }
        }
        *named = rules;
    }

    /// Counts a refusal by a rule, carried out or not.
    pub fn refused_by(&self, rule: Option<&str>, decision: DecisionKind) {
        let Some(rule) = rule else {
            return;
        };
        // Held until it is counted: a rule that goes meanwhile would come back with its series.
        let named = self.named_rules.lock().unwrap_or_else(PoisonError::into_inner);
        let rule = if named.iter().any(|known| **known == *rule) { rule } else { FOLDED };
        self.rules.with_label_values(&[rule, decision.word()]).inc();
    }

    /// Makes the series of a mode that is in force here beside the namespace's own.
    pub(crate) fn expect_mode(&self, mode: ModeLabel) {
        self.decisions.expect_mode(mode, &self.overflow);
    }

    /// What a walk over the server's keys has found.
    pub fn swept(&self, found: &SweepCounts) {
        let locks = &self.ungoverned_locks;
        locks.at(HeldTtl::Finite).set(gauge(found.ungoverned_finite));
        locks.at(HeldTtl::None).set(gauge(found.ungoverned_endless));
    }

    /// Locks without a record that the last walk over the server's keys has found.
    pub fn ungoverned_found(&self) -> u64 {
        let locks = [HeldTtl::Finite, HeldTtl::None].map(|ttl| self.ungoverned_locks.at(ttl).get());
        locks.into_iter().filter_map(|count| u64::try_from(count).ok()).sum()
    }

    /// Those of them without a TTL.
    pub fn endless_found(&self) -> u64 {
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
                    next.rest.expect_mode(*mode);
                    next.by_index.push(next.rest.clone());
                    continue;
                }
            };
            metrics.expect_mode(*mode);
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
