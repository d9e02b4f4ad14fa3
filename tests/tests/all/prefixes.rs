//! Proxies with different prefixes in front of one Redis: each keeps records that the other does not see, so
//! neither would keep its clients from the other's locks. Only one prefix is served.

use lockwarden_tests::{Proxy, ProxyBuilder, Redis, wait_for};

const MARK: &str = "lw:{}:lockwarden-prefix";

fn with_prefix(redis: &Redis, prefix: &str) -> ProxyBuilder {
    Proxy::builder(redis).top("companion_prefix", &format!("\"{prefix}\""))
}

#[track_caller]
fn becomes(proxy: &Proxy, status: u16) {
    wait_for(&format!("/ready to answer {status}"), || proxy.ready() == Some(status));
}

fn marked(redis: &Redis) -> String {
    redis.client().sends(format!("GET {MARK}")).reply().to_string()
}

#[test]
fn a_proxy_with_another_prefix_serves_nobody_and_says_what_to_do() {
    let redis = Redis::start();
    let first = Proxy::enforcing(&redis);
    first.client().sends("SET lock:job a1 NX PX 9000").gets("+OK");
    wait_for("the mark to be there", || marked(&redis) == "$3 lw:");

    let second = with_prefix(&redis, "wardens:").without_waiting().start();
    let words =
        ["companion_prefix is \\\"wardens:\\\"", "set companion_prefix = \\\"lw:\\\"", "DEL lw:{}:lockwarden-prefix"];
    second.logs(&[&["ERROR", "no client is served"][..], &words].concat());
    becomes(&second, 503);
    second.client().sends("SET lock:job b1 NX PX 9000").gets_close();
    let (_, why) = second.get("/ready");
    assert!(why.contains("wardens:") && !why.trim().contains('\n'), "{why}");

    let end = with_prefix(&redis, "wardens:").check_backend();
    let line = "backend: companion_prefix is \"wardens:\", but the records of locks on this Redis begin with \"lw:\"";
    assert!(end.stdout.contains(line), "{end:?}");
    assert_eq!(end.code, Some(1), "{end:?}");
    let end = Proxy::builder(&redis).check_backend();
    assert!(!end.stdout.contains("companion_prefix"), "{end:?}");

    // A mark that was removed is written again by the proxy that serves.
    redis.client().sends(format!("DEL {MARK}")).gets(":1");
    wait_for("the mark to be there again", || marked(&redis) == "$3 lw:");
    assert_eq!((first.ready(), second.ready()), (Some(200), Some(503)));

    // The way over to another prefix: no proxy is left, the mark goes, the new one starts.
    first.stop();
    second.stop();
    redis.client().sends(format!("DEL {MARK}")).gets(":1");
    let second = with_prefix(&redis, "wardens:").start();
    second.client().sends("SET lock:b b1 NX PX 9000").gets("+OK");
    wait_for("the mark to be there", || marked(&redis) == "$8 wardens:");
}

/// Redis decides who was first, before any lock is granted.
#[test]
fn of_two_proxies_that_start_at_once_one_serves() {
    for _ in 0..3 {
        let redis = Redis::start();
        let both = ["one:", "two:"].map(|prefix| with_prefix(&redis, prefix).without_waiting().start());
        for proxy in &both {
            becomes(proxy, 200);
        }
        // No client has locks yet, so there is nothing to tell apart.
        assert_eq!(marked(&redis), "nil");
        let granted = std::thread::scope(|scope| {
            let takes = |proxy: &Proxy| {
                let client = proxy.client();
                client.write(b"SET lock:a a1 NX PX 9000\r\nQUIT\r\n");
                client.reads_to_end().starts_with(b"+OK\r\n")
            };
            let asked = [&both[0], &both[1]].map(|proxy| scope.spawn(move || takes(proxy)));
            asked.map(|one| one.join().expect("it has asked"))
        });
        assert_eq!(granted.iter().filter(|granted| **granted).count(), 1, "{granted:?}");
        for (at, mark) in ["$4 one:", "$4 two:"].into_iter().enumerate() {
            becomes(&both[at], if granted[at] { 200 } else { 503 });
            assert_eq!(marked(&redis) == mark, granted[at]);
        }
    }
}

