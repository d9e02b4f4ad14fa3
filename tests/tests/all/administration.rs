//! Which users may administer the server through the proxy, what the listed ones may do in spite of leases,
//! and functions that an operator trusts with locks.

use lockwarden_tests::{Mode, Proxy, Redis, Server, World};

/// One command of every kind that only administrators may send where others are refused.
const ADMINISTRATION: &[&str] = &[
    "ACL LIST",
    "ACL GETUSER default",
    "CONFIG GET requirepass",
    "CONFIG GET *",
    "CONFIG GET maxmemory requirepass",
    "CONFIG SET maxmemory 0",
    "CONFIG RESETSTAT",
    "DEBUG SLEEP 0",
    "MODULE LIST",
    "MEMORY PURGE",
    "SLOWLOG RESET",
    "LATENCY RESET",
    "FUNCTION FLUSH",
    "SCRIPT KILL",
    "REPLICAOF no one",
    "FLUSHALL",
    "flushdb",
    "SWAPDB 1 2",
    "MIGRATE 127.0.0.1 1 plain 0 10",
    "MIGRATE 127.0.0.1 1 lock:job 0 10",
];

const HARMLESS: &[&str] = &[
    "CONFIG GET maxmemory",
    "config get SAVE appendonly",
    "CONFIG GET databases",
    "CONFIG GET notify-keyspace-events",
    "ACL WHOAMI",
    "SLOWLOG LEN",
    "FUNCTION LIST",
    "COMMAND COUNT",
    "LASTSAVE",
    "DBSIZE",
];

/// With a user `operator`.
fn redis_with_an_operator() -> Redis {
    let redis = Redis::start();
    let user = "ACL SETUSER operator on >pw ~* &* +@all";
    redis.client().sends(user).gets("+OK");
    redis
}

#[test]
fn where_server_commands_are_refused_only_those_on_the_list_administer() {
    let redis = redis_with_an_operator();
    let proxy = Proxy::builder(&redis)
        .mode(Mode::Monitor)
        .top("server_commands", "\"refuse\"")
        .top("admin_identities", "[\"operator\"]")
        .start();
    let (alice, direct) = (proxy.client(), redis.client());
    for line in ADMINISTRATION {
        let text = alice.sends(*line).gets_error("NOPERM this user has no ");
        let words = text.split('\'').nth(1).expect("the command in quotes");
        assert!(line.to_lowercase().starts_with(&words.replace('|', " ")), "{line}: {text}");
        assert!(text.ends_with("through lockwarden (server_commands = \"refuse\")"));
    }
    for line in HARMLESS {
        let expected = direct.sends(*line).reply();
        alice.sends(*line).gets(expected);
    }
    proxy.counts("lockwarden_commands_total{class=\"admin\",result=\"denied\"}", ADMINISTRATION.len() as f64);
    proxy.logs(&["\"message\":\"refused\"", "\"cmd\":\"SWAPDB\""]);
    alice.sends("MONITOR").gets_error("NOPERM ");
    alice.sends("PING").gets("+PONG");

    let operator = proxy.client();
    operator.sends("AUTH operator pw").gets("+OK");
    operator.sends("CONFIG SET maxmemory 0").gets("+OK");
    operator.sends("FLUSHALL").gets("+OK");
    operator.sends("MONITOR").gets("+OK");
}

#[test]
fn refused_administration_spoils_a_block() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).top("server_commands", "\"refuse\"").start();
    let alice = proxy.client();
    for line in ["FLUSHALL", "CONFIG SET maxmemory 0"] {
        alice.sends("MULTI").gets("+OK");
        alice.sends("SET plain 1").gets("+QUEUED");
        alice.sends(line).gets_error("NOPERM ");
        let text = alice.sends("EXEC").gets_error("EXECABORT ");
        assert!(text.contains("NOPERM this user"), "{text}");
        assert!(redis.is_free("plain"));
    }
}

/// Where the configuration does not mention them, every client that Redis allows may send them.
fn administration_passes_by_default(world: &World) {
    let alice = world.client();
    for line in ADMINISTRATION {
        let reply = alice.sends(*line).reply().to_string();
        assert!(!reply.contains("lockwarden ("), "{line}: {reply}");
    }
    for line in HARMLESS {
        let expected = world.redis().client().sends(*line).reply();
        alice.sends(*line).gets(expected);
    }
    alice.sends("SYNC now").gets_error("ERR wrong number of arguments");
}
in_every_world!(administration_passes_by_default);

