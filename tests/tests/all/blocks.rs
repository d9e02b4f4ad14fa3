//! MULTI blocks: each lock command is judged when it is queued and keeps its place in EXEC's array.

use lockwarden_tests::{Proxy, Redis, World};

/// The honest block of older libraries.
fn setnx_and_expire_in_one_block(world: &World) {
    let alice = world.client();
    alice.sends("MULTI").gets("+OK");
    alice.sends("SET plain 1").gets("+QUEUED");
    alice.sends("SETNX lock:job a1").gets("+QUEUED");
    alice.sends("EXPIRE lock:job 5").gets("+QUEUED");
    alice.sends("GET lock:job").gets("+QUEUED");
    alice.sends("INCR plain").gets("+QUEUED");
    alice.sends("EXEC").gets("[+OK, :1, :1, $2 a1, :2]");
    let left = world.redis().pttl("lock:job");
    assert!((4_000..=5_000).contains(&left), "{left}");
    alice.sends("DEL lock:job").gets(":1");
    world.acquires("acquired", 1);
    world.counted("extend", "not-owner", 0);
}
in_every_world!(setnx_and_expire_in_one_block);

/// Taken and given back within one block.
fn a_lease_that_lives_within_one_block(world: &World) {
    let alice = world.client();
    alice.pipelines(
        &["MULTI", "SET lock:job a1 NX PX 5000", "SETNX lock:job a2", "DEL lock:job", "EXISTS lock:job", "EXEC"],
        &["+OK", "+QUEUED", "+QUEUED", "+QUEUED", "+QUEUED", "[+OK, :0, :1, :0]"],
    );
    assert!(world.redis().is_free("lock:job"));
    world.acquires("acquired", 1);
    world.acquires("contended", 1);
    world.releases("released", 1);
}
in_every_world!(a_lease_that_lives_within_one_block);

/// A stranger's block: what needs Redis's state is answered natively, or as an error, in its place.
fn a_strangers_block(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    for key in ["lock:1", "lock:2", "lock:3"] {
        alice.sends(format!("SET {key} a1 NX PX 8000")).gets("+OK");
    }
    bob.sends("MULTI").gets("+OK");
    for line in ["SET plain 1", "DEL lock:1", "EXPIRE lock:2 9", "SET lock:3 thief", "INCR plain"] {
        bob.sends(line).gets("+QUEUED");
    }
    let reply = bob.sends("EXEC").reply();
    let places = reply.elements();
    assert_eq!(places.len(), 5);
    assert_eq!(places[0].to_string(), "+OK");
    assert_eq!(places[1].to_string(), world.either(":1", ":0"));
    assert_eq!(places[2].to_string(), world.either(":1", ":0"));
    let overwrite = places[3].to_string();
    if world.is_harmed() {
        assert_eq!(overwrite, "+OK");
    } else {
        assert!(overwrite.starts_with("-LOCKDENIED overwrite key=lock:3"), "{overwrite}");
        assert_eq!(world.redis().value("lock:1"), "$2 a1");
        assert_eq!(world.redis().value("lock:3"), "$2 a1");
    }
    assert_eq!(places[4].to_string(), ":2");
    world.counted("release", "not-owner", 1);
    world.counted("extend", "not-owner", 1);
}
in_every_world!(a_strangers_block);

/// A command that is refused in every state is refused when it is queued, and the block with it.
fn a_block_with_a_command_that_is_never_allowed(world: &World) {
    let alice = world.client();
    alice.sends("SET lock:job a1 NX PX 8000").gets("+OK");
    for forbidden in ["APPEND lock:job x", "RENAME lock:job gone", "LPUSH lock:other x"] {
        alice.sends("MULTI").gets("+OK");
        alice.sends("INCR plain").gets("+QUEUED");
        let queued = alice.sends(forbidden);
        if world.is_harmed() {
            queued.gets("+QUEUED");
            alice.sends("DISCARD").gets("+OK");
        } else {
            queued.gets_error("LOCKDENIED opaque-write key=lock:");
            alice.sends("INCR plain").gets("+QUEUED");
            let text = alice.sends("EXEC").gets_error("EXECABORT ");
            assert!(text.contains("LOCKDENIED opaque-write"), "{text}");
            assert!(world.redis().is_free("plain"), "nothing of the block ran");
        }
        alice.sends("PING").gets("+PONG");
    }
    alice.sends("DEL lock:job").gets(":1");
}
in_every_world!(a_block_with_a_command_that_is_never_allowed);

