//! Policies that are asked beside those in force: `[namespace.next]` and `[policy.next]`, the comparison of their
//! decisions, and which of them a client gets.

use std::fs;

use lockwarden_tests::{Finished, Proxy, ProxyBuilder, Redis, lockwarden, run_to_end, wait_for};
use serde_json::Value;

use crate::failing_policies::naughty;

/// A shorter ceiling, and a rule about names.
const STRICTER: &str = r#"settings = { ttl-ceiling = { default = "3s", ceiling = "4s" } }, rule = [{ name = "team", deny = '!key.startsWith("lock:billing:")', hint = "name the team" }]"#;

fn with_next(redis: &Redis, stage: &str) -> ProxyBuilder {
    let builder = Proxy::builder(redis).namespace("on_violation", "\"error\"").ceiling("10s").default_ttl("8s");
    builder.namespace("next", &format!("{{ stage = \"{stage}\", {STRICTER} }}"))
}

fn rollout(proxy: &Proxy, words: &[&str]) -> Finished {
    let admin = proxy.admin_address().to_string();
    let mut command = lockwarden(&["policy", "rollout"]);
    run_to_end(command.args(words).args(["--admin", &admin, "--config"]).arg(proxy.config()))
}

/// The count of answers that differ in this way.
fn counted(proxy: &Proxy, change: &str) -> f64 {
    proxy.metric(&format!("lockwarden_next_answers_total{{change=\"{change}\",namespace=\"locks\"}}"))
}

fn changes(next: &Value) -> Vec<(String, u64)> {
    let all = next["changes"].as_array().expect("a list").iter();
    all.map(|one| (one["change"].as_str().unwrap_or_default().to_owned(), one["questions"].as_u64().unwrap_or(0)))
        .collect()
}

/// The TTL that a lock gets which names none, ms.
fn ttl(proxy: &Proxy, redis: &Redis, key: &str) -> i64 {
    let client = proxy.client();
    client.sends("CLIENT SETNAME billing").gets("+OK");
    client.sends(format!("SETNX {key} 1")).gets(":1");
    let ttl = redis.pttl(key);
    client.sends(format!("DEL {key}")).gets(":1");
    ttl
}

#[test]
fn a_shadow_answers_nobody_and_every_difference_is_told() {
    let redis = Redis::start();
    let proxy = with_next(&redis, "shadow").start();
    let client = proxy.client();
    client.sends("CLIENT SETNAME reports").gets("+OK");
    client.sends("SETNX lock:billing:1 1").gets(":1");
    assert!(redis.pttl("lock:billing:1") > 4_000);
    client.sends("DEL lock:billing:1").gets(":1");
    client.sends("SET lock:sales:1 a NX PX 3000").gets("+OK");
    client.sends("DEL lock:sales:1").gets(":1");

    // There are two questions about a lock of sales: an acquire, and an extension, about which the rule says
    // nothing.
    assert_eq!(counted(&proxy, "permit-to-deny"), 1.0);
    assert_eq!(counted(&proxy, "obligations"), 1.0);
    assert!(counted(&proxy, "same") >= 2.0);
    let told = &proxy.api("next")[0];
    assert_eq!((told["namespace"].as_str(), told["stage"].as_str()), (Some("locks"), Some("shadow")));
    let mut told = changes(told);
    told.sort();
    let ttl = "TTL where none is named: 8s → 3s".to_owned();
    assert_eq!(told, [(ttl, 1), ("permitted → refused limited by rules, rule team".to_owned(), 1)]);

    let end = rollout(&proxy, &[]);
    assert_eq!(end.code, Some(0), "{end:?}");
    assert!(
        end.stdout.starts_with("locks, stage shadow: policies owner-token fencing ttl-ceiling rules\nasked since 20"),
        "{end:?}"
    );
    for words in
        ["; answers that are the same: 2, otherwise: 2\n", "reports 1", "SET lock:sales:1", "SETNX lock:billing:1"]
    {
        assert!(end.stdout.contains(words), "{words}: {end:?}");
    }
}

