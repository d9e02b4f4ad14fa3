//! Rules about what clients did recently and what they hold: how often a lock was tried, rates that refill, orders of
//! locks, quotas.

use std::fs;

use lockwarden_tests::{Client, Proxy, ProxyBuilder, Redis, lockwarden, run_to_end, wait_for};

fn with_rules(redis: &Redis, rules: &str) -> ProxyBuilder {
    Proxy::builder(redis).namespace("on_violation", "\"error\"").namespace("rule", &format!("[{rules}]"))
}

fn named(proxy: &Proxy, name: &str) -> Client {
    let client = proxy.client();
    client.sends(format!("CLIENT SETNAME {name}")).gets("+OK");
    client
}

/// Takes a lock and gives it back.
fn works(client: &Client, key: &str) {
    client.sends(format!("SET {key} a NX PX 5000")).gets("+OK");
    client.sends(format!("DEL {key}")).gets(":1");
}

/// The trail has all that is needed to ask again, once it has come to its last lock.
#[track_caller]
fn is_answered_the_same_again(proxy: &Proxy, last: &str) {
    let (config, trail) = (proxy.directory().join("copy.toml"), proxy.directory().join("trail.jsonl"));
    fs::copy(proxy.config(), &config).expect("the directory is ours");
    wait_for("the trail", || fs::read_to_string(&trail).is_ok_and(|text| text.contains(last)));
    let mut replay = lockwarden(&["policy", "replay"]);
    let end = run_to_end(replay.arg(&trail).arg("--config").arg(&config));
    assert_eq!(end.code, Some(0), "{end:?}");
}

const RATE: &str =
    "{ name = \"often\", when = 'key.startsWith(\"lock:job:\")', rate = \"3/1h\", hint = \"ask less often\" }";

#[test]
fn a_rate_is_of_an_application_over_all_its_connections_and_locks() {
    let redis = Redis::start();
    let proxy = with_rules(&redis, RATE).top("audit", "\"all\"").top("audit_file", "\"trail.jsonl\"").start();
    let (one, two, other) = (named(&proxy, "billing"), named(&proxy, "billing"), named(&proxy, "shop"));
    works(&one, "lock:job:1");
    works(&two, "lock:job:2");
    works(&one, "lock:job:3");
    for client in [&one, &two] {
        let refused = client.sends("SET lock:job:4 a NX PX 5000").gets_error("LOCKDENIED limited");
        assert!(
            refused.contains("policy=rules rule=often") && refused.contains("hint=\"ask less often\""),
            "{refused}"
        );
    }
    // Another application, and another lock.
    works(&other, "lock:job:4");
    works(&one, "lock:other");

    // A reload of the same rules gives nothing back.
    let text = fs::read_to_string(proxy.config()).expect("the file is there");
    assert_eq!(proxy.reloads(text.as_bytes(), "/reload").0, 200);
    one.sends("SET lock:job:5 a NX PX 5000").gets_error("LOCKDENIED limited");

    is_answered_the_same_again(&proxy, "lock:job:5");
}

#[test]
fn a_waiter_that_polls_too_often_is_told_so_whichever_connection_it_uses() {
    let redis = Redis::start();
    let rules = "{ name = \"spin\", deny = 'tries.application > 5', hint = \"wait longer between two tries\" }, \
                 { name = \"crowd\", only = \"report\", deny = 'tries.everyone > 8' }";
    let proxy = with_rules(&redis, rules).start();
    let holder = named(&proxy, "holder");
    holder.sends("SET lock:a a NX PX 9000").gets("+OK");
    for _ in 0..5 {
        named(&proxy, "worker").sends("SET lock:a b NX PX 9000").gets("nil");
    }
    let refused = named(&proxy, "worker").sends("SET lock:a b NX PX 9000").gets_error("LOCKDENIED limited");
    assert!(refused.contains("rule=spin") && refused.contains("wait longer"), "{refused}");
    // The rule does not concern other clients, other locks, or what the holder does.
    let other = named(&proxy, "shop");
    other.sends("SET lock:a c NX PX 9000").gets("nil");
    other.sends("SET lock:a c NX PX 9000").gets("nil");
    works(&named(&proxy, "worker"), "lock:b");
    holder.sends("DEL lock:a").gets(":1");
    let reported = "lockwarden_rule_refusals_total{namespace=\"locks\",rule=\"crowd\",decision=\"would-deny\"}";
    assert_eq!(proxy.metric(reported), 1.0);
}

