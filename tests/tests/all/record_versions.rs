//! Records of other versions of lockwarden. A record that only a later version may read is left to that version: it is neither
//! judged nor written, and Redis alone decides about its lock. Each released version has a record here, which is read.

use std::fs;

use lockwarden_tests::{Client, Proxy, Redis, lockwarden, run_to_end};

const HOLDER: &str = "job-8c1f0a2e9b7d4f6a";
/// The script with which most libraries give a lock back.
const COMPARE_AND_DELETE: &str =
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";

/// The name of the record of `lock:a`.
const RECORD: &str = "lw:{0j4}:lock:a";

/// A record as version 0.1.0 wrote it, whose flags and rest are these.
fn golden(state: &str, flags: u8, rest: &str) -> Vec<u8> {
    let since = "1795260990627";
    let numbers = format!("{since}782{since}00000036000001795264590627");
    let head = [b"1", state.as_bytes(), &[flags]].concat();
    [&head[..], &[7; 16], &[8; 16], &[9; 8], &[0; 8], numbers.as_bytes(), rest.as_bytes()].concat()
}

/// Records that no proxy of this version may judge.
fn of_later_versions() -> Vec<Vec<u8>> {
    let mut known = golden("L", b'@', HOLDER);
    known[0] = b'2';
    let mut released = known.clone();
    released[1] = b'R';
    let another_layout = [b"2L".as_slice(), &[b'x'; 300]].concat();
    vec![known, released, another_layout, b"9Q".to_vec()]
}

/// A held lock, with this record beside it.
fn lock_with(redis: &Redis, record: &[u8]) {
    let client = redis.client();
    client.sends(format!("SET lock:a {HOLDER} PX 60000")).gets("+OK");
    client.sends_arguments(&[b"SET".as_slice(), RECORD.as_bytes(), record, b"PX", b"90000"]).gets("+OK");
}

#[track_caller]
fn is_untouched(redis: &Redis, record: &[u8], after: &str) {
    let stored = redis.client().sends(format!("GET {RECORD}")).reply();
    assert_eq!(stored.bytes(), record, "{after}");
}

#[test]
fn a_record_of_a_later_version_is_neither_judged_nor_written() {
    for record in of_later_versions() {
        let redis = Redis::start();
        let proxy = Proxy::enforcing(&redis);
        let client = proxy.client();
        // The replies about a held lock are Redis's own.
        for (command, reply) in [
            ("SETNX lock:a stranger", ":0"),
            ("SET lock:a stranger NX PX 9000", "nil"),
            ("SET lock:a stranger NX GET", "$20 job-8c1f0a2e9b7d4f6a"),
            ("MSETNX lock:a stranger lock:b stranger", ":0"),
            ("EXPIRE lock:a 70", ":1"),
            ("GETEX lock:a PX 60000", "$20 job-8c1f0a2e9b7d4f6a"),
            ("DEL lock:b lock:a", ":1"),
            ("DEL lock:a", ":1"),
            ("GETDEL lock:a", "$20 job-8c1f0a2e9b7d4f6a"),
            ("SET lock:a stranger", "+OK"),
            ("GETSET lock:a stranger", "$20 job-8c1f0a2e9b7d4f6a"),
        ] {
            lock_with(&redis, &record);
            client.sends(command).gets(reply);
            is_untouched(&redis, &record, command);
        }
        lock_with(&redis, &record);
        assert_eq!(client.eval(COMPARE_AND_DELETE, &["lock:a"], &["another"]), ":0");
        assert_eq!(client.eval(COMPARE_AND_DELETE, &["lock:a"], &[HOLDER]), ":1");
        lock_with(&redis, &record);
        assert_eq!(
            client.eval("return redis.call('incr', KEYS[2]) + redis.call('del', KEYS[1])", &["lock:a", "n"], &[]),
            ":2"
        );
        is_untouched(&redis, &record, "scripts");
        proxy.logs(&["WARN", "later version of lockwarden", "lock:a"]);
        assert_eq!(proxy.logged(&["WARN", "later version of lockwarden"]), 1, "{}", proxy.log());
    }
}

