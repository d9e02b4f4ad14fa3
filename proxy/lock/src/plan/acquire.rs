//! Taking one lock if it is free.

use bytes::Bytes;

use super::lease::{LeaseTtl, adopted_ttl, may_repeat};
use super::{Plan, Planning, shown};
use crate::evidence::Facts;
use crate::op::{AcquireReply, AskedTtl, LockOp};
use crate::rules::OnRepeat;
use crate::scripts;
use crate::settle::{Allowed, Permitted};
use crate::token::{Grant, OwnerToken};

pub(super) fn plan(
    planning: &Planning<'_>,
    lock: &Allowed,
    value: &Bytes,
    ttl: AskedTtl,
    reply: &AcquireReply,
    grant: Grant,
) -> Plan {
    let mut step = planning.step();
    let who = planning.who;
    let quarantined = planning.quarantined(lock);
    // The script looks for this among the seldom needed arguments.
    let lease = LeaseTtl::granted(ttl, lock, planning.monitor).filter(|_| !quarantined && !who.looks_first);
    step.new_lease(value, lease, grant, who, lock);
    let adopted = adopted_ttl(&lock.obligations, &lock.rules);
    let counter = *reply == AcquireReply::Counter;
    let wants_old = counter || *reply == AcquireReply::OldValue;
    let own = is_own(value, &lock.lock.facts) && may_repeat(&lock.obligations, &lock.rules);
    let again = own && lock.rules.on_repeat == OnRepeat::Grant;
    let distinctive = who.is_distinctive(&lock.rules);
    let (words, shown, reads_value) = match reply {
        AcquireReply::Scripted(script) => (&script.then, shown(&script.replies.held), script.replies.reads_value),
        AcquireReply::Integer | AcquireReply::OkOrNil | AcquireReply::OldValue | AcquireReply::Counter => {
            (planning.argv, None, false)
        }
    };
    step.letters(&[
        (planning.monitor, b'm'),
        (adopted > 0, b'A'),
        (wants_old, b'g'),
        (own, b'u'),
        (again, b'a'),
        (again && distinctive, b'D'),
        (again && who.may_ask_back, b'p'),
        (counter, b'i'),
        (quarantined, b'Q'),
        (who.looks_first, b'V'),
        (shown.is_some(), shown.unwrap_or_default()),
        (reads_value, b'W'),
    ]);
    step.seldom_needed(lease, ttl, adopted, lock);
    if planning.monitor {
        step.words(words);
    }
    step.done(&scripts::ACQUIRE)
}

/// Whether an acquire of a lock that its client holds already is a repetition, and granted as such.
pub fn grants_repetition(permitted: &Permitted) -> bool {
    let lock = &permitted.locks()[0];
    let LockOp::Acquire { value, .. } = &permitted.command().op else {
        return false;
    };
    permitted.enforces() && lock.rules.on_repeat == OnRepeat::Grant && is_own(value, &lock.lock.facts)
}

/// Whether a value distinguishes one client from the others.
fn is_own(value: &Bytes, facts: &Facts) -> bool {
    OwnerToken::new(value.clone()).is_distinctive() && !facts.shared_token
}
