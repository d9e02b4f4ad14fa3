//! The step of keep-alive: many leases in one call, each with its new TTL.

use std::time::Duration;

use lockwarden_resp::Value;
use smallvec::SmallVec;

use super::step::Digits;
use super::{Plan, Step};
use crate::db_key::DbKey;
use crate::rules::KeepAliveTtl;
use crate::scripts;
use crate::time::{KeepAliveMs, OutliveMs, TtlMs};
use crate::token::Grant;

/// A record gets this fraction of its extra lifetime as a reserve, so that a renewal seldom has to set its TTL again.
const RECORD_RESERVE: u64 = 4;

/// What keep-alive needs to renew a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// The lock.
    pub lock: DbKey,
    /// The lease.
    pub grant: Grant,
    /// The TTL that each renewal sets, including its grace.
    pub ttl_ms: TtlMs,
    /// How much of that is grace, ms.
    pub grace_ms: u64,
    /// The age up to which it is renewed: a default TTL, or any TTL.
    pub keep_alive_ms: KeepAliveMs,
    /// The TTLs to which that age applies. Others are renewed until the requested TTL ends.
    pub keep_alive_ttl: KeepAliveTtl,
    /// How much longer the companion lives.
    pub outlive_ms: OutliveMs,
}

impl Renewal {
    /// The age up to which it is renewed, as an argument of the script.
    fn age(&self) -> SmallVec<[u8; 24]> {
        let mut word = SmallVec::new();
        word.push(match self.keep_alive_ttl {
            KeepAliveTtl::Proxy => b'i',
            KeepAliveTtl::All => b'a',
        });
        word.extend_from_slice(Digits::new().of(self.keep_alive_ms.0));
        word
    }

    /// How long a record's TTL is sufficient after a renewal has set it.
    pub fn record_reserve(&self) -> Duration {
        Duration::from_millis(self.outlive_ms.0 / RECORD_RESERVE)
    }
}

/// The result of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewed {
    /// It has this TTL now.
    For(Duration),
    /// There is nothing left to keep alive.
    Ended,
    /// The lock is gone, although its record says that it is held and has keep-alive.
    Gone,
    /// There is no record of it.
    Unrecorded,
}

/// Renews leases in one database. Each comes with the longest TTL that may be promised now, if that is limited, and
/// with whether the TTL of its record must be set again.
pub fn renew<'a>(
    leases: impl Iterator<Item = (&'a Renewal, Option<u64>, bool)> + Clone,
    companion_prefix: &[u8],
) -> Plan {
    let locks: SmallVec<[&[u8]; 1]> = leases.clone().map(|(lease, ..)| lease.lock.bytes()).collect();
    let mut step = Step::new(&locks, companion_prefix, &[]);
    for (lease, longest_ms, with_record) in leases {
        step.bytes(&lease.grant.0);
        step.number(longest_ms.map_or(lease.ttl_ms.0, |longest| longest.min(lease.ttl_ms.0)));
        step.bytes(&lease.age());
        step.number(lease.grace_ms);
        if with_record {
            let reserve = lease.outlive_ms.0 / RECORD_RESERVE;
            let lives = lease.ttl_ms.0.saturating_add(lease.outlive_ms.0);
            step.number(lives.saturating_add(reserve));
        } else {
            step.bytes(b"");
        }
    }
    step.done(&scripts::RENEW)
}

/// Parses the answer of [`renew`], one entry per lease. `None` if it has not the script's form.
pub fn renewed(answer: &Value) -> Option<Vec<Renewed>> {
    let one = |value: &Value| match value.as_integer()? {
        // The lock is not created again: a DEL that bypassed the proxy looks the same as the end of the TTL.
        -2 => Some(Renewed::Unrecorded),
        -1 => Some(Renewed::Gone),
        0 => Some(Renewed::Ended),
        ms => Some(Renewed::For(Duration::from_millis(u64::try_from(ms).ok()?))),
    };
    answer.as_items()?.iter().map(one).collect()
}
