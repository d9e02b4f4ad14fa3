//! Storing a value: an acquire where the lock is free, an extension where it is the holder's.

use bytes::Bytes;
use smallvec::SmallVec;

use super::lease::adopted_ttl;
use super::proofs::Claim;
use super::{Plan, Planning};
use crate::decision::TakeOverRule;
use crate::op::{AskedTtl, Comparison};
use crate::scripts;
use crate::token::{Grant, OwnerToken};

pub(super) fn plan(
    planning: &Planning<'_>,
    value: &Bytes,
    ttl: AskedTtl,
    (only_if_exists, wants_old): (bool, bool),
    comparison: Option<&Comparison>,
    grant: Grant,
) -> Plan {
    let mut step = planning.step();
    let ((allowed, known), who) = (planning.only(), planning.who);
    let keeps = ttl == AskedTtl::Keep;
    let asked = if keeps { AskedTtl::None } else { ttl };
    step.lease(value, asked, grant, who, allowed);
    step.number(adopted_ttl(allowed));
    let claim = comparison.map_or_else(
        || {
            let token = OwnerToken::new(value.clone());
            if only_if_exists || keeps {
                Claim::Updated(token)
            } else {
                Claim::Stored(token)
            }
        },
        |comparison| Claim::of(comparison, Some(value)),
    );
    let proofs = planning.proofs(&claim);
    let may_take_over = allowed.obligations.take_over == Some(TakeOverRule::AfterDeadline);
    step.flags(
        &proofs.flags,
        &[
            (only_if_exists, b'X'),
            (keeps, b'K'),
            (wants_old, b'g'),
            (may_take_over, b'd'),
        ],
    );
    step.bytes(&proofs.own);
    step.bytes(&proofs.claim);
    step.bytes(&proofs.seen_grant);
    // A value read before counts here even where it proves nothing: see the loser's row of
    // the take-over table.
    step.bytes(known.seen.as_ref().map_or(&[][..], |seen| &seen.stored));
    step.who(who, &allowed.rules);
    step.number(allowed.obligations.max_hold_ms.unwrap_or(0));
    step.words(comparison.map_or(planning.argv, |c| &c.then));
    step.done(&scripts::STORE, SmallVec::from_slice(&[grant]))
}
