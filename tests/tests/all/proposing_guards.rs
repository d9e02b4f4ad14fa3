//! `lockwarden discover` proposes guards for data that is written under a lock, and `lockwarden check` takes them.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use lockwarden_tests::{Client, Finished, Mode, Proxy, Redis, lockwarden, run_to_end, wait_for, wait_for_value};
use serde_json::{Value, json};

/// Takes the lock of an article, writes what it protects, and gives it back.
fn sells(client: &Client, sale: u32) {
    let lock = format!("lock:sale:{sale}");
    client.sends(format!("SET {lock} tok-{sale} NX PX 5000")).gets("+OK");
    client.sends(format!("SET stock:{sale} 7")).gets("+OK");
    client.sends(format!("HSET order:{sale}:last by me")).reply();
    client.sends(format!("DEL {lock}")).gets(":1");
}

/// Thirty sales of ten articles, then a client that writes without the lock.
fn work(worker: &Client, importer: &Client) {
    importer.sends("CLIENT SETNAME importer").gets("+OK");
    for number in 0..30 {
        sells(worker, 10 + number % 10);
    }
    importer.sends("SET stock:13 100").gets("+OK");
}

fn said(command: &mut Command) -> Finished {
    run_to_end(command)
}

fn discover(proxy: &Proxy, form: &str) -> String {
    let admin = proxy.admin_address().to_string();
    said(&mut lockwarden(&["discover", "-o", form, "--admin", &admin])).stdout
}

fn guards(found: &str) -> Vec<Value> {
    let found: Value = serde_json::from_str(found).unwrap_or_else(|error| panic!("{error}: {found}"));
    found["guards"].as_array().expect("a list").clone()
}

/// The guards that this work must lead to, once all of it was reported.
fn found_all(found: &str) -> Option<Vec<Value>> {
    let all = guards(found);
    let is_whole = |one: &Value| one["under"] == 30;
    let outside = all.iter().any(|one| one["without"] == 1);
    (all.len() == 2 && all.iter().all(is_whole) && outside).then_some(all)
}

fn are_right(all: &[Value]) {
    assert_eq!(
        (&all[0]["keys"], &all[0]["lock"], &all[0]["without"]),
        (&json!("order:{id}:last"), &json!("lock:sale:{id}"), &json!(0))
    );
    assert_eq!(
        (&all[1]["keys"], &all[1]["lock"], &all[1]["without"]),
        (&json!("stock:{id}"), &json!("lock:sale:{id}"), &json!(1))
    );
    assert_eq!(all[1]["outsiders"], json!([{"application": "importer", "writes": 1}]));
    assert_eq!(all[1]["outside"], json!({"key": "stock:13", "application": "importer"}));
}

/// Asserts that the configuration is accepted as it is.
fn is_taken(proxy: &Proxy, text: &str) {
    let file = proxy.directory().join("proposed.toml");
    fs::write(&file, text).expect("the directory is ours");
    let checked = said(lockwarden(&["check", "--config"]).arg(&file));
    assert_eq!((checked.code, checked.stderr.as_str()), (Some(0), ""), "{text}{}", checked.stdout);
}

#[test]
fn data_under_locks_that_nobody_governs_gets_a_guard_that_only_watches() {
    let redis = Redis::start();
    let ungoverned = || Proxy::builder(&redis).namespace("keys", "[\"none\"]");
    let proxy = ungoverned().start();
    work(&proxy.client(), &proxy.client());
    let all = wait_for_value("all writes to be told", || found_all(&discover(&proxy, "json")));
    are_right(&all);

    let text = discover(&proxy, "text");
    for part in [
        "Data that is written under a lock:",
        "stock:{id}",
        "lock:sale:{id}",
        "The last write of stock:{id} without the lock: stock:13 by importer",
        "proposes guards for it",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }

    let proposed = discover(&proxy, "toml");
    for part in [
        "[[guard]]\nname = \"order-last\"\nkeys = [\"order:{id}:last\", \"stock:{id}\"]\nlock = \"lock:sale:{id}\"\n",
        "# stock:{id}: 30 of 31 writes under the lock; without it: importer (1); the last: stock:13 by importer",
    ] {
        assert!(proposed.contains(part), "{part}: {proposed}");
    }
    is_taken(&proxy, &proposed);

    // With it in force the same importer is reported, and no client is refused.
    redis.client().sends("FLUSHALL").gets("+OK");
    let watching = ungoverned().more(&proposed).start();
    work(&watching.client(), &watching.client());
    let of = |result: &str| {
        let labels = "guard=\"order-last\",mode=\"monitor\"";
        format!("lockwarden_guarded_writes_total{{{labels},result=\"{result}\"}}")
    };
    let counts = wait_for_value("the guard to have judged", || {
        let metrics = watching.metrics();
        let counts = (metrics.get(&of("holder")), metrics.get(&of("not-owner")));
        (counts.1 > 0.0).then_some(counts)
    });
    assert_eq!(counts, (60.0, 1.0));
    assert_eq!(guards(&discover(&watching, "json")), Vec::<Value>::new());
}

