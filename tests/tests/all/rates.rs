//! Rules about what clients did lately: how often a lock was tried, and rates that refill.

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

    // The trail has all that is needed to ask again.
    let (config, trail) = (proxy.directory().join("copy.toml"), proxy.directory().join("trail.jsonl"));
    fs::write(&config, text).expect("the directory is ours");
    wait_for("the trail", || fs::read_to_string(&trail).is_ok_and(|text| text.contains("lock:job:5")));
    let mut replay = lockwarden(&["policy", "replay"]);
    let end = run_to_end(replay.arg(&trail).arg("--config").arg(&config));
    assert_eq!(end.code, Some(0), "{end:?}");
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
    // Others, other locks and what the holder does are not meant.
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
