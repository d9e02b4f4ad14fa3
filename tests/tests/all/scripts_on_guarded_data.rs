//! Scripts that write guarded data (`[[guard]]`). A script that names a lock is judged key by key in the step
//! that runs it, by the record of the lock that guards the key; keys that show only when the script runs are
//! counted.

use lockwarden_tests::{Client, Mode, Proxy, ProxyBuilder, Redis, Server};

const GUARD: &str = r#"
[[guard]]
name = "stock"
keys = ["stock:{id}"]
lock = "lock:sale:{id}"
"#;
const TOKEN: &str = "3b241101-e2bb-4255";

fn guarded(redis: &Redis) -> ProxyBuilder {
    Proxy::builder(redis).more(&format!("{GUARD}mode = \"enforce\"\n"))
}

#[track_caller]
fn takes(client: &Client) {
    client.sends(format!("SET lock:sale:7 {TOKEN} NX PX 60000")).gets("+OK");
}

/// The first was granted the lock, which ran out; the second has it now.
fn late_and_holder(proxy: &Proxy, redis: &Redis) -> (Client, Client) {
    let late = proxy.client_from("127.0.0.2");
    let holder = proxy.client_from("127.0.0.3");
    late.sends("SET lock:sale:7 f81d4fae-7dec-11d0 NX PX 50").gets("+OK");
    redis.becomes_free("lock:sale:7");
    takes(&holder);
    redis.client().sends("SET stock:7 9").gets("+OK");
    (late, holder)
}

fn said(mode: &str, result: &str) -> String {
    let labels = format!("guard=\"stock\",mode=\"{mode}\",result=\"{result}\"");
    format!("lockwarden_guarded_writes_total{{{labels}}}")
}

fn unchecked(why: &str) -> String {
    format!("lockwarden_guard_unchecked_total{{guard=\"stock\",why=\"{why}\"}}")
}

#[track_caller]
fn is_as_it_was(redis: &Redis, of: &str) {
    assert_eq!(redis.value("stock:7"), "$1 9", "{of}");
    assert_eq!(redis.pttl("stock:7"), -1, "{of}");
    assert_eq!(redis.value("other"), "nil", "{of}");
}

/// Each with its keys and arguments. All write `stock:7`, and some another key before.
const WRITERS: [(&str, &[&str], &[&str]); 10] = [
    ("redis.call('set', KEYS[2], '0')", &["lock:sale:7", "stock:7"], &[]),
    ("redis.call('set', KEYS[2], '0')", &["lock:zz", "stock:7"], &[]),
    ("redis.call('set', KEYS[3], '0')", &["lock:zz", "lock:sale:7", "stock:7"], &[]),
    ("redis.call('set', KEYS[3], 'x') redis.pcall('del', KEYS[2])", &["lock:sale:7", "stock:7", "other"], &[]),
    ("redis.call('pexpire', KEYS[2], 60000) return redis.call('get', KEYS[1])", &["lock:sale:7", "stock:7"], &[]),
    ("redis.call('get', KEYS[1]) redis.call('set', 'stock:7', '0')", &["lock:sale:7"], &[]),
    ("redis.call('get', KEYS[1]) redis.call('set', ARGV[1], '0')", &["lock:sale:7"], &["stock:7"]),
    ("redis.call('get', KEYS[1]) redis.call('set', 'stock:' .. ARGV[1], '0')", &["lock:zz"], &["7"]),
    (
        "redis.call('rename', KEYS[2], KEYS[3]) redis.call('set', KEYS[2], redis.call('get', KEYS[1]) or 'none')",
        &["lock:sale:7", "stock:7", "other"],
        &[],
    ),
    ("redis.call('set', KEYS[2], '0') error('none of it was done')", &["lock:sale:7", "stock:7"], &[]),
];

