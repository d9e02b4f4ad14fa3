//! Taking a lock: the rows A1 to A4, A10, A12 and A13 of the misuse catalogue.

use lockwarden_tests::{Mode, Proxy, Redis, Reply, Server, World, WorldKind};

/// A1: SETNX without a TTL, and the holder dies.
fn a_holder_that_dies_under_a_bare_setnx(world: &World) {
    let alice = world.client();
    alice.sends("SETNX lock:job 1").gets(":1");

    let left = world.redis().pttl("lock:job");
    drop(alice);
    if world.is_harmed() {
        assert_eq!(left, -1, "nothing would ever free it");
    } else {
        assert!((1..=1_500).contains(&left), "a TTL from the first moment, not {left}");
        world.redis().becomes_free("lock:job");
    }
    world.acquires("acquired", 1);
    if world.kind == WorldKind::Monitor {
        world.counts("lockwarden_locks_held{namespace=\"locks\",ttl=\"none\"}", 1.0);
    }
}
in_every_world!(a_holder_that_dies_under_a_bare_setnx, |proxy| proxy.default_ttl("1500ms"));

/// The honest side of A1: nothing about it may change.
fn honest_setnx_and_del(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    alice.sends("SETNX lock:job a1").gets(":1");
    bob.sends("SETNX lock:job b1").gets(":0");
    bob.sends("GET lock:job").gets("$2 a1");
    alice.sends("DEL lock:job").gets(":1");
    bob.sends("SETNX lock:job b1").gets(":1");
    bob.sends("UNLINK lock:job").gets(":1");
    assert!(world.redis().is_free("lock:job"));

    world.acquires("acquired", 2);
    world.acquires("contended", 1);
    world.releases("released", 2);
    world.releases("not-owner", 0);
}
in_every_world!(honest_setnx_and_del, |proxy| proxy.default_ttl("9s"));

/// A2: SETNX, and the EXPIRE that was to follow never comes, or does.
fn setnx_with_expire_as_a_second_command(world: &World) {
    let alice = world.client();
    alice.sends("SETNX lock:job v").gets(":1");
    let between = world.redis().pttl("lock:job");
    assert_eq!(between == -1, world.is_harmed(), "a PTTL of {between} between the two");

    alice.sends("EXPIRE lock:job 30").gets(":1");
    let after = world.redis().pttl("lock:job");
    let asked = world.either(30_000, 10_000);
    assert!((asked - 5_000..=asked).contains(&after), "{after} of {asked}");
    alice.sends("DEL lock:job").gets(":1");
    world.releases("released", 1);
}
in_every_world!(setnx_with_expire_as_a_second_command, |proxy| proxy.default_ttl("9s"));

/// A3: waiters that "repair" a lock without a TTL.
fn a_waiter_that_repairs_a_missing_ttl(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    alice.sends("SETNX lock:job a1").gets(":1");
    let seen = bob.sends("TTL lock:job").integer();
    assert_eq!(seen == -1, world.is_harmed(), "a TTL of {seen}");

    bob.sends("EXPIRE lock:job 300").gets(world.either(":1", ":0"));
    let left = world.redis().pttl("lock:job");
    assert_eq!(left > 9_000, world.is_harmed(), "a stranger made it {left} ms");
    world.counted("extend", "not-owner", 1);
}
in_every_world!(a_waiter_that_repairs_a_missing_ttl, |proxy| proxy.default_ttl("9s"));

/// A3 again: the waiter's EXPIRE on a lease whose TTL its holder chose.
fn a_waiter_that_prolongs_a_strangers_lease(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    alice.sends("SET lock:job a1 NX PX 6000").gets("+OK");
    bob.sends("PEXPIRE lock:job 9000").gets(world.either(":1", ":0"));
    let left = world.redis().pttl("lock:job");
    assert_eq!(left > 6_000, world.is_harmed(), "a stranger made it {left} ms");
    world.counted("extend", "not-owner", 1);
}
in_every_world!(a_waiter_that_prolongs_a_strangers_lease);

/// A4: a day as TTL, and the holder crashes.
fn a_crash_under_a_ttl_of_a_day(world: &World) {
    for command in ["SET lock:job v NX EX 86400", "set lock:job v px 86400000 nx", "SET lock:job v EXAT 99999999999 NX"]
    {
        let alice = world.client();
        alice.sends(command).gets("+OK");
        let left = world.redis().pttl("lock:job");
        drop(alice);
        if world.is_harmed() {
            assert!(left > 86_000_000, "{command}: {left}");
            world.redis().client().sends("FLUSHALL").gets("+OK");
        } else {
            assert!((1..=1_000).contains(&left), "{command}: {left}");
            world.redis().becomes_free("lock:job");
        }
    }
    if world.kind == WorldKind::Enforce {
        world.counts("lockwarden_ttl_clamped_total{namespace=\"locks\"}", 3.0);
    }
    world.acquires("acquired", 3);
}
in_every_world!(a_crash_under_a_ttl_of_a_day, |proxy| proxy.default_ttl("800ms").ceiling("1s"));

