//! F3: a TTL that the proxy chose is renewed while its holder lives, and ends with it.

use std::time::{Duration, Instant};

use lockwarden_tests::{Client, Proxy, Redis, holds_for, wait_for};

const RENEWED: &str = "lockwarden_keep_alive_renewals_total{namespace=\"locks\",outcome=\"renewed\"}";

/// Watches a lock for a while: it may not be gone for a moment.
#[track_caller]
fn stays(redis: &Redis, key: &str, time: Duration) {
    let client = redis.client();
    holds_for(time, &format!("{key} is held"), || client.sends(format!("EXISTS {key}")).integer() == 1);
}

/// Waits until the lease has at most this many milliseconds left.
#[track_caller]
fn runs_down_to(redis: &Redis, key: &str, ms: i64) {
    let client = redis.client();
    wait_for("the lease to run down", || {
        let left = client.sends(format!("PTTL {key}")).integer();
        assert!(left > 0, "the lease ended ({left})");
        left <= ms
    });
}

fn taken(client: &Client, command: &str, reply: &str) {
    client.sends(command).gets(reply);
}

#[test]
fn long_work_under_a_bare_setnx_keeps_its_lock_and_frees_it_when_it_dies() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    taken(&alice, "SETNX lock:job a1", ":1");
    stays(&redis, "lock:job", Duration::from_millis(2_500));
    bob.sends("SETNX lock:job b1").gets(":0");
    alice.sends("GET lock:job").gets("$2 a1");
    assert!(proxy.metric(RENEWED) >= 4.0);

    drop(alice);
    assert!(redis.pttl("lock:job") <= 600);
    redis.becomes_free("lock:job");
    bob.sends("SETNX lock:job b1").gets(":1");
}

/// Redis's `timeout` closes unused connections; without the proxy the lock would stay all the same.
#[test]
fn a_holder_that_is_busy_keeps_the_connection_that_redis_would_close() {
    let redis = Redis::with_arguments(&["--timeout", "2"]);
    let proxy = Proxy::builder(&redis).default_ttl("9s").start();
    if proxy.is_multiplexed() {
        return;
    }
    let alice = proxy.client();
    taken(&alice, "SETNX lock:job a1", ":1");
    for _ in 0..2 {
        let idle = proxy.client();
        idle.sends("SET lock:other i1 NX PX 1").gets("+OK");
        redis.becomes_free("lock:other");
        idle.then().gets_close();
    }
    taken(&alice, "DEL lock:job", ":1");
}

#[test]
fn a_lock_stays_with_a_client_whose_connection_redis_has_closed() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).setting("owner-token", "trust_address", "\"no\"").start();
    if proxy.is_multiplexed() {
        return;
    }
    let (alice, bob) = (proxy.client(), proxy.client_from("127.41.0.2"));
    taken(&alice, "SETNX lock:job a1", ":1");
    let id = alice.sends("CLIENT ID").integer();
    redis.client().sends(format!("CLIENT KILL ID {id}")).gets(":1");
    alice.then().gets_close();
    stays(&redis, "lock:job", Duration::from_millis(2_500));
    bob.sends("SETNX lock:job b1").gets(":0");
    drop(alice);
    redis.becomes_free("lock:job");
    bob.sends("SETNX lock:job b1").gets(":1");
}

#[test]
fn a_cut_ttl_is_renewed_up_to_what_was_asked_for() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).default_ttl("300ms").ceiling("500ms").start();
    let alice = proxy.client();
    let start = Instant::now();
    taken(&alice, "SET lock:job a1 NX PX 1500", "+OK");
    stays(&redis, "lock:job", Duration::from_millis(1_200));
    redis.becomes_free("lock:job");
    let held = start.elapsed();
    assert!(held < Duration::from_millis(2_600), "held for {held:?}");
    alice.sends("GET lock:job").gets("nil");
}

#[test]
fn a_ttl_that_was_asked_for_and_not_cut_is_never_renewed() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let alice = proxy.client();
    taken(&alice, "SET lock:job a1 NX PX 400", "+OK");
    redis.becomes_free("lock:job");
    alice.sends("PING").gets("+PONG");
    assert_eq!(proxy.metric(RENEWED), 0.0);
}

