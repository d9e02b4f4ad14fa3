//! Clients that hold a lock over one connection and give it back over another: pools, threads, names.
//! The rows B6, F4, F6 and F7 of the misuse catalogue. All clients of a test are one process; each
//! connects from a loopback address of its own, so those from one address are one client.

use std::process::Command;
use std::time::Duration;

use lockwarden_tests::{Client, Mode, Proxy, Redis, holds_for, wait_for};

const POOL: &str = "127.40.0.1";
const OTHERS: &str = "127.40.0.2";
const DEBTS: &str = "lockwarden_observations_total{namespace=\"locks\",kind=\"debt\"}";

fn pool<const N: usize>(proxy: &Proxy) -> [Client; N] {
    std::array::from_fn(|_| proxy.client_from(POOL))
}

/// A lease of this connection ends by itself.
fn runs_out(redis: &Redis, client: &Client, key: &str) {
    client.sends(format!("SET {key} 1 NX PX 9000")).gets("+OK");
    redis.runs_out(client, key);
}

/// The process of the holder was looked up and stands in the record.
fn is_identified(redis: &Redis) {
    wait_for("the holder's process to be in the record", || {
        let record = redis.record("lock:job").expect("a record");
        record.is_identified()
    });
}

/// B6, F6: at first the proxy has not yet looked at these connections, later it knows them.
#[test]
fn a_pool_releases_over_whichever_connection_comes_to_hand() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    for release in ["DEL lock:job", "UNLINK lock:job", "DEL plain lock:job", "EXPIRE lock:job 0"] {
        let [one, two] = pool(&proxy);
        for _ in 0..3 {
            one.sends("SETNX lock:job 1").gets(":1");
            two.sends("EXPIRE lock:job 9").gets(":1");
            two.sends(release).gets(":1");
            assert!(redis.is_free("lock:job"), "{release}");
        }
    }
    let [one, two] = pool(&proxy);
    one.sends("SETNX lock:job 1").gets(":1");
    two.sends("GETDEL lock:job").gets("$1 1");
    one.sends("SETNX lock:job 1").gets(":1");
    two.pipelines(&["MULTI", "DEL lock:job", "EXEC"], &["+OK", "+QUEUED", "[:1]"]);
    let stranger = proxy.client_from(OTHERS);
    one.sends("SETNX lock:job 1").gets(":1");
    stranger.sends("DEL lock:job").gets(":0");
    assert!(!redis.is_free("lock:job"));
}

#[test]
fn in_monitor_mode_a_pools_release_is_nothing_to_report() {
    let redis = Redis::start();
    let proxy = Proxy::monitoring(&redis);
    let [one, two] = pool(&proxy);
    for _ in 0..2 {
        one.sends("SETNX lock:job 1").gets(":1");
        two.sends("DEL lock:job").gets(":1");
    }
    let refused = "lockwarden_decisions_total{decision=\"would-deny\"}";
    assert_eq!(proxy.metric(refused), 0.0);
    one.sends("SETNX lock:job 1").gets(":1");
    proxy.client_from(OTHERS).sends("DEL lock:job").gets(":1");
    proxy.counts(refused, 1.0);
}

#[test]
fn a_name_and_a_user_belong_to_who_a_client_is() {
    let redis = Redis::start();
    redis.client().sends("ACL SETUSER app on >secret ~* &* +@all").gets("+OK");
    let proxy = Proxy::enforcing(&redis);
    let [worker, same, other, user] = pool(&proxy);
    worker.sends("CLIENT SETNAME worker").gets("+OK");
    same.sends("HELLO 2 SETNAME worker").reply();
    other.sends("CLIENT SETNAME other").gets("+OK");
    user.sends("AUTH app secret").gets("+OK");
    user.sends("CLIENT SETNAME worker").gets("+OK");

    worker.sends("SET lock:job 1 NX PX 9000").gets("+OK");
    other.sends("DEL lock:job").gets(":0");
    user.sends("DEL lock:job").gets(":0");
    same.sends("DEL lock:job").gets(":1");
    // A client that takes another name is another client from then on.
    worker.sends("SET lock:job 1 NX PX 9000").gets("+OK");
    same.sends("CLIENT SETNAME other").gets("+OK");
    same.sends("DEL lock:job").gets(":0");
    worker.sends("DEL lock:job").gets(":1");
}