#[test]
fn data_under_locks_of_a_namespace_gets_a_guard_too() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).mode(Mode::Enforce).namespace("keys", "[\"lock:*\"]").start();
    work(&proxy.client(), &proxy.client());
    // Too long to be about a lock, and data all the same.
    let (worker, value) = (proxy.client(), "v".repeat(100_000));
    for number in 50..60 {
        worker.sends(format!("SET lock:{number} tok NX PX 5000")).gets("+OK");
        worker.sends_arguments(&["SET", &format!("document:{number}"), &value]).gets("+OK");
        worker.sends(format!("DEL lock:{number}")).gets(":1");
    }
    let all = wait_for_value("all writes to be told", || {
        let all = guards(&discover(&proxy, "json"));
        (all.len() == 3 && all[2]["under"] == 10 && all[1]["without"] == 1).then_some(all)
    });
    are_right(&all);
    assert_eq!(all[2]["keys"], "document:{id}");
    let text = discover(&proxy, "text");
    assert!(text.contains("proposes guards for it"), "{text}");
    let proposed = discover(&proxy, "toml");
    assert!(!proposed.contains("[[namespace]]"), "{proposed}");
    let governed = "[[namespace]]\nname = \"a\"\nkeys = [\"lock:*\"]\nmode = \"enforce\"\n";
    is_taken(&proxy, &format!("{governed}{proposed}"));
}

/// As celery's redbeat begins: it writes its schedule, takes the lock, and writes the schedule while it has that.
fn beats(beat: &Client) {
    let entry = "HSET redbeat:cleanup definition {} meta {}";
    beat.sends("MULTI").gets("+OK");
    beat.sends(entry).gets("+QUEUED");
    beat.sends("ZADD redbeat::schedule 0 redbeat:cleanup").gets("+QUEUED");
    beat.sends("EXEC").reply();
    beat.sends("SET redbeat::lock f81d4fae-7dec-11d0 NX EX 60").gets("+OK");
    for tick in 0..20 {
        beat.sends(entry).gets(":0");
        beat.sends(format!("ZADD redbeat::schedule {tick} redbeat:cleanup")).gets(":0");
    }
    // None of these keys was written before.
    for tick in 0..20 {
        beat.sends(format!("SET redbeat:last:run {tick}")).gets("+OK");
    }
    beat.sends("DEL redbeat::lock").gets(":1");
}

/// It is started this often: fewer than five grants say nothing about the lock.
const STARTED: u64 = 6;

const STARTS: &str = "written before the lock is taken, over the same connection, which a guard would refuse; connections that began so: ";

/// Asserts what is found: how often the lock was held, and no guard except for data that is written under the lock only.
fn says_why_there_is_no_guard(found: &[Value], proposed: &str) {
    for one in found {
        let is_started_with = one["keys"] != json!("redbeat:last:run");
        let by = &one["starters"][0]["connections"];
        let times = if is_started_with { json!(STARTED) } else { Value::Null };
        assert_eq!(by, &times, "{one}");
    }
    assert!(proposed.contains("keys = [\"redbeat:last:run\"]\nlock = \"redbeat::lock\"\n"), "{proposed}");
    assert_eq!(proposed.matches("[[guard]]").count(), 1, "{proposed}");
    for keys in ["redbeat:cleanup", "redbeat::schedule"] {
        let why = format!("# no guard for {keys} under redbeat::lock: {STARTS}");
        assert!(proposed.contains(&why), "{why}: {proposed}");
    }
}

#[test]
fn data_that_is_written_before_the_lock_is_taken_gets_no_guard_and_why_is_said() {
    let redis = Redis::start();
    for keys in ["[\"none\"]", "[\"redbeat::lock\"]"] {
        redis.client().sends("FLUSHALL").gets("+OK");
        let proxy = Proxy::builder(&redis).namespace("keys", keys).start();
        // They stay connected: on a busy machine the process of a connection that ends at once is not found.
        let all: Vec<Client> = (0..STARTED).map(|_| proxy.client()).collect();
        all.iter().for_each(beats);
        let all = wait_for_value("all writes to be told", || {
            let all = guards(&discover(&proxy, "json"));
            let is_told = |one: &Value| one["under"] == json!(20 * STARTED);
            (all.len() == 3 && all.iter().all(is_told)).then_some(all)
        });
        let proposed = discover(&proxy, "toml");
        says_why_there_is_no_guard(&all, &proposed);
        let text = discover(&proxy, "text");
        let why = "No guard for redbeat::schedule: written before redbeat::lock is taken, over the same connection, which a guard would refuse";
        assert!(text.contains(why), "{text}");
        let governed = "[[namespace]]\nname = \"a\"\nkeys = [\"redbeat::lock\"]\n";
        let namespaces = match proposed.contains("[[namespace]]") {
            true => "",
            false => governed,
        };
        is_taken(&proxy, &format!("{namespaces}{proposed}"));
        // The guard that is proposed refuses nothing of it, where the others would have.
        redis.client().sends("FLUSHALL").gets("+OK");
        let proposed = proposed.replace("mode = \"monitor\"", "mode = \"enforce\"");
        let enforced = Proxy::builder(&redis).namespace("keys", keys).more(&proposed).start();
        beats(&enforced.client());
    }
}

