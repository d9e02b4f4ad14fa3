//! Calls on locks that monitor mode forwards unjudged: an EVALSHA whose text the proxy has never seen, because the
//! server's script cache is warm. The proxy does not see what they do, so a lease that they may have given back is
//! never reported as run out.

use std::time::Duration;

use lockwarden_tests::{Client, Mode, Proxy, Redis, Reply, wait_for};

const COMPARE_AND_DELETE: &str =
    "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
const EXTEND: &str =
    "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end";
const ALICES: &str = "5c9e2f70-alice-d1b3";

/// Loads a script into the server before any proxy comes.
fn loaded(redis: &Redis, text: &str) -> String {
    let loads = redis.client();
    loads.sends_arguments(&["SCRIPT", "LOAD", text]).text()
}

/// A server whose script cache is warm, and the name of the compare-and-delete in it.
fn warm() -> (Redis, String) {
    let redis = Redis::start();
    let release = loaded(&redis, COMPARE_AND_DELETE);
    (redis, release)
}

/// A client name distinguishes its leases from those of others, so that they could leave debts.
fn alice(proxy: &Proxy) -> Client {
    let alice = proxy.client();
    alice.sends("CLIENT SETNAME alice").gets("+OK");
    alice
}

/// Asserts that nothing reports a lease as run out, or as not given back.
#[track_caller]
fn nothing_is_held_against_anybody(proxy: &Proxy) {
    let metrics = proxy.metrics();
    let count = |selector: &str| metrics.find(selector).unwrap_or(0.0);
    assert_eq!(count("lockwarden_lock_expired_while_held_total"), 0.0);
    let expired = "lockwarden_lock_hold_duration_seconds_count{end=\"expired\"}";
    assert_eq!(count(expired), 0.0);
    for kind in ["debt", "outlived", "ran-out-connected", "ran-out-alive"] {
        let selector = format!("lockwarden_observations_total{{kind=\"{kind}\"}}");
        assert_eq!(count(&selector), 0.0, "{kind}");
    }
    assert_eq!(count("lockwarden_overlaps_total"), 0.0);
    let report = proxy.api("report");
    assert!(!report.to_string().contains("ran-out"), "{report}");
}

/// Unjudged leases are named as that.
#[track_caller]
fn ends_unseen(proxy: &Proxy, leases: u32) {
    let selector = "lockwarden_observations_total{kind=\"end-unseen\",namespace=\"locks\"}";
    proxy.counts(selector, f64::from(leases));
}

/// Asserts that no release of this lock's leases is owed.
#[track_caller]
fn owes_nothing(redis: &Redis, key: &str) {
    let debts = redis.client().sends(format!("KEYS lw:{{*}}#{key}")).reply();
    assert!(debts.elements().is_empty(), "{debts:?}");
}

#[test]
fn a_release_by_a_script_that_nobody_has_seen_is_not_a_lease_that_ran_out() {
    let (redis, release) = warm();
    let proxy = Proxy::monitoring(&redis);
    let alice = alice(&proxy);
    for _ in 0..3 {
        alice.sends(format!("SET lock:job {ALICES} NX EX 2")).gets("+OK");
        alice.sends(format!("EVALSHA {release} 1 lock:job {ALICES}")).gets(":1");
    }
    ends_unseen(&proxy, 3);
    // The last of them is noticed only when its TTL is over and a command or a request looks.
    proxy.counts("lockwarden_locks_held{namespace=\"locks\"}", 0.0);
    alice.sends("SET lock:other x NX PX 100").gets("+OK");
    proxy.counts("lockwarden_lock_expired_while_held_total", 1.0);
    alice.sends("SET lock:other x NX PX 60000").gets("+OK");
    let report = proxy.api("report").to_string();
    assert!(report.contains("end-unseen"), "{report}");
    owes_nothing(&redis, "lock:job");
}

#[test]
fn nobody_is_late_whose_release_may_not_have_been_seen() {
    let (redis, release) = warm();
    let proxy = Proxy::monitoring(&redis);
    let (alice, bob) = (alice(&proxy), proxy.client());
    alice.sends(format!("SET lock:job {ALICES} NX PX 300")).gets("+OK");
    alice.sends(format!("EVALSHA {release} 1 lock:job {ALICES}")).gets(":1");
    // Its TTL would be over.
    std::thread::sleep(Duration::from_millis(400));
    alice.sends("DEL lock:job").gets(":0");
    bob.sends("SET lock:job bobs-own-value-7712 NX PX 60000").gets("+OK");
    alice.sends("DEL lock:job").gets(":1");
    proxy.counts("lockwarden_locks_held{namespace=\"locks\"}", 0.0);
    ends_unseen(&proxy, 1);
    nothing_is_held_against_anybody(&proxy);
    owes_nothing(&redis, "lock:job");
}

#[test]
fn two_proxies_and_the_next_one_know_it_from_the_record() {
    let (redis, release) = warm();
    let (one, two) = (Proxy::monitoring(&redis), Proxy::monitoring(&redis));
    let (alice, bob) = (alice(&one), two.client());
    for _ in 0..3 {
        alice.sends(format!("SET lock:job {ALICES} NX PX 60000")).gets("+OK");
        alice.sends(format!("EVALSHA {release} 1 lock:job {ALICES}")).gets(":1");
        bob.sends("SET lock:job bobs-own-value-7712 NX PX 60000").gets("+OK");
        bob.sends("DEL lock:job").gets(":1");
    }
    alice.sends(format!("SET lock:job {ALICES} NX PX 60000")).gets("+OK");
    // By another connection than the one that took it, and over the other proxy.
    two.client().sends(format!("EVALSHA {release} 1 lock:job {ALICES}")).gets(":1");
    for proxy in [&one, &two] {
        nothing_is_held_against_anybody(proxy);
    }
    ends_unseen(&one, 3);
    ends_unseen(&two, 1);
    one.kill();
    let three = Proxy::monitoring(&redis);
    let carol = three.client();
    carol.sends("SET lock:job carols-value-0f31 NX PX 60000").gets("+OK");
    nothing_is_held_against_anybody(&three);
    // And where it is enforced from then on, no client owes a release.
    assert_eq!(three.switch("locks", Mode::Enforce), 200);
    carol.sends("DEL lock:job").gets(":1");
    owes_nothing(&redis, "lock:job");
}

