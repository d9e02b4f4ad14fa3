//! The proxy's own steps on the record of one lease, which no client requested. They change no lock, except
//! [`give_back`], which ends a lease that no client was told of.

use std::time::Duration;

use lockwarden_resp::Value;

use super::step::Step;
use super::{Plan, Who};
use crate::rules::Rules;
use crate::scripts;
use crate::token::{Grant, Process, SessionId};

/// The step that records that a lease expired unreleased.
pub fn notice(lock: &[u8], grant: Grant, companion_prefix: &[u8]) -> Plan {
    let mut step = Step::new(&[lock], companion_prefix, &[]);
    step.bytes(&grant.0);
    step.done(&scripts::NOTICE)
}

/// The state of a lease that seems to have expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noticed {
    /// It expired, which was not noticed until now.
    RanOut,
    /// It expired, and that was noticed before.
    Known,
    /// Another lease exists, or existed, that was granted this long ago.
    Another(Duration),
    /// Neither the lock nor a record exists.
    Unrecorded,
    /// It was released, or is held.
    Other,
}

/// Parses the answer of [`notice`]. `None` if it has not the script's form.
pub fn noticed(answer: &Value) -> Option<Noticed> {
    Some(match answer.as_integer()? {
        -1 => Noticed::Unrecorded,
        0 => Noticed::Other,
        1 => Noticed::RanOut,
        2 => Noticed::Known,
        more => Noticed::Another(Duration::from_millis(u64::try_from(more - 3).ok()?)),
    })
}

/// The step that marks a lease of `session` as granted in a reply that was never read. `None` means its latest lease: a
/// repetition takes over a lease whose name it does not know.
pub fn undelivered(lock: &[u8], session: SessionId, grant: Option<Grant>, companion_prefix: &[u8]) -> Plan {
    let mut step = Step::new(&[lock], companion_prefix, &[]);
    step.bytes(&session.0);
    step.bytes(grant.as_ref().map_or(&[][..], |grant| &grant.0));
    step.done(&scripts::UNDELIVERED)
}

/// The step that marks the leases of these locks before a call that cannot be judged, or after it, if it `was` just
/// executed.
pub fn unwitnessed(locks: &[impl AsRef<[u8]>], was: bool, companion_prefix: &[u8]) -> Plan {
    let mut step = Step::new(locks, companion_prefix, &[]);
    step.number(was.into());
    step.done(&scripts::UNWITNESSED)
}

/// The step that ends keep-alive of a lease that may be this client's: the client tried to release it.
pub fn let_go(lock: &[u8], who: &Who, rules: &Rules, companion_prefix: &[u8]) -> Plan {
    let mut step = Step::new(&[lock], companion_prefix, &[]);
    step.who(who, rules);
    step.done(&scripts::LET_GO)
}

/// The step that adds the process to the identity of this lease's client.
pub fn identify(lock: &[u8], grant: Grant, process: Process, companion_prefix: &[u8]) -> Plan {
    let mut step = Step::new(&[lock], companion_prefix, &[]);
    step.bytes(&grant.0);
    step.bytes(&process.bytes());
    step.done(&scripts::IDENTIFY)
}

/// The step that ends a lease which was just granted, and of which its client was not told.
pub fn give_back(lock: &[u8], grant: Grant, companion_prefix: &[u8]) -> Plan {
    let mut step = Step::new(&[lock], companion_prefix, &[]);
    step.bytes(&grant.0);
    step.done(&scripts::GIVE_BACK)
}

/// The result of [`give_back`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GaveBack {
    /// The lease is over.
    Over,
    /// Other clients share the lock, or may do so: the lease ends by its TTL.
    Shared,
}

/// Parses the answer of [`give_back`]; `None` if the state of the lease is unknown.
pub fn gave_back(answer: &Value) -> Option<GaveBack> {
    match answer.as_integer()? {
        0 | 1 => Some(GaveBack::Over),
        2 => Some(GaveBack::Shared),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn an_answer_that_is_no_number_of_ours_says_nothing() {
        for (answer, expected) in [
            (Value::Integer(0), Some(GaveBack::Over)),
            (Value::Integer(1), Some(GaveBack::Over)),
            (Value::Integer(2), Some(GaveBack::Shared)),
            (Value::Integer(3), None),
            (Value::Null, None),
            (Value::Error(Bytes::from_static(b"READONLY no")), None),
        ] {
            assert_eq!(gave_back(&answer), expected, "{answer:?}");
        }
    }
}
