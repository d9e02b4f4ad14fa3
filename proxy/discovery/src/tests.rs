use std::sync::Arc;

use bytes::Bytes;

use crate::propose;
use crate::propose::Candidate;
use crate::sighting::{Compares, Did, Sighting, Spelling, Stored};
use crate::verdict::{Confidence, Kind};
use crate::{Collector, Pattern};

/// An estate in which one thing happens after another.
#[derive(Default)]
struct Estate {
    collector: Collector,
    now_ms: u64,
}

fn proposed(patterns: &[Pattern<'_>], names: &[String]) -> String {
    let candidates: Vec<Candidate> = patterns.iter().map(Candidate::from).collect();
    propose::toml(&candidates, "", "a minute", names)
}

/// By an application that is called as its session.
pub(crate) fn sighting(at_ms: u64, session: u64, key: &str, did: Did) -> Sighting {
    Sighting {
        at_ms,
        db: 0,
        key: Bytes::copy_from_slice(key.as_bytes()),
        session,
        application: Arc::from(format!("application-{session}")),
        process: None,
        did,
    }
}

/// A key of three words that has nothing in common with those of other numbers.
pub(crate) fn unlike_others(number: usize) -> String {
    let letters = |mut number: usize| {
        let mut word = String::new();
        for _ in 0..6 {
            word.push(char::from(b'a' + (number % 26) as u8));
            number /= 26;
        }
        word
    };
    [number * 7, number * 131, number * 977].map(letters).join(":")
}

const HOLDER: u64 = 1;
const OTHER: u64 = 2;
const CLEANER: u64 = 3;

impl Estate {
    fn did(&mut self, session: u64, key: &str, did: Did) {
        self.now_ms += 1;
        self.collector.expire(self.now_ms);
        self.collector.see(&sighting(self.now_ms, session, key, did));
    }

    fn acquires(&mut self, session: u64, key: &str, ttl_ms: Option<u64>, granted: bool) {
        let did = Did::Acquire {
            spelling: Spelling::SetWithNx,
            value: Stored::of(session.to_string().as_bytes()),
            ttl_ms,
            granted: Some(granted),
        };
        self.did(session, key, did);
    }

    fn deletes(&mut self, session: u64, key: &str) {
        let did = Did::Release { compares: Compares::No, done: None };
        self.did(session, key, did);
    }

    fn waits(&mut self, ms: u64) {
        self.now_ms += ms;
    }

    /// What is said of the only pattern.
    fn only(&self) -> Pattern<'_> {
        let mut all = self.collector.patterns();
        assert_eq!(all.len(), 1);
        all.remove(0)
    }
}

#[test]
fn a_lock_is_known_by_its_holder_who_gives_it_back() {
    let mut estate = Estate::default();
    for number in 0..30 {
        let key = format!("order:{number}:lock");
        estate.acquires(HOLDER, &key, Some(30_000), true);
        estate.acquires(OTHER, &key, Some(30_000), false);
        estate.waits(200);
        estate.deletes(HOLDER, &key);
    }
    let pattern = estate.only();
    assert_eq!(pattern.glob, b"order:*:lock");
    assert_eq!(pattern.verdict.kind, Kind::Lock, "{:?}", pattern.verdict);
    assert_eq!(pattern.verdict.confidence, Confidence::Certain);
    let usage = pattern.usage;
    assert_eq!((usage.granted, usage.contended, usage.released), (30, 30, 30));
    let hold = usage.hold_ms(0.99).expect("there are leases");
    assert!((190..=215).contains(&hold), "{hold}");
    assert!((29..=31).contains(&usage.keys()), "{}", usage.keys());
}

#[test]
fn a_cache_is_known_by_clients_that_delete_what_they_never_take() {
    let mut estate = Estate::default();
    for number in 0..30 {
        let key = format!("page:{number}");
        estate.acquires(HOLDER, &key, Some(60_000), true);
        estate.did(OTHER, &key, Did::Read);
        estate.deletes(CLEANER, &key);
    }
    let pattern = estate.only();
    assert_eq!(pattern.verdict.kind, Kind::Cache, "{:?}", pattern.verdict);
    assert_eq!(pattern.usage.swept, 30);
}

