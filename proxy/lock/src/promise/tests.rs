use super::*;
use crate::era::{Era, Look, Reading};

const SECOND: Duration = Duration::from_secs(1);

fn terms() -> Terms<'static> {
    Terms { quarantine: 70 * SECOND, longest: Some(60 * SECOND), reach: Some(70 * SECOND), rules: "r" }
}

fn reckoned(age: Duration, now: Instant) -> Reckoned {
    let since = RedisTime(1_000_000);
    let at = |now| Look {
        run: "a".into(),
        epoch: None,
        rules: "r".into(),
        longest_ms: 70_000,
        now,
        age: None,
        tokens: None,
        anew: false,
    };
    let era = Era::after(None, None, &at(since));
    let redis = RedisTime(since.0 + u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
    let read = Reading { redis, sent: now, heard: now };
    Reckoned { era, read }
}

#[test]
fn a_free_lock_is_granted_once_the_quarantine_is_over() {
    let at = Instant::now();
    let free = |age| now(&terms(), Some(&reckoned(age, at)), Heard::Needless, at).free;
    assert_eq!(free(Duration::ZERO), Err(Withheld::For(71 * SECOND)));
    assert_eq!(free(70 * SECOND), Err(Withheld::For(SECOND)));
    assert_eq!(free(71 * SECOND), Ok(()));
    let unknown = now(&terms(), None, Heard::Needless, at);
    assert_eq!(unknown.free, Err(Withheld::NoEra));
}

#[test]
fn a_blip_of_ten_seconds_costs_nothing_and_a_longer_one_what_could_outlast_the_quarantine_elsewhere() {
    let at = Instant::now();
    let old = reckoned(1_000 * SECOND, at);
    let promise = |silent: u32| {
        let later = at + silent * SECOND;
        let fresh = reckoned(1_000 * SECOND, later);
        now(&terms(), Some(&fresh), Heard::ByMost(Some(at)), later)
    };
    for silent in [0, 10] {
        assert_eq!(promise(silent).free, Ok(()));
    }
    assert_eq!(promise(11).free, Err(Withheld::Unheard));
    assert_eq!(promise(11).longest, Some(59 * SECOND));
    assert_eq!(promise(70).longest, Some(Duration::ZERO));
    assert_eq!(promise(700).longest, Some(Duration::ZERO));
    let never = now(&terms(), Some(&old), Heard::ByMost(None), at);
    assert_eq!((never.free, never.longest), (Err(Withheld::Unheard), Some(Duration::ZERO)));
    // An entry that was not read for so long says nothing of what others have entered since.
    let unread = now(&terms(), Some(&old), Heard::ByMost(Some(at + 20 * SECOND)), at + 20 * SECOND);
    assert_eq!(unread.longest, Some(50 * SECOND));
}

#[test]
fn without_a_ceiling_nothing_is_promised_once_a_quarantine_elsewhere_may_be_over() {
    let at = Instant::now();
    let unbounded = Terms { longest: None, reach: None, ..terms() };
    let promise = |silent: u32| {
        let later = at + silent * SECOND;
        let fresh = reckoned(1_000 * SECOND, later);
        now(&unbounded, Some(&fresh), Heard::ByMost(Some(at)), later)
    };
    assert_eq!((promise(70).free, promise(70).longest), (Ok(()), None));
    assert_eq!(promise(71).free, Err(Withheld::Unheard));
    assert_eq!(promise(71).longest, Some(Duration::ZERO));
}

#[test]
fn rules_that_the_entry_does_not_know_yet_wait_for_the_longer_ones() {
    let at = Instant::now();
    let shorter = Terms { quarantine: 20 * SECOND, longest: Some(10 * SECOND), reach: Some(20 * SECOND), rules: "s" };
    let free = |terms: &Terms<'_>| now(terms, Some(&reckoned(30 * SECOND, at)), Heard::Needless, at).free;
    assert_eq!(free(&shorter), Err(Withheld::For(41 * SECOND)));
    let longer = Terms { quarantine: 90 * SECOND, ..terms() };
    assert_eq!(free(&longer), Err(Withheld::NoEra));
}

#[test]
fn of_a_lease_of_an_earlier_era_no_successor_is_known() {
    let at = Instant::now();
    let era = reckoned(500 * SECOND, at);
    let here = |granted, after: u32| {
        let heard = Heard::ByMost(Some(at));
        let now = at + after * SECOND;
        knows_successors(&terms(), Some(&era), heard, now, RedisTime(granted))
    };
    assert!(!here(999_000, 0) && !here(1_069_999, 0) && here(1_070_000, 0));
    assert!(here(1_070_000, 69) && !here(1_070_000, 70), "nothing is heard of another primary");
    let unknown = knows_successors(&terms(), None, Heard::Needless, at, RedisTime(u64::MAX));
    assert!(!unknown);
}

#[test]
fn most_is_more_than_half() {
    let at = Instant::now();
    let seconds = |heard: &[u32]| {
        let heard = heard.iter().map(|&after| (after > 0).then(|| at + after * SECOND));
        most_since(heard).map(|most| most.duration_since(at).as_secs())
    };
    assert_eq!(seconds(&[]), None);
    assert_eq!(seconds(&[3]), Some(3));
    assert_eq!(seconds(&[3, 5]), Some(3));
    assert_eq!(seconds(&[0, 5]), None);
    assert_eq!(seconds(&[9, 0, 5]), Some(5));
    assert_eq!(seconds(&[9, 0, 0]), None);
    assert_eq!(seconds(&[9, 3, 5, 4]), Some(4));
}