/// A client that takes the free lock has it on the terms that it asked for: a TTL that the proxy chose would
/// not be renewed.
#[test]
fn a_free_lock_beside_such_a_record_is_taken_as_asked_and_stays_unrecorded() {
    for record in of_later_versions() {
        let redis = Redis::start();
        let proxy = Proxy::builder(&redis).default_ttl("5s").ceiling("9s").start();
        let (client, straight) = (proxy.client(), redis.client());
        let free = |lives_ms: u64| {
            lock_with(&redis, &record);
            straight.sends("DEL lock:a").gets(":1");
            straight.sends(format!("PEXPIRE {RECORD} {lives_ms}")).gets(":1");
        };
        for (command, reply, ttl) in [
            ("SETNX lock:a mine", ":1", -1),
            ("SET lock:a mine NX PX 600000", "+OK", 600_000),
            ("SET lock:a mine NX GET EX 600", "nil", 600_000),
            ("SET lock:a mine EX 600", "+OK", 600_000),
            ("MSETNX lock:a mine lock:b mine", ":1", -1),
        ] {
            free(50_000);
            straight.sends("DEL lock:b").reply();
            client.sends(command).gets(reply);
            is_untouched(&redis, &record, command);
            let left = redis.pttl("lock:a");
            assert!(if ttl < 0 { left == ttl } else { left > ttl - 30_000 && left <= ttl }, "{command}: {left}");
            if command != "SETNX lock:a mine" {
                let lives = redis.pttl(RECORD);
                assert!(lives <= 50_000, "{command}: it does not live longer by that: {lives}");
            }
            client.sends("SETNX lock:a other").gets(":0");
            client.sends("DEL lock:a").gets(":1");
        }
        let script = "if redis.call('set',KEYS[1],ARGV[1],'NX','PX',ARGV[2]) then return 1 else return 0 end";
        free(50_000);
        assert_eq!(client.eval(script, &["lock:a"], &["mine", "600000"]), ":1");
        assert!(redis.pttl("lock:a") > 500_000);
        let wrapped = "redis.call('incr', KEYS[2]) return redis.call('setnx', KEYS[1], ARGV[1])";
        free(50_000);
        assert_eq!(client.eval(wrapped, &["lock:a", "n"], &["mine"]), ":1");
        is_untouched(&redis, &record, "scripts");
        // Once it is gone the lock is governed again.
        straight.sends(format!("DEL lock:a {RECORD}")).gets(":2");
        client.sends("SETNX lock:a mine").gets(":1");
        proxy.client_from("127.0.0.3").sends("DEL lock:a").gets(":0");
    }
}

#[test]
fn what_is_monitored_is_as_it_is_on_redis() {
    for record in of_later_versions() {
        let redis = Redis::start();
        let proxy = Proxy::monitoring(&redis);
        let client = proxy.client();
        lock_with(&redis, &record);
        client.sends("SETNX lock:a stranger").gets(":0");
        client.sends("DEL lock:a").gets(":1");
        client.sends("SETNX lock:a stranger").gets(":1");
        client.sends("DEL lock:a").gets(":1");
        client.sends("SET lock:a stranger NX PX 9000").gets("+OK");
        client.sends("SET lock:a stranger PX 9000").gets("+OK");
        assert_eq!(client.eval(COMPARE_AND_DELETE, &["lock:a"], &["stranger"]), ":1");
        is_untouched(&redis, &record, "monitor mode");
        proxy.logs(&["WARN", "later version of lockwarden"]);
    }
}

#[test]
fn nobody_writes_guarded_data_by_such_a_record() {
    let guard = "[[guard]]\nname = \"stock\"\nkeys = [\"stock:{id}\"]\nlock = \"lock:{id}\"\nmode = \"enforce\"\nunlocked = \"allow\"\n";
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).more(guard).start();
    let client = proxy.client();
    client.sends("SET stock:a 1").gets("+OK");
    for record in of_later_versions() {
        lock_with(&redis, &record);
        client.sends("SET stock:a 2").gets_error("LOCKDENIED not-owner");
        let script = client.eval(
            "redis.call('set', KEYS[2], 1) return redis.call('set', KEYS[1], 3)",
            &["stock:a", "lock:a"],
            &[],
        );
        assert!(script.starts_with("-LOCK"), "{script}");
    }
    assert_eq!(redis.client().sends("GET stock:a").reply().to_string(), "$1 1");
}

