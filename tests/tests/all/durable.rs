//! `durability = "wait:…"`: a client gets the reply that it holds a lock when replicas have the grant. Where too few
//! have it in time, the lock is given back at once, and the client gets the reply of a refused acquire. Clients never
//! see `WAIT` or its answer.

mod strict;

use std::time::{Duration, Instant};

use lockwarden_tests::{Client, Mode, Proxy, ProxyBuilder, Redis, Server, State, lockwarden, run_to_end, wait_for};

use crate::twins::Guarded;

const ENOUGH: &str = "lockwarden_durability_total{namespace=\"locks\",result=\"enough\"}";
const TOO_FEW: &str = "lockwarden_durability_total{namespace=\"locks\",result=\"too-few\"}";
const UNKNOWN: &str = "lockwarden_durability_total{namespace=\"locks\",result=\"unknown\"}";
const CONTENDED: &str = "lockwarden_lock_acquires_total{namespace=\"locks\",outcome=\"contended\"}";

/// A primary and its replica, which stands still where a test wants that: nothing is confirmed then, and the primary
/// notices nothing else.
struct Pair {
    primary: Redis,
    replica: Redis,
}

/// A primary that does not wait for more replicas before it copies to the first.
const SYNCS_AT_ONCE: [&str; 2] = ["--repl-diskless-sync-delay", "0"];

impl Pair {
    fn start() -> Pair {
        Pair::of(Redis::with_arguments(&SYNCS_AT_ONCE))
    }

    fn of(primary: Redis) -> Pair {
        let replica = Redis::start();
        let port = primary.address().port();
        let client = replica.client();
        client.sends(format!("REPLICAOF 127.0.0.1 {port}")).gets("+OK");
        let pair = Pair { primary, replica };
        pair.hears();
        pair
    }

    fn builder(&self) -> ProxyBuilder {
        self.waiting("wait:1:300ms")
    }

    fn waiting(&self, durability: &str) -> ProxyBuilder {
        // The TTL runs while replicas are asked.
        Proxy::builder(&self.primary).namespace("durability", &format!("{durability:?}")).default_ttl("9s")
    }

    /// Waits until the replica confirms what is written.
    #[track_caller]
    fn hears(&self) {
        let client = self.primary.client();
        wait_for("the replica to confirm a write", || {
            client.sends("SET heard 1").gets("+OK");
            client.sends("WAIT 1 1000").integer() == 1
        });
    }

    #[track_caller]
    fn hears_again(&self) {
        self.replica.thaw();
        self.hears();
    }
}

#[track_caller]
fn was_given_back(redis: &Redis, key: &str) {
    assert!(redis.is_free(key), "{key} is held");
    let record = redis.record(key).expect("a lock that was granted has a record");
    assert_eq!(record.state, State::Released, "{key}");
}

/// On a busy machine a replica may not have it in time at once.
#[track_caller]
fn comes_to(client: &Client, line: &str, expected: &str) {
    wait_for(&format!("{line} to be confirmed"), || client.sends(line).reply().to_string() == expected);
}

fn no_replicas(what: &str) -> String {
    format!("-NOREPLICAS {what}: fewer than 1 replica confirmed it within 300 ms")
}

#[test]
fn a_grant_that_a_replica_has_is_told_as_ever() {
    let pair = Pair::start();
    let proxy = pair.waiting("wait:1:1s").start();
    let alice = proxy.client();
    alice.pipelines(
        &[
            "PING",
            "SETNX lock:job a1",
            "GET lock:job",
            "EXPIRE lock:job 5",
            "ECHO between",
            "DEL lock:job",
            "SET lock:job a2 NX EX 5",
            "MULTI",
            "DEL lock:job",
            "SET lock:job a3 NX EX 5",
            "INCR plain",
            "EXEC",
            "PING",
        ],
        &[
            "+PONG",
            ":1",
            "$2 a1",
            ":1",
            "$7 between",
            ":1",
            "+OK",
            "+OK",
            "+QUEUED",
            "+QUEUED",
            "+QUEUED",
            "[:1, +OK, :1]",
            "+PONG",
        ],
    );
    assert_eq!(pair.replica.value("lock:job"), "$2 a3");
    assert_eq!(proxy.metric(ENOUGH), 4.0, "three grants and an extension");
    assert_eq!(proxy.metric(TOO_FEW), 0.0);
    assert_eq!(proxy.metric("lockwarden_wait_seconds_count"), 4.0);
    // A release does not wait, nor does an acquire of a lock that is held.
    let bob = proxy.client();
    bob.sends("SETNX lock:job b1").gets(":0");
    alice.sends("DEL lock:job").gets(":1");
    assert_eq!(proxy.metric("lockwarden_wait_seconds_count"), 4.0);
}

