//! A namespace's `next` chain: which clients it answers, and what both chains consist of.

use std::sync::Arc;

use lockwarden_lock::decision::Obligations;
use lockwarden_lock::namespace::NamespaceId;
use lockwarden_policy::Generation;

use super::load_policies::next_of;
use super::without_ttl::without_ttl;
use crate::config::{Config, NextChain, Stage};
use crate::telemetry::changes::Beside;

/// See the module.
#[derive(Clone)]
pub struct Next {
    /// Its place among the chains.
    pub chain: NamespaceId,
    pub stage: Stage,
    /// Whether it answers the client of this view.
    pub answers: bool,
    /// How its answers differ from those of the chain in force.
    pub beside: Arc<Beside>,
    /// The obligations of its policies for an acquire without a TTL.
    pub(super) without_ttl: Obligations,
    made_of: Arc<MadeOf>,
}

/// The contents of two chains: each policy with its digest and its settings.
type MadeOf = [Vec<(String, String, Vec<(String, String)>)>; 2];

impl Next {
    /// The `next` chain of the namespace at this place, if there is one.
    pub(super) fn of(config: &Config, namespace: NamespaceId, generation: &Arc<Generation>) -> Option<Next> {
        let (chain, next) = next_of(config, namespace)?;
        Some(Next {
            chain,
            stage: next.stage,
            answers: false,
            beside: Arc::new(Beside::new()),
            without_ttl: without_ttl(chain, &next.rules, generation),
            made_of: Arc::new(made_of(config, namespace, next, generation)),
        })
    }

    /// Keeps the earlier results if both chains are unchanged.
    pub(super) fn go_on(&mut self, before: &Next) {
        if self.made_of == before.made_of {
            self.beside = before.beside.clone();
        }
    }
}

fn made_of(config: &Config, namespace: NamespaceId, next: &NextChain, generation: &Generation) -> MadeOf {
    let part = |policy: &String, settings: &[(String, String)]| {
        let info = generation.policies().iter().find(|info| *info.name == **policy);
        (policy.clone(), info.map(|info| info.sha256.clone()).unwrap_or_default(), settings.to_vec())
    };
    let now = config.namespaces.get(usize::from(namespace.0)).into_iter().flat_map(|now| {
        let settings = |policy: &String| now.settings.get(policy).cloned().unwrap_or_default();
        now.policies.iter().map(move |policy| part(policy, &settings(policy)))
    });
    [now.collect(), next.policies.iter().map(|policy| part(policy, next.settings_of(policy))).collect()]
}
