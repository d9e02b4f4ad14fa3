//! The longest TTL that the policies of a namespace allow.

use std::sync::Arc;

use lockwarden_lock::decision::{Decide, Operation, Proofs, Question, Traits};
use lockwarden_lock::namespace::NamespaceId;
use lockwarden_lock::time::ProxyTime;
use lockwarden_lock::token::FencingToken;
use lockwarden_policy::{Chains, Generation};

/// What a namespace's policies say to an acquire that names no TTL.
pub(super) fn ceiling_ms(index: usize, generation: &Arc<Generation>) -> Option<u64> {
    let mut chains = Chains::new();
    chains.follow(generation);
    let question = Question {
        operation: Operation::Acquire,
        db: 0,
        key: b"lockwarden",
        owner_token: Some(b"lockwarden"),
        ttl_ms: None,
        proofs: Proofs::NONE,
        traits: Traits::CONDITIONAL,
        fencing_token: FencingToken(0),
        remaining_ms: 0,
        attempts: 1,
        client: 0,
        now: ProxyTime(0),
    };
    let id = NamespaceId(u16::try_from(index).ok()?);
    chains
        .decide(id, &question, &|_| None)
        .obligations
        .ttl_cap_ms
}
