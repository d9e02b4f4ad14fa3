//! From monitor mode to enforce mode with the old program of `docs/examples/legacy`, as `docs/first-hour.md`
//! describes it: three kinds of processes with four faults, while their code stays as it is.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use lockwarden_tests::{Mode, Proxy, ProxyBuilder, Redis, lockwarden, run_to_end, wait_for, wait_for_value};
use serde_json::Value;

/// The five processes; they end when the value is dropped.
struct Legacy(Vec<Child>);

impl Legacy {
    /// Starts it; `None` where there is no Python, which is a failure in CI only.
    fn start(proxy: &Proxy) -> Option<Legacy> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/legacy");
        let mut all = Legacy(Vec::new());
        for part in ["orders", "orders", "invoices", "invoices", "nightly"] {
            let mut command = Command::new("python3");
            command
                .arg("-B")
                .arg(folder.join(format!("{part}.py")))
                .arg(proxy.address().to_string())
                .stdin(Stdio::null())
                .stdout(Stdio::null());
            match command.spawn() {
                Ok(child) => all.0.push(child),
                Err(error) => {
                    assert!(std::env::var_os("CI").is_none(), "python3: {error}");
                    eprintln!("SKIPPED: there is no python3 for the old program ({error})");
                    return None;
                }
            }
        }
        Some(all)
    }

    fn runs(&mut self) -> bool {
        let ended = |child: &mut Child| child.try_wait().expect("the child is ours").is_some();
        !self.0.iter_mut().any(ended)
    }
}

impl Drop for Legacy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The report, with the exit code.
fn audit(proxy: &Proxy) -> (Option<i32>, Value) {
    audit_with(proxy, &[])
}

fn audit_with(proxy: &Proxy, more: &[&str]) -> (Option<i32>, Value) {
    let admin = proxy.admin_address().to_string();
    let mut command = lockwarden(&["audit", "-o", "json", "--admin", &admin]);
    command.args(more);
    let said = run_to_end(&mut command);
    let report =
        serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {}{}", said.stdout, said.stderr));
    (said.code, report)
}

/// What the report says about an application, `refusals` or `findings`.
fn misuses<'a>(report: &'a Value, application: &str, kind: &str) -> Vec<&'a Value> {
    let all = report["applications"].as_array().expect("a list");
    let of = all.iter().filter(|one| one["application"] == application);
    of.flat_map(|one| one["namespaces"].as_array().expect("a list"))
        .flat_map(|usage| usage[kind].as_array().expect("a list"))
        .collect()
}

fn names(report: &Value, application: &str, kind: &str, what: &str) -> bool {
    misuses(report, application, kind).iter().any(|misuse| {
        misuse["what"] == what
            && misuse["count"].as_u64() > Some(0)
            && misuse["advice"].as_str().is_some_and(|advice| !advice.is_empty())
            && misuse["example"]["client"]["application"] == application
    })
}

fn is_everything_named(report: &Value) -> bool {
    names(report, "orders", "refusals", "not-owner")
        && names(report, "invoices", "refusals", "expired")
        && names(report, "nightly", "refusals", "overwrite")
        && names(report, "nightly", "findings", "outlived")
}

fn configuration(redis: &Redis) -> ProxyBuilder {
    Proxy::builder(redis).mode(Mode::Monitor)
}

