//! A proxy that stood still while another server became the primary: both what it was told before and what it finds when it
//! goes on are out of date.

use std::time::{Duration, Instant};

use lockwarden_tests::{Client, Failover, Proxy, Redis, Sentinels, wait_for};

use super::in_front_of;

/// Longer than anything takes in a proxy that runs.
const LONG: Duration = Duration::from_secs(3);

/// Stops the proxy, has this happen meanwhile, and lets it go on.
#[track_caller]
fn while_it_stands_still<T>(proxy: &Proxy, happens: impl FnOnce() -> T) -> T {
    proxy.freeze();
    let began = Instant::now();
    let happened = happens();
    wait_for("the gap to be long", || began.elapsed() > LONG);
    proxy.thaw();
    happened
}

fn is_granted(client: &Client) -> bool {
    client.reads_to_end().starts_with(b"+OK")
}

#[test]
fn a_proxy_that_was_frozen_over_a_failover_grants_nothing_on_the_old_primary() {
    if Sentinels::are_lacking() {
        return;
    }
    let mut all = Sentinels::start();
    let proxy = in_front_of(&all).start();
    let clients: Vec<Client> = (0..40).map(|_| proxy.client()).collect();
    clients.iter().for_each(|client| client.sends("PING").gets("+PONG"));
    let switched = while_it_stands_still(&proxy, || {
        for (number, client) in clients.iter().enumerate() {
            client.write(format!("SET lock:{number} x NX PX 60000\r\nQUIT\r\n").as_bytes());
        }
        // Clients and proxies reach the old primary, which goes on as one.
        all.fails_over(Failover::PrimaryCutOff)
    });
    let granted: Vec<usize> = (0..40).filter(|number| is_granted(&clients[*number])).collect();
    for number in &granted {
        let lock = format!("lock:{number}");
        assert!(!all.server(switched.to).is_free(&lock), "{lock} was granted on the old primary, one of {granted:?}");
    }
    proxy.logs(&["WARN", "this process stood still"]);
    wait_for("the new primary to be served", || proxy.ready() == Some(200));
    proxy.client().sends("SET lock:new x NX PX 60000").gets("+OK");
    assert_eq!(all.server(switched.to).value("lock:new"), "$1 x");
}

#[test]
fn what_the_old_primary_answered_while_the_proxy_stood_still_is_no_grant() {
    if Sentinels::are_lacking() {
        return;
    }
    let mut all = Sentinels::start();
    let proxy = in_front_of(&all).start();
    let (shop, depot) = (proxy.client(), proxy.client());
    shop.sends("SET lock:first s NX PX 60000").gets("+OK");
    depot.pipelines(&["MULTI", "SET lock:block d NX PX 60000"], &["+OK", "+QUEUED"]);
    let old = all.primary().expect("they are in order");
    let order = all.server(old).client();
    order.sends("CLIENT PAUSE 60000 WRITE").gets("+OK");
    shop.write(b"SET lock:a s NX PX 60000\r\nQUIT\r\n");
    depot.write(b"EXEC\r\nQUIT\r\n");
    wait_for("both to be held back", || order.sends("INFO clients").text().contains("blocked_clients:2"));
    while_it_stands_still(&proxy, || {
        all.fails_over(Failover::PrimaryCutOff);
        order.sends("CLIENT UNPAUSE").gets("+OK");
        wait_for("both to be carried out", || {
            !all.server(old).is_free("lock:a") && !all.server(old).is_free("lock:block")
        });
    });
    assert!(!is_granted(&shop), "the old primary's word was believed");
    let said = depot.reads_to_end();
    assert!(said.is_empty(), "{}", said.escape_ascii());
}

#[test]
fn a_proxy_that_stood_still_before_one_server_goes_on() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let client = proxy.client();
    client.sends("SET lock:a x NX PX 60000").gets("+OK");
    while_it_stands_still(&proxy, || client.write(b"SET lock:b x NX PX 10000\r\nDEL lock:a\r\nGET data\r\n"));
    client.then().gets("+OK");
    client.then().gets(":1");
    client.then().gets("nil");
    proxy.logs(&["WARN", "this process stood still"]);
    proxy.logs(&["INFO", "commands are forwarded again"]);
}
