//! Which server the proxy follows where its sentinels do not agree: at once one that proves to go on with the data of the
//! previous primary; otherwise the one that most of them name. The sentinels are simulated, so that each says what its test
//! wants.

use std::net::{SocketAddr, TcpListener};

use lockwarden_tests::{lockwarden, run_to_end};

use super::promised::Oracles;
use super::*;

const DISSENTING: &str = "lockwarden_sentinels_dissenting";

/// An address where no server listens.
fn dead() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it is bound")
}

/// One client, whose connection nothing closes, is served for so long.
#[track_caller]
fn is_served(client: &Client, mut meanwhile: impl FnMut()) {
    holds_for(Duration::from_secs(3), "every request is served", || {
        meanwhile();
        client.sends("SET data here").reply().to_string() == "+OK"
    });
}

#[test]
fn one_foreign_sentinel_of_three_moves_no_traffic() {
    let (ours, foreign) = (Redis::start(), Redis::start());
    let all = Oracles::name(&ours, 4);
    let proxy = all.in_front().start();
    let client = proxy.client();
    client.sends("SET lock:a x NX PX 60000").gets("+OK");
    all.0[2].says(Some((foreign.address(), 99)));
    is_served(&client, || {});
    proxy.counts(DISSENTING, 1.0);
    proxy.logs(&["WARN", "a sentinel names another primary", &foreign.address().to_string(), "\"epoch\":99"]);
    assert_eq!(proxy.metric(ERAS), 0.0);
    assert!(foreign.is_free("data") && foreign.is_free("lock:a"));
    assert_eq!(proxy.logged(&["the sentinels name another primary"]), 0);

    all.0[2].says(Some((ours.address(), 4)));
    proxy.counts(DISSENTING, 0.0);
    proxy.logs(&["INFO", "all sentinels that are heard name the primary that is followed"]);
}

#[test]
fn one_sentinel_that_names_dead_addresses_with_growing_epochs_stops_nobody() {
    let ours = Redis::start();
    let all = Oracles::name(&ours, 4);
    let proxy = all.in_front().start();
    let client = proxy.client();
    let (dead, mut epoch) = (dead(), 100);
    is_served(&client, || {
        epoch += 1;
        all.0[0].says(Some((dead, epoch)));
    });
    // Nor one that grows the epoch of the primary itself.
    is_served(&client, || {
        epoch += 1;
        all.0[0].says(Some((ours.address(), epoch)));
    });
    assert_eq!(proxy.metric("lockwarden_backend_reconnects_total{reason=\"demoted\"}"), 0.0);
}

#[test]
fn a_foreign_sentinel_that_answers_first_does_not_decide_at_the_start() {
    let (ours, foreign) = (Redis::start(), Redis::start());
    let all = Oracles::name(&ours, 4);
    all.0[0].says(Some((foreign.address(), 99)));
    let proxy = all.in_front().start();
    proxy.client().sends("SET data here").gets("+OK");
    assert_eq!(ours.value("data"), "$4 here");
    assert!(foreign.is_free("data"));
    let check = run_to_end(lockwarden(&["check", "--backend", "--config"]).arg(proxy.config()));
    assert_eq!(check.code, Some(1), "{}", check.stdout);
    assert!(check.stdout.contains(&format!("names {} as the primary", foreign.address())), "{}", check.stdout);
}

/// Sentinels that have heard nothing yet go on naming the old primary.
#[test]
fn a_replica_of_ours_that_was_promoted_is_followed_on_the_word_of_one_sentinel() {
    let (old, new) = (Redis::start(), Redis::start());
    let all = Oracles::name(&old, 4);
    let proxy = all.in_front().start();
    proxy.client().sends("SET data before").gets("+OK");
    let order = new.client();
    let (host, port) = (old.address().ip(), old.address().port());
    order.sends(format!("REPLICAOF {host} {port}")).gets("+OK");
    wait_for("the copy", || new.value("data") == "$6 before");
    // A replica that a sentinel names has the data, too, and is not followed.
    let client = proxy.client();
    all.0[1].says(Some((new.address(), 5)));
    is_served(&client, || {});
    assert_eq!(proxy.metric(ERAS), 0.0);

    order.sends("REPLICAOF NO ONE").gets("+OK");
    serves_again(&proxy);
    proxy.client().sends("SET data after").gets("+OK");
    assert_eq!(new.value("data"), "$5 after");
    holds_for(Duration::from_secs(2), "it stays there", || proxy.metric(ERAS) <= 1.0 && proxy.ready() == Some(200));
}

#[test]
fn a_name_and_the_address_of_one_sentinel_count_once() {
    if Sentinels::are_lacking() {
        return;
    }
    let all = Sentinels::start();
    // They know one another by address.
    let url = all.url().replace("127.0.0.1", "localhost");
    let proxy = ProxyBuilder::for_backend(&url).start();
    proxy.counts("lockwarden_sentinels_heard", 3.0);
    holds_for(Duration::from_secs(3), "there are three of them", || {
        proxy.metric("lockwarden_sentinels_known") <= 3.0 && proxy.metric("lockwarden_sentinels_heard") <= 3.0
    });
}