/// Each way to take a lock, and the reply to its loser.
#[test]
fn a_grant_that_no_replica_has_is_given_back_at_once() {
    let pair = Pair::start();
    let proxy = pair.builder().namespace("counter_locks", "true").start();
    let alice = proxy.client();
    pair.replica.freeze();
    let given_back = no_replicas("the lock was given back");
    let mut times = 0.0;
    for (line, expected) in [
        ("SETNX lock:job a1", ":0"),
        ("SET lock:job a1 NX PX 5000", "nil"),
        ("INCR lock:job", ":2"),
        ("MSETNX lock:job a1 lock:other a1", ":0"),
        ("SET lock:job a1 PX 5000", &given_back),
        ("SET lock:job a1 NX GET PX 5000", &given_back),
        ("GETSET lock:job a1", &given_back),
    ] {
        alice.sends(line).gets(expected);
        was_given_back(&pair.primary, "lock:job");
        times += 1.0;
        assert_eq!(proxy.metric(TOO_FEW), times, "{line}");
    }
    was_given_back(&pair.primary, "lock:other");
    let text = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', 5000) then return 'mine' else return redis.call('PTTL', KEYS[1]) end";
    assert_eq!(alice.eval(text, &["lock:job"], &["a1"]), ":1", "a short time");
    let text = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', 5000) then return 1 else return 0 end";
    assert_eq!(alice.eval(text, &["lock:job"], &["a1"]), ":0");
    was_given_back(&pair.primary, "lock:job");
    assert_eq!(proxy.metric(CONTENDED), 10.0, "MSETNX took two");
    assert_eq!(proxy.metric(ENOUGH), 0.0);
    assert_eq!(proxy.metric("lockwarden_locks_held{namespace=\"locks\",ttl=\"finite\"}"), 0.0);

    let before = pair.primary.fence("lock:job");
    pair.hears_again();
    let bob = proxy.client();
    comes_to(&bob, "SETNX lock:job b1", ":1");
    assert!(pair.primary.fence("lock:job") > before, "a number was left out");
    // No client owes a release for what was given back, so this is a stranger's.
    alice.sends("DEL lock:job").gets(":0");
    assert_eq!(pair.primary.value("lock:job"), "$2 b1");
    bob.sends("DEL lock:job").gets(":1");
}

/// Nor is it the last holder of that lock, who may write what the lock guards until another client is granted it.
#[test]
fn who_was_told_nil_writes_no_guarded_data() {
    let pair = Pair::start();
    let guard = r#"
[[guard]]
name = "stock"
keys = ["stock:{id}"]
lock = "lock:sale:{id}"
mode = "enforce"
"#;
    let proxy = pair.builder().more(guard).start();
    let (alice, twin) = (proxy.client_from("127.0.0.2"), proxy.client_from("127.0.0.2"));
    let takes = "SET lock:sale:7 3b241101-e2bb-4255 NX PX 9000";
    pair.replica.freeze();
    alice.sends(takes).gets("nil");
    for client in [&alice, &twin] {
        client.sends("SET stock:7 0").gets_error("LOCKDENIED not-owner key=stock:7 cmd=SET lock=lock:sale:7");
    }
    assert_eq!(pair.primary.value("stock:7"), "nil");
    // A lock in which others hold a share ends by its TTL, and its record names no holder any more.
    let joins = "redis.call('hset', KEYS[1], ARGV[1], 1, ARGV[2], 1) redis.call('pexpire', KEYS[1], 9000)";
    let shares = ["job-8c1f0a2e9b7d4f6a", "job-4d7c0d2b1d5e41f6"];
    let said = alice.eval(joins, &["lock:sale:8"], &shares);
    assert!(said.starts_with("-NOREPLICAS"), "{said}");
    assert!(!pair.primary.is_free("lock:sale:8"));
    alice.sends("SET stock:8 0").gets_error("LOCKDENIED not-owner key=stock:8");
    pair.hears_again();
    comes_to(&alice, takes, "+OK");
    alice.sends("SET stock:7 1").gets("+OK");
    assert!(!proxy.log().contains("shared"), "{}", proxy.log());
}

