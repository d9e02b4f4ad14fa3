//! `lockwarden discover`: an operator who knows nothing about the locks finds them, and gets the configuration for
//! them. The estate is `docs/examples/estate`: six processes, none of which sets a client name.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::{fs, thread};

use lockwarden_tests::{Finished, Proxy, Redis, lockwarden, run_to_end, wait_for, wait_for_value};
use serde_json::Value;

/// The processes; they end when the value is dropped.
struct Estate(Vec<Child>);

impl Estate {
    /// Starts it; `None` where there is no Python, which is a failure in CI only.
    fn start(address: &str) -> Option<Estate> {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/estate/estate.py");
        let mut all = Estate(Vec::new());
        for role in ["orders", "orders", "payments", "importer", "catalogue", "editor"] {
            let mut command = Command::new("python3");
            command.arg("-B").arg(&program).args([role, address]);
            match command.stdin(Stdio::null()).stdout(Stdio::null()).spawn() {
                Ok(child) => all.0.push(child),
                Err(error) => {
                    assert!(std::env::var_os("CI").is_none(), "python3: {error}");
                    eprintln!("SKIPPED: there is no python3 for the estate ({error})");
                    return None;
                }
            }
        }
        Some(all)
    }

    /// Whether each of them does its work: a program whose lock is not as it must be ends.
    fn works(&mut self) -> bool {
        let ended = |child: &mut Child| child.try_wait().expect("the child is ours").is_some();
        !self.0.iter_mut().any(ended)
    }
}

impl Drop for Estate {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub(crate) fn discover(proxy: &Proxy, form: &str) -> Finished {
    let admin = proxy.admin_address().to_string();
    run_to_end(&mut lockwarden(&["discover", "-o", form, "--admin", &admin]))
}

pub(crate) fn found(said: &Finished) -> Value {
    serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {}{}", said.stdout, said.stderr))
}

/// The kind that discovery gives a pattern.
fn kind<'a>(found: &'a Value, pattern: &str) -> Option<(&'a str, &'a str)> {
    let patterns = found["patterns"].as_array().expect("a list");
    let one = patterns.iter().find(|one| one["pattern"] == pattern)?;
    Some((one["kind"].as_str()?, one["confidence"].as_str()?))
}

/// The kinds that discovery has to find.
const KINDS: [(&str, &str); 5] = [
    ("order:*:lock", "lock"),
    ("mutex.payment.*", "lock"),
    ("import:running", "lock"),
    ("page:*", "cache"),
    ("hits:*", "counter"),
];

fn all_are_known(found: &Value) -> bool {
    KINDS.iter().all(|(pattern, expected)| {
        kind(found, pattern).is_some_and(|(kind, sure)| kind == *expected && sure != "a guess")
    })
}

