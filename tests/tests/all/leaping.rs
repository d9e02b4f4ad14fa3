//! `enforce` looks before it leaps: where the report says that a client that does nothing wrong would be harmed, or that
//! too little was seen to know, the order is declined with the reasons, however it is given.

use lockwarden_tests::{Client, Mode, Proxy, ProxyBuilder, Redis, lockwarden, run_to_end};

const ENFORCED: &str = "lockwarden_namespace_enforced{namespace=\"locks\"}";

fn watching(redis: &Redis) -> ProxyBuilder {
    Proxy::builder(redis).mode(Mode::Monitor).top("admin_identities", "[\"keeper\"]")
}

/// Takes and gives back locks, this many times.
fn works(client: &Client, times: usize) {
    for _ in 0..times {
        client.sends("SET lock:job 1 NX PX 9000").gets("+OK");
        client.sends("DEL lock:job").gets(":1");
    }
}

fn types(proxy: &Proxy, words: &[&str]) -> (Option<i32>, String) {
    let (admin, config) = (proxy.admin_address().to_string(), proxy.config());
    let mut command = lockwarden(words);
    command.args(["--admin", &admin, "--config"]).arg(config);
    let end = run_to_end(&mut command);
    (end.code, end.stdout + &end.stderr)
}

#[test]
fn too_little_is_declined_whichever_way_the_order_comes_and_done_where_it_is_meant() {
    let redis = Redis::start();
    redis.client().sends("ACL SETUSER keeper on >pw ~* &* +@all").gets("+OK");
    let proxy = watching(&redis).start();
    works(&proxy.client(), 3);
    let reason = "locks: too little was seen: watch for 994 calls more";
    let enforcing = watching(&redis).mode(Mode::Enforce).text();
    let keeper = proxy.client();
    keeper.sends("AUTH keeper pw").gets("+OK");
    let declined = || {
        assert_eq!(proxy.metric(ENFORCED), 0.0);
    };

    for words in [["mode", "enforce"], ["mode", "locks=enforce"]] {
        let (code, said) = types(&proxy, &words);
        assert!(code == Some(1) && said.contains(reason), "{said}");
        assert!(said.contains("--anyway"), "{said}");
        declined();
    }
    let (status, said) = proxy.orders("/mode", r#"{"mode":"enforce"}"#);
    assert!(status == 409 && said.contains(reason), "{said}");
    declined();
    let said = keeper.sends("LOCKWARDEN MODE locks enforce").gets_error("ERR the report speaks against it");
    assert!(said.contains(reason), "{said}");
    declined();
    let (status, said) = proxy.reloads(enforcing.as_bytes(), "/reload");
    assert!(status == 422 && said.contains(reason), "{said}");
    declined();
    proxy.reload(&enforcing);
    proxy.logs(&["the configuration was not loaded", "too little was seen"]);
    declined();
    // The way back to monitor mode is always allowed, and so is an order that names no watched namespace.
    assert_eq!(types(&proxy, &["mode", "monitor"]).0, Some(0));

    let back = || assert_eq!(types(&proxy, &["mode", "monitor"]).0, Some(0));
    assert_eq!(types(&proxy, &["mode", "enforce", "--anyway"]).0, Some(0));
    assert_eq!(proxy.metric(ENFORCED), 1.0);
    back();
    // A namespace that was enforced before is known well enough.
    assert_eq!(types(&proxy, &["mode", "enforce"]).0, Some(0));
    back();
    let other = watching(&redis).start();
    let (status, said) = other.orders("/mode", r#"{"mode":"enforce","anyway":true}"#);
    assert_eq!(status, 200, "{said}");
    let other = watching(&redis).start();
    let keeper = other.client();
    keeper.sends("AUTH keeper pw").gets("+OK");
    keeper.sends("LOCKWARDEN MODE enforce anyway").gets("[$5 locks, $7 enforce]");
    let other = watching(&redis).start();
    let (status, said) = other.reloads(enforcing.as_bytes(), "/reload?anyway=true");
    assert_eq!(status, 200, "{said}");
    assert_eq!(other.metric(ENFORCED), 1.0);
}

#[test]
fn what_was_seen_long_enough_and_harms_nobody_is_enforced_at_once() {
    let redis = Redis::start();
    let proxy = watching(&redis).start();
    let (worker, stranger) = (proxy.client(), proxy.client());
    works(&worker, 500);
    // A refusal of a stranger is no objection: enforcing is meant for that.
    worker.sends("SET lock:job 1 NX PX 9000").gets("+OK");
    stranger.sends("DEL lock:job").gets(":1");
    let (code, said) = types(&proxy, &["mode", "enforce"]);
    assert!(code == Some(0), "{said}");
    assert_eq!(proxy.metric(ENFORCED), 1.0);
}

#[test]
fn locks_that_would_stay_unheld_are_a_reason() {
    let redis = Redis::start();
    let proxy = watching(&redis).setting("owner-token", "doubt", "\"refuse\"").start();
    let pool = || proxy.client_from("127.46.0.1");
    let (one, two) = (pool(), pool());
    // The holder gives back over the connection that another thread's try was refused on: with this setting not the holder's.
    for _ in 0..500 {
        one.sends("SET lock:job 1 NX PX 9000").gets("+OK");
        two.sends("SET lock:job 1 NX PX 9000").gets("nil");
        two.sends("DEL lock:job").gets(":1");
    }
    let (code, said) = types(&proxy, &["mode", "enforce"]);
    assert!(code == Some(1), "{said}");
    assert!(said.contains("locks: it would leave locks unheld for "), "{said}");
    assert!(!said.contains("too little"), "{said}");
    assert_eq!(proxy.metric(ENFORCED), 0.0);
}