/// Web processes take what workers delete, and the value is not read in between: a queue that queues each job once.
#[test]
fn what_is_taken_and_deleted_in_turn_is_handed_over_and_no_cache() {
    let mut estate = Estate::default();
    for number in 0..30 {
        let key = format!("qo_{number}");
        estate.acquires(HOLDER, &key, Some(3_600_000), true);
        estate.acquires(OTHER, &key, Some(3_600_000), false);
        estate.waits(200);
        estate.deletes(CLEANER, &key);
    }
    let pattern = estate.only();
    let verdict = &pattern.verdict;
    assert_eq!((verdict.kind, verdict.confidence), (Kind::Lock, Confidence::Likely), "{verdict:?}");
    assert!(verdict.hands_over);
    let text = proposed(&[pattern], &[]);
    assert!(text.contains("hand_over = true # 30 of 30 "), "{text}");
}

#[test]
fn clients_that_come_for_one_command_each_are_a_job_of_a_shell() {
    let mut estate = Estate::default();
    for turn in 0..600 {
        let client = 10 + turn * 3;
        estate.acquires(client, "nightly:export", Some(20_000), true);
        estate.acquires(client + 1, "nightly:export", Some(20_000), false);
        estate.waits(200);
        estate.deletes(client + 2, "nightly:export");
    }
    let pattern = estate.only();
    let verdict = &pattern.verdict;
    assert_eq!(verdict.kind, Kind::Lock, "{verdict:?}");
    assert!(verdict.why.contains("came for that alone"), "{verdict:?}");
    let text = proposed(&[pattern], &[]);
    assert!(!text.contains("hand_over"), "{text}");
}

#[test]
fn what_is_read_while_it_is_there_is_no_lock_and_what_a_loser_asks_is_no_reading() {
    let value = |value: &[u8]| Did::Acquire {
        spelling: Spelling::SetWithNx,
        value: Stored::of(value),
        ttl_ms: Some(30_000),
        granted: Some(true),
    };
    let uuid: &[u8] = b"f81d4fae-7dec-11d0";
    // Who reads, what it reads, and whether that is a lock.
    for (name, reader, held, is_lock) in [
        ("cb:payments", OTHER, &b"open"[..], false),
        ("cb:payments", HOLDER, b"open", false),
        ("billing", OTHER, uuid, false),
        ("billing", HOLDER, uuid, true),
        ("billing:lock", OTHER, uuid, true),
        ("quote", OTHER, b"1795423710283", false),
    ] {
        let mut estate = Estate::default();
        for _ in 0..30 {
            estate.did(HOLDER, name, value(held));
            estate.did(reader, name, Did::Read);
            estate.deletes(HOLDER, name);
        }
        let verdict = estate.only().verdict;
        assert_eq!(verdict.kind.is_lock(), is_lock, "{name} {reader}: {verdict:?}");
        assert!(verdict.confidence < Confidence::Certain || !name.contains("lock"), "{verdict:?}");
    }
    // One that was refused looks whether the holder is late; one that wants to delete, whether it is the holder.
    for refused in [true, false] {
        let mut estate = Estate::default();
        for _ in 0..30 {
            estate.acquires(OTHER, "quote", Some(30_000), true);
            estate.deletes(OTHER, "quote");
            estate.did(HOLDER, "quote", value(uuid));
            if refused {
                estate.acquires(OTHER, "quote", Some(30_000), false);
            }
            estate.did(OTHER, "quote", Did::Read);
            estate.deletes(if refused { HOLDER } else { OTHER }, "quote");
        }
        let verdict = estate.only().verdict;
        assert_eq!(verdict.kind, Kind::Lock, "{refused}: {verdict:?}");
    }
}