#[test]
fn a_holders_expire_makes_the_ttl_its_own_again() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let alice = proxy.client();
    taken(&alice, "SETNX lock:job a1", ":1");
    wait_for("the first renewal", || proxy.metric(RENEWED) >= 1.0);
    alice.sends("PEXPIRE lock:job 500").gets(":1");
    redis.becomes_free("lock:job");
    alice.sends("PING").gets("+PONG");
}

#[test]
fn keep_alive_can_be_switched_off() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).setting("ttl-ceiling", "keep_alive", "\"off\"").default_ttl("300ms").start();
    let alice = proxy.client();
    taken(&alice, "SETNX lock:job a1", ":1");
    redis.becomes_free("lock:job");
    assert_eq!(proxy.metric(RENEWED), 0.0);
}

#[test]
fn keep_alive_ends_at_its_age() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).setting("ttl-ceiling", "keep_alive", "\"900ms\"").default_ttl("300ms").start();
    let alice = proxy.client();
    let start = Instant::now();
    taken(&alice, "SETNX lock:job a1", ":1");
    stays(&redis, "lock:job", Duration::from_millis(600));
    redis.becomes_free("lock:job");
    let held = start.elapsed();
    assert!(held < Duration::from_millis(2_000), "held for {held:?}");
    alice.sends("PING").gets("+PONG");
}

#[test]
fn a_release_ends_keep_alive_and_the_next_holder_is_not_touched() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    taken(&alice, "SETNX lock:job a1", ":1");
    alice.sends("DEL lock:job").gets(":1");
    taken(&bob, "SET lock:job a1 NX PX 500", "+OK");
    redis.becomes_free("lock:job");
    alice.sends("PING").gets("+PONG");
}

#[test]
fn a_refused_release_by_the_holders_own_machine_ends_keep_alive() {
    let redis = Redis::start();
    let proxy =
        Proxy::builder(&redis).setting("owner-token", "proofs", "[\"token\", \"session\", \"observed\"]").start();
    let alice = proxy.client_from("127.9.1.1");
    let pooled = proxy.client_from("127.9.1.1");
    taken(&alice, "SETNX lock:job a1", ":1");
    wait_for("the first renewal", || proxy.metric(RENEWED) >= 1.0);
    // A client that is likely the holder wants it gone: it ends, by its TTL.
    pooled.sends("DEL lock:job").gets(":0");
    redis.becomes_free("lock:job");
    alice.sends("PING").gets("+PONG");
}

#[test]
fn a_refused_release_by_a_stranger_does_not_end_keep_alive() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    taken(&alice, "SETNX lock:job a1", ":1");
    bob.sends("DEL lock:job").gets(":0");
    stays(&redis, "lock:job", Duration::from_millis(1_500));
    alice.sends("DEL lock:job").gets(":1");
}

/// B4 under keep-alive: a renewal between WATCH and EXEC would make every EXEC nil.
#[test]
fn a_renewal_waits_for_an_honest_watch() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).default_ttl("3s").start();
    let alice = proxy.client();
    taken(&alice, "SETNX lock:job a1", ":1");
    alice.sends("WATCH lock:job").gets("+OK");
    alice.sends("GET lock:job").gets("$2 a1");
    // A third of the TTL is 1 s, when a renewal is due; a quarter is 750 ms, when it must come.
    runs_down_to(&redis, "lock:job", 1_500);
    alice.pipelines(&["MULTI", "DEL lock:job", "EXEC"], &["+OK", "+QUEUED", "[:1]"]);
    assert!(proxy.metric("lockwarden_keep_alive_renewals_total{namespace=\"locks\",outcome=\"skipped\"}") >= 1.0);
}

#[test]
fn a_watch_that_is_never_given_up_does_not_cost_the_lock() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (alice, watcher) = (proxy.client(), proxy.client());
    taken(&alice, "SETNX lock:job a1", ":1");
    watcher.sends("WATCH lock:job").gets("+OK");
    stays(&redis, "lock:job", Duration::from_millis(1_500));
    alice.sends("DEL lock:job").gets(":1");
}

