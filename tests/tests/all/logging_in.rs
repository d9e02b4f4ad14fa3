//! Whether the server asks a new connection for a password: how the proxy finds that out, and that it notices
//! a change.

use lockwarden_tests::{Client, Proxy, ProxyBuilder, Redis, Server, comes_true, wait_for};

/// More arguments than Redis takes from a client that has yet to log in.
const LONG_REQUEST: &str = "MSET a 1 b 2 c 3 d 4 e 5 f 6 g 7 h 8 i 9 j 10";

/// A server that is loading its data until [`ends_loading`] is called.
fn loading() -> Redis {
    let mut redis = Redis::with_arguments(&[
        "--key-load-delay",
        "30000",
        "--loading-process-events-interval-bytes",
        "1024",
        "--rdbcompression",
        "no",
    ]);
    let (client, value) = (redis.client(), "x".repeat(1024));
    for at in 0..1000 {
        client.sends(format!("SET key:{at} {value}")).gets("+OK");
    }
    client.sends("SAVE").gets("+OK");
    redis.begin_again();
    redis.client().sends("GET a").gets_error("LOADING");
    redis
}

#[track_caller]
fn ends_loading(redis: &Redis) {
    let client = redis.client();
    client.sends("CONFIG SET key-load-delay 0").gets("+OK");
    wait_for("the server to have loaded its data", || client.sends("PING").reply().to_string() == "+PONG");
}

#[track_caller]
fn becomes(proxy: &Proxy, status: u16) {
    wait_for(&format!("/ready to answer {status}"), || proxy.ready() == Some(status));
}

/// In front of a server whose password the proxy knows, if it has one.
fn on_the_network(redis: &Redis, password: &str) -> ProxyBuilder {
    ProxyBuilder::for_backend(&format!("redis://:{password}@{}", redis.address()))
        .top("listen", "\"0.0.0.0:0\"")
        .without_waiting()
}

fn is_closed(client: &Client) -> bool {
    client.write(b"PING\r\n");
    client.reads_until(b"\r\n").is_empty()
}

#[test]
fn a_server_that_is_loading_is_not_taken_for_one_that_wants_a_password() {
    if Server::under_test().lacks("CONFIG SET while it loads", 7, 0) {
        return;
    }
    for sessions in ["dedicated", "multiplexed"] {
        let redis = loading();
        let proxy = Proxy::builder(&redis).top("sessions", &format!("\"{sessions}\"")).without_waiting().start();
        becomes(&proxy, 200);
        let early = proxy.client();
        early.sends("GET plain").gets_error("LOADING");
        early.sends(LONG_REQUEST).gets_error("LOADING");
        ends_loading(&redis);
        early.sends(LONG_REQUEST).gets("+OK");
        proxy.client().sends(LONG_REQUEST).gets("+OK");
        proxy.client().sends("SETNX lock:job a1").gets(":1");
    }
}

#[test]
fn an_open_server_is_not_opened_to_a_network_while_it_loads() {
    if Server::under_test().lacks("CONFIG SET while it loads", 7, 0) {
        return;
    }
    let redis = loading();
    let proxy = Proxy::builder(&redis).top("listen", "\"0.0.0.0:0\"").without_waiting().start();
    proxy.logs(&["no client is served"]);
    assert!(!comes_true_soon(|| proxy.ready() == Some(200)), "{}", proxy.log());
    proxy.client().sends("GET a").gets_close();
    ends_loading(&redis);
    proxy.logs(&["allow_open"]);
    proxy.client().sends("GET a").gets_close();
    assert_eq!(proxy.ready(), Some(503));
}

/// For as long as a few heartbeats take.
fn comes_true_soon(mut condition: impl FnMut() -> bool) -> bool {
    (0..40).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        condition()
    })
}

#[test]
fn a_password_that_is_taken_away_closes_the_network_and_one_that_is_set_opens_it() {
    let redis = Redis::with_arguments(&["--requirepass", "secret"]);
    let proxy = on_the_network(&redis, "secret").start();
    becomes(&proxy, 200);
    let direct = redis.client();
    direct.sends("AUTH secret").gets("+OK");
    direct.sends("CONFIG SET requirepass \"\"").gets("+OK");
    becomes(&proxy, 503);
    proxy.logs(&["allow_open"]);
    assert!(is_closed(&proxy.client()));
    direct.sends("CONFIG SET requirepass secret").gets("+OK");
    becomes(&proxy, 200);
    proxy.client().sends("PING").gets_error("NOAUTH");
}

#[test]
fn newcomers_may_send_long_requests_once_no_password_is_wanted_any_more() {
    for sessions in ["dedicated", "multiplexed"] {
        let redis = Redis::with_arguments(&["--requirepass", "secret"]);
        let proxy = ProxyBuilder::for_backend(&format!("redis://:secret@{}", redis.address()))
            .top("sessions", &format!("\"{sessions}\""))
            .start();
        proxy.client().sends(LONG_REQUEST).gets_error("ERR Protocol error: unauthenticated");
        let direct = redis.client();
        direct.sends("AUTH secret").gets("+OK");
        direct.sends("CONFIG SET requirepass \"\"").gets("+OK");
        let taken = comes_true(|| {
            let client = proxy.client();
            client.sends(LONG_REQUEST).reply().to_string() == "+OK"
        });
        assert!(taken, "{sessions}");
    }
}

/// An operator may let clients in without a password and take nearly every command from them. That is no
/// request for a password.
#[test]
fn a_default_user_with_few_commands_is_not_asked_for_a_password() {
    let redis = Redis::start();
    redis.client().sends("ACL SETUSER default on nopass ~* -@all +mset +acl").gets("+OK");
    let proxy = Proxy::builder(&redis).top("listen", "\"0.0.0.0:0\"").without_waiting().start();
    becomes(&proxy, 200);
    proxy.client().sends(LONG_REQUEST).gets("+OK");
    proxy.client().sends("PING").gets_error("NOPERM");
}

/// While a script runs for long the server says BUSY to nearly everything. It is the same server
/// afterwards, whose leases the proxy renews itself.
#[test]
fn a_server_that_is_busy_with_a_script_is_asked_again() {
    let redis = Redis::with_arguments(&["--lua-time-limit", "50"]);
    let busy = redis.client();
    let endless = busy.sends("EVAL \"while true do end\" 0");
    let other = redis.client();
    wait_for("the server to be busy", || other.sends("PING").reply().to_string().starts_with("-BUSY"));
    let proxy = Proxy::builder(&redis).top("listen", "\"127.0.0.1:0\"").without_waiting().start();
    proxy.logs(&["BUSY"]);
    assert_eq!(proxy.ready(), Some(503));
    other.sends("SCRIPT KILL").gets("+OK");
    endless.gets_error("ERR");
    becomes(&proxy, 200);
    assert_eq!(proxy.logged(&["may not log in"]), 0, "{}", proxy.log());
    let alice = proxy.client();
    alice.sends("SETNX lock:job a1").gets(":1");
    let renewed = "lockwarden_keep_alive_renewals_total{outcome=\"renewed\"}";
    wait_for("a renewal", || proxy.metric(renewed) > 0.0);
    proxy.client().sends(LONG_REQUEST).gets("+OK");
}
