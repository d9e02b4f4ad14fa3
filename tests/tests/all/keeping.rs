//! Keeping a lock: the rows C1 and C3 to C5, and EXPIRE in all its forms. C2 is in `recipes.rs`, F3 in
//! `keep_alive.rs`.

use lockwarden_tests::{Proxy, Redis, Server, World, WorldKind, wait_for};

const EXPIRE_CONDITIONS: &str = "EXPIRE … NX|XX|GT|LT";

/// C1: a watchdog that knows only the key prolongs the successor's lease.
fn a_watchdog_by_key_only(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    alice.sends("SET lock:job a1 NX PX 9000").gets("+OK");
    world.redis().runs_out(&alice, "lock:job");
    bob.sends("SET lock:job b1 NX PX 6000").gets("+OK");
    let before = world.redis().lease("lock:job");

    alice.sends("EXPIRE lock:job 9").gets(world.either(":1", ":0"));
    if world.is_harmed() {
        assert!(world.redis().pttl("lock:job") > 6_000);
    } else {
        assert_eq!(world.redis().lease("lock:job"), before);
    }
    world.counted("extend", "expired", 1);
}
in_every_world!(a_watchdog_by_key_only);

/// C1, honest: the holder's watchdog goes on as before, and no further than the ceiling.
fn a_holders_watchdog(world: &World) {
    let alice = world.client();
    alice.sends("SET lock:job a1 NX PX 9900").gets("+OK");
    let conditions = !Server::under_test().lacks(EXPIRE_CONDITIONS, 7, 0);
    for (spelling, least) in [
        ("EXPIRE lock:job 5", 4_000),
        ("PEXPIRE lock:job 7000", 6_000),
        ("EXPIRE lock:job 3 XX", 2_000),
        ("EXPIRE lock:job 6 GT", 5_000),
        ("EXPIRE lock:job 4 LT", 3_000),
        ("GETEX lock:job EX 8", 7_000),
    ] {
        if !conditions && spelling.split(' ').count() > 3 && spelling.starts_with("EXPIRE") {
            continue;
        }
        let expected = if spelling.starts_with("GETEX") { "$2 a1" } else { ":1" };
        alice.sends(spelling).gets(expected);
        let left = world.redis().pttl("lock:job");
        assert!((least - 1_000..=least + 1_000).contains(&left), "{spelling}: {left}");
    }
    if conditions {
        alice.sends("EXPIRE lock:job 5 NX").gets(":0");
        alice.sends("EXPIRE lock:job 5 GT").gets(":0");
        alice.sends("EXPIRE lock:job 9 LT").gets(":0");
    }
    alice.sends("EXPIRE lock:job 86400").gets(":1");
    let left = world.redis().pttl("lock:job");
    assert_eq!(left > 10_000, world.is_harmed(), "{left}");
}
in_every_world!(a_holders_watchdog);

/// To a client a TTL that the proxy invented is none: EXPIRE NX works, XX and GT do not.
fn conditions_of_expire_on_a_lock_without_ttl(world: &World) {
    if Server::under_test().lacks(EXPIRE_CONDITIONS, 7, 0) {
        return;
    }
    let alice = world.client();
    for (condition, reply) in [("XX", ":0"), ("GT", ":0"), ("NX", ":1")] {
        alice.sends(format!("SETNX lock:{condition} a1")).gets(":1");
        alice.sends(format!("EXPIRE lock:{condition} 5 {condition}")).gets(reply);
    }
    alice.sends("SETNX lock:LT a1").gets(":1");
    alice.sends("EXPIRE lock:LT 5 LT").gets(":1");
}
in_every_world!(conditions_of_expire_on_a_lock_without_ttl);

/// C3: the lease ends under a holder that goes on working, with everything that it still sends.
fn a_holder_that_outlived_its_lease(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    alice.sends("SET lock:job a1 NX PX 9000").gets("+OK");
    world.redis().runs_out(&alice, "lock:job");
    bob.sends("SET lock:job b1 NX PX 8000").gets("+OK");
    let before = world.redis().lease("lock:job");

    alice.sends("PEXPIRE lock:job 9000").gets(world.either(":1", ":0"));
    alice.sends("SET lock:job a2 XX PX 8000").gets(world.either("+OK", "nil"));
    alice.sends("GETDEL lock:job").gets(world.either("$2 a2", "nil"));
    if world.is_harmed() {
        assert!(world.redis().is_free("lock:job"), "bob works on without a lock");
    } else {
        assert_eq!(world.redis().lease("lock:job"), before);
        bob.sends("DEL lock:job").gets(":1");
    }
    let at_least_once = |metric: &str| {
        let selector = format!("{metric}{{namespace=\"locks\"}}");
        if let Some(proxy) = world.proxy() {
            wait_for(&selector, || proxy.metric(&selector) >= 1.0);
        }
    };
    at_least_once("lockwarden_lock_expired_while_held_total");
    at_least_once("lockwarden_lock_overlaps_total");
    // Where the SET went through, she is the holder by it, and the GETDEL is honest.
    world.counted_for("expired", world.either(2, 3));
}
in_every_world!(a_holder_that_outlived_its_lease);

