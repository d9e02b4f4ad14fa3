//! Clients behind a balancer that speaks the PROXY protocol: each client is who the balancer says it is, and
//! no other peer may say so.

use lockwarden_tests::balancer::{OVER_IPV4, certified, extension, introduced, version_2};
use lockwarden_tests::{Client, Proxy, Redis, encode, wait_for};

/// The harness's clients are the balancer: they come from loopback addresses.
fn behind_a_balancer(redis: &Redis) -> Proxy {
    Proxy::builder(redis).top("proxy_protocol_from", "[\"127.0.0.0/8\"]").without_waiting().start()
}

/// A connection of the balancer.
fn connection(proxy: &Proxy) -> Client {
    Client::connect_plain(proxy.address())
}

/// A connection of the balancer for a client at this address.
fn from(proxy: &Proxy, address: &str) -> Client {
    let client = connection(proxy);
    client.write(format!("PROXY TCP4 {address} 10.9.9.9 40000 6379\r\n").as_bytes());
    client
}

fn is_up(proxy: &Proxy) {
    wait_for("the proxy to be ready", || proxy.ready() == Some(200));
}

#[test]
fn a_client_is_who_the_balancer_says_by_either_version() {
    let redis = Redis::start();
    let proxy = behind_a_balancer(&redis);
    is_up(&proxy);
    let alice = from(&proxy, "10.1.2.3");
    alice.sends("SETNX lock:job a1").gets(":1");
    let stranger = from(&proxy, "10.1.2.4");
    stranger.sends("DEL lock:job").gets(":0");
    proxy.logs(&["refused", "\"client\":\"10.1.2.4:40000\"", "lock:job"]);

    // Another connection of hers, by version 2, with unknown extensions; the command comes in the same
    // packet.
    let again = connection(&proxy);
    let body = [&OVER_IPV4[..], &[0xee, 0, 2, 1, 2], &[0x04, 0, 1, 0]].concat();
    let mut bytes = version_2(0x21, 0x11, &body);
    bytes.extend(encode(&["DEL", "lock:job"]));
    again.sends_bytes(&bytes).gets(":1");
}

#[test]
fn the_name_in_a_certificate_that_a_balancer_verified_tells_clients_apart() {
    let redis = Redis::start();
    let proxy = behind_a_balancer(&redis);
    is_up(&proxy);
    let shop = introduced(&proxy, &certified(0, "shop.corp"));
    shop.sends("SETNX lock:job a1").gets(":1");
    for other in [
        certified(0, "billing.corp"),
        // Its certificate was not verified, or its name cannot be shown, so it has none.
        certified(1, "shop.corp"),
        certified(0, "shop.corp\n"),
        Vec::new(),
    ] {
        introduced(&proxy, &other).sends("DEL lock:job").gets(":0");
    }
    let again = introduced(&proxy, &certified(0, "shop.corp"));
    again.sends("DEL lock:job").gets(":1");
}

#[test]
fn nobody_else_may_say_what_name_is_in_a_certificate() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).top("proxy_protocol_from", "[\"10.0.0.0/8\"]").start();
    let client = introduced(&proxy, &certified(0, "shop.corp"));
    client.then().gets_error("ERR Protocol error: unexpected NUL in inline request");
}

#[test]
fn the_endpoint_of_a_private_link_tells_clients_of_one_address_apart() {
    let redis = Redis::start();
    let proxy = behind_a_balancer(&redis);
    is_up(&proxy);
    let aws = |id: &str| extension(0xea, &[b"\x01vpce-", id.as_bytes()].concat());
    let one = introduced(&proxy, &aws("1"));
    one.sends("SETNX lock:job a1").gets(":1");
    for other in [aws("2"), extension(0xe0, &[1; 8]), Vec::new()] {
        introduced(&proxy, &other).sends("DEL lock:job").gets(":0");
    }
    introduced(&proxy, &aws("1")).sends("DEL lock:job").gets(":1");
}

