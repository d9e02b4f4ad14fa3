//! A proxy that runs as its own user may not see the processes of other users: it says so, and gives no advice that depends
//! on the identity of a client.

use std::process::Command;

use lockwarden_tests::{
    Cores, Mode, Process, Proxy, ProxyBuilder, Redis, lockwarden, may_be_another_user, run_to_end, wait_for,
};

use super::jobs;

/// `nobody`.
const NOBODY: u32 = 65_534;
const WARNED: &str = "may not see the processes of other users";
const TO_TYPE: &str = "lockwarden-processes.conf";

/// The output of a command about this proxy, line by line.
#[track_caller]
fn lines(proxy: &Proxy, words: &[&str]) -> Vec<String> {
    let mut command = lockwarden(words);
    command.env("LOCKWARDEN_ADMIN", proxy.admin_address().to_string());
    let said = run_to_end(&mut command).stdout;
    said.lines().map(str::to_owned).collect()
}

/// Takes a lock, so that its process is looked up.
#[track_caller]
fn takes_and_gives_back(proxy: &Proxy, lock: &str) {
    let client = proxy.client();
    client.sends(format!("SETNX {lock} 1")).gets(":1");
    client.sends(format!("DEL {lock}")).gets(":1");
}

#[test]
fn a_proxy_that_may_not_see_its_clients_says_so_once_in_the_log_and_first_everywhere_else() {
    if !may_be_another_user() {
        return;
    }
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).as_user(NOBODY).start();
    let config = proxy.config().display().to_string();
    let told = |proxy: &Proxy| {
        let told = [lines(proxy, &["audit"]), lines(proxy, &["check", "--config", &config])];
        told.map(|lines| lines[0].clone())
    };
    for line in told(&proxy) {
        assert!(!line.contains(WARNED), "nobody was looked for: {line}");
    }
    takes_and_gives_back(&proxy, "lock:a");
    proxy.logs(&["WARN", WARNED, TO_TYPE]);
    for line in told(&proxy) {
        assert!(line.contains(WARNED) && line.contains(TO_TYPE), "{line}");
    }
    let stays = proxy.client();
    stays.sends("SETNX lock:b 1").gets(":1");
    let clients = lines(&proxy, &["clients"]);
    assert!(clients[0].contains(WARNED), "{clients:?}");
    assert!(clients[1].starts_with("SESSION"), "{clients:?}");
    for path in ["connections", "report"] {
        let hidden = &proxy.api(path)["hidden_processes"];
        let hidden = hidden.as_str().unwrap_or_default();
        assert!(hidden.contains(WARNED), "{path}: {hidden}");
    }
    let notices = proxy.api("locks")["notices"].to_string();
    assert!(notices.contains(WARNED), "the board shows these: {notices}");
    takes_and_gives_back(&proxy, "lock:c");
    assert_eq!(proxy.logged(&[WARNED]), 1);

    // Its neighbour sees them.
    let root = Proxy::enforcing(&redis);
    takes_and_gives_back(&root, "lock:d");
    let client = root.client();
    client.sends("SETNX lock:e 1").gets(":1");
    wait_for("its process to be found", || root.api("connections")["connections"][0]["process"]["id"].is_number());
    assert!(root.api("connections")["hidden_processes"].is_null());
    assert_eq!(root.logged(&[WARNED]), 0);
    let audit = lines(&root, &["audit"]);
    assert!(!audit[0].contains(WARNED), "{audit:?}");
}

/// Locks that are taken over one connection of a process and given back over another, without a token.
fn uses_a_pool(builder: ProxyBuilder) -> Proxy {
    let proxy = builder.mode(Mode::Monitor).start();
    let (takes, gives_back) = (proxy.client_from("127.0.0.1"), proxy.client_from("127.0.0.1"));
    for number in 0..8 {
        takes.sends(format!("SETNX lock:{number} 1")).gets(":1");
        gives_back.sends(format!("DEL lock:{number}")).gets(":1");
    }
    proxy
}

/// The commands that the report suggests for everything that was found.
fn mends(proxy: &Proxy) -> Vec<(String, String)> {
    let report = proxy.api("report");
    let list = |value: &serde_json::Value| value.as_array().cloned().unwrap_or_default();
    let applications = list(&report["applications"]).into_iter();
    let usages = applications.flat_map(|one| list(&one["namespaces"]));
    let misuses = usages.flat_map(|usage| [list(&usage["refusals"]), list(&usage["findings"])].concat());
    let patterns = misuses.flat_map(|misuse| list(&misuse["patterns"]));
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    patterns.map(|one| (text(&one["code"]), text(&one["toml"]["line"]))).collect()
}

#[test]
fn what_was_found_of_clients_that_may_not_be_seen_is_mended_by_letting_the_proxy_see_them() {
    if !may_be_another_user() {
        return;
    }
    let redis = Redis::start();
    let blind = uses_a_pool(Proxy::builder(&redis).as_user(NOBODY));
    wait_for("something to be found", || !mends(&blind).is_empty());
    let patterns = blind.api("report")["patterns"].clone();
    for (code, toml) in mends(&blind) {
        assert!(code.contains(TO_TYPE), "{code}");
        assert_eq!(toml, "", "no setting can mend that");
    }
    for pattern in patterns.as_array().expect("a list") {
        assert!(pattern["advice"].is_null(), "{pattern}");
    }
    let seeing = uses_a_pool(Proxy::builder(&redis));
    wait_for("something to be found", || !mends(&seeing).is_empty());
    for (code, _) in mends(&seeing) {
        assert!(!code.contains(TO_TYPE), "{code}");
    }
}

/// Everything runs on one core, on which others work as well.
#[test]
fn jobs_of_a_shell_give_their_locks_back_on_a_machine_that_is_busy() {
    Cores::of_this_thread().take().expect("it is allowed here");
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).default_ttl("5s").start();
    let _busy: Vec<Process> = (0..6)
        .map(|_| {
            let mut busy = Command::new("sh");
            busy.args(["-c", "while :; do :; done"]);
            Process::spawn(&mut busy).expect("there is a shell")
        })
        .collect();
    for number in 0..12 {
        let job = jobs::Job::starts(&proxy, jobs::PLAIN);
        assert_eq!(job.ends(), Some(0), "job {number}");
    }
    let refused = "lockwarden_lock_releases_total{namespace=\"locks\",outcome=\"not-owner\"}";
    assert_eq!(proxy.metric(refused), 0.0);
}
