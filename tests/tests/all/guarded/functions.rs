//! Functions that name or compute locks which they do not declare.

use lockwarden_tests::{Client, Mode, Proxy, Redis, Server, encode, wait_for};

use crate::held::{ALICES, Held};

/// A library with one function.
fn library(name: &str, body: &str) -> String {
    format!("#!lua name={name}_library\nredis.register_function('{name}', function(keys, args) {body} end)")
}

fn load(client: &Client, name: &str, body: &str) {
    let text = library(name, body);
    client.sends_arguments(&["FUNCTION", "LOAD", "REPLACE", &text]).gets(format!("${} {name}_library", name.len() + 8));
}

const CLEANS_UP: &str =
    "for _, key in ipairs(redis.call('keys', 'lock*')) do redis.call('del', key) end return 'clean'";
const TAKES_KEYS: &str = "return redis.call('set', keys[1], args[1])";

fn has_none() -> bool {
    Server::under_test().lacks("FUNCTION", 7, 0)
}

#[test]
fn a_function_reaches_no_lock_that_it_does_not_declare() {
    if has_none() {
        return;
    }
    let held = Held::new();
    // Past the proxy, which asks.
    let operator = held.redis.client();
    load(&operator, "clean", CLEANS_UP);
    load(&operator, "named", "return redis.call('del', 'lock:' .. args[1])");
    load(&operator, "own", "return redis.call('del', 'lw:{0j4}:lock:job')");
    load(&operator, "plain", TAKES_KEYS);
    load(&operator, "queue", "return redis.call('set', 'queue:' .. redis.call('incr', 'n'), 1)");
    let bob = &held.bob;
    for call in ["FCALL clean 0", "fcall CLEAN 1 plain x"] {
        let said = bob.sends(call).gets_error("LOCKDENIED unsafe-script ");
        assert!(said.contains("cmd=FCALL") && said.contains("trusted_functions"), "{said}");
    }
    bob.sends("FCALL named 0 job").gets_error("LOCKDENIED unsafe-script key=lock:job cmd=FCALL");
    bob.sends("FCALL own 0").gets_error("LOCKDENIED unsafe-script key=lw:{0j4}:lock:job");
    bob.sends("FCALL named 0 x:job").gets_error("LOCKDENIED");
    bob.sends("FCALL plain 1 a 1").gets("+OK");
    bob.sends("FCALL queue 0").gets("+OK");
    bob.sends("FCALL nobodys 0").gets_error("ERR Function not found");
    bob.sends("MULTI").gets("+OK");
    bob.sends("FCALL clean 0").gets_error("LOCKDENIED");
    bob.sends("EXEC").gets_error("EXECABORT");
    bob.pipelines(&["MULTI", "FCALL plain 1 a 2", "EXEC"], &["+OK", "+QUEUED", "[+OK]"]);
    bob.sends("GET a").gets("$1 2");
    held.alice.sends("GET lock:job").gets(format!("${} {ALICES}", ALICES.len()));
}

#[test]
fn what_is_loaded_through_the_proxy_counts_at_once() {
    if has_none() {
        return;
    }
    for sessions in ["dedicated", "multiplexed"] {
        let redis = Redis::start();
        let proxy = Proxy::builder(&redis).top("sessions", &format!("{sessions:?}")).start();
        let held = Held::behind(redis, proxy);
        loads_through_the_proxy(&held.bob);
    }
}

fn loads_through_the_proxy(bob: &Client) {
    load(bob, "job", TAKES_KEYS);
    bob.sends("FCALL job 1 a 1").gets("+OK");
    let text = library("job", CLEANS_UP);
    let mut both = encode(&["FUNCTION", "LOAD", "REPLACE", &text]);
    both.extend(encode(&["FCALL", "job", "1", "a", "1"]));
    bob.sends_bytes(both).gets("$11 job_library");
    bob.then().gets_error("LOCKDENIED unsafe-script ");

    // In a block the function is another one when it is called.
    load(bob, "job", TAKES_KEYS);
    bob.sends("MULTI").gets("+OK");
    bob.sends_arguments(&["FUNCTION", "LOAD", "REPLACE", &text]).gets("+QUEUED");
    bob.sends("FCALL job 1 a 1").gets_error("LOCKDENIED unsafe-script ");
    bob.sends("EXEC").gets_error("EXECABORT");
    bob.sends("MULTI").gets("+OK");
    bob.sends_arguments(&["FUNCTION", "LOAD", "REPLACE", &text]).gets("+QUEUED");
    bob.sends("EXEC").gets("[$11 job_library]");
    bob.sends("FCALL job 1 a 1").gets_error("LOCKDENIED unsafe-script ");
    bob.sends("FUNCTION FLUSH").gets("+OK");
    bob.sends("FCALL job 1 a 1").gets_error("ERR Function not found");
}

