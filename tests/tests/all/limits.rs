//! A machine with little: file descriptors, places at the admin address, memory. Those that are there are served on, and
//! the proxy can be looked at.

use std::net::TcpStream;

use lockwarden_tests::{Client, Proxy, Redis, Reply, wait_for};

const FULL: &str = "-ERR max number of clients reached";

/// Connects until one is refused; those that are served.
fn fill(proxy: &Proxy) -> Vec<Client> {
    let mut served = Vec::new();
    loop {
        let client = proxy.client();
        match client.sends("PING").reply() {
            Reply::Error(text) => {
                assert_eq!(format!("-{text}"), FULL);
                return served;
            }
            pong => assert_eq!(pong.to_string(), "+PONG"),
        }
        served.push(client);
        assert!(served.len() < 1_000, "nobody is refused");
    }
}

#[test]
fn a_proxy_without_descriptors_serves_those_that_it_has_and_can_be_looked_at() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).descriptors(256).start();
    let mut served = fill(&proxy);
    assert!(served.len() > 50, "{} clients", served.len());
    let most = proxy.metric("lockwarden_client_connections_max{listener=\"default\"}");
    assert!((most - served.len() as f64).abs() <= 2.0, "{most}");

    // Every one of them may take a lock, which is kept alive.
    for (number, client) in served.iter().enumerate() {
        client.sends(format!("SETNX lock:{number} a1")).gets(":1");
    }
    for _ in 0..200 {
        proxy.client().then().gets(FULL);
    }
    for path in ["/live", "/ready", "/metrics"] {
        assert_eq!(proxy.get(path).0, 200, "{path}");
    }
    let refused = proxy.metric("lockwarden_client_connections_refused_total");
    assert!(refused >= 201.0, "{refused}");
    assert_eq!(proxy.logged(&["new clients are refused"]), 1);
    assert_eq!(proxy.logged(&["cannot accept"]), 0);
    let (status, answer) = proxy.post("/reload");
    assert_eq!(status, 200, "{answer}");

    // A place that becomes free is given to the next.
    served.truncate(10);
    wait_for("a newcomer is served", || {
        proxy.client().sends("PING").reply().to_string() == "+PONG"
    });
    for (number, client) in served.iter().enumerate() {
        client.sends(format!("DEL lock:{number}")).gets(":1");
    }
}

#[test]
fn where_clients_share_connections_there_may_be_twice_as_many() {
    let redis = Redis::start();
    let dedicated = Proxy::builder(&redis).descriptors(256).start();
    let shared = Proxy::builder(&redis)
        .descriptors(256)
        .multiplexed()
        .start();
    let (dedicated, shared) = (fill(&dedicated).len(), fill(&shared).len());
    assert!(shared + 20 > 2 * dedicated, "{shared} and {dedicated}");
}

#[test]
fn the_configuration_may_say_how_many_clients_there_may_be() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).top("max_clients", "3").start();
    let served = fill(&proxy);
    assert_eq!(served.len(), 3);
    drop(served);
    wait_for("the places are free", || {
        proxy.client().sends("PING").reply().to_string() == "+PONG"
    });
}

#[test]
fn silent_connections_do_not_take_health_away() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis)
        .top("metrics", "\"127.0.0.1:0\"")
        .start();
    let connect = || TcpStream::connect(proxy.admin_address()).expect("the address is served");
    // As many as there were places, and then more than there are now.
    for silent in [64, 300] {
        let silent: Vec<TcpStream> = (0..silent).map(|_| connect()).collect();
        wait_for("health is answered", || {
            ["/live", "/ready", "/metrics"]
                .iter()
                .all(|path| proxy.get(path).0 == 200)
        });
        drop(silent);
    }
}