#[test]
fn a_header_may_come_in_pieces_and_over_ipv6() {
    let redis = Redis::start();
    let proxy = behind_a_balancer(&redis);
    is_up(&proxy);
    let mut body = [0; 36];
    body[..2].copy_from_slice(&[0x20, 0x01]);
    body[15] = 1;
    let client = connection(&proxy);
    for byte in version_2(0x21, 0x21, &body) {
        client.write(&[byte]);
    }
    client.sends("SETNX lock:job a1").gets(":1");
    let text = connection(&proxy);
    text.write(b"PROXY TCP6 2001::1 2001::2 1 ");
    text.write(b"6379\r\n");
    text.sends("DEL lock:job").gets(":1");
}

#[test]
fn a_balancers_own_connection_is_served_and_is_nobodys_equal() {
    let redis = Redis::start();
    let proxy = behind_a_balancer(&redis);
    is_up(&proxy);
    let headers = [version_2(0x20, 0x00, &[]), version_2(0x21, 0x00, &[]), b"PROXY UNKNOWN\r\n".to_vec()];
    for header in headers {
        let clients = [(); 2].map(|()| {
            let client = Client::connect_plain_from([127, 88, 0, 1].into(), proxy.address());
            client.write(&header);
            client
        });
        clients[0].sends("SETNX lock:job a1").gets(":1");
        clients[1].sends("DEL lock:job").gets(":0");
        clients[0].sends("DEL lock:job").gets(":1");
    }
}

#[test]
fn what_a_balancer_calls_loopback_is_no_process_of_this_machine() {
    let redis = Redis::start();
    let proxy = behind_a_balancer(&redis);
    is_up(&proxy);
    let (alice, bob) = (from(&proxy, "127.0.0.1"), from(&proxy, "127.0.0.1"));
    alice.sends("SETNX lock:job a1").gets(":1");
    bob.sends("DEL lock:job").gets(":0");
}

#[test]
fn who_has_to_begin_with_a_header_and_does_not_is_closed() {
    let redis = Redis::start();
    let proxy = behind_a_balancer(&redis);
    is_up(&proxy);
    let malformed = "lockwarden_protocol_errors_total{side=\"client\",kind=\"malformed\"}";
    let limit = "lockwarden_protocol_errors_total{side=\"client\",kind=\"limit\"}";
    connection(&proxy).sends("PING").gets_close();
    connection(&proxy).sends_bytes(b"PROXY TCP4 10.1.2.3 10.9.9.9 70000 1\r\n").gets_close();
    connection(&proxy).sends_bytes(version_2(0x21, 0x11, &OVER_IPV4[..8])).gets_close();
    proxy.counts(malformed, 3.0);
    proxy.counts(limit, 0.0);
    let mut endless = b"PROXY UNKNOWN ".to_vec();
    endless.extend([b'x'; 200]);
    connection(&proxy).sends_bytes(&endless).gets_close();
    let body = vec![0; 65_535];
    connection(&proxy).sends_bytes(&version_2(0x21, 0x11, &body)[..16]).gets_close();
    proxy.counts(limit, 2.0);
    proxy.logs(&["it has to begin with a PROXY header"]);

    // One that says nothing, and one that stops in the middle, are not waited for.
    let (silent, slow) = (connection(&proxy), connection(&proxy));
    slow.write(b"PROXY TCP4 10.1");
    silent.then().gets_close();
    slow.then().gets_close();
    proxy.counts(malformed, 5.0);
    // A balancer that only checks whether the port is open is no error.
    drop(connection(&proxy));
    from(&proxy, "10.1.2.3").sends("PING").gets("+PONG");
    proxy.counts(malformed, 5.0);
    assert_eq!(proxy.logged(&["ERROR"]), 0);
}

#[test]
fn nobody_else_may_say_who_he_is() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).top("proxy_protocol_from", "[\"10.0.0.0/8\"]").start();
    let client = connection(&proxy);
    client.sends_bytes(b"PROXY TCP4 10.1.2.3 10.9.9.9 40000 6379\r\n").gets_error("ERR unknown command 'PROXY'");
    client.sends("PING").gets("+PONG");
}
