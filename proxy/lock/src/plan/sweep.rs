//! The step of the sweeper: it describes locks that were found on the server, and sets a TTL for those without one. A
//! lease that is enforced only now gets the TTL that it would have been granted with; a lock without a record gets the
//! ceiling if its namespace says so.

use std::time::Duration;

use bytes::Bytes;
use lockwarden_resp::Value;

use super::index::RecordedLease;
use super::lease::{LeaseTtl, adopted_ttl, keep_alive_ms, outlive};
use super::{IndexEntry, Plan, Step};
use crate::db_key::DbKey;
use crate::decision::Obligations;
use crate::rules::Rules;
use crate::scripts;
use crate::time::{KeepAliveMs, OutliveMs};

/// The TTLs that a sweep sets for locks of one namespace without a TTL.
#[derive(Clone, Copy, Debug)]
pub struct SweepTerms {
    /// For one without a record, ms; 0: none.
    ungoverned_ms: u64,
    /// For one with a record; a TTL of 0: none, but its record lives longer.
    governed: LeaseTtl,
    keep_alive_ms: KeepAliveMs,
    outlive_ms: OutliveMs,
}

impl SweepTerms {
    /// Derived from the namespace's rules, and from its policies' obligations for an acquire without a TTL.
    pub fn new(obligations: &Obligations, rules: &Rules) -> SweepTerms {
        SweepTerms {
            ungoverned_ms: adopted_ttl(obligations, rules),
            governed: LeaseTtl::found(obligations, rules),
            keep_alive_ms: keep_alive_ms(obligations, rules),
            outlive_ms: outlive(obligations, rules),
        }
    }

    /// The keep-alive of a lease that just got its TTL: as for one that is granted now. `None` if it has none.
    pub fn kept(&self, lock: DbKey, lease: &RecordedLease) -> Option<IndexEntry> {
        let held = u64::try_from(lease.held.as_millis()).unwrap_or(u64::MAX);
        self.governed.kept.then(|| IndexEntry {
            offered: false,
            ttl_ms: self.governed.ttl_ms,
            keep_alive_ms: KeepAliveMs(self.keep_alive_ms.0.saturating_add(held)),
            outlive_ms: self.outlive_ms,
            lock,
        })
    }
}

/// Examines these locks.
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

/// The result of a sweep for one lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swept {
    /// Its TTL, if it has one.
    pub ttl: Option<Duration>,
    /// It had none and was given one.
    pub given: bool,
    /// Its lease, if it has a record.
    pub lease: Option<RecordedLease>,
    /// A fingerprint of its value: equal for equal values. `None` for a deadline, and for a lock that is no string.
    pub value: Option<Bytes>,
}

/// Parses the answer of [`sweep`], one entry per lock; `None` in place of one that is gone. `None` as a whole if the
/// answer has not the script's form.
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