#[test]
fn an_extension_that_no_replica_has_is_told_as_one_that_failed_and_nothing_is_undone() {
    let pair = Pair::start();
    let proxy = pair.builder().start();
    let alice = proxy.client();
    comes_to(&alice, "SET lock:job a1 NX PX 9000", "+OK");
    let before = proxy.metric(TOO_FEW);
    let fence = pair.primary.fence("lock:job");
    pair.replica.freeze();
    alice.sends("PEXPIRE lock:job 8000").gets(":0");
    alice.sends("SET lock:job a1 XX PX 8000").gets("nil");
    let doubtful = no_replicas("the lock counts as not extended");
    alice.sends("GETEX lock:job PX 8000").gets(&doubtful);
    alice.sends("SET lock:job a1 PX 8000").gets(&doubtful);
    let text =
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], 8000) else return 0 end";
    assert_eq!(alice.eval(text, &["lock:job"], &["a1"]), ":0");
    let text = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('PEXPIRE', KEYS[1], 8000) return 'again' \
                elseif redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', 8000) then return 'mine' else return 'no' end";
    assert_eq!(alice.eval(text, &["lock:job"], &["a1"]), "$2 no");
    assert_eq!(proxy.metric(TOO_FEW), before + 6.0);
    // It is the holder's all the same, and a release waits for no replica.
    assert_eq!(pair.primary.value("lock:job"), "$2 a1");
    assert_eq!(pair.primary.fence("lock:job"), fence);
    let left = pair.primary.pttl("lock:job");
    assert!((1..=8000).contains(&left), "{left}");
    alice.sends("DEL lock:job").gets(":1");
    was_given_back(&pair.primary, "lock:job");
    pair.replica.thaw();
}

#[test]
fn in_a_block_the_lock_is_given_back_and_the_other_writes_stay() {
    let pair = Pair::start();
    let proxy = pair.builder().start();
    let alice = proxy.client();
    pair.replica.freeze();
    alice.pipelines(
        &["MULTI", "SET plain 1", "SETNX lock:job a1", "EXPIRE lock:job 5", "INCR plain", "EXEC", "GET plain"],
        &["+OK", "+QUEUED", "+QUEUED", "+QUEUED", "+QUEUED", "[+OK, :0, :0, :2]", "$1 2"],
    );
    was_given_back(&pair.primary, "lock:job");
    // Nothing of a block that takes nothing waits.
    alice.pipelines(&["MULTI", "DEL lock:job", "INCR plain", "EXEC"], &["+OK", "+QUEUED", "+QUEUED", "[:0, :3]"]);
    // A lock that was taken in another database than the one selected after the block ends by its TTL.
    alice.pipelines(
        &["MULTI", "SELECT 1", "SET lock:far a1 NX PX 600", "SELECT 0", "EXEC"],
        &["+OK", "+QUEUED", "+QUEUED", "+QUEUED", "[+OK, nil, +OK]"],
    );
    let far = pair.primary.client();
    far.sends("SELECT 1").gets("+OK");
    wait_for("the lock to go by its TTL", || far.sends("EXISTS lock:far").integer() == 0);
    // A block that fails waits for no replica.
    let watcher = proxy.client();
    watcher.sends("WATCH plain").gets("+OK");
    alice.sends("INCR plain").gets(":4");
    watcher.pipelines(&["MULTI", "SETNX lock:job w1", "EXEC", "PING"], &["+OK", "+QUEUED", "nil-array", "+PONG"]);
    pair.hears_again();
    wait_for("a block that is confirmed", || {
        watcher.pipelines(&["MULTI", "SETNX lock:job w1"], &["+OK", "+QUEUED"]);
        watcher.sends("EXEC").reply().to_string() == "[:1]"
    });
}