#[test]
fn the_mark_goes_with_the_first_grant() {
    let redis = Redis::start();
    let [first, second] = ["lw:", "wardens:"].map(|prefix| with_prefix(&redis, prefix).start());
    let (client, late) = (first.client(), second.client());
    // Neither takes a lock: the database has no key of ours.
    client.sends("DEL lock:job").gets(":0");
    client.sends("EXPIRE lock:job 9").gets(":0");
    assert_eq!(redis.client().sends("DBSIZE").integer(), 0);
    client.sends("SET lock:job a1 NX PX 9000").gets("+OK");
    assert_eq!(marked(&redis), "$3 lw:");
    late.sends("SETNX lock:other b1").gets_close();
    becomes(&second, 503);
    for flush in ["FLUSHALL", "FLUSHDB"] {
        client.sends("DEL lock:job").reply();
        client.sends(flush).gets("+OK");
        client.sends("SETNX lock:job a1").gets(":1");
        assert_eq!(marked(&redis), "$3 lw:", "{flush}");
    }
    assert_eq!((first.ready(), second.ready()), (Some(200), Some(503)));
}

/// One write of it around the proxies stopped every proxy on that Redis for good.
#[test]
fn what_no_proxy_has_written_stops_none() {
    let redis = Redis::start();
    let straight = redis.client();
    let mut proxy = Proxy::enforcing(&redis);
    proxy.client().sends("SET lock:job a1 NX PX 90000").gets("+OK");
    let longest = "x".repeat(33);
    for write in [
        format!("SET {MARK} x"),
        format!("SET {MARK} wardens:"),
        format!("SET {MARK} \"\""),
        format!("SET {MARK} {{a}}"),
        format!("SET {MARK} {longest}"),
        format!("APPEND {MARK} more"),
        format!("RPUSH {MARK} x"),
    ] {
        if write.starts_with("RPUSH") {
            straight.sends(format!("DEL {MARK}")).gets(":1");
        }
        straight.sends(&write).reply();
        wait_for(&format!("the mark to be there again after {write}"), || marked(&redis) == "$3 lw:");
        assert_eq!(proxy.ready(), Some(200), "{write}");
        // Nor a proxy that is started then.
        proxy.stop();
        straight.sends(format!("DEL {MARK}")).gets(":1");
        straight.sends(&write).reply();
        proxy = Proxy::enforcing(&redis);
        proxy.client_from("127.0.0.3").sends("DEL lock:job").gets(":0");
        assert_eq!(marked(&redis), "$3 lw:", "{write}");
        proxy.logs(&["WARN", MARK, "what no proxy has written"]);
    }
    straight.sends(format!("SET {MARK} x")).gets("+OK");
    proxy.stop();
    straight.sends(format!("SET {MARK} x")).gets("+OK");
    let end = Proxy::builder(&redis).check_backend();
    assert!(end.stdout.contains("holds \"x\", under which no proxy serves"), "{end:?}");
}

/// A proxy that stands still for a while does not lose its mark to another one.
#[test]
fn a_proxy_that_is_frozen_keeps_its_mark() {
    let redis = Redis::start();
    let first = Proxy::enforcing(&redis);
    first.client().sends("SET lock:job a1 NX PX 90000").gets("+OK");
    first.freeze();
    // Its own entry has long expired.
    redis.client().sends("ZADD lw:{}:lockwarden-proxies 1 gone").gets(":1");
    let entries = redis.client().sends("ZRANGE lw:{}:lockwarden-proxies 0 -1").reply();
    for entry in entries.elements() {
        redis
            .client()
            .sends_arguments(&[b"ZADD".as_slice(), b"lw:{}:lockwarden-proxies", b"1", entry.bytes()])
            .gets(":0");
    }
    let second = with_prefix(&redis, "wardens:").without_waiting().start();
    second.logs(&["ERROR", "no client is served", "wardens:"]);
    first.thaw();
    assert_eq!(marked(&redis), "$3 lw:");
}

