//! How leases are renewed: many in one call, those that end first before the others, and not delayed by the
//! proxy's other work. `keep_alive` tests that they are renewed at all.

use std::time::{Duration, Instant};

use lockwarden_tests::{Client, Proxy, Redis, encode, wait_for};

fn renewals(outcome: &str) -> String {
    format!("lockwarden_keep_alive_renewals_total{{namespace=\"locks\",outcome=\"{outcome}\"}}")
}

const LAPSED: &str = "lockwarden_keep_alive_lapsed_total";

/// Takes so many locks without a TTL, all in one write.
fn takes(holder: &Client, locks: usize) {
    let lines = (0..locks).flat_map(|n| encode(&["SETNX", &format!("lock:{n}"), "a1"]));
    holder.write(&lines.collect::<Vec<u8>>());
    for _ in 0..locks {
        holder.then().gets(":1");
    }
}

#[test]
fn many_leases_are_renewed_in_one_call_and_by_the_scripts_name() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).default_ttl("9s").start();
    let holder = proxy.client();
    takes(&holder, 500);
    wait_for("the first round of renewals", || proxy.metric(&renewals("renewed")) >= 500.0);
    let console = redis.client();
    console.sends("CONFIG RESETSTAT").gets("+OK");
    // All of the next round are due at once.
    redis.freeze();
    let start = Instant::now();
    wait_for("another third of the TTL to pass", || start.elapsed() > Duration::from_millis(3200));
    redis.thaw();
    wait_for("the second round of renewals", || proxy.metric(&renewals("renewed")) >= 1000.0);
    // The scripts that find other leases are among them.
    let (short, whole) = (console.calls("evalsha"), console.calls("eval"));
    assert!(short <= 50, "{short} calls for 500 renewals");
    assert!(whole <= 20, "{whole} times the text went along");
    assert_eq!(proxy.metric(LAPSED), 0.0);
}

/// A call that Redis refuses for one lock of many is made again for each.
#[test]
fn a_lock_that_the_proxy_may_not_renew_costs_no_other_its_lease() {
    let redis = Redis::start();
    redis.client().sends("ACL SETUSER warden on >secret +@all ~lw:* ~lock:a* &*").gets("+OK");
    let address = redis.address();
    let backend = format!("redis://warden:secret@{address}");
    let proxy = lockwarden_tests::ProxyBuilder::for_backend(&backend).start();
    let holder = proxy.client();
    for lock in ["lock:a1", "lock:b1", "lock:a2"] {
        holder.sends(format!("SETNX {lock} a1")).gets(":1");
    }
    wait_for("the lock that may not be renewed to run out", || redis.is_free("lock:b1"));
    wait_for("the others to be renewed", || proxy.metric(&renewals("renewed")) >= 12.0);
    assert!(!redis.is_free("lock:a1") && !redis.is_free("lock:a2"));
    proxy.logs(&["WARN", "leases could not be renewed", "NOPERM"]);
}

#[test]
fn leases_of_several_databases_are_renewed() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let clients: Vec<Client> = (0..3)
        .map(|db| {
            let client = proxy.client();
            client.sends(format!("SELECT {db}")).gets("+OK");
            client.sends("SETNX lock:job a1").gets(":1");
            client
        })
        .collect();
    wait_for("four rounds of renewals", || proxy.metric(&renewals("renewed")) >= 12.0);
    for client in &clients {
        client.sends("DEL lock:job").gets(":1");
    }
}

/// A lease that is over by its time is not made again: what became of the lock meanwhile is unknown.
#[test]
fn a_lease_that_ran_out_while_redis_did_not_answer_is_counted_and_not_made_again() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).default_ttl("900ms").start();
    let holder = proxy.client();
    takes(&holder, 1);
    wait_for("the first renewal", || proxy.metric(&renewals("renewed")) >= 1.0);
    redis.freeze();
    let frozen = Instant::now();
    wait_for("the lease to be over", || frozen.elapsed() > Duration::from_millis(1200));
    redis.thaw();
    proxy.counts(LAPSED, 1.0);
    proxy.logs(&["WARN", "a lease ran out under its holder", "lock:0"]);
    assert!(redis.is_free("lock:0"));
    proxy.client().sends("SETNX lock:0 b1").gets(":1");
    assert!(proxy.metric("lockwarden_keep_alive_lateness_seconds_count") >= 2.0);
}

/// The record lives as much longer than its lease as it must, although most renewals do not write it.
#[test]
fn a_record_lives_longer_than_its_lease_by_what_was_promised() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let holder = proxy.client();
    takes(&holder, 1);
    for round in 1..=6 {
        wait_for("a renewal", || proxy.metric(&renewals("renewed")) >= f64::from(round));
        let console = redis.client();
        let record = console.sends("KEYS lw:{*}:lock:0").reply();
        let name = record.elements()[0].bytes().to_vec();
        let left = console.sends_arguments(&[b"PTTL", &name[..]]).integer();
        // Ten ceilings are less than ten minutes here.
        assert!(left >= 600_000, "{left}");
    }
}
