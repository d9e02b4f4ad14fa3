//! Taking one lock if it is free, and extending it if it is the caller's, as a script of the application does.

use bytes::Bytes;
use lockwarden_lua::Owner;

use super::lease::adopted_ttl;
use super::proofs::Claim;
use super::{Plan, Planning, shown};
use crate::op::{AskedTtl, ScriptedTake};
use crate::scripts;
use crate::settle::Allowed;
use crate::token::{Grant, OwnerToken};

pub(super) fn plan(
    planning: &Planning<'_>,
    lock: &Allowed,
    value: &Bytes,
    ttl: AskedTtl,
    script: &ScriptedTake,
    grant: Grant,
) -> Plan {
    let mut step = planning.step();
    let who = planning.who;
    step.lease(value, ttl, grant, who, lock);
    step.number(adopted_ttl(&lock.obligations, &lock.rules));
    let (named, begins_like) = match script.owner {
        Owner::Whole => (value.clone(), None),
        Owner::Prefix(bytes) => (value.slice(..bytes.min(value.len())), Some(bytes)),
    };
    // The script compares with the whole value or its beginning; only this much of it is the
    // proof.
    let claim = Claim::Compared(OwnerToken::new(named));
    let proofs = planning.proofs(lock, &claim);
    let shown = shown(&script.replies.different);
    step.flags(
        &proofs.flags,
        &[(script.by_expire, b'E'), (planning.quarantined(lock), b'Q'), (shown.is_some(), shown.unwrap_or_default())],
    );
    step.bytes(&proofs.own);
    step.bytes(&proofs.seen_grant);
    step.bytes(&proofs.seen);
    step.who(who, &lock.rules);
    step.number(lock.obligations.max_hold_ms.unwrap_or(0));
    match begins_like {
        Some(bytes) => step.number(bytes as u64),
        None => step.bytes(b""),
    }
    step.done(&scripts::TAKE)
}
