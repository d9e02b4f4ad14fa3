//! The primary changes: the proxy follows the sentinels, closes connections to the old primary, reports which leases were
//! lost, and where a namespace has a quarantine, grants no free lock that the old primary may have granted.

mod followed;
mod promised;
mod shown;
mod standstill;

use std::time::{Duration, Instant};

use lockwarden_tests::{Client, Failover, Proxy, ProxyBuilder, Redis, Sentinels, holds_for, wait_for};

use promised::Oracle;

const ERAS: &str = "lockwarden_backend_era_changes_total";
const LOST: &str = "lockwarden_leases_lost_total{namespace=\"locks\"}";
const UNTIL: &str = "lockwarden_quarantine_until_timestamp_seconds{namespace=\"locks\"}";

fn in_front_of(all: &Sentinels) -> ProxyBuilder {
    ProxyBuilder::for_backend(&all.url()).ceiling("60s")
}

#[track_caller]
fn serves_again(proxy: &Proxy) {
    wait_for("the proxy to serve the new primary", || proxy.metric(ERAS) > 0.0 && proxy.ready() == Some(200));
}

/// A lock that the primary grants after it was cut off from its replicas is lost with it.
fn loses_a_lock(all: &mut Sentinels, proxy: &Proxy) -> (Client, Client) {
    let (shop, depot) = (proxy.client(), proxy.client());
    depot.sends("CLIENT SETNAME depot").gets("+OK");
    depot.sends("SET lock:kept d NX PX 60000").gets("+OK");
    depot.sends("WAIT 2 5000").gets(":2");
    let old = all.primary().expect("they are in order");
    all.cuts_off_server(old);
    shop.sends("CLIENT SETNAME shop").gets("+OK");
    shop.sends("SET lock:lost s NX PX 60000").gets("+OK");
    shop.sends("SETNX lock:unkept s").gets(":1");
    let new = wait_for_other(all, old);
    assert_ne!(old, new);
    (shop, depot)
}

fn wait_for_other(all: &Sentinels, old: usize) -> usize {
    wait_for("most sentinels to name another primary", || all.primary().is_some_and(|primary| primary != old));
    all.primary().expect("they have agreed")
}

#[test]
fn the_primary_is_followed_and_what_leads_to_the_old_one_is_closed() {
    if Sentinels::are_lacking() {
        return;
    }
    let mut all = Sentinels::start();
    let proxy = in_front_of(&all).start();
    let before = proxy.client();
    before.sends("SET data before").gets("+OK");
    before.sends("SET lock:a x NX PX 60000").gets("+OK");
    before.sends("WAIT 2 5000").gets(":2");

    let switched = all.fails_over(Failover::Planned);
    serves_again(&proxy);
    // The old primary still takes writes, from every client that stays on it.
    before.sends("PING").gets_close();
    let after = proxy.client();
    after.sends("SET data after").gets("+OK");
    assert_eq!(all.server(switched.to).value("data"), "$5 after");
    after.sends("SET lock:a y NX PX 1000").gets("nil");
    assert_eq!(proxy.metric(LOST), 0.0, "it came along");
    assert_eq!(proxy.metric("lockwarden_locks_unknown{namespace=\"locks\"}"), 0.0);
    proxy.logs(&["the sentinels name another primary", "epoch"]);
}

#[test]
fn a_lease_that_a_failover_loses_is_told_with_its_holder() {
    if Sentinels::are_lacking() {
        return;
    }
    let mut all = Sentinels::start();
    let proxy = in_front_of(&all).start();
    let _holders = loses_a_lock(&mut all, &proxy);
    serves_again(&proxy);
    proxy.counts(LOST, 2.0);
    proxy.logs(&["ERROR", "a lease was lost in the failover", "lock:lost", "shop"]);
    proxy.logs(&["ERROR", "a lease was lost in the failover", "lock:unkept", "shop"]);
    assert_eq!(proxy.logged(&["a lease was lost", "lock:kept"]), 0);
    // This is why the loss was reported: another client is granted the lost lock.
    let other = proxy.client();
    other.sends("SET lock:lost o NX PX 1000").gets("+OK");
    other.sends("SET lock:kept o NX PX 1000").gets("nil");
    let (_, lock) = proxy.get("/api/v1/locks/lock:unkept");
    assert!(lock.contains("\"lease-lost\""), "{lock}");
}

