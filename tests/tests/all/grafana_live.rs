//! The dashboard and the alerts against a real Prometheus that scrapes the real proxy: every panel has data
//! after a few minutes' activity of locks, played in seconds, and an alert arrives where Alertmanager sends
//! it. `grafana.rs` tests the files by themselves.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use lockwarden_tests::{Alertmanager, Client, Prometheus, Proxy, Redis, installed, wait_for};
use serde_json::Value;

/// How long everything may take that comes by scrapes and evaluations.
const LONG: Duration = Duration::from_secs(40);

const COMPARE_AND_DELETE: &str =
    "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) end return 0";

/// Panels that must not only have data but show what was played.
const TELLING: [&str; 20] = [
    "Proxies up",
    "Locks held",
    "Oldest lock",
    "Refused",
    "Would be refused",
    "Overlaps",
    "Ran out while held",
    "Refusals by reason",
    "Would be refused, by policy and reason",
    "Namespaces by refusals",
    "Releases by outcome",
    "TTLs that the proxy chose",
    "Findings about clients",
    "Contended share by namespace",
    "Hold time",
    "Added latency",
    "Redirections",
    "Fuel for one decision",
    "Memory of policies",
    "Threads at work",
];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// One namespace that enforces and one that is watched.
fn proxy(redis: &Redis) -> Proxy {
    Proxy::builder(redis)
        .more("[[namespace]]\nname = \"watched\"\nkeys = [\"watched:*\"]\nmode = \"monitor\"\n")
        .more("[[guard]]\nname = \"stock\"\nkeys = [\"stock:{id}\"]\nlock = \"lock:{id}\"\nmode = \"enforce\"\n")
        .start()
}

fn scrape(proxy: &Proxy, more: &str) -> String {
    format!(
        "global:\n  scrape_interval: 500ms\n  scrape_timeout: 500ms\n  evaluation_interval: 500ms\n{more}\
         scrape_configs:\n  - job_name: lockwarden\n    static_configs:\n      - targets: ['{}']\n",
        proxy.admin_address()
    )
}

/// Two clients use locks for a quarter of a second: well, badly, too late, and one in the way of the other.
fn live(redis: &Redis, alice: &Client, bob: &Client) {
    alice.sends("SET lock:a alices NX PX 9000").gets("+OK");
    bob.sends("SET lock:a bobs NX PX 9000").gets("nil");
    bob.sends("DEL lock:a").gets(":0");
    alice.sends("SETNX lock:a again").gets(":0");
    alice.sends_arguments(&["EVAL", COMPARE_AND_DELETE, "1", "lock:a", "alices"]).gets(":1");
    // Bob has waited for it.
    bob.sends("SET lock:a bobs NX PX 9000").gets("+OK");
    bob.sends_arguments(&["EVAL", COMPARE_AND_DELETE, "1", "lock:a", "bobs"]).gets(":1");
    // No TTL was named.
    alice.sends("SETNX lock:b 1").gets(":1");
    alice.sends("DEL lock:b").gets(":1");
    // Alice's lease ends under her, Bob has the lock, and Alice gives it back.
    alice.sends("SET lock:late alices NX PX 20").gets("+OK");
    redis.becomes_free("lock:late");
    bob.sends("SET lock:late bobs NX PX 9000").gets("+OK");
    alice.sends("DEL lock:late").gets(":0");
    bob.sends("DEL lock:late").gets(":1");
    // What the lock guards is written by its holder, and not by others.
    alice.sends("SET lock:7 alices NX PX 9000").gets("+OK");
    alice.sends("SET stock:7 1").gets("+OK");
    bob.sends("SET stock:7 2").gets_error("LOCKDENIED not-owner");
    bob.sends("BLPOP stock:7 1").gets_error("LOCKLIMIT");
    alice.sends("DEL lock:7").gets(":1");
    // Where only watched, Bob's DEL succeeds.
    alice.sends("SET watched:a alices NX PX 9000").gets("+OK");
    bob.sends("DEL watched:a").gets(":1");
    for _ in 0..64 {
        alice.sends("GET price:7").gets("nil");
    }
    // What a node of a cluster would say.
    alice.sends("EVAL \"return redis.error_reply('MOVED 7 127.0.0.1:1')\" 0").gets("-MOVED 7 127.0.0.1:1");
}

