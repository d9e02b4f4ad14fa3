//! `trusted_scripts`: scripts that may touch locks which they do not declare, as those of job systems do, because the operator
//! has reviewed them. These locks are governed like any other. Tests with the libraries themselves: `tests/clients/node`.

use lockwarden_tests::{Client, Mode, Proxy, ProxyBuilder, Redis, State, wait_for};

/// Takes the lock of a job, whose number is data, as Bull does: whatever was there before.
const TAKES: &str = "local job = redis.call('RPOP', KEYS[1]) if not job then return false end \
    redis.call('SET', ARGV[1] .. job .. ':lock', ARGV[2], 'PX', ARGV[3]) return job";
/// Extends several, whose numbers come as data.
const EXTENDS: &str = "local jobs = cjson.decode(ARGV[2]) for _, job in ipairs(jobs) do \
    local key = ARGV[1] .. job .. ':lock' \
    if redis.call('GET', key) == ARGV[3] then redis.call('SET', key, ARGV[3], 'PX', ARGV[4]) end end return #jobs";
/// Gives one back.
const RELEASES: &str = "local key = ARGV[1] .. cjson.decode(ARGV[2])[1] .. ':lock' \
    if redis.call('GET', key) == ARGV[3] then return redis.call('DEL', key) end return 0";
const TOKEN: &str = "5c9e2f70-alice-d1b3:1";
const OTHERS: &str = "0f31ab77-bobby-9e02:4";

fn sha(redis: &Redis, text: &str) -> String {
    redis.client().sends_arguments(&["SCRIPT", "LOAD", text]).text()
}

/// A proxy that lets these scripts touch the locks of jobs.
fn trusting(redis: &Redis) -> ProxyBuilder {
    let names = [TAKES, EXTENDS, RELEASES].map(|text| sha(redis, text));
    Proxy::builder(redis)
        .namespace("keys", "[\"bull:*:lock\"]")
        .namespace("trusted_scripts", &format!("{names:?}"))
        .ceiling("1m")
}

fn waits(redis: &Redis, jobs: &[&str]) {
    let jobs = [&["LPUSH", "bull:q:wait"], jobs].concat();
    redis.client().sends_arguments(&jobs).reply();
}

fn takes(client: &Client, token: &str, ttl: &str) -> String {
    client.eval(TAKES, &["bull:q:wait"], &["bull:q:", token, ttl])
}

fn gives_back(client: &Client, job: &str, token: &str) -> String {
    let jobs = format!("[\"{job}\"]");
    client.eval(RELEASES, &["bull:q:wait"], &["bull:q:", &jobs, token])
}

#[test]
fn a_lock_that_a_trusted_script_takes_is_governed_like_any_other() {
    let redis = Redis::start();
    let (one, two) = (trusting(&redis).start(), trusting(&redis).start());
    let (worker, stranger) = (one.client_from("127.0.0.2"), two.client_from("127.0.0.3"));
    waits(&redis, &["1", "2"]);
    assert_eq!(takes(&worker, TOKEN, "30000"), "$1 1");
    let (value, _, record) = redis.lease("bull:q:1:lock");
    let ttl = redis.pttl("bull:q:1:lock");
    let record = record.expect("its lease has a record");
    assert_eq!((record.state, record.owner), (State::Live, TOKEN.into()));
    assert_eq!(value, format!("${} {TOKEN}", TOKEN.len()));
    assert!((25_000..=30_000).contains(&ttl), "{ttl}: it is kept as it was asked for");
    one.counts("lockwarden_lock_acquires_total{outcome=\"acquired\"}", 1.0);
    one.counts("lockwarden_locks_held{ttl=\"finite\"}", 1.0);

    // No command of a stranger touches it, and another proxy computes the same record from its name.
    stranger.sends("DEL bull:q:1:lock").gets(":0");
    stranger.sends("SET bull:q:1:lock x").gets_error("LOCKDENIED overwrite");
    stranger.sends("SET bull:q:1:lock x NX PX 100").gets("nil");
    let elsewhere = "return redis.call('del', ARGV[1] .. cjson.decode(ARGV[2])[1] .. ':lock')";
    let said = stranger.eval(elsewhere, &[], &["bull:q:", "[1]"]);
    assert!(said.starts_with("-LOCKDENIED unsafe-script "), "{said}");

    let said = worker.eval(EXTENDS, &["bull:q:wait"], &["bull:q:", "[\"1\", \"9\"]", TOKEN, "40000"]);
    assert_eq!(said, ":2");
    let (ttl, again) = (redis.pttl("bull:q:1:lock"), redis.record("bull:q:1:lock"));
    assert!(ttl > 35_000, "{ttl}");
    let again = again.expect("it goes on");
    assert_eq!(again.fence, record.fence);
    // It is read off the lock after the script, whose millisecond may be over by then.
    assert!((39_900..=40_000).contains(&again.asked_ms), "{}", again.asked_ms);

    // Its library compares: no other token gives it back, not even in a trusted script.
    assert_eq!(gives_back(&stranger, "1", OTHERS), ":0");
    assert_eq!(gives_back(&worker, "1", TOKEN), ":1");
    let state = redis.record("bull:q:1:lock").map(|record| record.state);
    assert_eq!(state, Some(State::Released));
    one.counts("lockwarden_lock_releases_total{outcome=\"released\"}", 1.0);
    one.counts("lockwarden_locks_held{ttl=\"finite\"}", 0.0);

    // The next lease has a number of its own.
    waits(&redis, &["1"]);
    assert_eq!(takes(&worker, TOKEN, "30000"), "$1 2");
    assert_eq!(takes(&worker, OTHERS, "30000"), "$1 1");
    assert!(redis.fence("bull:q:1:lock") > record.fence);
    let untouched = "lockwarden_lock_expired_while_held_total";
    assert_eq!(one.metric(untouched), 0.0);
}

