//! The guards in force, with their metrics and their exemptions.

use std::sync::Arc;

use lockwarden_lock::data_guard::{DataGuard, DataGuards};
use lockwarden_lock::rules::Mode;

use crate::config::{GuardConfig, Listed};
use crate::telemetry::metrics::{GuardMetrics, Metrics};

/// See the module.
#[derive(Default)]
pub struct Guards {
    /// The keys that they cover.
    pub index: DataGuards,
    /// In the same order.
    pub details: Vec<GuardDetails>,
    /// Whether any of them refuses.
    pub enforces_any: bool,
}

/// One guard in force.
#[derive(Clone)]
pub struct GuardDetails {
    pub name: Arc<str>,
    pub rules: DataGuard,
    /// As configured.
    pub config: GuardConfig,
    pub metrics: Arc<GuardMetrics>,
    exempt: Listed,
}

impl Guards {
    /// The guards of a configuration.
    pub fn new(guards: &[GuardConfig], metrics: &Metrics) -> prometheus::Result<Guards> {
        metrics.set_guards(guards.iter().map(|guard| guard.name.as_str()))?;
        let details = guards.iter().filter_map(|guard| {
            Some(GuardDetails {
                name: guard.name.as_str().into(),
                rules: guard.guard(),
                config: guard.clone(),
                metrics: metrics.guard(&guard.name)?,
                exempt: Listed::of(&guard.exempt),
            })
        });
        Ok(Guards::of(details.collect()))
    }

    fn of(details: Vec<GuardDetails>) -> Guards {
        let rules = details.iter().map(|guard| guard.rules.clone());
        Guards {
            index: DataGuards::new(rules.collect()),
            enforces_any: details.iter().any(GuardDetails::enforces),
            details,
        }
    }

    /// The same guards with these modes.
    pub fn switched(&self, guards: &[GuardConfig]) -> Guards {
        let mut details = self.details.clone();
        for (details, guard) in details.iter_mut().zip(guards) {
            (details.rules.mode, details.config.mode) = (guard.mode, guard.mode);
        }
        Guards::of(details)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.details.is_empty()
    }
}

impl GuardDetails {
    /// Whether refusals are carried out.
    pub fn enforces(&self) -> bool {
        self.rules.mode == Mode::Enforce
    }

    /// Whether a client is exempt.
    pub fn exempts(&self, user: &[u8], name: &[u8], certificate: Option<&str>) -> bool {
        !self.exempt.is_empty() && self.exempt.has(user, name, certificate)
    }
}
