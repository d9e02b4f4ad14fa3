//! Giving a lock back: the rows A5, B1, B2, B4, B5 and B7 of the misuse catalogue.

use lockwarden_tests::{Client, Proxy, Redis, World};

const ALICES: &str = "3f1c9a1e-alice-5a77";
const BOBS: &str = "77e0b2d4-bob-90cc41";

/// Alice's lease has ended by its TTL and bob has the lock now.
fn after_alices_lease_ended(world: &World, key: &str, hers: &str, his: &str) -> (Client, Client) {
    let (alice, bob) = (world.client(), world.client());
    alice.sends(format!("SET {key} {hers} NX PX 8000")).gets("+OK");
    alice.sends(format!("GET {key}")).gets(format!("${} {hers}", hers.len()));
    world.redis().runs_out(&alice, key);
    bob.sends(format!("SET {key} {his} NX PX 8000")).gets("+OK");
    (alice, bob)
}

/// B1: DEL after the lease ended, while another client holds the lock.
fn a_late_del_and_the_successors_lock(world: &World) {
    let (alice, bob) = after_alices_lease_ended(world, "lock:job", "a1", "b1");
    let before = world.redis().lease("lock:job");
    alice.sends("DEL lock:job").gets(world.either(":1", ":0"));
    if world.is_harmed() {
        // Now carol works at the same time as bob.
        world.client().sends("SET lock:job c1 NX PX 8000").gets("+OK");
    } else {
        assert_eq!(world.redis().lease("lock:job"), before);
        bob.sends("DEL lock:job").gets(":1");
    }
    world.counted("release", "expired", 1);
}
in_every_world!(a_late_del_and_the_successors_lock);

/// A5: with a constant value, the late client's own comparison succeeds on the successor's lease.
fn a_constant_value_and_a_late_release(world: &World) {
    let compare_and_delete =
        "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
    let (alice, _bob) = after_alices_lease_ended(world, "lock:1", "locked", "locked");
    alice.sends("DEL lock:1").gets(world.either(":1", ":0"));

    let (alice, _bob) = after_alices_lease_ended(world, "lock:2", "locked", "locked");
    alice.sends("GET lock:2").gets("$6 locked");
    alice.sends("DEL lock:2").gets(world.either(":1", ":0"));

    let (alice, bob) = after_alices_lease_ended(world, "lock:3", "locked", "locked");
    alice.sends(format!("EVAL \"{compare_and_delete}\" 1 lock:3 locked")).gets(world.either(":1", ":0"));
    world.counted("release", "expired", 3);

    if !world.is_harmed() {
        bob.sends(format!("EVAL \"{compare_and_delete}\" 1 lock:3 locked")).gets(":1");
    }
}
in_every_world!(a_constant_value_and_a_late_release);

/// B2: the value changes between the GET and the DEL.
fn a_get_a_comparison_in_the_client_and_a_del(world: &World) {
    let (alice, bob) = after_alices_lease_ended(world, "lock:job", ALICES, BOBS);
    // Her comparison was made before the lease ended; only now comes the DEL.
    alice.sends("DEL lock:job").gets(world.either(":1", ":0"));
    if !world.is_harmed() {
        bob.sends("GET lock:job").gets(format!("${} {BOBS}", BOBS.len()));
        bob.sends("DEL lock:job").gets(":1");
    }
    world.counted("release", "expired", 1);
}
in_every_world!(a_get_a_comparison_in_the_client_and_a_del);

/// B2 by a reader that never held the lock: it read the value of a grant that has ended.
fn a_del_by_a_reader_of_an_ended_grant(world: &World) {
    let (alice, carol) = (world.client(), world.client());
    alice.sends(format!("SET lock:job {ALICES} NX PX 8000")).gets("+OK");
    carol.sends("GET lock:job").gets(format!("${} {ALICES}", ALICES.len()));
    world.redis().runs_out(&alice, "lock:job");
    // Even an equal value is another grant.
    let bob = world.client();
    bob.sends(format!("SET lock:job {ALICES} NX PX 8000")).gets("+OK");
    carol.sends("DEL lock:job").gets(world.either(":1", ":0"));
    world.counted("release", "not-owner", 1);
}
in_every_world!(a_del_by_a_reader_of_an_ended_grant);