#[test]
fn what_is_asked_beside_spends_nothing_of_what_is_in_force() {
    let redis = Redis::start();
    let next = "{ settings = { ttl-ceiling = { ceiling = \"9s\" } } }";
    let proxy = with_rules(&redis, RATE).namespace("next", next).start();
    let client = named(&proxy, "billing");
    for number in 0..3 {
        works(&client, &format!("lock:job:{number}"));
    }
    client.sends("SET lock:job:4 a NX PX 5000").gets_error("LOCKDENIED limited");
    let count = |change: &str| proxy.metric(&format!("lockwarden_next_answers_total{{change=\"{change}\"}}"));
    assert_eq!(count("permit-to-deny") + count("deny-to-permit"), 0.0, "both refuse the fourth, and none before");
}

#[test]
fn a_rate_is_tried_by_a_file_of_cases() {
    let directory = tempfile::tempdir().expect("a directory");
    let (config, cases) = (directory.path().join("lockwarden.toml"), directory.path().join("cases.toml"));
    let rules = format!("{RATE}, {{ name = \"spin\", deny = 'tries.application > 5 || tries.everyone > 50' }}");
    let namespace = "[[namespace]]\nname = \"locks\"\nkeys = [\"lock:*\"]\n";
    fs::write(&config, format!("{namespace}rule = [{rules}]\n")).expect("the directory is ours");
    let text = r#"
[request]
key    = "lock:job:1"
client = { name = "billing" }

[[case]]
expect = { permit = { ttl_default = "30s", ttl_cap = "1h", keep_alive = "1d", fence = "hybrid" } }

[[case]]
request = { spent = ["often"] }
expect  = { deny = "limited", rule = "often" }

[[case]]
request = { tries = 6 }
expect  = { deny = "limited", rule = "spin" }

[[case]]
request = { tries = 5, tries_everyone = 51 }
expect  = { deny = "limited", rule = "spin" }
"#;
    fs::write(&cases, text).expect("the directory is ours");
    let end = run_to_end(lockwarden(&["policy", "test", "--config"]).arg(&config).arg(&cases));
    assert_eq!(end.code, Some(0), "{end:?}");
    for (rate, words) in [
        (
            "10",
            ":4:34 error: namespace \"locks\": rule \"often\": rate: \"10\" is no rate; write how many in which time",
        ),
        ("0/1m", "is no rate"),
        ("10/2d", "is no rate"),
        ("1/minute", "is no rate"),
    ] {
        let rule = format!("{namespace}rule = [{{ name = \"often\", rate = \"{rate}\" }}]\n");
        fs::write(&config, rule).expect("the directory is ours");
        let end = run_to_end(lockwarden(&["check", "--config"]).arg(&config));
        assert!(end.code == Some(2) && end.stdout.contains(words), "{end:?}");
    }
}

const ORDER: &str = "{ name = \"order\", order = [\"lock:account:*\", \"lock:order:*\"] }";

#[test]
fn a_lock_that_is_out_of_order_is_refused_with_the_one_that_is_held() {
    let redis = Redis::start();
    let proxy = with_rules(&redis, ORDER).top("audit", "\"all\"").top("audit_file", "\"trail.jsonl\"").start();
    let (one, two) = (named(&proxy, "billing"), named(&proxy, "billing"));
    one.sends("SET lock:account:1 a NX PX 9000").gets("+OK");
    one.sends("SET lock:order:7 a NX PX 9000").gets("+OK");
    let refused = one.sends("SET lock:account:2 a NX PX 9000").gets_error("LOCKDENIED limited");
    let words = "hint=\"take this lock before lock:order:7, which this connection holds\"";
    assert!(refused.contains("policy=rules rule=order") && refused.contains(words), "{refused}");
    // A lock in no order, a lock by another connection, and the same lock once the later one is given back.
    one.sends("SET lock:mail a NX PX 9000").gets("+OK");
    one.sends("SET lock:order:8 a NX PX 9000").gets("+OK");
    two.sends("SET lock:account:3 a NX PX 9000").gets("+OK");
    one.sends("DEL lock:order:7").gets(":1");
    let refused = one.sends("SET lock:account:2 a NX PX 9000").gets_error("LOCKDENIED limited");
    assert!(refused.contains("before lock:order:8"), "{refused}");
    one.sends("DEL lock:order:8").gets(":1");
    one.sends("SET lock:account:2 a NX PX 9000").gets("+OK");
    // Also where a lease ran out, and in another database.
    one.sends("SET lock:order:9 a NX PX 100").gets("+OK");
    wait_for("its end", || redis.value("lock:order:9") == "nil");
    one.sends("SET lock:account:4 a NX PX 9000").gets("+OK");
    one.sends("SET lock:order:9 a NX PX 9000").gets("+OK");
    one.sends("SELECT 1").gets("+OK");
    one.sends("SET lock:account:5 a NX PX 9000").gets("+OK");

    is_answered_the_same_again(&proxy, "lock:account:5");
}