/// A library that is loaded past the proxy is noticed a little later.
#[test]
fn what_is_loaded_past_the_proxy_is_noticed() {
    if has_none() {
        return;
    }
    let held = Held::new();
    load(&held.redis.client(), "job", TAKES_KEYS);
    held.bob.sends("FCALL job 1 a 1").gets("+OK");
    load(
        &held.redis.client(),
        "job",
        "return redis.call('touch', redis.call('echo', 'a')) and redis.call('set', redis.call('echo', 'a'), 1)",
    );
    wait_for("the other function is noticed", || {
        held.bob.sends("FCALL job 1 a 1").reply().to_string().starts_with("-LOCKDENIED unsafe-script")
    });
}

#[test]
fn a_function_that_nobody_may_read_is_refused_unless_it_is_trusted() {
    if has_none() {
        return;
    }
    let redis = Redis::start();
    load(&redis.client(), "job", TAKES_KEYS);
    load(&redis.client(), "clean", CLEANS_UP);
    redis.client().sends("ACL SETUSER default -function|list").gets("+OK");
    for mode in [Mode::Enforce, Mode::Monitor] {
        let proxy = Proxy::builder(&redis).mode(mode).top("trusted_functions", "[\"Clean\"]").start();
        let bob = proxy.client();
        bob.sends("FCALL clean 0").gets("$5 clean");
        match mode {
            Mode::Enforce => {
                let said = bob.sends("FCALL job 1 a 1").gets_error("LOCKDENIED unsafe-script ");
                assert!(said.contains("NOPERM") && said.contains("FUNCTION LIST"), "{said}");
            }
            Mode::Monitor => bob.sends("FCALL job 1 a 1").gets("+OK"),
        }
    }
}

/// To Redis the case of a function's name does not matter, so the proxy may not tell two apart either.
#[test]
fn the_case_of_a_functions_name_matters_neither_to_redis_nor_to_the_proxy() {
    if has_none() {
        return;
    }
    let redis = Redis::start();
    let operator = redis.client();
    load(&operator, "Clean", CLEANS_UP);
    for call in ["FCALL clean 0", "FCALL CLEAN 0"] {
        operator.sends(call).gets("$5 clean");
    }
    let twin = "#!lua name=twin\nredis.register_function('clean', function() return 1 end)";
    operator.sends_arguments(&["FUNCTION", "LOAD", twin]).gets_error("ERR Function clean already exists");
    let proxy = Proxy::builder(&redis).mode(Mode::Enforce).top("trusted_functions", "[\"cLEAN\"]").start();
    for call in ["FCALL clean 0", "FCALL CLEAN 0"] {
        proxy.client().sends(call).gets("$5 clean");
    }
}

#[test]
fn a_server_without_functions_says_so_itself() {
    if Server::under_test().since(7, 0) {
        return;
    }
    let held = Held::new();
    held.bob.sends("FCALL job 0").gets_error("ERR unknown command `FCALL`");
}

/// Where the proxy's own connection may not ask, its clients' connections do.
#[test]
fn a_proxy_without_a_login_asks_over_its_clients_connection() {
    if has_none() {
        return;
    }
    let redis = Redis::with_arguments(&["--requirepass", "secret"]);
    let operator = redis.client();
    operator.sends("AUTH secret").gets("+OK");
    load(&operator, "job", TAKES_KEYS);
    load(&operator, "clean", CLEANS_UP);
    let proxy = Proxy::enforcing(&redis);
    let stranger = proxy.client();
    stranger.sends("FCALL job 1 a 1").gets_error("NOAUTH");
    for hello in ["AUTH secret", "HELLO 3 AUTH default secret"] {
        let bob = proxy.client();
        bob.sends(hello).reply();
        bob.sends("FCALL job 1 a 1").gets("+OK");
        bob.sends("FCALL clean 0").gets_error("LOCKDENIED unsafe-script ");
        load(&bob, "job", TAKES_KEYS);
    }
}

#[test]
fn monitor_mode_only_counts_functions_that_compute_names() {
    if has_none() {
        return;
    }
    let redis = Redis::start();
    load(&redis.client(), "clean", CLEANS_UP);
    load(&redis.client(), "job", TAKES_KEYS);
    let proxy = Proxy::monitoring(&redis);
    let bob = proxy.client();
    let counted = "lockwarden_decisions_total{decision=\"would-deny\",reason=\"unsafe-script\"}";
    wait_for("the function is known", || {
        bob.sends("FCALL clean 0").gets("$5 clean");
        proxy.metrics().find(counted).unwrap_or(0.0) > 0.0
    });
    let before = proxy.metric(counted);
    bob.sends("FCALL job 1 a 1").gets("+OK");
    bob.sends("FCALL clean 0").gets("$5 clean");
    proxy.counts(counted, before + 1.0);
}
