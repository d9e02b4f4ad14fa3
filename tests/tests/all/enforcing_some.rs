//! From monitor to enforce mode for some clients: what the chosen applications are refused, that other
//! clients notice nothing, and the way back.

use lockwarden_tests::{Client, Mode, Proxy, ProxyBuilder, Redis, lockwarden, run_to_end};

fn enforcing_for(redis: &Redis, whom: &str) -> ProxyBuilder {
    Proxy::builder(redis).mode(Mode::Monitor).namespace("enforce_for", whom)
}

fn decisions(mode: &str, decision: &str) -> String {
    format!(
        "lockwarden_decisions_total{{namespace=\"locks\",operation=\"release\",decision=\"{decision}\",mode=\"{mode}\"}}"
    )
}

/// Whether this client is refused the release of another client's lock.
#[track_caller]
fn is_refused(client: &Client, redis: &Redis, owner: &Client) -> bool {
    redis.client().sends("DEL lock:probe").reply();
    owner.sends("SET lock:probe owner NX PX 9000").gets("+OK");
    client.sends("DEL lock:probe").integer() == 0
}

#[test]
fn a_named_client_is_refused_what_the_others_are_not() {
    let redis = Redis::start();
    let proxy = enforcing_for(&redis, "{ clients = [\"billing*\"] }").start();
    let (alice, billing, orders) = (proxy.client(), proxy.client(), proxy.client());
    for (mode, decision) in [("enforce", "deny"), ("monitor", "would-deny")] {
        proxy.counts(&decisions(mode, decision), 0.0);
    }
    billing.sends("CLIENT SETNAME billing-7").gets("+OK");
    orders.sends("CLIENT SETNAME orders-1").gets("+OK");

    alice.sends("SET lock:job a1 NX PX 9000").gets("+OK");
    billing.sends("DEL lock:job").gets(":0");
    proxy.counts(&decisions("enforce", "deny"), 1.0);
    proxy.counts(&decisions("monitor", "would-deny"), 0.0);
    orders.sends("DEL lock:job").gets(":1");
    proxy.counts(&decisions("enforce", "deny"), 1.0);
    proxy.counts(&decisions("monitor", "would-deny"), 1.0);
    proxy.logs(&["\"refused\"", "billing-7", "not-owner"]);
    proxy.logs(&["would have been refused", "orders-1", "not-owner"]);
}

#[test]
fn a_lock_without_ttl_gets_one_from_a_chosen_client_alone() {
    let redis = Redis::start();
    let proxy = enforcing_for(&redis, "{ clients = [\"billing*\"] }").namespace("adopt", "\"cap\"").start();
    let (orders, billing) = (proxy.client(), proxy.client());
    billing.sends("CLIENT SETNAME billing").gets("+OK");
    orders.sends("SETNX lock:orders 1").gets(":1");
    billing.sends("SETNX lock:billing 1").gets(":1");
    assert_eq!(redis.pttl("lock:orders"), -1, "it is only watched");
    assert!(redis.pttl("lock:billing") > 0);
    billing.sends("SETNX lock:orders 1").gets(":0");
    assert_eq!(redis.pttl("lock:orders"), -1, "whoever contends for it, it is the lock of one that is only watched");
}

#[test]
fn a_name_counts_from_the_next_command_on() {
    let redis = Redis::start();
    let proxy = enforcing_for(&redis, "{ clients = [\"billing\"] }").start();
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("SET lock:job a1 NX PX 9000").gets("+OK");
    bob.pipelines(&["CLIENT SETNAME billing", "DEL lock:job"], &["+OK", ":0"]);
    bob.pipelines(&["CLIENT SETNAME ''", "DEL lock:job"], &["+OK", ":1"]);
    alice.sends("SET lock:job a1 NX PX 9000").gets("+OK");
    bob.pipelines(&["HELLO 2 SETNAME billing", "DEL lock:job"], &[]);
    bob.then().reply();
    bob.then().gets(":0");
}

#[test]
fn a_block_is_judged_by_the_name_that_it_was_queued_under() {
    let redis = Redis::start();
    let proxy = enforcing_for(&redis, "{ clients = [\"billing\"] }").start();
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("MSETNX lock:1 a1 lock:2 a1 lock:3 a1").gets(":1");
    bob.sends("MULTI").gets("+OK");
    bob.sends("DEL lock:1").gets("+QUEUED");
    bob.sends("CLIENT SETNAME billing").gets("+QUEUED");
    bob.sends("DEL lock:2").gets("+QUEUED");
    bob.sends("EXEC").gets("[:1, +OK, :1]");
    proxy.counts(&decisions("monitor", "would-deny"), 2.0);
    proxy.counts(&decisions("enforce", "deny"), 0.0);
    bob.sends("DEL lock:3").gets(":0");
    proxy.counts(&decisions("enforce", "deny"), 1.0);
}