#[test]
fn an_order_lets_it_answer_and_takes_it_back() {
    let redis = Redis::start();
    let proxy = with_next(&redis, "shadow").top("audit", "\"all\"").top("audit_file", "\"trail.jsonl\"").start();
    assert!(ttl(&proxy, &redis, "lock:billing:1") > 4_000);
    let kept = proxy.client();
    kept.sends("SETNX lock:sales:1 1").gets(":1");
    let hash = || proxy.api("version")["config_hash"].clone();
    let before = hash();

    let end = rollout(&proxy, &["all"]);
    assert_eq!(end.code, Some(0), "{end:?}");
    assert!(end.stdout.contains("locks, stage all: "), "{end:?}");
    assert!(ttl(&proxy, &redis, "lock:billing:1") <= 4_000);
    let refused = kept.sends("SETNX lock:sales:2 1").gets_error("LOCKDENIED limited");
    assert!(refused.contains("policy=rules rule=team") && refused.contains("hint=\"name the team\""), "{refused}");
    // A lock from before is given back as always.
    kept.sends("DEL lock:sales:1").gets(":1");
    assert_ne!(hash(), before, "proxies of one fleet are told apart by what answers");

    let end = rollout(&proxy, &["back", "--namespace", "locks"]);
    assert!(end.stdout.contains("locks, stage shadow: "), "{end:?}");
    assert!(ttl(&proxy, &redis, "lock:billing:1") > 4_000);
    kept.sends("SETNX lock:sales:2 1").gets(":1");
    proxy.logs(&["stage of what is asked beside switched", "\"stage\":\"all\""]);

    let end = rollout(&proxy, &["101%"]);
    assert!(end.code == Some(2) && end.stderr.contains("\"101%\" is no stage; write \"shadow\""), "{end:?}");
    let end = rollout(&proxy, &["all", "--namespace", "orders"]);
    assert!(end.code == Some(1) && end.stderr.contains("in \"orders\", only in locks"), "{end:?}");

    // Each answer is in the trail with the chain that gave it, so the same configuration gives the same answers.
    let config = proxy.config().to_owned();
    let trail = proxy.directory().join("trail.jsonl");
    let (text, copy) = (fs::read_to_string(&config).expect("the file is there"), proxy.directory().join("copy.toml"));
    fs::write(&copy, text).expect("the directory is ours");
    let replay = || run_to_end(lockwarden(&["policy", "replay"]).arg(&trail).arg("--config").arg(&copy));
    wait_for("the trail is written", || {
        fs::read_to_string(&trail)
            .is_ok_and(|text| text.contains("\"sales:2\"") || text.matches("lock:sales:2").count() >= 2)
    });
    let end = replay();
    assert_eq!(end.code, Some(0), "{end:?}");
    let text = fs::read_to_string(&trail).expect("it is there");
    assert!(text.contains("\"next\":true"), "{text}");
    // The decisions of the other chain about all of it.
    let mut replay = lockwarden(&["policy", "replay", "--next"]);
    let end = run_to_end(replay.arg(&trail).arg("--config").arg(&copy));
    assert!(end.code == Some(1) && end.stdout.contains("permitted → refused limited by rules, rule team"), "{end:?}");
    let switched = text.lines().find(|line| line.contains("stage-switched")).expect("a line");
    assert!(switched.contains("locks=all") && switched.contains("127.0.0.1"), "{switched}");
}

#[test]
fn a_part_of_the_applications_is_answered_by_it_and_always_the_same_ones() {
    let redis = Redis::start();
    // An application called billing has the place 14 in a hundred.
    for (stage, is_next) in [("14%", false), ("15%", true), ("99%", true)] {
        let proxy = with_next(&redis, stage).start();
        for connection in 0..3 {
            let ttl = ttl(&proxy, &redis, &format!("lock:billing:{connection}"));
            assert_eq!(ttl <= 4_000, is_next, "{stage}: {ttl}");
        }
        assert_eq!(counted(&proxy, "obligations"), 3.0, "both are asked whoever answers");
    }
}

