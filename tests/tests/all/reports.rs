//! What `lockwarden_observations_total` and its log lines report about pools, shared connections and owner
//! tokens, in both modes and for every form of a command. The setting that each report suggests:
//! docs/ownership.md. All clients of a test are one process; those from one address are one client.

use lockwarden_tests::{Client, Mode, Proxy, ProxyBuilder, Redis, wait_for};

const ALICES: &str = "127.41.0.1";
const BOBS: &str = "127.41.0.2";
/// Long enough to be distinctive, and yet the same everywhere.
const SAME: &str = "the-same-value-everywhere";

const DELETE: &str = "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) end return 0";
const ACQUIRE: &str =
    "if redis.call('setnx', KEYS[1], ARGV[1]) == 1 then redis.call('pexpire', KEYS[1], ARGV[2]) return 1 end return 0";
/// A lock that is a hash: no recipe, so it is wrapped.
const ENTER: &str = "if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[1]) == 1 then \
    redis.call('hincrby', KEYS[1], ARGV[1], 1) redis.call('pexpire', KEYS[1], ARGV[2]) return 'in' end return 'out'";
const LEAVE: &str = "return redis.call('del', KEYS[1], KEYS[2])";

fn kind(name: &str) -> String {
    format!("lockwarden_observations_total{{namespace=\"locks\",kind=\"{name}\"}}")
}

/// Plays this in each mode.
fn in_both_modes(redis: &Redis, play: impl Fn(Mode, &dyn Fn() -> ProxyBuilder)) {
    for mode in [Mode::Enforce, Mode::Monitor] {
        redis.client().sends("FLUSHALL").gets("+OK");
        play(mode, &|| Proxy::builder(redis).mode(mode));
    }
}

#[test]
fn a_value_that_two_clients_take_locks_with_is_reported() {
    let redis = Redis::start();
    in_both_modes(&redis, |_, proxy| {
        let proxy = proxy().start();
        let (alice, bob) = (proxy.client_from(ALICES), proxy.client_from(BOBS));
        bob.sends("CLIENT SETNAME stock").gets("+OK");
        let shared = kind("shared-token");

        // The value is Alice's alone, whichever locks she takes with it; and a deadline names no client.
        for lock in ["lock:a", "lock:a", "lock:b"] {
            alice.sends(format!("SET {lock} {SAME} NX PX 9000")).gets("+OK");
            alice.sends(format!("DEL {lock}")).gets(":1");
        }
        alice.sends("SETNX lock:t 1795261000").gets(":1");
        bob.sends("SETNX lock:u 1795261000").gets(":1");
        bob.sends("SET lock:a bobs-own-8c1f0a2e9b7d NX PX 9000").gets("+OK");
        bob.sends("DEL lock:a").gets(":1");
        assert_eq!(proxy.metric(&shared), 0.0);

        // Bob uses it, too, for another lock: as a verb, in a block, in a recipe, in any script.
        bob.sends(format!("SET lock:c {SAME} NX PX 9000")).gets("+OK");
        proxy.counts(&shared, 1.0);
        let set = format!("SET lock:d {SAME} NX PX 9000");
        bob.pipelines(&["MULTI", &set, "EXEC"], &["+OK", "+QUEUED", "[+OK]"]);
        proxy.counts(&shared, 2.0);
        assert_eq!(bob.eval(ACQUIRE, &["lock:e"], &[SAME, "9000"]), ":1");
        proxy.counts(&shared, 3.0);
        assert_eq!(bob.eval(ENTER, &["lock:f"], &[SAME, "9000"]), "$2 in");
        proxy.counts(&shared, 4.0);
        // Alice's grants count from now on as well.
        bob.sends("DEL lock:c").gets(":1");
        alice.sends(format!("SET lock:c {SAME} NX PX 9000")).gets("+OK");
        proxy.counts(&shared, 5.0);

        // One line a minute, with an example, and never the value.
        let line = ["\"message\":\"observed\"", "\"kind\":\"shared-token\""];
        proxy.logs(&[line[0], line[1], "\"key\":\"lock:c\"", "\"name\":\"stock\"", BOBS]);
        assert_eq!(proxy.logged(&line), 1);
        assert_eq!(proxy.logged(&[SAME]), 0);
    });
}

