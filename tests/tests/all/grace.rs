//! A grace: the key of a lock lives longer than its lease by this time, and a release ends both at once.

use std::time::Duration;

use lockwarden_tests::{Client, Mode, Proxy, ProxyBuilder, Redis, wait_for};

const VALUE: &str = "5c9e2f70-8d1b-4a33";
const EXTEND: &str =
    "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end";

/// Locks that live for a minute longer than they were asked for, under a ceiling of two minutes.
fn with_grace(redis: &Redis) -> ProxyBuilder {
    Proxy::builder(redis).default_ttl("30s").ceiling("2m").setting("ttl-ceiling", "grace", "\"1m\"")
}

/// The key has this TTL, less what has passed since.
#[track_caller]
fn has_ttl(redis: &Redis, key: &str, seconds: i64) {
    let ttl = redis.pttl(key);
    let ms = seconds * 1_000;
    assert!(ttl > ms - 8_000 && ttl <= ms, "{key}: {ttl} of {ms}");
}

fn unix_time(redis: &Redis) -> i64 {
    let time = redis.client().sends("TIME").reply();
    time.elements()[0].clone().text().parse().expect("seconds")
}

#[test]
fn every_ttl_that_the_proxy_sets_has_the_grace_behind_it() {
    let redis = Redis::start();
    let proxy = with_grace(&redis).start();
    let alice = proxy.client();
    let at = unix_time(&redis) + 10;
    let script = "local a = 1 + 1; redis.call('set',KEYS[1],ARGV[1],'px',ARGV[2]); return a";
    let unknown = format!("EVAL \"{script}\" 1 lock:job {VALUE} 10000");
    let acquires = [
        (format!("SET lock:job {VALUE} NX PX 10000"), 70),
        (format!("SET lock:job {VALUE} NX EXAT {at}"), 70),
        (format!("SET lock:job {VALUE} EX 10"), 70),
        (format!("SETEX lock:job 10 {VALUE}"), 70),
        (format!("SET lock:job {VALUE} NX GET EX 10"), 70),
        (format!("SETNX lock:job {VALUE}"), 90),
        (format!("MSETNX lock:job {VALUE}"), 90),
        (format!("SET lock:job {VALUE} NX EX 3600"), 180),
        (format!("SET lock:job {VALUE} NX EXAT {}", at + 3_600), 180),
        (unknown, 70),
    ];
    for (acquire, seconds) in acquires {
        let reply = alice.sends(&acquire).reply();
        assert!(!reply.to_string().starts_with('-'), "{acquire}: {reply}");
        has_ttl(&redis, "lock:job", seconds);
        let left = alice.sends("PTTL lock:job").integer();
        assert!(left > (seconds - 8) * 1_000, "{acquire}: {left}");
        alice.sends("DEL lock:job").gets(":1");
        assert!(redis.is_free("lock:job"), "{acquire}");
    }
}

#[test]
fn an_extension_has_it_too_and_conditions_go_by_what_was_asked_for() {
    let redis = Redis::start();
    let proxy = with_grace(&redis).start();
    let alice = proxy.client();
    alice.sends(format!("SET lock:job {VALUE} NX EX 5")).gets("+OK");
    let at = unix_time(&redis) + 20;
    let script = format!("EVAL \"{EXTEND}\" 1 lock:job {VALUE} 20000");
    for (extend, seconds) in [
        ("EXPIRE lock:job 20".to_owned(), 80),
        ("PEXPIRE lock:job 20000".to_owned(), 80),
        (format!("EXPIREAT lock:job {at}"), 80),
        ("EXPIRE lock:job 3600".to_owned(), 180),
        // The key has three minutes, but what was asked for is an hour.
        ("EXPIRE lock:job 20 LT".to_owned(), 80),
        // The key has more than a minute, and what was asked for is 20 seconds.
        ("EXPIRE lock:job 30 GT".to_owned(), 90),
        (script, 80),
        (format!("SET lock:job {VALUE} XX EX 20"), 80),
        (format!("SET lock:job {VALUE} XX KEEPTTL"), 80),
    ] {
        let reply = alice.sends(&extend).reply();
        assert!(["+OK", ":1"].contains(&&*reply.to_string()), "{extend}: {reply}");
        has_ttl(&redis, "lock:job", seconds);
    }
    assert_eq!(redis.record("lock:job").unwrap().asked_ms, 20_000);
    alice.sends("GETEX lock:job EX 40").reply();
    has_ttl(&redis, "lock:job", 100);
    alice.pipelines(&["MULTI", "EXPIRE lock:job 50", "EXEC"], &["+OK", "+QUEUED", "[:1]"]);
    has_ttl(&redis, "lock:job", 110);
    // A TTL that is over at once is a release, and ends the grace as well.
    alice.sends("EXPIRE lock:job 0").gets(":1");
    assert!(redis.is_free("lock:job"));
}

