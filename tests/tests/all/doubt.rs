//! Releases of which the proxy cannot tell whether they are the holder's: a pool whose threads contend, a `finally` block
//! without the lock, clients whose processes cannot be told apart. All clients of a test are one process; those from one
//! address are one identity, and each other address is another machine.

mod model;

use lockwarden_tests::{Client, Mode, Proxy, ProxyBuilder, Redis, State, wait_for};

const POOL: &str = "127.44.0.1";
const OTHERS: &str = "127.44.0.2";
const SURPLUS: &str = "lw:{}:lockwarden-surplus:*";

fn pool<const N: usize>(proxy: &Proxy) -> [Client; N] {
    std::array::from_fn(|_| proxy.client_from(POOL))
}

/// A worker that never got the lock sends its DEL over a connection that was refused.
fn finally_without_the_lock(worker: &Client) -> i64 {
    worker.sends("SETNX lock:job 1").gets(":0");
    worker.sends("DEL lock:job").integer()
}

fn surplus_keys(redis: &Redis) -> usize {
    let found = redis.client().sends(format!("KEYS {SURPLUS}")).reply();
    found.elements().len()
}

fn refusing(redis: &Redis) -> ProxyBuilder {
    Proxy::builder(redis).setting("owner-token", "doubt", "\"refuse\"")
}

#[test]
fn a_holder_is_believed_over_a_connection_that_was_refused() {
    let redis = Redis::start();
    let (here, there) = (Proxy::enforcing(&redis), Proxy::enforcing(&redis));
    let [one, two] = pool(&here);
    let three = there.client_from(POOL);
    let stranger = here.client_from(OTHERS);
    for _ in 0..3 {
        for over in [&two, &three] {
            one.sends("SETNX lock:job 1").gets(":1");
            over.sends("SETNX lock:job 1").gets(":0");
            over.sends("EXPIRE lock:job 9").gets(":1");
            stranger.sends("SETNX lock:job 1").gets(":0");
            stranger.sends("DEL lock:job").gets(":0");
            over.sends("DEL lock:job").gets(":1");
        }
    }
    // Only the stranger sent too many releases, for it was refused the lock.
    assert_eq!(surplus_keys(&redis), 1);
    for proxy in [&here, &there] {
        assert_eq!(proxy.metric("lockwarden_observations_total{kind=\"debt\"}"), 0.0);
    }
}

#[test]
fn a_finally_block_is_recognised_by_its_first_release_too_many() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let [one, two, three] = pool(&proxy);
    one.sends("SETNX lock:job 1").gets(":1");
    // It may be the holder's. It was not: now the holder's own is one too many.
    assert_eq!(finally_without_the_lock(&two), 1);
    one.sends("DEL lock:job").gets(":0");
    assert_eq!(surplus_keys(&redis), 1);
    for release in ["DEL lock:job", "DEL lock:job plain", "EXPIRE lock:job 0"] {
        one.sends("SETNX lock:job 1").gets(":1");
        assert_eq!(finally_without_the_lock(&two), 0);
        two.sends(release).gets(":0");
        // Any connection of the pool may be a loser's.
        three.sends(release).gets(":0");
        one.sends("DEL lock:job").gets(":1");
    }
}

/// Once it is recognised, each refused try owes a release, too, and the last one that is due ends the lease, whichever client
/// sends it.
#[test]
fn of_a_recognised_program_the_last_release_that_is_due_ends_the_lease() {
    let redis = Redis::start();
    let (here, there) = (Proxy::enforcing(&redis), Proxy::enforcing(&redis));
    let [one, two] = pool(&here);
    let three = there.client_from(POOL);
    one.sends("SETNX lock:job 1").gets(":1");
    assert_eq!(finally_without_the_lock(&two), 1);
    one.sends("DEL lock:job").gets(":0");
    // It is unknown how many are on their way: this lease ends by its TTL.
    one.sends("SET lock:job 1 NX PX 400").gets("+OK");
    assert_eq!(finally_without_the_lock(&two), 0);
    three.sends("DEL lock:job").gets(":0");
    wait_for("the lease to run out", || redis.is_free("lock:job"));
    for ways in [["DEL lock:job", "DEL lock:job plain"], ["EXPIRE lock:job 0", "UNLINK lock:job"]] {
        one.sends("SETNX lock:job 1").gets(":1");
        // Where no client waits, the first is the last.
        two.sends("DEL lock:job").gets(":1");
        one.sends("SETNX lock:job 1").gets(":1");
        for refused in [&two, &three] {
            refused.sends("SETNX lock:job 1").gets(":0");
        }
        two.sends(ways[0]).gets(":0");
        three.sends(ways[1]).gets(":0");
        two.sends("SETNX lock:job 1").gets(":0");
        three.sends(ways[0]).gets(":0");
        three.sends(ways[1]).gets(":1");
        // The lease that its own connection gives back leaves two to come, which are the next one's first.
        one.sends("SETNX lock:job 1").gets(":1");
        for refused in [&two, &three] {
            refused.sends("SETNX lock:job 1").gets(":0");
        }
        one.sends("DEL lock:job").gets(":1");
        two.sends(ways[0]).gets(":0");
        one.sends("SETNX lock:job 1").gets(":1");
        two.sends(ways[0]).gets(":0");
        three.sends(ways[1]).gets(":1");
    }
}

