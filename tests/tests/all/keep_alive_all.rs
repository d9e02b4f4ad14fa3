//! With `keep_alive.ttl = "all"` a TTL that the application chose is renewed, too, while its holder lives, up to `max_hold`.
//! Also the figures by which an operator sees which namespaces need that.

use std::fs;
use std::time::{Duration, Instant};

use lockwarden_tests::{Client, Mode, Proxy, ProxyBuilder, Redis, holds_for, lockwarden, run_to_end, wait_for};

const VALUE: &str = "5c9e2f70-8d1b-4a33";
const EXTEND: &str =
    "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end";
const ENDED: &str = "lockwarden_keep_alive_renewals_total{namespace=\"locks\",outcome=\"ended\"}";
const ALL: &str = "{ for = \"1h\", ttl = \"all\" }";

fn keeping_all(redis: &Redis, max_hold: &str) -> ProxyBuilder {
    Proxy::builder(redis).setting("ttl-ceiling", "keep_alive", ALL).setting(
        "ttl-ceiling",
        "max_hold",
        &format!("\"{max_hold}\""),
    )
}

/// The lock is held over several of its TTLs.
#[track_caller]
fn stays(redis: &Redis) {
    let client = redis.client();
    holds_for(Duration::from_millis(2_500), "the lock is held", || client.sends("EXISTS lock:job").integer() == 1);
}

#[test]
fn a_ttl_that_was_asked_for_is_renewed_while_its_holder_lives() {
    let redis = Redis::start();
    let proxy = keeping_all(&redis, "1h").start();
    let bob = proxy.client_from("127.41.0.2");
    let unknown = "local a = 1 + 1; redis.call('set',KEYS[1],ARGV[1],'px',ARGV[2]); return a";
    for acquire in [
        format!("SET lock:job {VALUE} NX PX 800"),
        format!("SET lock:job {VALUE} PX 800"),
        format!("PSETEX lock:job 800 {VALUE}"),
        format!("EVAL \"{unknown}\" 1 lock:job {VALUE} 800"),
    ] {
        let alice = proxy.client_from("127.41.0.3");
        let reply = alice.sends(&acquire).reply().to_string();
        assert!(!reply.starts_with('-'), "{acquire}: {reply}");
        stays(&redis);
        assert!(redis.pttl("lock:job") <= 800, "{acquire}");
        bob.sends("SET lock:job b1 NX PX 800").gets("nil");
        // The requested TTL of an unknown script is the TTL that is left when it has run.
        let asked = redis.record("lock:job").unwrap().asked_ms;
        assert!((700..=800).contains(&asked), "{acquire}: {asked}");
        alice.sends("DEL lock:job").gets(":1");
        alice.sends(&acquire).reply();
        // It dies.
        drop(alice);
        redis.becomes_free("lock:job");
    }
}

#[test]
fn an_extension_is_kept_alive_with_the_ttl_that_it_asks_for() {
    let redis = Redis::start();
    let proxy = keeping_all(&redis, "1h").start();
    let alice = proxy.client();
    let script = format!("EVAL \"{EXTEND}\" 1 lock:job {VALUE} 1000");
    for extend in
        ["PEXPIRE lock:job 1000", "PEXPIRE lock:job 1000 XX", &script, &format!("SET lock:job {VALUE} XX PX 1000")]
    {
        alice.sends(format!("SET lock:job {VALUE} NX PX 9000")).gets("+OK");
        let reply = alice.sends(extend).reply().to_string();
        assert!([":1", "+OK"].contains(&&*reply), "{extend}: {reply}");
        stays(&redis);
        assert!(redis.pttl("lock:job") <= 1_000, "{extend}");
        // Keeps what is left, and is renewed to all of it.
        alice.sends(format!("SET lock:job {VALUE} XX KEEPTTL")).gets("+OK");
        wait_for("a renewal to the whole TTL", || redis.pttl("lock:job") > 800);
        alice.sends("DEL lock:job").gets(":1");
    }
}

