//! What keeps a namespace from being ready to be enforced, and what does not: libraries in their own words, threads that share a
//! connection, scripts that are about no lock.

use lockwarden_tests::{Client, Mode, Proxy, ProxyBuilder, Redis};
use serde_json::Value;

/// Redisson 4.7's own texts, whose digests are those that its clients send.
const REDISSON_LOCK: &str = "if ((redis.call('exists', KEYS[1]) == 0) or (redis.call('hexists', KEYS[1], ARGV[2]) == 1)) then redis.call('hincrby', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end; return redis.call('pttl', KEYS[1]);";
const REDISSON_UNLOCK: &str = "local val = redis.call('get', KEYS[3]); if val ~= false then return tonumber(val);end; if (redis.call('hexists', KEYS[1], ARGV[3]) == 0) then return nil;end; local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1); if (counter > 0) then redis.call('pexpire', KEYS[1], ARGV[2]); redis.call('set', KEYS[3], 0, 'px', ARGV[5]); return 0; else redis.call('del', KEYS[1]); redis.call(ARGV[4], KEYS[2], ARGV[1]); redis.call('set', KEYS[3], 1, 'px', ARGV[5]); return 1; end; ";

const COMPARE_AND_DELETE: &str = "local token = redis.call('get', KEYS[1]) if not token or token ~= ARGV[1] then return 0 end redis.call('del', KEYS[1]) return 1";
const REDLOCK_TAKE: &str = "for i, key in ipairs(KEYS) do if redis.call(\"exists\", key) == 1 then return 0 end end \
    for i, key in ipairs(KEYS) do redis.call(\"set\", key, ARGV[1], \"PX\", ARGV[2]) end return #KEYS";
const REDLOCK_RELEASE: &str = "local count = 0 for i, key in ipairs(KEYS) do if redis.call(\"get\", key) == ARGV[1] then \
    redis.pcall(\"del\", key) count = count + 1 end end return count";
const REDSYNC_RELEASE: &str = "local val = redis.call(\"GET\", KEYS[1]) if val == ARGV[1] then return redis.call(\"DEL\", KEYS[1]) \
    elseif val == false then return -1 else return 0 end";
const SPRING_OBTAIN: &str = "local lockClientId = redis.call('GET', KEYS[1]) if lockClientId == ARGV[1] then \
    redis.call('PEXPIRE', KEYS[1], ARGV[2]) return true elseif not lockClientId then \
    redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return true end return false";
const SPRING_RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('UNLINK', KEYS[1]) \
    redis.call('PUBLISH', ARGV[2], KEYS[1]) return true end return false";

/// A library: how it takes a lock with a value, the reply when it has the lock, and how it gives the lock
/// back.
struct Library {
    name: &'static str,
    take: fn(&Client, &str, &str) -> bool,
    release: fn(&Client, &str, &str) -> bool,
}

fn set_nx(client: &Client, lock: &str, value: &str) -> bool {
    let set = client.sends(format!("SET {lock} {value} NX PX 5000"));
    set.reply().to_string() == "+OK"
}

const LIBRARIES: [Library; 6] = [
    Library {
        name: "redis-py",
        take: set_nx,
        release: |client, lock, value| client.eval(COMPARE_AND_DELETE, &[lock], &[value]) == ":1",
    },
    Library {
        name: "node-redlock",
        take: |client, lock, value| client.eval(REDLOCK_TAKE, &[lock], &[value, "5000"]) == ":1",
        release: |client, lock, value| client.eval(REDLOCK_RELEASE, &[lock], &[value]) == ":1",
    },
    Library {
        name: "redsync",
        take: set_nx,
        release: |client, lock, value| client.eval(REDSYNC_RELEASE, &[lock], &[value]) == ":1",
    },
    Library {
        name: "spring",
        take: |client, lock, value| client.eval(SPRING_OBTAIN, &[lock], &[value, "5000"]) == ":1",
        release: |client, lock, value| client.eval(SPRING_RELEASE, &[lock], &[value, "unlocked"]) == ":1",
    },
    Library {
        name: "laravel",
        take: set_nx,
        release: |client, lock, value| {
            let text =
                "if redis.call(\"get\",KEYS[1]) == ARGV[1] then return redis.call(\"del\",KEYS[1]) else return 0 end";
            client.eval(text, &[lock], &[value]) == ":1"
        },
    },
    Library {
        name: "redisson",
        take: |client, lock, value| client.eval(REDISSON_LOCK, &[lock], &["5000", value]) == "nil",
        release: |client, lock, value| redisson_unlocks(client, lock, value) == ":1",
    },
];