#[test]
fn a_while_in_monitor_mode_names_every_fault_and_whose_it_is() {
    let redis = Redis::start();
    let proxy = configuration(&redis).start();
    let Some(mut legacy) = Legacy::start(&proxy) else {
        return;
    };
    let (code, report) = wait_for_value("all four faults to be named", || {
        let (code, report) = audit(&proxy);
        is_everything_named(&report).then_some((code, report))
    });
    assert_eq!(code, Some(1), "not ready");
    let namespace = &report["namespaces"][0];
    assert_eq!(namespace["namespace"], "locks");
    assert_eq!(namespace["ready"], false);
    assert_eq!(namespace["refused"], 0, "looking refuses nothing");
    // The applications that do not have these faults.
    assert!(!names(&report, "orders", "refusals", "overwrite"));
    assert!(!names(&report, "invoices", "refusals", "overwrite"));
    assert!(!names(&report, "orders", "findings", "outlived"));

    let mut command = lockwarden(&["audit", "--admin", &proxy.admin_address().to_string()]);
    let text = run_to_end(&mut command).stdout;
    for word in ["orders", "invoices", "nightly", "not-owner", "expired", "overwrite", "outlived"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(legacy.runs(), "nobody was harmed");
}

/// The program says in its own lines how long it works: 150 ms on an order, 500 ms on an invoice. While nothing is
/// refused, most of its locks are deleted earlier by others.
#[test]
fn a_lock_is_held_until_the_release_of_that_grant_whoever_deleted_it_before() {
    let redis = Redis::start();
    let proxy = configuration(&redis).start();
    let Some(_legacy) = Legacy::start(&proxy) else {
        return;
    };
    let of = |glob: &str, more: &str| {
        let (status, answer) = proxy.get(&format!("/api/v1/patterns?namespace=locks{more}"));
        assert_eq!(status, 200, "{answer}");
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        let patterns = answer["patterns"].as_array().expect("a list").clone();
        patterns.into_iter().find(|one| one["pattern"] == glob)
    };
    let enough = |glob: &'static str| {
        wait_for_value("twenty leases that were given back", || {
            of(glob, "").filter(|one| one["holds"]["count"].as_u64() >= Some(20))
        })
    };
    let (invoices, orders) = (enough("lock:invoice"), enough("lock:order"));
    let p50 = |one: &Value| one["holds"]["p50_ms"].as_u64().expect("a number");
    // A busy machine makes work longer; nothing makes it shorter.
    assert!((500..900).contains(&p50(&invoices)), "{invoices}");
    assert!((150..450).contains(&p50(&orders)), "{orders}");
    assert_eq!(invoices["ttl_ms"], 300);
    assert!(invoices["advice"].is_string(), "its TTL is too short");
    assert_eq!(invoices["applications"][0]["application"], "invoices");
    assert_eq!(invoices["history"], serde_json::json!([]), "not asked for");
    // Those of a day are never given back.
    wait_for("the marks of two nights", || of("lock:done:*", "").is_some_and(|one| one["held"].as_u64() >= Some(2)));

    // Each advice names a line. Its TTL has room for half as much again as all of the work, and not for much more.
    let (_, report) = wait_for_value("five marks that were left to their TTLs", || {
        let (code, report) = audit(&proxy);
        let mixed = report["namespaces"][0]["mixed"].as_array().expect("a list");
        (!mixed.is_empty()).then_some((code, report))
    });
    let on = |application: &str, kind: &str, what: &str, pattern: &str| {
        let all = misuses(&report, application, kind);
        let one = all.iter().find(|one| one["what"] == what).expect("it is found");
        let patterns = one["patterns"].as_array().expect("a list");
        let these = patterns.iter().find(|one| one["pattern"] == pattern);
        these.unwrap_or_else(|| panic!("{one}")).clone()
    };
    let late = on("invoices", "refusals", "expired", "lock:invoice");
    let code = late["code"].as_str().expect("a line of code");
    let ttl = code.strip_prefix("SET lock:invoice VALUE NX PX ").expect("an acquire");
    let ttl: u64 = ttl.parse().expect("a number");
    assert!((1_000..=3_000).contains(&ttl), "{code}");
    assert!(
        on("orders", "refusals", "not-owner", "lock:order")["code"]
            .as_str()
            .is_some_and(|code| code.starts_with("EVAL"))
    );
    let mark = on("nightly", "findings", "outlived", "lock:done:*");
    assert_eq!(mark["toml"]["line"], "ceiling = \"1d\"");
    assert_eq!(mark["toml"]["table"], "namespace.settings.ttl-ceiling");

    // The marks are another family: with the namespace that is proposed for them the configuration is accepted, and
    // they are counted apart.
    let mixed = report["namespaces"][0]["mixed"][0].clone();
    assert_eq!(mixed["way"], "left-to-ttl");
    assert_eq!(mixed["patterns"], serde_json::json!(["lock:done:*"]));
    let toml = mixed["toml"].as_str().expect("TOML");
    let text = configuration(&redis).text();
    let place = text.find("[[namespace]]").expect("it has one");
    proxy.reload(&format!("{}{toml}\n{}", &text[..place], &text[place..]));
    wait_for("the marks to be counted apart", || {
        let (_, report) = audit_with(&proxy, &["--since", "reload"]);
        let named = |name: &str| {
            let all = report["namespaces"].as_array().expect("a list");
            all.iter().find(|one| one["namespace"] == name).cloned()
        };
        let (marks, rest) = (named("lock-done"), named("locks"));
        marks.is_some_and(|one| one["operations"].as_u64() > Some(0) && one["would_refuse"] == 0)
            && rest.is_some_and(|one| one["operations"].as_u64() > Some(20) && one["mixed"] == serde_json::json!([]))
    });

    let told = of("lock:invoice", "&pattern=lock:invoice&history=true").expect("it is there");
    let history = told["history"].as_array().expect("a list");
    let deleted = |lease: &&Value| lease["end"] == "deleted-by-another" && lease["held_ms"].is_u64();
    let lease = history.iter().find(deleted).expect("one of the late deletions");
    let number = |field: &str| lease[field].as_u64().expect("a number");
    assert!(number("held_ms") >= 500, "{lease}");
    assert!(number("until") - number("since") < number("held_ms"), "{lease}");
    assert_eq!(lease["client"]["application"], "invoices");
    assert_eq!(of("lock:invoice", "&pattern=lock:order"), None);
    let (status, answer) = proxy.get("/api/v1/patterns?nosuch=1");
    assert_eq!(status, 400, "{answer}");
}

