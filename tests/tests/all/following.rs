//! Keep-alive follows the client, not the connection that took the lock: over the connections of a pool, over a
//! restart of the proxy, and over several proxies; and it ends with the client. A balancer plays the clients on
//! other machines: it names the address of each.

use std::time::Duration;

use lockwarden_tests::{Client, Mode, Proxy, ProxyBuilder, Redis, holds_for, wait_for};

const POOL: &str = "127.41.0.1";
/// A machine, as the balancer names it.
const FAR: &str = "10.1.2.3";
const INDEX: &str = "lw:{}:lockwarden-kept";

/// A proxy behind a balancer, with clients on other machines.
fn far_away(redis: &Redis) -> ProxyBuilder {
    Proxy::builder(redis).default_ttl("2s").top("proxy_protocol_from", "[\"127.0.0.0/8\"]").without_waiting()
}

fn starts(builder: ProxyBuilder) -> Proxy {
    let proxy = builder.start();
    wait_for("the proxy to be ready", || proxy.ready() == Some(200));
    proxy
}

/// A connection of a client at that address.
fn from(proxy: &Proxy, address: &str) -> Client {
    let client = proxy.client();
    client.write(format!("PROXY TCP4 {address} 10.9.9.9 40000 6379\r\n").as_bytes());
    client.sends("PING").gets("+PONG");
    client
}

/// A connection that is opened when another ends may be one of the next process, so a pool has had its other
/// connections for a while.
fn time_goes_by(client: &Client) {
    let time = Duration::from_millis(300);
    holds_for(time, "it is answered", || client.sends("PING").reply().to_string() == "+PONG");
}

#[track_caller]
fn takes(client: &Client) {
    client.sends("SETNX lock:job 1").gets(":1");
}

/// The lock is held over several of its TTLs of two seconds.
#[track_caller]
fn stays(redis: &Redis) {
    let client = redis.client();
    holds_for(Duration::from_secs(5), "the lock is held", || client.sends("EXISTS lock:job").integer() == 1);
}

/// Other proxies can find the lease.
#[track_caller]
fn is_indexed(redis: &Redis) {
    let client = redis.client();
    wait_for("the lease to be in the index", || client.sends(format!("ZCARD {INDEX}")).integer() == 1);
}

#[test]
fn a_pool_elsewhere_may_close_the_connection_that_took_the_lock() {
    let redis = Redis::start();
    let proxy = starts(far_away(&redis));
    let (one, two) = (from(&proxy, FAR), from(&proxy, FAR));
    takes(&one);
    time_goes_by(&two);
    drop(one);
    stays(&redis);
    from(&proxy, "10.1.2.4").sends("SETNX lock:job 2").gets(":0");
    two.sends("DEL lock:job").gets(":1");
    takes(&two);
    drop(two);
    redis.becomes_free("lock:job");
}

#[test]
fn a_lock_outlives_a_proxy_whose_client_comes_back() {
    let redis = Redis::start();
    let first = Proxy::builder(&redis).default_ttl("2s").start();
    let alice = first.client_from(POOL);
    takes(&alice);
    wait_for("the holder's process to be in the record", || {
        let record = redis.record("lock:job").expect("a record");
        record.is_identified()
    });
    is_indexed(&redis);
    first.kill();
    let second = Proxy::builder(&redis).default_ttl("2s").start();
    let alice = second.client_from(POOL);
    alice.sends("PING").gets("+PONG");
    stays(&redis);
    second.client().sends("SETNX lock:job 2").gets(":0");
    second.logs(&["keeps this lock alive from now on", "lock:job"]);
    alice.sends("DEL lock:job").gets(":1");
}

