//! Taking one lock if it is free, and extending it if it is the caller's, as a script of the application does.

use bytes::Bytes;
use smallvec::SmallVec;

use super::lease::adopted_ttl;
use super::proofs::Claim;
use super::{Plan, Planning, shown};
use crate::op::{AskedTtl, ScriptedTake};
use crate::recipe::Owner;
use crate::scripts;
use crate::token::{Grant, OwnerToken};

pub(super) fn plan(
    planning: &Planning<'_>,
    value: &Bytes,
    ttl: AskedTtl,
    script: &ScriptedTake,
    grant: Grant,
) -> Plan {
    let mut step = planning.step();
    let ((allowed, _), who) = (planning.only(), planning.who);
    step.lease(value, ttl, grant, who, allowed);
    step.number(adopted_ttl(allowed));
    let (named, begins_like) = match script.owner {
        Owner::Whole => (value.clone(), None),
        Owner::Prefix(bytes) => (value.slice(..bytes.min(value.len())), Some(bytes)),
    };
    let claim = Claim::Compared(OwnerToken::new(named));
    let proofs = planning.proofs(&claim);
    let shown = shown(&script.replies.different);
    step.flags(
        &proofs.flags,
        &[
            (script.by_expire, b'E'),
            (shown.is_some(), shown.unwrap_or_default()),
        ],
    );
    step.bytes(&proofs.own);
    step.bytes(&proofs.seen_grant);
    step.bytes(&proofs.seen);
    step.who(who, &allowed.rules);
    step.number(allowed.obligations.max_hold_ms.unwrap_or(0));
    match begins_like {
        Some(bytes) => step.number(bytes as u64),
        None => step.bytes(b""),
    }
    step.done(&scripts::TAKE, SmallVec::from_slice(&[grant]))
}
