//! Only the proxy's own connection ends: by `CLIENT KILL TYPE normal`, Redis's `timeout`, or a device in between. It is made
//! again at once, and no client notices; but before new clients are let in, the proxy asks the server again for everything
//! that it must know about it.

use lockwarden_tests::{Forwarder, Proxy, ProxyBuilder, Redis, encode, wait_for};

const MADE_AGAIN: &str = "the proxy's own connection ended, and was made again";
const ERAS: &str = "lockwarden_backend_era_changes_total";

/// A server that recognises the proxy's own connections by their user.
fn knowing_the_proxy() -> (Redis, ProxyBuilder) {
    let redis = Redis::start();
    let user = "ACL SETUSER warden on >secret ~* &* +@all";
    redis.client().sends(user).gets("+OK");
    let url = format!("redis://warden:secret@{}", redis.address());
    (redis, ProxyBuilder::for_backend(&url))
}

fn ends_own(redis: &Redis) {
    let ended = redis.client().sends("CLIENT KILL USER warden").integer();
    assert!(ended >= 1);
}

#[test]
fn newcomers_are_served_while_it_is_made_again() {
    for sessions in ["dedicated", "multiplexed"] {
        let (redis, proxy) = knowing_the_proxy();
        let proxy = proxy.top("sessions", &format!("\"{sessions}\"")).start();
        for time in 1..=5 {
            ends_own(&redis);
            // The next heartbeat finds its connection closed.
            while proxy.logged(&[MADE_AGAIN]) < time {
                proxy.client().sends("SET lock:a x NX PX 1").reply();
                assert_eq!(proxy.ready(), Some(200));
            }
        }
        assert_eq!(proxy.logged(&["no client is served"]), 0, "{}", proxy.log());
        assert_eq!(proxy.logged(&["\"ERROR\""]), 0, "{}", proxy.log());
        let closed = "lockwarden_backend_reconnects_total{reason=\"closed\"}";
        assert_eq!(proxy.metric(closed), 5.0);
        assert_eq!(proxy.metric(ERAS), 0.0, "it is the same server");
    }
}

/// The server's `timeout` takes connections between two heartbeats where they are rarer than that.
#[test]
fn an_end_by_the_servers_timeout_is_no_news() {
    let redis = Redis::with_arguments(&["--timeout", "1"]);
    let proxy = Proxy::enforcing(&redis);
    // Frozen, it says nothing for longer than the server waits.
    proxy.freeze();
    wait_for("the server to close what is not used", || redis.connections() == 0);
    proxy.thaw();
    wait_for("the connection to be made again", || {
        proxy.client().sends("PING").gets("+PONG");
        proxy.logged(&[MADE_AGAIN]) > 0
    });
    assert_eq!(proxy.logged(&["\"ERROR\""]), 0, "{}", proxy.log());
}

#[test]
fn a_server_that_is_gone_is_said_once_and_those_who_wait_are_sent_away() {
    let mut redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    redis.stop();
    wait_for("newcomers to be sent away", || proxy.ready() == Some(503));
    proxy.client().sends("PING").gets_close();
    assert_eq!(proxy.logged(&["ERROR", "no client is served"]), 1);
    redis.start_again();
    wait_for("the server to be found", || proxy.ready() == Some(200));
    proxy.client().sends("PING").gets("+PONG");
    assert_eq!(proxy.logged(&[MADE_AGAIN]), 0, "{}", proxy.log());
}

/// It takes the connection, and says nothing.
#[test]
fn who_waits_for_a_server_that_says_nothing_is_sent_away_in_the_end() {
    let redis = Redis::start();
    let address = Forwarder::to(redis.address());
    let proxy = ProxyBuilder::for_backend(&format!("redis://{}", address.address())).start();
    redis.freeze();
    address.closes_all();
    proxy.logs(&["ERROR", "no client is served"]);
    assert_eq!(proxy.ready(), Some(503));
    proxy.client().sends("PING").gets_close();
    redis.thaw();
    wait_for("the server to be found", || proxy.ready() == Some(200));
    proxy.client().sends("PING").gets("+PONG");
}

/// Another server stands behind the address: its locks are not those that the proxy has granted.
#[test]
fn another_server_is_noticed_before_it_grants_anything() {
    let (one, other) = (Redis::start(), Redis::start());
    let address = Forwarder::to(one.address());
    let proxy = ProxyBuilder::for_backend(&format!("redis://{}", address.address()))
        .namespace("quarantine", "\"3s\"")
        .ceiling("60s")
        .start();
    let client = proxy.client();
    wait_for("the quarantine of the start to end", || {
        client.sends("SET lock:a x NX PX 60000").reply().to_string() == "+OK"
    });
    address.leads_to(other.address());
    address.closes_all();
    while proxy.metric(ERAS) == 0.0 {
        // It is not granted, or its connection is closed: it led to another server than the proxy knew.
        let newcomer = proxy.client();
        newcomer.write(&encode(&["SET", "lock:a", "y", "NX", "PX", "60000"]));
        let said = newcomer.reads_until(b"\n");
        assert!(said.is_empty() || said == b"$-1\r\n", "{said:?}");
    }
    assert!(other.is_free("lock:a"));
    proxy.logs(&["looked for the leases of the primary before"]);
}