#[test]
fn a_script_whose_meaning_is_not_known_hears_of_it_by_an_error() {
    let pair = Pair::start();
    let proxy = pair.builder().start();
    let alice = proxy.client();
    pair.replica.freeze();
    let told = no_replicas("the lock was given back") + "; what the script did to other keys stands";
    let text = "redis.call('INCR', KEYS[2]) return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', 5000)";
    assert_eq!(alice.eval(text, &["lock:job", "tries"], &["a1"]), told);
    was_given_back(&pair.primary, "lock:job");
    assert_eq!(pair.primary.value("tries"), "$1 1");
    // A read-write lock, as Redisson has it: another reader's share is left alone.
    let join = "redis.call('hset', KEYS[1], 'mode', 'read', ARGV[1], 1) return redis.call('pexpire', KEYS[1], ARGV[2])";
    let (first, second) = ("0f8fad5b-reader-one:1", "7c9e6679-reader-two:1");
    assert_eq!(alice.eval(join, &["lock:rw"], &[first, "5000"]), told);
    was_given_back(&pair.primary, "lock:rw");
    pair.hears_again();
    wait_for("a grant that is confirmed", || alice.eval(join, &["lock:rw"], &[first, "5000"]) == ":1");
    pair.replica.freeze();
    let error = proxy.client().eval(join, &["lock:rw"], &[second, "6000"]);
    assert!(error.starts_with("-NOREPLICAS the lock counts as not extended"), "{error}");
    let straight = pair.primary.client();
    straight.sends(format!("HEXISTS lock:rw {first}")).gets(":1");
    pair.replica.thaw();
}

#[test]
fn who_meets_a_held_lock_hears_so_at_once() {
    let pair = Pair::start();
    let proxy = pair.waiting("wait:1:1s").start();
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("SET lock:job a1 NX PX 9000").gets("+OK");
    pair.replica.freeze();
    let begun = Instant::now();
    bob.sends("SETNX lock:job b1").gets(":0");
    assert!(begun.elapsed() < Duration::from_millis(900), "{:?}", begun.elapsed());
    bob.pipelines(&["SETNX lock:job b1", "PING"], &[":0", "+PONG"]);
    assert_eq!(proxy.metric(TOO_FEW), 0.0);
    pair.replica.thaw();
}

#[test]
fn a_replica_that_answers_late_has_answered() {
    let pair = Pair::start();
    let proxy = pair.waiting("wait:1:1s").start();
    let alice = proxy.client();
    pair.replica.freeze();
    alice.write(b"SET lock:job a1 NX PX 9000\r\nPING\r\n");
    wait_for("the step to be carried out", || !pair.primary.is_free("lock:job"));
    alice.hears_nothing_for(Duration::from_millis(100));
    pair.replica.thaw();
    alice.then().gets("+OK");
    alice.then().gets("+PONG");
    assert_eq!(pair.replica.value("lock:job"), "$2 a1");
    assert_eq!(proxy.metric(ENOUGH), 1.0);
}

/// The server stands still while it waits: its reply is just as true when it comes late.
#[test]
fn an_answer_of_a_server_that_stood_still_is_taken_as_it_is() {
    let pair = Pair::start();
    let proxy = pair.waiting("wait:1:300ms").start();
    let alice = proxy.client();
    pair.replica.freeze();
    alice.write(b"SET lock:job a1 NX PX 9000\r\nPING\r\n");
    wait_for("the step to be carried out", || !pair.primary.is_free("lock:job"));
    pair.primary.freeze();
    alice.hears_nothing_for(Duration::from_millis(600));
    pair.primary.thaw();
    alice.then().gets("nil");
    alice.then().gets("+PONG");
    was_given_back(&pair.primary, "lock:job");
    pair.replica.thaw();
}

