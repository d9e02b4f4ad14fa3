//! What `/api/v1` returns: which client holds a lock and which ones wait, what happened to it, what enforce
//! mode would break. Types and meaning: docs/api.md.

use std::time::{Duration, Instant};

use lockwarden_tests::{Client, Mode, Proxy, Redis, wait_for, wait_for_value};
use serde_json::{Value, json};

/// A lock that is a hash: no recipe, so it is wrapped.
const ENTER: &str = "if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[1]) == 1 then \
    redis.call('hincrby', KEYS[1], ARGV[1], 1) redis.call('pexpire', KEYS[1], ARGV[2]) return 'in' end return 'out'";

/// Waits until this part of an answer has this value; returns the answer.
#[track_caller]
fn comes_to(proxy: &Proxy, path: &str, pointer: &str, expected: &Value) -> Value {
    let mut last = Value::Null;
    let what = format!("{pointer} of {path} to be {expected}");
    wait_for_value(&what, || {
        last = proxy.api(path);
        (last.pointer(pointer) == Some(expected)).then(|| last.clone())
    })
}

fn named(proxy: &Proxy, name: &str) -> Client {
    let client = proxy.client();
    client.sends(format!("CLIENT SETNAME {name}")).gets("+OK");
    client
}

fn events(lock: &Value) -> Vec<&str> {
    let timeline = lock["timeline"].as_array().expect("a list");
    timeline.iter().map(|moment| moment["event"].as_str().expect("a word")).collect()
}

/// The application with this name, in a list of them.
fn application<'a>(list: &'a Value, name: &str) -> &'a Value {
    let all = list.as_array().expect("a list");
    let found = all.iter().find(|one| one["application"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {list}"))
}

/// The finding or refusal with this word of an application in its only namespace.
fn misuse<'a>(application: &'a Value, list: &str, what: &str) -> Option<&'a Value> {
    let misuses = application["namespaces"][0][list].as_array()?;
    misuses.iter().find(|misuse| misuse["what"] == what)
}

#[test]
fn a_lock_is_shown_with_its_holder_its_waiters_and_its_story() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (billing, stock) = (named(&proxy, "billing-1"), named(&proxy, "stock-2"));
    billing.sends("SET lock:order:42 b1 NX PX 9000").gets("+OK");
    stock.sends("SET lock:order:42 s1 NX PX 9000").gets("nil");
    stock.sends("SET lock:order:42 s1 NX PX 9000").gets("nil");
    stock.sends("DEL lock:order:42").gets(":0");

    let list = comes_to(&proxy, "locks", "/locks/0/waiters", &json!(1));
    let lock = &list["locks"][0];
    assert_eq!(list["matching"], 1);
    assert_eq!(lock["key"], "lock:order:42");
    assert_eq!(lock["state"], "held");
    assert_eq!(lock["holder"]["application"], "billing-1");
    assert_eq!(lock["fence"], redis.fence("lock:order:42"));
    assert_eq!(lock["ttl_ms"], 9_000);
    assert_eq!(lock["seen"], "acquire");
    proxy.counts("lockwarden_lock_waiters{namespace=\"locks\"}", 1.0);

    let shown = comes_to(&proxy, "locks/lock:order:42", "/timeline/3/event", &json!("refused"));
    let story = ["acquired", "contended", "observed", "refused"];
    assert_eq!(events(&shown), story);
    assert_eq!(shown["timeline"][2]["kind"], "refused-then-released");
    assert_eq!(shown["waiters"][0]["client"]["name"], "stock-2");
    assert_eq!(shown["waiters"][0]["tries"], 2);
    let id = shown["timeline"][3]["id"].as_str().expect("an id").to_owned();
    let decision = proxy.api(&format!("decisions?id={id}"));
    assert_eq!(decision[0]["reason"], "not-owner");
    assert_eq!(decision[0]["client"]["name"], "stock-2");

    billing.sends("DEL lock:order:42").gets(":1");
    stock.sends("SET lock:order:42 s1 NX PX 9000").gets("+OK");
    comes_to(&proxy, "locks", "/locks/0/holder/name", &json!("stock-2"));
    proxy.counts("lockwarden_lock_wait_duration_seconds_count", 1.0);
    proxy.counts("lockwarden_lock_remaining_ttl_ratio_count", 1.0);
    proxy.counts("lockwarden_lock_waiters", 0.0);
    for (query, matching) in [
        ("namespace=locks", 1),
        ("namespace=others", 0),
        ("contains=order", 1),
        ("contains=stock", 0),
        ("problems=true", 0),
    ] {
        let found = proxy.api(&format!("locks?{query}"));
        assert_eq!(found["matching"], matching, "{query}");
    }
    assert_eq!(proxy.get("/api/v1/locks/lock:other").0, 404);
}

