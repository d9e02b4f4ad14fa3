//! Every grant has a fencing token, and it only grows.

use lockwarden_tests::{Mode, Proxy, Redis, State};

#[test]
fn the_fencing_token_grows_over_release_expiry_erasure_and_restart() {
    let mut redis = Redis::start();
    let proxy = Proxy::monitoring(&redis);
    let mut newest = 0;
    let grants = |redis: &Redis, newest: &mut u64, how: &str| {
        let fence = redis.fence("lock:job");
        assert!(fence > *newest, "after {how}: {fence} is not above {newest}");
        *newest = fence;
    };
    let alice = proxy.client();
    alice.sends("SETNX lock:job a1").gets(":1");
    grants(&redis, &mut newest, "the first grant");
    alice.sends("DEL lock:job").gets(":1");
    alice.sends("SET lock:job a2 NX PX 50").gets("+OK");
    grants(&redis, &mut newest, "a release");
    redis.becomes_free("lock:job");
    alice.sends("SET lock:job a3 NX PX 9000").gets("+OK");
    grants(&redis, &mut newest, "an expiry");
    redis.client().sends("DEL lock:job").gets(":1");
    alice.sends("SET lock:job a4 NX PX 9000").gets("+OK");
    grants(&redis, &mut newest, "a DEL around the proxy");
    redis.client().sends("FLUSHALL").gets("+OK");
    alice.sends("SET lock:job a5 NX PX 9000").gets("+OK");
    grants(&redis, &mut newest, "a FLUSHALL");
    redis.start_again();
    lockwarden_tests::wait_for("the proxy to find its backend again", || proxy.ready() == Some(200));
    proxy.client().sends("SET lock:job a6 NX PX 9000").gets("+OK");
    grants(&redis, &mut newest, "a restart with loss of everything");
}

#[test]
fn an_extension_and_a_refusal_spend_no_fencing_token() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).setting("fencing", "counter", "\"sequential\"").start();
    let (alice, bob) = (proxy.client(), proxy.client());
    for grant in 1..=3 {
        alice.sends("SETNX lock:job a1").gets(":1");
        bob.sends("SETNX lock:job b1").gets(":0");
        alice.sends("EXPIRE lock:job 5").gets(":1");
        bob.sends("DEL lock:job").gets(":0");
        assert_eq!(redis.fence("lock:job"), grant);
        alice.sends("DEL lock:job").gets(":1");
        assert_eq!(redis.fence("lock:job"), grant);
    }
}

#[test]
fn two_proxies_number_the_grants_of_one_lock_together() {
    let redis = Redis::start();
    let proxies = [Proxy::enforcing(&redis), Proxy::monitoring(&redis)];
    let clients = proxies.each_ref().map(Proxy::client);
    let mut newest = 0;
    for round in 0..20 {
        let client = &clients[round % 2];
        client.sends("SET lock:job v NX PX 9000").gets("+OK");
        let fence = redis.fence("lock:job");
        assert!(fence > newest);
        newest = fence;
        client.sends("DEL lock:job").gets(":1");
    }
}

#[test]
fn the_record_tells_what_became_of_the_lease() {
    let redis = Redis::start();
    for mode in [Mode::Enforce, Mode::Monitor] {
        redis.client().sends("FLUSHALL").gets("+OK");
        let proxy = Proxy::builder(&redis).mode(mode).start();
        let alice = proxy.client();
        alice.sends("SET lock:job a1 NX PX 8000").gets("+OK");
        let live = redis.record("lock:job").expect("a lease has its record");
        assert_eq!((live.state, live.owner.as_slice(), live.asked_ms), (State::Live, b"a1".as_slice(), 8_000));
        alice.sends("DEL lock:job").gets(":1");
        let ended = redis.record("lock:job").expect("the record outlives the lease");
        assert_eq!((ended.state, ended.fence), (State::Released, live.fence));
    }
}