#[test]
fn proxies_of_other_rules_before_one_redis_are_told() {
    let redis = Redis::start();
    let [one, same] = [0, 1].map(|_| Proxy::enforcing(&redis));
    one.client().sends("SET lock:job a1 NX PX 90000").gets("+OK");
    wait_for("both to have entered themselves", || {
        redis.client().sends("ZCARD lw:{}:lockwarden-proxies").integer() == 2
    });
    let end = Proxy::builder(&redis).check_backend();
    assert!(end.stdout.contains("proxies that serve this Redis: 2 (version "), "{end:?}");
    assert!(!end.stdout.contains("not alike"), "{end:?}");
    let other = Proxy::builder(&redis).ceiling("77s").start();
    for proxy in [&one, &same, &other] {
        proxy.logs(&["WARN", "another proxy in front of this Redis has another version or other rules"]);
    }
    other.counts("lockwarden_proxies_unlike", 2.0);
    one.counts("lockwarden_proxies_unlike", 1.0);
    let said = one.logged(&["another proxy in front of this Redis"]);
    assert_eq!(said, 1, "{}", one.log());
    let end = Proxy::builder(&redis).check_backend();
    assert!(end.stdout.contains("the proxies that serve this Redis are not alike: version "), "{end:?}");
    assert_eq!(end.code, Some(1), "{end:?}");
    // Another version is told likewise, and a later one may write records that are not ours to judge.
    let note = "0011223344556677 9.9.9 2 cafe and more";
    redis.client().sends_arguments(&["ZADD", "lw:{}:lockwarden-proxies", "9999999999999", note]).gets(":1");
    one.logs(&["WARN", "another proxy in front of this Redis", "9.9.9", "cafe"]);
}

/// An application's FLUSHALL takes the mark, too. The database stays empty until there is something to mark.
#[test]
fn the_mark_comes_back_with_the_next_lock_after_a_flush() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).setting("ttl-ceiling", "default", "\"9s\"").start();
    let client = proxy.client();
    client.sends("SELECT 3").gets("+OK");
    client.sends("FLUSHALL").gets("+OK");
    client.sends("SETNX lock:job a1").gets(":1");
    assert_eq!(marked(&redis), "$3 lw:");
}

#[test]
fn no_client_sees_or_touches_the_mark() {
    for prefix in ["lw:", "wardens:"] {
        let redis = Redis::start();
        let proxy = with_prefix(&redis, prefix).namespace("keys", "[\"*\"]").start();
        let client = proxy.client();
        redis.client().sends(format!("SET {MARK} {prefix}")).gets("+OK");
        for line in ["DEL", "GET", "TYPE", "PERSIST"] {
            client.sends(format!("{line} {MARK}")).gets_error("LOCKDENIED opaque-write");
        }
        client.sends(format!("SET {MARK} x")).gets_error("LOCKDENIED opaque-write");
        for listing in ["KEYS *", "KEYS lw:*"] {
            client.sends(listing).gets("[]");
        }
        client.sends("SCAN 0 COUNT 1000").gets("[$1 0, []]");
        client.sends("RANDOMKEY").gets("nil");
        assert_ne!(marked(&redis), "nil");
    }
}

/// A user that may not write it is reported once, and is served: no client is worse off than before.
#[test]
fn a_user_that_may_not_write_the_mark_is_served() {
    let redis = Redis::start();
    redis.client().sends("ACL SETUSER locks on >secret ~lock:* ~lw:{*}:lock:* &* +@all").gets("+OK");
    let backend = format!("redis://locks:secret@{}", redis.address());
    let proxy = ProxyBuilder::for_backend(&backend).start();
    let client = proxy.client();
    client.sends("SET lock:job a1 NX PX 9000").gets("+OK");
    proxy.logs(&["WARN", MARK, "NOPERM"]);
    assert_eq!(proxy.logged(&["WARN", MARK]), 1, "{}", proxy.log());
}