#[test]
fn work_that_outlives_its_ttl_is_told_in_words() {
    let redis = Redis::start();
    for mode in [Mode::Enforce, Mode::Monitor] {
        redis.client().sends("FLUSHALL").gets("+OK");
        let proxy = Proxy::builder(&redis).mode(mode).start();
        let (slow, next) = (named(&proxy, "billing-3"), named(&proxy, "billing-7"));
        slow.sends("SET lock:a slow-1 NX PX 400").gets("+OK");
        redis.becomes_free("lock:a");
        next.sends("SET lock:a next-1 NX PX 60000").gets("+OK");
        slow.sends("DEL lock:a").gets(match mode {
            Mode::Enforce => ":0",
            Mode::Monitor => ":1",
        });
        let list = comes_to(&proxy, "overview", "/totals/overlaps_last_day", &json!(1));
        assert_eq!(list["unseen"], 0);
        let shown = proxy.api("locks/lock:a");
        let remark = shown["remarks"][0].as_str().expect("a remark");
        assert!(remark.starts_with("billing-3's work took ") && remark.contains("its TTL was 400 ms"), "{remark}");
        if let Mode::Enforce = mode {
            assert_eq!(shown["lock"]["state"], "overlap");
            assert_eq!(shown["lock"]["holder"]["name"], "billing-7");
        } else {
            assert_eq!(shown["lock"], Value::Null, "it was deleted, as Redis does");
        }
        let report = proxy.api("report");
        let application = application(&report["applications"], "billing-3");
        assert!(misuse(application, "refusals", "expired").is_some(), "{application}");
        assert!(misuse(application, "findings", "ran-out").is_some(), "{application}");
        assert_eq!(report["namespaces"][0]["ready"], false);
    }
}

#[test]
fn clients_that_wait_for_each_other_are_shown_as_long_as_they_do() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (one, other) = (named(&proxy, "one"), named(&proxy, "other"));
    one.sends("SET lock:a one-1 NX PX 60000").gets("+OK");
    other.sends("SET lock:b other-1 NX PX 60000").gets("+OK");
    let mut circle = Value::Null;
    wait_for("the circle", || {
        one.sends("SET lock:b one-2 NX PX 60000").gets("nil");
        other.sends("SET lock:a other-2 NX PX 60000").gets("nil");
        circle = proxy.api("hot")["cycles"][0].clone();
        circle != Value::Null
    });
    let members: Vec<[&str; 3]> = circle["members"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|member| {
            [&member["client"]["name"], &member["holds"], &member["waits_for"]]
                .map(|text| text.as_str().expect("a word"))
        })
        .collect();
    assert_eq!(members, [["one", "lock:a", "lock:b"], ["other", "lock:b", "lock:a"]]);
    assert_eq!(proxy.api("locks?problems=true")["matching"], 2);
    assert_eq!(proxy.api("locks/lock:a")["lock"]["state"], "deadlock");
    other.sends("DEL lock:b").gets(":1");
    comes_to(&proxy, "hot", "/cycles", &json!([]));
    let hottest = proxy.api("hot");
    assert_eq!(hottest["locks"].as_array().map(Vec::len), Some(2));
    assert!(hottest["locks"][0]["contended"].as_u64() >= Some(2));
}

#[test]
fn what_enforce_mode_would_break_is_told_by_application() {
    let redis = Redis::start();
    let proxy = Proxy::monitoring(&redis);
    let (good, bad) = (named(&proxy, "good"), named(&proxy, "bad"));
    // Redis 7.0 does not know it; the name that a client gives itself is shown all the same.
    for client in [&good, &bad] {
        client.sends("CLIENT SETINFO LIB-NAME jedis").reply();
        client.sends("CLIENT SETINFO LIB-VER 2.9").reply();
    }
    for _ in 0..3 {
        good.sends("SET lock:a good-1 NX PX 60000").gets("+OK");
        bad.sends("DEL lock:a").gets(":1");
    }
    let report = comes_to(&proxy, "report", "/namespaces/0/would_refuse", &json!(3));
    let namespace = &report["namespaces"][0];
    assert_eq!(namespace["ready"], false);
    let verdict = namespace["verdict"].as_str().expect("words");
    assert!(verdict.starts_with("would refuse 3 of 6 calls (50.0 %): 3 not-owner (most by bad)"), "{verdict}");
    let clients = proxy.api("clients");
    assert_eq!(clients[0]["application"], "bad", "worst first");
    let (good, bad) = (application(&clients, "good"), application(&clients, "bad"));
    assert_eq!(good["ready"], true, "{good}");
    assert_eq!(good["libraries"], json!(["jedis 2.9"]));
    assert_eq!(good["connections"], 1);
    let refusal = misuse(bad, "refusals", "not-owner").expect("it was found");
    assert_eq!(refusal["count"], 3);
    assert_eq!(refusal["example"]["key"], "lock:a");
    assert_eq!(refusal["example"]["client"]["library"], "jedis 2.9");
}

