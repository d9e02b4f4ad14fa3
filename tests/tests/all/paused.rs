//! While writes are paused (`CLIENT PAUSE … WRITE`) Redis still answers commands that only read. So does the proxy: none of
//! its own commands blocks a client, and none that waits is taken for a sign that the server is gone.

use std::thread;
use std::time::{Duration, Instant};

use lockwarden_tests::{Client, Proxy, Redis};

/// Longer than anything in these tests.
fn pause_writes(redis: &Redis) -> Client {
    let admin = redis.client();
    admin.sends("CLIENT PAUSE 600000 WRITE").gets("+OK");
    admin
}

#[test]
fn a_block_that_reads_is_executed_whoever_the_user_is() {
    let redis = Redis::start();
    let proxy = Proxy::monitoring(&redis);
    redis.client().sends("ACL SETUSER app on >pw ~* &* +@all").gets("+OK");
    let (known, unknown) = (proxy.client(), proxy.client());
    unknown.sends("AUTH app pw").gets("+OK");
    let admin = pause_writes(&redis);
    for client in [&known, &unknown] {
        client.sends("MULTI").gets("+OK");
        client.sends("GET lock:a").gets("+QUEUED");
        client.sends("EXEC").gets("[nil]");
        client.sends("GET lock:a").gets("nil");
    }
    admin.sends("CLIENT UNPAUSE").gets("+OK");
    known.sends("SETNX lock:a 1").gets(":1");
}

/// Its process is looked up a moment after the grant, and added to the record.
#[test]
fn a_holder_may_look_at_its_lock() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).setting("ttl-ceiling", "default", "\"9s\"").start();
    let holder = proxy.client();
    holder.sends("SETNX lock:a 1").gets(":1");
    let admin = pause_writes(&redis);
    for _ in 0..20 {
        assert!(holder.sends("PTTL lock:a").integer() > 0);
        holder.sends("GET lock:a").gets("$1 1");
        thread::sleep(Duration::from_millis(25));
    }
    admin.sends("CLIENT UNPAUSE").gets("+OK");
    holder.sends("DEL lock:a").gets(":1");
}

/// The proxy notes leases that ran out, marks grants whose reply was not read, and walks over the keys: all
/// that waits.
#[test]
fn clients_are_served_however_long_it_lasts() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis)
        .setting("ttl-ceiling", "default", "\"1m\"")
        .setting("ttl-ceiling", "ceiling", "\"1m\"")
        .top("sweep", "\"1s\"")
        .start();
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("SET lock:a 6e3d0bcd-9c1e-4a07 NX PX 100").gets("+OK");
    bob.sends("SETNX lock:b 1").gets(":1");
    let admin = pause_writes(&redis);
    // Longer than the proxy waits for any answer on a connection of its own.
    let until = Instant::now() + Duration::from_secs(9);
    while Instant::now() < until {
        assert_eq!(proxy.ready(), Some(200));
        bob.sends("GET lock:b").gets("$1 1");
        proxy.client().sends("GET other").gets("nil");
        thread::sleep(Duration::from_millis(200));
    }
    admin.sends("CLIENT UNPAUSE").gets("+OK");
    alice.sends("SET lock:c 6e3d0bcd-9c1e-4a07 NX PX 9000").gets("+OK");
    assert_eq!(proxy.logged(&["no client is served"]), 0);
}
