//! Scripts that compute the names of keys run behind a guard: it refuses each call that would change a lock which the
//! script does not declare, and changes nothing else. `escapes` has the attempts to get around it.

use lockwarden_tests::{Client, Mode, Proxy, Redis, Server};

use crate::held::{ALICES, Held};

mod escapes;
mod functions;
mod random;

/// Shows whether the script that contains it runs behind a guard: it computes a name, and a function of Redis
/// cannot be dumped.
const IS_GUARDED: &str = "redis.call('set', redis.call('echo', ARGV[1]), 1) \
    return pcall(string.dump, redis.call) and 'guarded' or 'as it is'";

const UNSAFE: &str = "-LOCKDENIED unsafe-script ";

#[test]
fn the_careless_job_that_cleans_up_leaves_locks_alone() {
    let held = Held::new();
    held.bob.sends("MSET a:1 x lock 1").gets("+OK");
    for (text, keys) in [
        ("for _, key in ipairs(redis.call('keys', 'lock*')) do redis.call('del', key) end", vec![]),
        ("local found = redis.call('keys', '*') return redis.call('unlink', unpack(found))", vec![]),
        (
            "local found = redis.call('scan', 0, 'match', ARGV[1], 'count', 1000)[2] \
             for i = 1, #found do redis.call('pexpire', found[i], 1) end",
            vec![],
        ),
        ("redis.call('set', KEYS[1], 1) return redis.call('del', redis.call('keys', '*job')[1])", vec!["lock:bobs"]),
    ] {
        let said = held.refuses(UNSAFE, text, &keys, &["lock:*"]);
        assert!(said.contains(" key=lock:job "), "{said}");
    }
    held.proxy.counts("lockwarden_decisions_total{decision=\"deny\",reason=\"unsafe-script\"}", 4.0);
    held.proxy.logs(&["refused", "unsafe-script", "lock:job"]);
    held.alice.sends("DEL lock:job").gets(":1");
}

#[test]
fn no_script_writes_a_key_of_the_proxys_own_that_is_about_no_lock() {
    let held = Held::new();
    let straight = held.redis.client();
    let own = [
        "lw:{}:lockwarden-prefix",
        "lw:{}:lockwarden-era",
        "lw:{}:lockwarden-kept",
        "lw:{}:lockwarden-surplus:da39a3ee5e6b4b0d3255bfef95601890afd80709",
    ];
    for name in own {
        let before = straight.sends(format!("DUMP {name}")).reply().to_string();
        let (beginning, ending) = name.split_at(9);
        for (text, keys, arguments) in [
            ("redis.call('set', redis.call('echo', ARGV[1]), 'x')", vec![], vec![name]),
            ("redis.call('set', 'a', 1) redis.call('rename', 'a', redis.call('echo', ARGV[1]))", vec![], vec![name]),
            ("redis.call('del', redis.call('echo', ARGV[1]) .. ARGV[2])", vec![], vec![beginning, ending]),
            ("redis.call('set', KEYS[2], 'x')", vec!["lock:bobs", name], vec![]),
            ("redis.call('set', ARGV[1], 'x')", vec!["lock:bobs"], vec![name]),
        ] {
            let said = held.bob.eval(text, &keys, &arguments);
            assert!(said.starts_with("-LOCKDENIED "), "{name}: {text}: {said}");
        }
        let after = straight.sends(format!("DUMP {name}")).reply().to_string();
        assert_eq!(after, before, "{name}");
    }
    // Nor does a script that deletes the keys that it finds.
    let text = "for _, key in ipairs(redis.call('keys', ARGV[1])) do redis.call('del', key) end return 1";
    assert_eq!(held.bob.eval(text, &[], &["lw:*"]), ":1");
}

/// Each on a server alone and through the proxy: values, errors with their lines and names, keys and arguments.
#[test]
fn what_touches_no_lock_is_answered_as_without_the_guard() {
    let (redis, alone) = (Redis::start(), Redis::start());
    let proxy = Proxy::enforcing(&redis);
    let (bob, straight) = (proxy.client(), alone.client());
    for protocol in ["2", "3"] {
        bob.sends(format!("HELLO {protocol}")).reply();
        straight.sends(format!("HELLO {protocol}")).reply();
        for text in [
            "return {#KEYS, #ARGV, KEYS[1], ARGV[2]}",
            "return redis.call('get', name)",
            "return {1, {2, 'three', {}}, false, 'four'}",
            "return redis.status_reply('FINE')",
            "return redis.error_reply('MINE own words')",
            "return {err = 'MINE too'}",
            "return",
            "return true",
            "return 3.99",
            "return redis.call('incr', name)",
            "return redis.call('hgetall', KEYS[1])",
            "\nredis.call('lpush', name, 'x')\nreturn 1",
            "local done = redis.pcall('lpush', name, 'x') return done.err and 'an error' or 'none'",
            "return redis.pcall('lpush', name, 'x')",
            "return select(2, pcall(redis.call, 'nosuch', name)) and 1",
            "return redis.call('nosuch', name)",
            "return redis.call('set')",
            "return redis.call()",
            "return redis.call('set', {}, 1)",
            "local nothing\nreturn nothing.x",
            "error('my own')",
            "error({err = 'MY own'})",
            "return nosuch",
            "x = 1",
            "return loadstring('return 1 +')",
            "return loadstring('return ...')(7)",
            "redis.setresp(3) return redis.call('hgetall', KEYS[1])",
            "return cjson.encode({_G.redis ~= nil, redis.sha1hex('')})",
            "return 1 +",
            "end return 1",
        ] {
            let whole = format!("local name = redis.call('echo', ARGV[1]) {text}");
            let arguments = [&whole, "2", "hash", "other", "key", "argument"];
            let said = |client: &Client| {
                client.sends("HSET hash f 1").reply();
                let mut words = vec!["EVAL"];
                words.extend(arguments);
                client.sends_arguments(&words).reply().to_string()
            };
            assert_eq!(said(&bob), said(&straight), "{whole}");
        }
    }
}