#[test]
fn another_process_with_the_same_name_on_the_same_address_is_somebody_else() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (one, two) = (proxy.client_from("127.0.0.1"), proxy.client_from("127.0.0.1"));
    one.sends("SET lock:job 1 NX PX 9000").gets("+OK");
    let elsewhere = |command: &[&str]| {
        let output = Command::new("redis-cli")
            .args(["-h", "127.0.0.1", "-p", &proxy.address().port().to_string()])
            .args(command)
            .output()
            .expect("redis-cli comes with redis-server");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    assert_eq!(elsewhere(&["DEL", "lock:job"]), "0");
    assert_eq!(elsewhere(&["PEXPIRE", "lock:job", "9500"]), "0");
    two.sends("DEL lock:job").gets(":1");
}

#[test]
fn a_pool_may_come_by_two_proxies() {
    let redis = Redis::start();
    let (here, there) = (Proxy::enforcing(&redis), Proxy::enforcing(&redis));
    let (one, two) = (here.client_from(POOL), there.client_from(POOL));
    for _ in 0..3 {
        one.sends("SETNX lock:job 1").gets(":1");
        two.sends("DEL lock:job").gets(":1");
        two.sends("SETNX lock:job 1").gets(":1");
        one.sends("DEL lock:job").gets(":1");
    }
    let stranger = there.client_from(OTHERS);
    one.sends("SETNX lock:job 1").gets(":1");
    stranger.sends("DEL lock:job").gets(":0");
}

/// F4: the holder comes back over a new connection to a new proxy.
#[test]
fn after_a_restart_a_raw_del_is_proven_by_who_the_client_is() {
    let redis = Redis::start();
    let first = Proxy::enforcing(&redis);
    let alice = first.client_from(POOL);
    alice.sends("SET lock:job 1 NX PX 9000").gets("+OK");
    is_identified(&redis);
    first.kill();
    let second = Proxy::enforcing(&redis);
    let (alice, stranger) = (second.client_from(POOL), second.client_from(OTHERS));
    stranger.sends("DEL lock:job").gets(":0");
    alice.sends("DEL lock:job").gets(":1");
}

/// Workers of one pool contend for a lock, and each sends a DEL in its `finally`.
#[test]
fn a_losers_del_in_finally_counts_as_the_setting_says() {
    let redis = Redis::start();
    for (setting, over_another, over_the_holders) in
        [("[]", ":1", ":1"), ("[\"identity\"]", ":0", ":1"), ("[\"session\", \"identity\"]", ":0", ":0")]
    {
        let proxy = Proxy::builder(&redis)
            .setting("owner-token", "doubt", "\"refuse\"")
            .setting("owner-token", "void_after_refusal", setting)
            .start();
        for name in ["", "worker"] {
            let [one, two, three] = pool(&proxy);
            for client in [&one, &two, &three] {
                client.sends_arguments(&["CLIENT", "SETNAME", name]).gets("+OK");
            }
            // Another connection of the pool, refused since, cold and warm.
            for _ in 0..2 {
                one.sends("SET lock:pool 1 NX PX 9000").gets("+OK");
                two.sends("SETNX lock:pool 1").gets(":0");
                two.sends("DEL lock:pool").gets(over_another);
                // One that was not refused is the holder's equal.
                let rest = if over_another == ":1" { ":0" } else { ":1" };
                three.sends("DEL lock:pool").gets(rest);
            }
            // Two threads on the holder's own connection.
            one.sends("SET lock:shared 1 NX PX 9000").gets("+OK");
            one.sends("SET lock:shared 1 NX PX 9000").gets("nil");
            one.sends("DEL lock:shared").gets(over_the_holders);
            let rest = if over_the_holders == ":1" { ":0" } else { ":1" };
            three.sends("DEL lock:shared").gets(rest);
        }
        let shared = "lockwarden_observations_total{kind=\"shared-session\"}";
        proxy.counts(shared, 2.0);
        let found = "lockwarden_observations_total{kind=\"refused-then-released\"}";
        // Whichever way each goes: two over another connection, one over the holder's, for each name.
        proxy.counts(found, 6.0);
    }
}