/// A4 with `on_excess = "deny"`: the acquire itself is refused.
fn a_ttl_above_a_ceiling_that_denies(world: &World) {
    let alice = world.client();
    let asked = alice.sends("SET lock:job v NX PX 86400000");
    if world.is_harmed() {
        asked.gets("+OK");
    } else {
        let text = asked.gets_error("LOCKDENIED ttl-too-long key=lock:job cmd=SET policy=ttl-ceiling");
        assert!(text.contains("max_ms=10000"), "{text}");
        assert!(world.redis().is_free("lock:job"));
    }
    world.counted("acquire", "ttl-too-long", 1);

    let bob = world.client();
    bob.sends("SET lock:other v NX PX 9000").gets("+OK");
}
in_every_world!(a_ttl_above_a_ceiling_that_denies, |proxy| proxy.setting("ttl-ceiling", "on_excess", "\"deny\""));

/// A10: a plain SET, SETEX or PSETEX over a held lock steals it.
fn a_plain_set_over_a_held_lock(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    for (key, theft) in [
        ("lock:1", "SET lock:1 thief"),
        ("lock:2", "SETEX lock:2 5 thief"),
        ("lock:3", "PSETEX lock:3 5000 thief"),
        ("lock:4", "SET lock:4 thief PX 5000"),
    ] {
        alice.sends(format!("SET {key} a1 NX PX 9000")).gets("+OK");
        if world.is_harmed() {
            bob.sends(theft).gets("+OK");
            assert_eq!(world.redis().value(key), "$5 thief");
        } else {
            let before = world.redis().lease(key);
            bob.sends(theft).gets_error(&format!("LOCKDENIED overwrite key={key}"));
            assert_eq!(world.redis().lease(key), before, "{theft}");
            alice.sends(format!("DEL {key}")).gets(":1");
        }
    }
    world.counted_for("overwrite", 4);
}
in_every_world!(a_plain_set_over_a_held_lock);

/// A10 with MSET, which would write an innocent key as well: all or nothing.
fn an_mset_over_a_held_lock(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    alice.sends("SET lock:job a1 NX PX 9000").gets("+OK");
    if world.is_harmed() {
        bob.sends("MSET plain x lock:job thief").gets("+OK");
        assert_eq!(world.redis().value("lock:job"), "$5 thief");
    } else {
        let before = world.redis().lease("lock:job");
        bob.sends("MSET plain x lock:job thief").gets_error("LOCKDENIED o");
        assert_eq!(world.redis().lease("lock:job"), before);
        assert!(world.redis().is_free("plain"), "no partial effect");
    }
    world.counted("write", "opaque-write", 1);
}
in_every_world!(an_mset_over_a_held_lock);

/// The holder may write over its own lease, and a plain SET on a free lock takes it.
fn a_plain_set_by_the_holder_or_on_a_free_lock(world: &World) {
    let alice = world.client();
    alice.sends("SET lock:job a1").gets("+OK");
    let left = world.redis().pttl("lock:job");
    assert_eq!(left == -1, world.is_harmed(), "a PTTL of {left}");

    alice.sends("SET lock:job a2 PX 5000").gets("+OK");
    alice.sends("SET lock:job a3 XX PX 4000").gets("+OK");
    alice.sends("SETEX lock:job 5 a4").gets("+OK");
    assert_eq!(world.redis().value("lock:job"), "$2 a4");
    alice.sends("SET lock:job a5 KEEPTTL").gets("+OK");
    let left = world.redis().pttl("lock:job");
    assert!((1_000..=5_000).contains(&left), "{left}");
    alice.sends("DEL lock:job").gets(":1");
    alice.sends("SET lock:job a6 XX").gets("nil");
}
in_every_world!(a_plain_set_by_the_holder_or_on_a_free_lock, |proxy| proxy.default_ttl("9s"));

/// `SET … XX` by a stranger is "not set", as it would be without a key.
fn a_set_xx_by_a_stranger(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    alice.sends("SET lock:job a1 NX PX 9000").gets("+OK");
    bob.sends("SET lock:job thief XX PX 5000").gets(world.either("+OK", "nil"));
    assert_eq!(world.redis().value("lock:job"), world.either("$5 thief", "$2 a1"));
    world.counted_for("not-owner", 1);
}
in_every_world!(a_set_xx_by_a_stranger);

/// A12: waiters that poll as fast as they can, with a SETNX each time. None of it touches the lease, all
/// of it is counted, and one of them has the lock as soon as it is free.
fn waiters_that_spin(world: &World) {
    const WAITERS: u32 = 4;
    const LOOKS: u32 = 50;
    let alice = world.client();
    alice.sends("SET lock:job a1 NX PX 9000").gets("+OK");
    let before = world.redis().lease("lock:job");
    std::thread::scope(|scope| {
        for waiter in 0..WAITERS {
            scope.spawn(move || {
                let client = world.client();
                for _ in 0..LOOKS {
                    client.sends(format!("SETNX lock:job w{waiter}")).gets(":0");
                }
            });
        }
    });
    assert_eq!(world.redis().lease("lock:job"), before);
    world.acquires("contended", WAITERS * LOOKS);

    alice.sends("DEL lock:job").gets(":1");
    let waiters: Vec<_> = (0..WAITERS).map(|_| world.client()).collect();
    let winners: i64 = waiters.iter().map(|waiter| waiter.sends("SETNX lock:job w").integer()).sum();
    assert_eq!(winners, 1);
    world.acquires("acquired", 2);
    world.counted_for("not-owner", 0);
}
in_every_world!(waiters_that_spin, |proxy| proxy.default_ttl("9s"));