/// A query as Grafana sends it.
fn substituted(expression: &str) -> String {
    [("$__rate_interval", "5s"), ("$__range", "1m"), ("$job", ".*"), ("$instance", ".*"), ("$namespace", ".*")]
        .iter()
        .fold(expression.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// The numbers that a query returns.
fn numbers(prometheus: &Prometheus, expression: &str) -> Vec<f64> {
    let body = prometheus.query(expression);
    let answer: Value = serde_json::from_str(&body).expect("Prometheus answers in JSON");
    assert_eq!(answer["status"], "success", "{expression}\n{body}");
    let series = answer["data"]["result"].as_array().expect("a result");
    let values = series.iter().filter_map(|one| one["value"][1].as_str()?.parse().ok());
    values.filter(|number: &f64| number.is_finite()).collect()
}

/// Every query of the dashboard, with its panel.
fn queries() -> Vec<(String, String)> {
    let path = repository().join("grafana/dashboards/lockwarden.json");
    let text = std::fs::read_to_string(path).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let top = dashboard["panels"].as_array().expect("panels");
    let inner = top.iter().flat_map(|row| row["panels"].as_array().into_iter().flatten());
    top.iter()
        .chain(inner)
        .flat_map(|panel| {
            let targets = panel["targets"].as_array().into_iter().flatten();
            targets.map(|target| {
                let title = panel["title"].as_str().unwrap_or_default().to_owned();
                (title, substituted(target["expr"].as_str().unwrap_or_default()))
            })
        })
        .collect()
}

#[test]
fn every_panel_has_data_and_says_what_happened() {
    if !installed(&["prometheus"]) {
        return;
    }
    let redis = Redis::start();
    let proxy = proxy(&redis);
    let prometheus = Prometheus::start(&scrape(&proxy, ""));
    let (alice, bob) = (proxy.client_from("127.51.0.1"), proxy.client_from("127.51.0.2"));
    alice.sends("SET lock:held alices NX PX 60000").gets("+OK");

    let queries = queries();
    assert!(queries.len() > 40, "the dashboard is read wrongly");
    let end = Instant::now() + LONG;
    loop {
        live(&redis, &alice, &bob);
        let mut shown: BTreeMap<&str, f64> = BTreeMap::new();
        let mut empty = Vec::new();
        for (title, query) in &queries {
            let numbers = numbers(&prometheus, query);
            if numbers.is_empty() {
                empty.push(format!("{title}: no data: {query}"));
            }
            *shown.entry(title).or_default() += numbers.iter().sum::<f64>();
        }
        for title in TELLING {
            if shown.get(title).is_none_or(|sum| *sum <= 0.0) {
                empty.push(format!("{title} shows nothing of what was played"));
            }
        }
        if empty.is_empty() {
            return;
        }
        assert!(Instant::now() < end, "{}\n{}", empty.join("\n"), prometheus.log());
    }
}

#[test]
fn the_variables_and_the_annotations_of_the_dashboard_find_something() {
    if !installed(&["prometheus"]) {
        return;
    }
    let redis = Redis::start();
    let proxy = proxy(&redis);
    let prometheus = Prometheus::start(&scrape(&proxy, ""));
    wait_for("a scrape", || !numbers(&prometheus, "lockwarden_build_info").is_empty());
    let text = std::fs::read_to_string(repository().join("grafana/dashboards/lockwarden.json"));
    let dashboard: Value = serde_json::from_str(&text.expect("the dashboard")).expect("JSON");
    let mut labels = Vec::new();
    for variable in dashboard["templating"]["list"].as_array().expect("variables") {
        let Some(query) = variable["definition"].as_str() else {
            continue;
        };
        let inside = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
        let (series, label) = inside.and_then(|inside| inside.rsplit_once(", ")).expect("label_values");
        let count = format!("count by ({label}) ({})", substituted(series));
        labels.push((label.to_owned(), numbers(&prometheus, &count).len()));
    }
    let expected = [("job", 1), ("instance", 1), ("namespace", 2)];
    assert_eq!(labels, expected.map(|(label, count)| (label.to_owned(), count)));
    let annotations = dashboard["annotations"]["list"].as_array().expect("annotations");
    assert_eq!(annotations.len(), 3);
    for annotation in annotations {
        // An answer is enough: nothing has happened yet.
        numbers(&prometheus, &substituted(annotation["expr"].as_str().expect("a query")));
    }
}

/// The bodies that were posted to a receiver of alerts.
fn receiver() -> (SocketAddr, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let (bodies, received) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut reader = BufReader::new(stream);
            let mut length = 0;
            let mut line = String::new();
            while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap_or(0);
                }
                line.clear();
            }
            let mut body = vec![0; length];
            if reader.read_exact(&mut body).is_err() {
                continue;
            }
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            let _ = reader.get_mut().write_all(answer);
            if bodies.send(String::from_utf8_lossy(&body).into_owned()).is_err() {
                return;
            }
        }
    });
    (address, received)
}

/// The annotations of this alert, once it is received.
fn received(bodies: &mpsc::Receiver<String>, alert: &str) -> Value {
    let end = Instant::now() + LONG;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let body = bodies.recv_timeout(left).unwrap_or_else(|_| panic!("{alert} did not arrive"));
        let message: Value = serde_json::from_str(&body).expect("Alertmanager posts JSON");
        for one in message["alerts"].as_array().expect("alerts") {
            if one["labels"]["alertname"] == alert && one["status"] == "firing" {
                return one.clone();
            }
        }
    }
}

