//! Commands that erase many keys at once: FLUSHDB, FLUSHALL, SWAPDB. Enforced, none of them takes a
//! held lock away; monitored, each does what it does without the proxy, and is counted.

use lockwarden_tests::{Client, Mode, Proxy, ProxyBuilder, Redis, World};

/// A clean-up job empties the server while a client holds a lock.
fn a_flush_while_a_lock_is_held(world: &World) {
    for flush in ["FLUSHALL", "FLUSHDB", "flushall ASYNC", "FlushDB sync"] {
        let (alice, bob) = (world.client(), world.client());
        alice.sends("SET lock:job a1 NX PX 8000").gets("+OK");
        alice.sends("SET plain 1").gets("+OK");
        let before = world.redis().record("lock:job");
        if world.is_harmed() {
            bob.sends(flush).gets("+OK");
            assert!(world.redis().is_free("lock:job") && world.redis().is_free("plain"));
            bob.sends("SET lock:job b1 NX PX 8000").gets("+OK");
            bob.sends("DEL lock:job").gets(":1");
        } else {
            let text = bob.sends(flush).gets_error("LOCKDENIED bulk-delete key=lock:job cmd=FLUSH");
            assert!(text.contains(" locks=1 hint="), "{text}");
            assert_eq!(world.redis().value("lock:job"), "$2 a1");
            assert_eq!(world.redis().record("lock:job"), before);
            assert_eq!(world.redis().value("plain"), "$1 1");
            bob.sends("SET lock:job b1 NX PX 8000").gets("nil");
            alice.sends("DEL lock:job").gets(":1");
        }
    }
    world.counted("write", "bulk-delete", 4);
}
in_every_world!(a_flush_while_a_lock_is_held);

/// Locks that were given back or ran out do not prevent a flush.
fn a_flush_while_no_lock_is_held(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    for flush in ["FLUSHALL", "FLUSHDB", "FLUSHALL ASYNC", "FLUSHDB SYNC"] {
        alice.sends("SET lock:given a1 NX PX 8000").gets("+OK");
        alice.sends("DEL lock:given").gets(":1");
        alice.sends("SET lock:lapsed a1 NX PX 1").gets("+OK");
        world.redis().becomes_free("lock:lapsed");
        alice.sends("SET plain 1").gets("+OK");
        bob.sends(flush).gets("+OK");
        world.redis().client().sends("DBSIZE").gets(":0");
    }
    bob.sends("FLUSHALL NOW").gets("-ERR syntax error");
    bob.sends("FLUSHDB ASYNC SYNC").gets("-ERR syntax error");
    world.counted_for("bulk-delete", 0);
}
in_every_world!(a_flush_while_no_lock_is_held);

/// A clean-up job that deletes by name: each DEL is judged, and it holds nothing.
fn keys_and_del(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    for key in ["lock:1", "lock:2", "lock:3"] {
        alice.sends(format!("SET {key} a1 NX PX 8000")).gets("+OK");
    }
    let reply = bob.sends("KEYS lock:*").reply();
    let mut names: Vec<String> = reply.elements().iter().map(|name| name.text()).collect();
    names.sort();
    assert_eq!(names, ["lock:1", "lock:2", "lock:3"]);
    bob.sends(format!("DEL {}", names.join(" "))).gets(world.either(":3", ":0"));
    world.counted("release", "not-owner", 3);
}
in_every_world!(keys_and_del);

/// The first database's lock would move to the second, and be free in the first and without a holder in the
/// second.
fn swapping_databases(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    alice.sends("SET lock:job a1 NX PX 8000").gets("+OK");
    if world.is_harmed() {
        bob.sends("SWAPDB 0 1").gets("+OK");
        assert!(world.redis().is_free("lock:job"));
    } else {
        bob.sends("SWAPDB 0 1").gets_error("LOCKDENIED bulk-delete cmd=SWAPDB policy=lockwarden id=");
        assert_eq!(world.redis().value("lock:job"), "$2 a1");
    }
    bob.sends("SWAPDB 0").gets_error("ERR wrong number of arguments");
    world.counted("write", "bulk-delete", 1);
}
in_every_world!(swapping_databases);

