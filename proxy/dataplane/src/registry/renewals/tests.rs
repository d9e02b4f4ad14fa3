use std::sync::Arc;

use bytes::Bytes;
use lockwarden_lock::rules::KeepAliveTtl;
use lockwarden_lock::time::{KeepAliveMs, OutliveMs, TtlMs};
use lockwarden_lock::token::Identity;

use super::*;

fn holder(session: u64) -> Holder {
    Holder { session: SessionNumber(session), wakeup: Arc::default() }
}

fn key(name: &'static str) -> DbKey {
    DbKey::new(0, name.as_bytes())
}

/// Adds a lease of 3 s, or of as many ms as are said.
fn add(kept: &Renewals, session: u64, name: &'static str, grant: u8, now: Instant) -> DbKey {
    add_for(kept, session, name, (grant, 3000), now)
}

fn add_for(kept: &Renewals, session: u64, name: &'static str, (grant, ttl_ms): (u8, u64), now: Instant) -> DbKey {
    kept.add(&holder(session), SameClient::Nobody, renewal(name, grant, ttl_ms), now);
    key(name)
}

/// The same, of a client that other connections may go on for.
fn add_of_client(kept: &Renewals, session: u64, name: &'static str, now: Instant) -> DbKey {
    let client = SameClient::Identity(Identity([1; 16]));
    kept.add(&holder(session), client, renewal(name, 1, 3000), now);
    key(name)
}

fn renewal(name: &'static str, grant: u8, ttl_ms: u64) -> Renewal {
    Renewal {
        lock: key(name),
        grant: Grant([grant; 16]),
        ttl_ms: TtlMs(ttl_ms),
        grace_ms: 0,
        keep_alive_ms: KeepAliveMs(60_000),
        keep_alive_ttl: KeepAliveTtl::Proxy,
        outlive_ms: OutliveMs(600_000),
    }
}

/// What is to be written to the index, as `entry@ms`.
fn written(work: &IndexWork) -> Vec<String> {
    let shown = |(ms, entry): &(i64, Bytes)| format!("{}@{ms}", String::from_utf8_lossy(entry));
    work.written.iter().map(shown).collect()
}

/// The leases that are due, by name.
fn due(kept: &Renewals, now: Instant, most: usize) -> Vec<String> {
    let taken = kept.take_due(now, most).into_iter();
    let name = |lease: KeptLease| String::from_utf8_lossy(lease.lock().bytes()).into_owned();
    taken.map(name).collect()
}

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

#[test]
fn a_lease_is_due_after_a_third_of_its_ttl() {
    let (kept, now) = (Renewals::default(), Instant::now());
    add(&kept, 1, "a", 1, now);
    assert!(due(&kept, now, 10).is_empty());
    let later = now + SECOND;
    let taken = kept.take_due(later, 10);
    assert_eq!(taken.len(), 1);
    kept.renewed(&taken[0], 3 * SECOND, true, later);
    assert!(due(&kept, later, 10).is_empty());
    assert_eq!(kept.next_due(later, true), Some(later + SECOND));
}

#[test]
fn of_those_that_are_due_what_ends_first_goes_first() {
    let (kept, now) = (Renewals::default(), Instant::now());
    add_for(&kept, 1, "long", (1, 30_000), now);
    let later = now + 9 * SECOND;
    add_for(&kept, 1, "short", (1, 3000), later);
    add_for(&kept, 1, "shorter", (1, 2700), later);
    // By now all are due, the long one for longest.
    let later = now + 11 * SECOND;
    assert_eq!(due(&kept, later, 2), ["shorter", "short"]);
    assert_eq!(due(&kept, later, 2), ["long"]);
}

#[test]
fn what_was_taken_and_not_answered_is_due_again_and_as_late_as_it_is() {
    let (kept, now) = (Renewals::default(), Instant::now());
    add(&kept, 1, "a", 1, now);
    assert_eq!(due(&kept, now + SECOND, 9), ["a"]);
    assert!(due(&kept, now + SECOND + 200 * MS, 9).is_empty());
    let again = kept.take_due(now + SECOND + 250 * MS, 9);
    assert_eq!(again[0].due, now + SECOND, "since then it is due");
}

