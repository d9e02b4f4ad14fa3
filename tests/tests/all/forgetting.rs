//! `release = "forget"`: the record of a lock goes with it where only its own session releases it. One key for all such
//! locks keeps fencing tokens growing.

use lockwarden_tests::{Mode, Proxy, ProxyBuilder, Redis, State};

const FLOOR: &str = "lw:{}:lockwarden-floor";

fn forgetting(redis: &Redis) -> ProxyBuilder {
    Proxy::builder(redis).namespace("release", "\"forget\"")
}

/// The names of the records that are left.
fn records(redis: &Redis) -> usize {
    redis.client().sends("KEYS lw:*lock:*").reply().elements().len()
}

#[test]
fn the_record_goes_with_the_lock_and_fencing_tokens_grow_on() {
    let redis = Redis::start();
    let proxy = forgetting(&redis).start();
    let (alice, bob) = (proxy.client(), proxy.client());
    let mut newest = 0;
    for _ in 0..5 {
        alice.sends("SET lock:job alice-0123456789abcdef NX PX 9000").gets("+OK");
        let fence = redis.fence("lock:job");
        assert!(fence > newest, "{fence} is not above {newest}");
        newest = fence;
        bob.sends("SET lock:job bob-00123456789abcdef NX PX 9000").gets("nil");
        bob.sends("DEL lock:job").gets(":0");
        alice.sends("PEXPIRE lock:job 8000").gets(":1");
        alice.sends("DEL lock:job").gets(":1");
        assert_eq!(records(&redis), 0);
        // Once more is a release too many, as on Redis.
        alice.sends("DEL lock:job").gets(":0");
    }
    let floor: u64 = redis.client().sends(format!("GET {FLOOR}")).text().parse().expect("a fencing token");
    assert!(floor > newest);
    let left = redis.client().sends(format!("PTTL {FLOOR}")).integer();
    assert!((590_000..=600_000).contains(&left), "{left}");
}

/// A server with a clock behind that of the primary before it: only what is remembered tells the tokens of locks that
/// have no record.
#[test]
fn where_the_clock_went_back_tokens_grow_on_and_records_stay_until_it_has_caught_up() {
    let redis = Redis::start();
    let proxy = forgetting(&redis).start();
    let alice = proxy.client();
    alice.sends("SET lock:job alice-0123456789abcdef NX PX 9000").gets("+OK");
    let ahead = redis.fence("lock:job") + 3_600_000_000;
    alice.sends("DEL lock:job").gets(":1");
    redis.client().sends(format!("SET {FLOOR} {ahead} PX 600000")).gets("+OK");
    for grant in 1..=2 {
        alice.sends("SET lock:job alice-0123456789abcdef NX PX 9000").gets("+OK");
        assert_eq!(redis.fence("lock:job"), ahead + grant);
        alice.sends("DEL lock:job").gets(":1");
        let record = redis.record("lock:job").expect("its token is ahead of the clock");
        assert_eq!((record.state, record.fence), (State::Released, ahead + grant));
    }
    // Other ways to take a lock.
    let takes = "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', 9000)";
    alice.sends_arguments(&["EVAL", takes, "1", "lock:other", "a"]).gets("+OK");
    assert_eq!(redis.fence("lock:other"), ahead + 1);
    alice.sends("MSETNX lock:one a lock:two a").gets(":1");
    assert_eq!(redis.fence("lock:two"), ahead + 1);
    alice.sends("SET lock:stored v PX 9000").gets("+OK");
    assert_eq!(redis.fence("lock:stored"), ahead + 1);
}

/// What more than the session proves, what one session releases of several, and what is only watched is recorded.
#[test]
fn any_other_release_leaves_its_record() {
    let redis = Redis::start();
    let proxy = forgetting(&redis).start();
    let (alice, other) = (proxy.client(), proxy.client());
    let value = "alice-0123456789abcdef";
    let released = |name: &str| {
        let record = redis.record(name).unwrap_or_else(|| panic!("{name} has no record"));
        assert_eq!(record.state, State::Released, "{name}");
    };
    alice.sends(format!("SET lock:token {value} NX PX 9000")).gets("+OK");
    let compares = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
    other.sends_arguments(&["EVAL", compares, "1", "lock:token", value]).gets(":1");
    released("lock:token");
    alice.sends("MSETNX lock:one a lock:two a").gets(":1");
    alice.sends("DEL lock:one lock:two").gets(":2");
    released("lock:two");
    alice.sends(format!("SET lock:read {value} NX PX 9000")).gets("+OK");
    alice.sends("GETDEL lock:read").gets(format!("$22 {value}"));
    released("lock:read");
    let watching = forgetting(&redis).mode(Mode::Monitor).start();
    let bob = watching.client();
    bob.sends("SET lock:watched b NX PX 9000").gets("+OK");
    bob.sends("DEL lock:watched").gets(":1");
    released("lock:watched");
}

#[test]
fn a_sequential_counter_is_not_forgotten() {
    let redis = Redis::start();
    let proxy = forgetting(&redis).setting("fencing", "counter", "\"sequential\"").start();
    let alice = proxy.client();
    for grant in 1..=3 {
        alice.sends("SET lock:job alice-0123456789abcdef NX PX 9000").gets("+OK");
        assert_eq!(redis.fence("lock:job"), grant);
        alice.sends("DEL lock:job").gets(":1");
    }
}

#[test]
fn no_client_names_what_is_remembered() {
    let redis = Redis::start();
    let proxy = forgetting(&redis).start();
    let alice = proxy.client();
    alice.sends("SET lock:job alice-0123456789abcdef NX PX 9000").gets("+OK");
    alice.sends("DEL lock:job").gets(":1");
    redis.client().sends(format!("EXISTS {FLOOR}")).gets(":1");
    alice.sends("KEYS *").gets("[]");
    alice.sends(format!("SET {FLOOR} 0")).gets_error("LOCKDENIED");
    alice.sends(format!("DEL {FLOOR}")).gets_error("LOCKDENIED");
}

/// A user who may touch records but not what is remembered: the record says what it always says, and a grant whose token
/// may be too low is none.
#[test]
fn a_user_without_rights_to_what_is_remembered_is_told_so() {
    let redis = Redis::start();
    redis.client().sends("ACL SETUSER jobs on >secret ~lock:* ~lw:{*}:lock:* +@all").gets("+OK");
    let proxy = forgetting(&redis).start();
    let jobs = proxy.client();
    jobs.sends("AUTH jobs secret").gets("+OK");
    jobs.sends("SET lock:job jobs-0123456789abcdef NX PX 9000").gets_error("NOPERM");
    redis.client().sends("EXISTS lock:job").gets(":0");
}
