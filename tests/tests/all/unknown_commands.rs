//! Commands that lockwarden's own table does not have: the server's description of such a command may be a reason to refuse
//! it, and never a reason to let it pass. See docs/commands.md#commands-that-are-not-here.

use lockwarden_tests::{Client, Mode, Proxy, ProxyBuilder, Redis, Server};

/// A server whose commands have other names.
fn renamed() -> Redis {
    Redis::with_arguments(&[
        "--rename-command",
        "FLUSHALL",
        "WIPE",
        "--rename-command",
        "SWAPDB",
        "EXCHANGE",
        "--rename-command",
        "STRLEN",
        "LENGTH",
        "--rename-command",
        "APPEND",
        "ATTACH",
        "--rename-command",
        "CONFIG",
        "SETTINGS",
    ])
}

fn held(redis: &Redis, configure: impl FnOnce(ProxyBuilder) -> ProxyBuilder) -> (Proxy, Client) {
    let proxy = configure(Proxy::builder(redis)).start();
    let holder = proxy.client();
    holder.sends("SET lock:job a1 NX PX 60000").gets("+OK");
    (proxy, holder)
}

#[test]
fn a_flush_by_another_name_empties_nothing() {
    let redis = renamed();
    let (proxy, holder) = held(&redis, |proxy| proxy);
    let stranger = proxy.client();
    for line in ["WIPE", "wipe ASYNC", "EXCHANGE 0 1"] {
        let name = line.split(' ').next().unwrap_or_default().to_uppercase();
        let error = stranger.sends(line).gets_error("LOCKDENIED bulk-delete cmd=");
        assert!(error.contains(&format!("cmd={name} ")), "{error}");
        assert!(error.contains("unknown_commands"), "{error}");
    }
    // Also where the server cannot be asked in between.
    let fresh = proxy.client();
    fresh.sends("MULTI").gets("+OK");
    fresh.sends("WIPE").gets_error("LOCKDENIED bulk-delete");
    fresh.sends("EXEC").gets_error("EXECABORT");
    holder.sends("GET lock:job").gets("$2 a1");
    proxy.logs(&["refused", "\"WIPE\""]);
}

#[test]
fn a_block_may_begin_with_a_name_that_was_not_asked_for() {
    let redis = renamed();
    let (proxy, holder) = held(&redis, |proxy| proxy);
    let client = proxy.client();
    client.sends("MULTI").gets("+OK");
    client.sends("ATTACH plain x").gets("+QUEUED");
    client.sends("ATTACH lock:job x").gets_error("LOCKDENIED opaque-write key=lock:job cmd=ATTACH");
    client.sends("EXEC").gets_error("EXECABORT");
    client.sends("MULTI").gets("+OK");
    client.sends("ATTACH plain x").gets("+QUEUED");
    client.sends("EXEC").gets("[:1]");
    holder.sends("GET lock:job").gets("$2 a1");
}

/// Whatever its flags: a server also calls a command a read that writes.
#[test]
fn a_lock_among_the_words_of_an_unknown_command_refuses_it() {
    let redis = renamed();
    let (proxy, _holder) = held(&redis, |proxy| proxy);
    let stranger = proxy.client();
    for line in ["LENGTH lock:job", "ATTACH lock:job x", "length LOCK lock:job"] {
        let error = stranger.sends(line).gets_error("LOCKDENIED opaque-write key=lock:job cmd=");
        assert!(!error.contains("UNKNOWN"), "{error}");
    }
    stranger.sends("ATTACH plain x").gets(":1");
    stranger.sends("LENGTH plain").gets(":1");
    // A command that no server has gets the server's own error.
    for line in ["NOSUCH lock:job", "NOSUCH plain", "NOSUCH"] {
        stranger.sends(line).gets_error("ERR unknown command ");
    }
}

#[test]
fn the_operator_says_what_passes_and_what_does_not() {
    let redis = renamed();
    let list = "[\"pass:Wipe\", \"pass:LENGTH\", \"refuse:attach\"]";
    let (proxy, _holder) = held(&redis, |proxy| proxy.top("unknown_commands", list));
    let client = proxy.client();
    client.sends("LENGTH lock:job").gets(":2");
    // Not the proxy's own.
    client
        .sends("LENGTH lw:{}:lockwarden-prefix")
        .gets_error("LOCKDENIED opaque-write key=lw:{}:lockwarden-prefix cmd=LENGTH");
    client.sends("ATTACH plain x").gets_error("LOCKDENIED bulk-delete cmd=ATTACH");
    redis.client().sends("SET plain x").gets("+OK");
    client.sends("WIPE").gets("+OK");
    redis.client().sends("EXISTS plain lock:job").gets(":0");
}

