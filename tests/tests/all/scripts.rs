//! Scripts that are no known recipe, and the script cache between client, proxy and server.

use lockwarden_tests::{Proxy, Redis, Server, World, WorldKind};

const UNKNOWN: &str = "redis.call('set', KEYS[1], ARGV[1]) return redis.call('get', KEYS[1])";

/// An unknown script may not overwrite a stranger's lock; in monitor mode it does and is counted.
fn an_unknown_script_with_a_lock_key(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    alice.sends("SET lock:job a1 NX PX 8000").gets("+OK");
    let before = world.redis().lease("lock:job");
    let asked = bob.sends(format!("EVAL \"{UNKNOWN}\" 1 lock:job thief"));
    if world.is_harmed() {
        asked.gets("$5 thief");
    } else {
        asked.gets_error("LOCKDENIED overwrite key=lock:job cmd=EVAL");
        assert_eq!(world.redis().lease("lock:job"), before);
    }
    world.counted_for("overwrite", 1);
}
in_every_world!(an_unknown_script_with_a_lock_key);

/// The same by its SHA, and with the lock as the second of two keys.
fn an_unknown_script_by_its_sha(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    alice.sends("SET lock:job a1 NX PX 8000").gets("+OK");
    let text = "return redis.call('set', KEYS[2], ARGV[1])";
    let sha = bob.sends(format!("SCRIPT LOAD \"{text}\"")).text();
    let asked = bob.sends(format!("EVALSHA {sha} 2 plain lock:job thief"));
    if world.is_harmed() {
        asked.gets("+OK");
    } else {
        asked.gets_error("LOCKDENIED overwrite key=lock:job cmd=EVALSHA");
        assert_eq!(world.redis().value("lock:job"), "$2 a1");
    }
    world.counted_for("overwrite", 1);
}
in_every_world!(an_unknown_script_by_its_sha);

/// Scripts without a lock key, and scripts that cannot write, are passed through.
fn scripts_that_touch_no_lock(world: &World) {
    let alice = world.client();
    alice.sends("SET lock:job a1 NX PX 8000").gets("+OK");
    alice.sends("EVAL \"return redis.call('set', KEYS[1], ARGV[1])\" 1 plain x").gets("+OK");
    if !Server::under_test().lacks("EVAL_RO", 7, 0) {
        alice.sends("EVAL_RO \"return redis.call('get', KEYS[1])\" 1 lock:job").gets("$2 a1");
    }
    alice.sends("EVAL \"return {1, 'two', false, redis.status_reply('FINE')}\" 0").gets("[:1, $3 two, nil, +FINE]");
    alice.sends("EVAL \"return redis.error_reply('MINE own words')\" 0").gets("-MINE own words");
    alice.sends("EVAL \"return 1\" one plain").gets_error("ERR value is not an integer or out of range");
    alice.sends("EVAL \"return 1\" -1").gets_error("ERR Number of keys can't be negative");
    alice.sends("EVAL \"return 1\" 2 lock:job").gets_error("ERR Number of keys can't be greater than number of args");
}
in_every_world!(scripts_that_touch_no_lock);

#[test]
fn an_unknown_sha_on_a_lock_key_asks_for_the_text() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let alice = proxy.client();
    // The server knows it, the proxy does not: only the text shows what it does.
    let sha = redis.client().sends_arguments(&["SCRIPT", "LOAD", UNKNOWN]).text();
    alice.sends(format!("EVALSHA {sha} 1 lock:job v")).gets_error("NOSCRIPT No matching script.");
    alice.sends(format!("SCRIPT EXISTS {sha}")).gets("[:0]");
    assert!(redis.is_free("lock:job"));
    // Without a lock key, too: it may compute the name of one.
    alice.sends(format!("EVALSHA {sha} 1 plain v")).gets_error("NOSCRIPT No matching script.");
    alice.sends_arguments(&["SCRIPT", "LOAD", UNKNOWN]).text();
    alice.sends(format!("EVALSHA {sha} 1 plain v")).gets("$1 v");
    alice.sends(format!("EVALSHA {} 1 plain v", "0".repeat(40))).gets_error("NOSCRIPT No matching script.");
}

#[test]
fn a_script_may_be_loaded_and_called_in_one_pipeline() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let direct = redis.client();
    let sha = |text: &str| direct.sends_arguments(&["SCRIPT", "LOAD", text]).text();
    let (lock, plain) = ("return redis.call('get', KEYS[1])", "return 'plain'");
    let alice = proxy.client();
    alice.pipelines(
        &[
            &format!("SCRIPT LOAD \"{lock}\""),
            &format!("EVALSHA {} 1 lock:job", sha(lock)),
            &format!("SCRIPT LOAD \"{plain}\""),
            &format!("EVALSHA {} 0", sha(plain)),
        ],
        &[&format!("$40 {}", sha(lock)), "nil", &format!("$40 {}", sha(plain)), "$5 plain"],
    );
}

#[test]
fn an_unknown_sha_in_a_block_is_refused_when_it_is_queued() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let alice = proxy.client();
    alice.sends("MULTI").gets("+OK");
    alice.sends("SET plain 1").gets("+QUEUED");
    alice
        .sends(format!("EVALSHA {} 1 lock:job v", "a".repeat(40)))
        .gets_error("LOCKDENIED unsafe-script key=lock:job cmd=EVALSHA");
    let text = alice.sends("EXEC").gets_error("EXECABORT ");
    assert!(text.contains("LOCKDENIED unsafe-script"), "{text}");
    assert!(redis.is_free("plain"));
}

