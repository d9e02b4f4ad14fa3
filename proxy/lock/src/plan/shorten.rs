//! The step that sets an earlier end for a lease whose holder is known to be gone. It compares session and grant with
//! those in force, and checks whether another proxy continues the lease.

use std::time::Duration;

use lockwarden_resp::Value;

use super::{Plan, Step};
use crate::scripts;
use crate::token::{FencingToken, Grant, SessionId};

/// A lease whose holder is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shorten {
    /// The connection to which it was granted.
    pub session: SessionId,
    /// Its name.
    pub grant: Grant,
    /// The longest TTL that it may have from now on.
    pub within: Duration,
    /// For how long its holder has been gone: if the lease was extended since, it has another holder.
    pub gone: Duration,
    /// The longest TTL that it can have, as far as the proxy knows: with a longer one, another proxy has renewed it.
    pub longest: Duration,
}

/// Sets the earlier end of a lease.
pub fn shorten(lock: &[u8], lease: &Shorten, companion_prefix: &[u8]) -> Plan {
    let mut step = Step::new(&[lock], companion_prefix, &[]);
    step.bytes(&lease.session.0);
    step.bytes(&lease.grant.0);
    for time in [lease.within, lease.gone, lease.longest] {
        step.number(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    }
    step.done(&scripts::SHORTEN)
}

/// The result of [`shorten`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortened {
    /// It ends sooner now.
    Done {
        /// Its fencing token.
        fence: FencingToken,
        /// How long it has been held.
        held: Duration,
    },
    /// It is over, has another holder, or ends sooner anyway.
    Left,
}

/// Parses the answer of [`shorten`]; `None` if it has not the script's form.
pub fn shortened(answer: &Value) -> Option<Shortened> {
    if answer.as_integer() == Some(0) {
        return Some(Shortened::Left);
    }
    let [fence, held] = answer.as_items()? else {
        return None;
    };
    let fence = std::str::from_utf8(fence.as_bytes()?).ok()?.parse().ok()?;
    let held = u64::try_from(held.as_integer()?).ok()?;
    Some(Shortened::Done { fence: FencingToken(fence), held: Duration::from_millis(held) })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn what_is_no_answer_of_the_script_says_nothing() {
        let fence = |text: &'static str| Value::Bulk(Bytes::from_static(text.as_bytes()));
        let done = Value::Array(vec![fence("0000000000000042"), Value::Integer(1_500)]);
        let expected = Shortened::Done { fence: FencingToken(42), held: Duration::from_millis(1_500) };
        assert_eq!(shortened(&done), Some(expected));
        assert_eq!(shortened(&Value::Integer(0)), Some(Shortened::Left));
        for other in [
            Value::Integer(1),
            Value::Null,
            Value::Array(vec![fence("42")]),
            Value::Array(vec![fence("x"), Value::Integer(1)]),
            Value::Array(vec![fence("42"), Value::Integer(-1)]),
        ] {
            assert_eq!(shortened(&other), None, "{other:?}");
        }
    }
}