/// B2, honest: a client that read the distinctive value under the current grant has compared it.
fn a_del_by_a_reader_of_the_current_grant(world: &World) {
    for read in ["GET lock:job", "GETEX lock:job"] {
        let (alice, pooled) = (world.client(), world.client());
        alice.sends(format!("SET lock:job {ALICES} NX PX 8000")).gets("+OK");
        pooled.sends(read).gets(format!("${} {ALICES}", ALICES.len()));
        pooled.sends("DEL lock:job").gets(":1");
    }
    let (alice, pooled) = (world.client(), world.client());
    alice.sends(format!("SET lock:job {ALICES} NX PX 8000")).gets("+OK");
    pooled.sends("MGET plain lock:job").gets(format!("[nil, ${} {ALICES}]", ALICES.len()));
    pooled.sends("DEL lock:job").gets(":1");
    world.counted("release", "not-owner", 0);
}
in_every_world!(a_del_by_a_reader_of_the_current_grant);

/// B4, honest: WATCH, GET, MULTI, DEL, EXEC, by the holder and over a pooled connection.
fn a_release_by_watch_and_exec(world: &World) {
    for (value, pooled) in [("a1", false), (ALICES, false), ("a1", true), (ALICES, true)] {
        let alice = world.client();
        alice.sends(format!("SET lock:job {value} NX PX 8000")).gets("+OK");
        let other = world.client();
        let releases = if pooled { &other } else { &alice };
        releases.sends("WATCH lock:job").gets("+OK");
        releases.sends("GET lock:job").gets(format!("${} {value}", value.len()));
        releases.sends("MULTI").gets("+OK");
        releases.sends("DEL lock:job").gets("+QUEUED");
        releases.sends("EXEC").gets("[:1]");
        assert!(world.redis().is_free("lock:job"));
    }
    world.counted("release", "not-owner", 0);
}
in_every_world!(a_release_by_watch_and_exec);

/// B2 and B4 over a pool: a lease is taken over one connection and given back over another, and the next one
/// the other way round. Neither was late, so neither is treated as late.
fn two_connections_of_a_pool_in_turns(world: &World) {
    let (one, two) = (world.client(), world.client());
    for (takes, releases, value) in [(&one, &two, ALICES), (&two, &one, BOBS), (&one, &two, BOBS), (&two, &one, ALICES)]
    {
        takes.sends(format!("SET lock:job {value} NX PX 20000")).gets("+OK");
        releases.sends(format!("SET lock:job {value} NX PX 20000")).gets("nil");
        releases.sends("WATCH lock:job").gets("+OK");
        releases.sends("GET lock:job").gets(format!("${} {value}", value.len()));
        releases.sends("MULTI").gets("+OK");
        releases.sends("DEL lock:job").gets("+QUEUED");
        releases.sends("EXEC").gets("[:1]");

        takes.sends(format!("SET lock:job {value} NX PX 20000")).gets("+OK");
        releases.sends("GET lock:job").gets(format!("${} {value}", value.len()));
        releases.sends("DEL lock:job").gets(":1");
    }
    world.counted("release", "expired", 0);
}
in_every_world!(two_connections_of_a_pool_in_turns);

/// B4 when the lock changed hands under the WATCH: nil, and the loop ends with the next look.
fn a_release_by_watch_after_the_lock_changed_hands(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    // Her own EXPIRE would be a change that the WATCH sees.
    alice.sends("SET lock:job a1 NX PX 1500").gets("+OK");
    alice.sends("WATCH lock:job").gets("+OK");
    alice.sends("GET lock:job").gets("$2 a1");
    world.redis().becomes_free("lock:job");
    bob.sends("SET lock:job b1 NX PX 8000").gets("+OK");
    alice.sends("MULTI").gets("+OK");
    alice.sends("DEL lock:job").gets("+QUEUED");
    alice.sends("EXEC").gets("nil-array");
    assert_eq!(world.redis().value("lock:job"), "$2 b1");
    alice.sends("WATCH lock:job").gets("+OK");
    alice.sends("GET lock:job").gets("$2 b1");
    alice.sends("UNWATCH").gets("+OK");
}
in_every_world!(a_release_by_watch_after_the_lock_changed_hands);