#[test]
fn a_holder_that_only_waits_is_alive() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (blocked, subscribed) = (proxy.client(), proxy.client());
    taken(&blocked, "SETNX lock:1 a1", ":1");
    taken(&subscribed, "SETNX lock:2 a1", ":1");
    blocked.write(&lockwarden_tests::encode(&["BLPOP", "queue", "0"]));
    subscribed.sends("SUBSCRIBE news").gets("[$9 subscribe, $4 news, :1]");
    stays(&redis, "lock:1", Duration::from_millis(1_000));
    stays(&redis, "lock:2", Duration::from_millis(500));
    redis.client().sends("RPUSH queue work").gets(":1");
    blocked.then().gets("[$5 queue, $4 work]");
    blocked.sends("DEL lock:1").gets(":1");
}

#[test]
fn a_stopping_proxy_renews_what_it_kept_once_to_its_full_length() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).default_ttl("4s").top("drain", "\"100ms\"").start();
    let alice = proxy.client();
    taken(&alice, "SETNX lock:job a1", ":1");
    taken(&alice, "SET lock:own a1 NX PX 4000", "+OK");
    // A renewal brings it back to 4 s after a third, so this comes once in every round.
    runs_down_to(&redis, "lock:job", 3_000);
    let own = redis.lease("lock:own");
    assert_eq!(proxy.stop(), Some(0));
    let left = redis.pttl("lock:job");
    assert!(left > 3_000, "{left}");
    assert_eq!(redis.lease("lock:own"), own);
}

#[test]
fn monitor_mode_never_touches_the_lock_itself() {
    let redis = Redis::start();
    let proxy = Proxy::monitoring(&redis);
    let alice = proxy.client();
    taken(&alice, "SETNX lock:job a1", ":1");
    alice.sends("PEXPIRE lock:job 700").gets(":1");
    redis.becomes_free("lock:job");
    taken(&alice, "SETNX lock:job a1", ":1");
    assert_eq!(redis.pttl("lock:job"), -1);
    assert_eq!(proxy.metric(RENEWED), 0.0);
}

/// Applications log in through the proxy; the proxy itself was given no password.
#[test]
fn without_a_login_of_its_own_the_proxy_renews_over_the_holders_connection() {
    let redis = Redis::with_arguments(&["--requirepass", "secret"]);
    let address = format!("redis://{}", redis.address());
    let proxy = lockwarden_tests::ProxyBuilder::for_backend(&address).start();
    let alice = proxy.client();
    alice.sends("AUTH secret").gets("+OK");
    alice.sends("SETNX lock:job a1").gets(":1");
    proxy.logs(&["may not log in"]);
    let renewed = "lockwarden_keep_alive_renewals_total{namespace=\"locks\",outcome=\"renewed\"}";
    wait_for("six renewals", || proxy.metric(renewed) >= 6.0);
    // Replies to its own commands are not mixed up with those of the renewals.
    alice.sends("GET lock:job").gets("$2 a1");
    drop(alice);
    let bob = proxy.client();
    bob.sends("AUTH secret").gets("+OK");
    wait_for("the lock to go by its TTL", || bob.sends("EXISTS lock:job").reply().to_string() == ":0");
}

#[test]
fn a_refused_overwrite_says_nothing_about_keep_alive() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).setting("owner-token", "proofs", "[\"token\", \"session\"]").start();
    let alice = proxy.client_from("127.9.9.9");
    let neighbour = proxy.client_from("127.9.9.9");
    taken(&alice, "SETNX lock:job a1", ":1");
    neighbour.sends("SET lock:job thief").gets_error("LOCKDENIED overwrite");
    neighbour.sends("GETSET lock:job thief").gets_error("LOCKDENIED take-over");
    stays(&redis, "lock:job", Duration::from_millis(1_500));
    alice.sends("DEL lock:job").gets(":1");
}

/// For a second the proxy looks whether its lock is a job's: meanwhile there is no holder for which it would be
/// renewed.
#[test]
fn the_lock_of_a_client_that_died_at_once_is_not_renewed_any_more() {
    for by in ["identity", "connection"] {
        let redis = Redis::start();
        let proxy = Proxy::builder(&redis)
            .default_ttl("3s")
            .setting("ttl-ceiling", "keep_alive_by", &format!("{by:?}"))
            .start();
        let alice = proxy.client();
        alice.sends("SETNX lock:job a1").gets(":1");
        let own = redis.client();
        let mut left = own.sends("PTTL lock:job").integer();
        alice.resets();
        wait_for("the lock to be free", || {
            let now = own.sends("PTTL lock:job").integer();
            assert!(now <= left, "{by}: {now} ms are left, and were {left}");
            left = now;
            now == -2
        });
    }
}