#[test]
fn a_holder_that_hangs_blocks_others_no_longer_than_max_hold() {
    let redis = Redis::start();
    let proxy = keeping_all(&redis, "4s").start();
    let (alice, bob) = (proxy.client(), proxy.client_from("127.41.0.2"));
    let start = Instant::now();
    alice.sends(format!("SET lock:job {VALUE} NX PX 1000")).gets("+OK");
    alice.sends("SETNX lock:invented a1").gets(":1");
    stays(&redis);
    for lock in ["lock:job", "lock:invented"] {
        redis.becomes_free(lock);
        let held = start.elapsed();
        assert!(held < Duration::from_millis(7_000), "{lock}: {held:?}");
    }
    bob.sends(format!("SET lock:job {VALUE} NX PX 1000")).gets("+OK");
    alice.sends("PING").gets("+PONG");
}

/// Whatever ends keep-alive of a TTL that the proxy chose ends it here, too.
#[test]
fn who_wanted_the_lock_gone_or_did_not_hear_of_it_has_it_no_longer_than_its_ttl() {
    let redis = Redis::start();
    let proxy = keeping_all(&redis, "1h").setting("owner-token", "proofs", "[\"token\"]").start();
    let alice = proxy.client();
    alice.sends(format!("SET lock:job {VALUE} NX PX 1000")).gets("+OK");
    stays(&redis);
    alice.sends("DEL lock:job").gets(":0");
    redis.becomes_free("lock:job");
    assert!(proxy.metric(ENDED) >= 1.0);

    let deaf = proxy.client();
    deaf.write(format!("SET lock:job {VALUE} NX PX 1000\r\n").as_bytes());
    deaf.leaves_a_reply_unread();
    stays(&redis);
    deaf.resets();
    redis.becomes_free("lock:job");
}

/// Clients elsewhere are played by a balancer that says where they come from.
fn from(proxy: &Proxy, address: &str) -> Client {
    let client = proxy.client();
    client.write(format!("PROXY TCP4 {address} 10.9.9.9 40000 6379\r\n").as_bytes());
    client.sends("PING").gets("+PONG");
    client
}

#[test]
fn another_proxy_goes_on_with_it_and_to_the_same_end() {
    let redis = Redis::start();
    let starts = || {
        let proxy = keeping_all(&redis, "8s").top("proxy_protocol_from", "[\"127.0.0.0/8\"]").without_waiting().start();
        wait_for("the proxy to be ready", || proxy.ready() == Some(200));
        proxy
    };
    let (here, there) = (starts(), starts());
    let (one, two) = (from(&here, "10.1.2.3"), from(&there, "10.1.2.3"));
    let start = Instant::now();
    one.sends(format!("SET lock:job {VALUE} NX PX 2000")).gets("+OK");
    let client = redis.client();
    wait_for("other proxies to know of the lease", || client.sends("ZCARD lw:{}:lockwarden-kept").integer() == 1);
    drop(one);
    holds_for(Duration::from_secs(5), "the lock is held", || client.sends("EXISTS lock:job").integer() == 1);
    redis.becomes_free("lock:job");
    let held = start.elapsed();
    assert!(held > Duration::from_secs(7) && held < Duration::from_secs(10), "{held:?}");
    two.sends("PING").gets("+PONG");
}