/// B5: everything that is a DEL in disguise, by a stranger.
fn a_strangers_del_in_disguise(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    for (key, disguise, harm, safe) in [
        ("lock:1", "EXPIRE lock:1 0", ":1", ":0"),
        ("lock:2", "EXPIRE lock:2 -5", ":1", ":0"),
        ("lock:3", "PEXPIREAT lock:3 1000", ":1", ":0"),
        ("lock:4", "EXPIREAT lock:4 1", ":1", ":0"),
        ("lock:5", "PEXPIRE lock:5 0", ":1", ":0"),
        ("lock:6", "GETDEL lock:6", "$2 a1", "nil"),
        ("lock:7", "UNLINK lock:7", ":1", ":0"),
        ("lock:8", "RENAME lock:8 gone", "+OK", "-LOCKDENIED opaque-write"),
        ("lock:9", "SET lock:9 \"\" PX 1", "+OK", "-LOCKDENIED overwrite"),
        ("lock:10", "GETEX lock:10 PX 1", "$2 a1", "-LOCKDENIED "),
        ("lock:11", "DEL plain lock:11", ":1", ":0"),
    ] {
        alice.sends(format!("SET {key} a1 NX PX 8000")).gets("+OK");
        let before = world.redis().lease(key);
        let asked = bob.sends(disguise);
        if world.is_harmed() {
            asked.gets(harm);
            let client = world.redis().client();
            lockwarden_tests::wait_for("the lock to be gone", || {
                client.sends(format!("GET {key}")).reply().to_string() != "$2 a1"
            });
        } else {
            let reply = asked.reply().to_string();
            assert!(reply.starts_with(safe), "{disguise}: {reply}");
            assert_eq!(world.redis().lease(key), before, "{disguise}");
        }
    }
    world.counted("release", "not-owner", 8);
}
in_every_world!(a_strangers_del_in_disguise);

/// B5, honest: the holder may use every one of them that has a lock meaning.
fn a_holders_release_in_every_spelling(world: &World) {
    let alice = world.client();
    for (spelling, reply) in [
        ("EXPIRE lock:job 0", ":1"),
        ("PEXPIRE lock:job -1", ":1"),
        ("EXPIREAT lock:job 1", ":1"),
        ("PEXPIREAT lock:job 1000", ":1"),
        ("GETDEL lock:job", "$2 a1"),
        ("UNLINK lock:job", ":1"),
        ("DEL lock:job lock:job", ":1"),
        ("DEL lock:job absent plain", ":1"),
    ] {
        alice.sends("SET lock:job a1 NX PX 8000").gets("+OK");
        alice.sends(spelling).gets(reply);
        assert!(world.redis().is_free("lock:job"), "{spelling}");
    }
    world.releases("released", 8);
}
in_every_world!(a_holders_release_in_every_spelling);

/// B7: a `finally` that deletes what was never taken.
fn a_del_in_finally_without_the_lock(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    alice.sends("SET lock:job a1 NX PX 8000").gets("+OK");
    bob.sends("SETNX lock:job b1").gets(":0");
    bob.sends("DEL lock:job").gets(world.either(":1", ":0"));
    world.counted("release", "not-owner", 1);
    if !world.is_harmed() {
        alice.sends("DEL lock:job").gets(":1");
    }
}
in_every_world!(a_del_in_finally_without_the_lock);

/// B7: a second DEL meets the next holder's lock.
fn a_del_twice(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    alice.sends("SETNX lock:job a1").gets(":1");
    alice.sends("DEL lock:job").gets(":1");
    alice.sends("DEL lock:job").gets(":0");
    bob.sends("SETNX lock:job b1").gets(":1");
    alice.sends("DEL lock:job").gets(world.either(":1", ":0"));
    world.counted("release", "not-owner", 1);
    world.releases("absent", 1);
}
in_every_world!(a_del_twice, |proxy| proxy.default_ttl("9s"));

#[test]
fn a_del_of_several_locks_deletes_the_callers_own() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("SET lock:1 a1 NX PX 8000").gets("+OK");
    bob.sends("SET lock:2 b1 NX PX 8000").gets("+OK");
    redis.client().sends("SET plain x").gets("+OK");
    alice.sends("DEL lock:1 lock:2 plain absent").gets(":2");
    assert!(redis.is_free("lock:1") && redis.is_free("plain"));
    assert_eq!(redis.value("lock:2"), "$2 b1");
}

#[test]
fn refused_releases_are_errors_where_violations_are_errors_and_nothing_happens_at_all() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).namespace("on_violation", "\"error\"").start();
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends(format!("SET lock:1 {ALICES} NX PX 8000")).gets("+OK");
    bob.sends(format!("SET lock:2 {BOBS} NX PX 8000")).gets("+OK");
    redis.client().sends("SET plain x").gets("+OK");

    bob.sends("DEL lock:1").gets_error("LOCKDENIED not-owner key=lock:1 cmd=DEL policy=owner-token");
    bob.sends("DEL lock:2 plain lock:1").gets_error("LOCKDENIED not-owner key=lock:1 cmd=DEL");
    assert!(!redis.is_free("lock:2") && !redis.is_free("plain"), "all or nothing");
    bob.sends("EXPIRE lock:1 5").gets_error("LOCKDENIED not-owner key=lock:1 cmd=EXPIRE");
    bob.sends("GETDEL lock:1").gets_error("LOCKDENIED not-owner key=lock:1 cmd=GETDEL");
    bob.sends("SETNX lock:1 b").gets(":0");
    alice.sends("DEL lock:1").gets(":1");
    alice.sends("DEL lock:1").gets(":0");
}

