//! One loaded set of chains: immutable, shared by all threads, exchanged as a whole. It holds what
//! instances are made from and no instance. Next: `chains.rs`, which makes them.

use std::fmt;
use std::sync::Arc;

use lockwarden_lock::namespace::NamespaceId;

use crate::instance::{Kind, Member};
use crate::meter::{Meters, PolicyCounters};

/// A loaded set of chains. Made by [`PolicyHost::load`](crate::PolicyHost::load), published by
/// whoever asked for it, followed by every thread's [`Chains`](crate::Chains).
pub struct Generation {
    pub(crate) id: u64,
    /// By place of the namespace in the configuration.
    pub(crate) chains: Vec<Chain>,
    pub(crate) policies: Vec<PolicyInfo>,
    pub(crate) meters: Arc<Meters>,
}

/// The policies of one namespace, in the order of its configuration.
pub(crate) struct Chain {
    pub(crate) namespace: String,
    pub(crate) members: Vec<Member>,
}

/// What people are told about a loaded policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyInfo {
    /// Its name.
    pub name: Arc<str>,
    /// The SHA-256 of its module, in hex.
    pub sha256: String,
    /// Whether it ships with the proxy.
    pub ships: bool,
    /// Its version, where it has one: the proxy's, for those that ship with it.
    pub version: Option<Arc<str>>,
    /// Whether it may ask who clients are.
    pub asks_clients: bool,
}

impl PolicyInfo {
    /// The first twelve digits of the digest: what metrics and records carry.
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

    /// The names of a namespace's policies, in the order of its chain.
    pub fn chain(&self, namespace: NamespaceId) -> impl Iterator<Item = &Arc<str>> {
        let chain = self.chains.get(usize::from(namespace.0));
        let members = chain.into_iter().flat_map(|chain| &chain.members);
        members.filter(|member| member.kind != Kind::Reports).map(|member| member.meter.policy())
    }

    /// What every policy did since the host was made, by name; also those of earlier generations.
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