#[test]
fn a_record_outlives_its_lease_but_not_for_ever() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let alice = proxy.client();
    alice.sends("SETNX lock:job a1").gets(":1");
    alice.sends("DEL lock:job").gets(":1");
    let names = redis.client().sends("KEYS lw:{*}:lock:job").reply();
    let name = names.elements()[0].text();
    let left = redis.pttl(&name);
    assert!((590_000..=601_000).contains(&left), "ten minutes, not {left}");
}

/// How long the record of a lock lives, ms.
fn record_lives(redis: &Redis) -> i64 {
    let names = redis.client().sends("KEYS lw:{*}:lock:job").reply();
    redis.pttl(&names.elements()[0].text())
}

const TEN_MINUTES: i64 = 600_000;

/// With the ceiling of an hour that is built in, a record that waits for debts lives ten hours.
#[test]
fn a_record_lives_for_ten_minutes_after_a_clean_release_in_every_spelling() {
    let compared = "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
    for monitors in [false, true] {
        let redis = Redis::start();
        let builder = Proxy::builder(&redis).ceiling("1h");
        let proxy = match monitors {
            true => builder.mode(Mode::Monitor).start(),
            false => builder.start(),
        };
        let alice = proxy.client();
        for release in [
            "DEL lock:job".to_owned(),
            "UNLINK lock:job".to_owned(),
            "GETDEL lock:job".to_owned(),
            "DEL lock:job plain".to_owned(),
            "EXPIRE lock:job 0".to_owned(),
            format!("EVAL \"{compared}\" 1 lock:job value-of-alice-1"),
            "EVAL \"redis.call('del', KEYS[1]) return redis.call('incr', KEYS[2])\" 2 lock:job runs".to_owned(),
        ] {
            alice.sends("SET lock:job value-of-alice-1 NX PX 9000").gets("+OK");
            assert!(record_lives(&redis) > 10 * 3_600_000, "while it is held");
            alice.sends(&release).reply();
            assert!(redis.is_free("lock:job"), "{release}");
            let lives = record_lives(&redis);
            assert!((TEN_MINUTES - 60_000..=TEN_MINUTES).contains(&lives), "{release}: {lives}");
        }
        // It is the same record, and the next lease has its full length again.
        let state = redis.record("lock:job").expect("it lives").state;
        assert_eq!(state, State::Released);
        alice.sends("SET lock:job value-of-alice-1 NX PX 9000").gets("+OK");
        assert!(record_lives(&redis) > 10 * 3_600_000);
    }
}

#[test]
fn a_record_that_is_still_needed_lives_on_after_a_release() {
    // A client owes a release of the lease before.
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).ceiling("1h").start();
    let [one, two] = [0, 1].map(|_| proxy.client_from("127.41.0.9"));
    one.sends("SET lock:job 1 NX PX 9000").gets("+OK");
    redis.client().sends("DEL lock:job").gets(":1");
    two.sends("SET lock:job 1 NX PX 9000").gets("+OK");
    two.sends("DEL lock:job").gets(":1");
    assert!(record_lives(&redis) > TEN_MINUTES);

    // A counter that only the record knows.
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).ceiling("1h").setting("fencing", "counter", "\"sequential\"").start();
    let alice = proxy.client();
    for fence in 1..=2 {
        alice.sends("SET lock:job a1 NX PX 9000").gets("+OK");
        assert_eq!(redis.record("lock:job").expect("it lives").fence, fence);
        alice.sends("DEL lock:job").gets(":1");
        assert!(record_lives(&redis) > TEN_MINUTES);
    }
}

#[test]
fn a_value_above_64_bytes_is_not_stored_twice() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let alice = proxy.client();
    let value = "v".repeat(300);
    alice.sends(format!("SET lock:job {value} NX PX 8000")).gets("+OK");
    let record = redis.record("lock:job").expect("a lease has its record");
    assert!(record.owner.len() <= 64, "{} bytes", record.owner.len());
    proxy.client().sends("DEL lock:job").gets(":0");
    proxy
        .client()
        .sends(format!(
            "EVAL \"if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end\" 1 lock:job {value}"
        ))
        .gets(":1");
}