#[test]
fn without_the_proof_observed_a_reader_is_no_owner() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).setting("owner-token", "proofs", "[\"token\", \"session\"]").start();
    let (alice, pooled) = (proxy.client(), proxy.client());
    alice.sends(format!("SET lock:job {ALICES} NX PX 8000")).gets("+OK");
    pooled.sends("GET lock:job").text();
    pooled.sends("DEL lock:job").gets(":0");
    alice.sends("DEL lock:job").gets(":1");
}

/// Two threads on one connection: the loser's DEL in `finally` looks exactly like the holder's.
#[test]
fn a_shared_connection_goes_on_as_before_unless_a_refusal_is_to_void_its_proof() {
    let redis = Redis::start();
    for (setting, reply) in [("[\"identity\"]", ":1"), ("[]", ":1"), ("[\"session\", \"identity\"]", ":0")] {
        let proxy = Proxy::builder(&redis).setting("owner-token", "void_after_refusal", setting).start();
        let shared = proxy.client();
        let key = format!("lock:{}", setting.len());
        shared.sends(format!("SET {key} t1 NX PX 9000")).gets("+OK");
        shared.sends(format!("SET {key} t2 NX PX 9000")).gets("nil");
        shared.sends(format!("DEL {key}")).gets(reply);
    }
}

const COMPARE_AND_DELETE: &str =
    "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";

/// A pool of a client that cannot be told from others: the thread that holds the lock names it by its short
/// value, over a connection on which another thread lost it.
#[test]
fn a_short_token_that_is_stored_proves_over_a_connection_that_lost_before() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis)
        .setting("owner-token", "trust_address", "\"no\"")
        .setting("owner-token", "proofs", "[\"token\", \"session\"]")
        .start();
    let (one, two) = (proxy.client_from("127.61.0.1"), proxy.client_from("127.61.0.1"));
    for release in [
        format!("EVAL \"{COMPARE_AND_DELETE}\" 1 lock:job 7"),
        "CAD lock:job 7".to_owned(),
        "DELEX lock:job IFEQ 7".to_owned(),
    ] {
        // The thread that lost has a number of its own, or is the holder's that asked once more.
        for lost in ["8", "7"] {
            one.sends("SET lock:job 7 NX PX 9000").gets("+OK");
            two.sends(format!("SET lock:job {lost} NX PX 9000")).gets("nil");
            two.sends("CAS lock:job 8 9").gets(":0");
            two.sends(release.as_str()).gets(":1");
            assert!(redis.is_free("lock:job"), "{release}");
        }
    }
    one.sends("SET lock:job 7 NX PX 9000").gets("+OK");
    two.sends("SET lock:job 8 NX PX 9000").gets("nil");
    two.sends("EVAL \"if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end\" 1 lock:job 7 8000")
        .gets(":1");
}

/// A value that every client uses names no client: one that just lost with it against another client proves
/// nothing by it.
#[test]
fn a_short_token_with_which_another_client_lost_proves_nothing() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (winner, loser) = (proxy.client_from("127.61.1.1"), proxy.client_from("127.61.1.2"));
    winner.sends("SET lock:job locked NX PX 9000").gets("+OK");
    loser.sends("SET lock:job locked NX PX 9000").gets("nil");
    for release in [format!("EVAL \"{COMPARE_AND_DELETE}\" 1 lock:job locked"), "CAD lock:job locked".to_owned()] {
        loser.sends(release.as_str()).gets(":0");
    }
    // Having tried with another value since, it may name this one.
    loser.sends("SET lock:job mine NX PX 9000").gets("nil");
    loser.sends("CAD lock:job locked").gets(":1");
}

/// A value that names the lock proves nothing only where it was this connection's own until its lease ended.
#[test]
fn a_short_token_of_a_lapsed_lease_proves_nothing_and_another_one_does() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    for (hers, reply) in [("7", ":0"), ("8", ":1")] {
        let (alice, bob) = (proxy.client(), proxy.client());
        alice.sends(format!("SET lock:job {hers} NX PX 9000")).gets("+OK");
        redis.runs_out(&alice, "lock:job");
        bob.sends("SET lock:job 7 NX PX 9000").gets("+OK");
        alice.sends("SET lock:job 6 NX PX 9000").gets("nil");
        alice.sends("CAD lock:job 7").gets(reply);
        redis.client().sends("FLUSHALL").gets("+OK");
    }
}