/// C5: one lease as long as the work could ever take. A crash costs all of it, in every world. The time that
/// the lock was really held is measured; a better TTL follows from it.
fn one_long_lease_instead_of_extensions(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    alice.sends("SET lock:job a1 NX PX 9000").gets("+OK");
    alice.sends("DEL lock:job").gets(":1");
    let selector =
        |end: &str| format!("lockwarden_lock_hold_duration_seconds_count{{namespace=\"locks\",end=\"{end}\"}}");
    world.counts(&selector("released"), 1.0);
    world.counts("lockwarden_lock_hold_duration_seconds_bucket{namespace=\"locks\",end=\"released\",le=\"+Inf\"}", 1.0);

    alice.sends("SET lock:job a1 NX PX 9000").gets("+OK");
    drop(alice);
    bob.sends("SET lock:job b1 NX PX 9000").gets("nil");
    let left = world.redis().pttl("lock:job");
    assert!((1_000..=9_000).contains(&left), "{left}");
    world.counts(&selector("expired"), 0.0);
}
in_every_world!(one_long_lease_instead_of_extensions);

/// C4: PERSIST makes a lock that never ends by itself.
fn persist_on_a_lock(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    alice.sends("SET lock:job a1 NX PX 8000").gets("+OK");
    for client in [&alice, &bob] {
        let asked = client.sends("PERSIST lock:job");
        if world.is_harmed() {
            asked.gets(":1");
            assert_eq!(world.redis().pttl("lock:job"), -1);
            world.redis().client().sends("PEXPIRE lock:job 8000").gets(":1");
        } else {
            asked.gets_error("LOCKDENIED no-ttl key=lock:job cmd=PERSIST");
            assert!(world.redis().pttl("lock:job") > 0);
        }
    }
    world.counted_for("no-ttl", 2);
}
in_every_world!(persist_on_a_lock);

/// C4 by GETEX, and the answer to a stranger's GETEX would read as "extended".
fn getex_persist_on_a_lock(world: &World) {
    let alice = world.client();
    alice.sends("SET lock:job a1 NX PX 8000").gets("+OK");
    let asked = alice.sends("GETEX lock:job PERSIST");
    if world.is_harmed() {
        asked.gets("$2 a1");
        assert_eq!(world.redis().pttl("lock:job"), -1);
    } else {
        asked.gets_error("LOCKDENIED no-ttl");
        assert!(world.redis().pttl("lock:job") > 0);
    }
    world.counted_for("no-ttl", 1);
}
in_every_world!(getex_persist_on_a_lock);

/// An extension on a free lock is what it is on a key that does not exist.
fn an_extension_of_nothing(world: &World) {
    let alice = world.client();
    alice.sends("EXPIRE lock:job 5").gets(":0");
    alice.sends("GETEX lock:job EX 5").gets("nil");
    alice.sends("DEL lock:job").gets(":0");
    alice.sends("GETDEL lock:job").gets("nil");
    assert!(world.redis().is_free("lock:job"));
    if world.kind != WorldKind::Direct {
        world.counted("extend", "not-owner", 0);
        world.counted("release", "not-owner", 0);
    }
}
in_every_world!(an_extension_of_nothing);

#[test]
fn another_connection_of_the_same_process_may_extend_and_shorten_and_release() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let alice = proxy.client_from("127.9.9.9");
    let watchdog = proxy.client_from("127.9.9.9");
    alice.sends("SET lock:job a1 NX PX 3000").gets("+OK");
    watchdog.sends("PEXPIRE lock:job 9000").gets(":1");
    assert!(redis.pttl("lock:job") > 3_000);
    watchdog.sends("PEXPIRE lock:job 2500").gets(":1");
    assert!(redis.pttl("lock:job") <= 2_500);
    watchdog.sends("DEL lock:job").gets(":1");
    alice.sends("DEL lock:job").gets(":0");
}

/// While its identity owes a release it proves nothing, but a watchdog does not lose its lock by that.
#[test]
fn an_equal_identity_that_proves_nothing_may_extend_but_not_shorten() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let alice = proxy.client_from("127.9.9.9");
    let watchdog = proxy.client_from("127.9.9.9");
    alice.sends("SET lock:job a1 NX PX 9000").gets("+OK");
    redis.runs_out(&alice, "lock:job");
    alice.sends("SET lock:job a2 NX PX 3000").gets("+OK");
    watchdog.sends("PEXPIRE lock:job 9000").gets(":1");
    assert!(redis.pttl("lock:job") > 3_000);
    watchdog.sends("PEXPIRE lock:job 500").gets(":0");
    assert!(redis.pttl("lock:job") > 3_000);
    alice.sends("DEL lock:job").gets(":1");
}

#[test]
fn another_thread_that_was_refused_the_lock_may_not_extend_it_where_doubt_is_refused() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).setting("owner-token", "doubt", "\"refuse\"").start();
    let alice = proxy.client_from("127.9.9.8");
    let loser = proxy.client_from("127.9.9.8");
    alice.sends("SET lock:job a1 NX PX 3000").gets("+OK");
    loser.sends("SET lock:job b1 NX PX 3000").gets("nil");
    loser.sends("PEXPIRE lock:job 9000").gets(":0");
    assert!(redis.pttl("lock:job") <= 3_000);
}

#[test]
fn extensions_end_at_the_longest_hold() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).setting("ttl-ceiling", "max_hold", "\"1s\"").start();
    let alice = proxy.client();
    alice.sends("SET lock:job a1 NX PX 3000").gets("+OK");
    let client = redis.client();
    let mut extensions = 0;
    wait_for("the holder's extensions to end", || {
        let extended = alice.sends("PEXPIRE lock:job 3000").integer() == 1;
        extensions += u32::from(extended);
        !extended || client.sends("EXISTS lock:job").integer() == 0
    });
    assert!(extensions > 0, "the first extensions are well within the time");
    redis.becomes_free("lock:job");
    assert!(
        proxy.metric("lockwarden_decisions_total{operation=\"extend\",reason=\"limited\",decision=\"deny\"}") >= 1.0
    );
}
