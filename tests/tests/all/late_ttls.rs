//! Locks that were taken without a TTL while nothing was enforced: from the switch to enforce mode on they have the
//! default TTL, as if they were taken at that moment, and are kept alive while their holders live.

use std::time::Duration;

use lockwarden_tests::{Client, Mode, Proxy, ProxyBuilder, Redis, Server, holds_for, wait_for};

use super::jobs;

const GIVEN: &str = "lockwarden_late_ttls_total{namespace=\"locks\"}";

const UNGOVERNED: &str = "lockwarden_ungoverned_locks{namespace=\"locks\",ttl=\"none\"}";

/// The lock has a TTL, and has it through several of them.
#[track_caller]
fn is_kept(redis: &Redis, key: &str) {
    wait_for("a TTL", || redis.pttl(key) > 0);
    let client = redis.client();
    holds_for(Duration::from_millis(2_500), "the lock is held", || client.sends(format!("PTTL {key}")).integer() > 0);
}

/// Waits until a whole walk over the keys has been made from now on.
#[track_caller]
fn a_walk_is_made(redis: &Redis, proxy: &Proxy) {
    let before = proxy.metric(UNGOVERNED);
    let around = format!("SET lock:around:{before} 1");
    redis.client().sends(around).gets("+OK");
    proxy.counts(UNGOVERNED, before + 1.0);
}

/// The name of a lock's record.
#[track_caller]
fn record_of(around: &Client, key: &str) -> String {
    let names = around.sends(format!("KEYS lw:{{*}}:{key}")).reply();
    names.elements()[0].text()
}

fn taken(client: &Client, key: &str) {
    client.sends(format!("SETNX {key} 1")).gets(":1");
}

#[test]
fn what_a_dead_holder_left_behind_is_free_soon_after_the_switch() {
    let redis = Redis::start();
    let proxy = Proxy::monitoring(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    taken(&alice, "lock:job");
    drop(alice);
    assert_eq!(redis.pttl("lock:job"), -1, "only watched");
    assert_eq!(proxy.switch("locks", Mode::Enforce), 200);
    redis.becomes_free("lock:job");
    bob.sends("SETNX lock:job b1").gets(":1");
    assert_eq!(proxy.metric(GIVEN), 1.0);
    proxy.logs(&[
        "locks that were taken without a TTL have the default TTL from now on",
        "\"count\":1",
        "lock:job (held for ",
    ]);
}

#[test]
fn a_reload_and_a_start_switch_as_an_order_does() {
    let redis = Redis::start();
    let builder = || Proxy::builder(&redis).mode(Mode::Monitor);
    let proxy = builder().start();
    taken(&proxy.client(), "lock:job");
    let enforcing = builder().mode(Mode::Enforce).text();
    let (status, said) = proxy.reloads(enforcing.as_bytes(), "/reload?anyway=true");
    assert_eq!(status, 200, "{said}");
    redis.becomes_free("lock:job");

    let watching = builder().start();
    taken(&watching.client(), "lock:job");
    watching.kill();
    let _enforcing = Proxy::enforcing(&redis);
    redis.becomes_free("lock:job");
}

#[test]
fn a_living_holder_keeps_its_lock_and_gives_it_back() {
    let redis = Redis::start();
    let proxy = Proxy::monitoring(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("SELECT 3").gets("+OK");
    bob.sends("SELECT 3").gets("+OK");
    taken(&alice, "lock:job");
    assert_eq!(proxy.switch("locks", Mode::Enforce), 200);
    let around = redis.client();
    around.sends("SELECT 3").gets("+OK");
    wait_for("a TTL", || around.sends("PTTL lock:job").integer() > 0);
    holds_for(Duration::from_millis(2_500), "the lock is held", || around.sends("PTTL lock:job").integer() > 0);
    bob.sends("SETNX lock:job b1").gets(":0");
    bob.sends("DEL lock:job").gets(":0");
    alice.sends("DEL lock:job").gets(":1");
    // From now on it is a lock as any other.
    taken(&alice, "lock:job");
    drop(alice);
    wait_for("the lock to be free", || around.sends("EXISTS lock:job").integer() == 0);
}

#[test]
fn another_connection_of_its_client_keeps_it_as_long_as_that_lives() {
    let redis = Redis::start();
    let proxy = Proxy::monitoring(&redis);
    let (took, other) = (proxy.client_from("127.0.0.77"), proxy.client_from("127.0.0.77"));
    other.sends("PING").gets("+PONG");
    taken(&took, "lock:job");
    wait_for("the process in the record", || {
        let record = redis.record("lock:job");
        record.is_some_and(|record| record.process_is_known())
    });
    drop(took);
    assert_eq!(proxy.switch("locks", Mode::Enforce), 200);
    is_kept(&redis, "lock:job");
    drop(other);
    redis.becomes_free("lock:job");
}

#[test]
fn a_job_of_a_shell_keeps_it_until_it_ends() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).mode(Mode::Monitor).default_ttl("2s").start();
    let job = jobs::Job::starts(&proxy, jobs::PLAIN);
    jobs::is_taken(&redis);
    assert_eq!(proxy.switch("locks", Mode::Enforce), 200);
    wait_for("a TTL", || redis.pttl("lock:job") > 0);
    jobs::stays(&redis);
    assert_eq!(job.ends(), Some(0));
    assert!(redis.is_free("lock:job"));
}