#[test]
fn a_client_elsewhere_that_takes_its_name_after_connecting_comes_back_to_its_lock() {
    let redis = Redis::start();
    let first = starts(far_away(&redis));
    let alice = from(&first, FAR);
    alice.sends("CLIENT SETNAME billing").gets("+OK");
    alice.sends("SELECT 3").gets("+OK");
    takes(&alice);
    is_indexed(&redis);
    first.kill();
    let second = starts(far_away(&redis));
    let other = from(&second, FAR);
    other.sends("CLIENT SETNAME reports").gets("+OK");
    let alice = from(&second, FAR);
    alice.sends("CLIENT SETNAME billing").gets("+OK");
    let looking = redis.client();
    looking.sends("SELECT 3").gets("+OK");
    holds_for(Duration::from_secs(5), "the lock is held", || looking.sends("EXISTS lock:job").integer() == 1);
    drop(alice);
    wait_for("the lock to go by its TTL", || looking.sends("EXISTS lock:job").integer() == 0);
}

#[test]
fn one_client_may_use_two_proxies() {
    let redis = Redis::start();
    let (here, there) = (starts(far_away(&redis)), starts(far_away(&redis)));
    let (one, two) = (from(&here, FAR), from(&there, FAR));
    takes(&one);
    time_goes_by(&two);
    drop(one);
    stays(&redis);
    two.sends("DEL lock:job").gets(":1");
    takes(&two);
    // It comes after the lock was taken, and well before the connection that took it ends.
    let one = from(&here, FAR);
    stays(&redis);
    drop(two);
    stays(&redis);
    drop(one);
    redis.becomes_free("lock:job");
}

/// A connection from the address of a client that closed its connections is another process.
#[test]
fn a_client_that_starts_again_is_not_kept_out_by_its_own_dead_lock() {
    let redis = Redis::start();
    let (here, there) = (starts(far_away(&redis)), starts(far_away(&redis)));
    takes(&from(&here, FAR));
    let (again, elsewhere) = (from(&here, FAR), from(&there, FAR));
    again.sends("SETNX lock:job 2").gets(":0");
    redis.becomes_free("lock:job");
    again.sends("SETNX lock:job 2").gets(":1");
    drop(elsewhere);
}

/// A backend connection that Redis closes takes the client's with it; the client is there all the same.
#[test]
fn a_client_whose_connection_redis_has_closed_comes_back_to_its_lock() {
    let redis = Redis::start();
    let proxy = starts(far_away(&redis));
    if proxy.is_multiplexed() {
        return;
    }
    let alice = from(&proxy, FAR);
    takes(&alice);
    let id = alice.sends("CLIENT ID").integer();
    redis.client().sends(format!("CLIENT KILL ID {id}")).gets(":1");
    alice.then().gets_close();
    let alice = from(&proxy, FAR);
    stays(&redis);
    alice.sends("DEL lock:job").gets(":1");
}

#[test]
fn where_an_address_says_nothing_or_connections_count_nobody_else_keeps_a_lock_alive() {
    let redis = Redis::start();
    for (policy, key, value) in
        [("owner-token", "trust_address", "\"no\""), ("ttl-ceiling", "keep_alive_by", "\"connection\"")]
    {
        let builder = || far_away(&redis).setting(policy, key, value);
        let (here, there) = (starts(builder()), starts(builder()));
        let (one, two, three) = (from(&here, FAR), from(&here, FAR), from(&there, FAR));
        takes(&one);
        time_goes_by(&two);
        drop(one);
        redis.becomes_free("lock:job");
        two.sends("PING").gets("+PONG");
        three.sends("PING").gets("+PONG");
    }
}

#[test]
fn a_proxy_that_only_watches_keeps_nothing_alive() {
    let redis = Redis::start();
    let here = starts(far_away(&redis));
    let there = starts(far_away(&redis).mode(Mode::Monitor));
    let (one, two) = (from(&here, FAR), from(&there, FAR));
    takes(&one);
    is_indexed(&redis);
    time_goes_by(&two);
    drop(one);
    redis.becomes_free("lock:job");
    two.sends("PING").gets("+PONG");
}