#[test]
fn a_lease_that_is_seen_to_go_on_ends_as_any_other() {
    let (redis, _) = warm();
    let extend = loaded(&redis, EXTEND);
    let proxy = Proxy::monitoring(&redis);
    let alice = alice(&proxy);
    alice.sends(format!("SET lock:job {ALICES} NX PX 60000")).gets("+OK");
    alice.sends(format!("EVALSHA {extend} 1 lock:job {ALICES} 50000")).gets(":1");
    ends_unseen(&proxy, 1);
    alice.sends("PEXPIRE lock:job 200").gets(":1");
    proxy.counts("lockwarden_lock_expired_while_held_total", 1.0);
}

#[test]
fn a_call_inside_a_block_and_one_that_reads_under_tracking_are_answered_as_ever() {
    let (redis, release) = warm();
    let proxy = Proxy::monitoring(&redis);
    let alice = alice(&proxy);
    let take = format!("SET lock:job {ALICES} NX PX 60000");
    let gives_back = format!("EVALSHA {release} 1 lock:job {ALICES}");
    for _ in 0..2 {
        alice.sends(&take).gets("+OK");
        alice.sends("MULTI").gets("+OK");
        alice.sends("INCR counter").gets("+QUEUED");
        alice.sends(&gives_back).gets("+QUEUED");
        alice.sends("GET counter").gets("+QUEUED");
        let replies = alice.sends("EXEC").reply();
        assert_eq!(replies.elements().len(), 3, "{replies:?}");
    }
    alice.sends(&take).gets("+OK");
    nothing_is_held_against_anybody(&proxy);
    alice.sends("HELLO 3").reply();
    alice.sends("CLIENT TRACKING ON OPTIN").gets("+OK");
    alice.sends("CLIENT CACHING YES").gets("+OK");
    let mut reply = alice.sends(&gives_back).reply();
    // Before 7.0 the notices about the script's own changes come before its reply.
    if reply.to_string().starts_with(">[$10 invalidate") {
        reply = alice.then().reply();
    }
    assert_eq!(reply.to_string(), ":1");
}

#[test]
fn a_user_that_may_run_nothing_of_the_proxys_is_not_asked_again_and_again() {
    let (redis, release) = warm();
    let admin = redis.client();
    admin.sends("ACL SETUSER worker on >pw ~lock:* +@all").gets("+OK");
    let proxy = Proxy::monitoring(&redis);
    let worker = proxy.client();
    worker.sends("AUTH worker pw").gets("+OK");
    for _ in 0..20 {
        worker.sends(format!("EVALSHA {release} 1 lock:job {ALICES}")).gets(":0");
    }
    let log = admin.sends("ACL LOG").reply();
    let tries = log.elements().iter().map(|entry| &entry.elements()[1]);
    assert_eq!(tries.collect::<Vec<_>>(), [&Reply::Integer(1)], "{log:?}");
}

#[test]
fn a_lock_of_which_nobody_has_said_that_it_is_one_does_not_run_out_so_either() {
    let (redis, release) = warm();
    let proxy = Proxy::monitoring(&redis);
    let alice = alice(&proxy);
    let expired = |proxy: &Proxy| {
        let found = proxy.api("discovery");
        let pattern = found["patterns"].as_array().cloned().unwrap_or_default();
        pattern.first().map(|one| (one["granted"].as_u64(), one["ran_out"].as_u64()))
    };
    for job in 0..3 {
        alice.sends(format!("SET mutex:job:{job} {ALICES} NX PX 200")).gets("+OK");
        alice.sends(format!("EVALSHA {release} 1 mutex:job:{job} {ALICES}")).gets(":1");
    }
    alice.sends(format!("SET mutex:job:7 {ALICES} NX PX 200")).gets("+OK");
    wait_for("the one that was not given back to be found", || expired(&proxy) == Some((Some(4), Some(1))));
    // Half a second after their TTLs the other leases would have been noticed, too.
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(expired(&proxy), Some((Some(4), Some(1))));
}

/// A script that computes the name of a lock and deletes it: the guard notes that, and no policy judges it.
#[test]
fn a_lock_that_a_script_deletes_under_a_name_that_it_computes_did_not_run_out() {
    let redis = Redis::start();
    let proxy = Proxy::monitoring(&redis);
    let (alice, inspector) = (alice(&proxy), proxy.client());
    for _ in 0..2 {
        alice.sends(format!("SET lock:job {ALICES} NX PX 60000")).gets("+OK");
        let deletes = "return redis.call('del', redis.call('echo', ARGV[1]))";
        assert_eq!(inspector.eval(deletes, &[], &["lock:job"]), ":1");
        inspector.sends("PING").gets("+PONG");
    }
    alice.sends(format!("SET lock:job {ALICES} NX PX 60000")).gets("+OK");
    ends_unseen(&proxy, 2);
    nothing_is_held_against_anybody(&proxy);
    owes_nothing(&redis, "lock:job");
}
