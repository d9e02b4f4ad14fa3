//! Putting the proxy in front of something that works: the rows F1, F2 and F8.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread;

use lockwarden_tests::{Mode, Proxy, Redis, World, WorldKind};

/// Everything that was refused or would have been.
fn refusals(proxy: &Proxy) -> f64 {
    let metrics = proxy.metrics();
    ["deny", "would-deny"]
        .iter()
        .filter_map(|decision| metrics.find(&format!("lockwarden_decisions_total{{decision=\"{decision}\"}}")))
        .sum()
}

/// F1: for locks that were taken before the proxy came, Redis alone decides.
fn locks_from_before_the_proxy(world: &World) {
    let before = world.redis().client();
    before.sends("SET lock:forever old").gets("+OK");
    before.sends("SET lock:timed old PX 60000").gets("+OK");
    before.sends("SET lock:doomed old").gets("+OK");
    let bob = world.client();
    bob.sends("SETNX lock:forever b1").gets(":0");
    bob.sends("SET lock:timed b1 NX PX 5000").gets("nil");
    assert_eq!(world.redis().pttl("lock:forever"), -1, "never given a TTL unasked");
    bob.sends("TTL lock:forever").gets(":-1");
    bob.sends("EXPIRE lock:timed 100").gets(":1");
    assert!(world.redis().pttl("lock:timed") > 90_000, "an extension is Redis's own");
    bob.sends("SET lock:timed new").gets("+OK");
    bob.sends("GETSET lock:timed newer").gets("$3 new");
    bob.sends("DEL lock:doomed").gets(":1");
    bob.sends("DEL lock:forever").gets(":1");
    if let Some(proxy) = world.proxy() {
        assert!(proxy.metric("lockwarden_ungoverned_operations_total{namespace=\"locks\"}") >= 7.0);
        assert_eq!(refusals(proxy), 0.0);
    }
}
in_every_world!(locks_from_before_the_proxy);

/// F1: once it is free, the lock is governed as any other.
fn a_lock_from_before_the_proxy_is_governed_from_its_next_grant(world: &World) {
    world.redis().client().sends("SET lock:job old PX 60").gets("+OK");
    world.redis().becomes_free("lock:job");
    let (alice, bob) = (world.client(), world.client());
    alice.sends("SET lock:job a1 NX PX 8000").gets("+OK");
    bob.sends("DEL lock:job").gets(world.either(":1", ":0"));
    world.counted("release", "not-owner", 1);
}
in_every_world!(a_lock_from_before_the_proxy_is_governed_from_its_next_grant);

/// A lease whose value was changed around the proxy is ungoverned.
fn a_value_that_was_changed_around_the_proxy(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    alice.sends("SET lock:job a1 NX PX 8000").gets("+OK");
    world.redis().client().sends("SET lock:job around PX 8000").gets("+OK");
    bob.sends("DEL lock:job").gets(":1");
    if let Some(proxy) = world.proxy() {
        proxy.counts("lockwarden_ungoverned_operations_total{namespace=\"locks\"}", 1.0);
    }
}
in_every_world!(a_value_that_was_changed_around_the_proxy);

#[test]
fn adopting_gives_a_lock_without_ttl_the_ceiling_when_somebody_wants_it() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).namespace("adopt", "\"cap\"").ceiling("700ms").top("sweep", "\"off\"").start();
    redis.client().sends("SET lock:job old").gets("+OK");
    redis.client().sends("SET lock:timed old PX 60000").gets("+OK");
    let bob = proxy.client();
    bob.sends("GET lock:job").gets("$3 old");
    assert_eq!(redis.pttl("lock:job"), -1, "never on a read");
    bob.sends("SETNX lock:job b1").gets(":0");
    let left = redis.pttl("lock:job");
    assert!((1..=700).contains(&left), "{left}");
    bob.sends("SETNX lock:timed b1").gets(":0");
    assert!(redis.pttl("lock:timed") > 50_000, "only locks without a TTL");
    redis.becomes_free("lock:job");
    bob.sends("SETNX lock:job b1").gets(":1");
}