/// Lua gives a function that takes any arguments a variable `arg`; a script is none, behind the guard and judged alike.
#[test]
fn a_script_has_no_arg_that_redis_does_not_give_it() {
    let (redis, alone) = (Redis::start(), Redis::start());
    let proxy = Proxy::enforcing(&redis);
    let (bob, straight) = (proxy.client(), alone.client());
    for (begins, key) in [
        ("redis.call('get', redis.call('echo', ARGV[1]))", "other"),
        ("redis.call('incr', redis.call('echo', ARGV[1]))", "other"),
        ("redis.call('hget', redis.call('incr', 'n') and KEYS[1], 'f')", "lock:a"),
    ] {
        for text in [
            "return type(arg)",
            "arg = 1",
            "local arg = arg",
            "local function f(...) return arg end return type(f(1))",
            "local function f(...) return arg.n end return f(1, 2) -- ...",
            "local function f(...) return {type(arg), ...} end return f(1, 2)",
            "return loadstring('return type(arg)')()",
            "return loadstring('arg = 1')()",
            "return loadstring('return ...')(7)",
            "return '...'",
        ] {
            // Before 7.0 what the guard puts in place of the global variables takes new ones.
            if text == "return loadstring('arg = 1')()" && !Server::under_test().since(7, 0) {
                continue;
            }
            let whole = format!("{begins} {text}");
            let said = |client: &Client| {
                let words = ["EVAL", &whole, "1", key, "name"];
                client.sends_arguments(&words).reply().to_string()
            };
            assert_eq!(said(&bob), said(&straight), "{whole}");
        }
    }
}

#[test]
fn a_script_is_called_by_its_sha_and_found_as_without_the_guard() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let bob = proxy.client();
    let sha = bob.sends_arguments(&["SCRIPT", "LOAD", IS_GUARDED]).text();
    for _ in 0..2 {
        bob.sends(format!("EVALSHA {sha} 0 name")).gets("$7 guarded");
    }
    bob.sends(format!("SCRIPT EXISTS {sha}")).gets("[:1]");
    bob.sends("SCRIPT FLUSH").gets("+OK");
    bob.sends(format!("SCRIPT EXISTS {sha}")).gets("[:0]");
    bob.sends("MULTI").gets("+OK");
    bob.sends_arguments(&["EVAL", IS_GUARDED, "0", "name"]).gets("+QUEUED");
    bob.sends("GET name").gets("+QUEUED");
    bob.sends("EXEC").gets("[$7 guarded, $1 1]");
}

#[test]
fn only_scripts_that_may_name_a_lock_and_may_write_are_guarded() {
    let held = Held::new();
    let guarded = |text: &str, keys: &[&str]| {
        let end = "return pcall(string.dump, redis.call) and 'guarded' or 'as it is'";
        held.bob.eval(&format!("{text} {end}"), keys, &["job"]) == "$7 guarded"
    };
    assert!(guarded("redis.call('del', redis.call('echo', ARGV[1]))", &[]));
    assert!(guarded("redis.call(ARGV[2] or 'ping')", &[]));
    assert!(guarded("redis.call('del', 'lo' .. redis.call('echo', 'x'))", &[]));
    assert!(!guarded("redis.call('del', KEYS[1])", &["a"]));
    assert!(!guarded("redis.call('set', ARGV[1], 1)", &[]));
    assert!(!guarded("redis.call('set', 'queue:' .. redis.call('echo', 'x'), 1)", &[]));
    assert!(!guarded("redis.call('set', KEYS[1] .. redis.call('echo', 'x'), 1)", &["queue:"]));
    assert!(!guarded("redis.call('get', redis.call('echo', ARGV[1]))", &[]));
    let words = ["EVAL_RO", IS_GUARDED, "0", "name"];
    if !held.redis.client().sends_arguments(&["EVAL_RO", "return 1", "0"]).reply().to_string().starts_with('-') {
        assert!(
            held.bob.sends_arguments(&words).reply().to_string().starts_with("-ERR Write commands are not allowed")
        );
    }
}