#[test]
fn who_waits_when_the_server_dies_is_closed() {
    for (sessions, lines) in [
        ("dedicated", "SET lock:job a1 NX PX 9000\r\nPING\r\n"),
        ("multiplexed", "SET lock:job a1 NX PX 9000\r\nPING\r\n"),
        ("dedicated", "EXEC\r\nPING\r\n"),
    ] {
        let mut pair = Pair::start();
        let proxy = pair.waiting("wait:1:1s").top("sessions", &format!("{sessions:?}")).start();
        let alice = proxy.client();
        if lines.starts_with("EXEC") {
            alice.pipelines(&["MULTI", "SET lock:job a1 NX PX 9000"], &["+OK", "+QUEUED"]);
        }
        let straight = pair.primary.client();
        pair.replica.freeze();
        alice.write(lines.as_bytes());
        wait_for("the step to be carried out", || straight.sends("EXISTS lock:job").integer() == 1);
        pair.primary.stop();
        alice.then().gets_close();
        proxy.counts(UNKNOWN, 1.0);
        assert_eq!(proxy.metric(TOO_FEW), 0.0);
        pair.replica.thaw();
    }
}

/// A client that hangs up while replicas are asked has not got the reply to its acquire.
#[test]
fn a_client_that_goes_meanwhile_is_one_that_did_not_hear_of_its_grant() {
    let pair = Pair::start();
    let proxy = pair.waiting("wait:1:1s").start();
    let alice = proxy.client();
    alice.sends("PING").gets("+PONG");
    pair.replica.freeze();
    alice.write(b"SET lock:job 6e3d0bcd-9c1e-4a07-8b3f-5c1d00a7f9e2 NX PX 9000\r\n");
    wait_for("the step to be carried out", || !pair.primary.is_free("lock:job"));
    alice.resets();
    wait_for("the lock to be given back, or marked", || {
        pair.primary.is_free("lock:job")
            || pair.primary.record("lock:job").is_some_and(|record| record.is_undelivered())
    });
    pair.replica.thaw();
}

#[test]
fn on_shared_connections_nobody_else_waits() {
    let pair = Pair::start();
    let proxy = pair.waiting("wait:1:1s").multiplexed().start();
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("SET plain 1").gets("+OK");
    bob.sends("SET other 1").gets("+OK");
    alice.pipelines(
        &["SET plain 2", "SETNX lock:job a1", "GET plain", "DEL lock:job", "PING"],
        &["+OK", ":1", "$1 2", ":1", "+PONG"],
    );
    pair.replica.freeze();
    alice.write(b"SET lock:job a1 NX PX 9000\r\nGET plain\r\n");
    wait_for("the step to be carried out", || !pair.primary.is_free("lock:job"));
    let begun = Instant::now();
    bob.pipelines(&["SET other 2", "GET other", "SETNX lock:job b1"], &["+OK", "$1 2", ":0"]);
    assert!(begun.elapsed() < Duration::from_millis(900), "{:?}", begun.elapsed());
    alice.then().gets("nil");
    alice.then().gets("$1 2");
    was_given_back(&pair.primary, "lock:job");
    pair.hears_again();
    bob.sends("SETNX lock:job b1").gets(":1");
}