#[test]
fn a_sha_that_redis_does_not_know_either_fails_in_its_place_of_a_block() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (alice, direct) = (proxy.client(), redis.client());
    let text = "return redis.call('set', 'computed' .. KEYS[1], 1)";
    let known = direct.sends_arguments(&["SCRIPT", "LOAD", text]).text();
    let requests = [
        format!("EVALSHA {} 0", "f".repeat(40)),
        format!("EVALSHA {} x", "f".repeat(40)),
        "EVALSHA short x".to_owned(),
        "SET plain 1".to_owned(),
    ];
    let said = [&alice, &direct].map(|client| {
        let alone: Vec<String> = (requests.iter()).map(|line| client.sends(line).reply().to_string()).collect();
        client.sends("MULTI").gets("+OK");
        for line in &requests {
            client.sends(line).gets("+QUEUED");
        }
        (alone, client.sends("EXEC").reply().to_string())
    });
    assert_eq!(said[0], said[1]);
    assert!(said[0].1.starts_with("[-NOSCRIPT "), "{said:?}");
    // Redis knows this one and the proxy does not, so the proxy cannot tell what it would do.
    alice.sends("MULTI").gets("+OK");
    alice.sends(format!("EVALSHA {known} 1 plain")).gets_error("LOCKDENIED unsafe-script cmd=EVALSHA");
    alice.sends("EXEC").gets_error("EXECABORT ");
}

#[test]
fn a_text_that_is_no_lua_fails_in_its_place_of_a_block() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let said = [proxy.client(), redis.client()].map(|client| {
        client.sends("MULTI").gets("+OK");
        client.sends("EVAL \"return syntax(\" 0").gets("+QUEUED");
        client.sends("SET plain 1").gets("+QUEUED");
        client.sends("EXEC").reply().to_string()
    });
    assert!(said[0].starts_with("[-ERR Error compiling script"));
    assert_eq!(said[0], said[1]);
}

#[test]
fn a_flushed_script_cache_is_repaired_without_anybody_noticing() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let alice = proxy.client();
    for round in 0..3 {
        alice.sends("SETNX lock:job a1").gets(":1");
        // Pipelined behind a flush: order must hold while the script is loaded again.
        alice.pipelines(
            &["SCRIPT FLUSH", "SET plain 1", "DEL lock:job", "INCR plain", "SETNX lock:job a2", "GET lock:job"],
            &["+OK", "+OK", ":1", ":2", ":1", "$2 a2"],
        );
        redis.client().sends("SCRIPT FLUSH").gets("+OK");
        alice.sends("EXPIRE lock:job 5").gets(":1");
        redis.client().sends("SCRIPT FLUSH").gets("+OK");
        alice.sends("DEL lock:job").gets(":1");
        assert!(redis.is_free("lock:job"), "round {round}");
    }
}

#[test]
fn functions_may_not_name_a_lock_key() {
    if Server::under_test().lacks("FUNCTION", 7, 0) {
        return;
    }
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let library = "#!lua name=mine\nredis.register_function('steal', function(keys, args) return redis.call('set', keys[1], args[1]) end)";
    redis.client().sends_arguments(&["FUNCTION", "LOAD", library]).gets("$4 mine");
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("SET lock:job a1 NX PX 8000").gets("+OK");
    bob.sends("FCALL steal 1 lock:job thief").gets_error("LOCKDENIED ");
    bob.sends("FCALL steal 1 plain x").gets("+OK");
    assert_eq!(redis.value("lock:job"), "$2 a1");
}

#[test]
fn monitor_mode_runs_an_unknown_script_with_its_own_reply_in_a_block_too() {
    let world = World::new(WorldKind::Monitor, |proxy| proxy);
    let alice = world.client();
    alice.sends("MULTI").gets("+OK");
    alice.sends(format!("EVAL \"{UNKNOWN}\" 1 lock:job v")).gets("+QUEUED");
    alice.sends("EXEC").gets("[$1 v]");
}

/// Reading such a text takes the most steps that are allowed for any text, and happens outside the threads that serve
/// clients.
#[test]
fn a_long_text_is_understood_like_a_short_one() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    let long = |which: &str| {
        let piece = |at| format!("t.f{at}={{u}} u.f{at}=t[KEYS[1]] ");
        let pieces: String = (0..400).map(piece).collect();
        format!("local t={{}} local u={{}} {pieces}return redis.call('del', KEYS[1]) -- {which}")
    };
    alice.sends("SET lock:job a1 NX PX 30000").gets("+OK");
    let theft = long("theft");
    bob.sends_arguments(&["EVAL", &theft, "1", "lock:job"]).gets_error("LOCKDENIED not-owner");
    let loaded = long("loaded");
    let sha = bob.sends_arguments(&["SCRIPT", "LOAD", &loaded]).reply().to_string();
    let sha = sha.trim_start_matches("$40 ").to_owned();
    bob.sends_arguments(&["EVALSHA", &sha, "1", "lock:job"]).gets_error("LOCKDENIED not-owner");
    assert_eq!(redis.value("lock:job"), "$2 a1");
    let own = long("own");
    alice.sends_arguments(&["EVAL", &own, "1", "lock:job"]).gets(":1");
    assert_eq!(redis.value("lock:job"), "nil");
}
