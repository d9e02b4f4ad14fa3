//! The step of the sweeper: what is known of locks that were found on the server, and a TTL for those that
//! have none: a lease that is enforced only now gets the one that it would have been granted with, a lock without a
//! record the ceiling where its namespace says so.

use std::time::Duration;

use bytes::Bytes;
use lockwarden_resp::Value;

use super::index::RecordedLease;
use super::lease::{LeaseTtl, adopted_ttl, keep_alive_ms, outlive};
use super::{IndexEntry, Plan, Step};
use crate::decision::Obligations;
use crate::rules::Rules;
use crate::scripts;
use crate::time::{KeepAliveMs, OutliveMs};

/// What a sweep gives to the locks of one namespace that it finds without a TTL.
#[derive(Clone, Copy, Debug)]
pub struct SweepTerms {
    /// To one without a record, ms; 0: nothing.
    ungoverned_ms: u64,
    /// To one with a record; a TTL of 0: nothing, but its record lives on.
    governed: LeaseTtl,
    keep_alive_ms: KeepAliveMs,
    outlive_ms: OutliveMs,
}

impl SweepTerms {
    /// What follows from the rules of the namespace, and from what its policies say to an acquire that names no TTL.
    pub fn new(obligations: &Obligations, rules: &Rules) -> SweepTerms {
        SweepTerms {
            ungoverned_ms: adopted_ttl(obligations, rules),
            governed: LeaseTtl::found(obligations, rules),
            keep_alive_ms: keep_alive_ms(obligations, rules),
            outlive_ms: outlive(obligations, rules),
        }
    }

    /// What has a lease kept alive that got its TTL now: as long as one that is granted now. `None` where it is not.
    pub fn kept(&self, db: u32, lock: &Bytes, lease: &RecordedLease) -> Option<IndexEntry> {
        let held = u64::try_from(lease.held.as_millis()).unwrap_or(u64::MAX);
        self.governed.kept.then(|| IndexEntry {
            offered: false,
            db,
            ttl_ms: self.governed.ttl_ms,
            keep_alive_ms: KeepAliveMs(self.keep_alive_ms.0.saturating_add(held)),
            outlive_ms: self.outlive_ms,
            lock: lock.clone(),
        })
    }
}

/// Looks at these locks.
pub fn sweep(locks: &[(&[u8], &SweepTerms)], companion_prefix: &[u8]) -> Plan {
    let keys: Vec<&[u8]> = locks.iter().map(|(key, _)| *key).collect();
    let mut step = Step::new(&keys, companion_prefix, &[]);
    for (_, terms) in locks {
        step.number(terms.ungoverned_ms);
        step.number(terms.governed.ttl_ms.0);
        step.bytes(if terms.governed.kept { b"k" } else { b"" });
        step.number(terms.governed.companion_ms);
    }
    step.done(&scripts::SWEEP)
}

/// What a sweep found of one lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swept {
    /// Its TTL, if it has one.
    pub ttl: Option<Duration>,
    /// It had none and was given one.
    pub given: bool,
    /// Its lease, if it has a record.
    pub lease: Option<RecordedLease>,
    /// What stands for its value: equal for equal ones. `None` for a deadline, and for a lock that is no
    /// string.
    pub value: Option<Bytes>,
}

/// Reads the answer of [`sweep`], one entry a lock; `None` in place of one that is gone. An answer
/// that is none of the script's own is `None` as a whole.
pub fn swept(answer: &Value) -> Option<Vec<Option<Swept>>> {
    answer.as_items()?.iter().map(entry).collect()
}

fn entry(value: &Value) -> Option<Option<Swept>> {
    let items = value.as_items()?;
    let number = |at: usize| items.get(at)?.as_integer();
    let word = |at: usize| items.get(at)?.as_bytes();
    let lease = match &word(0)?[..] {
        b"-" => return Some(None),
        b"U" => None,
        b"G" => Some(RecordedLease::read(word(3)?)?.0),
        _ => return None,
    };
    let ttl = u64::try_from(number(1)?).ok()?;
    Some(Some(Swept {
        ttl: (ttl > 0).then(|| Duration::from_millis(ttl)),
        given: number(2)? == 1,
        lease,
        value: word(4).filter(|form| !form.is_empty()).cloned(),
    }))
}