/// Where a client tries again and again, and gives back once, the lease ends by its TTL. That also ends what
/// the client seemed to owe.
#[test]
fn what_does_not_come_before_a_lease_runs_out_is_waited_for_no_more() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let [one, two] = pool(&proxy);
    one.sends("SETNX lock:job 1").gets(":1");
    assert_eq!(finally_without_the_lock(&two), 1);
    one.sends("DEL lock:job").gets(":0");
    for _ in 0..2 {
        one.sends("SET lock:job 1 NX PX 300").gets("+OK");
        for _ in 0..9 {
            two.sends("SETNX lock:job 1").gets(":0");
        }
        two.sends("DEL lock:job").gets(":0");
        wait_for("the lease to run out", || redis.is_free("lock:job"));
        // The holder's own is late.
        one.sends("DEL lock:job").gets(":0");
    }
    one.sends("SETNX lock:job 1").gets(":1");
    two.sends("DEL lock:job").gets(":1");
}

#[test]
fn a_finally_block_that_meets_a_strangers_lock_is_recognised_before_it_does_harm() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let [one, two] = pool(&proxy);
    let stranger = proxy.client_from(OTHERS);
    stranger.sends("SETNX lock:job 1").gets(":1");
    assert_eq!(finally_without_the_lock(&two), 0);
    stranger.sends("DEL lock:job").gets(":1");
    one.sends("SETNX lock:job 1").gets(":1");
    assert_eq!(finally_without_the_lock(&two), 0);
    one.sends("DEL lock:job").gets(":1");
}

#[test]
fn what_monitor_mode_has_seen_counts_after_the_switch_and_over_a_restart() {
    let redis = Redis::start();
    let watching = Proxy::monitoring(&redis);
    let [one, two] = pool(&watching);
    one.sends("SETNX lock:job 1").gets(":1");
    assert_eq!(finally_without_the_lock(&two), 1);
    one.sends("DEL lock:job").gets(":0");
    // The report already says what enforce mode would do from now on.
    one.sends("SETNX lock:job 1").gets(":1");
    assert_eq!(finally_without_the_lock(&two), 1);
    watching
        .counts("lockwarden_decisions_total{decision=\"would-deny\",operation=\"release\",reason=\"not-owner\"}", 1.0);
    watching.stop();
    redis.client().sends("DEL lock:job").reply();

    let enforcing = Proxy::enforcing(&redis);
    let [one, two] = pool(&enforcing);
    one.sends("SETNX lock:job 1").gets(":1");
    assert_eq!(finally_without_the_lock(&two), 0);
    one.sends("DEL lock:job").gets(":1");
}

/// In monitor mode a stranger deletes whatever it wants. Its victim's own release is none too many for that.
#[test]
fn the_victim_of_a_stranger_is_not_taken_for_one_that_releases_too_much() {
    let redis = Redis::start();
    let proxy = Proxy::monitoring(&redis);
    let [one, two] = pool(&proxy);
    let stranger = proxy.client_from(OTHERS);
    for release in [
        "DEL lock:job",
        "DEL lock:job plain",
        "EXPIRE lock:job -1",
        "EVAL \"redis.call('del', KEYS[2]) return redis.call('del', KEYS[1])\" 2 lock:job plain",
    ] {
        one.sends("SET lock:job 1 NX PX 9000").gets("+OK");
        stranger.sends(release).reply();
        assert!(redis.is_free("lock:job"), "{release}");
        let record = redis.record("lock:job").expect("a record");
        assert_eq!(record.state, State::TakenOver, "{release}");
        // Over another connection of its pool, and over its own where the next lease is there already.
        two.sends("DEL lock:job").gets(":0");
        one.sends("SET lock:job 1 NX PX 9000").gets("+OK");
        stranger.sends(release).reply();
        stranger.sends("SET lock:job 1 NX PX 9000").gets("+OK");
        one.sends("DEL lock:job").gets(":1");
        redis.client().sends("DEL lw:{0j4}:lock:job").reply();
    }
    let found = redis.client().sends(format!("KEYS {SURPLUS}")).reply();
    assert!(found.elements().len() <= 1, "{found}");
    // The one is the stranger.
    let [one, two] = pool(&proxy);
    one.sends("SET lock:fresh 1 NX PX 9000").gets("+OK");
    two.sends("SETNX lock:fresh 1").gets(":0");
    two.sends("DEL lock:fresh").gets(":1");
    let refused = "lockwarden_decisions_total{decision=\"would-deny\",reason=\"not-owner\"}";
    let before = proxy.metric(refused);
    one.sends("SET lock:fresh 1 NX PX 9000").gets("+OK");
    two.sends("SETNX lock:fresh 1").gets(":0");
    two.sends("DEL lock:fresh").gets(":1");
    assert_eq!(proxy.metric(refused), before);
}

