//! Leases that Redis itself loses, by eviction or by a DEL straight to the server, while their holders are at
//! work. Whatever ended them, they are counted and named, and their holders are late.

use std::time::Duration;

use lockwarden_tests::{Proxy, Redis, wait_for};

const RAN_OUT: &str = "lockwarden_lock_expired_while_held_total{namespace=\"locks\"}";
const OVERLAPS: &str = "lockwarden_lock_overlaps_total{namespace=\"locks\"}";
const LAPSED: &str = "lockwarden_keep_alive_lapsed_total";
const COMPARE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

/// The number in the namespace's column `RAN OUT` of the report.
fn report(proxy: &Proxy) -> i64 {
    let report = proxy.api("report");
    report["namespaces"][0]["ran_out"].as_i64().unwrap_or(-1)
}

/// Deletes a lock on the server itself, with its record.
fn evicts(redis: &Redis, lock: &str) {
    let server = redis.client();
    let names = server.sends(format!("KEYS *}}:{lock}")).reply();
    let record = names.elements()[0].text();
    server.sends(format!("DEL {lock} {record}")).gets(":2");
}

#[test]
fn the_release_of_a_lease_that_redis_has_evicted_says_that_it_ran_out() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let alice = proxy.client();
    alice.sends("SET lock:a a1 NX PX 60000").gets("+OK");
    evicts(&redis, "lock:a");
    alice.sends("DEL lock:a").gets(":0");
    proxy.counts(RAN_OUT, 1.0);
    proxy.logs(&["are gone", "\"key\":\"lock:a\"", "evicted or deleted on Redis itself"]);

    alice.sends("SET lock:b b1 NX PX 60000").gets("+OK");
    evicts(&redis, "lock:b");
    alice.sends_arguments(&["EVAL", COMPARE, "1", "lock:b", "b1"]).gets(":0");
    proxy.counts(RAN_OUT, 2.0);
    alice.sends("SET lock:c c1 NX PX 60000").gets("+OK");
    evicts(&redis, "lock:c");
    alice.sends("PEXPIRE lock:c 60000").gets(":0");
    alice.sends("DEL lock:c").gets(":0");
    proxy.counts(RAN_OUT, 3.0);
    wait_for("the report to count them", || report(&proxy) == 3);
}

#[test]
fn a_lease_that_was_given_back_has_not_run_out_though_its_record_is_gone() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("SET lock:a a1 NX PX 60000").gets("+OK");
    alice.sends("DEL lock:a").gets(":1");
    redis.client().sends("FLUSHALL").gets("+OK");
    alice.sends("DEL lock:a").gets(":0");
    bob.sends("SET lock:a b1 NX PX 60000").gets("+OK");
    bob.sends("DEL lock:a").gets(":1");
    // A flush that went through the proxy is no eviction.
    bob.sends("FLUSHALL").gets("+OK");
    assert_eq!(proxy.metric(RAN_OUT), 0.0);
}

#[test]
fn the_holder_of_an_evicted_lease_is_late_once_another_has_the_lock() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    for lock in ["lock:a", "lock:b", "lock:c"] {
        alice.sends(format!("SET {lock} a1 NX PX 60000")).gets("+OK");
        evicts(&redis, lock);
        bob.sends(format!("SET {lock} b1 NX PX 60000")).gets("+OK");
    }
    proxy.counts(RAN_OUT, 3.0);
    alice.sends("DEL lock:a").gets(":0");
    proxy.counts(OVERLAPS, 1.0);
    alice.sends_arguments(&["EVAL", COMPARE, "1", "lock:b", "a1"]).gets(":0");
    proxy.counts(OVERLAPS, 2.0);
    // To have read the lock of the next holder makes no client its holder.
    alice.sends("GET lock:c").gets("$2 b1");
    alice.sends("DEL lock:c").gets(":0");
    proxy.counts(OVERLAPS, 3.0);
    for lock in ["lock:a", "lock:b", "lock:c"] {
        bob.sends(format!("DEL {lock}")).gets(":1");
    }
    wait_for("the report to count them", || report(&proxy) == 3);
    proxy.counts(RAN_OUT, 3.0);
}

#[test]
fn a_lease_that_vanished_and_of_which_nobody_was_heard_is_counted_when_its_time_is_over() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let alice = proxy.client();
    alice.sends("SET lock:a a1 NX PX 1500").gets("+OK");
    evicts(&redis, "lock:a");
    proxy.counts(RAN_OUT, 1.0);
    wait_for("the report to count it", || report(&proxy) == 1);
}

#[test]
fn a_kept_lease_whose_record_or_lock_is_gone_is_said_to_be_lost() {
    for (gone, why) in [
        ("lw:{0j4}:lock:a", "its record was evicted or deleted"),
        ("lock:a", "its key was evicted or deleted"),
        ("lock:a lw:{0j4}:lock:a", "its record was evicted or deleted"),
    ] {
        let redis = Redis::start();
        let proxy = Proxy::builder(&redis).default_ttl("2s").start();
        let alice = proxy.client();
        alice.sends("SETNX lock:a a1").gets(":1");
        let server = redis.client();
        server.sends(format!("DEL {gone}")).reply();
        proxy.counts(LAPSED, 1.0);
        proxy.logs(&["ran out under its holder", "\"key\":\"lock:a\"", why]);
        proxy.counts(RAN_OUT, 1.0);
        assert!(redis.is_free("lock:a"));
        alice.sends("DEL lock:a").gets(":0");
        wait_for("the report to count it", || report(&proxy) == 1);
        alice.hears_nothing_for(Duration::from_millis(1));
        proxy.counts(RAN_OUT, 1.0);
    }
}