/// Locks of a cache or of a marker, and data that every client writes, are no reason for a guard.
#[test]
fn nothing_is_proposed_where_locks_protect_nothing() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).start();
    let (one, other) = (proxy.client(), proxy.client());
    for number in 10..40 {
        let lock = format!("lock:{number}");
        one.sends(format!("SET {lock} tok NX PX 5000")).gets("+OK");
        one.sends(format!("SET shared:{number} 1")).gets("+OK");
        other.sends(format!("SET shared:{number} 2")).gets("+OK");
        one.sends(format!("DEL {lock}")).gets(":1");
        // Keys that are taken like a lock, and are none.
        other.sends(format!("SET page:{number} content NX EX 60")).gets("+OK");
        other.sends(format!("SET seen:{number} 1")).gets("+OK");
    }
    sells(&one, 10);
    for number in 10..16 {
        sells(&one, number);
    }
    let all = wait_for_value("the sales to be told", || {
        let all = guards(&discover(&proxy, "json"));
        (all.len() >= 2 && all[1]["under"] == 7).then_some(all)
    });
    let keys: Vec<&Value> = all.iter().map(|one| &one["keys"]).collect();
    assert_eq!(keys, ["order:{id}:last", "stock:{id}"]);
}

/// What an older connection did before is unknown.
#[test]
fn by_monitor_it_is_said_of_connections_that_begin_meanwhile() {
    let redis = Redis::start();
    let url = format!("redis://{}", redis.address());
    for is_new in [true, false] {
        redis.client().sends("FLUSHALL").gets("+OK");
        let is_over = AtomicBool::new(false);
        let found = std::thread::scope(|scope| {
            scope.spawn(|| {
                let old = redis.client();
                old.sends("PING").gets("+PONG");
                let watches = || {
                    let list = redis.client().sends("CLIENT LIST").text();
                    list.contains("cmd=monitor")
                };
                wait_for("MONITOR to have begun", watches);
                for _ in 0..STARTED {
                    match is_new {
                        true => beats(&redis.client()),
                        false => beats(&old),
                    }
                }
                is_over.store(true, Ordering::Relaxed);
            });
            let words = ["discover", "--from-monitor", "4", "-o", "toml"];
            let rate = ["--max-rate", "1000000", "--backend-url", &url];
            said(lockwarden(&words).args(rate))
        });
        assert!(is_over.load(Ordering::Relaxed), "it has worked in time");
        let guarded = found.stdout.matches("[[guard]]").count();
        let left_out = found.stdout.matches(STARTS).count();
        let expected = if is_new { (1, 2) } else { (1, 0) };
        assert_eq!((guarded, left_out), expected, "{}", found.stdout);
        let has_schedule = found.stdout.contains("\"redbeat::schedule\"");
        assert_eq!(has_schedule, !is_new, "{}", found.stdout);
    }
}

#[test]
fn guards_are_found_by_monitor_before_there_is_a_proxy() {
    let redis = Redis::start();
    let url = format!("redis://{}", redis.address());
    let is_over = AtomicBool::new(false);
    let found = std::thread::scope(|scope| {
        scope.spawn(|| {
            let (worker, importer) = (redis.client(), redis.client());
            importer.sends("CLIENT SETNAME importer").gets("+OK");
            while !is_over.load(Ordering::Relaxed) {
                work(&worker, &importer);
            }
        });
        let words = ["discover", "--from-monitor", "3", "--max-rate", "1000000", "-o", "json", "--backend-url", &url];
        let finished = said(&mut lockwarden(&words));
        is_over.store(true, Ordering::Relaxed);
        finished
    });
    // Locks of that name are in a namespace, as there is no other configuration.
    assert_eq!(found.code, Some(0), "{}", found.stderr);
    let all = guards(&found.stdout);
    let pair = |one: &Value| format!("{} < {}", one["keys"], one["lock"]);
    let mut pairs: Vec<String> = all.iter().map(pair).collect();
    pairs.sort();
    assert_eq!(
        pairs,
        ["\"order:{id}:last\" < \"lock:sale:{id}\"", "\"stock:{id}\" < \"lock:sale:{id}\""],
        "{}",
        found.stdout
    );
    let stock = all.iter().find(|one| one["keys"] == "stock:{id}");
    let stock = stock.expect("it is there");
    assert_eq!(stock["outside"], json!({"key": "stock:13", "application": "importer"}));
    assert!(stock["under"].as_u64() >= Some(30), "{stock}");
}