/// A reload that is told to lose the records takes the mark along, and all others stop.
#[test]
fn a_reload_that_means_it_changes_the_prefix() {
    let redis = Redis::start();
    let builders = [0, 1].map(|_| with_prefix(&redis, "lw:"));
    let text = with_prefix(&redis, "wardens:").text();
    let [one, two] = builders.map(ProxyBuilder::start);
    one.client().sends("SET lock:job a1 NX PX 9000").gets("+OK");
    wait_for("the mark to be there", || marked(&redis) == "$3 lw:");
    let (status, answer) = one.reloads(text.as_bytes(), "/reload");
    assert_eq!(status, 422, "{answer}");
    assert!(answer.contains("every other proxy would have to change"), "{answer}");
    let (status, answer) = one.reloads(text.as_bytes(), "/reload?allow=weaker");
    assert_eq!(status, 200, "{answer}");
    becomes(&two, 503);
    assert_eq!(one.ready(), Some(200));
    assert_eq!(marked(&redis), "$8 wardens:");
    let (status, answer) = two.reloads(text.as_bytes(), "/reload?allow=weaker");
    assert_eq!(status, 200, "{answer}");
    becomes(&two, 200);
}

/// One write of the mark stopped every proxy on that Redis: these keys are no data of an application's, so they are refused where
/// locks are only watched, too.
#[test]
fn where_all_is_only_watched_no_key_of_the_proxys_own_about_all_locks_is_written() {
    let redis = Redis::start();
    let proxy = Proxy::monitoring(&redis);
    let (client, straight) = (proxy.client(), redis.client());
    client.sends("SET lock:job a1 NX PX 60000").gets("+OK");
    wait_for("the mark to be there", || marked(&redis) == "$3 lw:");
    let dump = straight.sends("DUMP lock:job").reply().to_string();
    straight.sends("SET plain x").gets("+OK");
    for name in [
        MARK,
        "lw:{}:lockwarden-era",
        "lw:{}:lockwarden-kept",
        "lw:{}:lockwarden-proxies",
        "lw:{}:lockwarden-surplus:da39a3ee5e6b4b0d3255bfef95601890afd80709",
    ] {
        let before = straight.sends(format!("DUMP {name}")).reply().to_string();
        for line in [
            format!("SET {name} x"),
            format!("DEL {name}"),
            format!("DEL lock:no lw:{{x}}:lock:no {name}"),
            format!("UNLINK plain {name}"),
            format!("COPY plain {name} REPLACE"),
            format!("RENAME plain {name}"),
            format!("RESTORE {name} 0 x REPLACE"),
            format!("PEXPIRE {name} 1"),
            format!("ZADD {name} 1 x"),
        ] {
            client.sends(&line).gets_error("LOCKDENIED opaque-write");
        }
        for (text, keys, arguments) in [
            ("redis.call('del', KEYS[1])", vec![name], vec![]),
            ("redis.call('set', ARGV[1], 'x')", vec![], vec![name]),
            ("redis.call('set', redis.call('echo', ARGV[1]), 'x')", vec![], vec![name]),
            ("redis.call('set', 'lw:{}:lockwarden-prefix', 'x')", vec![], vec![]),
            ("redis.call('set', ARGV[1], 'x')", vec!["lock:job"], vec![name]),
        ] {
            let said = client.eval(text, &keys, &arguments);
            assert!(said.starts_with("-LOCKDENIED "), "{name}: {text}: {said}");
        }
        client.sends("MULTI").gets("+OK");
        client.sends(format!("SET {name} x")).gets_error("LOCKDENIED opaque-write");
        client.sends("EXEC").gets_error("EXECABORT");
        let after = straight.sends(format!("DUMP {name}")).reply().to_string();
        assert_eq!(after, before, "{name}");
    }
    // A script that deletes all that it finds finds none of them.
    let text = "local found = redis.call('keys', ARGV[1]) for _, key in ipairs(found) do redis.call('del', key) end return #found";
    assert_eq!(client.eval(text, &[], &["lw:*"]), ":0");
    // What is read is Redis's reply, and keys that are not ours are left alone.
    client.sends(format!("GET {MARK}")).gets("$3 lw:");
    client.sends("SET lw:of-an-application x").gets("+OK");
    client.sends("SET lw:{}:own x").gets("+OK");
    let after = straight.sends("DUMP lock:job").reply().to_string();
    assert_eq!(after, dump);
    assert_eq!(proxy.ready(), Some(200));
    proxy.logs(&["refused", "lockwarden-prefix", "opaque-write"]);
}