/// The proxy that finds the lock has no connection of its holder; the other one has.
#[test]
fn of_several_proxies_the_one_with_its_holder_keeps_it_alive() {
    let redis = Redis::start();
    let starts = || Proxy::builder(&redis).mode(Mode::Monitor).default_ttl("4s").top("sweep", "\"200ms\"").start();
    let (first, second) = (starts(), starts());
    let alice = first.client();
    taken(&alice, "lock:job");
    assert_eq!(second.switch("locks", Mode::Enforce), 200);
    wait_for("a TTL", || redis.pttl("lock:job") > 0);
    assert_eq!(first.switch("locks", Mode::Enforce), 200);
    let client = redis.client();
    holds_for(Duration::from_secs(6), "the lock is held", || client.sends("PTTL lock:job").integer() > 0);
    assert_eq!(first.metric(GIVEN) + second.metric(GIVEN), 1.0);
    alice.sends("DEL lock:job").gets(":1");
}

#[test]
fn where_no_policy_has_a_ttl_nothing_is_given() {
    let redis = Redis::start();
    let text = |mode: Mode| {
        let text = Proxy::builder(&redis)
            .mode(mode)
            .namespace("policies", "[\"owner-token\"]")
            .top("sweep", "\"100ms\"")
            .text();
        let (text, _) = text.split_once("[namespace.settings.ttl-ceiling]").unwrap();
        text.to_owned()
    };
    let proxy = Proxy::builder(&redis).top("sweep", "\"100ms\"").start();
    let weaker = "/reload?allow=weaker";
    let (status, said) = proxy.reloads(text(Mode::Monitor).as_bytes(), weaker);
    assert_eq!(status, 200, "{said}");
    taken(&proxy.client(), "lock:job");
    a_walk_is_made(&redis, &proxy);
    proxy.reload(&text(Mode::Enforce));
    let enforced = "lockwarden_namespace_enforced{namespace=\"locks\"}";
    wait_for("enforce mode", || proxy.metric(enforced) == 1.0);
    a_walk_is_made(&redis, &proxy);
    a_walk_is_made(&redis, &proxy);
    assert_eq!(redis.pttl("lock:job"), -1);
}

#[test]
fn a_lock_whose_record_was_evicted_is_touched_by_no_rule() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).mode(Mode::Monitor).top("sweep", "\"100ms\"").start();
    taken(&proxy.client(), "lock:job");
    let around = redis.client();
    around.sends(format!("DEL {}", record_of(&around, "lock:job"))).gets(":1");
    proxy.counts(UNGOVERNED, 1.0);
    assert_eq!(proxy.switch("locks", Mode::Enforce), 200);
    a_walk_is_made(&redis, &proxy);
    a_walk_is_made(&redis, &proxy);
    assert_eq!(redis.pttl("lock:job"), -1);
}

#[test]
fn while_they_are_only_watched_they_are_named_and_their_records_live_on() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).mode(Mode::Monitor).top("sweep", "\"100ms\"").start();
    for number in 1..=7 {
        taken(&proxy.client(), &format!("lock:{number}"));
    }
    proxy.logs(&["locks are held without a TTL", "lock:1 (held for ", "lock:2 (held for ", "lock:3 (held for "]);
    assert_eq!(proxy.logged(&["lock:7 (held for "]), 0, "the oldest few");
    a_walk_is_made(&redis, &proxy);
    let told = proxy.logged(&["locks are held without a TTL"]);
    a_walk_is_made(&redis, &proxy);
    assert_eq!(proxy.logged(&["locks are held without a TTL"]), told);
    let locks = proxy.api("locks");
    assert_eq!(locks["locks"][0]["key"], "lock:1");
    assert_eq!(locks["locks"][0]["state"], "no-ttl");

    let around = redis.client();
    let record = record_of(&around, "lock:1");
    around.sends(format!("PEXPIRE {record} 60000")).gets(":1");
    wait_for("the record to live on", || around.sends(format!("PTTL {record}")).integer() > 86_400_000);
}

#[test]
fn a_lock_that_the_proxys_own_user_may_not_write_costs_no_other_its_ttl() {
    if !Server::under_test().since(7, 0) {
        return;
    }
    let redis = Redis::start();
    redis.client().sends("ACL SETUSER own on >pass +@all %R~lock:* %RW~lock:ok:* ~lw:*").gets("+OK");
    let backend = format!("redis://own:pass@{}", redis.address());
    let proxy = ProxyBuilder::for_backend(&backend).mode(Mode::Monitor).top("sweep", "\"100ms\"").start();
    let alice = proxy.client();
    taken(&alice, "lock:ok:a");
    taken(&alice, "lock:no:a");
    taken(&alice, "lock:ok:b");
    assert_eq!(proxy.switch("locks", Mode::Enforce), 200);
    is_kept(&redis, "lock:ok:a");
    is_kept(&redis, "lock:ok:b");
    assert_eq!(redis.pttl("lock:no:a"), -1);
    assert_eq!(proxy.metric(GIVEN), 2.0);
    alice.sends("DEL lock:no:a").gets(":1");
}
