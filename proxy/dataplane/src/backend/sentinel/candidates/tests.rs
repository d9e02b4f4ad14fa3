use super::*;
use crate::backend::heard::HEARD_WITHIN;

fn place(port: u16) -> Place {
    Place { host: "s".to_owned(), port }
}

fn named(port: u16, epoch: u64) -> Named {
    Named { place: place(port), epoch }
}

/// Sentinels 1 to 3, of the backend's URL.
struct Three(Candidates);

impl Three {
    fn new() -> Three {
        Three(Candidates::new([1, 2, 3].into_iter().map(place), 10))
    }

    /// The same, which have named this one, and it has said so.
    fn following(named: &Named, now: Instant) -> Three {
        let mut all = Three::new();
        for sentinel in 1..=3 {
            all.say(sentinel, named, now);
        }
        all.0.is_primary(named);
        all
    }

    fn say(&mut self, sentinel: u16, named: &Named, now: Instant) {
        let asked = Asked { named: named.clone(), id: None, others: Vec::new() };
        self.0.told(&place(sentinel), Ok(asked), now, now);
    }

    fn fall_silent(&mut self, sentinel: u16, now: Instant) {
        self.0.told(&place(sentinel), Err(SentinelError::Late), now, now);
    }

    #[track_caller]
    fn follow(&self, named: &Named) {
        assert_eq!(self.0.followed(), Some(named));
    }
}

#[test]
fn one_foreign_sentinel_moves_nobody_whatever_its_epoch() {
    let now = Instant::now();
    let (ours, foreign) = (named(100, 4), named(666, 99));
    let mut all = Three::following(&ours, now);
    all.say(3, &foreign, now);
    all.follow(&ours);
    for number in 0..30 {
        let at = now + Duration::from_secs(number);
        for sentinel in 1..=2 {
            all.say(sentinel, &ours, at);
        }
        all.say(3, &named(666, 100 + number), at);
        all.follow(&ours);
    }
    // The others are restarted; it is heard alone.
    let later = now + Duration::from_secs(100);
    for sentinel in 1..=2 {
        all.fall_silent(sentinel, later);
    }
    all.say(3, &named(666, 200), later);
    all.follow(&ours);
    assert_eq!(all.0.contenders(later), [named(666, 200)]);
}

#[test]
fn one_that_grows_the_epoch_of_the_primary_itself_closes_no_connection() {
    let now = Instant::now();
    let mut all = Three::following(&named(100, 4), now);
    all.say(3, &named(100, 99), now);
    all.follow(&named(100, 4));
    assert_eq!(all.0.contenders(now), []);
    all.say(2, &named(100, 99), now);
    all.follow(&named(100, 99));
}

#[test]
fn what_proves_its_descent_is_followed_at_once_and_what_was_there_before_is_not_again() {
    let now = Instant::now();
    let (old, new) = (named(100, 4), named(200, 5));
    let mut all = Three::following(&old, now);
    all.0.descends(&new, now);
    all.follow(&old);
    all.say(1, &new, now);
    all.follow(&old);
    assert_eq!(all.0.contenders(now), std::slice::from_ref(&new));
    all.0.descends(&new, now);
    all.follow(&new);
    for sentinel in 2..=3 {
        all.say(sentinel, &old, now);
        all.follow(&new);
    }
    all.0.is_primary(&new);
    // One that was cut off comes back with what it knew, and the others are silent.
    let later = now + 2 * HEARD_WITHIN;
    all.say(3, &old, later);
    all.follow(&new);
    assert_eq!(all.0.members.heard(later), (1, 3));
}

#[test]
fn what_most_name_is_followed_without_a_proof() {
    let now = Instant::now();
    let (old, new) = (named(100, 4), named(200, 5));
    let mut all = Three::following(&old, now);
    all.say(1, &new, now);
    all.fall_silent(3, now);
    all.follow(&old);
    all.say(2, &new, now);
    all.follow(&new);
}

#[test]
fn while_the_primary_cannot_be_reached_most_of_those_that_are_heard_suffice() {
    let now = Instant::now();
    let (old, new) = (named(100, 4), named(200, 5));
    let mut all = Three::following(&old, now);
    for sentinel in 2..=3 {
        all.fall_silent(sentinel, now);
    }
    all.say(1, &new, now);
    all.follow(&old);
    all.0.is_not_primary(&old, now);
    all.follow(&new);
    // But what is older leads back.
    all.0.is_not_primary(&new, now);
    all.say(1, &old, now);
    all.follow(&new);
}

#[test]
fn at_the_start_the_first_that_answers_does_not_decide_alone() {
    let now = Instant::now();
    let (ours, foreign) = (named(100, 4), named(666, 99));
    let mut all = Three::new();
    all.say(3, &foreign, now);
    assert_eq!(all.0.followed(), None);
    all.say(2, &ours, now);
    assert_eq!(all.0.followed(), None);
    all.say(1, &ours, now);
    all.follow(&ours);

    let mut few = Three::new();
    few.say(1, &ours, now);
    few.fall_silent(2, now);
    assert_eq!(few.0.followed(), None);
    few.fall_silent(3, now);
    few.follow(&ours);
}

#[test]
fn of_two_that_are_named_as_often_the_newer_is_tried_first_and_then_the_other() {
    let now = Instant::now();
    let (ours, foreign) = (named(100, 4), named(666, 99));
    let mut all = Three::new();
    all.fall_silent(1, now);
    all.say(2, &ours, now);
    all.say(3, &foreign, now);
    all.follow(&foreign);
    all.0.is_not_primary(&foreign, now);
    all.follow(&foreign);
    let late = now + TRIED_FOR;
    all.say(2, &ours, late);
    all.say(3, &foreign, late);
    all.follow(&ours);
    all.0.is_primary(&ours);
    all.follow(&ours);
}

#[test]
fn one_that_was_followed_and_leads_nowhere_gives_way_to_what_most_go_on_naming() {
    let now = Instant::now();
    let (old, new) = (named(100, 4), named(200, 5));
    let mut all = Three::following(&old, now);
    all.say(3, &new, now);
    all.0.descends(&new, now);
    all.0.is_not_primary(&new, now);
    all.follow(&new);
    let late = now + TRIED_FOR;
    for sentinel in 1..=2 {
        all.say(sentinel, &old, late);
    }
    all.follow(&old);
}

#[test]
fn sentinels_that_count_from_the_beginning_are_believed_where_all_of_them_agree() {
    let now = Instant::now();
    let mut all = Three::following(&named(100, 7), now);
    for sentinel in 1..=2 {
        all.say(sentinel, &named(200, 0), now);
        all.follow(&named(100, 7));
    }
    all.fall_silent(3, now);
    all.say(2, &named(200, 0), now);
    all.follow(&named(100, 7));
    all.say(3, &named(200, 0), now);
    all.follow(&named(200, 0));
}