#[test]
fn the_trail_says_why_and_nobody_seems_to_hold_the_lock() {
    let pair = Pair::start();
    let directory = tempfile::tempdir().expect("a directory");
    let trail = directory.path().join("trail.jsonl");
    let proxy = pair.builder().top("audit_file", &format!("{:?}", trail.to_str().expect("UTF-8"))).start();
    let alice = proxy.client();
    comes_to(&alice, "SET lock:held a1 NX PX 9000", "+OK");
    pair.replica.freeze();
    alice.sends("SET lock:job a1 NX PX 9000").gets("nil");
    alice.sends("PEXPIRE lock:held 8000").gets(":0");
    let lines = || -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(&trail).unwrap_or_default();
        let whole = text.lines().filter_map(|line| serde_json::from_str(line).ok());
        whole.collect()
    };
    let about = |event: &str, key: &str| {
        let line = lines().into_iter().find(|line| line["event"] == event && line["key"] == key)?;
        Some(line["detail"].as_str().unwrap_or_default().to_owned())
    };
    wait_for("a line about the grant", || about("unconfirmed", "lock:job").is_some());
    assert_eq!(
        about("unconfirmed", "lock:job").expect("it was there"),
        "the lock was given back: fewer than 1 replica confirmed it within 300 ms"
    );
    wait_for("a line about the extension", || about("extended", "lock:held").is_some());
    assert_eq!(
        about("extended", "lock:held").expect("it was there"),
        "the lock counts as not extended: fewer than 1 replica confirmed it within 300 ms"
    );
    assert_eq!(about("acquired", "lock:job"), None);
    wait_for("the view to know the lock", || proxy.get("/api/v1/locks/lock:job").0 == 200);
    let lock = proxy.api("locks/lock:job");
    assert!(lock.to_string().contains("\"unconfirmed\""), "{lock}");
    assert!(!lock.to_string().contains("\"holder\":{"), "{lock}");
    pair.replica.thaw();
}

fn add_user(redis: &Redis, rules: &str) {
    redis.client().sends(format!("ACL SETUSER jobs on >pw ~* &* +@all {rules}")).gets("+OK");
}

fn as_jobs(proxy: &Proxy) -> Client {
    let client = proxy.client();
    client.sends("AUTH jobs pw").gets("+OK");
    client
}

#[test]
fn a_user_that_may_not_wait_is_refused_before_anything_is_written() {
    for sessions in ["dedicated", "multiplexed"] {
        let pair = Pair::start();
        add_user(&pair.primary, "-wait");
        let proxy = pair.builder().top("sessions", &format!("{sessions:?}")).start();
        let jobs = as_jobs(&proxy);
        let line = |command: &str| {
            format!(
                "-NOPERM lockwarden waits for replicas behind {command} on a lock (durability): this user lacks +wait"
            )
        };
        jobs.sends("SETNX lock:job j1").gets(line("SETNX"));
        assert_eq!(pair.primary.record("lock:job"), None, "nothing was written");
        // Known by now: the block fails when it is queued, and nothing of it is carried out.
        jobs.sends("MULTI").gets("+OK");
        jobs.sends("SET plain 1").gets("+QUEUED");
        jobs.sends("SETNX lock:job j1").gets(line("SETNX"));
        jobs.sends("EXEC").gets_error("EXECABORT");
        assert_eq!(pair.primary.value("plain"), "nil");
        // Others are not refused, and a release waits for no replica.
        let alice = proxy.client();
        comes_to(&alice, "SETNX lock:job a1", ":1");
        jobs.sends("DEL lock:job").gets(":0");
        proxy.logs(&["WARN", "a user cannot wait for replicas", "jobs"]);
        assert_eq!(proxy.logged(&["a user cannot wait for replicas"]), 1);

        // A block by a user about which nothing is known: the lock is given back after it.
        add_user(&pair.primary, "-wait");
        let proxy = pair.builder().start();
        let jobs = as_jobs(&proxy);
        jobs.pipelines(
            &["MULTI", "SET plain 1", "SETNX lock:new j1", "EXEC"],
            &["+OK", "+QUEUED", "+QUEUED", "[+OK, :0]"],
        );
        was_given_back(&pair.primary, "lock:new");
        assert_eq!(proxy.metric(UNKNOWN), 1.0);
    }
}

#[test]
fn a_right_to_wait_that_is_given_is_noticed_and_one_that_is_taken_away_costs_no_lock() {
    let pair = Pair::start();
    add_user(&pair.primary, "");
    let proxy = pair.waiting("wait:1:1s").start();
    let jobs = as_jobs(&proxy);
    jobs.sends("SETNX lock:job j1").gets(":1");
    jobs.sends("DEL lock:job").gets(":1");
    add_user(&pair.primary, "-wait");
    // It was known to suffice.
    jobs.sends("SETNX lock:job j1").gets(":0");
    was_given_back(&pair.primary, "lock:job");
    jobs.sends("SETNX lock:job j1").gets_error("NOPERM lockwarden waits for replicas");
    add_user(&pair.primary, "+wait");
    wait_for("the right to be seen", || jobs.sends("SETNX lock:job j1").reply().to_string() == ":1");
}