/// A client whose connection broke does not know what became of its last command.
#[test]
fn a_release_that_is_sent_again_over_a_new_connection_is_none_too_many() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let [one, two, three] = pool(&proxy);
    one.sends("SETNX lock:job 1").gets(":1");
    one.sends("DEL lock:job").gets(":1");
    two.sends("DEL lock:job").gets(":0");
    // Nor does a client know the outcome of an acquire without a reply, though another client holds the lock.
    let stranger = proxy.client_from(OTHERS);
    stranger.sends("SETNX lock:job 1").gets(":1");
    three.sends("DEL lock:job").gets(":0");
    assert_eq!(surplus_keys(&redis), 0);
    stranger.sends("DEL lock:job").gets(":1");
    one.sends("SETNX lock:job 1").gets(":1");
    assert_eq!(finally_without_the_lock(&two), 1);
}

#[test]
fn threads_on_one_connection_are_believed_until_they_release_too_much() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let shared = proxy.client_from(POOL);
    for _ in 0..3 {
        shared.sends("SETNX lock:job 1").gets(":1");
        shared.sends("SETNX lock:job 1").gets(":0");
        shared.sends("DEL lock:job").gets(":1");
    }
    shared.sends("DEL lock:job").gets(":0");
    shared.sends("SETNX lock:job 1").gets(":1");
    assert_eq!(finally_without_the_lock(&shared), 0);
    assert!(!redis.is_free("lock:job"));
}

/// A single release too many causes seconds of doubt, repeated ones cause minutes.
#[test]
fn doubt_lasts_ten_times_as_long_as_it_was_given_reason_for() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let [one, two] = pool(&proxy);
    one.sends("SETNX lock:job 1").gets(":1");
    one.sends("DEL lock:job").gets(":1");
    one.sends("DEL lock:job").gets(":0");
    let console = redis.client();
    let names = console.sends(format!("KEYS {SURPLUS}")).reply();
    let key = names.elements()[0].to_string();
    let key = key.split(' ').next_back().expect("a name").to_owned();
    let now = || {
        let time = console.sends("TIME").reply();
        let seconds = time.elements()[0].to_string();
        let seconds: i64 = seconds.split(' ').next_back().and_then(|digits| digits.parse().ok()).expect("seconds");
        seconds * 1000
    };
    for (first, last, deletes) in [
        (11_500, 11_500, 1),
        (3_000, 3_000, 0),
        (100_000, 20_000, 0),
        (12_500, 11_500, 1),
        (4_000_000, 590_000, 0),
        (4_000_000, 602_000, 1),
    ] {
        let now: i64 = now();
        console.sends(format!("SET {key} {}{}", now - first, now - last)).gets("+OK");
        one.sends("SETNX lock:job 1").gets(":1");
        assert_eq!(finally_without_the_lock(&two), deletes, "{first} {last}");
        console.sends("DEL lock:job").reply();
        console.sends("DEL lw:{5ct}:lock:job lw:{5ct}#lock:job").reply();
    }
    // A key with another content counts for nothing.
    console.sends(format!("SET {key} odd")).gets("+OK");
    one.sends("SETNX lock:job 1").gets(":1");
    assert_eq!(finally_without_the_lock(&two), 1);
    console.sends(format!("DEL {key}")).gets(":1");
    console.sends(format!("LPUSH {key} odd")).gets(":1");
    one.sends("SETNX lock:job 1").gets(":1");
    assert_eq!(finally_without_the_lock(&two), 1);
}

#[test]
fn doubt_that_is_refused_is_refused_from_the_start() {
    let redis = Redis::start();
    let proxy = refusing(&redis).start();
    let [one, two] = pool(&proxy);
    one.sends("SETNX lock:job 1").gets(":1");
    assert_eq!(finally_without_the_lock(&two), 0);
    one.sends("DEL lock:job").gets(":1");
}

