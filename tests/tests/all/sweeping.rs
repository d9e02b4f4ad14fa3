//! Locks that the proxy has not seen in a command, because they are older than it or were taken around it,
//! are found by a slow walk over the server's keys.

use lockwarden_tests::{Mode, Proxy, Redis, Server, wait_for};

const UNGOVERNED: &str = "lockwarden_ungoverned_locks{namespace=\"locks\"";

#[test]
fn the_first_walk_shows_what_is_there() {
    let redis = Redis::start();
    let around = redis.client();
    around.sends("SET lock:old 1").gets("+OK");
    around.sends("SET lock:timed 1 PX 60000").gets("+OK");
    around.sends("HSET lock:hash f 1").gets(":1");
    around.sends("SET plain 1").gets("+OK");
    around.sends("SELECT 3").gets("+OK");
    around.sends("SET lock:elsewhere 1").gets("+OK");
    let proxy = Proxy::enforcing(&redis);
    proxy.counts(&format!("{UNGOVERNED},ttl=\"none\"}}"), 3.0);
    proxy.counts(&format!("{UNGOVERNED},ttl=\"finite\"}}"), 1.0);
    proxy.logs(&["locks on the server", "\"ungoverned\":4", "\"without_ttl\":3"]);
    // Counted, and nothing else.
    assert_eq!(redis.pttl("lock:old"), -1);
}

#[test]
fn governed_locks_of_another_proxy_are_shown_too() {
    let redis = Redis::start();
    let first = Proxy::builder(&redis).default_ttl("9s").start();
    first.client().sends("SETNX lock:a 1").gets(":1");
    let second = Proxy::builder(&redis).top("sweep", "\"200ms\"").start();
    second.counts("lockwarden_locks_held{namespace=\"locks\",ttl=\"finite\"}", 1.0);
    first.client().sends("SETNX lock:b 1").gets(":1");
    second.counts("lockwarden_locks_held{namespace=\"locks\",ttl=\"finite\"}", 2.0);
    second.counts(&format!("{UNGOVERNED},ttl=\"none\"}}"), 0.0);
}

#[test]
fn a_walk_gives_a_ttl_where_the_operator_says_so() {
    let redis = Redis::start();
    let around = redis.client();
    around.sends("SET lock:old 1").gets("+OK");
    around.sends("SET lock:timed 1 PX 60000").gets("+OK");
    around.sends("SET plain 1").gets("+OK");
    let watching = Proxy::builder(&redis).mode(Mode::Monitor).namespace("adopt", "\"cap\"").start();
    watching.client().sends("SETNX lock:seen 1").gets(":1");
    watching.counts(&format!("{UNGOVERNED},ttl=\"none\"}}"), 1.0);
    assert_eq!(redis.pttl("lock:old"), -1, "only watched");
    let proxy = Proxy::builder(&redis).namespace("adopt", "\"cap\"").top("sweep", "\"200ms\"").start();
    proxy.logs(&["locks on the server", "\"adopted\":1"]);
    wait_for("the ceiling", || redis.pttl("lock:old") > 0);
    assert!(redis.pttl("lock:old") <= 10_000);
    // Recorded in monitor mode, without a TTL: it has got the default.
    redis.becomes_free("lock:seen");
    assert!(redis.pttl("lock:timed") > 10_000);
    assert_eq!(redis.pttl("plain"), -1);
    // A lock that is taken around the proxy later.
    around.sends("SET lock:new 1").gets("+OK");
    wait_for("the ceiling", || redis.pttl("lock:new") > 0);
    proxy.counts(&format!("{UNGOVERNED},ttl=\"none\"}}"), 0.0);
}

#[test]
fn the_proxys_own_keys_are_no_locks_whatever_the_globs_say() {
    for (keys, lock) in [("*_running", "a_running"), ("*:lock", "a:lock"), ("*", "a")] {
        let redis = Redis::start();
        let proxy = Proxy::builder(&redis)
            .namespace("keys", &format!("[\"{keys}\"]"))
            .namespace("adopt", "\"cap\"")
            .top("sweep", "\"100ms\"")
            .start();
        // A lease that ran out, and another of the same client: its release would be owed.
        let client = proxy.client();
        client.sends(format!("SET {lock} 1 NX PX 30")).gets("+OK");
        redis.becomes_free(lock);
        client.sends(format!("SET {lock} 1 NX PX 9000")).gets("+OK");
        let own = redis.client().sends(format!("KEYS lw:{{*}}?{lock}")).reply();
        assert_eq!(own.elements().len(), 2, "a record and a debt: {own}");
        redis.client().sends(format!("SET b{lock} 1")).gets("+OK");
        proxy.logs(&["locks on the server", "\"adopted\":1"]);
        proxy.counts("lockwarden_locks_held{namespace=\"locks\",ttl=\"finite\"}", 1.0);
        for (ttl, expected) in [("none", 0.0), ("finite", 1.0)] {
            proxy.counts(&format!("{UNGOVERNED},ttl=\"{ttl}\"}}"), expected);
        }
        let (_, listed) = proxy.get("/api/v1/locks");
        assert!(!listed.contains("lw:"), "{keys}: {listed}");
    }
}

#[test]
fn a_walk_over_many_keys_comes_to_its_end() {
    let redis = Redis::start();
    redis
        .client()
        .sends("EVAL \"for i = 1, 3000 do redis.call('set', 'lock:' .. i, 1) redis.call('set', 'key:' .. i, 1) end\" 0")
        .gets("nil");
    let proxy = Proxy::enforcing(&redis);
    proxy.counts(&format!("{UNGOVERNED},ttl=\"none\"}}"), 3000.0);
}

#[test]
fn no_walk_where_the_operator_wants_none() {
    let redis = Redis::start();
    redis.client().sends("SET lock:old 1").gets("+OK");
    let proxy = Proxy::builder(&redis).top("sweep", "\"off\"").start();
    proxy.client().sends("SETNX lock:a 1").gets(":1");
    assert_eq!(proxy.logged(&["locks on the server"]), 0);
    let scans = redis.client().sends("INFO commandstats").text();
    // Before Redis 7.0 each right of the proxy's own connection is tried by one call.
    let tried = !Server::under_test().since(7, 0) && scans.contains("cmdstat_scan:calls=1,");
    assert!(tried || !scans.contains("cmdstat_scan"), "{scans}");
}