#[test]
fn a_script_that_is_refused_waits_like_any_other() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (holder, waiter) = (named(&proxy, "holder"), named(&proxy, "waiter"));
    let enter = |client: &Client, who: &str| {
        let words = ["EVAL", ENTER, "1", "lock:hash", who, "60000"];
        client.sends_arguments(&words).text()
    };
    assert_eq!(enter(&holder, "holder:1"), "in");
    assert_eq!(enter(&waiter, "waiter:1"), "out");
    assert_eq!(enter(&waiter, "waiter:1"), "out");
    let list = comes_to(&proxy, "locks", "/locks/0/waiters", &json!(1));
    assert_eq!(list["locks"][0]["holder"]["name"], "holder");
}

#[test]
fn a_lease_that_changed_around_all_proxies_is_counted_and_no_other() {
    const BYPASS: &str = "lockwarden_lock_bypass_total";
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).top("sweep", "\"off\"").start();
    let second = Proxy::builder(&redis).top("sweep", "\"off\"").start();
    let (around, alice) = (redis.client(), named(&proxy, "alice"));
    let value = "alices-own-value-1";

    alice.sends(format!("SET lock:e {value} NX PX 60000")).gets("+OK");

    // Given back through the other proxy, erased through this one, run out: a proxy has seen it.
    alice.sends(format!("SET lock:a {value} NX PX 60000")).gets("+OK");
    let delete = "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) end return 0";
    let words = ["EVAL", delete, "1", "lock:a", value];
    second.client().sends_arguments(&words).gets(":1");
    alice.sends("DEL lock:a").gets(":0");
    // A lease that was seen to be over is not shown as held.
    comes_to(&proxy, "locks", "/matching", &json!(1));
    alice.sends("SET lock:short x NX PX 300").gets("+OK");
    redis.becomes_free("lock:short");
    alice.sends("DEL lock:short").gets(":0");
    comes_to(&proxy, "locks/lock:short", "/timeline/3/event", &json!("absent"));
    assert_eq!(proxy.metric(BYPASS), 0.0);

    // Deleted around them: that is no lease that ran out, and is counted once.
    let expired = "lockwarden_lock_expired_while_held_total{namespace=\"locks\"}";
    let ran_out = proxy.metric(expired);
    let reported = || proxy.api("report")["namespaces"][0]["ran_out"].clone();
    let reported_before = reported();
    alice.sends(format!("SET lock:b {value} NX PX 60000")).gets("+OK");
    around.sends("DEL lock:b").gets(":1");
    alice.sends("DEL lock:b").gets(":0");
    proxy.counts(BYPASS, 1.0);
    assert_eq!(proxy.metric(expired), ran_out);
    alice.sends(format!("SET lock:x {value} NX PX 60000")).gets("+OK");
    around.sends("DEL lock:x").gets(":1");
    alice.sends("PEXPIRE lock:x 60000").gets(":0");
    alice.sends("DEL lock:x").gets(":0");
    proxy.counts(BYPASS, 2.0);
    assert_eq!(proxy.metric(expired), ran_out);
    assert_eq!(reported(), reported_before);
    let shown = proxy.api("locks/lock:b");
    assert_eq!(shown["lock"], Value::Null);
    let remark = shown["remarks"][0].as_str().expect("a remark");
    assert!(remark.contains("around the proxy"), "{remark}");

    // Written over around them.
    alice.sends(format!("SET lock:c {value} NX PX 60000")).gets("+OK");
    around.sends("SET lock:c somebody").gets("+OK");
    alice.sends("DEL lock:c").gets(":1");
    proxy.counts(BYPASS, 3.0);
    assert_eq!(second.metric(BYPASS), 0.0);

    // Deleted around them, and taken by a client that came through the proxy: that is no lease that ran out.
    let bob = named(&proxy, "bob");
    alice.sends(format!("SET lock:d {value} NX PX 60000")).gets("+OK");
    around.sends("DEL lock:d").gets(":1");
    bob.sends("SET lock:d bobs-own-value-22 NX PX 60000").gets("+OK");
    proxy.counts(BYPASS, 4.0);
    let shown = comes_to(&proxy, "locks/lock:d", "/lock/holder/name", &json!("bob"));
    assert!(shown["remarks"].to_string().contains("around the proxy"));
    assert_eq!((proxy.metric(expired), reported()), (ran_out, reported_before));
    // One of another proxy, of which this one knows nothing, is no bypass either.
    let words = ["EVAL", delete, "1", "lock:e", value];
    second.client().sends_arguments(&words).gets(":1");
    let brief = "SET lock:e another-value-333 NX PX 50";
    second.client().sends(brief).gets("+OK");
    redis.becomes_free("lock:e");
    bob.sends("SET lock:e bobs-own-value-22 NX PX 60000").gets("+OK");
    proxy.counts(expired, ran_out + 1.0);
    assert_eq!(proxy.metric(BYPASS), 4.0);
}

