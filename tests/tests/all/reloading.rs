//! Reading the configuration again: half a file is often a valid file, and must not end the governing of
//! locks.

use lockwarden_tests::{Client, Mode, Proxy, ProxyBuilder, Redis, lockwarden, run_to_end, wait_for};

/// Three namespaces in enforce mode, with settings whose loss would matter.
fn three(redis: &Redis) -> ProxyBuilder {
    let more = |name: &str, keys: &str| {
        format!(
            "[[namespace]]\nname = \"{name}\"\nkeys = [{keys}]\nmode = \"enforce\"\n\
             [namespace.settings.ttl-ceiling]\nceiling = \"10s\"\n"
        )
    };
    Proxy::builder(redis)
        .top("server_commands", "\"refuse\"")
        .namespace("keys", "[\"lock:*\", \"mutex:*\"]")
        .more(&more("orders", "\"order_lock_*\""))
        .more(&more("jobs", "\"*_running\""))
}

const LOCKS: [&str; 4] = ["lock:a", "mutex:a", "order_lock_a", "nightly_running"];

/// What a stranger may do to the locks that another client holds, and how long those may be held.
fn is_governed(redis: &Redis, holder: &Client, stranger: &Client) {
    for lock in LOCKS {
        holder.sends(format!("SET {lock} value-of-the-holder NX EX 86400")).gets("+OK");
        assert!(redis.pttl(lock) <= 10_000, "{lock} is under its ceiling");
        stranger.sends(format!("DEL {lock}")).gets(":0");
        stranger.sends(format!("APPEND {lock} x")).gets_error("LOCKDENIED opaque-write");
        holder.sends(format!("DEL {lock}")).gets(":1");
    }
    stranger.sends("SWAPDB 0 1").gets_error("NOPERM");
}

#[test]
fn a_file_that_is_cut_off_anywhere_drops_no_enforcement() {
    let redis = Redis::start();
    let builder = three(&redis);
    let text = builder.text();
    let proxy = builder.start();
    let (holder, stranger) = (proxy.client(), proxy.client());
    is_governed(&redis, &holder, &stranger);
    let lines = text.lines().count();
    let ends = (0..lines).map(|number| {
        let whole: Vec<&str> = text.lines().take(number).collect();
        whole.join("\n").len()
    });
    let (mut refused, mut answers) = (0, String::new());
    for end in ends.chain((0..text.len()).step_by(text.len() / 25)) {
        let (status, answer) = proxy.reloads(&text.as_bytes()[..end], "/reload");
        assert!(status == 200 || status == 422, "{end}: {status} {answer}");
        is_governed(&redis, &holder, &stranger);
        refused += usize::from(status == 422);
        answers.push_str(&answer);
    }
    assert!(refused > 25, "{refused} were refused: {answers}");
    for loss in [
        "namespace orders: order_lock_* would be no lock any more",
        "namespace jobs: enforce mode would become monitor",
        "the setting ceiling of ttl-ceiling would be gone",
        "administration would be refused to nobody",
        "lockwarden reload --allow-weaker",
    ] {
        assert!(answers.contains(loss), "{loss}: {answers}");
    }
    assert_eq!(proxy.reloads(text.as_bytes(), "/reload").0, 200);
}

#[test]
fn a_signal_takes_nothing_away_and_the_log_says_how_to() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("SET lock:job a1 NX PX 9000").gets("+OK");
    proxy.reload("");
    proxy.logs(&["was not loaded", "enforce mode would become monitor", "--allow-weaker"]);
    assert_eq!(proxy.metric("lockwarden_config_last_reload_successful"), 0.0);
    bob.sends("DEL lock:job").gets(":0");
}

#[test]
fn what_is_meant_is_done_and_told() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("SET lock:job a1 NX PX 9000").gets("+OK");
    let text = Proxy::builder(&redis).mode(Mode::Monitor).text();
    let (status, answer) = proxy.reloads(text.as_bytes(), "/reload");
    assert_eq!(status, 422, "{answer}");
    bob.sends("DEL lock:job").gets(":0");
    let (status, answer) = proxy.reloads(text.as_bytes(), "/reload?allow=weaker");
    assert_eq!(status, 200, "{answer}");
    assert!(answer.contains("locks mode"), "it says what changed: {answer}");
    proxy.logs(&["governs less than before", "enforce mode would become monitor"]);
    bob.sends("DEL lock:job").gets(":1");
}

