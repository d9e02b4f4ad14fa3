//! Data under locks, and the guards that are proposed for it.

use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::guards::{self, GuardCandidate};
use crate::sighting::{Compares, Did, Spelling, Stored};
use crate::tests::{sighting, unlike_others};
use crate::{Collector, FirstWrites, Wrote};

const IMPORTER: u64 = 99;

#[derive(Default)]
struct Shop {
    collector: Collector,
    now_ms: u64,
}

impl Shop {
    fn did(&mut self, session: u64, key: &str, did: Did) {
        self.now_ms += 1;
        self.collector.see(&sighting(self.now_ms, session, key, did));
    }

    fn takes(&mut self, session: u64, key: &str) {
        let did = Did::Acquire {
            spelling: Spelling::SetWithNx,
            value: Stored::of(b"1"),
            ttl_ms: Some(5_000),
            granted: Some(true),
        };
        self.did(session, key, did);
    }

    fn gives_back(&mut self, session: u64, key: &str) {
        let did = Did::Release { compares: Compares::Unseen, done: Some(true) };
        self.did(session, key, did);
    }

    fn writes(&mut self, session: u64, key: &str, under: &[&str]) {
        self.now_ms += 1;
        let copy = |lock: &&str| Bytes::copy_from_slice(lock.as_bytes());
        let under: SmallVec<[Bytes; 1]> = under.iter().map(copy).collect();
        self.collector.wrote(&Wrote {
            at_ms: self.now_ms,
            db: 0,
            key: Bytes::copy_from_slice(key.as_bytes()),
            session,
            application: Arc::from(format!("application-{session}")),
            under,
            is_unfit: false,
        });
    }

    /// It has written these keys, and is about to take its first lock.
    fn begins(&mut self, session: u64, keys: &[&str]) {
        let copy = |key: &&str| Bytes::copy_from_slice(key.as_bytes());
        self.collector.began(session, keys.iter().map(copy).collect());
    }

    /// Takes the lock, writes these keys, gives it back.
    fn works(&mut self, session: u64, lock: &str, keys: &[&str]) {
        self.takes(session, lock);
        for key in keys {
            self.writes(session, key, &[]);
        }
        self.gives_back(session, lock);
    }

    /// What is proposed where every key with `lock` in its name is one.
    fn proposed(&self) -> Vec<GuardCandidate> {
        let is_lock = |key: &[u8]| String::from_utf8_lossy(key).contains("lock");
        guards::proposed(self.collector.guards(), &is_lock, &|_| false)
    }

    fn pairs(&self) -> String {
        let all = self.proposed();
        let pair = |one: &GuardCandidate| format!("{} < {} {}/{}", one.keys, one.lock, one.under, one.without);
        all.iter().map(pair).collect::<Vec<_>>().join("; ")
    }
}

#[test]
fn what_varies_alike_in_the_key_and_its_lock_has_one_name() {
    for (lock, keys, expected) in [
        (
            "lock:sale:{}",
            &["stock:{}", "order:{}:last"][..],
            "order:{id}:last < lock:sale:{id} 10/0; stock:{id} < lock:sale:{id} 10/0",
        ),
        ("{{}}.lock", &["{{}}.stock"], "\\{{id}\\}.stock < \\{{id}\\}.lock 10/0"),
        ("order{}-lock", &["order{}-total"], "order{id}-total < order{id}-lock 10/0"),
        ("lock_ledger", &["ledger:{}"], "ledger:* < lock_ledger 10/0"),
        ("lock_ledger", &["ledger"], "ledger < lock_ledger 10/0"),
        // Nothing says which lock it is.
        ("lock:{}", &["total"], ""),
    ] {
        let mut shop = Shop::default();
        for number in 10..20 {
            let fill = |text: &str| match text.contains("{{}}") {
                true => text.replace("{{}}", &format!("{{{number}}}")),
                false => text.replace("{}", &number.to_string()),
            };
            let keys: Vec<String> = keys.iter().map(|key| fill(key)).collect();
            let keys: Vec<&str> = keys.iter().map(|key| &key[..]).collect();
            shop.works(number, &fill(lock), &keys);
        }
        assert_eq!(shop.pairs(), expected, "{lock}");
    }
}

#[test]
fn parts_of_the_key_that_are_not_of_the_lock_are_left_open() {
    let mut shop = Shop::default();
    for number in 10..20 {
        let keys = [format!("order:{number}:line:{}", number + 50)];
        shop.works(1, &format!("lock:7{number}:{number}"), &[&keys[0]]);
        let key = format!("part:{number}:of:7{number}");
        shop.works(1, &format!("lock:7{number}:{number}"), &[&key]);
    }
    // The first of them has nothing of the lock's first part.
    assert_eq!(shop.pairs(), "part:{id2}:of:{id} < lock:{id}:{id2} 10/0");
    let mut shop = Shop::default();
    for number in 10..20 {
        let key = format!("order:{number}:line:{}", number + 50);
        shop.works(1, &format!("lock:{number}"), &[&key]);
    }
    assert_eq!(shop.pairs(), "order:{id}:line:* < lock:{id} 10/0");
}