/// FLUSHDB is about the selected database, FLUSHALL about all of them.
fn a_lock_in_another_database(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    alice.sends("SELECT 3").gets("+OK");
    alice.sends("SET lock:job a1 NX PX 8000").gets("+OK");
    bob.sends("SET plain 1").gets("+OK");
    bob.sends("FLUSHDB").gets("+OK");
    bob.sends("EXISTS plain").gets(":0");
    bob.sends("SELECT 5").gets("+OK");
    bob.sends("SET plain 5").gets("+OK");
    if world.is_harmed() {
        bob.sends("FLUSHALL").gets("+OK");
    } else {
        let text = bob.sends("FLUSHALL").gets_error("LOCKDENIED bulk-delete key=lock:job cmd=FLUSHALL");
        assert!(text.contains(" db=3 locks=1 "), "{text}");
    }
    // Looking around in all databases changes nothing about the connection's own.
    bob.sends("SET here 1").gets("+OK");
    let direct = world.redis().client();
    direct.sends("SELECT 5").gets("+OK");
    direct.sends("EXISTS here").gets(":1");
    direct.sends("EXISTS plain").gets(world.either(":0", ":1"));
    alice.sends("DEL lock:job").gets(world.either(":0", ":1"));
    world.counted("write", "bulk-delete", 1);
}
in_every_world!(a_lock_in_another_database);

/// In a block its reply stands at its place, and it concerns the databases that the block selects.
fn a_flush_in_a_block(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    alice.sends("SELECT 3").gets("+OK");
    alice.sends("SET lock:job a1 NX PX 8000").gets("+OK");
    bob.pipelines(
        &["MULTI", "SET plain 1", "FLUSHDB", "SELECT 3", "FLUSHDB", "INCR plain"],
        &["+OK", "+QUEUED", "+QUEUED", "+QUEUED", "+QUEUED", "+QUEUED"],
    );
    let reply = bob.sends("EXEC").reply();
    let [set, first, select, second, incr] = reply.elements() else {
        panic!("five places, not {reply}");
    };
    for done in [set, first, select] {
        assert_eq!(done.to_string(), "+OK");
    }
    assert_eq!(incr.to_string(), ":1");
    if world.is_harmed() {
        assert_eq!(second.to_string(), "+OK");
    } else {
        let text = second.to_string();
        assert!(text.starts_with("-LOCKDENIED bulk-delete key=lock:job cmd=FLUSHDB"), "{text}");
    }
    assert!(world.redis().is_free("plain"), "database 0 was emptied");
    alice.sends("DEL lock:job").gets(world.either(":0", ":1"));
    world.counted("write", "bulk-delete", 1);

    // A lock that is taken in the same block counts as well.
    let reply = {
        bob.sends("MULTI").gets("+OK");
        bob.sends("SET lock:own b1 NX PX 8000").gets("+QUEUED");
        bob.sends("FLUSHALL").gets("+QUEUED");
        bob.sends("EXEC").reply()
    };
    let flushed = reply.elements()[1].to_string();
    assert_eq!(flushed.starts_with("-LOCKDENIED"), !world.is_harmed());
}
in_every_world!(a_flush_in_a_block);

/// A refusal that needs nothing from Redis makes the block fail as soon as it is queued.
fn a_swap_in_a_block(world: &World) {
    let alice = world.client();
    alice.sends("MULTI").gets("+OK");
    alice.sends("SET plain 1").gets("+QUEUED");
    if world.is_harmed() {
        alice.sends("SWAPDB 1 2").gets("+QUEUED");
        alice.sends("EXEC").gets("[+OK, +OK]");
    } else {
        alice.sends("SWAPDB 1 2").gets_error("LOCKDENIED bulk-delete cmd=SWAPDB");
        let text = alice.sends("EXEC").gets_error("EXECABORT ");
        assert!(text.contains("LOCKDENIED bulk-delete"), "{text}");
        assert!(world.redis().is_free("plain"));
    }
}
in_every_world!(a_swap_in_a_block);

/// The same under RESP3, alone and in a block.
fn a_flush_under_resp3(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    bob.sends("HELLO 3").reply();
    bob.sends("FLUSHALL").gets("+OK");
    alice.sends("SET lock:job a1 NX PX 8000").gets("+OK");
    let refused = bob.sends("FLUSHALL").reply().to_string();
    assert_eq!(refused.starts_with("-LOCKDENIED"), !world.is_harmed());
    alice.sends("DEL lock:job").reply();
    bob.pipelines(
        &["MULTI", "SET plain 1", "FLUSHALL", "HGETALL absent", "EXEC"],
        &["+OK", "+QUEUED", "+QUEUED", "+QUEUED", "[+OK, +OK, {}]"],
    );
}
in_every_world!(a_flush_under_resp3);