#[test]
fn it_is_asked_for_and_bounded_or_not_there() {
    let redis = Redis::start();
    let plain = Proxy::builder(&redis);
    let text = plain.text();
    let proxy = plain.start();
    let alice = proxy.client();
    let takes = || {
        alice.sends(format!("SET lock:job {VALUE} NX PX 400")).gets("+OK");
    };
    takes();
    redis.becomes_free("lock:job");
    let with = |line: &str| text.replace("ceiling = ", &format!("{line}\nceiling = "));
    for (line, error) in [
        (
            "keep_alive = { for = \"1h\", ttl = \"all\" }",
            "keep_alive.ttl = \"all\" needs max_hold: a holder that hangs would block for ever",
        ),
        ("keep_alive = { ttl = \"every\" }", "must be one of \"proxy\", \"all\""),
        ("keep_alive = { fro = \"1h\" }", "keep_alive.fro"),
        ("keep_alive = { for = { a = 1 } }", "keep_alive: must be a string"),
        ("keep_alive = { for = \"off\", ttl = \"all\" }\nmax_hold = \"1h\"", "leave out keep_alive.ttl"),
    ] {
        let path = proxy.directory().join("other.toml");
        fs::write(&path, with(line)).expect("the directory is ours");
        let checked = run_to_end(lockwarden(&["check", "--config"]).arg(&path));
        let said = format!("{}{}", checked.stdout, checked.stderr);
        assert!(said.contains(error), "{line}: {said}");
        assert_eq!(proxy.reloads(with(line).as_bytes(), "/reload").0, 422);
    }
    let all = with(&format!("keep_alive = {ALL}\nmax_hold = \"1h\""));
    let (status, answer) = proxy.reloads(all.as_bytes(), "/reload");
    assert_eq!(status, 200, "{answer}");
    takes();
    stays(&redis);
    alice.sends("DEL lock:job").gets(":1");
    // A reload that takes it away is first asked whether that is meant.
    let (status, answer) = proxy.reloads(text.as_bytes(), "/reload");
    assert_eq!(status, 422, "{answer}");
    let loss = "the setting keep_alive.ttl of ttl-ceiling would be gone";
    assert!(answer.contains(loss), "{answer}");
    let settings = proxy.api("settings").to_string();
    assert!(settings.contains("keep_alive"), "{settings}");
}

#[test]
fn monitor_mode_tells_locks_that_ran_out_under_their_holders_from_markers() {
    let redis = Redis::start();
    let proxy = keeping_all(&redis, "1h").mode(Mode::Monitor).start();
    let kind = |kind: &str| format!("lockwarden_observations_total{{kind=\"{kind}\",namespace=\"locks\"}}");
    let (connected, alive) = (kind("ran-out-connected"), kind("ran-out-alive"));
    let (worker, cron) = (proxy.client(), proxy.client_from("127.41.0.2"));
    let bob = proxy.client_from("127.41.0.4");
    // A marker, and a lock: both are free for a while when the one of the lock comes back.
    cron.sends("SET lock:once:1 1 NX PX 200").gets("+OK");
    worker.sends(format!("SET lock:job {VALUE} NX PX 200")).gets("+OK");
    redis.becomes_free("lock:once:1");
    redis.becomes_free("lock:job");
    proxy.counts(&connected, 2.0);
    assert_eq!(proxy.metric(&alive), 0.0);
    worker.sends("DEL lock:job").gets(":0");
    proxy.counts(&alive, 1.0);
    // Not twice; and a lock that another client has by now counts as well.
    worker.sends("DEL lock:job").gets(":0");
    worker.sends(format!("SET lock:job {VALUE} NX PX 200")).gets("+OK");
    redis.becomes_free("lock:job");
    bob.sends("SET lock:job b1 NX PX 9000").gets("+OK");
    worker.sends("PEXPIRE lock:job 9000").gets(":1");
    proxy.counts(&alive, 2.0);
    proxy.counts(&connected, 3.0);
    // In time, and dead before: neither.
    bob.sends("DEL lock:job").gets(":1");
    let dead = proxy.client_from("127.41.0.5");
    dead.sends("SET lock:dead b1 NX PX 300").gets("+OK");
    drop(dead);
    redis.becomes_free("lock:dead");
    proxy.counts("lockwarden_lock_expired_while_held_total{namespace=\"locks\"}", 4.0);
    assert_eq!(proxy.metric(&connected), 3.0);
    assert_eq!(proxy.metric(&alive), 2.0);
    let report = proxy.api("report").to_string();
    assert!(report.contains("ran-out-alive"), "{report}");
    assert!(report.contains("keep_alive = { for"), "{report}");
    proxy.logs(&["\"observed\"", "ran-out-alive", "lock:job"]);
}