/// A5 and B6 together: the release of a lease that ran out comes while its successor works.
#[test]
fn a_late_release_pays_its_own_debt_and_the_successor_keeps_the_lock() {
    let redis = Redis::start();
    for on_violation in ["\"native\"", "\"error\""] {
        let proxy = Proxy::builder(&redis).namespace("on_violation", on_violation).start();
        let [one, two, three] = pool(&proxy);
        runs_out(&redis, &one, "lock:job");
        two.sends("SET lock:job 1 NX PX 9000").gets("+OK");
        // It is one's late release, or two's own over another connection: the proxy cannot tell.
        three.sends("DEL lock:job").gets(":0");
        proxy.counts(DEBTS, 1.0);
        three.sends("DEL lock:job").gets(":1");
        assert!(redis.is_free("lock:job"));
    }
    let proxy = Proxy::enforcing(&redis);
    let [one, two, three] = pool(&proxy);
    runs_out(&redis, &one, "lock:other");
    two.sends("SET lock:other 1 NX PX 9000").gets("+OK");
    one.sends("DEL plain lock:other").gets(":0");
    three.sends("DEL lock:other absent").gets(":1");
}

/// Monitored, it deletes the successor's lock, as without the proxy, and is reported all the same.
#[test]
fn a_debt_is_reported_once_in_either_mode_whatever_the_release_is_called() {
    const SCRIPT: &str = "EVAL \"redis.call('del', KEYS[2]) return redis.call('del', KEYS[1])\" 2 lock:job plain";
    let redis = Redis::start();
    for (mode, decision) in [(Mode::Enforce, "deny"), (Mode::Monitor, "would-deny")] {
        let proxy = Proxy::builder(&redis).mode(mode).start();
        let expired =
            format!("lockwarden_decisions_total{{operation=\"release\",reason=\"expired\",decision=\"{decision}\"}}");
        for (at, release) in
            ["DEL lock:job", "DEL lock:job absent", "EXPIRE lock:job -1", SCRIPT].into_iter().enumerate()
        {
            let [one, two, three] = pool(&proxy);
            runs_out(&redis, &one, "lock:job");
            two.sends("SET lock:job 1 NX PX 9000").gets("+OK");
            is_identified(&redis);
            three.sends(release).reply();
            assert_eq!(redis.is_free("lock:job"), mode == Mode::Monitor, "{release}");
            proxy.counts(DEBTS, at as f64 + 1.0);
            proxy.counts(&expired, at as f64 + 1.0);
            redis.client().sends("FLUSHALL").gets("+OK");
        }
        // The late client itself did nothing.
        assert_eq!(proxy.metric("lockwarden_lock_overlaps_total"), 0.0);
    }
}

#[test]
fn the_holders_own_connection_and_its_owner_token_release_without_paying() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let [one, two, three] = pool(&proxy);
    runs_out(&redis, &one, "lock:job");
    two.sends("SET lock:job 1 NX PX 9000").gets("+OK");
    two.sends("DEL lock:job").gets(":1");
    // One's release is still owed, and paid where it meets a free lock.
    one.sends("DEL lock:job").gets(":0");
    two.sends("SET lock:job 1 NX PX 9000").gets("+OK");
    three.sends("DEL lock:job").gets(":1");
    assert_eq!(proxy.metric(DEBTS), 0.0);
}

#[test]
fn a_late_release_that_meets_a_strangers_lock_is_refused_and_owed_no_more() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let [one, two, three] = pool(&proxy);
    let stranger = proxy.client_from(OTHERS);
    runs_out(&redis, &one, "lock:job");
    stranger.sends("SET lock:job 1 NX PX 9000").gets("+OK");
    one.sends("DEL lock:job").gets(":0");
    stranger.sends("DEL lock:job").gets(":1");
    two.sends("SET lock:job 1 NX PX 9000").gets("+OK");
    three.sends("DEL lock:job").gets(":1");
}

#[test]
fn a_holder_that_died_costs_its_pool_no_more_than_the_debts_age() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).setting("owner-token", "debt_max_age", "\"1500ms\"").start();
    let [dead, one, two] = pool(&proxy);
    dead.sends("SET lock:job 1 NX PX 9000").gets("+OK");
    is_identified(&redis);
    drop(dead);
    // Its time is up.
    redis.client().sends("DEL lock:job").gets(":1");
    let mut waited = 0;
    wait_for("a release that deletes at once", || {
        one.sends("SET lock:job 1 NX PX 200").gets("+OK");
        let deleted = two.sends("DEL lock:job").integer() == 1;
        if !deleted {
            waited += 1;
            redis.becomes_free("lock:job");
        }
        deleted
    });
    assert!(waited >= 1, "the first release paid the debt");
    one.sends("SET lock:job 1 NX PX 200").gets("+OK");
    two.sends("DEL lock:job").gets(":1");
}