#[test]
fn what_ends_keep_alive_ends_it_for_every_proxy() {
    let redis = Redis::start();
    let strict = |builder: ProxyBuilder| {
        let proofs = "[\"token\", \"session\"]";
        starts(builder.setting("owner-token", "proofs", proofs))
    };
    let (here, there) = (strict(far_away(&redis)), strict(far_away(&redis)));
    let (one, two) = (from(&here, FAR), from(&there, FAR));
    takes(&one);
    is_indexed(&redis);
    // A client that is likely the holder wanted it gone.
    two.sends("DEL lock:job").gets(":0");
    redis.becomes_free("lock:job");
    one.sends("PING").gets("+PONG");
}

#[test]
fn the_index_holds_what_is_kept_and_no_client_sees_or_names_it() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).default_ttl("2s").start();
    let (alice, console) = (proxy.client(), redis.client());
    alice.sends("SET lock:own 1 NX PX 9000").gets("+OK");
    takes(&alice);
    is_indexed(&redis);
    let entries = console.sends(format!("ZRANGE {INDEX} 0 -1")).reply();
    assert!(entries.to_string().ends_with(":lock:job]"), "{entries}");
    for listing in ["KEYS *", "SCAN 0 COUNT 1000"] {
        let names = alice.sends(listing).reply().to_string();
        assert!(!names.contains("kept"), "{names}");
    }
    for command in ["TYPE", "DEL", "ZRANGE"] {
        let line = if command == "ZRANGE" { format!("ZRANGE {INDEX} 0 -1") } else { format!("{command} {INDEX}") };
        alice.sends(line).gets_error("LOCKDENIED opaque-write");
    }
    // It is made again if it is lost, and gone with its last entry.
    console.sends(format!("DEL {INDEX}")).gets(":1");
    is_indexed(&redis);
    alice.sends("DEL lock:job").gets(":1");
    redis.becomes_free(INDEX);
    alice.sends("DEL lock:own").gets(":1");
}

/// Leases of dead clients in front of it do not hide one whose client lives.
#[test]
fn a_lease_is_found_behind_many_that_nobody_keeps_alive() {
    let redis = Redis::start();
    let builder = || far_away(&redis).default_ttl("5s");
    let first = starts(builder());
    let (dead, alive) = (from(&first, "10.1.2.9"), from(&first, FAR));
    let lines = (0..600).flat_map(|n| {
        let key = format!("lock:{n}");
        lockwarden_tests::encode(&["SETNX", &key, "1"])
    });
    dead.write(&lines.collect::<Vec<u8>>());
    for _ in 0..600 {
        dead.then().gets(":1");
    }
    takes(&alive);
    let console = redis.client();
    wait_for("all leases to be in the index", || console.sends(format!("ZCARD {INDEX}")).integer() == 601);
    first.kill();
    let second = starts(builder());
    let alive = from(&second, FAR);
    wait_for("the leases of the dead client to be over", || console.sends("EXISTS lock:0 lock:599").integer() == 0);
    stays(&redis);
    wait_for("the index to be tidied", || console.sends(format!("ZCARD {INDEX}")).integer() == 1);
    alive.sends("DEL lock:job").gets(":1");
}

/// Without the right to the index leases are renewed as before; the log says what is missing.
#[test]
fn a_proxy_that_may_not_write_the_index_renews_all_the_same() {
    let redis = Redis::start();
    redis.client().sends("ACL SETUSER warden on >secret ~* &* +@all -zadd -zrangebyscore -zrem").gets("+OK");
    let address = redis.address();
    let backend = format!("redis://warden:secret@{address}");
    let proxy = ProxyBuilder::for_backend(&backend).default_ttl("4s").start();
    let alice = proxy.client();
    takes(&alice);
    stays(&redis);
    proxy.logs(&["WARN", "cannot be found by other proxies"]);
    // Once for each connection; the first may end when the proxy has seen what the server is.
    let said = proxy.log().matches("nor theirs by this one").count();
    assert!(said <= 2, "{}", proxy.log());
    alice.sends("DEL lock:job").gets(":1");
}
