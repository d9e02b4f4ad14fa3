//! Taking several locks, all or none.

use bytes::Bytes;
use smallvec::SmallVec;

use super::{Plan, Planning};
use crate::op::{AskedTtl, Target};
use crate::scripts;
use crate::token::Grant;

pub(super) fn plan(
    planning: &Planning<'_>,
    locks: &[(Target, Bytes)],
    draw: &mut dyn FnMut() -> Grant,
) -> Plan {
    let mut step = planning.step();
    step.letters(&[(planning.monitor, b'm')]);
    step.number(10 * locks.len() as u64);
    let mut grants = SmallVec::with_capacity(locks.len());
    for ((_, value), allowed) in locks.iter().zip(planning.allowed) {
        let grant = draw();
        step.lease(value, AskedTtl::None, grant, planning.who, allowed);
        grants.push(grant);
    }
    step.words(planning.argv);
    step.done(&scripts::ACQUIRE_ALL, grants)
}
