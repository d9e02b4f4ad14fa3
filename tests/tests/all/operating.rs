//! What an operator does with the proxy: stop it, override a mode, ask for its state, show a lock's story to
//! a colleague.

use std::time::{Duration, Instant};

use lockwarden_tests::{Proxy, ProxyBuilder, Redis, lockwarden, run_to_end};

#[test]
fn a_graceful_stop_ends_with_zero_and_answers_what_was_asked() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).top("drain", "\"200ms\"").start();
    let (busy, idle) = (proxy.client(), proxy.client());
    idle.sends("PING").gets("+PONG");
    busy.sends("SETNX lock:job a1").gets(":1");
    assert_eq!(proxy.stop(), Some(0));
    idle.then().gets_close();
    busy.then().gets_close();
    assert!(redis.pttl("lock:job") > 0, "a lock outlives the proxy by its TTL");
}

#[test]
fn a_stopping_proxy_says_so_before_it_goes() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).top("drain", "\"5s\"").start();
    let client = proxy.client();
    client.write(&lockwarden_tests::encode(&["BLPOP", "queue", "0"]));
    lockwarden_tests::wait_for("BLPOP to wait in Redis", || {
        let clients = redis.client().sends("INFO clients").text();
        clients.contains("blocked_clients:1")
    });
    let start = Instant::now();
    proxy.asks_to_stop();
    lockwarden_tests::wait_for("/ready to refuse", || proxy.ready() != Some(200));
    redis.client().sends("RPUSH queue work").gets(":1");
    client.then().gets("[$5 queue, $4 work]");
    assert_eq!(proxy.ends(), Some(0));
    assert!(start.elapsed() < Duration::from_secs(5), "it goes as soon as nobody waits");
}

#[test]
fn the_first_namespace_that_matches_wins_and_modes_are_its_own() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis)
        .namespace("keys", "[\"lock:safe:*\"]")
        .more("[[namespace]]\nname = \"rest\"\nkeys = [\"lock:*\", \"mutex_?\"]\nmode = \"monitor\"")
        .start();
    let (alice, bob) = (proxy.client(), proxy.client());
    for (key, stolen) in [("lock:safe:1", ":0"), ("lock:1", ":1"), ("mutex_1", ":1")] {
        alice.sends(format!("SET {key} a1 NX PX 9000")).gets("+OK");
        bob.sends(format!("DEL {key}")).gets(stolen);
    }
    proxy.counts("lockwarden_decisions_total{namespace=\"locks\",operation=\"release\",decision=\"deny\"}", 1.0);
    proxy.counts("lockwarden_decisions_total{namespace=\"rest\",operation=\"release\",decision=\"would-deny\"}", 2.0);
    alice.sends("SETNX mutex_22 a1").gets(":1");
    assert_eq!(redis.pttl("mutex_22"), -1, "no namespace matches, so it is no lock");
}

#[test]
fn a_watched_lock_in_the_same_command_opens_no_enforced_one() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis)
        .namespace("keys", "[\"lock:*\"]")
        .more("[[namespace]]\nname = \"rest\"\nkeys = [\"mutex:*\"]\nmode = \"monitor\"")
        .start();
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("SET lock:1 a1 NX PX 9000").gets("+OK");
    alice.sends("SET mutex:1 a1 NX PX 9000").gets("+OK");
    bob.sends("DEL lock:1 mutex:1").integer();
    assert_eq!(redis.value("lock:1"), "$2 a1", "enforced, whatever stands beside it");
    alice.sends("SET mutex:1 a1 NX PX 9000").reply();
    alice.sends("DEL lock:1 mutex:1").gets(":2");
}

#[test]
fn companions_can_have_another_prefix() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).top("companion_prefix", "\"wardens:\"").start();
    proxy.client().sends("SETNX lock:job a1").gets(":1");
    let client = redis.client();
    client.sends("KEYS lw:{*}:lock:*").gets("[]");
    assert_eq!(client.sends("KEYS wardens:{*}:lock:job").reply().elements().len(), 1);
}

#[test]
fn nobody_but_get_and_head_is_served_without_a_token() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    for path in ["/live", "/ready", "/metrics"] {
        assert_eq!(proxy.get(path).0, 200, "{path}");
    }
    assert_eq!(proxy.get("/nothing/here").0, 404);
}

#[test]
fn the_demo_tells_the_story_in_five_seconds() {
    let start = Instant::now();
    let end = run_to_end(&mut lockwarden(&["demo"]));
    assert_eq!(end.code, Some(0), "{end:?}");
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    let told = format!("{}{}", end.stdout, end.stderr);
    assert!(told.contains("DEL"), "{told}");
    assert!(told.contains("not-owner") || told.contains("expired"), "the log lines: {told}");
}

#[test]
fn a_flag_and_the_environment_override_the_mode_of_the_file() {
    let redis = Redis::start();
    for builder in [
        Proxy::builder(&redis).argument("--mode").argument("locks=monitor"),
        Proxy::builder(&redis).argument("--mode").argument("monitor"),
        Proxy::builder(&redis).environment("LOCKWARDEN_MODE", "monitor"),
    ] {
        let proxy = builder.start();
        let (alice, bob) = (proxy.client(), proxy.client());
        alice.sends("SETNX lock:job a1").gets(":1");
        bob.sends("DEL lock:job").gets(":1");
    }
}

#[test]
fn a_private_backend_lives_and_ends_with_the_proxy() {
    let proxy = ProxyBuilder::for_backend("private").start();
    let alice = proxy.client();
    alice.sends("SETNX lock:job a1").gets(":1");
    let info = alice.sends("INFO server").text();
    let id = info.lines().find_map(|line| line.strip_prefix("process_id:")).expect("Redis tells its process id");
    let process = std::path::PathBuf::from(format!("/proc/{id}"));
    assert!(process.exists());
    assert_eq!(proxy.stop(), Some(0));
    lockwarden_tests::wait_for("the private server to end", || !process.exists());
}
