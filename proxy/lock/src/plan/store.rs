//! Storing a value: an acquire if the lock is free, an extension if it is the holder's.

use bytes::Bytes;

use super::lease::adopted_ttl;
use super::proofs::Claim;
use super::{Plan, Planning};
use crate::decision::TakeOverRule;
use crate::op::{AskedTtl, Comparison};
use crate::scripts;
use crate::settle::Allowed;
use crate::token::{Grant, OwnerToken};

pub(super) fn plan(
    planning: &Planning<'_>,
    lock: &Allowed,
    value: &Bytes,
    ttl: AskedTtl,
    (only_if_exists, wants_old): (bool, bool),
    comparison: Option<&Comparison>,
    grant: Grant,
) -> Plan {
    let mut step = planning.step();
    let who = planning.who;
    let keeps = ttl == AskedTtl::Keep;
    let asked = if keeps { AskedTtl::None } else { ttl };
    step.lease(value, asked, grant, who, lock);
    step.number(adopted_ttl(&lock.obligations, &lock.rules));
    let claim = comparison.map_or_else(
        || {
            let token = OwnerToken::new(value.clone());
            if only_if_exists || keeps { Claim::Updated(token) } else { Claim::Stored(token) }
        },
        |comparison| Claim::of(comparison, Some(value)),
    );
    let proofs = planning.proofs(lock, &claim);
    let may_take_over = lock.obligations.take_over == Some(TakeOverRule::AfterDeadline);
    step.flags(
        &proofs.flags,
        &[
            (only_if_exists, b'X'),
            (keeps, b'K'),
            (wants_old, b'g'),
            (may_take_over, b'd'),
            (planning.quarantined(lock), b'Q'),
        ],
    );
    step.bytes(&proofs.own);
    step.bytes(&proofs.claim);
    step.bytes(&proofs.seen_grant);
    // A value read before counts here even where it proves nothing: see the loser's row of
    // the take-over table.
    step.bytes(lock.lock.facts.seen.as_ref().map_or(&[][..], |seen| &seen.stored));
    step.who(who, &lock.rules);
    step.number(lock.obligations.max_hold_ms.unwrap_or(0));
    step.words(comparison.map_or(planning.argv, |c| &c.then));
    step.done(&scripts::STORE)
}
