//! What a reply of the server means for registers and counters, whether a session asked over its own connection or
//! the proxy over one of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use lockwarden_control::clock;
use lockwarden_control::random::refusal_id;
use lockwarden_control::ruleset::{Active, NamespaceDetails};
use lockwarden_control::telemetry::events::{Caller, EventKind};
use lockwarden_control::telemetry::logging::Example;
use lockwarden_control::telemetry::vocabulary::{
    DurabilityResult, HoldEnd, KeepAliveOutcome, Observation, UndeliveredOutcome,
};
use lockwarden_control::text::escape::spell;
use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::lease::{End, Lease, LeaseEvent, Transition};
use lockwarden_lock::plan::{self, Renewed, Shortened};
use lockwarden_lock::time::Tick;
use lockwarden_resp::Value;

use super::ProxyState;
use crate::registry::lost_holders::Lost;
use crate::registry::renewals::KeptLease;
use crate::registry::undelivered::Undelivered;

/// Handles the reply to a renewal over the holder's own connection.
pub(crate) fn renewal_answered(shared: &ProxyState, lease: &KeptLease, answer: &Value) {
    let now = Instant::now();
    match plan::renewed(answer).as_deref() {
        Some([outcome]) => renewed(shared, lease, *outcome, true, now),
        _ => tracing::debug!(error = ?answer.as_error(), "a lease could not be renewed"),
    }
}

/// Handles the outcome of a renewal. One that failed is repeated by itself.
pub(crate) fn renewed(shared: &ProxyState, lease: &KeptLease, renewed: Renewed, with_record: bool, now: Instant) {
    let (key, late) = (lease.lock(), Tick::from(now).saturating_duration_since(lease.due));
    shared.metrics.renewal_lateness.observe(late.as_secs_f64());
    let outcome = match renewed {
        Renewed::For(ttl) => {
            shared.renewals.renewed(lease, ttl, with_record, now);
            let event = LeaseEvent::Extended { ttl: Some(ttl) };
            shared.mirror.apply(key, event, now);
            KeepAliveOutcome::Renewed
        }
        Renewed::Gone | Renewed::Unrecorded => {
            let why = match renewed {
                Renewed::Gone if lease.ends <= now => "Redis could not be asked in time to renew it",
                Renewed::Gone => "its key was evicted or deleted on Redis itself",
                _ => "its record was evicted or deleted on Redis itself, so it cannot be renewed",
            };
            lapsed(shared, key, late, why);
            KeepAliveOutcome::Ended
        }
        Renewed::Ended => KeepAliveOutcome::Ended,
    };
    if outcome != KeepAliveOutcome::Renewed {
        shared.renewals.ended(lease);
    }
    count_renewal(shared, key, outcome);
}

/// A lease ran out whose renewal could not be promised.
pub(crate) fn unpromised(shared: &ProxyState, lease: &KeptLease, now: Instant) {
    let (key, late) = (lease.lock(), Tick::from(now).saturating_duration_since(lease.due));
    let members = shared.backend.address.authority.members();
    let why = format!("most of the {members} were not heard naming this primary, so another one may grant the lock");
    lapsed(shared, key, late, &why);
    shared.renewals.ended(lease);
    count_renewal(shared, key, KeepAliveOutcome::Ended);
}

/// A lease cannot be renewed any more. It is unknown what was done with the lock since, so the lease is not created
/// again.
fn lapsed(shared: &ProxyState, key: &DbKey, late: Duration, why: &str) {
    shared.metrics.lapsed.inc();
    tracing::warn!(
        key = %String::from_utf8_lossy(key.bytes()),
        late_ms = clock::ms(late),
        "a lease ran out under its holder: {why}"
    );
}

/// Counts the outcome of a renewal.
pub(crate) fn count_renewal(shared: &ProxyState, key: &DbKey, outcome: KeepAliveOutcome) {
    let active = shared.active.load();
    if let Some(details) = active.of_lock(key.bytes()) {
        details.metrics.keep_alive.at(outcome).inc();
    }
}