#[test]
fn those_on_the_list_may_erase_locks_and_the_log_says_so() {
    let redis = redis_with_an_operator();
    redis.client().sends("ACL SETUSER keeper on >pw ~* &* +@all").gets("+OK");
    let proxy = Proxy::builder(&redis).top("admin_identities", "[\"operator\", \"user:keeper\"]").start();
    let alice = proxy.client();
    let (operator, keeper) = (proxy.client(), proxy.client());
    operator.sends("AUTH operator pw").gets("+OK");
    keeper.sends("AUTH keeper pw").gets("+OK");
    for (listed, who) in [(&operator, "\"user\":\"operator\""), (&keeper, "\"user\":\"keeper\"")] {
        alice.sends("SET lock:1 a1 NX PX 8000").gets("+OK");
        alice.sends("SET lock:2 a1 NX PX 8000").gets("+OK");
        listed.sends("FLUSHALL").gets("+OK");
        assert!(redis.is_free("lock:1") && redis.is_free("lock:2"));
        proxy.logs(&[
            "let through for one of admin_identities",
            "\"cmd\":\"FLUSHALL\"",
            "\"locks\":2",
            "\"counted_by\":\"redis\"",
            who,
        ]);
        alice.sends("SET lock:1 a1 NX PX 8000").gets("+OK");
        listed.sends("SWAPDB 0 1").gets("+OK");
        assert!(redis.is_free("lock:1"));
        listed.sends("SWAPDB 0 1").gets("+OK");
        let dump = listed.sends("DUMP lock:1").reply();
        let restore: [&[u8]; 5] = [b"RESTORE", b"lock:1", b"8000", dump.bytes(), b"REPLACE"];
        alice.sends_arguments(&restore).gets_error("LOCKDENIED opaque-write key=lock:1");
        listed.sends_arguments(&restore).gets("+OK");
        alice.sends("MIGRATE 127.0.0.1 1 lock:1 0 10").gets_error("LOCKDENIED opaque-write key=lock:1");
        listed.sends("MIGRATE 127.0.0.1 1 lock:1 0 10").gets_error("IOERR ");
        // A block of theirs is looked at as well, and goes on.
        listed.pipelines(&["MULTI", "FLUSHALL", "EXEC"], &["+OK", "+QUEUED", "[+OK]"]);
        assert!(redis.is_free("lock:1"));
    }
    proxy.logs(&["let through", "\"cmd\":\"SWAPDB\"", "\"counted_by\":\"proxy\""]);
    proxy.logs(&["let through", "\"cmd\":\"RESTORE\""]);
    // A client that logs out is no longer on the list.
    keeper.sends("RESET").gets("+RESET");
    alice.sends("SET lock:1 a1 NX PX 8000").gets("+OK");
    keeper.sends("FLUSHALL").gets_error("LOCKDENIED bulk-delete");
    proxy.counts("lockwarden_decisions_total{reason=\"bulk-delete\",decision=\"deny\"}", 1.0);
}

#[test]
fn a_lease_that_was_erased_by_leave_is_not_kept_alive() {
    let redis = redis_with_an_operator();
    let proxy = Proxy::builder(&redis).top("admin_identities", "[\"operator\"]").start();
    let (alice, operator) = (proxy.client(), proxy.client());
    operator.sends("AUTH operator pw").gets("+OK");
    alice.sends("SETNX lock:job a1").gets(":1");
    operator.sends("FLUSHALL").gets("+OK");
    proxy.counts("lockwarden_locks_held{ttl=\"finite\"}", 0.0);
    proxy.counts("lockwarden_keep_alive_renewals_total{outcome=\"ended\"}", 1.0);
    assert!(redis.is_free("lock:job"));
    let bob = proxy.client();
    bob.sends("SET lock:job b1 NX PX 8000").gets("+OK");
    alice.sends("DEL lock:job").gets(":0");
    assert_eq!(redis.value("lock:job"), "$2 b1");
    // Its TTL was not over, so no two holders overlapped.
    proxy.counts("lockwarden_lock_overlaps_total", 0.0);
}