#[test]
fn a_late_holder_still_has_its_lock_in_the_grace_and_nobody_else_gets_it() {
    let redis = Redis::start();
    let grace = |grace: &str| {
        let builder = Proxy::builder(&redis).ceiling("400ms").default_ttl("400ms");
        builder.setting("ttl-ceiling", "grace", &format!("\"{grace}\""))
    };
    let (here, there) = (grace("30s").start(), grace("30s").start());
    let (alice, bob) = (here.client(), there.client_from("127.41.0.2"));
    alice.sends("SET lock:job a1 NX PX 300").gets("+OK");
    alice.sends("SET lock:cut a1 NX EX 1").gets("+OK");
    // The requested TTL is over, and more than over.
    redis.was_granted_earlier("lock:job", Duration::from_secs(2));
    wait_for("what was asked for to be over", || redis.pttl("lock:job") < 29_900 && redis.pttl("lock:cut") < 29_500);
    bob.sends("SET lock:job b1 NX PX 300").gets("nil");
    bob.sends("DEL lock:job").gets(":0");
    alice.sends("DEL lock:job").gets(":1");
    bob.sends("SET lock:job b1 NX PX 300").gets("+OK");
    bob.sends("SET lock:cut b1 NX PX 300").gets("nil");
    alice.sends("DEL lock:cut").gets(":1");
}

#[test]
fn a_lease_that_is_kept_alive_goes_by_its_grace_when_its_holder_is_dead() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis)
        .default_ttl("300ms")
        .ceiling("600ms")
        .setting("ttl-ceiling", "grace", "\"700ms\"")
        .start();
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("SETNX lock:job a1").gets(":1");
    alice.sends("SET lock:cut a1 NX PX 1500").gets("+OK");
    // The lease with a cut TTL is renewed to the end of the requested TTL, and has its grace after that.
    wait_for("the end of what was asked for", || {
        let renewed = |ms: i64| (1..=ms).contains(&redis.pttl("lock:job"));
        assert!(renewed(1_000) && !redis.is_free("lock:cut"));
        held_for(&redis, "lock:cut") > 1_700
    });
    redis.becomes_free("lock:cut");
    assert!(!redis.is_free("lock:job"));
    drop(alice);
    redis.becomes_free("lock:job");
    bob.sends("SETNX lock:job b1").gets(":1");
}

/// For how many milliseconds the lease of this lock is held, by Redis's clock.
fn held_for(redis: &Redis, key: &str) -> i64 {
    let record = redis.record(key).expect("a record");
    let since = std::str::from_utf8(&record.bytes[67..80]).expect("digits");
    let time = redis.client().sends("TIME").reply();
    let part = |at: usize| -> i64 {
        let digits = time.elements()[at].clone().text();
        digits.parse().expect("a number")
    };
    part(0) * 1_000 + part(1) / 1_000 - since.parse::<i64>().expect("ms")
}

#[test]
fn a_reload_gives_and_takes_the_grace_and_statistics_know_nothing_of_it() {
    let redis = Redis::start();
    let plain = Proxy::builder(&redis).default_ttl("30s").ceiling("2m");
    let text = plain.text();
    let proxy = plain.start();
    let alice = proxy.client();
    let taken = |seconds| {
        alice.sends(format!("SET lock:job {VALUE} NX EX 20")).gets("+OK");
        has_ttl(&redis, "lock:job", seconds);
        alice.sends("DEL lock:job").gets(":1");
    };
    taken(20);
    let with = text.replace("ceiling = \"2m\"", "ceiling = \"2m\"\ngrace = \"1m\"");
    let (status, answer) = proxy.reloads(with.as_bytes(), "/reload");
    assert_eq!(status, 200, "{answer}");
    for _ in 0..9 {
        taken(80);
    }
    let patterns = proxy.api("patterns?namespace=locks");
    assert_eq!(patterns["patterns"][0]["ttl_ms"], 20_000, "{patterns}");
    let (status, answer) = proxy.reloads(text.as_bytes(), "/reload");
    assert_eq!(status, 422);
    let loss = "namespace locks: the setting grace of ttl-ceiling would be gone";
    assert!(answer.contains(loss), "{answer}");
}

#[test]
fn monitor_mode_adds_no_grace() {
    let redis = Redis::start();
    let proxy = with_grace(&redis).mode(Mode::Monitor).start();
    let alice: Client = proxy.client();
    alice.sends(format!("SET lock:job {VALUE} NX EX 20")).gets("+OK");
    has_ttl(&redis, "lock:job", 20);
    alice.sends("EXPIRE lock:job 30").gets(":1");
    has_ttl(&redis, "lock:job", 30);
}