#[test]
fn a_server_without_wait_is_told_by_its_name() {
    let redis = Redis::with_arguments(&["--rename-command", "WAIT", ""]);
    let proxy = Proxy::builder(&redis).namespace("durability", "\"wait:1:50ms\"").start();
    let alice = proxy.client();
    alice
        .sends("SETNX lock:job a1")
        .gets("-ERR lockwarden waits for replicas behind SETNX on a lock (durability), and the server has no WAIT");
    assert_eq!(redis.record("lock:job"), None);
    alice.sends("PING").gets("+PONG");
}

#[test]
fn monitor_mode_never_waits() {
    let pair = Pair::start();
    add_user(&pair.primary, "-wait");
    let proxy = pair.waiting("wait:1:1s").mode(Mode::Monitor).start();
    let jobs = as_jobs(&proxy);
    pair.replica.freeze();
    let begun = Instant::now();
    jobs.sends("SET lock:job j1 NX PX 9000").gets("+OK");
    jobs.pipelines(&["MULTI", "PEXPIRE lock:job 8000", "EXEC"], &["+OK", "+QUEUED", "[:1]"]);
    assert!(begun.elapsed() < Duration::from_millis(900), "{:?}", begun.elapsed());
    assert_eq!(proxy.metric("lockwarden_wait_seconds_count"), 0.0);
    pair.replica.thaw();
}

#[test]
fn a_value_that_is_wrong_is_told_by_check() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("lockwarden.toml");
    for (value, words) in [
        ("wait:0:50ms", "\"wait:0:50ms\": wait for at least one replica"),
        ("wait:1:2s", "\"wait:1:2s\": wait for at most 1s; a client would wait longer than most do"),
        ("twice", "write \"none\", \"wait:<replicas>:<time>\" or \"strict:<replicas>:<time>\""),
    ] {
        let text = format!("[[namespace]]\nname = \"locks\"\nkeys = [\"lock:*\"]\ndurability = \"{value}\"\n");
        std::fs::write(&file, text).expect("the directory is ours");
        let finished = run_to_end(lockwarden(&["check", "--config"]).arg(&file));
        let said = format!("{}{}", finished.stdout, finished.stderr);
        assert!(said.contains("namespace \"locks\": durability: "), "{said}");
        assert!(said.contains(words), "{said}");
    }
}

/// A batch of renewals is asked for like a grant.
#[test]
fn a_renewal_that_no_replica_has_is_tried_again_sooner() {
    let pair = Pair::start();
    // A third of it is the usual time between two renewals, which is too long for this test.
    let proxy = pair.builder().start();
    let alice = proxy.client();
    comes_to(&alice, "SETNX lock:job a1", ":1");
    wait_for("a renewal that the replica has", || proxy.metric(ENOUGH) >= 2.0);
    pair.replica.freeze();
    let before = proxy.metric(TOO_FEW);
    wait_for("a renewal that it has not", || proxy.metric(TOO_FEW) > before);
    let begun = Instant::now();
    wait_for("the next", || proxy.metric(TOO_FEW) > before + 1.0);
    let between = begun.elapsed();
    assert!(between < Duration::from_millis(2_700), "{between:?}");
    // The lease goes on: it was renewed on the primary.
    assert_eq!(pair.primary.value("lock:job"), "$2 a1");
    pair.replica.thaw();
    let before = proxy.metric(ENOUGH);
    wait_for("a renewal that it has again", || proxy.metric(ENOUGH) > before);
}

/// Runs a command with the configuration of such a proxy; what it said, and its exit code.
fn runs(words: &[&str], builder: &ProxyBuilder) -> (String, Option<i32>) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("lockwarden.toml");
    std::fs::write(&file, builder.text()).expect("the directory is ours");
    let finished = run_to_end(lockwarden(words).arg("--config").arg(&file));
    (format!("{}{}", finished.stdout, finished.stderr), finished.code)
}