/// Locks that scripts keep in hashes and sorted sets are locks like any other.
fn a_lock_that_is_no_string(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    for take in [
        "redis.call('hset', KEYS[1], ARGV[1], 1) return redis.call('pexpire', KEYS[1], 8000)",
        "redis.call('zadd', KEYS[1], 1, ARGV[1]) return redis.call('pexpire', KEYS[1], 8000)",
    ] {
        alice.sends_arguments(&["EVAL", take, "1", "lock:job", "holder-7c1f0a2e9b7d4f6a"]).gets(":1");
        let flushed = bob.sends("FLUSHALL").reply().to_string();
        assert_eq!(flushed.starts_with("-LOCKDENIED bulk-delete"), !world.is_harmed());
        assert_eq!(world.redis().is_free("lock:job"), world.is_harmed());
        world.redis().client().sends("FLUSHALL").gets("+OK");
    }
    world.counted("write", "bulk-delete", 2);
}
in_every_world!(a_lock_that_is_no_string);

/// Leases that were made around the proxy have no record: Redis alone decides.
fn a_lock_that_is_not_governed(world: &World) {
    let bob = world.client();
    world.redis().client().sends("SET lock:job direct NX PX 8000").gets("+OK");
    bob.sends("FLUSHALL").gets("+OK");
    assert!(world.redis().is_free("lock:job"));
    world.counted_for("bulk-delete", 0);
}
in_every_world!(a_lock_that_is_not_governed);

#[test]
fn fencing_tokens_grow_over_an_allowed_flush() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    let mut newest = 0;
    for _ in 0..5 {
        alice.sends("SET lock:job a1 NX PX 8000").gets("+OK");
        let fence = redis.fence("lock:job");
        assert!(fence > newest, "{fence} is not above {newest}");
        newest = fence;
        bob.sends("FLUSHALL").gets_error("LOCKDENIED bulk-delete");
        alice.sends("DEL lock:job").gets(":1");
        bob.sends("FLUSHALL").gets("+OK");
        assert!(redis.record("lock:job").is_none());
    }
}

/// Three namespaces over the same keys: the first that matches is the one that counts.
fn three_namespaces(redis: &Redis) -> ProxyBuilder {
    Proxy::builder(redis).namespace("keys", "[\"lock:*\"]").more(
        "[[namespace]]\nname = \"watched\"\nkeys = [\"job:*:l?ck\"]\n\
         [[namespace]]\nname = \"jobs\"\nkeys = [\"job:[a-m]*\", \"mutex\"]\nmode = \"enforce\"",
    )
}

const WOULD: &str = "lockwarden_decisions_total{namespace=\"watched\",operation=\"write\",reason=\"bulk-delete\",decision=\"would-deny\",policy=\"lockwarden\"}";

fn denied(namespace: &str) -> String {
    format!(
        "lockwarden_decisions_total{{namespace=\"{namespace}\",operation=\"write\",reason=\"bulk-delete\",decision=\"deny\",policy=\"lockwarden\"}}"
    )
}

#[test]
fn only_leases_of_an_enforcing_namespace_stop_a_flush() {
    let redis = Redis::start();
    let proxy = three_namespaces(&redis).start();
    let (alice, bob) = (proxy.client(), proxy.client());
    // `jobs` would match it too, but comes later.
    alice.sends("SET job:b:lock a1 NX PX 8000").gets("+OK");
    bob.sends("FLUSHALL").gets("+OK");
    assert!(redis.is_free("job:b:lock"));
    proxy.counts(WOULD, 1.0);
    proxy.counts(&denied("jobs"), 0.0);
    proxy.logs(&["would have been refused", "\"cmd\":\"FLUSHALL\"", "\"locks\":1"]);

    alice.sends("SET job:b:lock a1 NX PX 8000").gets("+OK");
    alice.sends("SET job:b:other a1 NX PX 8000").gets("+OK");
    alice.sends("SET mutex a1 NX PX 8000").gets("+OK");
    let text = bob.sends("FLUSHALL").gets_error("LOCKDENIED bulk-delete key=");
    assert!(text.contains("key=job:b:other cmd") || text.contains("key=mutex cmd"), "{text}");
    assert!(text.contains(" locks=2 "), "{text}");
    proxy.counts(&denied("jobs"), 1.0);
    proxy.counts(&denied("locks"), 0.0);
    // A refused command is not counted as let through.
    proxy.counts(WOULD, 1.0);
    alice.sends("DEL job:b:other mutex").gets(":2");
    bob.sends("FLUSHDB").gets("+OK");
    proxy.counts(WOULD, 2.0);
}