/// F2: leases taken in monitor mode have their record when the switch comes.
#[test]
fn a_lease_taken_in_monitor_mode_is_governed_after_the_switch_and_free_after_the_way_back() {
    let redis = Redis::start();
    let proxy = Proxy::monitoring(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("SET lock:job a1 NX PX 9000").gets("+OK");
    assert_eq!(proxy.switch("locks", Mode::Enforce), 200);
    bob.sends("DEL lock:job").gets(":0");
    bob.sends("SETNX lock:job b1").gets(":0");
    alice.sends("EXPIRE lock:job 8").gets(":1");
    alice.sends("DEL lock:job").gets(":1");

    alice.sends("SET lock:job a1 NX PX 9000").gets("+OK");
    assert_eq!(proxy.switch("locks", Mode::Monitor), 200);
    bob.sends("DEL lock:job").gets(":1");
}

#[test]
fn switching_wants_the_admin_token_a_known_namespace_and_a_known_mode() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    for token in [None, Some("wrong"), Some("")] {
        let (status, body) = proxy.post_mode("locks", "monitor", token);
        assert!(matches!(status, 401 | 403), "{token:?}: {status} {body}");
    }
    let token = "the-tests-own-admin-token";
    let (status, body) = proxy.post_mode("nobody", "monitor", Some(token));
    assert!((400..500).contains(&status), "{status} {body}");
    let (status, body) = proxy.post_mode("locks", "loud", Some(token));
    assert!((400..500).contains(&status), "{status} {body}");
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("SETNX lock:job a1").gets(":1");
    bob.sends("DEL lock:job").gets(":0");
}

/// F2 under load: honest work goes on through every switch, and exclusion holds.
#[test]
fn honest_work_notices_nothing_of_the_mode_being_switched_under_load() {
    let redis = Redis::start();
    let proxy = Proxy::monitoring(&redis);
    let over = AtomicBool::new(false);
    let (holders, sections) = (AtomicI64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for worker in 0..4 {
            let (proxy, over, holders, sections) = (&proxy, &over, &holders, &sections);
            scope.spawn(move || {
                let client = proxy.client();
                while !over.load(Ordering::Relaxed) {
                    let taken = client.sends(format!("SET lock:busy w{worker} NX PX 9000")).reply().to_string();
                    if taken == "nil" {
                        continue;
                    }
                    assert_eq!(taken, "+OK");
                    assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                    client.sends("GET lock:busy").gets(format!("$2 w{worker}"));
                    client.sends("EXPIRE lock:busy 9").gets(":1");
                    holders.fetch_sub(1, Ordering::SeqCst);
                    client.sends("DEL lock:busy").gets(":1");
                    sections.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for mode in [Mode::Enforce, Mode::Monitor, Mode::Enforce, Mode::Monitor, Mode::Enforce] {
            let seen = sections.load(Ordering::Relaxed);
            lockwarden_tests::wait_for("work to go on", || sections.load(Ordering::Relaxed) > seen + 20);
            assert_eq!(proxy.switch("locks", mode), 200);
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(refusals(&proxy), 0.0);
}

/// F8: an ACL user that may not run scripts, or may not see companions.
fn a_user_without_the_rights_that_judging_takes(world: &World) {
    let admin = world.redis().client();
    admin.sends("ACL SETUSER noeval on >pw ~lock:* ~lw:* +@all -eval -evalsha -script").gets("+OK");
    admin.sends("ACL SETUSER nokeys on >pw ~lock:* +@all").gets("+OK");
    for user in ["noeval", "nokeys"] {
        let alice = world.client();
        alice.sends(format!("AUTH {user} pw")).gets("+OK");
        let taken = alice.sends(format!("SETNX lock:{user} a1"));
        if world.is_harmed() {
            taken.gets(":1");
            alice.sends(format!("GET lock:{user}")).gets("$2 a1");
            alice.sends(format!("EXPIRE lock:{user} 9")).gets(":1");
            alice.sends("MULTI").gets("+OK");
            alice.sends(format!("EXPIRE lock:{user} 8")).gets("+QUEUED");
            alice.sends("EXEC").gets("[:1]");
            alice.sends(format!("DEL lock:{user}")).gets(":1");
        } else {
            let text = taken.gets_error("");
            assert!(text.to_lowercase().contains("eval"), "it says what is missing: {text}");
            assert!(world.redis().is_free(&format!("lock:{user}")));
        }
    }
    if world.kind == WorldKind::Monitor
        && let Some(proxy) = world.proxy()
    {
        assert!(proxy.metric("lockwarden_unjudged_commands_total{why=\"no-rights\"}") >= 6.0);
    }
}
in_every_world!(a_user_without_the_rights_that_judging_takes);

#[test]
fn a_user_with_a_password_and_the_rights_is_governed() {
    let redis = Redis::start();
    redis.client().sends("ACL SETUSER app on >pw ~lock:* ~lw:* +@all -@admin").gets("+OK");
    let proxy = Proxy::enforcing(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("HELLO 3 AUTH app pw").reply();
    bob.sends("AUTH app wrong").gets_error("WRONGPASS");
    bob.sends("AUTH app pw").gets("+OK");
    alice.sends("SETNX lock:job a1").gets(":1");
    bob.sends("DEL lock:job").gets(":0");
    alice.sends("DEL lock:job").gets(":1");
}