/// Two proxies know nothing of each other; the record of the lock does.
#[test]
fn a_value_that_came_by_another_proxy_is_shared_on_the_same_lock() {
    let redis = Redis::start();
    in_both_modes(&redis, |_, proxy| {
        let (one, two) = (proxy().start(), proxy().start());
        let (alice, bob) = (one.client_from(ALICES), two.client_from(BOBS));
        let shared = kind("shared-token");
        for (at, key) in ["lock:a", "lock:b", "lock:c", "lock:d"].into_iter().enumerate() {
            let take = |client: &Client| match key {
                "lock:a" => client.sends("SETNX lock:a 1").gets(":1"),
                "lock:b" => client.sends("SET lock:b 2 EX 9").gets("+OK"),
                "lock:c" => assert_eq!(client.eval(ENTER, &[key], &["three", "9000"]), "$2 in"),
                _ => client.sends("MSETNX lock:d 4").gets(":1"),
            };
            let counted = at as f64;
            take(&alice);
            alice.sends(format!("DEL {key}")).gets(":1");
            take(&alice);
            alice.sends(format!("DEL {key}")).gets(":1");
            assert_eq!(one.metric(&shared), counted);
            take(&bob);
            two.counts(&shared, counted + 1.0);
            bob.sends(format!("DEL {key}")).gets(":1");
            take(&alice);
            one.counts(&shared, counted + 1.0);
        }
    });
}

#[test]
fn a_shared_value_takes_no_lock_where_the_setting_says_so() {
    let redis = Redis::start();
    let denied = "lockwarden_decisions_total{namespace=\"locks\",operation=\"acquire\",decision=\"deny\",reason=\"shared-token\"}";
    let would = "lockwarden_decisions_total{namespace=\"locks\",operation=\"acquire\",decision=\"would-deny\",reason=\"shared-token\"}";
    in_both_modes(&redis, |mode, proxy| {
        let proxy = proxy().setting("owner-token", "shared_tokens", "\"deny\"").start();
        let (alice, bob) = (proxy.client_from(ALICES), proxy.client_from(BOBS));
        alice.sends(format!("SET lock:a {SAME} NX PX 9000")).gets("+OK");
        let tries = [
            format!("SET lock:b {SAME} NX PX 9000"),
            format!("SET lock:b {SAME} PX 9000"),
            format!("EVAL \"{ACQUIRE}\" 1 lock:b {SAME} 9000"),
            format!("EVAL \"{ENTER}\" 1 lock:h {SAME} 9000"),
        ];
        for (at, line) in tries.iter().enumerate() {
            match mode {
                Mode::Enforce => {
                    let error = bob.sends(line).gets_error("LOCKDENIED shared-token");
                    assert!(!error.contains(SAME), "{error}");
                    proxy.counts(denied, at as f64 + 1.0);
                }
                Mode::Monitor => {
                    bob.sends(line).reply();
                    bob.sends("DEL lock:b lock:h").gets(":1");
                    proxy.counts(would, at as f64 + 1.0);
                }
            }
        }
        if mode == Mode::Enforce {
            assert!(redis.is_free("lock:b") && redis.is_free("lock:h"));
            let line = format!("SET lock:b {SAME} NX PX 9000");
            bob.sends("MULTI").gets("+OK");
            bob.sends(&line).gets_error("LOCKDENIED shared-token");
            bob.sends("EXEC").gets_error("EXECABORT");
            // It is Alice's, and stays so.
            alice.sends("DEL lock:a").gets(":1");
            alice.sends(format!("SET lock:a {SAME} NX PX 9000")).gets("+OK");
            assert_eq!(proxy.metric(&kind("shared-token")), 0.0);
            bob.sends("SET lock:b bobs-own-8c1f0a2e9b7d NX PX 9000").gets("+OK");
        }
    });
}

/// A repetition is told that it holds the lock because the value is its own. This one is no client's own.
#[test]
fn a_shared_value_is_no_repetition() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis)
        .namespace("on_repeat", "\"grant\"")
        .setting("owner-token", "trust_address", "\"process\"")
        .start();
    let (alice, bob) = (proxy.client_from(ALICES), proxy.client_from(BOBS));
    for (client, name) in [(&alice, "alice"), (&bob, "bob")] {
        client.sends(format!("CLIENT SETNAME {name}")).gets("+OK");
    }
    let take = format!("SET lock:a {SAME} NX PX 9000");
    alice.sends(&take).gets("+OK");
    alice.sends(&take).gets("+OK");
    bob.sends(format!("SET lock:b {SAME} NX PX 9000")).gets("+OK");
    alice.sends(&take).gets("nil");
}