#[test]
fn who_does_not_hold_the_lock_of_the_data_writes_it_in_no_script() {
    let redis = Redis::start();
    let proxy = guarded(&redis).start();
    let (late, _holder) = late_and_holder(&proxy, &redis);
    let stranger = proxy.client_from("127.0.0.4");
    for (text, keys, arguments) in WRITERS {
        for (client, reason) in [(&late, "stale-fence"), (&stranger, "not-owner")] {
            let refused = format!("LOCKDENIED {reason} key=stock:7 cmd=EVAL lock=lock:sale:7 guard=stock id=");
            let told = client.eval(text, keys, arguments);
            assert!(told.starts_with(&format!("-{refused}")), "{text}: {told}");
            is_as_it_was(&redis, text);
            client.sends("MULTI").gets("+OK");
            assert_eq!(client.eval(text, keys, arguments), "+QUEUED");
            client.sends("SET after 1").gets("+QUEUED");
            let told = client.sends("EXEC").reply().to_string();
            assert!(told.contains(&refused), "{text}: {told}");
            is_as_it_was(&redis, text);
        }
        assert_eq!(redis.value("lock:sale:7"), format!("${} {TOKEN}", TOKEN.len()), "{text}");
    }
    let times = 2.0 * WRITERS.len() as f64;
    proxy.counts(&said("enforce", "stale-fence"), times);
    proxy.counts(&said("enforce", "not-owner"), times);
}

#[test]
fn the_holder_writes_it_in_each() {
    let redis = Redis::start();
    let proxy = guarded(&redis).start();
    let (_late, holder) = late_and_holder(&proxy, &redis);
    for (text, keys, arguments) in WRITERS {
        redis.client().sends("SET stock:7 9").gets("+OK");
        let told = holder.eval(text, keys, arguments);
        assert!(!told.starts_with("-LOCK"), "{text}: {told}");
        let is_changed = redis.value("stock:7") != "$1 9" || redis.pttl("stock:7") > 0;
        assert!(is_changed, "{text}");
    }
    proxy.counts(&said("enforce", "holder"), WRITERS.len() as f64);
}

/// It counts what a script does to the lock in the same run, and also that it carries the owner token.
#[test]
fn a_script_that_takes_the_lock_or_carries_its_token_writes_as_the_holder() {
    let redis = Redis::start();
    let proxy = guarded(&redis).start();
    let (one, other) = (proxy.client_from("127.0.0.2"), proxy.client_from("127.0.0.3"));
    let takes = "if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', 60000) then redis.call('set', KEYS[2], ARGV[2]) return 1 end return 0";
    let keys = &["lock:sale:7", "stock:7"];
    assert_eq!(one.eval(takes, keys, &[TOKEN, "5"]), ":1");
    assert_eq!(redis.value("stock:7"), "$1 5");
    // Nothing is written, so nothing is refused.
    let another = "9c858901-8a57-4791";
    assert_eq!(other.eval(takes, keys, &[another, "6"]), ":0");
    let compares =
        "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('set', KEYS[2], ARGV[2]) return 1 end return 0";
    assert_eq!(other.eval(compares, keys, &[another, "7"]), ":0");
    assert_eq!(redis.value("stock:7"), "$1 5");
    assert_eq!(other.eval(compares, keys, &[TOKEN, "8"]), ":1");
    assert_eq!(redis.value("stock:7"), "$1 8");
    // The lock is given back and the data written, in one run.
    let gives = "redis.call('set', KEYS[2], '4') return redis.call('del', KEYS[1])";
    let told = other.eval(gives, keys, &[]);
    assert!(told.starts_with("-LOCKDENIED not-owner"), "{told}");
    assert_eq!(redis.value("stock:7"), "$1 8");
    assert_eq!(one.eval(gives, keys, &[]), ":1");
    assert_eq!(redis.value("stock:7"), "$1 4");
    assert!(redis.is_free("lock:sale:7"));
}