fn redisson_unlocks(client: &Client, lock: &str, value: &str) -> String {
    let channel = format!("redisson_lock__channel:{{{lock}}}");
    let latch = format!("redisson_unlock_latch:{{{lock}}}:{value}");
    let keys = [lock, &channel, &latch];
    let said = client.eval(REDISSON_UNLOCK, &keys, &["0", "5000", value, "PUBLISH", "1000"]);
    client.sends(format!("DEL {latch}")).reply();
    said
}

fn value_of(thread: u32) -> String {
    format!("0f8fad5b-d9cb-469f-a165-708677289{thread:03}:{thread}")
}

fn named(client: Client, name: &str) -> Client {
    client.sends(format!("CLIENT SETNAME {name}")).gets("+OK");
    client
}

/// The report, to which ten calls are enough.
fn reported(proxy: &Proxy) -> Value {
    proxy.api("report?enough=10")
}

#[track_caller]
fn of<'a>(report: &'a Value, list: &str, key: &str, name: &str) -> &'a Value {
    let all = report[list].as_array().expect("a list");
    let found = all.iter().find(|one| one[key] == name);
    found.unwrap_or_else(|| panic!("{list} has no {name}: {report}"))
}

/// What was found about an application, by namespace.
fn found(report: &Value, application: &str) -> Vec<(String, String)> {
    let usages = of(report, "applications", "application", application)["namespaces"].clone();
    let usages = usages.as_array().cloned().unwrap_or_default();
    let findings = |usage: &Value| {
        let findings = usage["findings"].as_array().cloned().unwrap_or_default();
        let namespace = usage["namespace"].as_str().unwrap_or_default().to_owned();
        let what = |found: &Value| found["what"].as_str().unwrap_or_default().to_owned();
        findings.iter().map(|found| (namespace.clone(), what(found))).collect::<Vec<_>>()
    };
    usages.iter().flat_map(findings).collect()
}

fn has(report: &Value, application: &str, namespace: &str, what: &str) -> bool {
    found(report, application).contains(&(namespace.to_owned(), what.to_owned()))
}

fn watching(redis: &Redis) -> ProxyBuilder {
    Proxy::builder(redis).mode(Mode::Monitor).default_ttl("5s")
}

/// Two threads on one connection, and one on another, contend; each gives back the locks that it got.
#[test]
fn libraries_become_ready_though_their_threads_share_connections() {
    let redis = Redis::start();
    let proxy = watching(&redis).start();
    for (number, library) in (0..).zip(LIBRARIES) {
        let Library { name, take, release } = library;
        let (shared, other) = (named(proxy.client(), name), named(proxy.client(), name));
        let lock = &format!("lock:{name}");
        for turn in 0..5 {
            let [first, second, third] = [0, 1, 2].map(|thread| value_of(100 * number + 3 * turn + thread));
            assert!(take(&shared, lock, &first), "{name}");
            assert!(!take(&shared, lock, &second), "{name}: held by the other thread");
            assert!(!take(&other, lock, &third), "{name}");
            assert!(release(&other, lock, &first), "{name}: over any connection");
            assert!(take(&other, lock, &third), "{name}");
            assert!(release(&other, lock, &third), "{name}");
        }
    }
    let report = reported(&proxy);
    for Library { name, .. } in LIBRARIES {
        assert!(has(&report, name, "locks", "shared-session"), "{name}");
        assert!(!has(&report, name, "locks", "unjudged"), "{name}");
        let application = of(&report, "applications", "application", name);
        assert_eq!(application["ready"], true, "{application}");
    }
    let namespace = of(&report, "namespaces", "namespace", "locks");
    assert_eq!(namespace["ready"], true, "{namespace}");
}

/// Where a lock is granted once more to its holder's connection, threads on it are in doubt.
#[test]
fn a_shared_connection_is_in_the_way_where_it_would_change_an_answer() {
    let redis = Redis::start();
    let proxy = watching(&redis).namespace("on_repeat", "\"grant\"").start();
    let shared = named(proxy.client(), "threads");
    for turn in 0..10 {
        shared.sends(format!("SET lock:a {} NX PX 5000", value_of(turn))).gets("+OK");
        shared.sends(format!("SET lock:a {} NX PX 5000", value_of(turn + 20))).gets("nil");
        shared.sends("DEL lock:a").gets(":1");
    }
    let report = reported(&proxy);
    for (list, key, name) in [("namespaces", "namespace", "locks"), ("applications", "application", "threads")] {
        let one = of(&report, list, key, name);
        let verdict = one["verdict"].as_str().expect("words");
        assert_eq!(one["ready"], false, "{verdict}");
        assert!(verdict.contains("shared-session"), "{verdict}");
    }
}