#[test]
fn nothing_is_certain_against_its_name() {
    for (key, sure) in [("page:7", Confidence::Certain), ("page:7:lock", Confidence::Likely)] {
        let mut estate = Estate::default();
        for _ in 0..30 {
            let content = Did::Acquire {
                spelling: Spelling::SetWithNx,
                value: Stored::of(b"{\"title\": 1}"),
                ttl_ms: Some(60_000),
                granted: Some(true),
            };
            estate.did(HOLDER, key, content);
            estate.did(OTHER, key, Did::Read);
            estate.deletes(CLEANER, key);
        }
        let verdict = estate.only().verdict;
        assert_eq!((verdict.kind, verdict.confidence), (Kind::Cache, sure), "{verdict:?}");
    }
    for word in ["lock", "joinlock", "mutex", "running", "lease", "singleton", "unlocked"] {
        assert!(crate::verdict::is_lock_word(word), "{word}");
    }
    for word in ["block", "blocked", "clock", "stock", "run", "release"] {
        assert!(!crate::verdict::is_lock_word(word), "{word}");
    }
}

/// However it was taken: nothing but a lock is deleted so.
#[test]
fn a_release_that_compares_is_evidence_by_itself() {
    let mut estate = Estate::default();
    for number in 0..25 {
        let did = Did::Release { compares: Compares::with(b"f81d4fae-7dec-11d0"), done: Some(true) };
        estate.did(HOLDER, &format!("opaque:{number}"), did);
    }
    let pattern = estate.only();
    assert_eq!(pattern.verdict.kind, Kind::Lock, "{:?}", pattern.verdict);
    assert_eq!(pattern.verdict.confidence, Confidence::Certain);
    let text = proposed(&[pattern], &[]);
    assert!(text.contains("keys = [\"opaque:*\"]"), "{text}");
}

#[test]
fn a_narrower_family_stands_before_a_wider_one() {
    let mut estate = Estate::default();
    for turn in 0..30 {
        for (key, ttl_ms) in [
            (format!("job:{}", 10 + turn % 5), 5_000),
            ("job:report".to_owned(), 7_200_000),
            ("job:import".to_owned(), 5_000),
        ] {
            estate.acquires(HOLDER, &key, Some(ttl_ms), true);
            estate.waits(100);
            estate.deletes(HOLDER, &key);
        }
    }
    let text = proposed(&estate.collector.patterns(), &[]);
    let at = |glob: &str| text.find(glob).unwrap_or_else(|| panic!("{glob}: {text}"));
    assert!(at("\"job:report\"") < at("\"job:*\""), "{text}");
    assert!(at("\"job:import\"") < at("\"job:*\""), "{text}");
}

#[test]
fn a_marker_is_known_by_its_long_life() {
    let mut estate = Estate::default();
    for number in 0..30 {
        estate.acquires(HOLDER, &format!("once:{number}"), Some(86_400_000), true);
    }
    let verdict = estate.only().verdict;
    assert_eq!(verdict.kind, Kind::Marker, "{verdict:?}");
    assert!(verdict.why.contains("24 h"), "{verdict:?}");
}

#[test]
fn a_job_that_runs_once_in_a_while_takes_a_timed_lock() {
    let mut estate = Estate::default();
    for _ in 0..30 {
        estate.acquires(HOLDER, "cron:report", Some(55_000), true);
        estate.acquires(OTHER, "cron:report", Some(55_000), false);
        estate.waits(60_000);
    }
    let pattern = estate.only();
    assert_eq!(pattern.verdict.kind, Kind::TimedLock, "{:?}", pattern.verdict);
    assert_eq!(pattern.usage.ran_out, 29);
}