#[test]
fn a_connection_that_is_refused_its_own_lock_is_shared_by_threads() {
    let redis = Redis::start();
    in_both_modes(&redis, |_, proxy| {
        let (one, two) = (proxy().start(), proxy().start());
        let (alice, bob) = (one.client_from(ALICES), two.client_from(BOBS));
        let shared = kind("shared-session");
        alice.sends("SETNX lock:a 1").gets(":1");
        bob.sends("SETNX lock:a 1").gets(":0");
        alice.sends("SETNX lock:a 1").gets(":0");
        one.counts(&shared, 1.0);
        alice.pipelines(&["MULTI", "SETNX lock:a 1", "EXEC"], &["+OK", "+QUEUED", "[:0]"]);
        one.counts(&shared, 2.0);
        assert_eq!(alice.eval(ACQUIRE, &["lock:a"], &["1", "9000"]), ":0");
        one.counts(&shared, 3.0);
        alice.sends("MSETNX lock:free 1 lock:a 1").gets(":0");
        one.counts(&shared, 4.0);
        // Another field of a hash: another holder, over the same connection.
        assert_eq!(alice.eval(ENTER, &["lock:h"], &[SAME, "9000"]), "$2 in");
        assert_eq!(alice.eval(ENTER, &["lock:h"], &["another-thread-of-it", "9000"]), "$3 out");
        one.counts(&shared, 5.0);
        // It held this lock, and does no more: its value gave it back over the other proxy.
        alice.sends(format!("SET lock:b {SAME} NX PX 9000")).gets("+OK");
        assert_eq!(bob.eval(DELETE, &["lock:b"], &[SAME]), ":1");
        bob.sends("SET lock:b bobs-own-8c1f0a2e9b7d NX PX 9000").gets("+OK");
        alice.sends("SETNX lock:b 1").gets(":0");
        assert_eq!(one.metric(&shared), 5.0);
        assert_eq!(two.metric(&shared), 0.0);
        one.logs(&["\"kind\":\"shared-session\"", "\"key\":\"lock:a\"", ALICES]);
    });
}

#[test]
fn a_tokenless_release_or_extension_after_a_refusal_is_reported() {
    let redis = Redis::start();
    in_both_modes(&redis, |mode, proxy| {
        let (one, two) = (proxy().start(), proxy().start());
        let (alice, bob) = (one.client_from(ALICES), two.client_from(BOBS));
        let found = kind("refused-then-released");
        let takes = format!("SET lock:a {SAME} NX PX 9000");
        let mut counted = 0.0;
        // Each meets Alice's lease, and would end or prolong it.
        for line in ["DEL lock:a", "UNLINK lock:a other", "EXPIRE lock:a 20", "GETDEL lock:a", "PEXPIRE lock:a 0"] {
            redis.client().sends("DEL lock:a").reply();
            alice.sends(&takes).gets("+OK");
            bob.sends("SETNX lock:a 1").gets(":0");
            bob.sends(line).reply();
            counted += 1.0;
            two.counts(&found, counted);
        }
        redis.client().sends("DEL lock:a").reply();
        alice.sends(&takes).gets("+OK");
        let (block, queued) = (["MULTI", "SETNX lock:a 1", "DEL lock:a", "EXEC"], "+QUEUED");
        let deleted = match mode {
            Mode::Enforce => "[:0, :0]",
            Mode::Monitor => "[:0, :1]",
        };
        bob.pipelines(&block, &["+OK", queued, queued, deleted]);
        two.counts(&found, counted + 1.0);
        redis.client().sends("DEL lock:a").reply();
        alice.sends(&takes).gets("+OK");
        bob.sends("SETNX lock:a 1").gets(":0");
        bob.eval(LEAVE, &["lock:a", "other"], &[]);
        two.counts(&found, counted + 2.0);

        // Not commands that name the owner, nor one that meets no lease, nor one that was not refused.
        redis.client().sends("DEL lock:a").reply();
        alice.sends(&takes).gets("+OK");
        bob.sends("SETNX lock:a 1").gets(":0");
        assert_eq!(bob.eval(DELETE, &["lock:a"], &["bobs-own-8c1f0a2e9b7d"]), ":0");
        alice.sends("DEL lock:a").gets(":1");
        bob.sends("DEL lock:a").gets(":0");
        bob.sends("SETNX lock:a 1").gets(":1");
        bob.sends("DEL lock:a").gets(":1");
        assert_eq!(two.metric(&found), counted + 2.0);
        assert_eq!(one.metric(&found), 0.0);
        two.logs(&["\"kind\":\"refused-then-released\"", "\"key\":\"lock:a\"", BOBS]);
        assert_eq!(two.logged(&["\"kind\":\"refused-then-released\""]), 1);
    });
}