/// One address for many clients: it is unknown whether the other connection is the holder's.
#[test]
fn an_identity_that_cannot_be_told_from_others_is_believed_unless_its_own_lease_is_over() {
    let redis = Redis::start();
    for (doubt, deletes) in [("\"believe\"", ":1"), ("\"refuse\"", ":0")] {
        let proxy = Proxy::builder(&redis)
            .setting("owner-token", "doubt", doubt)
            .setting("owner-token", "trust_address", "\"no\"")
            .namespace("name", &format!("{:?}", doubt.trim_matches('"')))
            .top("proxy_protocol_from", "[\"127.44.0.9/32\"]")
            .start();
        // A balancer names their address, so the proxy does not look for processes.
        let far = || {
            let client = proxy.client_from("127.44.0.9");
            client.write(b"PROXY TCP4 10.1.2.3 10.1.2.4 4711 6380\r\n");
            client
        };
        let (one, two) = (far(), far());
        one.sends("SET lock:job 1 NX PX 9000").gets("+OK");
        two.sends("DEL lock:job").gets(deletes);
        redis.client().sends("DEL lock:job").reply();
        // Its own lease is over, and another one is there.
        one.sends("SET lock:late 1 NX PX 9000").gets("+OK");
        redis.runs_out(&one, "lock:late");
        two.sends("SET lock:late 1 NX PX 9000").gets("+OK");
        one.sends("DEL lock:late").gets(":0");
        two.sends("DEL lock:late").gets(":1");
    }
}

#[test]
fn a_lease_whose_release_was_refused_leaves_no_debt() {
    let redis = Redis::start();
    let proxy = refusing(&redis).start();
    let [one, two, three] = pool(&proxy);
    for release in ["DEL lock:job", "DEL lock:job plain", "EXPIRE lock:job 0"] {
        one.sends("SET lock:job 1 NX PX 9000").gets("+OK");
        two.sends("SETNX lock:job 1").gets(":0");
        two.sends(release).gets(":0");
        // It runs out: its release has come.
        redis.client().sends("PEXPIRE lock:job 1").gets(":1");
        redis.becomes_free("lock:job");
        one.sends("SET lock:job 1 NX PX 9000").gets("+OK");
        three.sends("DEL lock:job").gets(":1");
    }
    assert_eq!(proxy.metric("lockwarden_observations_total{kind=\"debt\"}"), 0.0);
}

#[test]
fn a_lease_whose_release_paid_a_debt_leaves_none() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let [one, two, three] = pool(&proxy);
    one.sends("SET lock:job 1 NX PX 9000").gets("+OK");
    redis.runs_out(&one, "lock:job");
    two.sends("SET lock:job 1 NX PX 9000").gets("+OK");
    three.sends("DEL lock:job").gets(":0");
    redis.client().sends("PEXPIRE lock:job 1").gets(":1");
    redis.becomes_free("lock:job");
    two.sends("SET lock:job 1 NX PX 9000").gets("+OK");
    three.sends("DEL lock:job").gets(":1");
}

/// A corrected setting helps at once, while the processes live.
#[test]
fn other_settings_of_the_policy_end_debts_and_doubt_of_their_namespace() {
    let redis = Redis::start();
    let builder = || Proxy::builder(&redis).mode(Mode::Enforce);
    let proxy = builder().start();
    let [one, two, three] = pool(&proxy);
    one.sends("SET lock:owed 1 NX PX 9000").gets("+OK");
    redis.runs_out(&one, "lock:owed");
    two.sends("SET lock:owed 1 NX PX 9000").gets("+OK");
    one.sends("SETNX lock:job 1").gets(":1");
    assert_eq!(finally_without_the_lock(&two), 1);
    one.sends("DEL lock:job").gets(":0");
    one.sends("SETNX lock:job 1").gets(":1");
    assert_eq!(finally_without_the_lock(&two), 0);

    proxy.reload(&builder().setting("owner-token", "take_over", "\"never\"").text());
    wait_for("the reload", || proxy.logged(&["configuration loaded"]) > 0);
    three.sends("DEL lock:owed").gets(":1");
    assert_eq!(finally_without_the_lock(&two), 1);
}

/// A client that stores a value wants to take the lock: a worker that lost it is not the neighbour that holds
/// it.
#[test]
fn a_connection_that_was_refused_replaces_no_lock_of_its_own_identity() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let [one, two] = pool(&proxy);
    one.sends("SETNX lock:job 4102444800").gets(":1");
    two.sends("SETNX lock:job 4102444801").gets(":0");
    two.sends("GETSET lock:job 4102444801").gets_error("LOCKDENIED take-over");
    two.sends("SET lock:job 1 PX 9000").gets_error("LOCKDENIED overwrite");
    two.sends("SETEX lock:job 9 4102444800").gets_error("LOCKDENIED overwrite");
    let script = "EVAL \"return redis.call('set', KEYS[1], ARGV[1])\" 1 lock:job 2";
    two.sends(script).gets_error("LOCKDENIED overwrite");
    redis.client().sends("GET lock:job").gets("$10 4102444800");
    one.sends("DEL lock:job").gets(":1");
}