#[test]
fn a_changed_value_is_a_change_like_any_other_and_is_logged() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let text = Proxy::builder(&redis).ceiling("2h").text();
    let (status, answer) = proxy.reloads(text.as_bytes(), "/reload");
    assert_eq!(status, 200, "{answer}");
    assert!(answer.contains("locks ttl-ceiling.ceiling 10s -> 2h"), "{answer}");
    proxy.logs(&["configuration loaded", "ttl-ceiling.ceiling 10s -> 2h"]);
}

#[test]
fn an_order_for_enforce_mode_is_not_undone_by_a_signal() {
    let redis = Redis::start();
    let proxy = Proxy::monitoring(&redis);
    let text = std::fs::read_to_string(proxy.config()).expect("the file is there");
    assert_eq!(proxy.switch("locks", Mode::Enforce), 200);
    // As logrotate does.
    proxy.reload(&text);
    proxy.logs(&["was not loaded", "enforce mode would become monitor"]);
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("SET lock:job a1 NX PX 9000").gets("+OK");
    bob.sends("DEL lock:job").gets(":0");
    // The way back to monitor mode is one order, as always.
    assert_eq!(proxy.switch("locks", Mode::Monitor), 200);
    proxy.reload(&text);
    wait_for("the reload", || proxy.metric("lockwarden_config_last_reload_successful") == 1.0);
    bob.sends("DEL lock:job").gets(":1");
}

#[test]
fn the_command_line_orders_modes_and_reloads() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let types = |words: &[&str]| {
        let admin = proxy.admin_address().to_string();
        let config = proxy.config().display().to_string();
        run_to_end(lockwarden(words).args(["--admin", &admin, "--config", &config]))
    };
    let end = types(&["mode", "locks=monitor"]);
    assert_eq!(end.code, Some(0), "{end:?}");
    assert!(end.stdout.contains("locks") && end.stdout.contains("monitor"), "{end:?}");
    let shown_as = |mode: &str| {
        let series = format!("lockwarden_policy_info{{policy=\"owner-token\",mode=\"{mode}\"}}");
        proxy.metrics().find(&series) == Some(1.0)
    };
    assert!(shown_as("monitor") && !shown_as("enforce"));
    let end = types(&["mode", "enforce", "-o", "json"]);
    assert!(shown_as("enforce") && !shown_as("monitor"));
    assert!(end.stdout.contains("\"enforce\""), "{end:?}");
    let end = types(&["mode", "nowhere=monitor"]);
    assert_eq!(end.code, Some(1), "{end:?}");
    let end = types(&["mode", "loud"]);
    assert_eq!(end.code, Some(2), "{end:?}");
    // The refused reload has changed nothing, neither the configuration in force nor what is shown of it.
    assert!(shown_as("enforce") && !shown_as("monitor"));
    let (holder, stranger) = (proxy.client(), proxy.client());
    holder.sends("SETNX lock:job a1").gets(":1");
    stranger.sends("DEL lock:job").gets(":0");
    holder.sends("DEL lock:job").gets(":1");

    let weaker = Proxy::builder(&redis).mode(Mode::Monitor).text();
    std::fs::write(proxy.config(), weaker).expect("the directory is ours");
    let end = types(&["reload"]);
    assert_eq!(end.code, Some(1), "{end:?}");
    assert!(end.stderr.contains("enforce mode would become monitor"), "{end:?}");
    let end = types(&["reload", "--allow-weaker"]);
    assert_eq!(end.code, Some(0), "{end:?}");
    assert!(end.stdout.contains("in force"), "{end:?}");
}

/// The configuration with a namespace of other keys ahead of the one that there is, in the place that it had.
fn with_another_ahead(text: &str) -> String {
    let other = "[[namespace]]\nname = \"other\"\nkeys = [\"zzz:*\"]\nmode = \"monitor\"\n\n[[namespace]]";
    text.replacen("[[namespace]]", other, 1)
}