#[test]
fn what_could_not_be_put_back_is_refused_before_it_runs() {
    let redis = Redis::start();
    let proxy = guarded(&redis).start();
    let (late, holder) = late_and_holder(&proxy, &redis);
    let long = "x".repeat(200_000);
    redis.client().sends_arguments(&["SET", "stock:7", &long]).gets("+OK");
    let text =
        "redis.call('incr', KEYS[3]) if redis.call('get', KEYS[1]) == 'none' then redis.call('set', KEYS[2], '0') end";
    let keys = &["lock:sale:7", "stock:7", "other"];
    let told = late.eval(text, keys, &[]);
    assert!(told.starts_with("-LOCKDENIED stale-fence key=stock:7 cmd=EVAL"), "{told}");
    assert_eq!(redis.value("other"), "nil");
    assert_eq!(redis.client().sends("STRLEN stock:7").integer(), 200_000);
    assert_eq!(holder.eval(text, keys, &[]), "nil");
    assert_eq!(redis.value("other"), "$1 1");
}

/// In a namespace that is only watched nothing is put back: there the record decides before the script runs.
#[test]
fn a_guard_enforces_where_the_namespace_of_its_lock_is_only_watched() {
    let redis = Redis::start();
    let proxy = guarded(&redis).mode(Mode::Monitor).start();
    let (late, holder) = late_and_holder(&proxy, &redis);
    let (text, keys, _) = WRITERS[0];
    let told = late.eval(text, keys, &[]);
    assert!(told.starts_with("-LOCKDENIED stale-fence key=stock:7 cmd=EVAL"), "{told}");
    is_as_it_was(&redis, text);
    if !Server::under_test().lacks("FUNCTION", 7, 0) {
        let library = "#!lua name=shop\nredis.register_function('sell', function(keys) return redis.call('set', keys[2], '0') end)";
        redis.client().sends_arguments(&["FUNCTION", "LOAD", library]).reply();
        late.sends("FCALL sell 2 lock:sale:7 stock:7")
            .gets_error("LOCKLIMIT guarded-write key=stock:7 cmd=FCALL guard=stock");
        is_as_it_was(&redis, "FCALL");
    }
    assert_eq!(holder.eval(text, keys, &[]), "nil");
    assert_eq!(redis.value("stock:7"), "$1 0");
}

#[test]
fn a_guard_that_watches_counts_what_a_script_writes_and_lets_it() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).more(GUARD).start();
    let (late, holder) = late_and_holder(&proxy, &redis);
    let (text, keys, _) = WRITERS[0];
    for client in [&late, &holder] {
        redis.client().sends("SET stock:7 9").gets("+OK");
        assert_eq!(client.eval(text, keys, &[]), "nil");
        assert_eq!(redis.value("stock:7"), "$1 0");
    }
    proxy.counts(&said("monitor", "stale-fence"), 1.0);
    proxy.counts(&said("monitor", "holder"), 1.0);
    proxy.counts(&unchecked("with-locks"), 0.0);
}

#[test]
fn a_name_that_only_the_run_of_a_script_tells_is_counted_where_it_may_be_guarded() {
    let redis = Redis::start();
    let proxy = guarded(&redis).start();
    let client = proxy.client();
    redis.client().sends("SET which 7").gets("+OK");
    let writes =
        |beginning: &str| format!("return redis.call('set', '{beginning}' .. redis.call('get', KEYS[1]), '0')");
    let mut times = 0.0;
    for (text, keys, is_counted) in [
        (writes("stock:"), &["which"], true),
        (writes("other:"), &["which"], false),
        (writes("").replace("'' .. ", ""), &["which"], true),
        (writes("stock:").replace("'set'", "'get'").replace(", '0'", ""), &["which"], false),
        (writes("stock:"), &["lock:zz"], true),
    ] {
        client.eval(&text, keys, &[]);
        times += f64::from(u8::from(is_counted));
        assert_eq!(proxy.metric(&unchecked("computed-names")), times, "{text}");
    }
}
