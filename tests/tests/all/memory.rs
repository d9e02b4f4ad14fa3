//! Redis is out of memory: releases and extensions must still work, or it would get worse.

use lockwarden_tests::World;

/// From now on every command that may need memory is refused.
fn fill_up(world: &World) {
    world.redis().client().sends("CONFIG SET maxmemory 1").gets("+OK");
}

fn release_and_extension_without_memory(world: &World) {
    let alice = world.client();
    alice.sends("SETNX lock:1 a1").gets(":1");
    alice.sends("SET lock:2 a1 NX PX 9000").gets("+OK");
    alice.sends("SET lock:3 9f86d081-884c-alice NX PX 9000").gets("+OK");
    alice.sends("SET lock:4 a1 NX PX 9000").gets("+OK");
    fill_up(world);
    alice.sends("EXPIRE lock:1 9").gets(":1");
    assert!(world.redis().pttl("lock:1") > 8_000);
    alice.sends("PEXPIRE lock:2 5000").gets(":1");
    assert!(world.redis().pttl("lock:2") <= 5_000);
    alice.sends("DEL lock:1").gets(":1");
    alice.sends("UNLINK lock:2").gets(":1");
    alice.sends("GETDEL lock:4").gets("$2 a1");
    for key in ["lock:1", "lock:2", "lock:4"] {
        assert!(world.redis().is_free(key), "{key}");
    }
    world.releases("released", 3);
    let bob = world.client();
    bob.sends("DEL lock:3").gets(world.either(":1", ":0"));
    world.counted("release", "not-owner", 1);
}
in_every_world!(release_and_extension_without_memory);

/// An acquire needs memory, and says so in Redis's own words.
fn an_acquire_without_memory(world: &World) {
    let alice = world.client();
    fill_up(world);
    for line in ["SETNX lock:job a1", "SET lock:job a1 NX PX 5000", "SET lock:job a1"] {
        alice.sends(line).gets("-OOM command not allowed when used memory > 'maxmemory'.");
        assert!(world.redis().is_free("lock:job"), "{line}");
    }
    alice.sends("DEL lock:job").gets(":0");
    alice.sends("SET plain x").gets_error("OOM ");
    world.redis().client().sends("CONFIG SET maxmemory 0").gets("+OK");
    alice.sends("SETNX lock:job a1").gets(":1");
    world.acquires("error", 3);
    world.acquires("acquired", 1);
}
in_every_world!(an_acquire_without_memory);

/// Keeping a bare SETNX alive must not need memory either.
fn a_bare_setnx_without_memory(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    alice.sends("SETNX lock:job a1").gets(":1");
    fill_up(world);
    let client = world.redis().client();
    let time = std::time::Duration::from_millis(1_500);
    lockwarden_tests::holds_for(time, "lock:job is held", || client.sends("EXISTS lock:job").integer() == 1);
    bob.sends("DEL lock:job").gets(world.either(":1", ":0"));
    if !world.is_harmed() {
        alice.sends("DEL lock:job").gets(":1");
    }
}
in_every_world!(a_bare_setnx_without_memory);
