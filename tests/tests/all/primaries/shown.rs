//! What people see of a failover: on the board, in the API, at the terminal and in the audit trail.

use std::fs;

use lockwarden_tests::{lockwarden, run_to_end, wait_for_value};
use serde_json::Value;

use super::*;

/// Grants no free lock after its start for longer than a test lasts.
const CAREFUL: &str =
    "[[namespace]]\nname = \"careful\"\nkeys = [\"careful:*\"]\nmode = \"enforce\"\nquarantine = \"10m\"";

/// The output of `lockwarden` with these words for this proxy.
fn says(proxy: &Proxy, words: &[&str]) -> String {
    let admin = proxy.admin_address().to_string();
    let mut command = lockwarden(words);
    command.args(["--admin", &admin]);
    let said = run_to_end(&mut command);
    format!("{}{}", said.stdout, said.stderr)
}

#[track_caller]
fn has(text: &str, all: &[&str]) {
    for words in all {
        assert!(text.contains(words), "{words}\n{text}");
    }
}

#[test]
fn the_primary_its_sentinels_and_a_quarantine_are_told_wherever_somebody_looks() {
    if Sentinels::are_lacking() {
        return;
    }
    let mut all = Sentinels::start();
    let proxy = in_front_of(&all).more(CAREFUL).start();
    proxy.counts("lockwarden_sentinels_heard", 3.0);
    assert_eq!(proxy.metric("lockwarden_sentinels_known"), 3.0);
    let named = |proxy: &Proxy| proxy.api("overview")["backend"]["sentinels"].clone();
    let first = all.primary().expect("nothing has happened");
    let before = named(&proxy);
    assert_eq!(before["primary"], all.server_address(first).to_string());

    let switched = all.fails_over(Failover::Planned);
    serves_again(&proxy);
    let new = all.server_address(switched.to).to_string();
    wait_for("all sentinels to name the new primary", || {
        let each = named(&proxy)["each"].clone();
        each.as_array().is_some_and(|each| each.iter().all(|one| one["primary"] == *new))
    });
    let now = named(&proxy);
    assert_eq!(now["name"], "mymaster");
    assert_eq!((&now["heard"], &now["known"]), (&3.into(), &3.into()));
    assert!(now["epoch"].as_u64() > before["epoch"].as_u64(), "{now}");
    let overview = proxy.api("overview");
    let since = overview["backend"]["primary_since"].as_u64();
    let age = overview["now"].as_u64().zip(since).map(|(now, since)| now - since);
    assert!(age.is_some_and(|age| age < 60_000), "{overview}");
    let careful = &overview["namespaces"][1]["quarantine"];
    let until = careful["until"].as_u64().zip(since).map(|(until, since)| until - since);
    assert!(until.is_some_and(|ms| ms.abs_diff(601_000) < 1_000), "{careful}");

    let (_, board) = proxy.get("/");
    has(
        &board,
        &[
            &format!("primary <b>{new}</b>"),
            "heard <b>3 of 3 sentinels</b>",
            "primary for <b",
            &format!("the primary is <b>{new}</b>"),
            "<bdi>careful</bdi> is in quarantine until ",
        ],
    );
    has(&says(&proxy, &["locks", "list"]), &["namespace careful is in quarantine until ", "no free lock is granted"]);

    for number in 0..3 {
        all.kills_sentinel(number);
    }
    proxy.counts("lockwarden_sentinels_heard", 0.0);
    assert_eq!(proxy.metric("lockwarden_sentinels_known"), 3.0);
    let silent = named(&proxy);
    assert_eq!((&silent["heard"], &silent["primary"]), (&0.into(), &new.into()));
    let (_, board) = proxy.get("/");
    has(
        &board,
        &["a failover might not be noticed", "not heard: <bdi>cannot connect", "quarantine without a known end"],
    );
    let until = &proxy.api("config")[1]["quarantine"];
    assert!(until["until"].is_null(), "{until}");
    has(&until["why"].to_string(), &["half of the sentinels or more are not heard"]);
}

