use super::*;

fn place(port: u16) -> Place {
    Place { host: "s".to_owned(), port }
}

fn named(port: u16, epoch: u64) -> Named {
    Named { place: place(port), epoch }
}

/// Sentinels with these ports, of the backend's URL.
fn of(ports: &[u16]) -> Members {
    Members::new(ports.iter().copied().map(place), 10)
}

/// The sentinel of a number has the port of that number, unless it is said otherwise.
fn id(number: u16) -> Option<String> {
    Some(format!("{number:040x}"))
}

fn other(port: u16) -> Other {
    Other { place: place(port), id: id(port) }
}

fn asked(number: Option<u16>, named: Named, others: &[u16]) -> Asked {
    Asked { named, id: number.and_then(id), others: others.iter().copied().map(other).collect() }
}

/// The sentinel at this port names the primary and these others.
fn names(all: &mut Members, port: u16, others: &[u16], at: Instant) {
    all.answered(&place(port), asked(Some(port), named(100, 4), others), at);
}

fn ports(all: &Members) -> Vec<u16> {
    all.places().into_iter().map(|place| place.port).collect()
}

#[test]
fn most_are_heard_since_the_moment_at_which_the_last_of_them_was_asked() {
    let now = Instant::now();
    let at = |seconds| now + Duration::from_secs(seconds);
    let mut all = of(&[1, 2, 3]);
    names(&mut all, 1, &[], at(1));
    assert_eq!(all.heard_by_most(&named(100, 4), at(4)), None);
    names(&mut all, 2, &[], at(3));
    assert_eq!(all.heard_by_most(&named(100, 4), at(4)), Some(at(1)));
    names(&mut all, 3, &[], at(2));
    assert_eq!(all.heard_by_most(&named(100, 4), at(4)), Some(at(2)));
    // What one said before it was silent stays true; and one that names another is none of them.
    all.failed(&place(2), SentinelError::Late);
    assert_eq!(all.heard_by_most(&named(100, 4), at(4)), Some(at(2)));
    all.answered(&place(2), asked(Some(2), named(200, 5), &[]), at(4));
    assert_eq!(all.heard_by_most(&named(100, 4), at(4)), Some(at(1)));
    assert_eq!(all.heard_by_most(&named(200, 5), at(4)), None);
}

#[test]
fn one_that_was_replaced_is_forgotten_once_no_other_names_it() {
    let now = Instant::now();
    let at = |seconds| now + Duration::from_secs(seconds);
    let mut all = of(&[1]);
    names(&mut all, 1, &[2, 3], now);
    for number in 1..=3 {
        names(&mut all, number, &[2, 3], now);
    }
    assert_eq!(all.heard(now), (3, 3));
    // The second stands at another address now; the third is silent, but the first goes on naming it.
    for seconds in [30, 60, 90] {
        names(&mut all, 1, &[3, 4], at(seconds));
        names(&mut all, 4, &[1, 3], at(seconds));
    }
    assert_eq!(all.heard(at(90)), (2, 3));
    assert_eq!(ports(&all), [1, 3, 4]);
    assert_eq!(all.heard_by_most(&named(100, 4), at(90)), Some(at(90)));
}

#[test]
fn one_that_answers_is_known_although_all_that_named_it_are_gone() {
    let now = Instant::now();
    let at = |seconds| now + Duration::from_secs(seconds);
    let mut all = of(&[1]);
    names(&mut all, 1, &[2, 3], now);
    for seconds in [30, 60, 90, 120, 150] {
        all.failed(&place(1), SentinelError::Late);
        names(&mut all, 3, &[1], at(seconds));
    }
    assert_eq!(all.heard(at(150)), (1, 2));
    assert_eq!(ports(&all), [1, 3]);
}

#[test]
fn the_friends_of_one_foreign_sentinel_do_not_count() {
    let now = Instant::now();
    for order in [[1, 2, 3], [3, 2, 1], [2, 3, 1]] {
        let mut all = of(&[1, 2, 3]);
        for _ in 0..2 {
            for number in order {
                match number {
                    3 => names(&mut all, 3, &[66, 67], now),
                    _ => names(&mut all, number, &[3 - number, 5], now),
                }
            }
        }
        assert_eq!(ports(&all), [1, 2, 3, 5], "{order:?}");
        // Alone for less than a minute, it does not bring them either.
        let later = now + Duration::from_secs(50);
        names(&mut all, 3, &[66, 67], later);
        assert_eq!(ports(&all), [1, 2, 3, 5], "{order:?}");
    }
}

#[test]
fn a_name_and_its_address_are_one_sentinel() {
    let now = Instant::now();
    // The URL has names, 1 to 3; the sentinels know one another by addresses, 11 to 13.
    let mut all = of(&[1, 2, 3]);
    let by_address = |number: u16| -> Vec<Other> {
        let others = (1..=3).filter(|other| *other != number);
        others.map(|other| Other { place: place(10 + other), id: id(other) }).collect()
    };
    let say = |all: &mut Members, at: u16, number: u16, now: Instant| {
        let told = Asked { named: named(100, 4), id: id(number), others: by_address(number) };
        all.answered(&place(at), told, now);
    };
    for number in [1, 2] {
        say(&mut all, number, number, now);
    }
    all.failed(&place(3), SentinelError::Late);
    say(&mut all, 1, 1, now);
    say(&mut all, 13, 3, now);
    assert_eq!(all.heard(now), (3, 4), "who is behind the third name is not known yet");
    say(&mut all, 3, 3, now);
    assert_eq!(all.heard(now), (3, 3));
    // The name leads nowhere for a while, and the sentinel is still there.
    all.failed(&place(3), SentinelError::Late);
    assert_eq!(all.heard(now), (3, 3));
    // Sentinels of Redis before 6.2 do not say who they are.
    let told = Asked { named: named(100, 4), id: None, others: by_address(2) };
    all.answered(&place(2), told, now);
    assert_eq!(all.heard(now), (3, 3));
}

#[test]
fn two_names_of_one_sentinel_count_once() {
    let now = Instant::now();
    let mut all = of(&[1, 2, 3]);
    for (at, number) in [(1, 1), (2, 1), (3, 3)] {
        all.answered(&place(at), asked(Some(number), named(100, 4), &[]), now);
    }
    assert_eq!(all.heard(now), (2, 2));
    assert_eq!(all.ranking(now), [(named(100, 4), 2)]);
}

#[test]
fn only_so_many_sentinels_are_learned() {
    let mut all = of(&[1]);
    let others: Vec<u16> = (2..100).collect();
    names(&mut all, 1, &others, Instant::now());
    assert_eq!(all.places().len(), 10);
}