#[test]
fn an_estate_that_nobody_knows_is_found_out_and_governed_without_harm() {
    let redis = Redis::start();
    let watching = Proxy::builder(&redis).start();
    let Some(mut estate) = Estate::start(&watching.address().to_string()) else {
        return;
    };
    wait_for("every family to be known", || {
        assert!(estate.works(), "{}", watching.log());
        let said = discover(&watching, "json");
        assert_eq!(said.stderr, "");
        let found = found(&said);
        // Locks that no namespace governs are a problem that a script can ask for.
        let unclaimed = found["unclaimed"].as_u64().expect("a number");
        assert_eq!(said.code, Some(i32::from(unclaimed > 0)));
        all_are_known(&found)
    });
    assert_eq!(watching.metric("lockwarden_unclaimed_lock_patterns"), 3.0);

    let admin = watching.admin_address().to_string();
    let audit = run_to_end(&mut lockwarden(&["audit", "--admin", &admin]));
    let words = "Used as locks, and in no namespace: 3 patterns of keys";
    assert!(audit.stdout.contains(words), "{}", audit.stdout);

    let table = discover(&watching, "text").stdout;
    for (pattern, kind) in KINDS {
        let line = table.lines().find(|line| line.starts_with(pattern));
        assert!(line.is_some_and(|line| line.contains(kind)), "{table}");
    }
    assert!(table.contains("3 patterns of locks are in no namespace"), "{table}");

    let proposed = discover(&watching, "toml").stdout;
    for expected in ["\"order:*:lock\"", "\"mutex.payment.*\"", "counter_locks = true"] {
        assert!(proposed.contains(expected), "{proposed}");
    }
    let keys: Vec<&str> = proposed.lines().filter(|line| line.starts_with("keys")).collect();
    for other in ["page:", "hits:"] {
        assert!(!keys.iter().any(|line| line.contains(other)), "{proposed}");
    }
    drop(estate);

    let directory = tempfile::tempdir().expect("a directory for the configuration");
    let file = directory.path().join("lockwarden.toml");
    let text = format!("backend = \"redis://{}\"\n{proposed}", redis.address());
    fs::write(&file, &text).expect("the directory is ours");
    let checked = run_to_end(lockwarden(&["check", "--config"]).arg(&file));
    assert_eq!((checked.code, checked.stderr.as_str()), (Some(0), ""), "{text}");

    // The key of a lock from an earlier run is not a lock of this run.
    redis.client().sends("FLUSHALL").gets("+OK");
    let enforcing = Proxy::builder(&redis).more(&proposed.replace("mode = \"monitor\"", "mode = \"enforce\"")).start();
    let mut estate = Estate::start(&enforcing.address().to_string()).expect("Python is there");
    let released = "lockwarden_lock_releases_total{outcome=\"released\"}";
    wait_for("each family to be governed", || {
        assert!(estate.works(), "{}", enforcing.log());
        enforcing.metrics().get(released) > 200.0
    });
    let denied = enforcing.metrics().get("lockwarden_decisions_total{decision=\"deny\"}");
    assert_eq!(denied, 0.0, "{}", enforcing.log());
    // Keys that a namespace has are discovered no more.
    let said = discover(&enforcing, "json");
    assert_eq!(found(&said)["unclaimed"], 0, "{}", said.stdout);
}

/// The programs do what they say in their own lines, in turns over several connections, and none makes a mistake.
/// The commands of two connections are sometimes reported in another order.
#[test]
fn an_estate_without_faults_is_watched_without_false_findings_and_its_holds_have_their_lengths() {
    let redis = Redis::start();
    let keys = "[\"order:*:lock\", \"mutex.payment.*\", \"import:running\"]";
    let proxy = Proxy::builder(&redis)
        .mode(lockwarden_tests::Mode::Monitor)
        .namespace("keys", keys)
        .namespace("counter_locks", "true")
        .start();
    let Some(mut estate) = Estate::start(&proxy.address().to_string()) else {
        return;
    };
    let patterns = wait_for_value("three hundred leases of orders", || {
        assert!(estate.works(), "{}", proxy.log());
        let (status, answer) = proxy.get("/api/v1/patterns");
        assert_eq!(status, 200, "{answer}");
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        let orders = answer["patterns"].as_array()?.iter().find(|one| one["pattern"] == "order:*:lock")?;
        (orders["holds"]["count"].as_u64() >= Some(300)).then(|| answer["patterns"].clone())
    });
    // A busy machine makes work longer; nothing makes it shorter.
    for (pattern, held_ms) in [("order:*:lock", 30), ("mutex.payment.*", 20), ("import:running", 20)] {
        let all = patterns.as_array().expect("a list");
        let one = all.iter().find(|one| one["pattern"] == pattern).expect("it is there");
        let p50 = one["holds"]["p50_ms"].as_u64().expect("a number");
        assert!((held_ms..held_ms + 60).contains(&p50), "{one}");
        assert_eq!(one["holds"]["ran_out"], 0, "{one}");
    }
    let (status, report) = proxy.get("/api/v1/report");
    assert_eq!(status, 200, "{report}");
    for false_finding in ["\"pooled\"", "\"no-ttl\"", "\"ran-out\"", "\"not-owner\""] {
        assert!(!report.contains(&format!("\"what\":{false_finding}")), "{false_finding}: {report}");
    }
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!(report["namespaces"][0]["mixed"], serde_json::json!([]), "they work alike");
}

