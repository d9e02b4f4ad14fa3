//! The checker by itself: histories written by hand, and what must be found in each. A line is
//! `CLIENT what SENT-ANSWERED yes|no|- [fencing token]`, times in milliseconds.

use std::collections::BTreeMap;
use std::time::Duration;

use lockwarden_tests::history::{Action, Answer, At, Committed, History, Judge, Operation, Trouble, Violation};

fn at(ms: u64) -> At {
    At(1_000_000_000 + ms * 1_000_000)
}

/// A request about lock:a; all TTLs are 100 ms.
fn operation(line: &str) -> Operation {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [client, what, times, answer, rest @ ..] = words.as_slice() else {
        panic!("{line:?}");
    };
    let ttl = Duration::from_millis(104);
    let (sent, answered) = times.split_once('-').expect("SENT-ANSWERED");
    let answer = match *answer {
        "yes" => Some(Answer::Yes),
        "no" => Some(Answer::No),
        "-" => None,
        other => panic!("{other:?}"),
    };
    Operation {
        client: client.parse().expect("a number"),
        lock: "lock:a".to_owned(),
        action: match *what {
            "acquire" => Action::Acquire(ttl),
            "extend" => Action::Extend(ttl),
            "release" | "guess" => Action::Release,
            other => panic!("{other:?}"),
        },
        words: (*what).to_owned(),
        proves: *what != "guess",
        sent: at(sent.parse().expect("a number")),
        answered: answer.map(|answer| (at(answered.parse().expect("a number")), answer)),
        fence: rest.first().map(|fence| fence.parse().expect("a number")),
    }
}

fn history(lines: &[&str]) -> History {
    let mut history = History { operations: lines.iter().map(|line| operation(line)).collect(), ..History::default() };
    history.sorts();
    history
}

/// The kind of each violation that is found, as one word.
fn found(history: &History) -> Vec<&'static str> {
    let kind = |violation: &Violation| match violation {
        Violation::Overlap(..) => "overlap",
        Violation::Fence { .. } => "fence",
        Violation::ByStranger { .. } => "stranger",
        Violation::Lost { .. } => "lost",
        Violation::Uncommitted { .. } => "uncommitted",
    };
    Judge::of(history).violations().iter().map(kind).collect()
}

#[track_caller]
fn check(lines: &[&str], expected: &[&str]) {
    assert_eq!(found(&history(lines)), expected, "{lines:#?}");
}

#[test]
fn a_lock_that_goes_from_one_to_the_next_is_well() {
    check(
        &[
            "1 acquire 0-5 yes 7",
            "2 acquire 3-9 no",
            "1 extend 50-55 yes",
            "1 release 60-65 yes",
            // Between the request of the release and its reply no client counts as the holder.
            "2 acquire 61-63 yes 8",
            "2 release 70-75 yes",
            "1 acquire 76-80 yes 9",
        ],
        &[],
    );
}

#[test]
fn two_who_were_granted_it_at_the_same_time_are_found() {
    check(&["1 acquire 0-5 yes 7", "2 acquire 20-25 yes 8"], &["overlap"]);
    // However short the first client's time was, and though a third client had the lock longer.
    check(
        &["1 acquire 0-5 yes 7", "2 acquire 20-25 yes 8", "2 release 30-35 yes", "3 acquire 90-95 yes 9"],
        &["overlap", "overlap"],
    );
}

#[test]
fn a_lock_is_relied_on_from_the_answer_until_the_ttl_from_the_request() {
    // The TTL is over at 100.
    check(&["1 acquire 0-5 yes 7", "2 acquire 96-99 yes 8"], &["overlap"]);
    check(&["1 acquire 0-5 yes 7", "2 acquire 96-101 yes 8"], &[]);
    // A reply that came too late gives no claim.
    check(&["1 acquire 0-300 yes 7", "2 acquire 150-155 yes 8"], &[]);
}

#[test]
fn an_extension_counts_from_its_request() {
    let until = |acquire| ["1 acquire 0-5 yes 7", "1 extend 80-90 yes", acquire];
    check(&until("2 acquire 170-175 yes 8"), &["overlap"]);
    check(&until("2 acquire 175-181 yes 8"), &[]);
    // An extension that was refused, or not answered, prolongs nothing.
    for answer in ["no", "-"] {
        let extension = format!("1 extend 80-90 {answer}");
        let lines = ["1 acquire 0-5 yes 7", &extension, "2 acquire 101-105 yes 8"];
        let lost: &[&str] = if answer == "no" { &["lost"] } else { &[] };
        check(&lines, lost);
    }
}

#[test]
fn nobody_holds_what_he_is_about_to_give_back_or_dies_with() {
    check(&["1 acquire 0-5 yes 7", "1 release 10-20 -", "2 acquire 12-15 yes 8"], &[]);
    let mut history = history(&["1 acquire 0-5 yes 7", "2 acquire 20-25 yes 8"]);
    assert_eq!(found(&history), ["overlap"]);
    history.deaths.insert(1, at(24));
    assert!(found(&history).is_empty());
}

#[test]
fn what_was_not_answered_is_held_against_nobody() {
    check(&["1 acquire 0-5 -", "2 acquire 10-15 yes 8"], &[]);
    // It may have been carried out, late even.
    check(&["1 acquire 0-5 -", "1 release 10-15 yes"], &[]);
    check(&["1 acquire 0-5 -", "2 acquire 10-15 yes 8", "2 release 20-25 yes", "1 release 30-35 yes"], &[]);
}

