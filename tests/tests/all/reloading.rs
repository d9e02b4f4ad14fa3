//! Reading the configuration again: half a file is often a valid one, and must not drop what is governed.

use lockwarden_tests::{
    Client, Mode, Proxy, ProxyBuilder, Redis, lockwarden, run_to_end, wait_for,
};

/// Three namespaces in enforce mode, with what a file has that is worth losing.
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

/// What a stranger may do to the locks that somebody holds, and how long those may be held.
fn is_governed(redis: &Redis, holder: &Client, stranger: &Client) {
    for lock in LOCKS {
        holder
            .sends(format!("SET {lock} value-of-the-holder NX EX 86400"))
            .gets("+OK");
        assert!(redis.pttl(lock) <= 10_000, "{lock} is under its ceiling");
        stranger.sends(format!("DEL {lock}")).gets(":0");
        stranger
            .sends(format!("APPEND {lock} x"))
            .gets_error("LOCKDENIED opaque-write");
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
    proxy.logs(&[
        "was not loaded",
        "enforce mode would become monitor",
        "--allow-weaker",
    ]);
    assert_eq!(
        proxy.metric("lockwarden_config_last_reload_successful"),
        0.0
    );
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
    assert!(
        answer.contains("locks mode"),
        "it says what changed: {answer}"
    );
    proxy.logs(&[
        "governs less than before",
        "enforce mode would become monitor",
    ]);
    bob.sends("DEL lock:job").gets(":1");
}

#[test]
fn a_changed_value_is_a_change_like_any_other_and_is_logged() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let text = Proxy::builder(&redis).ceiling("2h").text();
    let (status, answer) = proxy.reloads(text.as_bytes(), "/reload");
    assert_eq!(status, 200, "{answer}");
    assert!(
        answer.contains("locks ttl-ceiling.ceiling 10s -> 2h"),
        "{answer}"
    );
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
    // Back to monitor mode is one order, as ever.
    assert_eq!(proxy.switch("locks", Mode::Monitor), 200);
    proxy.reload(&text);
    wait_for("the reload", || {
        proxy.metric("lockwarden_config_last_reload_successful") == 1.0
    });
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
    assert!(
        end.stdout.contains("locks") && end.stdout.contains("monitor"),
        "{end:?}"
    );
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
    // What is refused has changed nothing, neither what is in force nor what is shown of it.
    assert!(shown_as("enforce") && !shown_as("monitor"));
    let (holder, stranger) = (proxy.client(), proxy.client());
    holder.sends("SETNX lock:job a1").gets(":1");
    stranger.sends("DEL lock:job").gets(":0");
    holder.sends("DEL lock:job").gets(":1");

    let weaker = Proxy::builder(&redis).mode(Mode::Monitor).text();
    std::fs::write(proxy.config(), weaker).expect("the directory is ours");
    let end = types(&["reload"]);
    assert_eq!(end.code, Some(1), "{end:?}");
    assert!(
        end.stderr.contains("enforce mode would become monitor"),
        "{end:?}"
    );
    let end = types(&["reload", "--allow-weaker"]);
    assert_eq!(end.code, Some(0), "{end:?}");
    assert!(end.stdout.contains("in force"), "{end:?}");
}