#[test]
fn what_is_nearly_due_goes_along_with_what_is() {
    let (kept, now) = (Renewals::default(), Instant::now());
    add(&kept, 1, "a", 1, now);
    add(&kept, 1, "b", 1, now + 15 * MS);
    add(&kept, 1, "c", 1, now + 25 * MS);
    assert!(due(&kept, now + SECOND - MS, 9).is_empty());
    assert_eq!(due(&kept, now + SECOND, 9), ["a", "b"]);
    assert_eq!(kept.next_due(now + SECOND, true), Some(now + SECOND + 25 * MS));
}

#[test]
fn a_record_is_renewed_seldom() {
    let (kept, now) = (Renewals::default(), Instant::now());
    add(&kept, 1, "a", 1, now);
    let mut later = now;
    let mut renewed = 0;
    for _ in 0..300 {
        later += SECOND;
        let lease = kept.take_due(later, 1).remove(0);
        let with_record = lease.record_until <= later;
        renewed += u32::from(with_record);
        kept.renewed(&lease, 3 * SECOND, with_record, later);
    }
    // It outlives the lease by ten minutes and a quarter of that more.
    assert_eq!(renewed, 2, "in five minutes");
}

#[test]
fn nothing_is_kept_for_a_session_that_is_gone() {
    let (kept, now) = (Renewals::default(), Instant::now());
    for (session, name) in [(1, "a"), (1, "b"), (2, "c")] {
        add(&kept, session, name, 1, now);
    }
    assert_eq!(kept.end_session(SessionNumber(1)).len(), 2);
    kept.all_are_due();
    assert_eq!(due(&kept, now, 9), ["c"]);
    assert!(kept.has(SessionNumber(2)) && !kept.has(SessionNumber(1)));
}

#[test]
fn a_lease_is_adopted_unless_there_is_a_newer_one() {
    let (kept, now) = (Renewals::default(), Instant::now());
    add(&kept, 1, "a", 1, now);
    let orphan = kept.end_session(SessionNumber(1)).remove(0);
    kept.adopt(&holder(2), orphan.clone(), now);
    assert_eq!(due(&kept, now, 10), ["a"], "it is renewed at once");
    assert_eq!(kept.end_session(SessionNumber(2)).len(), 1);
    add(&kept, 3, "a", 2, now);
    kept.adopt(&holder(2), orphan, now);
    assert!(kept.has(SessionNumber(3)) && !kept.has(SessionNumber(2)));
}

#[test]
fn a_renewal_of_an_older_lease_changes_nothing() {
    let (kept, now) = (Renewals::default(), Instant::now());
    let key = add(&kept, 1, "a", 1, now);
    let before = kept.take_due(now + SECOND, 1).remove(0);
    add(&kept, 1, "a", 2, now);
    kept.ended(&before);
    kept.postpone(&before, now + 9 * SECOND);
    assert_eq!(due(&kept, now + SECOND, 9), ["a"], "the newer lease stays");
    kept.remove(&key, Some(SessionNumber(9)));
    assert!(!kept.is_empty(), "another session's word does not count");
    kept.remove(&key, Some(SessionNumber(1)));
    assert!(kept.is_empty());
}

#[tokio::test]
async fn the_renewing_task_is_woken_by_what_is_due_before_it_wakes_anyway() {
    let (kept, now) = (Renewals::default(), Instant::now());
    let is_woken = async || {
        let woken = tokio::time::timeout(Duration::ZERO, kept.changed());
        woken.await.is_ok()
    };
    let first = add(&kept, 1, "a", 1, now);
    assert!(is_woken().await);
    let due = now + SECOND;
    assert_eq!(kept.next_due(now, true), Some(due));
    add(&kept, 1, "b", 1, now + MS);
    kept.remove(&first, None);
    assert!(!is_woken().await, "it is due later");
    let orphan = kept.end_session(SessionNumber(1)).remove(0);
    assert_eq!(kept.next_due(now, true), Some(due), "it may wake for nothing");
    add(&kept, 1, "c", 1, now + 2 * MS);
    assert!(!is_woken().await);
    kept.adopt(&holder(2), orphan, now);
    assert!(is_woken().await, "an orphan is due at once");
    assert_eq!(kept.next_due(now, true), Some(now));
}