#[test]
fn monitor_mode_keeps_the_records_and_changes_nothing() {
    let redis = Redis::start();
    let proxy = trusting(&redis).mode(Mode::Monitor).start();
    let worker = proxy.client();
    waits(&redis, &["1"]);
    assert_eq!(takes(&worker, TOKEN, "90000"), "$1 1");
    let (ttl, record) = (redis.pttl("bull:q:1:lock"), redis.record("bull:q:1:lock"));
    assert!(ttl > 85_000, "{ttl}: not even the ceiling");
    assert_eq!(record.expect("it is watched").state, State::Live);
    assert_eq!(gives_back(&worker, "1", TOKEN), ":1");
    proxy.counts("lockwarden_lock_releases_total{outcome=\"released\"}", 1.0);
    let foreseen = "lockwarden_decisions_total{decision=\"would-deny\"}";
    assert_eq!(proxy.metrics().find(foreseen).unwrap_or(0.0), 0.0);
}

#[test]
fn the_ceiling_of_the_namespace_holds_for_such_locks_and_they_are_kept_alive() {
    let redis = Redis::start();
    let proxy = trusting(&redis).ceiling("2s").default_ttl("1s").start();
    let worker = proxy.client();
    waits(&redis, &["1"]);
    assert_eq!(takes(&worker, TOKEN, "3600000"), "$1 1");
    assert!(redis.pttl("bull:q:1:lock") <= 2_000);
    wait_for("its TTL to be renewed", || {
        let renewed = "lockwarden_keep_alive_renewals_total{outcome=\"renewed\"}";
        proxy.metrics().find(renewed).unwrap_or(0.0) >= 1.0
    });
    assert!(!redis.is_free("bull:q:1:lock"));
    assert_eq!(gives_back(&worker, "1", TOKEN), ":1");
}

/// The names of records are made in the script as the proxy makes them, whatever the key.
#[test]
fn every_name_of_a_lock_leads_to_its_record() {
    let redis = Redis::start();
    let proxy = trusting(&redis).start();
    let (worker, stranger) = (proxy.client_from("127.0.0.2"), proxy.client_from("127.0.0.3"));
    let mut jobs: Vec<String> = (0..200).map(|number| format!("{number}")).collect();
    for odd in ["{q}", "{}", "{a}{b}", "a}b", "a{b", "", "ä", "%", "\\"] {
        jobs.push(odd.to_owned());
    }
    jobs.push("x".repeat(300));
    for job in &jobs {
        waits(&redis, &[job]);
        takes(&worker, TOKEN, "30000");
        let key = format!("bull:q:{job}:lock");
        stranger.sends_arguments(&["DEL", &key]).gets(":0");
    }
    proxy.counts("lockwarden_ungoverned_operations_total", 0.0);
}

/// The script is trusted with the locks of that namespace only, and only with exactly this text.
#[test]
fn trust_reaches_no_further_than_it_was_given() {
    let redis = Redis::start();
    let proxy =
        trusting(&redis).more("[[namespace]]\nname = \"other\"\nkeys = [\"other:*\"]\nmode = \"enforce\"\n").start();
    let (worker, alice) = (proxy.client(), proxy.client_from("127.0.0.3"));
    alice.sends("SET other:q:1:lock a NX PX 30000").gets("+OK");
    waits(&redis, &["1"]);
    let said = worker.eval(TAKES, &["bull:q:wait"], &["other:q:", TOKEN, "30000"]);
    assert!(said.starts_with("-LOCKDENIED unsafe-script key=other:q:"), "{said}");
    redis.client().sends("GET other:q:1:lock").gets("$1 a");
    waits(&redis, &["1"]);
    let longer = format!("{TAKES} ");
    let said = worker.eval(&longer, &["bull:q:wait"], &["bull:q:", TOKEN, "30000"]);
    assert!(said.starts_with("-LOCKDENIED unsafe-script "), "{said}");
    let name = sha(&redis, &longer);
    assert!(said.contains(&format!("or have trusted_scripts name {name}")), "{said}");
}

#[test]
fn in_a_block_and_on_shared_connections_they_are_judged_as_well() {
    for shared in [false, true] {
        let redis = Redis::start();
        let builder = trusting(&redis);
        let proxy = match shared {
            true => builder.multiplexed().start(),
            false => builder.start(),
        };
        let worker = proxy.client();
        waits(&redis, &["1", "2"]);
        worker.sends("MULTI").gets("+OK");
        let words = ["EVAL", TAKES, "1", "bull:q:wait", "bull:q:", TOKEN, "30000"];
        worker.sends_arguments(&words).gets("+QUEUED");
        worker.sends_arguments(&words).gets("+QUEUED");
        worker.sends("EXEC").gets("[$1 1, $1 2]");
        for job in ["1", "2"] {
            let record = redis.record(&format!("bull:q:{job}:lock"));
            assert_eq!(record.map(|record| record.state), Some(State::Live));
            assert_eq!(gives_back(&worker, job, TOKEN), ":1");
        }
    }
}