#[test]
fn check_names_both_versions() {
    let redis = Redis::start();
    let builder = Proxy::builder(&redis);
    let directory = tempfile::tempdir().expect("a directory for the configuration");
    let config = directory.path().join("good.toml");
    fs::write(&config, builder.text()).expect("the directory is ours");
    for (record, is_told) in [(golden("L", b'@', HOLDER), false), (of_later_versions().remove(2), true)] {
        lock_with(&redis, &record);
        let end = run_to_end(lockwarden(&["check", "--backend", "--config"]).arg(&config));
        let words = "asks for readers of version 2 or later, and this lockwarden reads version 1";
        assert_eq!(end.stdout.contains(words), is_told, "{end:?}");
        assert_eq!(end.code, Some(is_told.into()), "{end:?}");
    }
}

/// A value in the place of a record that is not a record is replaced; no connection ends because of it.
#[test]
fn what_is_no_record_is_replaced() {
    let others: [&[u8]; 6] = [b"", b"1", b"1L", b"hello", &[b'1'; 300], &[b"1L@".as_slice(), &[b'x'; 300]].concat()];
    for other in others {
        let redis = Redis::start();
        let proxy = Proxy::enforcing(&redis);
        let client = proxy.client();
        lock_with(&redis, other);
        client.sends("SETNX lock:a stranger").gets(":0");
        client.sends("DEL lock:a").gets(":1");
        lock_with(&redis, other);
        redis.client().sends("DEL lock:a").gets(":1");
        client.sends("SETNX lock:a mine").gets(":1");
        proxy.client_from("127.0.0.3").sends("DEL lock:a").gets(":0");
        client.sends("DEL lock:a").gets(":1");
    }
}

fn is_governed(stranger: &Client) {
    stranger.sends("SETNX lock:a stranger").gets(":0");
    stranger.sends("DEL lock:a").gets(":0");
    assert_eq!(stranger.eval(COMPARE_AND_DELETE, &["lock:a"], &["another"]), ":0");
}

/// A record of each released layout: the lock is the holder's, who gives it back.
#[test]
fn a_record_of_each_released_version_is_read() {
    for record in
        [golden("L", b'@', HOLDER), golden("L", b'B', HOLDER), golden("L", b'H', HOLDER), golden("L", b'`', HOLDER)]
    {
        let redis = Redis::start();
        let proxy = Proxy::enforcing(&redis);
        lock_with(&redis, &record);
        is_governed(&proxy.client());
        assert_eq!(redis.fence("lock:a"), 1_795_260_990_627_782);
        assert_eq!(proxy.client().eval(COMPARE_AND_DELETE, &["lock:a"], &[HOLDER]), ":1");
        let mut released = record.clone();
        released[1] = b'R';
        is_untouched(&redis, &released, "given back");
        proxy.client().sends("SETNX lock:a mine").gets(":1");
        assert!(redis.fence("lock:a") > 1_795_260_990_627_782);
    }
    for state in ["R", "T", "E", "B"] {
        let redis = Redis::start();
        let proxy = Proxy::enforcing(&redis);
        lock_with(&redis, &golden(state, b'@', HOLDER));
        // The lock was taken around the proxies.
        proxy.client().sends("DEL lock:a").gets(":1");
        proxy.client().sends("SETNX lock:a mine").gets(":1");
        assert!(redis.fence("lock:a") > 1_795_260_990_627_782);
    }
}

/// Fields that a later version has added to a record which this one may judge stand behind the owner token, and go on with the lease.
#[test]
fn added_fields_are_kept_while_the_lease_goes_on() {
    let added = "a new field0015";
    let extend =
        "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end";
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let record = golden("L", b'@' | 128, &format!("{HOLDER}{added}"));
    lock_with(&redis, &record);
    is_governed(&proxy.client());
    let ends_so = || {
        let stored = redis.client().sends(format!("GET {RECORD}")).reply();
        stored.bytes().ends_with(format!("{HOLDER}{added}").as_bytes()) && stored.bytes()[2] & 128 == 128
    };
    assert_eq!(proxy.client().eval(extend, &["lock:a"], &[HOLDER, "50000"]), ":1");
    assert!(ends_so());
    proxy.client().sends(format!("SET lock:a {HOLDER} XX KEEPTTL")).reply();
    proxy.client().sends("EXPIRE lock:a 100").reply();
    is_governed(&proxy.client());
    assert!(ends_so());
    assert_eq!(proxy.client().eval(COMPARE_AND_DELETE, &["lock:a"], &[HOLDER]), ":1");
    assert!(ends_so());
    // The next lease has what this version knows.
    proxy.client().sends("SETNX lock:a mine").gets(":1");
    assert!(!ends_so());
    proxy.client_from("127.0.0.3").sends("DEL lock:a").gets(":0");
}