#[test]
fn a_release_or_extension_by_somebody_else_is_found() {
    check(&["1 release 0-5 yes"], &["stranger"]);
    check(&["1 acquire 0-5 yes 7", "1 release 10-15 yes", "1 guess 20-25 yes"], &["stranger"]);
    check(&["1 acquire 0-5 yes 7", "2 guess 10-15 no", "2 extend 20-25 no"], &[]);
    check(&["1 acquire 0-5 yes 7", "2 guess 10-15 yes"], &["stranger"]);
    // Late, when another client has it, whichever that is.
    let late = ["1 acquire 0-5 yes 7", "2 acquire 110-115 yes 8", "1 release 120-125 yes"];
    check(&late, &["stranger"]);
    // And where it is unknown which was first.
    check(&["1 acquire 0-5 yes 7", "2 acquire 110-125 yes 8", "1 release 120-122 yes"], &[]);
    // Late, when no client has it: it is the first one's until another client has it.
    check(&["1 acquire 0-5 yes 7", "1 release 105-110 yes"], &[]);
}

#[test]
fn a_holder_that_is_told_that_it_is_none_is_found() {
    check(&["1 acquire 0-5 yes 7", "1 release 50-55 no"], &["lost"]);
    // Not where the client cannot prove that the lock is its own, nor after its time, nor where it may have
    // given the lock back.
    check(&["1 acquire 0-5 yes 7", "1 guess 50-55 no"], &[]);
    check(&["1 acquire 0-5 yes 7", "1 release 98-105 no"], &[]);
    check(&["1 acquire 0-5 yes 7", "1 release 50-55 -", "1 release 60-65 no"], &[]);
}

#[test]
fn fencing_tokens_that_do_not_rise_are_found() {
    let twice = |first, second| [first, "1 release 10-15 yes", second];
    check(&twice("1 acquire 0-5 yes 7", "2 acquire 20-25 yes 8"), &[]);
    check(&twice("1 acquire 0-5 yes 7", "2 acquire 20-25 yes 6"), &["fence"]);
    check(&twice("1 acquire 0-5 yes 7", "2 acquire 20-25 yes 7"), &["fence", "fence"]);
    // A client that did not read its reply gets a reply about the same grant again.
    check(&twice("1 acquire 0-5 yes 7", "1 acquire 20-25 yes 7"), &[]);
    // Of two at the same time it is unknown which was first.
    check(&["1 acquire 0-150 yes 8", "2 acquire 110-140 yes 7"], &[]);
    check(&["1 acquire 0-150 yes 7", "2 acquire 110-140 yes 7"], &["fence"]);
}

#[test]
fn an_answer_that_is_not_true_is_found() {
    let history = history(&["1 acquire 0-5 yes 7", "1 release 10-15 yes"]);
    let trail = |fences: &[u64]| BTreeMap::from([("lock:a".to_owned(), fences.to_vec())]);
    let judged = |trail: &BTreeMap<String, Vec<u64>>, unwritten| {
        let judge = Judge::of(&history).with_trail(trail, unwritten);
        judge.violations().len()
    };
    assert_eq!(judged(&trail(&[7]), vec![]), 0);
    assert_eq!(judged(&trail(&[6]), vec![]), 1);
    assert_eq!(judged(&trail(&[6]), vec![(at(2), at(8))]), 0, "its proxy was killed then");
    assert_eq!(judged(&trail(&[6]), vec![(at(6), at(8))]), 1);
    // Neither the grant nor the release is in the file of Redis.
    let nothing = Committed::default();
    let judge = Judge::of(&history).with_file_of_redis(&nothing);
    assert_eq!(judge.violations().len(), 2);
}

#[test]
fn a_transcript_tells_who_when_with_which_token_and_what_went_wrong() {
    let mut history = history(&["1 acquire 0-5 yes 17", "2 acquire 20-25 yes 18", "1 release 60-65 yes"]);
    history.troubles.push(Trouble { words: "Redis was killed".to_owned(), began: at(10), ended: Some(at(18)) });
    let text = Judge::of(&history).verdict().expect("two hold it");
    assert_eq!(
        text,
        "TWO HOLDERS of lock:a for 35.0 ms
  client 1 held it from    0.0050 s until    0.0600 s, when it sent its release, fencing token 17
  client 2 held it from    0.0250 s until    0.1200 s, when the TTL that it asked for was over, fencing token 18
what was going wrong then:
     0.0100 s  Redis was killed, over at    0.0180 s
what was said of lock:a around it:
     0.0000 s  client 1   acquire -> granted after 5.0 ms, fencing token 17
     0.0200 s  client 2   acquire -> granted after 5.0 ms, fencing token 18
     0.0600 s  client 1   release -> done after 5.0 ms

NOT THE HOLDER of lock:a was obeyed
     0.0600 s  client 1   release -> done after 5.0 ms
it was granted to another client since:
     0.0200 s  client 2   acquire -> granted after 5.0 ms, fencing token 18
what was going wrong then:
     0.0100 s  Redis was killed, over at    0.0180 s
what was said of lock:a around it:
     0.0000 s  client 1   acquire -> granted after 5.0 ms, fencing token 17
     0.0200 s  client 2   acquire -> granted after 5.0 ms, fencing token 18
     0.0600 s  client 1   release -> done after 5.0 ms

"
    );
}