#[test]
fn going_back_to_monitor_mode_lets_a_flush_through_at_once() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("SET lock:job a1 NX PX 8000").gets("+OK");
    bob.sends("FLUSHALL").gets_error("LOCKDENIED bulk-delete");
    assert_eq!(proxy.switch("locks", Mode::Monitor), 200);
    bob.sends("FLUSHALL").gets("+OK");
    assert!(redis.is_free("lock:job"));
}

#[test]
fn a_database_with_too_many_keys_is_refused_unseen() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (bob, direct) = (proxy.client(), redis.client());
    direct.sends("DEBUG POPULATE 200000").gets("+OK");
    bob.sends("SELECT 1").gets("+OK");
    bob.sends("SET one more").gets("+OK");
    let text = bob.sends("FLUSHALL").gets_error("LOCKDENIED bulk-delete cmd=FLUSHALL policy=lockwarden id=");
    assert!(text.contains(" keys=200001 hint=\"too many keys"), "{text}");
    direct.sends("DBSIZE").gets(":200000");
    proxy.counts(&denied("locks"), 1.0);
    bob.sends("FLUSHDB").gets("+OK");

    assert_eq!(proxy.switch("locks", Mode::Monitor), 200);
    bob.sends("SET one more").gets("+OK");
    bob.sends("FLUSHALL").gets("+OK");
    direct.sends("DBSIZE").gets(":0");
    proxy.counts("lockwarden_decisions_total{namespace=\"locks\",reason=\"bulk-delete\",decision=\"would-deny\"}", 1.0);
}

#[test]
fn counting_ends_where_more_leases_would_change_nothing() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("SET lock:job a1 NX PX 9000").gets("+OK");
    let copies = "local record = redis.call('GET', redis.call('KEYS', 'lw:{*}:lock:job')[1]) \
                  for i = 1, 20000 do redis.call('SET', 'lock:' .. i, 'a1') \
                  redis.call('SET', 'lw:{x}:lock:' .. i, record) end";
    redis.client().sends_arguments(&["EVAL", copies, "0"]).gets("nil");
    let text = bob.sends("FLUSHALL").gets_error("LOCKDENIED bulk-delete key=lock:");
    let locks = text.split_once(" locks=").and_then(|(_, rest)| rest.split(' ').next()?.parse::<u32>().ok());
    assert!(locks.is_some_and(|locks| (10_000..20_000).contains(&locks)), "{text}");
    assert_eq!(proxy.switch("locks", Mode::Monitor), 200);
    bob.sends("FLUSHALL").gets("+OK");
    redis.client().sends("DBSIZE").gets(":0");
}

#[test]
fn a_lock_is_not_erased_between_looking_and_emptying() {
    let redis = Redis::start();
    let proxies = [Proxy::enforcing(&redis), Proxy::enforcing(&redis)];
    std::thread::scope(|scope| {
        let (redis, proxies) = (&redis, &proxies);
        let holder = scope.spawn(move || {
            let alice = proxies[0].client();
            for round in 0..300 {
                alice.sends("SET lock:job a1 NX PX 9000").gets("+OK");
                assert!(!redis.is_free("lock:job"), "round {round}");
                alice.sends("DEL lock:job").gets(":1");
            }
        });
        let bob = proxies[1].client();
        let (mut done, mut refused) = (0, 0);
        while !holder.is_finished() {
            match bob.sends("FLUSHALL").reply().to_string().as_str() {
                "+OK" => done += 1,
                text if text.starts_with("-LOCKDENIED bulk-delete key=lock:job") => refused += 1,
                other => panic!("{other}"),
            }
        }
        assert!(done > 0 && refused > 0, "{done} done, {refused} refused");
    });
}

