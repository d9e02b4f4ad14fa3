//! The metrics of one policy: how long it takes, how often it fails, what it used. The policy host
//! keeps the handles; this module never calls a policy.

use std::collections::BTreeMap;
use std::sync::Arc;

use lockwarden_lock::decision::FaultKind;
use prometheus::{Histogram, IntCounter, IntGauge, IntGaugeVec, Registry, Result};

use super::decisions::FOLDED;
use super::declaration::{ByLabel, Registrar, metrics};
use crate::telemetry::vocabulary::{Label, PolicyMode};

/// Policies with a name of their own on the page; the rest is counted together. Three ship with
/// the proxy, and a policy costs 27 series.
const MAX_POLICIES: usize = 10;

/// A warm built-in policy takes less than a microsecond; no sensible deadline is above 10 ms.
const EVALUATION_SECONDS: [f64; 13] =
    [250e-9, 500e-9, 1e-6, 2.5e-6, 5e-6, 10e-6, 25e-6, 50e-6, 100e-6, 500e-6, 1e-3, 2.5e-3, 10e-3];

/// A loaded policy, for `lockwarden_policy_info`.
#[derive(Clone, Debug)]
pub struct PolicyInfo<'a> {
    /// As configured.
    pub(crate) name: &'a str,
    /// As the policy says itself.
    pub(crate) version: &'a str,
    /// Hexadecimal SHA-256 of the module; its first 12 digits are shown.
    pub(crate) digest: &'a str,
    /// Where it is in use.
    pub(crate) mode: PolicyMode,
}

/// What a policy used since the start, as its host counts it.
#[derive(Clone, Copy, Debug, Default)]
pub struct PolicyUse {
    /// Decisions asked for.
    pub calls: u64,
    /// Fuel burnt.
    pub fuel: u64,
    /// Memory of its live instances, bytes.
    pub memory_bytes: usize,
    /// Breakers that are open now.
    pub open_breakers: usize,
}

metrics! {
    /// What is counted about one policy.
    pub struct PolicyMetrics by "policy": "a policy's name, or `__other__`" {
        /// How long one policy took for one decision; one decision in 64 is timed.
        pub evaluation: Histogram = "lockwarden_policy_evaluation_duration_seconds" in EVALUATION_SECONDS {};
        /// Times a policy did not answer.
        pub failures: ByLabel<FaultKind, IntCounter> = "lockwarden_policy_failures_total" { "kind" };
        /// Fuel that a policy used, about one per WebAssembly instruction.
        fuel: IntCounter = "lockwarden_policy_fuel_consumed_total" {};
        /// Decisions that a policy was asked for, failed ones included.
        calls: IntCounter = "lockwarden_policy_calls_total" {};
        /// Linear memory of all live instances of a policy.
        memory: IntGauge = "lockwarden_policy_memory_bytes" {};
        /// For how many threads, namespaces and operations a policy is not asked now, because its failures took too
        /// much time.
        open_breakers: IntGauge = "lockwarden_policy_open_breakers" {};
        /// Always 1; the labels say which policies are loaded.
        info: IntGaugeVec = "lockwarden_policy_info" {
            "version": "the policy's own",
            "digest": "first 12 hex digits of its SHA-256",
            "mode" of PolicyMode
        };
    } with {
        pub(super) registry: Registry,
    }
}

impl PolicyMetrics {
    fn new(name: &str) -> Result<PolicyMetrics> {
        let registry = Registry::new();
        let make = Registrar::with_label(&registry, "policy", name);
        PolicyMetrics::declare(&make, registry.clone())
    }

    fn show(&self, used: PolicyUse) {
        // A policy that gets a name of its own on a reload leaves the rest smaller than it was.
        for (counter, now) in [(&self.calls, used.calls), (&self.fuel, used.fuel)] {
            counter.inc_by(now.saturating_sub(counter.get()));
        }
        for (gauge, now) in [(&self.memory, used.memory_bytes), (&self.open_breakers, used.open_breakers)] {
            gauge.set(i64::try_from(now).unwrap_or(i64::MAX));
        }
    }

    fn describe(&self, policy: &PolicyInfo<'_>) {
        let digest: String = policy.digest.chars().take(12).collect();
        self.info.reset();
        self.info.with_label_values(&[policy.version, &digest, policy.mode.word()]).set(1);
    }
}

impl PolicyUse {
    fn add(&mut self, other: PolicyUse) {
        self.calls += other.calls;
        self.fuel += other.fuel;
        self.memory_bytes += other.memory_bytes;
        self.open_breakers += other.open_breakers;
    }
}

/// The loaded policies by name.
pub(super) struct Policies {
    by_name: BTreeMap<Box<str>, Arc<PolicyMetrics>>,
    rest: Arc<PolicyMetrics>,
    shows_rest: bool,
}

impl Policies {
    pub(super) fn none() -> Result<Policies> {
        Ok(Policies { by_name: BTreeMap::new(), rest: Arc::new(PolicyMetrics::new(FOLDED)?), shows_rest: false })
    }

    /// The next set of policies; a name that stays keeps its numbers. The second value is how many
    /// found no room.
    pub(super) fn with(&self, policies: &[PolicyInfo<'_>]) -> Result<(Policies, usize)> {
        let mut by_name = BTreeMap::new();
        for policy in policies.iter().take(MAX_POLICIES) {
            let metrics = match self.by_name.get(policy.name) {
                Some(known) => known.clone(),
                None => Arc::new(PolicyMetrics::new(policy.name)?),
            };
            metrics.describe(policy);
            by_name.insert(policy.name.into(), metrics);
        }
        let without_room = policies.len().saturating_sub(MAX_POLICIES);
        let next = Policies { by_name, rest: self.rest.clone(), shows_rest: without_room > 0 };
        Ok((next, without_room))
    }

    /// What is said of those that have series of their own.
    pub(super) fn describe(&self, policies: &[PolicyInfo<'_>]) {
        for policy in policies {
            if let Some(metrics) = self.by_name.get(policy.name) {
                metrics.describe(policy);
            }
        }
    }

    pub(super) fn get(&self, name: &str) -> &Arc<PolicyMetrics> {
        self.by_name.get(name).unwrap_or(&self.rest)
    }

    /// Brings the page up to what the host has counted; what has no name here is shown together.
    pub(super) fn show(&self, uses: &[(Arc<str>, PolicyUse)]) {
        let mut rest = PolicyUse::default();
        for (name, used) in uses {
            match self.by_name.get(&**name) {
                Some(metrics) => metrics.show(*used),
                None => rest.add(*used),
            }
        }
        self.rest.show(rest);
    }

    pub(super) fn registries(&self) -> impl Iterator<Item = &Registry> {
        let rest = self.shows_rest.then_some(&self.rest);
        self.by_name.values().chain(rest).map(|metrics| &metrics.registry)
    }
}
