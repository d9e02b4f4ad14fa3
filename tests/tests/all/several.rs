//! Several proxies in front of one Redis, and a proxy that dies between grant and release.

use std::sync::atomic::{AtomicI64, Ordering};
use std::thread;

use lockwarden_tests::{Proxy, Redis, State, wait_for};

const RELEASE: &str = "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
const ALICES: &str = "5c9e2f70-alice-d1b3";

#[test]
fn a_lock_taken_through_one_proxy_is_safe_from_the_clients_of_another() {
    let redis = Redis::start();
    let (here, there) = (Proxy::enforcing(&redis), Proxy::enforcing(&redis));
    let (alice, bob) = (here.client(), there.client());
    alice.sends(format!("SET lock:job {ALICES} NX PX 9000")).gets("+OK");
    let before = redis.lease("lock:job");
    bob.sends("SETNX lock:job b1").gets(":0");
    bob.sends("DEL lock:job").gets(":0");
    bob.sends("EXPIRE lock:job 9").gets(":0");
    bob.sends("SET lock:job b1").gets_error("LOCKDENIED overwrite");
    assert_eq!(redis.lease("lock:job"), before);
    // By its value it is released through any of them.
    there.client().sends(format!("EVAL \"{RELEASE}\" 1 lock:job {ALICES}")).gets(":1");
    bob.sends("SETNX lock:job b1").gets(":1");
    alice.sends("DEL lock:job").gets(":0");
}

#[test]
fn a_value_read_through_another_proxy_is_a_proof_there() {
    let redis = Redis::start();
    let (here, there) = (Proxy::enforcing(&redis), Proxy::enforcing(&redis));
    let (alice, pooled) = (here.client(), there.client());
    alice.sends(format!("SET lock:job {ALICES} NX PX 9000")).gets("+OK");
    pooled.sends("GET lock:job").gets(format!("${} {ALICES}", ALICES.len()));
    pooled.sends("DEL lock:job").gets(":1");
}

#[test]
fn exclusion_holds_over_two_proxies_under_contention() {
    let redis = Redis::start();
    let proxies = [Proxy::enforcing(&redis), Proxy::enforcing(&redis)];
    let holders = AtomicI64::new(0);
    thread::scope(|scope| {
        for worker in 0..4 {
            let (proxy, holders) = (&proxies[worker % 2], &holders);
            scope.spawn(move || {
                let client = proxy.client();
                let mut sections = 0;
                while sections < 50 {
                    if client.sends("SETNX lock:busy 1").integer() == 1 {
                        assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                        holders.fetch_sub(1, Ordering::SeqCst);
                        client.sends("DEL lock:busy").gets(":1");
                        sections += 1;
                    } else {
                        // The `finally` of every client, also of those that did not get the lock.
                        client.sends("DEL lock:busy").gets(":0");
                    }
                }
            });
        }
    });
    assert_eq!(redis.record("lock:busy").map(|record| record.state), Some(State::Released));
}

#[test]
fn a_proxy_that_is_killed_between_grant_and_release_blocks_nobody_longer_than_the_default() {
    let redis = Redis::start();
    let (doomed, other) = (Proxy::enforcing(&redis), Proxy::enforcing(&redis));
    let alice = doomed.client();
    alice.sends("SETNX lock:bare a1").gets(":1");
    alice.sends(format!("SET lock:token {ALICES} NX PX 9000")).gets("+OK");
    doomed.kill();
    alice.then().gets_close();
    let left = redis.pttl("lock:bare");
    assert!(left <= 600, "{left}");

    // The holder comes back through the other one, with its value for a proof.
    let again = other.client();
    again.sends(format!("EVAL \"{RELEASE}\" 1 lock:token {ALICES}")).gets(":1");
    redis.becomes_free("lock:bare");
    again.sends("SETNX lock:bare a2").gets(":1");
}

#[test]
fn a_restarted_proxy_knows_every_lease() {
    let redis = Redis::start();
    let first = Proxy::enforcing(&redis);
    let alice = first.client();
    alice.sends(format!("SET lock:job {ALICES} NX PX 9000")).gets("+OK");
    first.kill();
    let second = Proxy::enforcing(&redis);
    let (alice, bob) = (second.client(), second.client());
    bob.sends("DEL lock:job").gets(":0");
    bob.sends("SETNX lock:job b1").gets(":0");
    // Without her value or a look at it, her raw DEL could be any client's.
    alice.sends("DEL lock:job").gets(":0");
    alice.sends("GET lock:job").gets(format!("${} {ALICES}", ALICES.len()));
    alice.sends("DEL lock:job").gets(":1");
}

#[test]
fn a_client_that_hangs_up_takes_its_backend_connection_with_it() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let clients: Vec<_> = (0..5).map(|_| proxy.client()).collect();
    for client in &clients {
        client.write(&lockwarden_tests::encode(&["BLPOP", "queue", "0"]));
    }
    wait_for("five blocked clients", || redis.client().sends("INFO clients").text().contains("blocked_clients:5\r\n"));
    // By their command: the proxy may open connections of its own meanwhile.
    let waiting = || redis.client().sends("CLIENT LIST").text().matches("cmd=blpop").count();
    assert_eq!(waiting(), 5);
    drop(clients);
    wait_for("their connections to end", || waiting() == 0);
    redis.client().sends("RPUSH queue work").gets(":1");
    assert!(!redis.is_free("queue"), "nobody is left who would take it");
}
