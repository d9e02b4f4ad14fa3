//! What an answer of the server means for registers and counters, whoever asked: a session over its own
//! connection or the proxy over one of its own.

use std::time::{Duration, Instant};

use bytes::Bytes;
use lockwarden_lock::evidence::DbKey;
use lockwarden_lock::lease::{End, LeaseEvent, Transition};
use lockwarden_lock::plan::{self, Renewed};
use lockwarden_resp::Value;

use super::ProxyState;
use crate::registry::renewals::KeptLease;
use crate::registry::undelivered::Undelivered;
use crate::ruleset::Active;
use crate::telemetry::vocabulary::{HoldEnd, KeepAliveOutcome, UndeliveredOutcome};

/// What the answer to a renewal over the holder's own connection means.
pub(crate) fn renewal_answered(
    shared: &ProxyState,
    key: &DbKey,
    lease: &KeptLease,
    answer: &Value,
) {
    let now = Instant::now();
    match plan::renewed(answer).as_deref() {
        Some([outcome]) => renewed(shared, key, lease, *outcome, true, now),
        _ => tracing::debug!(error = ?answer.as_error(), "a lease could not be renewed"),
    }
}

/// What came of a renewal. One that failed comes again by itself.
pub(crate) fn renewed(
    shared: &ProxyState,
    key: &DbKey,
    lease: &KeptLease,
    renewed: Renewed,
    with_record: bool,
    now: Instant,
) {
    let late = now.saturating_duration_since(lease.due);
    shared.metrics.renewal_lateness.observe(late.as_secs_f64());
    let outcome = match renewed {
        Renewed::For(ttl) => {
            shared.renewals.renewed(key, lease, ttl, with_record, now);
            let event = LeaseEvent::Extended { ttl: Some(ttl) };
            shared.mirror.apply(key, event, now);
            KeepAliveOutcome::Renewed
        }
        Renewed::Gone if now >= lease.ends => {
            lapsed(shared, key, late);
            KeepAliveOutcome::Ended
        }
        Renewed::Gone | Renewed::Ended => KeepAliveOutcome::Ended,
    };
    if outcome != KeepAliveOutcome::Renewed {
        shared.renewals.ended(key, lease);
    }
    count_renewal(shared, lease, outcome);
}

/// A lease was renewed too late. What was done with the lock since, nobody can say, so it is not made
/// again.
fn lapsed(shared: &ProxyState, key: &DbKey, late: Duration) {
    shared.metrics.lapsed.inc();
    tracing::warn!(
        key = %String::from_utf8_lossy(&key.key),
        late_ms = u64::try_from(late.as_millis()).unwrap_or(u64::MAX),
        "a lease ran out under its holder: Redis could not be asked in time to renew it"
    );
}

/// Counts what came of a renewal.
pub(crate) fn count_renewal(shared: &ProxyState, lease: &KeptLease, outcome: KeepAliveOutcome) {
    let active = shared.active.load();
    if let Some(details) = active.details.get(usize::from(lease.namespace.0)) {
        details.metrics.keep_alive.at(outcome).inc();
    }
}

/// What the answer to a mark means. Returns the lease where it says nothing.
pub(crate) fn mark_answered(
    shared: &ProxyState,
    lease: Undelivered,
    answer: Option<&Value>,
) -> Option<Undelivered> {
    match answer.and_then(Value::as_integer) {
        Some(1) => count_undelivered(shared, &lease, UndeliveredOutcome::Marked),
        Some(_) => count_undelivered(shared, &lease, UndeliveredOutcome::Over),
        None => return Some(lease),
    }
    None
}

/// The same for the proxy's own connection, which is the last to try.
pub(crate) fn last_mark_answered(shared: &ProxyState, lease: Undelivered, answer: &Value) {
    if let Some(lease) = mark_answered(shared, lease, Some(answer)) {
        let error = answer
            .as_error()
            .map(Bytes::as_ref)
            .map(String::from_utf8_lossy);
        tracing::debug!(?error, "a grant that nobody heard of could not be marked");
        count_undelivered(shared, &lease, UndeliveredOutcome::Failed);
    }
}

/// Counts what became of a grant that nobody heard of.
pub(crate) fn count_undelivered(
    shared: &ProxyState,
    lease: &Undelivered,
    outcome: UndeliveredOutcome,
) {
    let active = shared.active.load();
    if let Some(details) = active.details.get(usize::from(lease.namespace.0)) {
        details.metrics.undelivered.at(outcome).inc();
        if outcome == UndeliveredOutcome::Marked {
            tracing::info!(
                namespace = %details.name,
                key = %String::from_utf8_lossy(&lease.key.key),
                "the client did not read that it was granted this lock: its repetition will be granted"
            );
        }
    }
}

/// Counts a lease that is over.
pub(crate) fn count_hold(ended: &Transition, active: &Active) {
    let Some(details) = active.details.get(usize::from(ended.namespace.0)) else {
        return;
    };
    let end = match ended.end {
        End::Released => HoldEnd::Released,
        End::Expired => HoldEnd::Expired,
    };
    details
        .metrics
        .hold_duration
        .at(end)
        .observe(ended.held.as_secs_f64());
}