#[test]
fn a_lost_lease_is_told_with_who_lost_it_and_who_holds_the_lock_now() {
    if Sentinels::are_lacking() {
        return;
    }
    let mut all = Sentinels::start();
    let directory = tempfile::tempdir().expect("a directory for a test");
    let trail = directory.path().join("trail.jsonl");
    let trail = trail.to_str().expect("a path in UTF-8");
    let proxy = in_front_of(&all).top("audit_file", &format!("{trail:?}")).start();
    let (_shop, _depot) = loses_a_lock(&mut all, &proxy);
    serves_again(&proxy);
    proxy.counts(LOST, 2.0);
    let lost = wait_for_value("both to be told", || {
        let lost = proxy.api("lost");
        (lost.as_array().map(Vec::len) == Some(2)).then_some(lost)
    });
    let lease = lost.as_array().and_then(|all| all.iter().find(|one| one["key"] == "lock:lost"));
    let lease = lease.expect("it is one of them");
    assert_eq!(lease["event"], "lease-lost");
    assert_eq!(lease["client"]["application"], "shop");
    let (id, fence) = (lease["id"].as_str().expect("it has one"), &lease["fence"]);
    proxy.logs(&["ERROR", "a lease was lost in the failover", id, "lock:lost"]);
    let incident = &proxy.api("incidents")[0];
    has(
        &incident["sentence"].to_string(),
        &["shop lost lock:", " and 1 more lock in the failover, and works on without them"],
    );
    assert_eq!((&incident["reason"], &incident["overlap"]), (&"lease-lost".into(), &false.into()));

    let other = proxy.client();
    other.sends("CLIENT SETNAME stock").gets("+OK");
    other.sends("SET lock:lost o NX PX 60000").gets("+OK");
    let sentence = format!(
        "shop lost lock:lost (fencing token {fence}) in the failover and works on without it, while stock holds it"
    );
    let detail = wait_for_value("the new holder to be known", || {
        let detail = proxy.api("locks/lock:lost");
        (detail["remarks"][0] == *sentence).then_some(detail)
    });
    has(&detail["timeline"].to_string(), &["\"lease-lost\""]);
    let incident = &proxy.api("incidents")[0];
    assert_eq!((&incident["overlap"], &incident["holder"]), (&true.into(), &"stock".into()));
    assert_eq!(proxy.api("overview")["totals"]["lost_last_day"], 2);
    assert_eq!(proxy.api("decisions"), Value::Array(Vec::new()));
    let (_, csv) = proxy.get("/api/v1/lost?format=csv&application=shop");
    has(&csv, &[&format!(",{id},lease-lost,"), ",lock:unkept,"]);
    assert_eq!(proxy.api("lost?application=stock"), Value::Array(Vec::new()));

    let (_, page) = proxy.get("/?lock=lock:lost");
    has(&page, &[&sentence, "<b>lost in the failover</b>", "Lost in failovers", "lost in failovers"]);
    let (status, page) = proxy.get("/application?name=shop");
    assert_eq!(status, 200);
    has(&page, &["while others hold some of them", "Lost in failovers", "lease-lost"]);
    let (_, page) = proxy.get(&format!("/why?id={id}"));
    has(&page, &["lock:lost was lost in a failover"]);

    has(&says(&proxy, &["locks", "list"]), &["shop lost lock:lost and 1 more lock in the failover"]);
    has(&says(&proxy, &["locks", "show", "lock:lost"]), &[&sentence, "lease-lost"]);
    let told = ["was lost in a failover", "shop at ", "its holder was not told", "quarantine"];
    has(&says(&proxy, &["why", id]), &told);
    has(&says(&proxy, &["audit", "--all"]), &["lease-lost", "quarantine = \"auto\""]);
    assert_eq!(proxy.stop(), Some(0));
    let why = run_to_end(lockwarden(&["why", id, "--log", trail]).env_remove("LOCKWARDEN_ADMIN"));
    has(&why.stdout, &told);
    let schema = include_str!("../../../../docs/audit-record.schema.json");
    let schema = jsonschema::validator_for(&serde_json::from_str(schema).expect("it is JSON"));
    let schema = schema.expect("it is a schema");
    let lines = fs::read_to_string(trail).expect("it was written");
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect();
    assert!(lines.iter().all(|line| schema.is_valid(line)), "{lines:?}");
    assert_eq!(lines.iter().filter(|line| line["event"] == "lease-lost").count(), 2);
}

#[test]
fn a_lock_that_nobody_could_look_for_is_unknown_and_then_known_again() {
    if Sentinels::are_lacking() {
        return;
    }
    let mut all = Sentinels::start();
    let proxy = in_front_of(&all).start();
    let client = proxy.client();
    client.sends("SET lock:a x NX PX 60000").gets("+OK");
    client.sends("WAIT 2 5000").gets(":2");
    let old = all.primary().expect("nothing has happened");
    for replica in (0..3).filter(|number| *number != old) {
        // Nothing that may write is answered, the look for leases among it.
        let order = "CLIENT PAUSE 60000 WRITE";
        all.server(replica).client().sends(order).gets("+OK");
    }
    let switched = all.fails_over(Failover::Planned);
    serves_again(&proxy);
    let lock = |proxy: &Proxy| proxy.api("locks")["locks"][0].clone();
    assert_eq!(lock(&proxy)["state"], "unknown");
    assert_eq!(proxy.metric("lockwarden_locks_unknown{namespace=\"locks\"}"), 1.0);
    let (_, page) = proxy.get("/?lock=lock:a");
    has(&page, &["unknown since the failover", "it is unknown since the failover: nobody has looked"]);
    let list = says(&proxy, &["locks", "list", "--problems"]);
    has(&list, &["unknown since the failover", "1 lock is unknown since the failover"]);
    all.server(switched.to).client().sends("CLIENT UNPAUSE").gets("+OK");
    wait_for("it to be looked for", || lock(&proxy)["state"] == "held");
    assert_eq!(proxy.api("lost"), Value::Array(Vec::new()));
}

/// A primary that goes on by itself is why locks are lost.
#[test]
fn check_asks_for_min_replicas_or_for_a_reason_why_not() {
    if Sentinels::are_lacking() {
        return;
    }
    let all = Sentinels::start();
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("lockwarden.toml");
    fs::write(&file, in_front_of(&all).text()).expect("the directory is ours");
    let check = |more: &[&str]| {
        let mut command = lockwarden(&["check", "--backend", "--config"]);
        let end = run_to_end(command.arg(&file).args(more));
        (end.stdout, end.code)
    };
    let (said, code) = check(&[]);
    has(&said, &["backend: min-replicas-to-write is 0: a primary that is cut off", "--without-min-replicas"]);
    assert_eq!(code, Some(1), "{said}");
    let (said, code) = check(&["--without-min-replicas", "we have two servers"]);
    has(&said, &["backend: min-replicas-to-write is 0: we have two servers"]);
    assert_eq!(code, Some(0), "{said}");
    let primary = all.primary().expect("they are in order");
    all.server(primary).client().sends("CONFIG SET min-replicas-to-write 1").gets("+OK");
    let (said, code) = check(&[]);
    has(&said, &["min-replicas-to-write 1"]);
    assert_eq!(code, Some(0), "{said}");
}
