//! Applications whose clients give no name: recognised by their process on the same machine, and by the name that the
//! operator gives them. `registry/processes/program.rs` tests which words of a command line count.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use lockwarden_tests::{Client, Mode, Proxy, ProxyBuilder, Redis, lockwarden, run_to_end, wait_for, wait_for_value};
use serde_json::Value;

/// A program of `docs/examples/estate` that sets no client name; it ends when the value is dropped.
struct Nameless(Child);

impl Nameless {
    /// Starts it; `None` where there is no Python, which is a failure in CI only.
    fn start(role: &str, proxy: &Proxy) -> Option<Nameless> {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/estate/estate.py");
        let mut command = Command::new("python3");
        command.arg("-B").arg(&program);
        command.args([role, &proxy.address().to_string()]);
        match command.stdin(Stdio::null()).stdout(Stdio::null()).spawn() {
            Ok(child) => Some(Nameless(child)),
            Err(error) => {
                assert!(std::env::var_os("CI").is_none(), "python3: {error}");
                eprintln!("SKIPPED: there is no python3 for the estate ({error})");
                None
            }
        }
    }
}

impl Drop for Nameless {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a command prints as JSON.
#[track_caller]
fn said(proxy: &Proxy, command: &str) -> Value {
    let admin = proxy.admin_address().to_string();
    let said = run_to_end(&mut lockwarden(&[command, "-o", "json", "--admin", &admin]));
    serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {}{}", said.stdout, said.stderr))
}

fn names(list: &Value) -> Vec<String> {
    let list = list.as_array().expect("a list");
    let mut names: Vec<String> =
        list.iter().map(|one| one["application"].as_str().expect("a name").to_owned()).collect();
    names.sort();
    names
}

/// The holder of this lock, by the API.
#[track_caller]
fn holder(proxy: &Proxy, key: &str) -> String {
    wait_for_value(&format!("a holder of {key}"), || {
        let (status, body) = proxy.get(&format!("/api/v1/locks/{key}"));
        let lock: Value = serde_json::from_str(&body).ok()?;
        let holder = lock["lock"]["holder"]["application"].as_str()?;
        (status == 200).then(|| holder.to_owned())
    })
}

/// Makes this client take a lock of its own, and returns the name that the API gives the client.
#[track_caller]
fn called(proxy: &Proxy, client: &Client, key: &str) -> String {
    client.sends(format!("SET {key} mine NX PX 9000")).gets("+OK");
    holder(proxy, key)
}

/// The program of these tests, which is the process of all their clients.
fn this_program() -> String {
    let path = std::env::current_exe().expect("it runs");
    let name = path.file_name().expect("a file");
    name.to_string_lossy().into_owned()
}

fn decided(application: &str, decision: &str) -> String {
    format!("lockwarden_application_decisions_total{{application=\"{application}\",decision=\"{decision}\"}}")
}

fn watching(redis: &Redis) -> ProxyBuilder {
    Proxy::builder(redis).mode(Mode::Monitor)
}

#[test]
fn processes_without_names_are_told_apart_by_audit() {
    let redis = Redis::start();
    let proxy = watching(&redis).namespace("keys", "[\"order:*:lock\", \"mutex.payment.*\"]").start();
    let Some(_orders) = Nameless::start("orders", &proxy) else {
        return;
    };
    let _payments = Nameless::start("payments", &proxy);
    // Not even their first operations are attributed to another application.
    wait_for("both to be told of", || {
        let report = said(&proxy, "audit");
        names(&report["applications"]) == ["estate.py orders", "estate.py payments"]
    });
}

#[test]
fn processes_without_names_are_told_apart_by_discover() {
    let redis = Redis::start();
    let proxy = watching(&redis).start();
    let Some(_orders) = Nameless::start("orders", &proxy) else {
        return;
    };
    let _payments = Nameless::start("payments", &proxy);
    for (pattern, application) in [("order:*:lock", "estate.py orders"), ("mutex.payment.*", "estate.py payments")] {
        wait_for(&format!("{application} to be told of"), || {
            let found = said(&proxy, "discover");
            let patterns = found["patterns"].as_array().expect("a list");
            let one = patterns.iter().find(|one| one["pattern"] == pattern);
            one.is_some_and(|one| names(&one["applications"]) == [application])
        });
    }
}

#[test]
fn a_name_and_a_user_go_before_the_process_and_the_process_before_the_address() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    redis.client().sends("ACL SETUSER svc on >secret ~* &* +@all").gets("+OK");
    let (named, user, nameless) = (proxy.client(), proxy.client(), proxy.client());
    named.sends("CLIENT SETNAME billing-7").gets("+OK");
    user.sends("AUTH svc secret").gets("+OK");
    assert_eq!(called(&proxy, &named, "lock:a"), "billing-7");
    assert_eq!(called(&proxy, &user, "lock:b"), "svc");
    let program = called(&proxy, &nameless, "lock:c");
    assert!(program.ends_with(&this_program()), "{program}");
}

