//! The metrics of one `[[guard]]`: what was said to writes of guarded data. Sessions keep the handles.

use std::collections::BTreeMap;
use std::sync::Arc;

use prometheus::{Histogram, IntCounter, Registry, Result};

use super::declaration::{ByLabel, Registrar, metrics};
use crate::telemetry::vocabulary::{GuardResult, GuardUnchecked, Label, ModeLabel};

/// A check is one more round trip to Redis.
const SECONDS: [f64; 10] = [50e-6, 100e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 50e-3, 250e-3];

metrics! {
    /// What is counted about one guard.
    pub struct GuardMetrics by "guard": "a `name` of a `[[guard]]`" {
        /// Writes of guarded data (`[[guard]]`), by what was said to them; in monitor mode, what enforce mode would
        /// say.
        writes: ByLabel<ModeLabel, ByLabel<GuardResult, IntCounter>> = "lockwarden_guarded_writes_total" {
            "mode",
            "result"
        };
        /// Writes of guarded data that cannot be checked: refused in enforce mode, forwarded in monitor mode;
        /// `computed-names` counts scripts that may be such, and are not refused.
        pub unchecked: ByLabel<GuardUnchecked, IntCounter> = "lockwarden_guard_unchecked_total" { "why" };
        /// Times that the lock's record changed between the look at it and the write, which was then checked again.
        pub again: IntCounter = "lockwarden_guard_again_total" {};
        /// From when a guarded write was read until Redis had answered it, in enforce mode.
        pub seconds: Histogram = "lockwarden_guard_seconds" in SECONDS {};
    } with {
        registry: Registry,
    }
}

impl GuardMetrics {
    fn new(name: &str) -> Result<GuardMetrics> {
        let registry = Registry::new();
        let make = Registrar::with_label(&registry, "guard", name);
        GuardMetrics::declare(&make, registry.clone())
    }

    /// How often each was said, to the writes that came in this mode.
    pub fn said(&self, mode: ModeLabel) -> impl Iterator<Item = (GuardResult, u64)> {
        let of_mode = self.writes.at(mode);
        GuardResult::ALL.iter().map(|&result| (result, of_mode.at(result).get()))
    }

    /// How many could not be judged, by why.
    pub fn not_judged(&self) -> impl Iterator<Item = (GuardUnchecked, u64)> {
        GuardUnchecked::ALL.iter().map(|&why| (why, self.unchecked.at(why).get()))
    }

    /// This was said to a write.
    pub fn wrote(&self, mode: ModeLabel, result: GuardResult) {
        self.writes.at(mode).at(result).inc();
    }
}

/// The guards of a configuration by name. One that stays keeps its numbers.
#[derive(Default)]
pub(super) struct Guards(BTreeMap<Box<str>, Arc<GuardMetrics>>);

impl Guards {
    pub(super) fn with<'a>(&self, guards: impl Iterator<Item = &'a str>) -> Result<Guards> {
        let metrics = guards.map(|name| {
            let known = self.0.get(name).cloned();
            let metrics = known.map_or_else(|| GuardMetrics::new(name).map(Arc::new), Ok)?;
            Ok((name.into(), metrics))
        });
        metrics.collect::<Result<_>>().map(Guards)
    }

    pub(super) fn get(&self, name: &str) -> Option<Arc<GuardMetrics>> {
        self.0.get(name).cloned()
    }

    pub(super) fn registries(&self) -> impl Iterator<Item = &Registry> {
        self.0.values().map(|metrics| &metrics.registry)
    }
}