#[test]
fn a_lease_comes_into_the_index_when_it_is_held_for_a_while_and_three_times_in_a_ttl() {
    let (kept, now) = (Renewals::default(), Instant::now());
    let key = add_of_client(&kept, 1, "a", now);
    assert!(!kept.has_listing(now + 249 * MS));
    let entry = "k0:3000:60000:600000:a@1500";
    let mut later = now + 250 * MS;
    for _ in 0..3 {
        assert!(kept.has_listing(later));
        assert_eq!(written(&kept.take_listing(later, 9)), [entry]);
        assert!(!kept.has_listing(later + 999 * MS));
        let lease = kept.take_due(later + SECOND, 1).remove(0);
        later += SECOND;
        kept.renewed(&lease, 3 * SECOND, false, later);
    }
    kept.remove(&key, None);
    let work = kept.take_listing(later, 9);
    assert_eq!((work.written.len(), work.removed.len()), (0, 1));
}

#[test]
fn a_lease_with_a_short_ttl_comes_into_the_index_after_a_sixth_of_it() {
    let (kept, now) = (Renewals::default(), Instant::now());
    let client = SameClient::Identity(Identity([1; 16]));
    kept.add(&holder(1), client, renewal("a", 1, 600), now);
    assert!(!kept.has_listing(now + 99 * MS) && kept.has_listing(now + 100 * MS));
}

#[test]
fn a_short_lease_and_one_that_nobody_else_could_keep_alive_are_never_listed() {
    let (kept, now) = (Renewals::default(), Instant::now());
    let short = add_of_client(&kept, 1, "a", now);
    add(&kept, 1, "b", 1, now);
    kept.remove(&short, None);
    let work = kept.take_listing(now + SECOND, 9);
    assert!(work.written.is_empty() && work.removed.is_empty());
    assert!(!kept.has_listing(now + SECOND));
}

/// Another proxy may come through where this one does not.
#[test]
fn for_a_lease_that_could_not_be_renewed_in_time_the_proxy_does_not_answer() {
    let (kept, now) = (Renewals::default(), Instant::now());
    add_of_client(&kept, 1, "a", now);
    assert!(kept.take_listing(now + 1501 * MS, 9).written.is_empty());
}

#[test]
fn a_lease_is_left_to_others_with_the_time_at_which_its_client_went() {
    let (kept, now) = (Renewals::default(), Instant::now());
    for name in ["a", "b"] {
        add_of_client(&kept, 1, name, now);
    }
    assert_eq!(kept.take_listing(now + 250 * MS, 9).written.len(), 2);
    let left = kept.end_session(SessionNumber(1));
    kept.offer(&left[0], Some(now + 900 * MS));
    kept.offer(&left[1], None);
    assert_eq!(kept.next_due(now + SECOND, true), Some(now + SECOND));
    let work = kept.take_listing(now + SECOND, 9);
    assert_eq!(work.removed.len(), 1);
    assert_eq!(written(&work)[0], "o0:3000:60000:600000:a@-100");
    assert!(written(&work)[1].starts_with("k0:3000:60000:600000:b@"));
    // A connection that takes the lease over withdraws the offer.
    kept.offer(&left[0], Some(now));
    kept.adopt(&holder(2), left[0].clone(), now);
    let work = kept.take_listing(now, 9);
    assert_eq!(written(&work), ["k0:3000:60000:600000:a@1500"]);
    assert_eq!(work.removed.len(), 1, "the offer");
}

#[test]
fn what_waits_for_the_index_is_bounded() {
    let (kept, now) = (Renewals::default(), Instant::now());
    add_of_client(&kept, 1, "a", now);
    let left = kept.end_session(SessionNumber(1)).remove(0);
    for _ in 0..70_000 {
        kept.offer(&left, None);
    }
    for n in 0..70_000_u32 {
        kept.is_stale(Bytes::copy_from_slice(&n.to_be_bytes()));
    }
    let work = kept.take_listing(now, usize::MAX);
    assert_eq!((work.written.len(), work.removed.len()), (65_536, 65_536));
}
