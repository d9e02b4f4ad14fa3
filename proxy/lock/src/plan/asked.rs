//! The step that reads the lease of a lock for a client that asks for it. It writes nothing.

use std::time::Duration;

use lockwarden_resp::Value;

use super::{Plan, Step};
use crate::scripts;
use crate::token::{FencingToken, SessionId};

/// Reads the lease of a lock, for this session.
pub fn ask_for_lease(lock: &[u8], session: SessionId, companion_prefix: &[u8]) -> Plan {
    let mut step = Step::new(&[lock], companion_prefix, &[]);
    step.bytes(&session.0);
    step.done(&scripts::LEASE)
}

/// What is known of the lease of a lock, at one moment on Redis's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownLease {
    /// A live lease with a record.
    Held {
        /// Its fencing token, if its namespace numbers leases.
        fence: Option<FencingToken>,
        /// When it was granted, Unix ms.
        since_ms: u64,
        /// How long it has been held.
        held: Duration,
        /// What is left of its TTL, if it has one.
        left: Option<Duration>,
        /// Whether it was granted to the session that asks.
        own: bool,
    },
    /// It was taken without the proxy, or changed bypassing it.
    Ungoverned {
        /// What is left of its TTL, if it has one.
        left: Option<Duration>,
    },
    /// The lock is free.
    Free {
        /// The fencing token of the last lease, as far as it is remembered.
        last: Option<FencingToken>,
    },
}

/// Parses the answer of [`ask_for_lease`]; `None` if it has not the script's form.
pub fn known_lease(answer: &Value) -> Option<KnownLease> {
    let [code, fence, since, now, left, own] = answer.as_items()? else {
        return None;
    };
    let number = |value: &Value| -> Option<u64> { std::str::from_utf8(value.as_bytes()?).ok()?.parse().ok() };
    let fence = || number(fence).filter(|fence| *fence > 0).map(FencingToken);
    let left = u64::try_from(left.as_integer()?).ok().map(Duration::from_millis);
    match &code.as_bytes()?[..] {
        b"H" => {
            let (since_ms, now) = (number(since)?, u64::try_from(now.as_integer()?).ok()?);
            Some(KnownLease::Held {
                fence: fence(),
                since_ms,
                held: Duration::from_millis(now.saturating_sub(since_ms)),
                left,
                own: own.as_integer()? == 1,
            })
        }
        b"U" => Some(KnownLease::Ungoverned { left }),
        b"A" => Some(KnownLease::Free { last: fence() }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn answer(code: &'static str, fence: &'static str, left: i64) -> Value {
        let bulk = |text: &'static str| Value::Bulk(Bytes::from_static(text.as_bytes()));
        Value::Array(vec![
            bulk(code),
            bulk(fence),
            bulk("1795260990627"),
            Value::Integer(1_795_260_996_427),
            Value::Integer(left),
            Value::Integer(1),
        ])
    }

    #[test]
    fn an_answer_is_read_or_it_is_none_of_ours() {
        let held = |fence, left| KnownLease::Held {
            fence,
            since_ms: 1_795_260_990_627,
            held: Duration::from_millis(5_800),
            left,
            own: true,
        };
        let (some, second) = (Some(FencingToken(1_795_260_990_627_782)), Some(Duration::from_secs(1)));
        for (value, expected) in [
            (answer("H", "1795260990627782", 1_000), held(some, second)),
            (answer("H", "0000000000000000", -1), held(None, None)),
            (answer("U", "", -1), KnownLease::Ungoverned { left: None }),
            (answer("A", "1795260990627782", -2), KnownLease::Free { last: some }),
            (answer("A", "", -2), KnownLease::Free { last: None }),
            // Text that was written over a record.
            (answer("A", "not a number", -2), KnownLease::Free { last: None }),
        ] {
            assert_eq!(known_lease(&value), Some(expected), "{value:?}");
        }
        for other in [answer("?", "", 0), Value::Integer(1), Value::Array(Vec::new())] {
            assert_eq!(known_lease(&other), None, "{other:?}");
        }
    }
}