#[test]
fn a_script_that_is_about_no_lock_keeps_no_namespace_from_being_ready() {
    let redis = Redis::start();
    let proxy =
        watching(&redis).more("[[namespace]]\nname = \"other\"\nkeys = [\"other:*\"]\nmode = \"monitor\"\n").start();
    let (app, worker) = (named(proxy.client(), "app"), named(proxy.client(), "worker"));
    for turn in 0..10 {
        assert!(set_nx(&app, "lock:a", &value_of(turn)));
        app.sends("DEL lock:a").gets(":1");
        // The name of the key that it writes is what another one holds.
        worker.sends("SET which plain").gets("+OK");
        assert_eq!(
            worker.eval("return redis.call('incr', redis.call('get', KEYS[1]))", &["which"], &[]),
            format!(":{}", turn + 1)
        );
    }
    let report = reported(&proxy);
    let first = of(&report, "namespaces", "namespace", "locks");
    assert_eq!(first["ready"], true, "{first}");
    // The guard has looked on, and the script has touched no lock.
    let all = report["applications"].as_array().expect("a list");
    let worker = all.iter().find(|one| one["application"] == "worker");
    assert!(worker.is_none_or(|one| one["ready"] == true), "{worker:?}");
    // It is no lock that is shown.
    assert_eq!(proxy.api("patterns")["patterns"].as_array().map(Vec::len), Some(1));
}

#[test]
fn what_the_operator_lets_through_in_any_mode_is_told_and_in_nobodys_way() {
    let redis = Redis::start();
    let proxy = watching(&redis).namespace("opaque_scripts", "\"forward\"").start();
    let app = named(proxy.client(), "app");
    for _ in 0..10 {
        app.eval("redis.call('incr', KEYS[2]) redis.call('set', KEYS[1], 1, 'PX', 500)", &["lock:a", "count"], &[]);
        app.eval("redis.call('incr', KEYS[2]) redis.call('del', KEYS[1])", &["lock:a", "count"], &[]);
    }
    let report = reported(&proxy);
    assert!(has(&report, "app", "locks", "let-through"), "{report}");
    assert_eq!(of(&report, "applications", "application", "app")["ready"], true);
}

/// The name of its publish command comes as an argument; the call shows that it writes no key.
#[test]
fn redissons_release_is_judged_in_both_modes() {
    let redis = Redis::start();
    for mode in [Mode::Monitor, Mode::Enforce] {
        redis.client().sends("FLUSHALL").gets("+OK");
        let proxy = Proxy::builder(&redis).mode(mode).default_ttl("5s").start();
        let (alice, bob) = (proxy.client(), proxy.client());
        let (hers, his) = (value_of(1), value_of(2));
        assert_eq!(alice.eval(REDISSON_LOCK, &["lock:r"], &["5000", &hers]), "nil");
        assert_eq!(redisson_unlocks(&bob, "lock:r", &his), "nil", "the text says so itself");
        assert_eq!(redisson_unlocks(&alice, "lock:r", &hers), ":1");
        let released = "lockwarden_lock_releases_total{outcome=\"released\"}";
        proxy.counts(released, 1.0);
        let metrics = proxy.metrics();
        assert_eq!(metrics.find("lockwarden_unjudged_commands_total").unwrap_or(0.0), 0.0);
        // Where the argument names a command that writes, only the run shows which key: the guard only
        // watches.
        assert_eq!(alice.eval(REDISSON_LOCK, &["lock:r"], &["5000", &hers]), "nil");
        let keys = ["lock:r", "lock:other", "latch"];
        let said = alice.eval(REDISSON_UNLOCK, &keys, &["0", "5000", &hers, "SETRANGE", "1000"]);
        let unjudged = proxy.metrics().find("lockwarden_unjudged_commands_total{why=\"computed-names\"}");
        assert_eq!(unjudged.unwrap_or(0.0), 0.0, "{mode:?}: {said}");
    }
}
