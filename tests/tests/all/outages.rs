//! A backend that is missing, goes away, comes back, or goes away in the middle of a command.

use lockwarden_tests::{Client, Mode, Proxy, Redis, encode, wait_for};

#[track_caller]
fn becomes(proxy: &Proxy, status: u16) {
    wait_for(&format!("/ready to answer {status}"), || proxy.ready() == Some(status));
}

/// How many lines of the log say that the backend went or came.
fn changes(proxy: &Proxy) -> usize {
    proxy
        .log()
        .lines()
        .filter(|line| line.contains("backend") && !line.contains("\"serving\""))
        .filter(|line| !line.contains("\"level\":\"DEBUG\""))
        .count()
}

#[test]
fn a_backend_that_is_down_at_start_is_waited_for() {
    let mut redis = Redis::start();
    redis.stop();
    let proxy = Proxy::builder(&redis).without_waiting().start();
    let (status, body) = proxy.get("/ready");
    assert_eq!(status, 503);
    assert!(body.contains("backend"), "the reason: {body}");
    assert_eq!(proxy.get("/live").0, 200);
    for _ in 0..10 {
        let client = proxy.client();
        client.sends("SETNX lock:job a1").gets_close();
    }
    assert_eq!(proxy.metric("lockwarden_backend_up"), 0.0);
    redis.start_again();
    becomes(&proxy, 200);
    assert_eq!(proxy.metric("lockwarden_backend_up"), 1.0);
    proxy.client().sends("SETNX lock:job a1").gets(":1");
    let said = changes(&proxy);
    assert!((1..=3).contains(&said), "{said} lines, one for each change:\n{}", proxy.log());
}

#[test]
fn a_backend_that_restarts_is_found_again_and_governed_as_before() {
    let mut redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let alice = proxy.client();
    alice.sends("SETNX lock:job a1").gets(":1");
    let fence = redis.fence("lock:job");
    let said = changes(&proxy);

    redis.stop();
    // A client that shares its connection, and waits for nothing, outlives the server.
    if !proxy.is_multiplexed() {
        alice.then().gets_close();
    }
    becomes(&proxy, 503);
    for _ in 0..10 {
        proxy.client().sends("PING").gets_close();
    }
    redis.start_again();
    becomes(&proxy, 200);
    wait_for("a line for going and one for coming", || changes(&proxy) >= said + 2);
    assert!(changes(&proxy) <= said + 3, "more lines than changes:\n{}", proxy.log());

    // The scripts are gone with the server, and so is every record.
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("SETNX lock:job a2").gets(":1");
    bob.sends("DEL lock:job").gets(":0");
    assert!(redis.fence("lock:job") > fence);
    assert!(redis.pttl("lock:job") > 0);
    alice.sends("DEL lock:job").gets(":1");
}

#[test]
fn scripts_lost_in_a_restart_are_loaded_again_in_monitor_mode_too() {
    let mut redis = Redis::start();
    let proxy = Proxy::monitoring(&redis);
    proxy.client().sends("SETNX lock:job a1").gets(":1");
    redis.stop();
    becomes(&proxy, 503);
    redis.start_again();
    becomes(&proxy, 200);
    let alice = proxy.client();
    alice.sends("SETNX lock:job a1").gets(":1");
    alice.sends("DEL lock:job").gets(":1");
    assert!(redis.record("lock:job").is_some());
}

/// A command that was sent and never answered: the connection ends, and the proxy makes up no reply.
fn loses_its_backend_in(command: &str, mode: Mode) {
    let mut redis = Redis::start();
    let proxy = Proxy::builder(&redis).mode(mode).start();
    let alice: Client = proxy.client();
    alice.sends("SET lock:mine a1 NX PX 9000").gets("+OK");
    redis.freeze();
    let asked = alice.sends(command);
    redis.stop();
    asked.gets_close();
}

#[test]
fn a_backend_lost_in_the_middle_of_a_lock_command_closes_the_connection() {
    for mode in [Mode::Enforce, Mode::Monitor] {
        for command in ["SETNX lock:job a1", "DEL lock:mine", "EXPIRE lock:mine 5", "GET lock:mine", "SET lock:mine a2"]
        {
            loses_its_backend_in(command, mode);
        }
    }
}

#[test]
fn a_backend_lost_in_the_middle_of_any_command_closes_the_connection() {
    for command in ["GET plain", "BLPOP queue 0", "INCR plain"] {
        loses_its_backend_in(command, Mode::Enforce);
    }
}

#[test]
fn what_was_answered_before_the_backend_went_still_arrives() {
    let mut redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let alice = proxy.client();
    let mut bytes = encode(&["SETNX", "lock:job", "a1"]);
    bytes.extend(encode(&["PING"]));
    bytes.extend(encode(&["BLPOP", "queue", "0"]));
    alice.sends_bytes(bytes).gets(":1");
    alice.then().gets("+PONG");
    redis.stop();
    alice.then().gets_close();
}

#[test]
fn a_backend_that_hangs_delays_but_does_not_invent() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let alice = proxy.client();
    alice.sends("PING").gets("+PONG");
    redis.freeze();
    let asked = alice.sends("SETNX lock:job a1");
    assert_eq!(proxy.get("/live").0, 200, "the proxy itself lives");
    redis.thaw();
    asked.gets(":1");
    alice.sends("DEL lock:job").gets(":1");
}

#[test]
fn a_backend_that_wants_a_password_is_used_with_it() {
    let redis = Redis::with_arguments(&["--requirepass", "secret"]);
    let proxy = lockwarden_tests::ProxyBuilder::for_backend(&format!("redis://:secret@{}", redis.address())).start();
    let alice = proxy.client();
    alice.sends("SETNX lock:job a1").gets_error("NOAUTH");
    alice.sends("AUTH wrong").gets_error("WRONGPASS");
    alice.sends("AUTH secret").gets("+OK");
    alice.sends("SETNX lock:job a1").gets(":1");
    let bob = proxy.client();
    bob.sends("AUTH secret").gets("+OK");
    bob.sends("DEL lock:job").gets(":0");
    alice.sends("DEL lock:job").gets(":1");
    assert!(!proxy.log().contains("secret"), "no password in the log");
}

#[test]
fn a_backend_in_cluster_mode_is_refused_in_one_clear_line() {
    let redis = Redis::with_arguments(&["--cluster-enabled", "yes"]);
    let proxy = Proxy::builder(&redis).without_waiting().start();
    proxy.logs(&["cluster"]);
    let (status, body) = proxy.get("/ready");
    assert_eq!(status, 503);
    assert!(body.contains("cluster"), "the reason: {body}");
    for _ in 0..5 {
        proxy.client().sends("SETNX lock:job a1").gets_close();
    }
    assert_eq!(proxy.logged(&["cluster"]), 1, "{}", proxy.log());
}

#[test]
fn a_backend_in_cluster_mode_is_refused_also_where_the_proxy_may_not_use_info() {
    let redis = Redis::with_arguments(&["--cluster-enabled", "yes"]);
    redis.client().sends("ACL SETUSER default -info").gets("+OK");
    let proxy = Proxy::builder(&redis).without_waiting().start();
    proxy.logs(&["ERROR", "no client is served", "the backend is a node of a cluster: write redis-cluster://"]);
    assert_eq!(proxy.ready(), Some(503));
    proxy.client().sends("SETNX lock:job a1").gets_close();
}