#[test]
fn a_counter_is_told_from_a_lock_that_is_counted() {
    let mut counter = Estate::default();
    for number in 0..100 {
        counter.did(HOLDER, &format!("hits:{}", number % 10), Did::Counted(Some(number / 10 + 1)));
    }
    let verdict = counter.only().verdict;
    assert_eq!(verdict.kind, Kind::Counter, "{verdict:?}");

    let mut lock = Estate::default();
    for _ in 0..30 {
        lock.did(HOLDER, "import", Did::Counted(Some(1)));
        lock.did(OTHER, "import", Did::Counted(Some(2)));
        lock.deletes(HOLDER, "import");
    }
    let pattern = lock.only();
    assert_eq!(pattern.verdict.kind, Kind::Lock, "{:?}", pattern.verdict);
    let text = proposed(&[pattern], &[]);
    assert!(text.contains("counter_locks = true"), "{text}");
}

#[test]
fn of_replies_that_were_not_seen_the_order_of_commands_says_enough() {
    let mut estate = Estate::default();
    let attempt = Did::Acquire { spelling: Spelling::SetNx, value: Stored::of(b"1"), ttl_ms: None, granted: None };
    for _ in 0..10 {
        estate.did(HOLDER, "lock:a", attempt);
        estate.did(OTHER, "lock:a", attempt);
        estate.deletes(HOLDER, "lock:a");
        // Deletes nothing.
        estate.deletes(OTHER, "lock:a");
    }
    let usage = estate.only();
    let usage = usage.usage;
    assert_eq!((usage.granted, usage.contended, usage.released, usage.late), (10, 10, 10, 10));
    assert_eq!(usage.without_ttl, 10);
    assert!(usage.one_value);
}

#[test]
fn the_release_of_one_lease_is_not_that_of_the_next() {
    let mut estate = Estate::default();
    estate.acquires(HOLDER, "lock:a", Some(100), true);
    estate.waits(1_000);
    estate.acquires(OTHER, "lock:a", Some(100), true);
    estate.waits(20);
    estate.deletes(HOLDER, "lock:a");
    let pattern = estate.only();
    let usage = pattern.usage;
    assert_eq!((usage.ran_out, usage.foreign, usage.released), (1, 1, 0));
    assert_eq!(usage.hold_ms(0.5), None);
}

/// Threads of a process take any connection of their pool for each command. What goes to another process is handed over.
#[test]
fn a_pool_hands_nothing_over_and_processes_of_one_application_do() {
    for (processes, hands_over) in [([Some(1), Some(1)], false), ([None, None], false), ([Some(1), Some(2)], true)] {
        let mut estate = Estate::default();
        estate.acquires(OTHER, "job:7:lock", Some(5_000), true);
        estate.deletes(OTHER, "job:7:lock");
        for _ in 0..30 {
            for (at, did) in [
                Did::Acquire {
                    spelling: Spelling::SetNx,
                    value: Stored::of(b"1"),
                    ttl_ms: Some(5_000),
                    granted: Some(true),
                },
                Did::Release { compares: Compares::No, done: Some(true) },
            ]
            .into_iter()
            .enumerate()
            {
                estate.waits(50);
                estate.collector.see(&Sighting {
                    application: Arc::from("worker.py"),
                    process: processes[at],
                    ..sighting(estate.now_ms, [HOLDER, OTHER][at], "job:7:lock", did)
                });
            }
        }
        let patterns = estate.collector.patterns();
        let usage = patterns[0].usage;
        assert_eq!(usage.handed_over, if hands_over { 30 } else { 0 });
        assert_eq!(usage.released + usage.handed_over, 31);
        let text = proposed(&patterns, &[]);
        assert_eq!(text.contains("hand_over = true"), hands_over, "{text}");
    }
}

/// Two connections are served by two threads.
#[test]
fn a_release_that_is_told_after_the_next_grant_ends_its_own_lease() {
    let mut estate = Estate::default();
    for _ in 0..10 {
        estate.acquires(HOLDER, "lock:a", Some(5_000), true);
        estate.waits(100);
        estate.acquires(OTHER, "lock:a", Some(5_000), true);
        let done = Did::Release { compares: Compares::No, done: Some(true) };
        estate.did(HOLDER, "lock:a", done);
        estate.waits(100);
        estate.did(OTHER, "lock:a", done);
    }
    let pattern = estate.only();
    let usage = pattern.usage;
    assert_eq!((usage.released, usage.foreign, usage.handed_over), (20, 0, 0));
    assert_eq!(usage.without_ttl, 0);
}