/// The report names what enforce mode itself would change, and the clients that cause it; and nothing is
/// changed.
#[test]
fn watching_tells_what_enforce_mode_would_change_and_changes_nothing() {
    let redis = Redis::start();
    let proxy = configuration(&redis).ceiling("60s").setting("ttl-ceiling", "default", "\"30s\"").start();
    let named = |name: &str| {
        let client = proxy.client();
        client.sends(format!("CLIENT SETNAME {name}")).gets("+OK");
        client
    };
    let (billing, two_step, long) = (named("billing"), named("two-step"), named("long"));
    for _ in 0..300 {
        billing.sends("SETNX lock:a 1").gets(":1");
        billing.sends("DEL lock:a").gets(":1");
    }
    two_step.sends("SETNX lock:b 1").gets(":1");
    two_step.sends("EXPIRE lock:b 20").gets(":1");
    two_step.sends("DEL lock:b").gets(":1");
    long.sends("SET lock:c longs-own-8c1f0a2e9b7d NX PX 600000").gets("+OK");
    assert!(redis.client().sends("PTTL lock:c").integer() > 60_000);
    billing.sends("SETNX lock:d 1").gets(":1");
    assert_eq!(redis.client().sends("PTTL lock:d").integer(), -1);
    billing.sends("DEL lock:d").gets(":1");
    long.sends("DEL lock:c").gets(":1");

    let count = |report: &Value, application: &str, what: &str| {
        let all = misuses(report, application, "findings");
        let these = all.iter().filter(|misuse| misuse["what"] == what);
        these.map(|misuse| misuse["count"].as_u64().expect("a number")).sum::<u64>()
    };
    let (_, report) = wait_for_value("all of it to be folded", || {
        let (code, report) = audit(&proxy);
        (report["namespaces"][0]["operations"] == 607).then_some((code, report))
    });
    assert_eq!(count(&report, "billing", "no-ttl"), 301);
    assert_eq!(count(&report, "two-step", "no-ttl"), 0);
    assert_eq!(count(&report, "long", "ttl-cut"), 1);
    assert_eq!(count(&report, "long", "no-ttl"), 0);
    let example = &misuses(&report, "billing", "findings")[0]["example"];
    assert_eq!(example["command"], "SETNX");
    assert_eq!(example["decision"], "would-modify");
    assert_eq!(example["would_ttl_ms"], 30_000);
    let namespace = &report["namespaces"][0];
    assert_eq!((&namespace["refused"], &namespace["would_refuse"]), (&0.into(), &0.into()));
    assert_eq!(namespace["would_modify"], 303);
    let verdict = namespace["verdict"].as_str().expect("words");
    assert!(verdict.contains("would change no-ttl in billing (301 times)"), "{verdict}");
    let counted = "lockwarden_decisions_total{namespace=\"locks\",operation=\"acquire\",decision=\"would-modify\",mode=\"monitor\"}";
    proxy.counts(counted, 303.0);
}