/// Counts whether replicas confirmed a renewal.
pub(crate) fn count_confirmation(shared: &ProxyState, key: &DbKey, result: DurabilityResult) {
    let active = shared.active.load();
    if let Some(details) = active.of_lock(key.bytes()) {
        details.metrics.durability(result);
    }
}

/// Handles the reply to a mark. Returns the lease if the reply says nothing.
pub(crate) fn mark_answered(shared: &ProxyState, lease: Undelivered, answer: Option<&Value>) -> Option<Undelivered> {
    match answer.and_then(Value::as_integer) {
        Some(1) => count_undelivered(shared, &lease, UndeliveredOutcome::Marked),
        Some(_) => count_undelivered(shared, &lease, UndeliveredOutcome::Over),
        None => return Some(lease),
    }
    None
}

/// The same for the proxy's own connection, which tries last.
pub(crate) fn last_mark_answered(shared: &ProxyState, lease: Undelivered, answer: &Value) {
    if let Some(lease) = mark_answered(shared, lease, Some(answer)) {
        let error = answer.as_error().map(Bytes::as_ref).map(String::from_utf8_lossy);
        tracing::debug!(?error, "a grant that nobody heard of could not be marked");
        count_undelivered(shared, &lease, UndeliveredOutcome::Failed);
    }
}

/// Counts what became of an undelivered grant.
pub(crate) fn count_undelivered(shared: &ProxyState, lease: &Undelivered, outcome: UndeliveredOutcome) {
    let active = shared.active.load();
    if let Some(details) = active.of_lock(lease.key.bytes()) {
        details.metrics.undelivered.at(outcome).inc();
        if outcome == UndeliveredOutcome::Marked {
            tracing::info!(
                namespace = %details.name,
                key = %String::from_utf8_lossy(lease.key.bytes()),
                "the client did not read that it was granted this lock: its repetition will be granted"
            );
        }
    }
}

/// The holder of a lease is gone, and the lease expires by its TTL.
pub(crate) fn holder_is_gone(shared: &ProxyState, key: &DbKey, active: &Active) {
    let lease = shared.mirror.lease(key);
    let (Some(details), Some(lease)) = (active.of_lock(key.bytes()), lease) else {
        return;
    };
    details.metrics.holders_lost.inc();
    let now = Instant::now();
    let ms = |time: Duration| u64::try_from(time.as_millis()).ok();
    let left = lease.ends.map(|ends| ends.saturating_duration_since(now));
    tracing::info!(
        namespace = %details.name,
        key = %String::from_utf8_lossy(key.bytes()),
        fence = lease.fence.0,
        held_ms = ms(now.saturating_duration_since(lease.since.instant())),
        ttl_ms = left.and_then(ms),
        "the holder of a lock is gone: its lease goes by its TTL"
    );
}

/// Handles the reply to a shortening.
pub(crate) fn shortened(shared: &ProxyState, lost: &Lost, answer: &Value, active: &Active) {
    let Lost { key, within, .. } = lost;
    let (fence, held) = match plan::shortened(answer) {
        Some(Shortened::Done { fence, held }) => (fence, held),
        Some(Shortened::Left) => return,
        None => {
            tracing::debug!(error = ?answer.as_error(), "a lease whose holder is gone could not be shortened");
            return;
        }
    };
    let Some(details) = active.of_lock(key.bytes()) else {
        return;
    };
    details.metrics.holders_lost.inc();
    let event = LeaseEvent::Extended { ttl: Some(*within) };
    shared.mirror.apply(key, event, Instant::now());
    shared.renewals.remove(key, None);
    let ms = |time: Duration| u64::try_from(time.as_millis()).ok();
    let mut entry = details.event(EventKind::HolderLost, key.clone());
    (entry.fence, entry.held_ms) = (Some(fence.0), ms(held));
    entry.ttl_ms = ms(*within);
    shared.events.leave(entry);
    tracing::info!(
        namespace = %details.name,
        key = %String::from_utf8_lossy(key.bytes()),
        fence = fence.0,
        held_ms = ms(held),
        ttl_ms = ms(*within),
        "the holder of a lock is gone: its lease was shortened"
    );
}