#[test]
fn a_redis_without_any_proxy_is_watched_by_monitor() {
    let redis = Redis::start();
    let address = redis.address().to_string();
    let Some(mut estate) = Estate::start(&address) else {
        return;
    };
    let url = format!("redis://{address}");
    let said = run_to_end(&mut lockwarden(&["discover", "--from-monitor", "8", "-o", "json", "--backend-url", &url]));
    assert!(estate.works());
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    assert!(said.stderr.contains("MONITOR copies every command"), "{}", said.stderr);
    let found = found(&said);
    for (pattern, expected) in KINDS {
        let known = kind(&found, pattern);
        assert_eq!(known.map(|(kind, _)| kind), Some(expected), "{pattern}: {found:#}");
    }
}

#[test]
fn a_server_that_is_too_busy_or_forbids_it_is_not_watched() {
    let redis = Redis::start();
    let url = format!("redis://{}", redis.address());
    let watch = |url: &str, rate: &str| {
        let words = ["discover", "--from-monitor", "5", "--backend-url", url, "--max-rate", rate];
        run_to_end(&mut lockwarden(&words))
    };
    let busy = thread::scope(|scope| {
        let client = redis.client();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        scope.spawn(move || {
            while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                client.sends("SET a 1").gets("+OK");
            }
        });
        let said = watch(&url, "10");
        drop(stop);
        said
    });
    assert_eq!(busy.code, Some(1), "{}", busy.stderr);
    assert!(busy.stderr.contains("more than --max-rate 10"), "{}", busy.stderr);

    let admin = redis.client();
    // The client's commands still count for a second or two; on a fast machine they exceed the rate below, and the
    // command would end for that reason before it asks for MONITOR.
    wait_for("the server to be calm again", || {
        let info = admin.sends("INFO stats").text();
        let mut lines = info.lines();
        let rate = lines.find_map(|line| line.strip_prefix("instantaneous_ops_per_sec:"));
        let rate = rate.expect("the server tells it").trim().parse::<u64>();
        rate.expect("a number") < 10_000
    });
    admin.sends("ACL SETUSER poor on >secret ~* +@all -monitor").gets("+OK");
    let said = watch(&url.replace("redis://", "redis://poor:secret@"), "20000");
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    let last = said.stderr.lines().last().unwrap_or_default();
    assert!(last.contains("the server refuses MONITOR: NOPERM"), "{}", said.stderr);
}

#[test]
fn keys_that_are_named_like_locks_are_found_by_a_walk() {
    let redis = Redis::start();
    let client = redis.client();
    for number in 0..30 {
        client.sends(format!("SET order:{number}:lock 1")).gets("+OK");
        client.sends(format!("SET page:{number} x EX 100")).gets("+OK");
    }
    client.sends("SET lock:governed 1").gets("+OK");
    let url = format!("redis://{}", redis.address());
    let walk = |form: &str| {
        let words = ["discover", "--from-keys", "-o", form, "--backend-url", &url];
        run_to_end(&mut lockwarden(&words))
    };
    let said = walk("json");
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    let found = found(&said);
    assert_eq!((&found["looked_at"], &found["all"]), (&61.into(), &true.into()));
    let all = found["patterns"].as_array().expect("a list");
    let of = |pattern: &str| all.iter().find(|one| one["pattern"] == pattern).expect(pattern);
    let orders = of("order:*:lock");
    assert_eq!((&orders["keys"], &orders["named_like_locks"]), (&30.into(), &true.into()));
    assert_eq!(orders["without_ttl"], orders["looked"]);
    assert_eq!(of("page:*")["named_like_locks"], false);
    assert_eq!(of("lock:governed")["claimed"], true);
    let table = walk("text").stdout;
    assert!(table.contains("in a namespace"), "{table}");
    let toml = walk("toml");
    assert_eq!(toml.code, Some(2), "{}", toml.stderr);
}