#[test]
fn the_line_of_a_refused_release_says_how_long_the_lock_was_held() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (alice, bob) = (named(&proxy, "alice"), named(&proxy, "bob"));
    alice.sends("SET lock:a a-1 NX PX 60000").gets("+OK");
    bob.sends("DEL lock:a").gets(":0");
    let line = wait_for_value("the line", || {
        let log = proxy.log();
        let mut lines = log.lines();
        let line = lines.find(|line| line.contains("\"message\":\"refused\""))?;
        serde_json::from_str::<Value>(line).ok()
    });
    assert!(line["held_ms"].is_u64(), "{line}");
    let pointer = "/timeline/1/held_ms";
    comes_to(&proxy, "locks/lock:a", pointer, &line["held_ms"]);
    // One that needed no look at Redis knows no time, and says none.
    alice.sends("SETRANGE lock:a 0 x").reply();
    proxy.logs(&["\"cmd\":\"SETRANGE\"", "opaque-write"]);
    assert_eq!(proxy.logged(&["\"cmd\":\"SETRANGE\"", "held_ms"]), 0);
}

/// Whichever meets it first: its holder's extension, or the search for lapsed leases.
#[test]
fn a_lease_that_ran_out_counts_once_though_its_holder_extends_it_then() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (alice, bob) = (named(&proxy, "alice"), named(&proxy, "bob"));
    alice.sends("SET lock:a alices-own-value-1 NX PX 300").gets("+OK");
    redis.becomes_free("lock:a");
    alice.sends("PEXPIRE lock:a 60000").gets(":0");
    // Its end is looked at after that of the other.
    bob.sends("SET lock:b bobs-own-value-22 NX PX 300").gets("+OK");
    comes_to(&proxy, "locks/lock:b", "/timeline/2/event", &json!("ran-out"));
    assert_eq!(proxy.metric("lockwarden_lock_expired_while_held_total{namespace=\"locks\"}"), 2.0);
    alice.sends("DEL lock:a").gets(":0");
    assert_eq!(proxy.metric("lockwarden_lock_expired_while_held_total{namespace=\"locks\"}"), 2.0);
}

/// A grant that is noticed late, and a TTL that passes while nothing runs: the lease seems to go on, and has ended by
/// itself.
#[test]
fn a_freeze_of_the_proxy_or_the_server_makes_no_lease_look_changed_around_it() {
    const BYPASS: &str = "lockwarden_lock_bypass_total";
    let expired = "lockwarden_lock_expired_while_held_total{namespace=\"locks\"}";
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).top("sweep", "\"off\"").start();
    let alice = named(&proxy, "alice");
    let value = "alices-own-value-1";
    let take = |lock: &str| format!("SET {lock} {value} NX PX 2500");
    // The server has the script from here on.
    alice.sends(take("lock:z")).gets("+OK");
    alice.sends("DEL lock:z").gets(":1");
    // It grants the lock once the proxy stands still.
    redis.freeze();
    let granted = alice.sends(take("lock:a"));
    redis.acquires_wait(1);
    proxy.freeze();
    redis.thaw();
    wait_for("the grant", || !redis.is_free("lock:a"));
    redis.becomes_free("lock:a");
    proxy.thaw();
    granted.gets("+OK");
    alice.sends("DEL lock:a").gets(":0");
    proxy.counts(expired, 1.0);
    // Neither process runs while its time passes.
    alice.sends(take("lock:b")).gets("+OK");
    redis.freeze();
    proxy.freeze();
    let frozen = Instant::now();
    wait_for("the time to pass", || frozen.elapsed() > Duration::from_secs(3));
    redis.thaw();
    proxy.thaw();
    alice.sends("DEL lock:b").gets(":0");
    proxy.counts(expired, 2.0);
    let remarks = |lock: &str| proxy.api(&format!("locks/{lock}"))["remarks"].to_string();
    for lock in ["lock:a", "lock:b"] {
        assert!(!remarks(lock).contains("around the proxy"), "{}", remarks(lock));
    }
    assert_eq!(proxy.metric(BYPASS), 0.0);
    // A real change is still reported afterwards.
    alice.sends(format!("SET lock:c {value} NX PX 60000")).gets("+OK");
    redis.client().sends("DEL lock:c").gets(":1");
    alice.sends("DEL lock:c").gets(":0");
    proxy.counts(BYPASS, 1.0);
    assert_eq!(proxy.metric(expired), 2.0);
}