#[test]
fn a_reload_goes_on_counting_while_both_chains_stay_what_they_are() {
    let redis = Redis::start();
    let proxy = with_next(&redis, "shadow").start();
    let same = || proxy.api("next")[0]["same"].as_u64().expect("a number");
    proxy.client().sends("SET lock:billing:1 a NX PX 3000").gets("+OK");
    let counted = same();
    assert!(counted > 0);
    let text = fs::read_to_string(proxy.config()).expect("the file is there");
    // Another stage, and another key of the namespace: the chains are what they were.
    let staged = text.replace("\"shadow\"", "\"15%\"").replace("[[namespace]]", "[[namespace]]\nhand_over = true");
    assert_eq!(proxy.reloads(staged.as_bytes(), "/reload").0, 200);
    assert_eq!(same(), counted);
    assert_eq!(proxy.api("next")[0]["stage"], "15%");
    // A wrong configuration changes nothing.
    let wrong = text.replace("\"4s\"", "\"soon\"");
    let (status, answer) = proxy.reloads(wrong.as_bytes(), "/reload");
    assert!(status == 422 && answer.contains("ceiling"), "{answer}");
    assert_eq!((same(), proxy.api("next")[0]["stage"].as_str()), (counted, Some("15%")));
    let other = text.replace("\"4s\"", "\"3s\"");
    assert_eq!(proxy.reloads(other.as_bytes(), "/reload").0, 200);
    assert_eq!(same(), 0);
    let without: String =
        text.lines().filter(|line| !line.starts_with("next = ")).map(|line| format!("{line}\n")).collect();
    assert_eq!(proxy.reloads(without.as_bytes(), "/reload").0, 200);
    assert_eq!(proxy.api("next"), Value::Array(Vec::new()));
    let end = rollout(&proxy, &[]);
    assert!(end.stdout.starts_with("Nothing is asked beside what is in force"), "{end:?}");
    let end = rollout(&proxy, &["all"]);
    assert!(end.code == Some(1) && end.stderr.contains("write [policy.next] or [namespace.next]"), "{end:?}");
}

#[test]
fn the_next_version_of_a_policy_refuses_by_its_own_name_and_its_faults_are_only_counted() {
    let redis = Redis::start();
    let file = naughty();
    let proxy = Proxy::builder(&redis)
        .namespace("on_violation", "\"error\"")
        .namespace("policies", "[\"owner-token\", \"fencing\", \"ttl-ceiling\", \"naughty\"]")
        .namespace("next", "{ settings = { naughty = { deny = [\"acquire\"], spin_on = [\"release\"] } } }")
        .more(&format!("[[policy]]\nname = \"naughty\"\nmodule = \"{file}\"\n"))
        .more(&format!("[policy.next]\nmodule = \"{file}\"\nstage = \"10%\"\n"))
        .start();
    let client = proxy.client();
    client.sends("SETNX lock:spin 1").gets(":1");
    client.sends("DEL lock:spin").gets(":1");
    assert_eq!(counted(&proxy, "permit-to-deny"), 1.0);
    assert_eq!(counted(&proxy, "fault"), 1.0);
    // The namespace's own stage counts, and that is none.
    assert_eq!(proxy.api("next")[0]["stage"], "shadow");
    assert_eq!(proxy.metric("lockwarden_policy_failures_total{policy=\"naughty\",kind=\"timeout\"}"), 0.0);
    let failures = ["timeout", "fuel"].map(|kind| {
        proxy.metric(&format!("lockwarden_policy_failures_total{{policy=\"naughty.next\",kind=\"{kind}\"}}"))
    });
    assert_eq!(failures.iter().sum::<f64>(), 1.0);
    assert_eq!(rollout(&proxy, &["all"]).code, Some(0));
    let refused = client.sends("SETNX lock:a 1").gets_error("LOCKDENIED");
    assert!(refused.contains("policy=naughty.next"), "{refused}");
}