/// A lease was changed or ended before its time, and not by a proxy.
pub(crate) fn bypassed(shared: &ProxyState, active: &Active, key: &DbKey, believed: &Lease, now: Instant) {
    let Some(details) = active.of_lock(key.bytes()) else {
        return;
    };
    details.metrics.bypass.inc();
    let held = now.saturating_duration_since(believed.since.instant()).as_millis();
    let mut entry = details.event(EventKind::Ungoverned, key.clone());
    entry.fence = Some(believed.fence.0);
    entry.held_ms = u64::try_from(held).ok();
    shared.events.leave(entry);
}

/// A lease ran out unreleased, or its holder was told that it lasts longer.
pub(crate) fn expired(shared: &ProxyState, key: &DbKey, ended: &Transition, active: &Active) {
    if ended.end == End::Lost {
        return lost(shared, key, ended, active);
    }
    if let Some(details) = active.of_lock(key.bytes()) {
        count_hold(details, ended);
    }
    ran_out(shared, key, ended, active);
}

/// A lease ran out unreleased: reported if the connection that had taken it is open.
fn ran_out(shared: &ProxyState, key: &DbKey, ended: &Transition, active: &Active) {
    let caller = ended.session.and_then(|session| shared.clients.caller(session));
    if let Some(caller) = caller {
        observed(shared, Observation::RanOutConnected, key.clone(), caller, active);
    }
}

/// A lease was lost in a failover: its holder works on without knowing it.
pub(crate) fn lost(shared: &ProxyState, key: &DbKey, over: &Transition, active: &Active) {
    tell_lost(shared, key, over, active, "a lease was lost in the failover: its holder works on without the lock");
}

/// The same for a lease that is over: the previous server granted it when another server may have granted the lock
/// already.
pub(crate) fn lost_meanwhile(shared: &ProxyState, key: &DbKey, over: &Transition, active: &Active) {
    let words =
        "a lease was lost in the failover: it is over, and somebody else may have held the lock at the same time";
    tell_lost(shared, key, over, active, words);
}

fn tell_lost(shared: &ProxyState, key: &DbKey, over: &Transition, active: &Active, words: &str) {
    let Some(details) = active.of_lock(key.bytes()) else {
        return;
    };
    details.metrics.leases_lost.inc();
    let holder = over.session.and_then(|session| shared.clients.caller_of_late(session));
    let held_ms = clock::ms(over.held);
    let who = holder.as_ref().map_or_else(
        || "not known to this proxy".to_owned(),
        |holder| format!("{} ({})", holder.application(), holder.address),
    );
    let id = refusal_id();
    tracing::error!(
        %id,
        namespace = %details.name,
        key = %spell(key.bytes()),
        holder = %who,
        fence = over.fence.0,
        held_ms,
        "{words}"
    );
    let mut event = details.event(EventKind::Lost, key.clone());
    event.id = Some(id.into());
    event.caller = holder;
    event.fence = Some(over.fence.0);
    event.held_ms = Some(held_ms);
    shared.events.leave(event);
}

/// Counts a finding about how a client uses a lock, and logs it: one line for each kind, namespace and minute.
pub fn observed(shared: &ProxyState, kind: Observation, key: DbKey, caller: Arc<Caller>, active: &Active) {
    let Some(details) = active.of_lock(key.bytes()) else {
        return;
    };
    details.metrics.observations.at(kind).inc();
    let example =
        Example { key: Bytes::copy_from_slice(key.bytes()), name: caller.name.clone(), client: caller.address };
    let folder = &shared.observations;
    if let Some(line) = folder.observed(&details.name, kind, example, Instant::now()) {
        line.log();
    }
    let mut entry = details.event(EventKind::Observed(kind), key);
    entry.caller = Some(caller);
    shared.events.leave(entry);
}

/// Counts a lease that is over.
pub(crate) fn count_hold(details: &NamespaceDetails, ended: &Transition) {
    let end = match ended.end {
        End::Released => HoldEnd::Released,
        End::Expired => HoldEnd::Expired,
        // How long it was held depends on when its holder stops.
        End::Lost => return,
    };
    details.metrics.hold_duration.at(end).observe(ended.held.as_secs_f64());
}
