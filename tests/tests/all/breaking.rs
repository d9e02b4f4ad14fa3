//! An operator ends a lease by `POST /api/v1/locks/{key}/break`: that lease and no other, and the clients
//! that wait for the lock are woken as their library would wake them.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lockwarden_tests::{
    ADMIN_TOKEN, Client, Mode, Proxy, Redis, State, lockwarden, run_to_end, wait_for, wait_for_value,
};
use serde_json::{Value, json};

/// Sends the order, with a reason; returns the status and the result.
fn breaks(proxy: &Proxy, key: &str, fence: u64) -> (u16, Value) {
    let order = json!({ "fence": fence, "reason": "the worker hangs" });
    let (status, body) = proxy.orders(&format!("/api/v1/locks/{key}/break"), &order.to_string());
    let told = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{body}: {error}"));
    (status, told)
}

#[test]
fn a_lease_is_broken_by_its_fencing_token_and_the_next_holder_is_left_alone() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("SET lock:job a1 NX PX 9000").gets("+OK");
    let fence = redis.fence("lock:job");
    let (status, told) = breaks(&proxy, "lock:job", fence);
    assert_eq!(status, 200, "{told}");
    let id = told["done"]["id"].as_str().expect("the name of the record");
    assert!(redis.is_free("lock:job"));
    assert_eq!(redis.record("lock:job").map(|record| record.state), Some(State::Broken));
    proxy.logs(&["lease broken by an operator", id, "the worker hangs", "\"key\":\"lock:job\""]);

    bob.sends("SET lock:job b1 NX PX 9000").gets("+OK");
    let (status, told) = breaks(&proxy, "lock:job", fence);
    assert_eq!((status, told), (409, json!({ "newer": { "fence": redis.fence("lock:job") } })));
    assert_eq!(redis.value("lock:job"), "$2 b1");

    // The client whose lease was broken still gives the lock back, but has no lease.
    alice.sends("DEL lock:job").gets(":0");
    assert_eq!(redis.value("lock:job"), "$2 b1");
    bob.sends("DEL lock:job").gets(":1");
}

#[test]
fn a_broken_lease_is_told_where_people_look() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    proxy.client().sends("SET lock:job a1 NX PX 9000").gets("+OK");
    let (_, told) = breaks(&proxy, "lock:job", redis.fence("lock:job"));
    let id = told["done"]["id"].as_str().expect("the name of the record").to_owned();
    wait_for("the time line to tell of it", || {
        let (_, detail) = proxy.get("/api/v1/locks/lock:job");
        let detail: Value = serde_json::from_str(&detail).expect("JSON");
        let moments = detail["timeline"].as_array().expect("a list");
        detail["lock"].is_null()
            && moments.last().is_some_and(|moment| {
                moment["event"] == "broken" && moment["id"] == json!(id) && moment["detail"] == "the worker hangs"
            })
    });
    let (_, page) = proxy.get("/?lock=lock:job");
    assert!(page.contains("broken by an operator"), "{page}");
}

#[test]
fn the_commands_that_the_board_shows_break_the_lock_whatever_its_key() {
    const KEY: &str = "lock:it's $(exit 7)";
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let binary = lockwarden(&[]);
    let ours = Path::new(binary.get_program()).parent().expect("it is somewhere");
    let theirs = std::env::var("PATH").unwrap_or_default();
    for beginning in ["lockwarden locks break", "curl -X POST"] {
        proxy.client().sends_arguments(&["SET", KEY, "a1", "NX", "PX", "9000"]).gets("+OK");
        let line = wait_for_value("the command", || {
            let page = proxy.get("/?lock=lock:it's%20$(exit%207)").1;
            let line = page[page.find(beginning)?..].split("</code>").next()?;
            Some(line.replace("&quot;", "\"").replace("&amp;", "&"))
        });
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &line])
            .env("PATH", format!("{}:{theirs}", ours.display()))
            .env("LOCKWARDEN_ADMIN_TOKEN", ADMIN_TOKEN);
        let done = run_to_end(&mut shell);
        if done.code == Some(127) {
            eprintln!("SKIPPED: {}", done.stderr);
            return;
        }
        assert_eq!(done.code, Some(0), "{line}: {done:?}");
        redis.client().sends_arguments(&["EXISTS", KEY]).gets(":0");
    }
}