#[test]
fn what_cannot_be_asked_beside_is_an_error_at_its_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("lockwarden.toml");
    let checked = |text: &str| {
        fs::write(&file, text).expect("the directory is ours");
        let end = run_to_end(lockwarden(&["check", "--config"]).arg(&file));
        format!("{}{}", end.stdout, end.stderr)
    };
    let namespace = "[[namespace]]\nname = \"locks\"\nkeys = [\"lock:*\"]\n";
    let naughty = naughty();
    let policy = |name: &str, next: &str| format!("[[policy]]\nname = \"{name}\"\nmodule = \"{naughty}\"\n{next}\n");
    let next = |stage: &str| format!("[policy.next]\nmodule = \"{naughty}\"\nstage = \"{stage}\"");
    for (text, words) in [
        (
            format!("{namespace}[namespace.next]\nstage = \"some\""),
            ":5:9 error: namespace \"locks\": next: stage: \"some\" is no stage",
        ),
        (
            format!("{namespace}[namespace.next]\nmode = \"enforce\""),
            ":5:1 error: namespace \"locks\": next: unknown key \"mode\"",
        ),
        (
            format!("{namespace}[namespace.next.settings.ttl-ceiling]\ngrace = \"1s\""),
            "next: settings.ttl-ceiling.grace: the proxy itself goes by it",
        ),
        (format!("{namespace}[namespace.next]\npolicies = [\"owner-tokn\"]"), "did you mean \"owner-token\""),
        (
            format!("{namespace}[namespace.next.settings.ttl-ceiling]\nceiling = \"soon\""),
            ":5:11 error: namespace locks.next",
        ),
        (
            format!("{namespace}[namespace.next]\nstage = \"10%\""),
            "warning: namespace \"locks\": next: it is what is in force",
        ),
        (
            format!("{namespace}policies = [\"a\", \"b\"]\n{}{}", policy("a", &next("10%")), policy("b", &next("20%"))),
            "its policies have next versions in other stages: a.next (10%) and b.next (20%); give them one",
        ),
        (
            format!("{namespace}policies = [\"a\", \"a.next\"]\n{}{}", policy("a", &next("10%")), policy("a.next", "")),
            "\"a.next\" is another policy's name already",
        ),
        (
            format!(
                "{namespace}quarantine = \"auto\"\n[namespace.settings.ttl-ceiling]\nceiling = \"10s\"\n[namespace.next]\npolicies = [\"fencing\"]"
            ),
            "quarantine = \"auto\" lasts as long as the longest lease",
        ),
    ] {
        let told = checked(&text);
        assert!(told.contains(words), "{text}\nsaid\n{told}\nand not\n{words}");
    }
    let told = checked(&format!("{namespace}[namespace.next]\npolicies = [\"fencing\"]"));
    assert!(told.contains("namespace locks: asked beside that (shadow): policies fencing"), "{told}");
}

#[test]
fn a_next_chain_is_asked_a_file_of_cases_by_its_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let (config, cases) = (directory.path().join("lockwarden.toml"), directory.path().join("cases.toml"));
    fs::write(&config, format!("[[namespace]]\nname = \"locks\"\nkeys = [\"lock:*\"]\nnext = {{ {STRICTER} }}\n"))
        .expect("the directory is ours");
    let text = "[request]\noperation = \"acquire\"\nkey = \"lock:7\"\n[[case]]\nname = \"no team\"\nexpect = { deny = \"limited\" }\n";
    fs::write(&cases, text).expect("the directory is ours");
    for (namespace, code) in [("locks", 1), ("locks.next", 0)] {
        let mut test = lockwarden(&["policy", "test", "--namespace", namespace, "--config"]);
        let end = run_to_end(test.arg(&config).arg(&cases));
        assert_eq!(end.code, Some(code), "{end:?}");
    }
    let end = run_to_end(lockwarden(&["policy", "check", "--config"]).arg(&config));
    assert!(end.stdout.contains("locks.next  rules"), "{end:?}");
}