#[test]
fn a_paid_debt_ends_keep_alive() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let [one, two, three] = pool(&proxy);
    runs_out(&redis, &one, "lock:job");
    two.sends("SETNX lock:job 1").gets(":1");
    three.sends("DEL lock:job").gets(":0");
    redis.becomes_free("lock:job");
    two.sends("PING").gets("+PONG");
}

/// A model of the rules about debts, independent of the scripts.
#[derive(Default)]
struct Ledger {
    holder: Option<usize>,
    /// The holder of the last lease, if that ended without a release.
    unreleased: Option<usize>,
    /// A release of the last lease came, and paid a debt.
    paid: bool,
    debts: usize,
}

impl Ledger {
    fn acquired(&mut self, by: usize) {
        self.debts += usize::from(self.unreleased.take().is_some() && !self.paid);
        self.holder = Some(by);
        self.paid = false;
    }

    fn ran_out(&mut self) {
        self.unreleased = self.holder.take();
    }

    /// Whether a release over this connection deletes.
    fn released(&mut self, over: usize) -> bool {
        match (self.holder, self.unreleased) {
            (Some(holder), _) if holder == over || self.debts == 0 => {
                self.holder = None;
                true
            }
            (None, Some(last)) if last == over || self.debts == 0 => {
                self.unreleased = None;
                false
            }
            (Some(_), _) => {
                self.debts -= 1;
                self.paid = true;
                false
            }
            (None, _) => {
                self.debts = self.debts.saturating_sub(1);
                false
            }
        }
    }
}

/// Small, seeded and the same everywhere.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

#[test]
fn grants_expiries_and_releases_in_any_order_balance() {
    let redis = Redis::start();
    // Here identities give back more than they were granted.
    let starts = || Proxy::builder(&redis).setting("owner-token", "doubt", "\"refuse\"").start();
    let proxies = [starts(), starts()];
    let clients: Vec<Client> = (0..4).map(|n| proxies[n % 2].client_from(POOL)).collect();
    let console = redis.client();
    // Other tests show how it is while the proxy does not know them yet: here a lease may run out at any
    // moment.
    for client in &clients {
        client.sends("SET lock:job 1 NX PX 9000").gets("+OK");
        is_identified(&redis);
        client.sends("DEL lock:job").gets(":1");
    }
    for seed in 1..=40_u64 {
        let key = format!("lock:{seed}");
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut ledger = Ledger::default();
        let mut story = Vec::new();
        for _ in 0..60 {
            let over = dice.below(clients.len());
            match (dice.below(5), ledger.holder.is_some()) {
                (0 | 1, false) if ledger.debts < 15 => {
                    story.push(format!("{over} acquires"));
                    clients[over].sends(format!("SET {key} 1 NX PX 9000")).gets("+OK");
                    ledger.acquired(over);
                }
                (0, true) => {
                    story.push("runs out".to_owned());
                    console.sends(format!("DEL {key}")).gets(":1");
                    ledger.ran_out();
                }
                (2..=4, _) => {
                    story.push(format!("{over} releases"));
                    let deleted = clients[over].sends(format!("DEL {key}")).integer() == 1;
                    assert_eq!(deleted, ledger.released(over), "seed {seed}: {story:#?}");
                }
                _ => {}
            }
        }
    }
}

#[test]
fn of_many_grants_and_as_many_releases_only_the_last_release_deletes() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let [one, two, three, four] = pool(&proxy);
    let console = redis.client();
    for grants in 1..=16 {
        let key = format!("lock:{grants}");
        for grant in 0..grants {
            if grant > 0 {
                console.sends(format!("DEL {key}")).gets(":1");
            }
            let taker = if grant % 2 == 0 { &one } else { &two };
            taker.sends(format!("SET {key} 1 NX PX 9000")).gets("+OK");
        }
        for release in 1..=grants {
            let releaser = if release % 2 == 0 { &three } else { &four };
            let last = i32::from(release == grants);
            releaser.sends(format!("DEL {key}")).gets(format!(":{last}"));
        }
    }
}