#[test]
fn names_alone_are_a_guess_that_is_not_proposed() {
    let mut estate = Estate::default();
    estate.acquires(HOLDER, "mutex:a", None, true);
    let pattern = estate.only();
    assert_eq!(pattern.verdict.kind, Kind::Lock);
    assert_eq!(pattern.verdict.confidence, Confidence::Guess);
    let text = proposed(&[pattern], &[]);
    assert!(!text.contains("[[namespace]]"), "{text}");
    assert!(text.contains("mutex:a: lock, a guess; by its name"), "{text}");
}

#[test]
fn families_that_work_alike_share_a_namespace_and_others_do_not() {
    let mut estate = Estate::default();
    for _ in 0..30 {
        for key in ["order:lock", "stock:lock"] {
            estate.acquires(HOLDER, key, Some(5_000), true);
            estate.waits(100);
            estate.deletes(HOLDER, key);
        }
        estate.acquires(HOLDER, "report:lock", Some(7_200_000), true);
        estate.waits(600_000);
        estate.deletes(HOLDER, "report:lock");
    }
    let text = proposed(&estate.collector.patterns(), &["order-lock".to_owned()]);
    assert!(text.contains("keys = [\"order:lock\", \"stock:lock\"]"), "{text}");
    assert!(text.contains("name = \"order-lock-2\""), "{text}");
    assert!(text.contains("keys = [\"report:lock\"]"), "{text}");
    assert!(text.contains("ceiling = \"2h\""), "{text}");
}

/// What is ready to be enforced does not wait for what is not.
#[test]
fn a_family_that_others_delete_stands_by_itself() {
    let mut estate = Estate::default();
    for number in 0..30 {
        for key in ["cart:lock", "order:lock", "stock:lock"] {
            estate.acquires(HOLDER, key, Some(5_000), true);
            estate.acquires(OTHER, key, Some(5_000), false);
            estate.waits(100);
            let is_misused = key == "stock:lock" && number % 3 == 0;
            estate.deletes(if is_misused { OTHER } else { HOLDER }, key);
        }
    }
    let text = proposed(&estate.collector.patterns(), &[]);
    assert!(text.contains("keys = [\"cart:lock\", \"order:lock\"]"), "{text}");
    assert!(text.contains("keys = [\"stock:lock\"]"), "{text}");
    assert!(text.contains("# 10 of 30 were deleted by other applications"), "{text}");
}

#[test]
fn names_of_keys_end_no_string_and_no_comment() {
    let mut estate = Estate::default();
    let key = "lock\"]\nmode = \"enforce\" # \u{1b}[2J";
    for _ in 0..30 {
        estate.acquires(HOLDER, key, None, true);
        estate.deletes(HOLDER, key);
    }
    let text = proposed(&estate.collector.patterns(), &[]);
    assert!(!text.contains('\u{1b}'), "{text}");
    let enforce = text.lines().filter(|line| line.starts_with("mode = \"enforce\""));
    assert_eq!(enforce.count(), 0, "{text}");
}

#[test]
fn a_key_that_is_no_text_is_left_out() {
    let mut collector = Collector::default();
    for at_ms in 0..60 {
        let did = match at_ms % 2 {
            0 => Did::Acquire { spelling: Spelling::SetNx, value: Stored::of(b"1"), ttl_ms: None, granted: Some(true) },
            _ => Did::Release { compares: Compares::No, done: Some(true) },
        };
        collector.see(&Sighting {
            at_ms,
            db: 0,
            key: Bytes::from_static(b"lock\xff"),
            session: HOLDER,
            application: Arc::from("application"),
            process: None,
            did,
        });
    }
    let patterns = collector.patterns();
    assert_eq!(patterns[0].verdict.kind, Kind::Lock);
    let text = proposed(&patterns, &[]);
    assert!(!text.contains("[[namespace]]"), "{text}");
}