#[test]
fn who_may_administer_may_do_so_by_another_name() {
    let redis = renamed();
    let user = "ACL SETUSER ops on >pw ~* &* +@all";
    redis.client().sends(user).gets("+OK");
    let (proxy, _holder) =
        held(&redis, |proxy| proxy.top("server_commands", "\"refuse\"").top("admin_identities", "[\"user:ops\"]"));
    let (stranger, ops) = (proxy.client(), proxy.client());
    ops.sends("AUTH ops pw").gets("+OK");
    stranger.sends("SETTINGS SET maxmemory-samples 5").gets_error("NOPERM");
    stranger.sends("WIPE").gets_error("NOPERM");
    ops.sends("SETTINGS SET maxmemory-samples 5").gets("+OK");
    ops.sends("WIPE").gets("+OK");
    proxy.logs(&["let through for one of admin_identities", "\"WIPE\""]);
}

#[test]
fn where_all_is_only_watched_they_are_counted_and_named() {
    let redis = renamed();
    let (proxy, _holder) = held(&redis, |proxy| proxy.mode(Mode::Monitor));
    let client = proxy.client();
    client.sends("LENGTH lock:job").gets(":2");
    client.sends("ATTACH lock:job x").gets(":3");
    client.sends("WIPE").gets("+OK");
    for name in ["LENGTH", "ATTACH", "WIPE"] {
        proxy.logs(&["would have been refused", &format!("\"{name}\"")]);
    }
    let would = "lockwarden_decisions_total{decision=\"would-deny\",reason=\"bulk-delete\"}";
    proxy.counts(would, 1.0);
    client.sends("SETTINGS GET maxmemory-samples").gets("[$17 maxmemory-samples, $1 5]");
}

/// The server's own words: it does not know the commands of KeyDB, and neither takes anything.
#[test]
fn commands_of_keydb_do_nothing_to_a_lock() {
    let redis = Redis::start();
    let (proxy, holder) = held(&redis, |proxy| proxy);
    let stranger = proxy.client();
    for line in ["KEYDB.NHSET lock:job f 1", "KEYDB.HRENAME lock:job a b", "EXPDEL lock:job"] {
        stranger.sends(line).gets_error("ERR unknown command");
    }
    stranger
        .sends("KEYDB.CRON c SINGLE 200 \"redis.call('del','lock:job')\" 1 lock:job")
        .gets_error("LOCKDENIED unsafe-script cmd=KEYDB.CRON");
    stranger.sends("RREPLAY uuid text").gets_error("LOCKDENIED unsafe-script cmd=RREPLAY");
    holder.sends("GET lock:job").gets("$2 a1");
}

/// Redis 8.4 has it, and older servers reply for themselves; the step is the proxy's own.
#[test]
fn msetex_takes_all_locks_or_none_with_its_ttl() {
    // A server that does not list its commands.
    let redis = Redis::with_arguments(&["--rename-command", "COMMAND", ""]);
    let proxy = Proxy::enforcing(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("MSETEX 2 lock:{x}:1 a1 lock:{x}:2 a2 NX PX 9000").gets(":1");
    for key in ["lock:{x}:1", "lock:{x}:2"] {
        let left = redis.pttl(key);
        assert!((5_000..=9_000).contains(&left), "{key} has a PTTL of {left}");
        assert!(redis.fence(key) > 0);
    }
    bob.sends("MSETEX 2 lock:{x}:2 b lock:{x}:3 b EX 9 NX").gets(":0");
    assert!(redis.is_free("lock:{x}:3"), "all or none");
    for line in ["MSETEX 1 lock:{x}:2 b", "MSETEX 1 lock:{x}:2 b XX", "MSETEX 2 lock:{x}:3 b plain b NX"] {
        bob.sends(line).gets_error("LOCKDENIED opaque-write key=lock:{x}:");
    }
    bob.sends("DEL lock:{x}:1 lock:{x}:2").gets(":0");
    alice.sends("DEL lock:{x}:1 lock:{x}:2").gets(":2");
}

#[test]
fn a_server_without_msetex_says_so_itself_and_nothing_is_taken() {
    if Server::under_test().since(8, 4) {
        return;
    }
    for mode in [Mode::Enforce, Mode::Monitor] {
        let redis = Redis::start();
        let proxy = Proxy::builder(&redis).mode(mode).start();
        let client = proxy.client();
        let line = "MSETEX 1 lock:a 1 NX EX 5";
        let said = redis.client().sends(line).reply().to_string();
        client.sends(line).gets(&said);
        assert!(redis.is_free("lock:a"), "{mode:?}");
        client.sends("PING").gets("+PONG");
    }
}