/// Quartz keeps each job under its name, and all of them under one lock.
#[test]
fn names_in_the_last_part_are_one_pattern_and_not_a_line_each() {
    let mut shop = Shop::default();
    for turn in 0..30 {
        let name = ["report", "mail", "cleanup", "sync", "job1"][turn % 5];
        let job = format!("quartz:job:DEFAULT:{name}");
        let trigger = format!("quartz:trigger:DEFAULT:{name}");
        shop.works(1, "quartz:lock", &[&job, &trigger, "quartz:jobs", "quartz:groups", "quartz:waiting"]);
    }
    // One that writes a job without the lock counts against all of them.
    shop.writes(9, "quartz:job:DEFAULT:mail", &[]);
    let expected = "quartz:groups < quartz:lock 30/0; quartz:job:DEFAULT:{name} < quartz:lock 30/1; \
        quartz:jobs < quartz:lock 30/0; quartz:trigger:DEFAULT:{name} < quartz:lock 30/0; quartz:waiting < quartz:lock 30/0";
    assert_eq!(shop.pairs(), expected);
    let text = guards::toml(&shop.proposed(), &[]);
    assert_eq!(text.matches("[[guard]]").count(), 1, "{text}");
}

/// A guard refuses a command that waits, and one that gives the lock back as well: there is none where such write the data.
#[test]
fn what_is_written_in_a_way_that_a_guard_refuses_gets_none_and_why_is_said() {
    let mut shop = Shop::default();
    for _ in 0..10 {
        shop.works(1, "stock:lock", &["stock:signal", "stock:count"]);
    }
    shop.collector.wrote(&Wrote {
        at_ms: shop.now_ms,
        db: 0,
        key: Bytes::from_static(b"stock:signal"),
        session: 2,
        application: Arc::from("waiter"),
        under: SmallVec::new(),
        is_unfit: true,
    });
    let text = guards::toml(&shop.proposed(), &[]);
    assert!(text.contains("keys = [\"stock:count\"]"), "{text}");
    assert!(text.contains("# no guard for stock:signal under stock:lock: written by commands that wait"), "{text}");
}

#[test]
fn writes_without_the_lock_are_counted_with_who_it_was() {
    let mut shop = Shop::default();
    shop.writes(IMPORTER, "stock:10", &[]);
    for number in 10..20 {
        shop.works(1, &format!("lock:{number}"), &[&format!("stock:{number}")]);
    }
    // Under no lock, under another one, after it was given back, and after its TTL.
    shop.writes(IMPORTER, "stock:11", &[]);
    shop.works(2, "lock:13", &["stock:12"]);
    let all = shop.proposed();
    assert_eq!(shop.pairs(), "stock:{id} < lock:{id} 10/2");
    let outsiders = [("application-2", 1), ("application-99", 1)];
    let outsiders = outsiders.map(|(name, times)| (name.to_owned(), times));
    assert_eq!(all[0].outsiders, outsiders);
    let last = (b"stock:12".to_vec(), "application-2".to_owned());
    assert_eq!(all[0].outside, Some(last));

    shop.takes(3, "lock:14");
    shop.now_ms += 5_000;
    shop.writes(3, "stock:14", &[]);
    assert_eq!(shop.pairs(), "", "ten of thirteen are not enough");
    for number in 20..30 {
        shop.works(1, &format!("lock:{number}"), &[&format!("stock:{number}")]);
    }
    assert_eq!(shop.pairs(), "stock:{id} < lock:{id} 20/3");
}

/// As celery's redbeat does: the schedule first, then the lock.
#[test]
fn what_is_written_before_the_lock_is_taken_is_left_out_and_said() {
    let mut shop = Shop::default();
    for number in 10..20 {
        shop.works(1, "beat:lock", &["beat:schedule", "beat:statics"]);
        shop.works(1, &format!("lock:{number}"), &[&format!("stock:{number}")]);
    }
    // Another lock's data, this lock's data under another lock, and data that is never written under a lock.
    shop.begins(2, &["stock:7", "page:1"]);
    shop.works(2, "lock:10", &["stock:10"]);
    assert_eq!(guards::toml(&shop.proposed(), &[]).matches("no guard").count(), 0);

    shop.begins(3, &["beat:schedule", "beat:schedule"]);
    for _ in 0..3 {
        // A client that takes a marker first still takes the lock.
        shop.works(3, "lock:marker", &["page:1"]);
        shop.works(3, "beat:lock", &["beat:schedule"]);
    }
    shop.begins(4, &["stock:12"]);
    shop.works(4, "lock:12", &["stock:12"]);
    let all = shop.proposed();
    let starters: Vec<(&str, &[(String, u64)])> = all.iter().map(|one| (&one.keys[..], &one.starters[..])).collect();
    let of = |name: &str| [(name.to_owned(), 1)];
    assert_eq!(
        starters,
        [
            ("beat:schedule", &of("application-3")[..]),
            ("stock:{id}", &of("application-4")[..]),
            ("beat:statics", &[][..]),
        ]
    );
    let text = guards::toml(&all, &[]);
    assert!(text.contains("keys = [\"beat:statics\"]"), "{text}");
    assert_eq!(text.matches("[[guard]]").count(), 1, "{text}");
    let said = "# no guard for stock:{id} under lock:{id}: written before the lock is taken, over the same connection, which a guard would refuse; connections that began so: application-4 (1)";
    assert!(text.contains(said), "{text}");
}

