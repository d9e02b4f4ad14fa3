//! `lockwarden check --backend`: what it reports about a server, and what it accepts.

use std::fs;

use lockwarden_tests::{Finished, Proxy, Redis, lockwarden, run_to_end, wait_for};

#[track_caller]
fn check(redis: &Redis) -> Finished {
    let directory = tempfile::tempdir().expect("a directory for the configuration");
    let config = directory.path().join("good.toml");
    fs::write(&config, Proxy::builder(redis).text()).expect("the directory is ours");
    run_to_end(lockwarden(&["check", "--backend", "--config"]).arg(&config))
}

/// Locks have a TTL, and so have all records: a policy that spares keys without one spares neither.
#[test]
fn an_eviction_that_takes_locks_is_named() {
    for (policy, memory, takes_locks) in [
        ("allkeys-lru", "64mb", true),
        ("volatile-ttl", "64mb", true),
        ("volatile-lru", "64mb", true),
        ("noeviction", "64mb", false),
        ("volatile-ttl", "0", false),
    ] {
        let redis = Redis::with_arguments(&["--maxmemory", memory, "--maxmemory-policy", policy]);
        let end = check(&redis);
        let words = format!("maxmemory-policy is {policy}");
        assert_eq!(end.stdout.contains(&words), takes_locks, "{end:?}");
        assert_eq!(end.code, Some(takes_locks.into()), "{end:?}");
        let proxy = Proxy::builder(&redis).start();
        let shown = proxy.metric("lockwarden_backend_evicts_locks");
        assert_eq!(shown, f64::from(u8::from(takes_locks)), "{policy}");
        // The log is written a little later than the counters.
        if takes_locks {
            proxy.logs(&["WARN", "maxmemory-policy", policy]);
        } else {
            assert_eq!(proxy.logged(&["WARN", "maxmemory-policy"]), 0, "{}", proxy.log());
        }
    }
}

/// A pool whose holder was lost: its lock is owed a release, of which a key of the proxy's own knows.
fn leaves_a_debt(redis: &Redis) {
    let proxy = Proxy::enforcing(redis);
    let clients: Vec<_> = (0..2).map(|_| proxy.client_from("127.40.0.9")).collect();
    clients[0].sends("SET lock:job 1 NX PX 9000").gets("+OK");
    redis.client().sends("DEL lock:job").gets(":1");
    clients[1].sends("SET lock:job 1 NX PX 9000").gets("+OK");
}

#[test]
fn the_proxys_own_keys_are_not_called_foreign() {
    let redis = Redis::start();
    leaves_a_debt(&redis);
    let console = redis.client();
    let debts = console.sends("KEYS lw:{*}#lock:job").reply();
    assert_eq!(debts.elements().len(), 1, "{debts}");
    console.sends("ZADD lw:{}:lockwarden-kept 1 lock:job").gets(":1");
    wait_for("the proxy to be gone", || {
        let end = check(&redis);
        end.code == Some(0) && !end.stdout.contains("lw:{")
    });
}

#[test]
fn a_key_under_a_name_of_the_proxys_own_is_told_without_an_advice_that_loses_records() {
    for name in ["lw:{ab}:lock:mine", "lw:{ab}#lock:mine"] {
        let redis = Redis::start();
        redis.client().sends(format!("HSET {name} a 1")).gets(":1");
        let end = check(&redis);
        assert_eq!(end.code, Some(1), "{end:?}");
        assert!(end.stdout.contains(name), "{end:?}");
        assert!(end.stdout.contains("set another companion_prefix"), "{end:?}");

        leaves_a_debt(&redis);
        let end = check(&redis);
        assert!(end.stdout.contains(name), "{end:?}");
        assert!(!end.stdout.contains("set another companion_prefix"), "{end:?}");
        assert!(end.stdout.contains("would lose the records"), "{end:?}");
    }
}

/// Keys that match by accident would be governed as locks.
#[test]
fn a_namespace_that_has_most_keys_of_a_server_is_named_with_figures() {
    let redis = Redis::start();
    redis.client().sends("DEBUG POPULATE 1500 lock:page").gets("+OK");
    redis.client().sends("DEBUG POPULATE 500 other").gets("+OK");
    let end = check(&redis);
    assert_eq!(end.code, Some(1), "{end:?}");
    let words = "its keys match 1,500 of the 2,000 keys that were looked at (75.0 %)";
    assert!(end.stdout.contains(words), "{end:?}");
    redis.client().sends("DEBUG POPULATE 1500 more").gets("+OK");
    let end = check(&redis);
    assert_eq!(end.code, Some(0), "{end:?}");
}