#[test]
fn check_says_how_many_replicas_there_are_and_where_they_are_too_few() {
    let check = ["check", "--backend"];
    let pair = Pair::start();
    let (said, code) = runs(&check, &pair.builder());
    let limits = "min-replicas-to-write 0, min-replicas-max-lag 10";
    assert!(said.contains(&format!("backend: 1 replica online; {limits}")), "{said}");
    assert!(said.contains("backend: min-replicas-to-write is 0: "), "{said}");
    assert_eq!(code, Some(0), "{said}");
    let (said, code) = runs(&check, &pair.waiting("wait:2:50ms"));
    let doubt =
        "backend: namespace locks: its grants wait for 2 replicas (durability), and the server has 1: every grant";
    assert!(said.contains(doubt), "{said}");
    assert_eq!(code, Some(1), "{said}");
    // Where no replica is waited for, only the number of replicas is reported.
    let (said, code) = runs(&check, &pair.waiting("none"));
    assert!(said.contains("backend: 1 replica online"), "{said}");
    assert!(!said.contains("min-replicas-to-write is 0"), "{said}");
    assert_eq!(code, Some(0), "{said}");

    let alone = Redis::with_arguments(&["--rename-command", "WAIT", ""]);
    let (said, code) = runs(&check, &Proxy::builder(&alone));
    assert!(!said.contains("replica"), "{said}");
    assert_eq!(code, Some(0), "{said}");
    let durable = Proxy::builder(&alone).namespace("durability", "\"wait:1:50ms\"");
    let (said, code) = runs(&check, &durable);
    assert!(said.contains("backend: 0 replicas online"), "{said}");
    assert!(said.contains("and the server has 0"), "{said}");
    assert!(
        said.contains("the server has no WAIT: where grants wait for replicas (durability) lock commands are refused"),
        "{said}"
    );
    assert_eq!(code, Some(1), "{said}");
}

/// `check` names the users that lack the right, and `acl` gives it: to a twin, and to the proxy's own user.
#[test]
fn the_right_to_wait_is_asked_for_and_given_where_grants_wait() {
    if Server::under_test().lacks("ACL DRYRUN", 7, 0) {
        return;
    }
    let guarded = Guarded::start();
    guarded.admin("ACL SETUSER shop on >pw ~* &* +@all -wait");
    let durable = |durability: &str| guarded.proxy(&["shop"]).namespace("durability", &format!("{durability:?}"));
    let lacks = "backend: user shop may take locks of namespace locks and lacks +wait";
    let (said, _) = runs(&["check", "--backend"], &durable("wait:1:50ms"));
    assert!(said.contains(lacks), "{said}");
    let (said, _) = runs(&["check", "--backend"], &durable("none"));
    assert!(!said.contains("+wait"), "{said}");

    guarded.admin("ACL SETUSER warden -wait");
    let (said, _) = runs(&["check", "--backend"], &durable("wait:1:50ms"));
    assert!(said.contains("the proxy's own user warden lacks +wait"), "{said}");
    let (said, code) = runs(&["acl", "--apply", "--without-twin"], &durable("wait:1:50ms"));
    assert_eq!(code, Some(0), "{said}");
    let rules = |user: &str| guarded.admin(&format!("ACL GETUSER {user}"));
    assert!(!rules("warden").contains("-wait"), "{}", rules("warden"));
    assert!(!rules("shop-lw").contains("-wait"), "{}", rules("shop-lw"));
    assert!(rules("shop").contains("-wait"), "{}", rules("shop"));
    let (said, _) = runs(&["acl", "--without-twin"], &durable("wait:1:50ms"));
    assert!(said.contains("nothing is to be changed"), "{said}");
    // Through the proxy the twin waits, in its user's place.
    let proxy = durable("wait:1:50ms").start();
    let shop = proxy.client();
    shop.sends("AUTH shop pw").gets("+OK");
    shop.sends("SETNX lock:job s1").gets(":0");
    assert_eq!(proxy.metric(TOO_FEW), 1.0, "there is no replica");
    shop.sends("ACL WHOAMI").gets("$4 shop");
    assert!(guarded.admin("EXISTS lock:job").contains(":0"));
}