/// F7: in enforce mode such a marker is cut and goes with its connection, so there it is news as well.
#[test]
fn a_lock_that_is_meant_to_outlive_its_connection_is_reported() {
    let redis = Redis::start();
    let day = "86400000";
    in_both_modes(&redis, |_, proxy| {
        let proxy = proxy().start();
        let outlived = kind("outlived");
        let leaves = |lines: &[&str]| {
            let client = proxy.client_from(ALICES);
            for line in lines {
                client.sends(line).reply();
            }
            drop(client);
            wait_for("the client to be gone", || proxy.metric("lockwarden_client_connections") == 0.0);
        };
        leaves(&["SET lock:short 1 NX PX 5000"]);
        leaves(&["SETNX lock:none 1"]);
        leaves(&["SET lock:back 1 NX EX 86400", "DEL lock:back"]);
        leaves(&["SET lock:less 1 NX EX 86400", "EXPIRE lock:less 5"]);
        assert_eq!(proxy.metric(&outlived), 0.0);
        leaves(&["SET lock:day 1 NX EX 86400"]);
        proxy.counts(&outlived, 1.0);
        leaves(&["SETNX lock:more 1", "EXPIRE lock:more 86400"]);
        proxy.counts(&outlived, 2.0);
        leaves(&["MULTI", "SET lock:block 1 NX EX 86400", "EXEC"]);
        proxy.counts(&outlived, 3.0);
        leaves(&[&format!("EVAL \"{ACQUIRE}\" 1 lock:recipe 1 {day}")]);
        proxy.counts(&outlived, 4.0);
        leaves(&[&format!("EVAL \"{ENTER}\" 1 lock:script {SAME} {day}")]);
        proxy.counts(&outlived, 5.0);
        proxy.logs(&["\"kind\":\"outlived\"", "\"key\":\"lock:day\"", ALICES]);
        assert_eq!(proxy.logged(&["\"kind\":\"outlived\""]), 1);
    });
}

/// The first act of a holder that does not know that its lease is over is counted once, whatever the act.
/// Where the act took the lock away from another client, the late client is now the holder, and late no more.
#[test]
fn a_late_holders_first_act_is_one_overlap_in_either_mode() {
    const SCRIPT: &str =
        "EVAL \"redis.call('del', KEYS[2]) return redis.call('set', KEYS[1], ARGV[1], 'PX', 9000)\" 2 lock:a plain";
    let redis = Redis::start();
    in_both_modes(&redis, |mode, proxy| {
        let proxy = proxy().start();
        let (alice, bob) = (proxy.client_from(ALICES), proxy.client_from(BOBS));
        let own = "alices-own-8c1f0a2e9b7d";
        for (at, act) in [
            format!("SET lock:a {own} XX PX 9000"),
            format!("SET lock:a {own} PX 9000"),
            format!("SETEX lock:a 9 {own}"),
            format!("GETSET lock:a {own}"),
            format!("{SCRIPT} {own}"),
            "EXPIRE lock:a 9".to_owned(),
            "DEL lock:a".to_owned(),
        ]
        .into_iter()
        .enumerate()
        {
            alice.sends("SET lock:a alices-first-8c1f0a2e9 NX PX 9000").gets("+OK");
            redis.runs_out(&alice, "lock:a");
            bob.sends("SET lock:a bobs-own-8c1f0a2e9b7d NX PX 9000").gets("+OK");
            alice.sends(&act).reply();
            proxy.counts("lockwarden_lock_overlaps_total", at as f64 + 1.0);
            if mode == Mode::Monitor && act.contains(own) {
                alice.sends("DEL lock:a").gets(":1");
            }
            assert_eq!(proxy.metric("lockwarden_lock_overlaps_total"), at as f64 + 1.0, "{act}");
            redis.client().sends("FLUSHALL").gets("+OK");
        }
    });
}