/// A server behind a proxy also has the proxy's records. These are no keys of an application.
#[test]
fn a_walk_leaves_out_the_proxys_own_keys() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).namespace("keys", "[\"order:*:lock\"]").start();
    let client = proxy.client();
    for number in 10..20 {
        client.sends(format!("SET order:{number}:lock 1 NX PX 9000")).gets("+OK");
    }
    let straight = redis.client();
    straight.sends("SET lw:{shop}:not-ours 1").gets("+OK");
    assert!(redis.record("order:10:lock").is_some());
    let url = format!("redis://{}", redis.address());
    let words = ["discover", "--from-keys", "-o", "json", "--backend-url", &url];
    let found = found(&run_to_end(&mut lockwarden(&words)));
    let all = found["patterns"].as_array().expect("a list");
    let mut globs: Vec<&str> = all.iter().filter_map(|one| one["pattern"].as_str()).collect();
    globs.sort_unstable();
    assert_eq!(globs, ["lw:{shop}:not-ours", "order:*:lock"]);
    assert_eq!(found["looked_at"], 11);
}

/// Clients choose names; nothing of them may reach a terminal as it is, end a string of TOML or a comment.
#[test]
fn hostile_names_stay_text() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).start();
    let client = proxy.client();
    let key = "mutex\u{1b}[31m\"]\nmode='enforce'#<script>";
    for _ in 0..10 {
        client.sends_arguments(&["SETNX", key, "1"]).gets(":1");
        client.sends_arguments(&["DEL", key]).gets(":1");
    }
    let toml = wait_for_value("it to be known", || {
        let toml = discover(&proxy, "toml").stdout;
        toml.contains("[[namespace]]").then_some(toml)
    });
    assert!(!toml.contains('\u{1b}'), "{toml}");
    assert!(!toml.lines().any(|line| line.starts_with("mode='")), "{toml}");
    let file = proxy.directory().join("proposed.toml");
    fs::write(&file, &toml).expect("the directory is ours");
    let checked = run_to_end(lockwarden(&["check", "--config"]).arg(&file));
    assert_eq!(checked.code, Some(0), "{}{toml}", checked.stdout);
    assert!(checked.stdout.contains("in monitor mode"), "{}", checked.stdout);
    let text = discover(&proxy, "text").stdout;
    assert!(!text.contains('\u{1b}'), "{text}");
}

/// Commands that are observed are forwarded as they came, whatever they are.
#[test]
fn looking_changes_no_reply() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).start();
    let (through, straight) = (proxy.client(), redis.client());
    let value = "v".repeat(100_000);
    for (number, line) in [
        "SETNX {} 1",
        "SETNX {} 1",
        "GET {}",
        "EXPIRE {} 100",
        "TTL {}",
        "SET {} 2 XX GET",
        "GETSET {} 3",
        "GETEX {} PERSIST",
        "GETDEL {}",
        "INCR {}",
        "INCR {}",
        "EXPIRE {} x",
        "SET {} a NX PX 0",
        "SET {} a NX BAD",
        "MSETNX {} 1 {}b 2",
        "DEL {} {}b {}c",
        "SET {} 1 NX GET",
        "PERSIST {}",
        "UNLINK {}",
        "EVAL return{1,{2}} 1 {}",
        "EVAL return(redis.call('set',KEYS[1],ARGV[1],'NX')) 1 {} t",
        "EVAL return(redis.error_reply('no')) 1 {}",
        "MULTI",
        "SETNX {} 1",
        "DEL {}",
        "EXEC",
    ]
    .into_iter()
    .enumerate()
    {
        let reply = |client: &lockwarden_tests::Client, key: &str| {
            let line = line.replace("{}", key);
            client.sends(&line).reply().to_string().replace(key, "KEY")
        };
        assert_eq!(reply(&through, "a:lock"), reply(&straight, "b:lock"), "{number}: {line}");
    }
    through.sends_arguments(&["SETNX", "long:lock", &value]).gets(":1");
    assert_eq!(through.sends("STRLEN long:lock").reply().to_string(), ":100000");
}