#[test]
fn the_oldest_of_more_than_sixteen_debts_is_forgotten() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let [one, two] = pool(&proxy);
    let console = redis.client();
    for _ in 0..20 {
        one.sends("SET lock:job 1 NX PX 9000").gets("+OK");
        console.sends("DEL lock:job").gets(":1");
    }
    one.sends("SET lock:job 1 NX PX 9000").gets("+OK");
    let names = console.sends("KEYS lw:{*}#lock:job").reply();
    let [name] = names.elements() else {
        panic!("one key of debts, not {names}");
    };
    let length = console.sends_arguments(&[b"STRLEN", name.bytes()]).integer();
    assert_eq!(length, 16 * 30);
    for _ in 0..16 {
        two.sends("DEL lock:job").gets(":0");
    }
    two.sends("DEL lock:job").gets(":1");
    one.sends("SET lock:job 1 NX PX 9000").gets("+OK");
    assert_eq!(console.sends("KEYS lw:{*}#lock:job").reply().to_string(), "[]");
    // Only the proxy writes there.
    let set = [b"SET".as_slice(), name.bytes(), b"x"];
    one.sends_arguments(&set).gets_error("LOCKDENIED opaque-write");
}

/// F3: a pool closes the connection that took the lock, and works on.
#[test]
fn a_lock_lives_on_with_another_connection_of_its_process() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let [one, two, three] = pool(&proxy);
    let stranger = proxy.client_from(OTHERS);
    one.sends("SETNX lock:job 1").gets(":1");
    is_identified(&redis);
    drop(one);
    stays(&redis, Duration::from_millis(1_500));
    drop(two);
    stays(&redis, Duration::from_millis(1_000));
    drop(three);
    redis.becomes_free("lock:job");
    stranger.sends("SETNX lock:job 1").gets(":1");
}

#[test]
fn an_address_that_is_one_process_keeps_its_locks_with_any_connection() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).setting("owner-token", "trust_address", "\"process\"").start();
    let [one, two, releases] = pool(&proxy);
    one.sends("SETNX lock:job 1").gets(":1");
    releases.sends("DEL lock:job").gets(":1");
    drop(releases);
    one.sends("SETNX lock:job 1").gets(":1");
    drop(one);
    stays(&redis, Duration::from_millis(1_200));
    drop(two);
    redis.becomes_free("lock:job");
}

fn stays(redis: &Redis, time: Duration) {
    let client = redis.client();
    holds_for(time, "lock:job is held", || client.sends("EXISTS lock:job").integer() == 1);
}

/// F7: a marker that is meant to outlive its connection is named, and only where it does.
#[test]
fn a_lock_that_outlives_its_connection_is_found_in_monitor_mode() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).mode(Mode::Monitor).start();
    let outlived = "lockwarden_observations_total{kind=\"outlived\"}";
    let client = proxy.client();
    client.sends("SET lock:short 1 NX PX 5000").gets("+OK");
    client.sends("SET lock:given-back 1 NX EX 86400").gets("+OK");
    client.sends("DEL lock:given-back").gets(":1");
    drop(client);
    wait_for("the client to be gone", || proxy.metric("lockwarden_client_connections") == 0.0);
    assert_eq!(proxy.metric(outlived), 0.0);
    let client = proxy.client();
    client.sends("SET lock:done 1 EX 86400 NX").gets("+OK");
    drop(client);
    proxy.counts(outlived, 1.0);
    proxy.logs(&["\"kind\":\"outlived\"", "lock:done"]);
    assert!(redis.pttl("lock:done") > 86_000_000);
}

/// F7: with a ceiling to fit nothing is cut, so nothing ends with the connection.
#[test]
fn a_lock_that_outlives_its_connection_keeps_its_ttl_under_a_ceiling_that_fits() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).ceiling("25h").start();
    let client = proxy.client();
    client.sends("SET lock:done 1 EX 86400 NX").gets("+OK");
    drop(client);
    wait_for("the client to be gone", || proxy.metric("lockwarden_client_connections") == 0.0);
    assert!(redis.pttl("lock:done") > 86_000_000);
}