/// On the wire, a late thread's write over a shared connection is the holder's.
#[test]
fn writes_of_guarded_data_over_a_connection_on_which_a_lease_ran_out_are_reported() {
    let redis = Redis::start();
    let guard = "[[guard]]\nname = \"stock\"\nkeys = [\"stock:{id}\"]\nlock = \"lock:sale:{id}\"\n";
    for mode in ["monitor", "enforce"] {
        redis.client().sends("FLUSHALL").gets("+OK");
        let guard = format!("{guard}mode = \"{mode}\"\n");
        let proxy = Proxy::builder(&redis).more(&guard).start();
        let shared = kind("shared-guard");
        let (alice, bob) = (proxy.client_from(ALICES), proxy.client_from(BOBS));
        let lets_run_out = |client: &Client, lock: &str, value: &str| {
            client.sends(format!("SET {lock} {value} NX PX 50")).gets("+OK");
            redis.becomes_free(lock);
        };
        let takes = |client: &Client, lock: &str, value: &str| {
            client.sends(format!("SET {lock} {value} NX PX 60000")).gets("+OK");
        };
        let gives_back = |client: &Client, lock: &str, value: &str| client.eval(DELETE, &[lock], &[value]);

        // A worker with a connection of its own, late or not; and its lease was the last one, or it was not.
        lets_run_out(&alice, "lock:sale:1", "alices-first-5f1e0c");
        assert_eq!(gives_back(&alice, "lock:sale:1", "alices-first-5f1e0c"), ":0");
        takes(&alice, "lock:sale:1", "alices-second-77ab02");
        alice.sends("SET stock:1 99").gets("+OK");
        lets_run_out(&bob, "lock:sale:2", "bobs-first-09d8aa10c");
        takes(&alice, "lock:sale:2", "alices-third-61c2b0a");
        alice.sends("SET stock:2 99").gets("+OK");
        assert_eq!(proxy.metric(&shared), 0.0, "{mode}");

        // A thread lets its lease run out, and another takes the lock over the same connection.
        lets_run_out(&alice, "lock:sale:3", "alices-fourth-20b1e3");
        takes(&alice, "lock:sale:3", "alices-fifth-c93f55d");
        assert_eq!(proxy.metric(&shared), 0.0, "{mode}: nothing was written");
        alice.sends("SET stock:3 99").gets("+OK");
        proxy.counts(&shared, 1.0);
        let line = ["\"message\":\"observed\"", "\"kind\":\"shared-guard\"", "\"key\":\"lock:sale:3\"", ALICES];
        proxy.logs(&line);
        assert_eq!(gives_back(&alice, "lock:sale:3", "alices-fifth-c93f55d"), ":1");
        takes(&alice, "lock:sale:3", "alices-sixth-1a7be80");
        alice.sends("SET stock:3 98").gets("+OK");
        assert_eq!(proxy.metric(&shared), 1.0, "{mode}: that was given back");

        // Three connections of a pool.
        let (second, third) = (proxy.client_from(ALICES), proxy.client_from(ALICES));
        // The process of each has been looked up when one gave back a lock that the other took.
        takes(&second, "lock:other", "alices-other-5d7f9012");
        third.sends("DEL lock:other").gets(":1");
        lets_run_out(&alice, "lock:sale:4", "alices-seventh-8d20f");
        takes(&second, "lock:sale:4", "alices-eighth-3b9e41");
        let reply = third.sends("SET stock:4 99").reply().to_string();
        assert_eq!(reply.starts_with("-LOCKDENIED stale-fence"), mode == "enforce", "{reply}");
        proxy.counts(&shared, 2.0);
        bob.sends("SET stock:4 98").reply();
        assert_eq!(proxy.metric(&shared), 2.0, "{mode}");
    }
}
