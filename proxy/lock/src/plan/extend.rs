//! Giving the current lease a new TTL.

use super::lease::LeaseTtl;
use super::proofs::Claim;
use super::{Plan, Planning, shown};
use crate::decision::{Obligations, Proofs};
use crate::evidence::Facts;
use crate::op::{AskedTtl, Comparison, ExpireCondition, ExtendSpelling};
use crate::scripts;
use crate::settle::Allowed;

pub(super) fn plan(
    planning: &Planning<'_>,
    lock: &Allowed,
    ttl: AskedTtl,
    condition: ExpireCondition,
    spelling: ExtendSpelling,
    comparison: Option<&Comparison>,
) -> Plan {
    let mut step = planning.step();
    let who = planning.who;
    let proofs = planning.proofs(lock, &Claim::of_maybe(comparison));
    // An extension without a value is accepted for an equal identity if it does not shorten the lease, even if others
    // may have that identity too.
    let lenient = comparison.is_none() && is_lenient(&lock.obligations, &lock.lock.facts);
    let wants_value = spelling.answers_value();
    let shown = comparison.and_then(|c| shown(&c.replies.different));
    let max_hold_ms = lock.obligations.max_hold_ms.unwrap_or(0);
    let conditional = condition != ExpireCondition::Always;
    let usual = LeaseTtl::extended(ttl, lock).filter(|_| !planning.monitor && !conditional && max_hold_ms == 0);
    step.flags(
        &proofs.flags,
        &[
            (wants_value, b'g'),
            (lenient, b'e'),
            (shown.is_some(), shown.unwrap_or_default()),
            (usual.is_some_and(|lease| lease.kept), b'A'),
        ],
    );
    step.proofs(&proofs, who, lock);
    step.extended_lease(usual, ttl, condition, max_hold_ms, lock);
    step.words_around_the_key(comparison.map_or(planning.argv, |c| &c.then));
    step.done(&scripts::EXTEND)
}

/// Whether a client with an equal identity that is not distinctive may extend: if identity counts at all, and nothing
/// shows that the connection is not the holder's.
pub(super) fn is_lenient(obligations: &Obligations, facts: &Facts) -> bool {
    let counts = obligations.require.is_some_and(|required| required.contains(Proofs::IDENTITY));
    let lapsed = facts.own.as_ref().is_some_and(|own| own.lapsed.is_some());
    counts && !facts.refused_since && !lapsed
}
