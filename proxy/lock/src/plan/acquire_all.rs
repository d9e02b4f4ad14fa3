//! Taking several locks, all or none.

use bytes::Bytes;

use super::{Plan, Planning};
use crate::op::{AskedTtl, Target};
use crate::scripts;
use crate::settle::Allowed;
use crate::token::Grant;

pub(super) fn plan(
    planning: &Planning<'_>,
    locks: &mut [Allowed],
    (pairs, ttl): (&[(Target, Bytes)], AskedTtl),
    draw: &mut dyn FnMut() -> Grant,
) -> Plan {
    let mut step = planning.step();
    let quarantined = locks.iter().any(|lock| planning.quarantined(lock));
    step.letters(&[(planning.monitor, b'm'), (quarantined, b'Q')]);
    step.number(10 * locks.len() as u64);
    for ((_, value), lock) in pairs.iter().zip(locks) {
        let grant = lock.drawn(draw);
        step.lease(value, ttl, grant, planning.who, lock);
    }
    step.words(planning.argv);
    step.done(&scripts::ACQUIRE_ALL)
}
