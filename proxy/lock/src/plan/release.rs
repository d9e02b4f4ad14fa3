//! Releasing one lock.

use super::proofs::Claim;
use super::{Plan, Planning, shown};
use crate::op::{Comparison, ReleaseSpelling};
use crate::rules::Released;
use crate::scripts;
use crate::settle::Allowed;

pub(super) fn plan(
    planning: &Planning<'_>,
    lock: &Allowed,
    spelling: ReleaseSpelling,
    comparison: Option<&Comparison>,
) -> Plan {
    let mut step = planning.step();
    let proofs = planning.proofs(lock, &Claim::of_maybe(comparison));
    let shown = comparison.and_then(|c| shown(&c.replies.different));
    step.flags(
        &proofs.flags,
        &[(spelling == ReleaseSpelling::GetDel, b'g'), (shown.is_some(), shown.unwrap_or_default())],
    );
    step.proofs(&proofs, planning.who, lock);
    step.words_around_the_key(comparison.map_or(planning.argv, |c| &c.then));
    if lock.rules.released == Released::Forget && !planning.monitor {
        step.bytes(b"f");
    }
    step.done(&scripts::RELEASE)
}