/// The proxy that confirmed the extension to the holder learns of the other grant only when it looks for
/// lapsed leases.
#[test]
fn a_lost_extension_is_told_although_another_proxy_has_granted_the_lock_since() {
    if Sentinels::are_lacking() {
        return;
    }
    let all = Sentinels::start();
    let (one, other) = (in_front_of(&all).start(), in_front_of(&all).start());
    let shop = one.client();
    shop.sends("CLIENT SETNAME shop").gets("+OK");
    shop.sends("SET lock:lost s NX PX 8000").gets("+OK");
    shop.sends("WAIT 2 5000").gets(":2");
    let old = all.primary().expect("they are in order");
    all.cuts_off_server(old);
    shop.sends("PEXPIRE lock:lost 60000").gets(":1");
    wait_for_other(&all, old);
    serves_again(&one);
    serves_again(&other);
    let stock = other.client();
    wait_for("the lease to run out", || stock.sends("SET lock:lost o NX PX 60000").reply().to_string() == "+OK");
    one.counts(LOST, 1.0);
    one.logs(&["ERROR", "a lease was lost", "lock:lost", "shop"]);
}

#[test]
fn in_quarantine_no_free_lock_is_granted_that_the_old_primary_may_have_granted() {
    if Sentinels::are_lacking() {
        return;
    }
    let mut all = Sentinels::start();
    let proxy = in_front_of(&all).namespace("quarantine", "\"5s\"").start();
    let first = proxy.client();
    wait_for("the quarantine of the start to end", || {
        first.sends("SET lock:first f NX PX 1000").reply().to_string() == "+OK"
    });
    let (_shop, _depot) = loses_a_lock(&mut all, &proxy);
    serves_again(&proxy);
    let began = Instant::now();
    assert!(proxy.metric(UNTIL) > 0.0);
    let other = proxy.client();
    other.sends("SET lock:lost o NX PX 1000").gets("nil");
    other.sends("SETNX lock:lost o").gets(":0");
    other.sends("MSETNX lock:lost o lock:more o").gets(":0");
    other.sends("SET lock:lost o").gets_error("LOCKDENIED quarantine key=lock:lost");
    other.sends("SET lock:lost o NX GET").gets_error("LOCKDENIED quarantine key=lock:lost");
    let script = "if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', 1000) then return 1 else return 0 end";
    assert_eq!(other.eval(script, &["lock:lost"], &["o"]), ":0");
    other.sends("MULTI").gets("+OK");
    other.sends("SET lock:lost o NX PX 1000").gets("+QUEUED");
    other.sends("EXEC").gets("[nil]");
    // What is held goes on.
    let depot = proxy.client();
    depot.sends("CLIENT SETNAME depot").gets("+OK");
    let extend = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";
    assert_eq!(depot.eval(extend, &["lock:kept"], &["d", "30000"]), ":1");
    let release = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
    assert_eq!(depot.eval(release, &["lock:kept"], &["d"]), ":1");
    wait_for("the quarantine to end", || other.sends("SET lock:lost o NX PX 1000").reply().to_string() == "+OK");
    let took = began.elapsed();
    assert!(took < Duration::from_secs(12), "{took:?}");
    proxy.counts(UNTIL, 0.0);
    let refused = "lockwarden_decisions_total{operation=\"acquire\",reason=\"quarantine\"}";
    assert!(proxy.metric(refused) >= 5.0);
}