#[test]
fn a_lease_that_is_kept_alive_stays_broken() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).default_ttl("300ms").start();
    let alice = proxy.client();
    alice.sends("SETNX lock:job a1").gets(":1");
    let (status, _) = breaks(&proxy, "lock:job", redis.fence("lock:job"));
    assert_eq!(status, 200);
    lockwarden_tests::holds_for(Duration::from_millis(700), "the lock is free", || redis.is_free("lock:job"));
}

#[test]
fn what_cannot_be_broken_is_said_and_left_as_it_is() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    assert_eq!(breaks(&proxy, "lock:none", 1), (409, json!("absent")));
    redis.client().sends("SET lock:wild w1").gets("+OK");
    assert_eq!(breaks(&proxy, "lock:wild", 1), (409, json!("ungoverned")));
    redis.client().sends("HSET lock:hash f 1").gets(":1");
    assert_eq!(breaks(&proxy, "lock:hash", 1), (409, json!("ungoverned")));
    let (status, told) = breaks(&proxy, "price:7", 1);
    assert_eq!(status, 404, "{told}");
    for body in [
        "{}",
        "{\"fence\":1}",
        "{\"fence\":1,\"reason\":\" \"}",
        "{\"fence\":-1,\"reason\":\"x\"}",
        "{\"fence\":1,\"reason\":\"x\",\"force\":true}",
        "",
    ] {
        let (status, told) = proxy.orders("/api/v1/locks/lock:wild/break", body);
        assert_eq!(status, 400, "{body}: {told}");
    }
    let order = "{\"fence\":1,\"reason\":\"x\",\"db\":9999}";
    let (status, told) = proxy.orders("/api/v1/locks/lock:wild/break", order);
    assert_eq!(status, 503, "{told}");
    assert_eq!(proxy.get("/api/v1/locks/lock:wild/break").0, 405);
    assert_eq!(redis.value("lock:wild"), "$2 w1");
}

#[test]
fn a_lock_of_another_database_is_named_by_it() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (alice, other) = (proxy.client(), redis.client());
    alice.sends("SELECT 3").gets("+OK");
    other.sends("SELECT 3").gets("+OK");
    // Whatever a key has in it; the path has it spelled and percent-encoded.
    alice.sends_arguments(&[&b"SET"[..], b"lock:a/b\\\n\xff", b"a1", b"NX", b"PX", b"9000"]).gets("+OK");
    let (_, found) = proxy.get("/api/v1/locks");
    let found: Value = serde_json::from_str(&found).expect("JSON");
    let fence = &found["locks"][0]["fence"];
    let path = "/api/v1/locks/lock:a%2Fb%5C%5C%5Cx0a%5Cxff/break";
    let order = json!({ "db": 3, "fence": fence, "reason": "x" }).to_string();
    let (status, told) = proxy.orders(path, &order);
    assert_eq!(status, 200, "{told}: {found}");
    other.sends_arguments(&[&b"EXISTS"[..], b"lock:a/b\\\n\xff"]).gets(":0");
}

#[test]
fn a_lease_that_is_only_watched_can_be_broken_too() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).mode(Mode::Monitor).start();
    proxy.client().sends("SETNX lock:job a1").gets(":1");
    let (status, told) = breaks(&proxy, "lock:job", redis.fence("lock:job"));
    assert_eq!(status, 200, "{told}");
    assert!(redis.is_free("lock:job"));
}

#[test]
fn nothing_is_broken_while_the_backend_is_away() {
    let mut redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    proxy.client().sends("SET lock:job a1 NX PX 9000").gets("+OK");
    let fence = redis.fence("lock:job");
    redis.stop();
    wait_for("the proxy to notice", || proxy.ready() == Some(503));
    let (status, told) = breaks(&proxy, "lock:job", fence);
    assert_eq!(status, 503, "{told}");
}

const REDISSON: &str = "if redis.call('exists', KEYS[1]) == 0 then redis.call('hincrby', KEYS[1], ARGV[2], 1); \
    redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end; return redis.call('pttl', KEYS[1]);";

