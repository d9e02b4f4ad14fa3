//! Unusual facts about a lock, in words: what a person on call would say after reading its time line.

use std::time::Instant;

use lockwarden_control::clock::ms;
use lockwarden_control::text::durations::{duration, times};
use lockwarden_control::text::escape::spell;
use lockwarden_lock::db_key::DbKey;

use super::api;
use super::hold_times::{ENOUGH, enough};
use super::leases::{End, Former};
use super::lock_history::LockSeen;
use super::losses;
use super::wait_cycles::Circle;

/// The remarks on a lock, the most severe first. `lease` is the current one, if the lock is held.
pub(super) fn remarks(lock: &LockSeen, lease: Option<&api::Lock>, circles: &[Circle], now: Instant) -> Vec<String> {
    let mut remarks: Vec<String> = circles
        .iter()
        .filter(|circle| circle.edges.iter().any(|edge| edge.key == lock.key))
        .map(|circle| of_circle(circle, &lock.key))
        .collect();
    let holds = lock.holds.summary();
    let former = || lock.former.iter().rev();
    let lost = former().find(|former| former.end == End::Lost);
    remarks.extend(lost.and_then(|former| of_lost_lease(lock, former)));
    let told = match former().find(|former| former.outlasted_its_ttl()) {
        Some(former) => of_late_work(former, &holds),
        None => former().find(|former| former.end == End::RanOut).and_then(of_lost_holder),
    };
    remarks.extend(told);
    if lock.bypassed {
        remarks.push("it was changed around the proxy: somebody reaches Redis by another way".to_owned());
    }
    let Some(lease) = lease else {
        return remarks;
    };
    if lease.state == api::LockState::Unknown {
        remarks
            .push("it is unknown since the failover: nobody has looked yet whether the new primary has it".to_owned());
    }
    if lease.state == api::LockState::Overlap {
        remarks.push(
            "a former holder acted while the present one holds it: both may have worked on the same thing; \
             compare the fencing tokens that the guarded resource has seen"
                .to_owned(),
        );
    }
    if lease.ttl_left_ms.is_none() {
        remarks.push(
            "it has no TTL: if its holder dies, nobody gets it until somebody ends it; acquire with \
             SET key value NX PX ms"
                .to_owned(),
        );
    }
    if lease.kept_alive && lease.ttl_ms.is_some_and(|ttl| lease.age_ms > ttl) {
        remarks.push(format!(
            "it is held for {} with a TTL of {}: the proxy renews it while its holder is connected",
            duration(lease.age_ms),
            duration(lease.ttl_ms.unwrap_or(0))
        ));
    }
    if let Some(longest) = lock.waiting(now).map(|wait| wait.since).min() {
        let waits = duration(ms(now.saturating_duration_since(longest)));
        remarks.push(match times(lease.waiters, "connection") {
            one if lease.waiters == 1 => format!("{one} waits for it, for {waits}"),
            all => format!("{all} wait for it, the longest for {waits}"),
        });
    }
    remarks
}

fn of_circle(circle: &Circle, lock: &DbKey) -> String {
    let mut edges = circle.edges.clone();
    // Begins with the client that polls this lock.
    let first = edges.iter().position(|edge| edge.key == *lock);
    edges.rotate_left(first.unwrap_or(0));
    let held_by = |place: usize| {
        let before = (place + edges.len() - 1) % edges.len();
        spell(edges[before].key.bytes())
    };
    let members: Vec<String> = edges
        .iter()
        .enumerate()
        .map(|(place, edge)| {
            format!("{} holds {} and waits for {}", edge.waiter.application(), held_by(place), spell(edge.key.bytes()))
        })
        .collect();
    format!("they wait for each other: {}: take locks in one order everywhere", members.join("; "))
}

fn of_late_work(former: &Former, holds: &api::Holds) -> Option<String> {
    let worked = former.worked_ms.unwrap_or(0);
    let longest = worked.max(holds.p99_ms);
    let usual = match holds.count {
        0..ENOUGH => String::new(),
        count => format!("; of the last {} 99 of 100 took {} at most", times(count, "lease"), duration(holds.p99_ms)),
    };
    Some(format!(
        "{}'s work took {}, its TTL was {}{usual}: ask for at least {}, or extend while working",
        former.lease.caller.as_ref()?.application(),
        duration(worked),
        duration(former.lease.ttl_ms),
        duration(enough(longest))
    ))
}

fn of_lost_lease(lock: &LockSeen, former: &Former) -> Option<String> {
    let became = losses::aftermath(Some(lock), former.lease.fence);
    Some(format!(
        "{} lost {} (fencing token {}) in the failover{}",
        former.lease.caller.as_ref()?.application(),
        spell(lock.key.bytes()),
        former.lease.fence,
        became.words()
    ))
}

fn of_lost_holder(former: &Former) -> Option<String> {
    let since = match former.closed {
        true => {
            "it took the lock anew without having given it back: it does not release, or lost the lock to its own TTL"
        }
        false => "it has not been heard of since: it works on without the lock, or it died",
    };
    Some(format!(
        "{}'s lease ran out after its TTL of {}, and {since}",
        former.lease.caller.as_ref()?.application(),
        duration(former.lease.ttl_ms)
    ))
}