/// Every kind of condition; the names that clients set come after all of them.
fn mapped(redis: &Redis) -> ProxyBuilder {
    Proxy::builder(redis).more(&format!(
        r#"
[[application]]
name = "billing"
from = ["127.66.0.0/16"]

[[application]]
name = "workers"
client = "worker-*"
user = "default"

[[application]]
name = "tests"
process = "{}"
"#,
        this_program()
    ))
}

#[test]
fn the_operators_names_go_before_what_clients_say_of_themselves() {
    let redis = Redis::start();
    let proxy = mapped(&redis).start();
    for (name, decision) in [("billing", "allow"), ("workers", "deny"), ("__other__", "deny")] {
        proxy.counts(&decided(name, decision), 0.0);
    }
    let (billing, worker, test) = (proxy.client_from("127.66.0.1"), proxy.client(), proxy.client());
    billing.sends("CLIENT SETNAME worker-1").gets("+OK");
    worker.sends("CLIENT SETNAME worker-2").gets("+OK");
    test.sends("CLIENT SETNAME something-else").gets("+OK");
    assert_eq!(called(&proxy, &billing, "lock:a"), "billing");
    assert_eq!(called(&proxy, &worker, "lock:b"), "workers");
    assert_eq!(called(&proxy, &test, "lock:c"), "tests");
    worker.sends("DEL lock:a").gets(":0");
    for (name, decision, count) in
        [("billing", "allow", 1.0), ("workers", "deny", 1.0), ("tests", "allow", 1.0), ("__other__", "allow", 0.0)]
    {
        proxy.counts(&decided(name, decision), count);
    }
}

#[test]
fn a_reload_renames_connections_that_are_there() {
    let redis = Redis::start();
    let builder = mapped(&redis);
    let text = builder.text();
    let proxy = builder.start();
    let billing = proxy.client_from("127.66.0.1");
    assert_eq!(called(&proxy, &billing, "lock:a"), "billing");
    proxy.counts(&decided("billing", "allow"), 1.0);

    proxy.reload(&text.replace("name = \"billing\"", "name = \"invoices\""));
    proxy.logs(&["configuration loaded", "application"]);
    assert_eq!(called(&proxy, &billing, "lock:b"), "invoices");
    proxy.counts(&decided("invoices", "allow"), 1.0);
    let (_, page) = proxy.get("/metrics");
    assert!(!page.contains("application=\"billing\""), "{page}");

    // A condition on the process that was not there when the connection came.
    let rule = format!("process = \"{}\"", this_program());
    proxy.reload(&text.replace("from = [\"127.66.0.0/16\"]", &rule));
    assert_eq!(proxy.logged(&["was not loaded"]), 0, "{}", proxy.log());
    let mut number = 0;
    wait_for("the process to be known", || {
        number += 1;
        called(&proxy, &billing, &format!("lock:c{number}")) == "billing"
    });
}

#[test]
fn a_namespace_is_enforced_for_an_application_by_its_name() {
    let redis = Redis::start();
    let proxy = mapped(&redis)
        .mode(Mode::Monitor)
        .namespace("enforce_for", "{ applications = [\"billing\", \"workers\"] }")
        .start();
    let (alice, billing, worker) = (proxy.client(), proxy.client_from("127.66.0.1"), proxy.client());
    worker.sends("CLIENT SETNAME worker-2").gets("+OK");
    alice.sends("SET lock:job a NX PX 9000").gets("+OK");
    billing.sends("DEL lock:job").gets(":0");
    worker.sends("DEL lock:job").gets(":0");
    proxy.client().sends("DEL lock:job").gets(":1");
    proxy.counts(&decided("billing", "deny"), 1.0);
    proxy.counts(&decided("workers", "deny"), 1.0);
    proxy.counts(&decided("tests", "would-deny"), 1.0);
}

#[test]
fn check_prints_the_applications_and_refuses_one_that_is_known_too_late() {
    let redis = Redis::start();
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("lockwarden.toml");
    let check = |text: &str| {
        std::fs::write(&file, text).expect("the directory is ours");
        run_to_end(lockwarden(&["check", "--config"]).arg(&file))
    };
    let whom = |names: &str| {
        let whom = format!("{{ applications = [{names}] }}");
        let builder = mapped(&redis).mode(Mode::Monitor);
        builder.namespace("enforce_for", &whom).text()
    };
    let said = check(&whom("\"billing\", \"workers\""));
    assert_eq!(said.code, Some(0), "{said:?}");
    for line in [
        "(enforced for application billing application workers)",
        "application billing: from 127.66.0.0/16",
        "application workers: user default, client worker-*",
    ] {
        assert!(said.stdout.contains(line), "{}", said.stdout);
    }
    let said = check(&whom("\"tests\""));
    assert_eq!(said.code, Some(2), "{said:?}");
    let why = "\"tests\" is told by its process, which is found out after its first command";
    assert!(said.stdout.contains(why), "{}", said.stdout);
}
