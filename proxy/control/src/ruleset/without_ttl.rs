//! What the policies of a namespace require of a lease that is requested without a TTL: its default and longest TTL,
//! and how long it is kept alive.

use std::sync::Arc;

use lockwarden_lock::decision::{Decide, Obligations, Operation, Question, Traits};
use lockwarden_lock::namespace::NamespaceId;
use lockwarden_lock::time::ProxyTime;
use lockwarden_policy::{Chains, Generation};

use crate::config::RuleConfig;

/// The obligations of a chain for any acquire without a TTL. Rules count only where they apply to every lock.
pub(super) fn without_ttl(id: NamespaceId, rules: &[RuleConfig], generation: &Arc<Generation>) -> Obligations {
    let mut chains = Chains::without_rules();
    chains.follow(generation);
    let question = Question {
        owner_token: Some(b"lockwarden"),
        traits: Traits::CONDITIONAL,
        now: ProxyTime(0),
        ..Question::plain(Operation::Acquire, b"lockwarden")
    };
    let decision = chains.decide(id, &question, &|_| None);
    let rules = rules.iter().map(RuleConfig::always_wants);
    rules.fold(decision.obligations, Obligations::merge)
}