#[test]
fn a_server_that_was_started_again_is_another_era() {
    let mut redis = Redis::start();
    let proxy = Proxy::builder(&redis).namespace("quarantine", "\"2s\"").ceiling("60s").start();
    let client = proxy.client();
    wait_for("the quarantine of the start to end", || {
        client.sends("SET lock:a x NX PX 60000").reply().to_string() == "+OK"
    });
    redis.start_again();
    serves_again(&proxy);
    proxy.counts(LOST, 1.0);
    let client = proxy.client();
    client.sends("SET lock:a y NX PX 1000").gets("nil");
    // A second proxy, which has seen nothing of it, counts from the same moment.
    let second = Proxy::builder(&redis).namespace("quarantine", "\"2s\"").start();
    second.client().sends("SET lock:a z NX PX 1000").gets("nil");
    wait_for("the quarantine to end", || client.sends("SET lock:a y NX PX 1000").reply().to_string() == "+OK");
}

#[test]
fn a_user_who_may_not_ask_which_server_it_is_gets_no_lock_with_a_quarantine() {
    let redis = Redis::start();
    redis.client().sends("ACL SETUSER app on >secret ~* &* +@all -info").gets("+OK");
    let proxy = Proxy::builder(&redis).namespace("quarantine", "\"1s\"").start();
    let app = proxy.client();
    app.sends("AUTH app secret").gets("+OK");
    let other = proxy.client();
    wait_for("the quarantine of the start to end", || {
        other.sends("SET lock:a x NX PX 1000").reply().to_string() == "+OK"
    });
    app.sends("SET lock:b x NX PX 1000").gets("nil");
}

#[test]
fn sentinels_that_are_gone_stop_nobody_but_who_wants_a_free_lock_with_a_quarantine() {
    if Sentinels::are_lacking() {
        return;
    }
    let mut all = Sentinels::start();
    let more = "[[namespace]]\nname = \"free\"\nkeys = [\"free:*\"]\nmode = \"enforce\"";
    let proxy = in_front_of(&all).namespace("quarantine", "\"1s\"").more(more).start();
    proxy.counts("lockwarden_sentinels_heard", 3.0);
    let client = proxy.client();
    wait_for("the quarantine of the start to end", || {
        client.sends("SET lock:a x NX PX 100").reply().to_string() == "+OK"
    });
    for number in 0..3 {
        all.kills_sentinel(number);
    }
    proxy.counts("lockwarden_sentinels_heard", 0.0);
    proxy.logs(&["WARN", "no sentinel is heard"]);
    client.sends("SET free:a x NX PX 1000").gets("+OK");
    client.sends("SET lock:b x NX PX 1000").gets("nil");
    assert_eq!(proxy.ready(), Some(200));
}

#[test]
fn a_sentinel_that_names_what_is_no_primary_is_not_believed() {
    if Sentinels::are_lacking() {
        return;
    }
    let all = Sentinels::start();
    let replica = (0..3).find(|number| Some(*number) != all.primary());
    let lie = Oracle::names(all.server(replica.expect("there are two")), 999);
    let liar = format!("redis-sentinel://{},", lie.address());
    let url = all.url().replace("redis-sentinel://", &liar);
    let proxy = ProxyBuilder::for_backend(&url).without_waiting().start();
    wait_for("the proxy to serve all the same", || proxy.ready() == Some(200));
    assert_eq!(proxy.logged(&["the sentinels name another primary"]), 0);
    // The lie is told every second.
    holds_for(Duration::from_secs(3), "the proxy serves", || proxy.ready() == Some(200));
    proxy.client().sends("SET data here").gets("+OK");
    let primary = all.primary().expect("nothing has changed");
    assert_eq!(all.server(primary).value("data"), "$4 here");
}

#[test]
fn what_keeps_the_primary_from_being_found_is_said() {
    if Sentinels::are_lacking() {
        return;
    }
    let all = Sentinels::start();
    let url = all.url().replace("/mymaster", "/another");
    let proxy = ProxyBuilder::for_backend(&url).without_waiting().start();
    proxy.logs(&[
        "ERROR",
        "no client is served",
        "no sentinel says where the primary of another is",
        "it knows no primary of the name another",
    ]);
    assert_eq!(proxy.ready(), Some(503));
}