/// A13: MSETNX takes all or none, and nothing of it stays for ever.
fn several_locks_by_msetnx(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    alice.sends("MSETNX lock:{x}:1 a1 lock:{x}:2 a1").gets(":1");
    for key in ["lock:{x}:1", "lock:{x}:2"] {
        let left = world.redis().pttl(key);
        assert_eq!(left == -1, world.is_harmed(), "{key} has a PTTL of {left}");
        if world.kind != WorldKind::Direct {
            assert!(world.redis().fence(key) > 0);
        }
    }
    bob.sends("MSETNX lock:{x}:2 b1 lock:{x}:3 b1").gets(":0");
    assert!(world.redis().is_free("lock:{x}:3"), "all or none");
    bob.sends("DEL lock:{x}:2").gets(world.either(":1", ":0"));
    world.counted("release", "not-owner", 1);
}
in_every_world!(several_locks_by_msetnx, |proxy| proxy.default_ttl("9s"));

/// A13 with a plain key among them: no partial effect, and no lock by a side door.
fn an_msetnx_of_locks_and_plain_keys(world: &World) {
    let alice = world.client();
    let asked = alice.sends("MSETNX lock:job a1 plain x");
    if world.is_harmed() {
        asked.gets(":1");
    } else {
        asked.gets_error("LOCKDENIED opaque-write");
        assert!(world.redis().is_free("lock:job") && world.redis().is_free("plain"));
    }
    world.counted("write", "opaque-write", 1);
}
in_every_world!(an_msetnx_of_locks_and_plain_keys);

#[test]
fn a_malformed_acquire_is_answered_as_redis_would_and_grants_nothing() {
    let redis = Redis::start();
    let (direct, proxied) = (redis.client(), Proxy::enforcing(&redis));
    let client = proxied.client();
    for line in [
        "SETNX lock:job",
        "SET lock:job",
        "SET lock:job v NX XX",
        "SET lock:job v PX",
        "SET lock:job v PX 0",
        "SET lock:job v EX -1",
        "SET lock:job v PX +5",
        "SET lock:job v PX 05",
        "SET lock:job v PX 1 EX 1",
        "SET lock:job v NX PX 9223372036854775808",
        "SET lock:job v EX 9223372036854775807",
        "SET lock:job v WHAT",
        "SETEX lock:job 0 v",
        "PSETEX lock:job nought v",
        "MSETNX lock:1 v lock:2",
        "GETEX lock:job EX",
        "EXPIRE lock:job soon",
        "EXPIRE lock:job 10 NX XX",
        "EXPIRE lock:job 10 GT LT",
        "EXPIRE lock:job 10 WHAT",
        "EXPIRE lock:job soon WHAT",
        "EXPIRE lock:job 9223372036854775807",
        "EXPIRE lock:job -9223372036854775808",
        "PEXPIRE lock:job 9223372036854775807",
        "SET lock:job v PX nought WHAT",
        "SET lock:job v PX 0 WHAT",
        "SET lock:job v KEEPTTL EX 5",
        "SET lock:job v EX 5 KEEPTTL",
        "SET lock:job v PX 9223372036854775807",
        "SET lock:job v NX GET XX",
        "GETEX lock:job PERSIST EX 5",
        "GETEX lock:job KEEPTTL",
        "GETEX lock:job EX 0",
        "GETDEL lock:job x",
    ] {
        let expected = direct.sends(line).reply();
        let reply = client.sends(line).reply();
        if Server::under_test().since(7, 0) {
            assert_eq!(reply, expected, "{line}");
        } else {
            // The words are those of 7.0, for commands too which this server does not have.
            let refused = matches!(reply, Reply::Error(_));
            assert!(reply == expected || refused, "{line}: {reply}");
        }
        assert!(redis.is_free("lock:job"), "{line}");
    }
}

#[test]
fn an_acquire_with_get_answers_the_old_value() {
    if Server::under_test().lacks("SET … NX GET", 7, 0) {
        return;
    }
    let redis = Redis::start();
    for mode in [Mode::Enforce, Mode::Monitor] {
        redis.client().sends("FLUSHALL").gets("+OK");
        let proxy = Proxy::builder(&redis).mode(mode).start();
        let (alice, bob) = (proxy.client(), proxy.client());
        alice.sends("SET lock:job a1 NX GET PX 5000").gets("nil");
        bob.sends("SET lock:job b1 NX GET PX 5000").gets("$2 a1");
        assert_eq!(redis.value("lock:job"), "$2 a1");
    }
}