#[test]
fn what_a_connection_writes_first_is_noted_until_it_tries_to_take_a_lock() {
    let mut first = FirstWrites::default();
    first.note(0, b"a");
    first.note(0, b"a");
    first.note(1, b"b");
    assert!(first.wants_more());
    first.end();
    assert!(!first.wants_more());
    assert_eq!(first.take(0), [Bytes::from_static(b"a")]);
    assert!(first.take(1).is_empty(), "it is told once");

    let mut first = FirstWrites::default();
    let mut noted = 0;
    while first.wants_more() {
        first.note(0, format!("key:{noted}").as_bytes());
        noted += 1;
    }
    assert_eq!((noted, first.take(0).len()), (64, 16));
}

#[test]
fn too_little_is_not_proposed() {
    let mut shop = Shop::default();
    for _ in 0..10 {
        shop.works(1, "lock:10", &["stock:10"]);
    }
    assert_eq!(shop.pairs(), "", "it may be any number");
    shop.works(1, "lock:11", &["stock:11"]);
    assert_eq!(shop.pairs(), "stock:{id} < lock:{id} 11/0");

    let mut shop = Shop::default();
    for number in 10..14 {
        shop.works(1, &format!("lock:{number}"), &[&format!("stock:{number}")]);
    }
    assert_eq!(shop.pairs(), "", "four writes say nothing");
}

#[test]
fn locks_of_namespaces_count_and_what_is_no_lock_does_not() {
    let mut shop = Shop::default();
    for number in 10..20 {
        shop.writes(1, &format!("stock:{number}"), &[&format!("lock:{number}")]);
        shop.works(1, &format!("page:{number}"), &[&format!("hits:{number}")]);
        // The lock itself is no data.
        shop.writes(1, &format!("lock:{number}"), &["lock:all"]);
    }
    assert_eq!(shop.pairs(), "stock:{id} < lock:{id} 10/0");
    let is_guarded = |key: &[u8]| key.starts_with(b"stock:");
    let proposed = guards::proposed(shop.collector.guards(), &|key| key.starts_with(b"lock"), &is_guarded);
    assert_eq!(proposed, []);
}

#[test]
fn of_two_locks_the_one_that_tells_keys_apart_is_proposed() {
    let mut shop = Shop::default();
    for number in 10..20 {
        shop.takes(1, "lock");
        shop.works(1, &format!("lock:{number}"), &[&format!("stock:{number}")]);
        shop.gives_back(1, "lock");
    }
    assert_eq!(shop.pairs(), "stock:{id} < lock:{id} 10/0");
}

#[test]
fn names_of_tenants_are_learnt_in_keys_and_locks() {
    let mut shop = Shop::default();
    for first in 'a'..='z' {
        let tenant = format!("{first}corp");
        shop.works(1, &format!("{tenant}:stock:lock"), &[&format!("{tenant}:stock:count")]);
    }
    for _ in 0..10 {
        shop.works(1, "acorp:stock:lock", &["acorp:stock:count"]);
    }
    assert_eq!(shop.pairs(), "{id}:stock:count < {id}:stock:lock 36/0");
}

#[test]
fn the_configuration_puts_data_of_one_lock_together_and_names_end_no_string() {
    let mut shop = Shop::default();
    let bad = "x\"]\nmode='enforce'#\u{1b}[2J";
    for number in 10..20 {
        let keys = [format!("stock:{number}"), format!("order:{number}:last"), format!("{bad}:{number}")];
        let keys: Vec<&str> = keys.iter().map(|key| &key[..]).collect();
        shop.works(1, &format!("lock:{number}"), &keys);
    }
    shop.writes(IMPORTER, &format!("{bad}:10"), &[]);
    let text = guards::toml(&shop.proposed(), &["order-last".to_owned()]);
    assert_eq!(text.matches("[[guard]]").count(), 1, "{text}");
    assert!(text.contains("\"order:{id}:last\", \"stock:{id}\""), "{text}");
    assert!(text.contains("name = \"order-last-2\""), "{text}");
    assert!(text.contains("10 of 11 writes under the lock; without it: application-99 (1); the last: x"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
    let modes = text.lines().filter(|line| line.starts_with("mode"));
    assert_eq!(modes.count(), 1, "{text}");
    assert_eq!(guards::toml(&[], &[]), "");
}

#[test]
fn there_is_a_bound_whatever_is_written() {
    let mut shop = Shop::default();
    for number in 0..5_000 {
        let key = unlike_others(number);
        shop.works(1, &format!("lock:{key}"), &[&key, "data"]);
        shop.works(1, &key, &[&"y".repeat(1_000)]);
    }
    for session in 10..5_000 {
        shop.begins(session, &["data", &unlike_others(3)]);
        shop.works(session, "lock:data", &["data"]);
    }
    assert!(shop.collector.guards().len() <= 1_000 * 8);
}
