//! One loaded set of chains: immutable, shared by all threads, replaced as a whole. It contains what instances are made
//! from, but no instance. Next: `chains.rs`, which makes them.

use std::fmt;
use std::sync::Arc;

use lockwarden_lock::decision::Operation;
use lockwarden_lock::namespace::NamespaceId;

use crate::bindings::v1;
use crate::history::Asking;
use crate::instance::{Kind, Member};
use crate::meter::{Meters, PolicyCounters};

/// A loaded set of chains. [`PolicyHost::load`](crate::PolicyHost::load) makes it, its caller publishes it, and every
/// thread's [`Chains`](crate::Chains) follow it.
pub struct Generation {
    pub(crate) id: u64,
    /// By the namespace's place in the configuration.
    pub(crate) chains: Vec<Chain>,
    pub(crate) policies: Vec<PolicyInfo>,
    pub(crate) meters: Arc<Meters>,
    /// Whether any chain asks for clients' holdings: checked at each grant.
    pub(crate) asks_holdings: bool,
}

/// The policies of one namespace, in the order of its configuration.
pub(crate) struct Chain {
    pub(crate) namespace: String,
    pub(crate) members: Vec<Member>,
}

/// What is shown to people about a loaded policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyInfo {
    /// Its name.
    pub name: Arc<str>,
    /// The SHA-256 of its module, in hex.
    pub sha256: String,
    /// Whether it ships with the proxy.
    pub ships: bool,
    /// Its version, if it has one: the proxy's, for policies that ship with it.
    pub version: Option<Arc<str>>,
    /// Whether it may ask for clients' identities.
    pub asks_clients: bool,
}

/// What the sample requests showed about a policy under the settings of one namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriedPolicy {
    /// Its name.
    pub name: Arc<str>,
    /// The operations about which it is asked.
    pub judges: Vec<Operation>,
    /// The most fuel that a sample request burnt, the longest key and owner token among them.
    pub most_fuel: u64,
    /// The fuel limit of one decision.
    pub fuel_limit: u64,
}

impl Chain {
    /// Whether any of its policies asks for clients' recent actions.
    pub(crate) fn asks_history(&self) -> bool {
        self.members.iter().any(|member| member.history.is_some())
    }

    /// Whether any of its policies asks for clients' holdings.
    pub(crate) fn asks_holdings(&self) -> bool {
        self.members.iter().any(|member| member.asks_holdings)
    }

    /// Counts that a client tries to take a lock.
    pub(crate) fn tried(&self, asking: &Asking) {
        let mut histories = self.members.iter().filter_map(|member| member.history.as_deref());
        if let Some(history) = histories.next() {
            history.tried(asking);
        }
    }
}

impl PolicyInfo {
    /// The first twelve digits of the digest, as in metrics and records.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.sha256[..12]
    }
}

impl Generation {
    /// Grows with every load of one host, starting at 1.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The loaded policies, each once, in the order in which they were given.
    #[must_use]
    pub fn policies(&self) -> &[PolicyInfo] {
        &self.policies
    }

    /// Whether an answer of this chain may depend on earlier questions: one of its policies asks for clients' recent
    /// actions.
    #[must_use]
    pub fn asks_history(&self, namespace: NamespaceId) -> bool {
        self.chains.get(usize::from(namespace.0)).is_some_and(Chain::asks_history)
    }

    /// Whether any chain asks for clients' holdings.
    #[must_use]
    pub fn asks_holdings(&self) -> bool {
        self.asks_holdings
    }

    /// The names of a namespace's policies, in the order of its chain.
    pub fn chain(&self, namespace: NamespaceId) -> impl Iterator<Item = &Arc<str>> {
        let chain = self.chains.get(usize::from(namespace.0));
        let members = chain.into_iter().flat_map(|chain| &chain.members);
        members.filter(|member| member.kind != Kind::Reports).map(|member| member.meter.policy())
    }

    /// The results of testing the policies of a namespace, in the order of its chain.
    pub fn tried(&self, namespace: NamespaceId) -> impl Iterator<Item = TriedPolicy> {
        let chain = self.chains.get(usize::from(namespace.0));
        let members = chain.into_iter().flat_map(|chain| &chain.members);
        members.filter(|member| member.kind != Kind::Reports).map(|member| TriedPolicy {
            name: member.meter.policy().clone(),
            judges: Operation::ALL.into_iter().filter(|one| member.judged.contains(v1::as_set(*one))).collect(),
            most_fuel: member.most_fuel,
            fuel_limit: member.limits.fuel,
        })
    }

    /// Counters of every policy since the host was made, by name; also those of earlier generations.
    #[must_use]
    pub fn counters(&self) -> Vec<(Arc<str>, PolicyCounters)> {
        self.meters.read()
    }
}

impl fmt::Debug for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespaces: Vec<&str> = self.chains.iter().map(|chain| &*chain.namespace).collect();
        f.debug_struct("Generation")
            .field("id", &self.id)
            .field("namespaces", &namespaces)
            .field("policies", &self.policies)
            .finish_non_exhaustive()
    }
}