/// A subscriber straight to Redis.
fn subscribed(redis: &Redis, command: &str, channel: &str) -> Client {
    let client = redis.client();
    let kind = command.to_ascii_lowercase();
    client.sends(format!("{command} {channel}")).gets(format!(
        "[${} {kind}, ${} {channel}, :1]",
        kind.len(),
        channel.len()
    ));
    client
}

#[test]
fn those_who_wait_by_redisson_are_woken() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let owner = "0f8fad5b-d9cb-469f-a165-70867728950e:1";
    let waiter = subscribed(&redis, "SUBSCRIBE", "redisson_lock__channel:{lock:r}");
    let fair = "7c9e6679-7425-40de-944b-e07fc1f90ae7:4";
    let channel = format!("redisson_lock__channel:{{lock:r}}:{fair}");
    let fair_waiter = subscribed(&redis, "SUBSCRIBE", &channel);
    redis.client().sends(format!("RPUSH redisson_lock_queue:{{lock:r}} {fair}")).gets(":1");
    let alice = proxy.client();
    alice.sends_arguments(&["EVAL", REDISSON, "1", "lock:r", "9000", owner]).gets("nil");
    let (status, told) = breaks(&proxy, "lock:r", redis.fence("lock:r"));
    assert_eq!(status, 200, "{told}");
    waiter.then().gets("[$7 message, $31 redisson_lock__channel:{lock:r}, $1 0]");
    let length = channel.len();
    fair_waiter.then().gets(format!("[$7 message, ${length} {channel}, $1 0]"));
    assert!(redis.is_free("lock:r"));
}

#[test]
fn those_who_wait_by_springs_registry_are_woken() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let waiter = subscribed(&redis, "PSUBSCRIBE", "lock:spring-channel:*");
    let alice = proxy.client();
    alice.sends("SET lock:spring:a 0f8fad5b-d9cb-469f-a165-70867728950e NX PX 9000").gets("+OK");
    let (status, told) = breaks(&proxy, "lock:spring:a", redis.fence("lock:spring:a"));
    assert_eq!(status, 200, "{told}");
    waiter
        .then()
        .gets("[$8 pmessage, $21 lock:spring-channel:*, $33 lock:spring-channel:lock:spring:a, $13 lock:spring:a]");
}

#[test]
fn those_who_wait_by_python_redis_lock_are_woken() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let alice = proxy.client();
    alice.sends("SET lock:job q83vEjRWeJCrze8SNFZ4kKvN NX EX 9").gets("+OK");
    let waiter = proxy.client();
    waiter.write(&lockwarden_tests::encode(&["BLPOP", "lock-signal:job", "0"]));
    wait_for("BLPOP to wait in Redis", || redis.client().sends("INFO clients").text().contains("blocked_clients:1"));
    let (status, told) = breaks(&proxy, "lock:job", redis.fence("lock:job"));
    assert_eq!(status, 200, "{told}");
    waiter.then().gets("[$15 lock-signal:job, $1 1]");
}

#[test]
fn nothing_is_left_behind_for_locks_of_no_such_library() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    proxy.client().sends("SET lock:job plain NX PX 9000").gets("+OK");
    let (status, _) = breaks(&proxy, "lock:job", redis.fence("lock:job"));
    assert_eq!(status, 200);
    redis.client().sends("EXISTS lock-signal:job").gets(":0");
}

#[test]
fn the_late_release_of_a_broken_lease_hits_no_successor_of_the_same_pool() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let pool = [(); 3].map(|()| proxy.client_from("127.16.5.5"));
    let [one, two, three] = &pool;
    one.sends("SET lock:job a1 NX PX 9000").gets("+OK");
    assert_eq!(breaks(&proxy, "lock:job", redis.fence("lock:job")).0, 200);
    two.sends("SET lock:job a2 NX PX 9000").gets("+OK");
    // The worker of the broken lease ends, over whichever connection is free.
    three.sends("DEL lock:job").gets(":0");
    assert_eq!(redis.value("lock:job"), "$2 a2");
    // The release that is owed was that one; this is the holder's own.
    three.sends("DEL lock:job").gets(":1");
}