#[test]
fn a_user_and_an_address_name_a_client_too() {
    let redis = Redis::start();
    let proxy = enforcing_for(&redis, "{ clients = [\"svc-billing\", \"127.66.*\"] }").start();
    let owner = proxy.client();
    redis.client().sends("ACL SETUSER svc-billing on >secret ~* &* +@all").gets("+OK");
    let by_user = proxy.client();
    assert!(!is_refused(&by_user, &redis, &owner));
    by_user.sends("AUTH svc-billing secret").gets("+OK");
    assert!(is_refused(&by_user, &redis, &owner));
    assert!(is_refused(&proxy.client_from("127.66.0.1"), &redis, &owner));
    assert!(!is_refused(&proxy.client_from("127.67.0.1"), &redis, &owner));
}

#[test]
fn one_application_never_sees_both_whatever_the_percentage() {
    let redis = Redis::start();
    let proxy = enforcing_for(&redis, "{ percent = 50 }").start();
    let owner = proxy.client();
    let mut enforced = 0;
    for number in 0..32 {
        let connections = [proxy.client(), proxy.client()];
        let answers = connections.map(|client| {
            client.sends(format!("CLIENT SETNAME app-{number}")).gets("+OK");
            is_refused(&client, &redis, &owner)
        });
        assert_eq!(answers[0], answers[1], "app-{number} sees both modes");
        enforced += usize::from(answers[0]);
    }
    assert!((6..=26).contains(&enforced), "{enforced} of 32");
}

#[test]
fn the_switch_to_monitor_is_an_order_for_everybody() {
    let redis = Redis::start();
    let builder = enforcing_for(&redis, "{ clients = [\"billing\"] }");
    let text = builder.text();
    let proxy = builder.start();
    let (owner, billing) = (proxy.client(), proxy.client());
    billing.sends("CLIENT SETNAME billing").gets("+OK");
    assert!(is_refused(&billing, &redis, &owner));

    assert_eq!(proxy.switch("locks", Mode::Monitor), 200);
    assert!(!is_refused(&billing, &redis, &owner), "at once");
    proxy.logs(&["enforce_for is off", "locks"]);

    proxy.reload(&text);
    proxy.logs(&["configuration loaded"]);
    assert!(is_refused(&billing, &redis, &owner), "as the file says");

    assert_eq!(proxy.switch("locks", Mode::Enforce), 200);
    assert!(is_refused(&proxy.client(), &redis, &owner), "everybody");
}

#[test]
fn a_flag_for_the_mode_stands_over_enforce_for() {
    let redis = Redis::start();
    let proxy = enforcing_for(&redis, "{ clients = [\"*\"] }").argument("--mode").argument("monitor").start();
    let (owner, client) = (proxy.client(), proxy.client());
    assert!(!is_refused(&client, &redis, &owner));
}

#[test]
fn a_flush_is_judged_by_who_sends_it() {
    let redis = Redis::start();
    let proxy = enforcing_for(&redis, "{ clients = [\"billing\"] }").start();
    let (billing, orders) = (proxy.client(), proxy.client());
    billing.sends("CLIENT SETNAME billing").gets("+OK");
    orders.sends("SET lock:job o1 NX PX 9000").gets("+OK");
    billing.sends("FLUSHALL").gets_error("LOCKDENIED bulk-delete");
    assert_eq!(redis.value("lock:job"), "$2 o1");
    orders.sends("FLUSHALL").gets("+OK");
    assert_eq!(redis.pttl("lock:job"), -2, "the others are only watched");
}

#[test]
fn check_says_for_whom_a_namespace_is_enforced() {
    let redis = Redis::start();
    let builder = enforcing_for(&redis, "{ clients = [\"billing*\"], percent = 10 }");
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("lockwarden.toml");
    std::fs::write(&file, builder.text()).expect("the directory is ours");
    let end = run_to_end(lockwarden(&["check", "--config"]).arg(&file));
    assert_eq!(end.code, Some(0), "{end:?}");
    let expected = "in monitor mode (enforced for 10 % of the applications billing*)";
    assert!(end.stdout.contains(expected), "{}", end.stdout);
}

#[test]
fn the_metrics_say_which_namespaces_are_only_watched() {
    let redis = Redis::start();
    let watched = "mode = \"monitor\"";
    let proxy = Proxy::builder(&redis)
        .namespace("name", "\"locks\"")
        .more(&format!(
            "[[namespace]]\nname = \"watched\"\nkeys = [\"watched:*\"]\n{watched}\n\
             [[namespace]]\nname = \"partly\"\nkeys = [\"partly:*\"]\n{watched}\nenforce_for = {{ clients = [\"a\"] }}\n"
        ))
        .start();
    let enforced = |name: &str| proxy.metric(&format!("lockwarden_namespace_enforced{{namespace=\"{name}\"}}"));
    assert_eq!(["locks", "watched", "partly"].map(enforced), [1.0, 0.0, 1.0]);
    assert_eq!(proxy.switch("watched", Mode::Enforce), 200);
    assert_eq!(proxy.switch("partly", Mode::Monitor), 200);
    assert_eq!(["locks", "watched", "partly"].map(enforced), [1.0, 1.0, 0.0]);
}