/// A sum of series, of which there may be none yet.
fn counted(proxy: &Proxy, selector: &str) -> f64 {
    proxy.metrics().find(selector).unwrap_or(0.0)
}

#[test]
fn what_is_kept_over_a_reload_stays_with_its_own_namespace() {
    let redis = Redis::start();
    let client = redis.client();
    client.sends("SET lock:old same").gets("+OK");
    client.sends("SET lock:older same").gets("+OK");
    let builder = Proxy::builder(&redis).mode(Mode::Monitor);
    let text = builder.text();
    let proxy = builder.start();
    let alice = proxy.client();
    alice.sends("SET lock:1 a1 NX").gets("+OK");
    alice.sends("SET lock:2 a2 NX PX 60000").gets("+OK");
    // The findings of the walk over the server are known, too.
    let report = |name: &str| {
        let report = proxy.api("report");
        let namespaces = report["namespaces"].as_array().expect("an array").clone();
        let is_it = |one: &&serde_json::Value| one["namespace"] == name;
        namespaces.iter().find(is_it).expect("it is there").clone()
    };
    wait_for("the walk", || report("locks")["equal_values"] == 2);
    let before = report("locks");
    assert_eq!(before["without_ttl"], 3, "{before}");
    let (status, answer) = proxy.reloads(with_another_ahead(&text).as_bytes(), "/reload");
    assert_eq!(status, 200, "{answer}");

    let other = report("other");
    assert_eq!((&other["without_ttl"], &other["equal_values"]), (&0.into(), &0.into()), "{other}");
    assert_eq!(other["without_ttl_examples"], serde_json::json!([]));
    let after = report("locks");
    for what in ["without_ttl", "without_ttl_examples", "equal_values", "equal_values_examples", "operations"] {
        assert_eq!(after[what], before[what], "{what}");
    }
    let locks = proxy.api("locks");
    for lock in locks["locks"].as_array().expect("an array") {
        assert_eq!(lock["namespace"], "locks", "{lock}");
    }
    let held = |name: &str| counted(&proxy, &format!("lockwarden_locks_held{{namespace=\"{name}\"}}"));
    assert_eq!((held("other"), held("locks")), (0.0, 2.0));
    let config = proxy.api("config");
    let config = config["namespaces"].as_array().cloned().unwrap_or_default();
    for one in &config {
        let expected = if one["name"] == "locks" { 2 } else { 0 };
        assert_eq!(one["held"], expected, "{one}");
    }
    // A lease that ends after the reload is the namespace's whose lock it was.
    alice.sends("DEL lock:2").gets(":1");
    let holds =
        |name: &str| counted(&proxy, &format!("lockwarden_lock_hold_duration_seconds_count{{namespace=\"{name}\"}}"));
    assert_eq!((holds("other"), holds("locks")), (0.0, 1.0));
}

#[test]
fn a_block_that_was_begun_before_a_reload_is_counted_where_it_was_judged() {
    let redis = Redis::start();
    let builder = three(&redis).mode(Mode::Monitor);
    let text = builder.text();
    let proxy = builder.start();
    let alice = proxy.client();
    alice.sends("MULTI").gets("+OK");
    alice.sends("SET nightly_running a1 NX PX 5000").gets("+QUEUED");
    // The third namespace is gone.
    let text = text.split("[[namespace]]").take(2).collect::<Vec<_>>().join("[[namespace]]");
    let (status, answer) = proxy.reloads(text.as_bytes(), "/reload?allow=weaker");
    assert_eq!(status, 200, "{answer}");
    alice.sends("EXEC").gets("[+OK]");
    alice.sends("MULTI").gets("+OK");
    alice.sends("SET lock:a a1 NX PX 5000").gets("+QUEUED");
    let (status, answer) = proxy.reloads(with_another_ahead(&text).as_bytes(), "/reload");
    assert_eq!(status, 200, "{answer}");
    alice.sends("EXEC").gets("[+OK]");
    let granted = |name: &str| {
        counted(&proxy, &format!("lockwarden_decisions_total{{namespace=\"{name}\",operation=\"acquire\"}}"))
    };
    assert_eq!((granted("other"), granted("locks")), (0.0, 1.0));
}