#[test]
fn a_quota_is_of_an_application_and_counts_what_is_held_however_it_ends() {
    let redis = Redis::start();
    let quota = "{ name = \"quota\", deny = 'held.application >= 3', hint = \"three locks are enough\" }";
    let proxy = with_rules(&redis, quota).start();
    let (one, two, other) = (named(&proxy, "billing"), named(&proxy, "billing"), named(&proxy, "shop"));
    one.sends("SET lock:a a NX PX 9000").gets("+OK");
    two.sends("SETNX lock:b b").gets(":1");
    two.sends("SET lock:c b NX PX 300").gets("+OK");
    for client in [&one, &two] {
        let refused = client.sends("SET lock:d a NX PX 9000").gets_error("LOCKDENIED limited");
        assert!(refused.contains("rule=quota") && refused.contains("three locks are enough"), "{refused}");
    }
    other.sends("SET lock:d a NX PX 9000").gets("+OK");
    // One that is given back, one that runs out, and those of a connection that ends.
    one.sends("DEL lock:a").gets(":1");
    one.sends("SET lock:a a NX PX 9000").gets("+OK");
    let takes = |key: &str| one.sends(format!("SET {key} a NX PX 9000")).reply().to_string() == "+OK";
    wait_for("lock:c runs out", || takes("lock:e"));
    one.sends("SET lock:f a NX PX 9000").gets_error("LOCKDENIED limited");
    two.sends("DEL lock:b").gets(":1");
    one.sends("SET lock:f a NX PX 9000").gets("+OK");
}

#[test]
fn an_order_is_tried_by_a_file_of_cases_and_read_with_care() {
    let directory = tempfile::tempdir().expect("a directory");
    let (config, cases) = (directory.path().join("lockwarden.toml"), directory.path().join("cases.toml"));
    let namespace = "[[namespace]]\nname = \"locks\"\nkeys = [\"lock:*\"]\n";
    let rules = format!("{ORDER}, {{ name = \"quota\", deny = 'held.connection > 2 || held.application > 9' }}");
    fs::write(&config, format!("{namespace}rule = [{rules}]\n")).expect("the directory is ours");
    let text = r#"
[request]
key = "lock:account:1"

[[case]]
request = { holds = ["lock:order:7"] }
expect  = { deny = "limited", rule = "order", hint = "before lock:order:7" }

[[case]]
request = { holds = ["lock:account:2", "lock:mail"] }
expect  = { permit = { ttl_default = "30s", ttl_cap = "1h", keep_alive = "1d", fence = "hybrid" } }

[[case]]
request = { key = "lock:mail", holds = ["lock:a", "lock:b", "lock:c"] }
expect  = { deny = "limited", rule = "quota" }

[[case]]
request = { held = 10 }
expect  = { deny = "limited", rule = "quota" }
"#;
    fs::write(&cases, text).expect("the directory is ours");
    let end = run_to_end(lockwarden(&["policy", "test", "--config"]).arg(&config).arg(&cases));
    assert_eq!(end.code, Some(0), "{end:?}");
    let end = run_to_end(lockwarden(&["policy", "rules", "--explain", "--config"]).arg(&config));
    assert!(
        end.stdout.contains("\n  order  may refuse ") && end.stdout.contains(", by its rate or order\n"),
        "{end:?}"
    );
    for (order, words) in [
        (
            "[\"lock:a*\"]",
            "lockwarden.toml:4:35 error: namespace \"locks\": rule \"order\": order: write two patterns or more, those first",
        ),
        ("[\"lock:a*\", \"a,b\"]", "has a comma, and a list of settings cannot have one"),
        ("[\"lock:a*\", \"\"]", "is empty, and no lock is called that"),
        ("\"lock:a*\"", "must be a list"),
        ("[\"lock:*:a:*\", \"lock:b:*\"]", "steps a question, and 20000 are the most"),
    ] {
        let rule = format!("{namespace}rule = [{{ name = \"order\", order = {order} }}]\n");
        fs::write(&config, rule).expect("the directory is ours");
        let end = run_to_end(lockwarden(&["check", "--config"]).arg(&config));
        assert!(end.code == Some(2) && end.stdout.contains(words), "{words}: {end:?}");
    }
}