/// Redis's own refusals stay Redis's own.
fn blocks_that_redis_refuses(world: &World) {
    let alice = world.client();
    alice.sends("EXEC").gets_error("ERR EXEC without MULTI");
    alice.sends("DISCARD").gets_error("ERR DISCARD without MULTI");
    alice.sends("MULTI").gets("+OK");
    // Valkey 9 has other words for these.
    let direct = world.redis().client();
    direct.sends("MULTI").gets("+OK");
    for line in ["MULTI", "WATCH lock:job"] {
        let words = direct.sends(line).reply();
        assert_eq!(alice.sends(line).gets_error("ERR "), words.error(), "{line}");
    }
    alice.sends("SETNX lock:job a1").gets("+QUEUED");
    let executed = direct.sends("EXEC").reply().to_string();
    if executed == "[]" {
        alice.sends("EXEC").gets("[:1]");
        alice.sends("DEL lock:job").gets(":1");
    } else {
        // There they are mistakes that the block is given up for.
        alice.sends("EXEC").gets(&executed);
        assert!(world.redis().is_free("lock:job"));
    }
    alice.sends("MULTI").gets("+OK");
    alice.sends("SETNX lock:job").gets_error("ERR wrong number of arguments");
    alice.sends("SETNX lock:job a1").gets("+QUEUED");
    alice.sends("EXEC").gets("-EXECABORT Transaction discarded because of previous errors.");
    alice.sends("MULTI").gets("+OK");
    alice.sends("SETNX lock:job a1").gets("+QUEUED");
    alice.sends("DISCARD").gets("+OK");
    assert!(world.redis().is_free("lock:job"));
    world.acquires("acquired", u32::from(executed == "[]"));
}
in_every_world!(blocks_that_redis_refuses);

/// A nil EXEC grants nothing, and what was queued is forgotten.
fn a_block_that_lost_its_watch(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    alice.sends("WATCH plain").gets("+OK");
    alice.sends("MULTI").gets("+OK");
    alice.sends("SETNX lock:job a1").gets("+QUEUED");
    bob.sends("SET plain changed").gets("+OK");
    alice.sends("EXEC").gets("nil-array");
    assert!(world.redis().is_free("lock:job"));
    bob.sends("SET lock:job b1 NX PX 8000").gets("+OK");
    alice.sends("DEL lock:job").gets(world.either(":1", ":0"));
    world.acquires("acquired", 1);
}
in_every_world!(a_block_that_lost_its_watch);

/// SELECT inside a block: the same name in another database is another lock.
fn a_lock_in_another_database(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    alice.sends("SET lock:job a1 NX PX 8000").gets("+OK");
    bob.sends("MULTI").gets("+OK");
    bob.sends("SELECT 3").gets("+QUEUED");
    bob.sends("SET lock:job b1 NX PX 8000").gets("+QUEUED");
    bob.sends("EXEC").gets("[+OK, +OK]");
    bob.sends("DEL lock:job").gets(":1");
    bob.sends("SELECT 0").gets("+OK");
    bob.sends("DEL lock:job").gets(world.either(":1", ":0"));
    world.counted("release", "not-owner", 1);
}
in_every_world!(a_lock_in_another_database);

/// An empty block, and blocks under RESP3.
fn blocks_under_resp3(world: &World) {
    let alice = world.client();
    alice.sends("HELLO 3").reply();
    alice.pipelines(&["MULTI", "EXEC"], &["+OK", "[]"]);
    alice.pipelines(
        &[
            "MULTI",
            "SET lock:job a1 NX PX 5000",
            "SET lock:job a2 NX PX 5000",
            "HGETALL absent",
            "DEL lock:job",
            "EXEC",
        ],
        &["+OK", "+QUEUED", "+QUEUED", "+QUEUED", "+QUEUED", "[+OK, null, {}, :1]"],
    );
    alice.sends("SET lock:job a1 NX PX 5000").gets("+OK");
    alice.sends("SET lock:job a2 NX PX 5000").gets("null");
    alice.sends("DEL lock:job").gets(":1");
    alice.sends("GETDEL lock:job").gets("null");
}
in_every_world!(blocks_under_resp3);

#[test]
fn a_refused_block_is_an_error_at_its_place_where_violations_are_errors() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).namespace("on_violation", "\"error\"").start();
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("SET lock:job a1 NX PX 8000").gets("+OK");
    bob.pipelines(&["MULTI", "DEL lock:job", "SET plain 1"], &["+OK", "+QUEUED", "+QUEUED"]);
    let reply = bob.sends("EXEC").reply();
    let [refused, plain] = reply.elements() else {
        panic!("two places, not {reply}");
    };
    assert!(refused.to_string().starts_with("-LOCKDENIED not-owner key=lock:job cmd=DEL"), "{refused}");
    assert_eq!(plain.to_string(), "+OK");
    assert_eq!(redis.value("lock:job"), "$2 a1");
}