#[test]
fn what_a_flush_has_erased_is_not_shown_as_held() {
    let redis = Redis::start();
    let proxy = Proxy::monitoring(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("SETNX lock:endless a1").gets(":1");
    alice.sends("SET lock:job a1 NX PX 9000").gets("+OK");
    alice.sends("SELECT 1").gets("+OK");
    alice.sends("SETNX lock:endless a1").gets(":1");
    proxy.counts("lockwarden_locks_held{ttl=\"none\"}", 2.0);
    proxy.counts("lockwarden_locks_held{ttl=\"finite\"}", 1.0);
    bob.sends("FLUSHDB").gets("+OK");
    proxy.counts("lockwarden_locks_held{ttl=\"none\"}", 1.0);
    proxy.counts("lockwarden_locks_held{ttl=\"finite\"}", 0.0);
    bob.pipelines(&["MULTI", "FLUSHALL", "EXEC"], &["+OK", "+QUEUED", "[+OK]"]);
    proxy.counts("lockwarden_locks_held{ttl=\"none\"}", 0.0);
    // Nothing ran out under its holder: it was erased.
    proxy.counts("lockwarden_lock_expired_while_held_total", 0.0);
    alice.sends("SETNX lock:endless a1").gets(":1");
    proxy.counts("lockwarden_locks_held{ttl=\"none\"}", 1.0);
}

#[test]
fn a_companion_prefix_may_hold_the_signs_of_a_glob() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).top("companion_prefix", "'l[w]*?\\:'").start();
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("SET lock:job a1 NX PX 8000").gets("+OK");
    bob.sends("FLUSHALL").gets_error("LOCKDENIED bulk-delete key=lock:job cmd=FLUSHALL");
    alice.sends("DEL lock:job").gets(":1");
    bob.sends("FLUSHALL").gets("+OK");
}

/// A user that may do this, and its client.
fn user(redis: &Redis, client: &Client, name: &str, rules: &str) {
    redis.client().sends(format!("ACL SETUSER {name} on >pw {rules}")).gets("+OK");
    client.sends(format!("AUTH {name} pw")).gets("+OK");
}

#[test]
fn enforced_a_user_who_may_not_look_may_not_flush() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (alice, bob, carol) = (proxy.client(), proxy.client(), proxy.client());
    user(&redis, &alice, "noscript", "~* +@all -@scripting");
    let text = alice
        .sends("FLUSHALL")
        .gets_error("NOPERM lockwarden runs FLUSHALL as a script that looks for held locks first");
    assert!(text.contains("this user needs +flushall +eval +evalsha"), "{text}");
    user(&redis, &bob, "noscan", "~* +@all -scan");
    bob.sends("FLUSHDB").gets_error("NOPERM lockwarden runs FLUSHDB as a script");
    user(&redis, &carol, "noflush", "~* +@all -flushall -flushdb");
    carol.sends("FLUSHALL").gets("-NOPERM this user has no permissions to run the 'flushall' command");
}

#[test]
fn monitored_a_user_who_may_not_look_flushes_as_without_the_proxy() {
    let redis = Redis::start();
    let proxy = Proxy::monitoring(&redis);
    let alice = proxy.client();
    let mut unjudged = 0;
    for (name, rules) in [
        ("noscript", "~* +@all -@scripting"),
        ("noscan", "~* +@all -scan"),
        ("noinfo", "~* +@all -info"),
        ("nokeys", "~plain +@all"),
    ] {
        let bob = proxy.client();
        user(&redis, &bob, name, rules);
        for in_block in [false, true] {
            alice.sends("SET lock:job a1 NX PX 8000").gets("+OK");
            if in_block {
                bob.pipelines(&["MULTI", "FLUSHALL", "EXEC"], &["+OK", "+QUEUED", "[+OK]"]);
            } else {
                bob.sends("FLUSHALL").gets("+OK");
            }
            assert!(redis.is_free("lock:job"), "{name}");
            unjudged += 1;
            proxy.counts("lockwarden_unjudged_commands_total{why=\"no-rights\"}", f64::from(unjudged));
        }
    }
    let carol = proxy.client();
    user(&redis, &carol, "noflush", "~* +@all -flushall");
    let direct = redis.client();
    direct.sends("AUTH noflush pw").gets("+OK");
    let words = direct.sends("FLUSHALL").reply();
    carol.sends("FLUSHALL").gets(words);
}

#[test]
fn who_is_not_logged_in_hears_redis() {
    let redis = Redis::with_arguments(&["--requirepass", "secret"]);
    let proxy = ProxyBuilder::for_backend(&format!("redis://:secret@{}", redis.address()))
        .top("server_commands", "\"refuse\"")
        .start();
    let alice = proxy.client();
    for line in ["FLUSHALL", "SWAPDB 0 1", "CONFIG SET maxmemory 0", "MONITOR"] {
        alice.sends(line).gets("-NOAUTH Authentication required.");
    }
}
