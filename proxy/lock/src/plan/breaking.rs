//! The step that ends a lease by order of an operator. It compares the fencing token of the intended lease with the one
//! in force, so it can never end the next holder's lease.

use std::time::Duration;

use lockwarden_resp::Value;

use super::{Plan, Step};
use crate::scripts;
use crate::token::{FencingToken, Grant};

/// Ends the lease with this fencing token, and no other.
pub fn break_lease(lock: &[u8], fence: FencingToken, companion_prefix: &[u8]) -> Plan {
    let mut step = Step::new(&[lock], companion_prefix, &[]);
    // The record holds it in sixteen digits, and the script compares text.
    step.bytes(format!("{:016}", fence.0).as_bytes());
    step.done(&scripts::BREAK)
}

/// The result of [`break_lease`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broke {
    /// The lease is over.
    Done {
        /// Its name.
        grant: Grant,
        /// How long it was held.
        held: Duration,
    },
    /// Another lease holds the lock.
    Other(FencingToken),
    /// The lock is free.
    Absent,
    /// The lock is held without a record.
    Ungoverned,
}

/// Parses the answer of [`break_lease`]; `None` if it has not the script's form.
pub fn broke(answer: &Value) -> Option<Broke> {
    let [code, fence, since, now, grant] = answer.as_items()? else {
        return None;
    };
    let fence = || text(fence)?.parse().ok().map(FencingToken);
    match &code.as_bytes()?[..] {
        b"A" => Some(Broke::Absent),
        b"U" => Some(Broke::Ungoverned),
        b"N" => fence().map(Broke::Other),
        b"B" => {
            let since: u64 = text(since)?.parse().ok()?;
            let now = u64::try_from(now.as_integer()?).ok()?;
            Some(Broke::Done {
                grant: Grant::from_slice(grant.as_bytes()?)?,
                held: Duration::from_millis(now.saturating_sub(since)),
            })
        }
        _ => None,
    }
}

fn text(value: &Value) -> Option<&str> {
    std::str::from_utf8(value.as_bytes()?).ok()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn answer(code: &'static str, grant: &'static [u8]) -> Value {
        let bulk = |text: &'static [u8]| Value::Bulk(Bytes::from_static(text));
        Value::Array(vec![
            bulk(code.as_bytes()),
            bulk(b"0000000000000043"),
            bulk(b"1795260990627"),
            Value::Integer(1_795_260_996_427),
            bulk(grant),
        ])
    }

    #[test]
    fn an_answer_is_read_or_it_is_none_of_ours() {
        let done = Broke::Done { grant: Grant([b'g'; 16]), held: Duration::from_millis(5_800) };
        assert_eq!(broke(&answer("B", b"gggggggggggggggg")), Some(done));
        assert_eq!(broke(&answer("B", b"short")), None);
        assert_eq!(broke(&answer("N", b"")), Some(Broke::Other(FencingToken(43))));
        assert_eq!(broke(&answer("A", b"")), Some(Broke::Absent));
        assert_eq!(broke(&answer("U", b"")), Some(Broke::Ungoverned));
        assert_eq!(broke(&answer("?", b"")), None);
        assert_eq!(broke(&Value::Integer(1)), None);
        assert_eq!(broke(&Value::Array(Vec::new())), None);
    }
}