#[test]
fn a_walk_finds_what_was_changed_around_the_proxy_and_what_never_ends() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).top("sweep", "\"100ms\"").start();
    let around = redis.client();
    let alice = named(&proxy, "alice");
    alice.sends("SET lock:a alices-own-value-1 NX PX 600000").gets("+OK");
    around.sends("SET lock:a somebody").gets("+OK");
    around.sends("SET lock:for-ever somebody").gets("+OK");
    proxy.counts("lockwarden_lock_bypass_total", 1.0);
    let examples = json!(["lock:a", "lock:for-ever"]);
    let pointer = "/namespaces/0/without_ttl_examples";
    let report = comes_to(&proxy, "report", pointer, &examples);
    assert_eq!(report["namespaces"][0]["without_ttl"], 2);
    comes_to(&proxy, "locks", "/matching", &json!(0));
}

#[test]
fn keys_are_spelled_so_that_they_can_be_read_and_asked_for() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let client = proxy.client();
    let key = b"lock:\xff\n<b>\\".as_slice();
    let words: [&[u8]; 6] = [b"SET", key, b"v-1", b"NX", b"PX", b"60000"];
    client.sends_arguments(&words).gets("+OK");
    let list = comes_to(&proxy, "locks", "/matching", &json!(1));
    assert_eq!(list["locks"][0]["key"], r"lock:\xff\x0a<b>\\");
    let shown = comes_to(&proxy, "locks/lock:%5Cxff%5Cx0a%3Cb%3E%5C%5C", "/timeline/0/event", &json!("acquired"));
    assert_eq!(shown["key"], list["locks"][0]["key"]);
    assert_eq!(proxy.api("locks?contains=%5Cx0a")["matching"], 1);
}

#[test]
fn namespaces_policies_and_the_server_are_described() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let client = proxy.client();
    for _ in 0..3 {
        client.sends("SET lock:a v-1 NX PX 60000").gets("+OK");
        client.sends("DEL lock:a").gets(":1");
    }
    let overview = comes_to(&proxy, "overview", "/namespaces/0/holds/count", &json!(3));
    assert_eq!(overview["backend"]["up"], true);
    let version = overview["backend"]["version"].as_str().expect("it was asked");
    assert!(version.starts_with("redis ") || version.starts_with("valkey "), "{version}");
    assert_eq!(proxy.api("config"), overview["namespaces"]);
    let policies = proxy.api("policies");
    assert_eq!(policies, overview["policies"]);
    assert_eq!(policies[0]["mode"], "enforce");
    assert!(policies[0]["evaluations"].as_u64() >= Some(3), "{policies}");
}

#[test]
fn what_a_flush_erased_is_no_bypass_and_is_not_shown() {
    let redis = Redis::start();
    let proxy = Proxy::monitoring(&redis);
    let alice = named(&proxy, "alice");
    alice.sends("SET lock:a alices-own-value-1 NX PX 60000").gets("+OK");
    comes_to(&proxy, "locks", "/matching", &json!(1));
    proxy.client().sends("FLUSHALL").gets("+OK");
    comes_to(&proxy, "locks", "/matching", &json!(0));
    alice.sends("DEL lock:a").gets(":0");
    redis.client().sends("SET lock:a somebody").gets("+OK");
    alice.sends("DEL lock:a").gets(":1");
    comes_to(&proxy, "report", "/namespaces/0/ungoverned", &json!(1));
    assert_eq!(proxy.metric("lockwarden_lock_bypass_total"), 0.0);
}
