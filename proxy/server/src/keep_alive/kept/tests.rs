use bytes::Bytes;

use super::*;

fn holder(session: SessionNumber) -> Holder {
    Holder {
        session,
        nudge: Arc::default(),
    }
}

fn key(name: &'static str) -> DbKey {
    DbKey::new(0, Bytes::from_static(name.as_bytes()))
}

/// Adds a lease of 3 s, or of as many ms as are said.
fn add(kept: &Kept, session: SessionNumber, name: &'static str, grant: u8, now: Instant) -> DbKey {
    add_for(kept, session, name, (grant, 3000), now)
}

fn add_for(
    kept: &Kept,
    session: SessionNumber,
    name: &'static str,
    (grant, ttl_ms): (u8, u64),
    now: Instant,
) -> DbKey {
    let key = key(name);
    let renewal = Renewal {
        lock: key.key.clone(),
        grant: Grant([grant; 16]),
        ttl_ms,
        keep_alive_ms: 60_000,
        outlive_ms: 600_000,
    };
    kept.add(
        &holder(session),
        Kin::Nobody,
        NamespaceId(0),
        key.clone(),
        renewal,
        now,
    );
    key
}

/// The leases that are due, by name.
fn due(kept: &Kept, now: Instant, most: usize) -> Vec<String> {
    let taken = kept.take_due(now, most).into_iter();
    let name = |(key, _): (DbKey, KeptLease)| String::from_utf8_lossy(&key.key).into_owned();
    taken.map(name).collect()
}

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

#[test]
fn a_lease_is_due_after_a_third_of_its_ttl() {
    let (kept, now) = (Kept::default(), Instant::now());
    add(&kept, 1, "a", 1, now);
    assert!(due(&kept, now, 10).is_empty());
    let later = now + SECOND;
    let taken = kept.take_due(later, 10);
    assert_eq!(taken.len(), 1);
    kept.renewed(&taken[0].0, &taken[0].1, 3 * SECOND, true, later);
    assert!(due(&kept, later, 10).is_empty());
    assert_eq!(kept.next_due(later), Some(later + SECOND));
}

#[test]
fn of_those_that_are_due_what_ends_first_goes_first() {
    let (kept, now) = (Kept::default(), Instant::now());
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
    let (kept, now) = (Kept::default(), Instant::now());
    add(&kept, 1, "a", 1, now);
    assert_eq!(due(&kept, now + SECOND, 9), ["a"]);
    assert!(due(&kept, now + SECOND + 200 * MS, 9).is_empty());
    let again = kept.take_due(now + SECOND + 250 * MS, 9);
    assert_eq!(again[0].1.due, now + SECOND, "since then it is due");
}

#[test]
fn what_is_nearly_due_goes_along_with_what_is() {
    let (kept, now) = (Kept::default(), Instant::now());
    add(&kept, 1, "a", 1, now);
    add(&kept, 1, "b", 1, now + 15 * MS);
    add(&kept, 1, "c", 1, now + 25 * MS);
    assert!(due(&kept, now + SECOND - MS, 9).is_empty());
    assert_eq!(due(&kept, now + SECOND, 9), ["a", "b"]);
    assert_eq!(kept.next_due(now + SECOND), Some(now + SECOND + 25 * MS));
}

#[test]
fn a_record_is_renewed_seldom() {
    let (kept, now) = (Kept::default(), Instant::now());
    add(&kept, 1, "a", 1, now);
    let mut later = now;
    let mut renewed = 0;
    for _ in 0..300 {
        later += SECOND;
        let (key, lease) = kept.take_due(later, 1).remove(0);
        let with_record = lease.record_until <= later;
        renewed += u32::from(with_record);
        kept.renewed(&key, &lease, 3 * SECOND, with_record, later);
    }
    // It outlives the lease by ten minutes and a quarter of that more.
    assert_eq!(renewed, 2, "in five minutes");
}

#[test]
fn nothing_is_kept_for_a_session_that_is_gone() {
    let (kept, now) = (Kept::default(), Instant::now());
    for (session, name) in [(1, "a"), (1, "b"), (2, "c")] {
        add(&kept, session, name, 1, now);
    }
    assert_eq!(kept.end_session(1).len(), 2);
    kept.all_are_due();
    assert_eq!(due(&kept, now, 9), ["c"]);
    assert!(kept.has(2) && !kept.has(1));
}

#[test]
fn a_lease_is_adopted_unless_there_is_a_newer_one() {
    let (kept, now) = (Kept::default(), Instant::now());
    let key = add(&kept, 1, "a", 1, now);
    let (_, orphan) = kept.end_session(1).remove(0);
    kept.adopt(&holder(2), key.clone(), orphan.clone(), now);
    assert_eq!(due(&kept, now, 10), ["a"], "it is renewed at once");
    assert_eq!(kept.end_session(2).len(), 1);
    add(&kept, 3, "a", 2, now);
    kept.adopt(&holder(2), key, orphan, now);
    assert!(kept.has(3) && !kept.has(2));
}

#[test]
fn a_renewal_of_an_older_lease_changes_nothing() {
    let (kept, now) = (Kept::default(), Instant::now());
    let key = add(&kept, 1, "a", 1, now);
    let (_, before) = kept.take_due(now + SECOND, 1).remove(0);
    add(&kept, 1, "a", 2, now);
    kept.ended(&key, &before);
    kept.postpone(&key, &before, now + 9 * SECOND);
    assert_eq!(due(&kept, now + SECOND, 9), ["a"], "the newer lease stays");
    kept.remove(&key, Some(9));
    assert!(!kept.is_empty(), "another session's word does not count");
    kept.remove(&key, Some(1));
    assert!(kept.is_empty());
}

#[tokio::test]
async fn the_renewing_task_is_woken_by_what_is_due_before_it_wakes_anyway() {
    let (kept, now) = (Kept::default(), Instant::now());
    let is_woken = async || {
        let woken = tokio::time::timeout(Duration::ZERO, kept.changed());
        woken.await.is_ok()
    };
    let first = add(&kept, 1, "a", 1, now);
    assert!(is_woken().await);
    let due = now + SECOND;
    assert_eq!(kept.next_due(now), Some(due));
    add(&kept, 1, "b", 1, now + MS);
    kept.remove(&first, None);
    assert!(!is_woken().await, "it is due later");
    let (_, orphan) = kept.end_session(1).remove(0);
    assert_eq!(kept.next_due(now), Some(due), "it may wake for nothing");
    add(&kept, 1, "c", 1, now + 2 * MS);
    assert!(!is_woken().await);
    kept.adopt(&holder(2), first, orphan, now);
    assert!(is_woken().await, "an orphan is due at once");
    assert_eq!(kept.next_due(now), Some(now));
}
