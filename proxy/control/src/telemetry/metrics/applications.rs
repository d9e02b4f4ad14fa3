//! `lockwarden_application_decisions_total`: what was decided about the applications that the operator names. Counted from
//! the event log and not on the way of a command, because by then it is known whose process a connection is. Applications
//! without a name in the configuration are counted together: clients choose their own names, without end.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use prometheus::IntCounterVec;

use super::decisions::FOLDED;
use crate::telemetry::events::{ByCaller, Caller, Follower, LockEvent};
use crate::telemetry::vocabulary::{DecisionKind, Label};

/// See the module. Bounded by the applications that a configuration may have.
pub(crate) struct ApplicationCounts {
    vec: IntCounterVec,
    named: Mutex<HashSet<Arc<str>>>,
}

impl ApplicationCounts {
    pub(super) fn new(vec: IntCounterVec) -> ApplicationCounts {
        let counts = ApplicationCounts { vec, named: Mutex::default() };
        counts.begin(FOLDED);
        counts
    }

    /// Follows a reload. Names that stay keep their numbers, names that went leave the page.
    pub(super) fn set<'a>(&self, names: impl Iterator<Item = &'a Arc<str>>) {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        let next: HashSet<Arc<str>> = names.cloned().collect();
        for name in next.difference(&named) {
            self.begin(name);
        }
        for gone in named.difference(&next) {
            for decision in DecisionKind::ALL {
                // It is there since it was named.
                let _ = self.vec.remove_label_values(&[gone, decision.word()]);
            }
        }
        *named = next;
    }

    /// Every decision is there from the start, at 0: a rate over a series that begins at 1 would miss the first.
    fn begin(&self, name: &str) {
        for decision in DecisionKind::ALL {
            self.vec.with_label_values(&[name, decision.word()]);
        }
    }

    fn count(&self, name: Option<&str>, decision: DecisionKind) {
        // Held until it is counted: a name that goes meanwhile would come back with its series.
        let named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        let name = name.filter(|name| named.contains(*name));
        let name = name.unwrap_or(FOLDED);
        self.vec.with_label_values(&[name, decision.word()]).inc();
    }
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