#[test]
fn the_list_is_read_again_with_the_configuration() {
    let redis = redis_with_an_operator();
    let builder = Proxy::builder(&redis);
    let text = builder.text();
    let proxy = builder.start();
    let (alice, mallory) = (proxy.client(), proxy.client());
    alice.sends("AUTH operator pw").gets("+OK");
    mallory.sends("CLIENT SETNAME operator").gets("+OK");
    alice.sends("SET lock:job a1 NX PX 9000").gets("+OK");
    alice.sends("FLUSHALL").gets_error("LOCKDENIED bulk-delete");
    proxy.reload(&format!("admin_identities = [\"operator\"]\n{text}"));
    proxy.logs(&["configuration loaded"]);
    // Any client may call itself so.
    mallory.sends("FLUSHALL").gets_error("LOCKDENIED bulk-delete");
    alice.sends("FLUSHALL").gets("+OK");
}

const LIBRARY: &str = "#!lua name=mine\n\
    redis.register_function('take', function(keys, args) return redis.call('set', keys[1], args[1]) end)\n\
    redis.register_function{function_name='look', callback=function(keys) return redis.call('get', keys[1]) end, flags={'no-writes'}}";

#[test]
fn a_trusted_function_may_name_a_lock_key() {
    if Server::under_test().lacks("FUNCTION", 7, 0) {
        return;
    }
    let redis = Redis::start();
    redis.client().sends_arguments(&["FUNCTION", "LOAD", LIBRARY]).gets("$4 mine");
    for mode in [Mode::Enforce, Mode::Monitor] {
        let proxy = Proxy::builder(&redis).mode(mode).top("trusted_functions", "[\"Take\"]").start();
        let bob = proxy.client();
        bob.sends("FCALL take 1 lock:job thief").gets("+OK");
        // To Redis, too, the case of the name does not matter.
        bob.sends("FCALL TAKE 1 lock:job again").gets("+OK");
        bob.pipelines(&["MULTI", "FCALL take 1 lock:job 3", "EXEC"], &["+OK", "+QUEUED", "[+OK]"]);
        bob.sends("FCALL_RO look 1 lock:job").gets("$1 3");
        bob.sends("FCALL take 1 plain x").gets("+OK");
        proxy.counts("lockwarden_unjudged_commands_total{why=\"trusted-function\"}", 3.0);
        match mode {
            Mode::Enforce => {
                bob.sends("FCALL look 1 lock:job").gets_error("LOCKDENIED unsafe-script key=lock:job cmd=FCALL");
                bob.sends("FCALL take 1 lw:{0j4}:lock:job x")
                    .gets_error("LOCKDENIED opaque-write key=lw:{0j4}:lock:job");
            }
            Mode::Monitor => bob.sends("FCALL look 1 lock:job").gets("$1 3"),
        }
        redis.client().sends("DEL lock:job").reply();
    }
}

/// In the debugger `redis del lock:a` is a line that no proxy understands.
#[test]
fn a_script_is_not_debugged_where_locks_are_enforced() {
    let redis = redis_with_an_operator();
    let proxy = Proxy::builder(&redis).mode(Mode::Enforce).top("admin_identities", "[\"operator\"]").start();
    let client = proxy.client();
    for line in ["SCRIPT DEBUG YES", "SCRIPT DEBUG sync", "script debug what-comes-next"] {
        let text = client.sends(line).gets_error("LOCKDENIED unsafe-script ");
        assert!(text.contains(" cmd=SCRIPT-DEBUG policy=scripts id="), "{text}");
    }
    client.sends("EVAL \"return 1\" 0").gets(":1");
    client.sends("SCRIPT DEBUG NO").gets("+OK");
    client.sends("MULTI").gets("+OK");
    client.sends("SCRIPT DEBUG YES").gets_error("LOCKDENIED");
    client.sends("EXEC").gets_error("EXECABORT");
    client.sends("AUTH operator pw").gets("+OK");
    client.sends("SCRIPT DEBUG SYNC").gets("+OK");

    let watching = Proxy::monitoring(&redis);
    let watched = watching.client();
    watched.sends("SCRIPT DEBUG YES").gets("+OK");
    watched.sends("SCRIPT DEBUG NO").gets("+OK");
}
