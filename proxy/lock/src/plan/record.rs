//! The proxy's own steps on the record of one lease: nobody asked for them, and they change no lock.

use super::step::Step;
use super::{Plan, Who};
use crate::rules::Rules;
use crate::scripts;
use crate::token::{Grant, Process, SessionId};

/// The step that notices that a lease ran out unreleased.
pub fn notice(lock: &[u8], grant: Grant, companion_prefix: &[u8]) -> Plan {
    let mut step = Step::new(&[lock], companion_prefix, &[]);
    step.bytes(&grant.0);
    step.done(&scripts::NOTICE)
}

/// The step that marks a lease of `session` as granted in a reply that was never read. `None`
/// means whichever it was granted last: a repetition takes a lease on whose name it does not know.
pub fn undelivered(
    lock: &[u8],
    session: SessionId,
    grant: Option<Grant>,
    companion_prefix: &[u8],
) -> Plan {
    let mut step = Step::new(&[lock], companion_prefix, &[]);
    step.bytes(&session.0);
    step.bytes(grant.as_ref().map_or(&[][..], |grant| &grant.0));
    step.done(&scripts::UNDELIVERED)
}

/// The step that ends keep-alive of a lease that may be this client's, who wanted to be rid of it.
pub fn let_go(lock: &[u8], who: &Who, rules: &Rules, companion_prefix: &[u8]) -> Plan {
    let mut step = Step::new(&[lock], companion_prefix, &[]);
    step.who(who, rules);
    step.done(&scripts::LET_GO)
}

/// The step that adds the process to the identity of whoever was granted this lease.
pub fn identify(lock: &[u8], grant: Grant, process: Process, companion_prefix: &[u8]) -> Plan {
    let mut step = Step::new(&[lock], companion_prefix, &[]);
    step.bytes(&grant.0);
    step.bytes(&process.bytes());
    step.done(&scripts::IDENTIFY)
}