#[test]
fn a_constant_of_redis_in_a_name_is_no_way_around() {
    let held = Held::new();
    held.alice.sends(format!("SET lock:3 {ALICES} NX PX 8000")).gets("+OK");
    held.refuses(UNSAFE, "return redis.call('del', 'lock:' .. redis.LOG_WARNING)", &[], &[]);
    held.redis.client().sends("EXISTS lock:3").gets(":1");
}

#[test]
fn monitor_mode_only_counts_what_scripts_do_that_compute_names() {
    let redis = Redis::start();
    let proxy = Proxy::monitoring(&redis);
    let bob = proxy.client();
    assert_eq!(bob.eval(IS_GUARDED, &[], &["name"]), "$7 guarded");
    let foreseen = "lockwarden_decisions_total{decision=\"would-deny\",reason=\"unsafe-script\"}";
    assert_eq!(proxy.metrics().find(foreseen).unwrap_or(0.0), 0.0);
    bob.sends("SET lock:a 1").gets("+OK");
    let delete = "return redis.call('del', redis.call('keys', 'lock:*')[1])";
    assert_eq!(bob.eval(delete, &[], &[]), ":1");
    proxy.counts(foreseen, 1.0);
    proxy.logs(&["would have been refused", "unsafe-script", "lock:a"]);
    assert_eq!(proxy.switch("locks", Mode::Enforce), 200);
    assert_eq!(bob.eval(IS_GUARDED, &[], &["name"]), "$7 guarded");
}

#[test]
fn what_happens_to_them_is_a_choice() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).top("computed_names", "\"deny\"").start();
    let held = Held::behind(redis, proxy);
    held.refuses(UNSAFE, IS_GUARDED, &[], &["name"]);
    held.refuses(UNSAFE, IS_GUARDED, &["lock:mine"], &["name"]);
    held.bob.sends("GET name").gets("nil");

    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).top("computed_names", "\"forward\"").start();
    assert_eq!(proxy.client().eval(IS_GUARDED, &[], &["name"]), "$8 as it is");
    proxy.counts("lockwarden_unjudged_commands_total{why=\"computed-names\"}", 1.0);
}

/// With SELECT a script reaches other databases: no lock there counts as declared, and other keys are free.
#[test]
fn a_script_that_goes_to_another_database_reaches_no_lock_there() {
    let held = Held::new();
    let far = held.proxy.client();
    far.sends("SELECT 1").gets("+OK");
    far.sends(format!("SET lock:far {ALICES} NX PX 8000")).gets("+OK");
    let there = |word: &str| format!("redis.call('select', 1) {word}");
    for keys in [vec![], vec!["lock:far"], vec!["lock:job"]] {
        held.refuses(UNSAFE, &there("return redis.call('del', 'lock:far')"), &keys, &[]);
    }
    held.refuses(UNSAFE, &there("return redis.call('del', KEYS[1])"), &["lock:far"], &[]);
    far.sends("GET lock:far").gets(format!("${} {ALICES}", ALICES.len()));
    assert_eq!(held.bob.eval(&there("return redis.call('set', 'plain', 1)"), &[], &[]), "+OK");
    far.sends("GET plain").gets("$1 1");
    let back = "redis.call('select', 1) redis.call('set', 'plain', 2) redis.call('select', 0) return redis.call('del', KEYS[1])";
    assert_eq!(held.alice.eval(back, &["lock:job"], &[]), ":1", "the holder's own script, at home again");
    far.sends("GET plain").gets("$1 2");
}

/// Where Redis is full, a script that is refused takes no lock with it: neither restoring keys nor the guard
/// needs memory.
#[test]
fn a_refused_script_on_a_full_server_takes_no_lock() {
    let redis = Redis::with_arguments(&["--maxmemory-policy", "noeviction"]);
    let proxy = Proxy::enforcing(&redis);
    let held = Held::behind(redis, proxy);
    let take = "redis.call('hset', KEYS[1], ARGV[1], 1) return redis.call('pexpire', KEYS[1], 8000)";
    assert_eq!(held.alice.eval(take, &["lock:hash"], &[ALICES]), ":1");
    held.bob.sends("SET plain 1").gets("+OK");
    held.redis.client().sends("CONFIG SET maxmemory 1").gets("+OK");
    for lock in ["lock:job", "lock:hash"] {
        let before = held.redis.lease(lock);
        for text in [
            "redis.call('del', KEYS[2]) return redis.call('del', KEYS[1])",
            "redis.call('del', KEYS[1]) redis.call('set', KEYS[2], ARGV[1])",
            "redis.call('rename', KEYS[1], KEYS[2])",
            "redis.call('del', KEYS[1]) return redis.call('set', redis.call('echo', ARGV[1]), 1)",
        ] {
            let said = held.bob.eval(text, &[lock, "plain"], &["thief"]);
            assert!(said.starts_with('-'), "{text}: {said}");
            assert_eq!(held.redis.lease(lock), before, "{text}: {said}");
        }
    }
    assert_eq!(held.proxy.logged(&["would not have all keys put back"]), 0);
}