#[test]
fn alerts_arrive_where_alertmanager_sends_them() {
    if !installed(&["prometheus", "alertmanager"]) {
        return;
    }
    let redis = Redis::start();
    let proxy = proxy(&redis);
    let (webhook, bodies) = receiver();
    let alertmanager = Alertmanager::start(&format!(
        "route:\n  receiver: test\n  group_by: [alertname]\n  group_wait: 0s\n  group_interval: 1s\n\
         receivers:\n  - name: test\n    webhook_configs:\n      - url: http://{webhook}/\n"
    ));
    // The rules as they are, but without waits of minutes.
    let rules = repository().join("grafana/prometheus");
    let hurried = proxy.directory().join("alerts.rules.yml");
    let text = std::fs::read_to_string(rules.join("alerts.rules.yml")).expect("the rules");
    assert!(text.contains("for: 1m\n"));
    let text = text.replace("for: 1m\n", "for: 1s\n");
    std::fs::write(&hurried, text).expect("the directory is the test's");
    let more = format!(
        "  external_labels:\n    runbooks_url: https://runbooks.example.org\n\
         rule_files: ['{}', '{}']\n\
         alerting:\n  alertmanagers:\n    - static_configs:\n        - targets: ['{}']\n",
        rules.join("recording.rules.yml").display(),
        hurried.display(),
        alertmanager.address(),
    );
    let prometheus = Prometheus::start(&scrape(&proxy, &more));

    let (alice, bob) = (proxy.client_from("127.52.0.1"), proxy.client_from("127.52.0.2"));
    alice.sends("SET lock:a alices NX PX 9000").gets("+OK");
    bob.sends("DEL lock:a").gets(":0");
    let alert = received(&bodies, "LockForeignReleaseAttempts");
    assert_eq!(alert["labels"]["namespace"], "locks");
    assert_eq!(alert["labels"]["severity"], "warning");
    let runbook = &alert["annotations"]["runbook_url"];
    assert_eq!(runbook, "https://runbooks.example.org/LockForeignReleaseAttempts.md");

    // All rules could be evaluated over the metrics of a real proxy.
    let rules: Value = serde_json::from_str(&prometheus.get("/api/v1/rules")).expect("JSON");
    let groups = rules["data"]["groups"].as_array().expect("groups");
    let rules: Vec<&Value> = groups.iter().flat_map(|group| group["rules"].as_array().into_iter().flatten()).collect();
    assert_eq!(rules.len(), 45);
    for rule in rules {
        assert!(rule["health"] != "err", "{rule}");
    }

    proxy.kill();
    let alert = received(&bodies, "LockwardenDown");
    assert_eq!(alert["labels"]["severity"], "critical");
    let firing = alertmanager.get("/api/v2/alerts");
    assert!(firing.contains("LockwardenDown"), "{firing}");
}

#[test]
fn promtool_finds_nothing_wrong_with_the_page_of_metrics() {
    if !installed(&["promtool"]) {
        return;
    }
    let redis = Redis::start();
    let proxy = proxy(&redis);
    let (alice, bob) = (proxy.client_from("127.53.0.1"), proxy.client_from("127.53.0.2"));
    live(&redis, &alice, &bob);
    let (status, page) = proxy.get("/metrics");
    assert_eq!(status, 200);
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is installed");
    let mut input = promtool.stdin.take().expect("it is piped");
    input.write_all(page.as_bytes()).expect("promtool reads to the end");
    drop(input);
    let said = promtool.wait_with_output().expect("promtool ends");
    let words = String::from_utf8_lossy(&said.stderr).into_owned() + &String::from_utf8_lossy(&said.stdout);
    assert!(said.status.success() && words.trim().is_empty(), "{words}");
}

#[test]
fn ten_thousand_locks_in_a_hundred_namespaces_stay_below_five_thousand_series() {
    let redis = Redis::start();
    let namespaces: String = (1..100)
        .map(|n| format!("[[namespace]]\nname = \"team-{n}\"\nkeys = [\"team-{n}:*\"]\nmode = \"enforce\"\n"))
        .collect();
    let proxy = Proxy::builder(&redis).more(&namespaces).start();
    let (alice, bob) = (proxy.client_from("127.54.0.1"), proxy.client_from("127.54.0.2"));
    for n in 0..100 {
        let prefix = if n == 0 { "lock".to_owned() } else { format!("team-{n}") };
        let acquires: Vec<String> =
            (0..100).map(|key| format!("SET {prefix}:{key} {prefix}-{key}-of-alice NX PX 60000")).collect();
        let lines: Vec<&str> = acquires.iter().map(String::as_str).collect();
        alice.pipelines(&lines, &vec!["+OK"; lines.len()]);
        bob.sends(format!("DEL {prefix}:1")).gets(":0");
    }
    proxy.counts("lockwarden_locks_held", 10_000.0);
    let (_, page) = proxy.get("/metrics");
    let series = page.lines().filter(|line| !line.starts_with('#')).count();
    assert!(series < 5_000, "{series} series");
    // 30 have a name, and nothing is lost by that.
    let metrics = proxy.metrics();
    assert_eq!(metrics.get("lockwarden_locks_held{namespace=\"__other__\"}"), 7_000.0);
    assert_eq!(metrics.get("lockwarden_lock_releases_total{outcome=\"not-owner\"}"), 100.0);
    assert!(metrics.get("lockwarden_label_overflow_total{label=\"namespace\"}") >= 7_000.0);
}