/// After a fault is mended, or a mode switched, the verdict is about what happened since.
#[test]
fn a_report_may_count_from_a_time_a_change_or_an_order_on() {
    let redis = Redis::start();
    let proxy = configuration(&redis).start();
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("CLIENT SETNAME alice").gets("+OK");
    bob.sends("CLIENT SETNAME bob").gets("+OK");
    alice.sends("SET lock:a alices-own-8c1f0a2e9b7d NX PX 500").gets("+OK");
    bob.sends("DEL lock:a").gets(":1");
    let report = |since: &[&str]| {
        let (code, report) = audit_with(&proxy, &[since, &["--enough", "2"]].concat());
        let namespace = &report["namespaces"][0];
        let count = |field: &str| namespace[field].as_u64().expect("a number");
        (code, count("operations"), count("would_refuse"))
    };
    wait_for("the fault to be seen", || report(&[]) == (Some(1), 2, 1));
    for all in ["1h", "last-change", "reload", "2026-11-01T00:00:00Z"] {
        assert_eq!(report(&["--since", all]), (Some(1), 2, 1), "{all}");
    }
    let works = |key: &str| {
        alice.sends(format!("SET {key} alices-own-8c1f0a2e9b7d NX PX 500")).gets("+OK");
        alice.sends(format!("DEL {key}")).gets(":1");
    };
    assert_eq!(proxy.switch("locks", Mode::Monitor), 200);
    assert_eq!(report(&["--since", "last-change"]), (Some(1), 0, 0), "nothing yet");
    works("lock:b");
    wait_for("what happened since the switch", || report(&["--since", "last-change"]) == (Some(0), 2, 0));
    // By the rule, two calls are too few for a verdict.
    let (code, by_rule) = audit_with(&proxy, &["--since", "last-change"]);
    assert_eq!(code, Some(1));
    let namespace = &by_rule["namespaces"][0];
    assert_eq!((&namespace["ready"], &namespace["wanted_calls"]), (&false.into(), &998.into()));
    let verdict = namespace["verdict"].as_str().expect("words");
    assert!(verdict.contains("watch for 998 calls more, or until 20"), "{verdict}");
    // Not loaded again since the start.
    assert_eq!(report(&["--since", "reload"]), (Some(1), 4, 1));
    assert_eq!(report(&["--since", "1h"]), (Some(1), 4, 1));
    let (_, told) = audit_with(&proxy, &["--since", "last-change"]);
    assert_eq!(told["applications"].as_array().map(Vec::len), Some(1));
    assert_eq!(told["applications"][0]["application"], "alice");

    let admin = proxy.admin_address().to_string();
    let mut reset = lockwarden(&["audit", "reset", "--admin", &admin, "--config"]);
    let said = run_to_end(reset.arg(proxy.config()));
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stdout.starts_with("the report counts from 2"), "{}", said.stdout);
    assert_eq!(report(&[]), (Some(1), 0, 0));
    works("lock:c");
    wait_for("what happened since the order", || report(&[]) == (Some(0), 2, 0));
    assert_eq!(report(&["--since", "last-change"]), (Some(0), 4, 0));
    assert_eq!(report(&["--since", "1h"]), (Some(1), 6, 1), "that is still known");

    let (status, answer) = proxy.get("/api/v1/report?since=yesterday");
    assert_eq!(status, 400, "{answer}");
    assert!(answer.contains("last-change or reload"), "{answer}");
    let mut wrong = lockwarden(&["audit", "--since", "yesterday", "--admin", &admin]);
    assert_eq!(run_to_end(&mut wrong).code, Some(2));
    assert_eq!(proxy.post_with(None, "/api/v1/report/reset", "").0, 401);
}

#[test]
fn enforcing_for_one_application_refuses_it_alone_and_then_all_of_them_go_on() {
    let redis = Redis::start();
    let proxy = configuration(&redis).start();
    let Some(mut legacy) = Legacy::start(&proxy) else {
        return;
    };
    let text = configuration(&redis).namespace("enforce_for", "{ clients = [\"orders\"] }").text();
    proxy.reload(&text);
    let refused = |name: &str| proxy.logged(&["\"message\":\"refused\"", &format!("\"name\":\"{name}\"")]);
    wait_for("orders to be refused what is not theirs", || refused("orders") > 0);
    wait_for("the others to be watched on", || {
        let watched =
            |name| proxy.logged(&["\"message\":\"would have been refused\"", &format!("\"name\":\"{name}\"")]);
        watched("invoices") > 0 && watched("nightly") > 0
    });
    assert_eq!(refused("invoices") + refused("nightly"), 0);
    assert!(legacy.runs());

    // Markers of a day in a namespace that lets them live; then the rest is enforced for all clients.
    let markers = "[[namespace]]\nname = \"shop\"\nkeys = [\"lock:*\"]\nmode = \"enforce\"";
    let text = configuration(&redis)
        .mode(Mode::Enforce)
        .namespace("name", "\"markers\"")
        .namespace("keys", "[\"lock:done:*\"]")
        .ceiling("24h")
        .more(markers)
        .text();
    proxy.reload(&text);
    wait_for("everybody to be refused what is not theirs", || {
        ["orders", "invoices", "nightly"].iter().all(|name| refused(name) > 0)
    });
    assert!(legacy.runs(), "the old program goes on, unchanged");
    let client = redis.client();
    wait_for("a marker to outlive its connection", || {
        let keys = client.sends("KEYS lock:done:*").reply().to_string();
        let last = keys.rsplit(' ').next().unwrap_or_default().trim_end_matches(']');
        !last.is_empty() && client.sends(format!("TTL {last}")).integer() > 80_000
    });
}
