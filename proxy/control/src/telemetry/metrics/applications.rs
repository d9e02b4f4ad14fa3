//! `lockwarden_application_decisions_total`: what was decided about the applications that the operator names. Counted from
//! the event log and not on the way of a command, because by then it is known whose process a connection is. Applications
//! without a name in the configuration are counted together: clients choose their own names, without end.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use prometheus::{IntCounter, IntCounterVec};

use super::decisions::FOLDED;
use super::declaration::ByLabel;
use crate::telemetry::events::{ByCaller, Caller, Follower, LockEvent};
use crate::telemetry::vocabulary::{DecisionKind, Label};

type Counts = ByLabel<DecisionKind, IntCounter>;

/// See the module. Bounded by the applications that a configuration may have.
pub(crate) struct ApplicationCounts {
    vec: IntCounterVec,
    named: Mutex<HashMap<Arc<str>, Counts>>,
    others: Counts,
}

impl ApplicationCounts {
    pub(super) fn new(vec: IntCounterVec) -> ApplicationCounts {
        let others = counts_of(&vec, FOLDED);
        ApplicationCounts { vec, named: Mutex::default(), others }
    }

    /// Follows a reload. Names that stay keep their numbers, names that went leave the page.
    pub(super) fn set<'a>(&self, names: impl Iterator<Item = &'a Arc<str>>) {
        let names: HashSet<&Arc<str>> = names.collect();
        let mut named = self.named();
        named.retain(|name, _| {
            let stays = names.contains(name);
            for decision in DecisionKind::ALL.iter().filter(|_| !stays) {
                // It is there since it was named.
                let _ = self.vec.remove_label_values(&[name, decision.word()]);
            }
            stays
        });
        for name in names {
            named.entry(name.clone()).or_insert_with(|| counts_of(&self.vec, name));
        }
    }

    fn count(&self, name: Option<&str>, decision: DecisionKind) {
        let Some(name) = name else {
            return self.others.at(decision).inc();
        };
        self.named().get(name).unwrap_or(&self.others).at(decision).inc();
    }

    fn named(&self) -> MutexGuard<'_, HashMap<Arc<str>, Counts>> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Every decision is there from the start, at 0: a rate over a series that begins at 1 would miss the first.
fn counts_of(vec: &IntCounterVec, name: &str) -> Counts {
    ByLabel::new(|decision| vec.with_label_values(&[name, decision]))
}

/// Counts what happens.
pub struct CountsApplications {
    counts: Arc<ApplicationCounts>,
    named: ByCaller<Option<Arc<str>>>,
}

impl CountsApplications {
    pub(super) fn new(counts: Arc<ApplicationCounts>) -> CountsApplications {
        CountsApplications { counts, named: ByCaller::default() }
    }
}

impl Follower for CountsApplications {
    fn follow(&mut self, entries: &[LockEvent], _now: Instant) {
        for entry in entries {
            if let (Some(caller), Some(verdict)) = (&entry.caller, &entry.verdict) {
                let named = self.named.of(caller, Caller::named);
                self.counts.count(named.as_deref(), verdict.kind);
            }
        }
    }
}
