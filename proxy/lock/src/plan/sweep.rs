//! The step of the sweeper: what is known of locks that were found on the server, and a TTL for
//! those that have none where their namespace says so.

use std::time::Duration;

use bytes::Bytes;
use lockwarden_resp::Value;

use super::{Plan, Step};
use crate::rules::{Adopt, Mode, Rules};
use crate::scripts;
use crate::token::{FencingToken, Grant};

/// The TTL that a lock without one gets from a sweep, ms; 0 for none. `ceiling_ms` is the longest
/// that the policies of its namespace allow.
pub fn swept_ttl(rules: Rules, ceiling_ms: Option<u64>) -> u64 {
    match (rules.adopt, rules.mode) {
        (Adopt::Cap, Mode::Enforce) => ceiling_ms.unwrap_or(0),
        (Adopt::Cap, Mode::Monitor) | (Adopt::Report, _) => 0,
    }
}

/// Looks at these locks; each with the TTL that it gets if it has none, ms.
pub fn sweep(locks: &[(&[u8], u64)], companion_prefix: &[u8]) -> Plan {
    let keys: Vec<&[u8]> = locks.iter().map(|(key, _)| *key).collect();
    let mut step = Step::new(&keys, companion_prefix, &[]);
    for (_, ttl_ms) in locks {
        step.number(*ttl_ms);
    }
    step.done(&scripts::SWEEP)
}

/// What a sweep found of one lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swept {
    /// Its TTL, if it has one.
    pub ttl: Option<Duration>,
    /// It had none and was given one.
    pub adopted: bool,
    /// Its lease, if it has a record.
    pub lease: Option<SweptLease>,
    /// What stands for its value: equal for equal ones. `None` for a deadline, and for a lock that is no
    /// string.
    pub value: Option<Bytes>,
}

/// A lease that a sweep found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweptLease {
    /// Its name.
    pub grant: Grant,
    /// Its fencing token.
    pub fence: FencingToken,
    /// How long it is held.
    pub held: Duration,
}

/// Reads the answer of [`sweep`], one entry a lock; `None` in place of one that is gone. An answer
/// that is none of the script's own is `None` as a whole.
pub fn swept(answer: &Value) -> Option<Vec<Option<Swept>>> {
    answer.as_items()?.iter().map(entry).collect()
}

fn entry(value: &Value) -> Option<Option<Swept>> {
    let items = value.as_items()?;
    let number = |at: usize| -> Option<u64> {
        let item = items.get(at)?;
        match item.as_integer() {
            Some(number) => u64::try_from(number).ok(),
            None => std::str::from_utf8(item.as_bytes()?).ok()?.parse().ok(),
        }
    };
    let code = items.first()?.as_bytes()?;
    let lease = match &code[..] {
        b"-" => return Some(None),
        b"U" => None,
        b"G" => Some(SweptLease {
            grant: Grant::from_slice(items.get(3)?.as_bytes()?)?,
            fence: FencingToken(number(4)?),
            held: Duration::from_millis(number(5)?),
        }),
        _ => return None,
    };
    let ttl = number(1)?;
    Some(Some(Swept {
        ttl: (ttl > 0).then(|| Duration::from_millis(ttl)),
        adopted: number(2)? == 1,
        lease,
        value: items
            .get(6)
            .and_then(Value::as_bytes)
            .filter(|form| !form.is_empty())
            .cloned(),
    }))
}
