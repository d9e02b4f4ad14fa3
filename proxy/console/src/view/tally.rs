//! The counts of some time: by namespace, and by application with its refusals and findings.

use std::sync::Arc;

use lockwarden_control::telemetry::events::{Caller, LockEvent};
use lockwarden_discovery::PatternId;

use super::advice::Finding;
use super::applications::Applications;
use super::by_namespace::ByNamespace;
use super::lock_time::{Costs, Spent};

/// See the module.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) namespaces: ByNamespace<Counts>,
    pub(super) applications: Applications,
}

/// The counts of one namespace.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Counts {
    pub(super) operations: u64,
    /// Tries to acquire: granted, unsuccessful, or refused.
    pub(super) tries: u64,
    /// Leases ended by a client that did not hold them.
    pub(super) broken: u64,
    pub(super) refused: u64,
    pub(super) would_refuse: u64,
    /// Operations whose lease would get another TTL in enforce mode.
    pub(super) would_modify: u64,
    pub(super) overlaps: u64,
    pub(super) ran_out: u64,
    pub(super) kept_alive: u64,
    pub(super) ungoverned: u64,
    pub(super) tokenless_releases: u64,
    /// Lock time.
    pub(super) costs: Costs,
}

/// Something to count.
pub(super) enum Noted<'a> {
    /// In a namespace.
    Counts(&'a Arc<str>, &'a Counts),
    /// An event of an application, on a lock with this key pattern; in its namespace it counts so much.
    Did(&'a Arc<Caller>, &'a Arc<LockEvent>, Option<PatternId>, &'a Counts),
    /// A finding about it, with an example.
    Found(Finding, &'a Arc<Caller>, &'a Arc<LockEvent>, Option<PatternId>),
    /// Lock time that has passed in a namespace, on a lock with this key pattern.
    Spent(&'a Arc<str>, &'a Spent, Option<PatternId>),
}

impl Tally {
    pub(super) fn note(&mut self, noted: &Noted<'_>) {
        match *noted {
            Noted::Counts(namespace, counts) => self.namespaces.of(namespace).add(counts),
            Noted::Spent(namespace, spent, pattern) => {
                self.namespaces.of(namespace).costs.add(&spent.costs);
                if let Some(caller) = &spent.caller {
                    self.applications.spent(caller, namespace, pattern, &spent.costs);
                }
            }
            Noted::Did(caller, entry, pattern, counts) => {
                self.namespaces.of(&entry.namespace).add(counts);
                self.applications.did(caller, entry, pattern, &counts.costs);
            }
            Noted::Found(finding, caller, example, pattern) => {
                let found = (finding, pattern);
                self.applications.found(found, caller, example);
            }
        }
    }

    /// Adds later counts.
    pub(super) fn add(&mut self, later: &Tally) {
        for (namespace, counts) in later.namespaces.iter() {
            self.namespaces.of(namespace).add(counts);
        }
        self.applications.add(&later.applications);
    }

    /// Its memory, in entries of one size.
    pub(super) fn size(&self) -> usize {
        self.namespaces.len() + self.applications.size()
    }
}

impl Counts {
    pub(super) fn add(&mut self, other: &Counts) {
        self.operations += other.operations;
        self.tries += other.tries;
        self.broken += other.broken;
        self.refused += other.refused;
        self.would_refuse += other.would_refuse;
        self.would_modify += other.would_modify;
        self.overlaps += other.overlaps;
        self.ran_out += other.ran_out;
        self.kept_alive += other.kept_alive;
        self.ungoverned += other.ungoverned;
        self.tokenless_releases += other.tokenless_releases;
        self.costs.add(&other.costs);
    }
}
