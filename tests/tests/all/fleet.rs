//! Several proxies in front of one server: whether they have the same rules, and where they differ.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::Command;
use std::thread;

use lockwarden_tests::{Finished, Mode, Proxy, Redis, lockwarden, run_to_end};
use serde_json::Value;

const STOCK: &str = "[[namespace]]\nname = \"stock\"\nkeys = [\"stock:*\"]\n";

fn hash(proxy: &Proxy) -> String {
    let hash = proxy.api("version")["config_hash"].clone();
    hash.as_str().expect("a proxy tells its hash").to_owned()
}

/// The hashes that the page of metrics names.
fn hashes_on_the_page(proxy: &Proxy) -> Vec<String> {
    let (_, page) = proxy.get("/metrics");
    let lines = page.lines();
    lines
        .filter_map(|line| {
            let rest = line.strip_prefix("lockwarden_config_info{hash=\"")?;
            assert!(rest.ends_with("\"} 1"), "{line}");
            rest.split('"').next().map(str::to_owned)
        })
        .collect()
}

fn compared(proxies: &[&Proxy], words: &[&str]) -> Command {
    let mut command = lockwarden(&["check"]);
    for proxy in proxies {
        command.arg("--fleet").arg(proxy.admin_address().to_string());
    }
    command.args(words);
    command
}

#[track_caller]
fn ends_with(mut command: Command, code: i32) -> Finished {
    let finished = run_to_end(&mut command);
    assert_eq!(finished.code, Some(code), "{command:?}: {finished:?}");
    finished
}

#[test]
fn proxies_with_the_same_rules_have_one_hash_however_their_files_are_written() {
    let redis = Redis::start();
    let one = Proxy::builder(&redis).more(STOCK).top("drain", "\"1s\"").start();
    let two = Proxy::builder(&redis)
        .more(&STOCK.replace("[\"stock:*\"]", "[\n  \"stock:*\", # all of it\n]"))
        .environment("LOCKWARDEN_MODE", "stock=monitor")
        .start();
    assert_eq!(hash(&one), hash(&two));
    for proxy in [&one, &two] {
        assert_eq!(hashes_on_the_page(proxy), [hash(proxy)]);
        proxy.logs(&["configuration in force", &hash(proxy)]);
    }
    let said = ends_with(compared(&[&one, &two], &[]), 0).stdout;
    assert!(said.ends_with("\n2 proxies, the same rules and version everywhere\n"), "{said}");
    for proxy in [&one, &two] {
        let row = said
            .lines()
            .find(|line| line.starts_with(&proxy.admin_address().to_string()))
            .unwrap_or_else(|| panic!("{said}"));
        assert!(row.contains(&hash(proxy)) && row.contains(", up"), "{row}");
    }
}

#[test]
fn a_reload_and_an_order_change_the_hash_and_the_old_one_is_gone() {
    let redis = Redis::start();
    let builder = Proxy::builder(&redis).mode(Mode::Monitor);
    let text = builder.text();
    let proxy = builder.start();
    let first = hash(&proxy);
    let (status, body) = proxy.reloads((text.clone() + STOCK).as_bytes(), "/reload");
    assert_eq!(status, 200, "{body}");
    let second = hash(&proxy);
    assert_ne!(first, second);
    assert_eq!(hashes_on_the_page(&proxy).join(" "), second);
    proxy.logs(&["configuration loaded", &second]);
    assert_eq!(proxy.switch("stock", Mode::Enforce), 200);
    let third = hash(&proxy);
    assert!(third != first && third != second);
    assert_eq!(hashes_on_the_page(&proxy), [third]);
    assert_eq!(proxy.switch("stock", Mode::Monitor), 200);
    assert_eq!(hash(&proxy), second);
    // A file with an error changes nothing.
    let (status, _) = proxy.reloads(b"nonsense = 1", "/reload");
    assert_eq!((status, hash(&proxy)), (422, second));
    let (status, body) = proxy.reloads(text.as_bytes(), "/reload?allow=weaker");
    assert_eq!((status, hash(&proxy)), (200, first), "{body}");
}

/// The admin address of a proxy of an older version, which knows what it is and has no page for its rules.
fn older_proxy(version: Value) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it has one").to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let lines = BufReader::new(stream.try_clone().expect("a second handle")).lines();
            let head: Vec<String> =
                lines.map(|line| line.expect("a line")).take_while(|line| !line.is_empty()).collect();
            let (status, body) = match head[0].contains("/version") {
                true => ("200 OK", version.to_string()),
                false => ("404 Not Found", r#"{"error":"no such page"}"#.to_owned()),
            };
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
            );
            stream.write_all(answer.as_bytes()).expect("it reads");
        }
    });
    address
}

#[test]
fn a_proxy_of_an_older_version_is_named_with_its_version() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let mut version = proxy.api("version");
    version["version"] = "0.0.1".into();
    let older = older_proxy(version);
    let mut command = compared(&[&proxy], &["--fleet", &older]);
    command.stdin(std::process::Stdio::null());
    let said = ends_with(command, 1);
    assert!(said.stderr.contains(&format!("lockwarden: {older}: it is lockwarden 0.0.1")), "{said:?}");
    assert!(said.stderr.contains("cannot read its rules") && !said.stderr.contains("no such page"), "{said:?}");
    assert!(said.stdout.contains(&proxy.admin_address().to_string()), "{said:?}");
}

#[test]
fn what_differs_between_proxies_is_told_and_ends_with_1() {
    let redis = Redis::start();
    let one = Proxy::builder(&redis).ceiling("10s").start();
    let two = Proxy::builder(&redis).ceiling("20s").more(STOCK).start();
    assert_ne!(hash(&one), hash(&two));
    let said = ends_with(compared(&[&one, &two], &[]), 1).stdout;
    let [first, second] = [&one, &two].map(|proxy| proxy.admin_address().to_string());
    for expected in [
        "\n2 differences:\n".to_owned(),
        format!("namespace stock\n  (not there) at {first}\n  (there) at {second}\n"),
        format!("settings.ttl-ceiling.ceiling\n  10000ms at {first}\n  20000ms at {second}\n"),
    ] {
        assert!(said.contains(&expected), "{expected}{said}");
    }
    let json = ends_with(compared(&[&one, &two], &["-o", "json"]), 1).stdout;
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["merged"]["same"], false);
    assert_eq!(json["merged"]["differences"][0]["what"], "namespace stock");
    assert_eq!(json["proxies"][1]["answer"]["meaning"]["hash"], hash(&two));
    // An order on one of them is a difference, too.
    let three = Proxy::builder(&redis).ceiling("10s").start();
    ends_with(compared(&[&one, &three], &[]), 0);
    let name = one.api("config")[0]["name"].clone();
    let name = name.as_str().expect("a name");
    let mode = one.api("config")[0]["mode"].clone();
    let other = match mode.as_str() {
        Some("enforce") => Mode::Monitor,
        _ => Mode::Enforce,
    };
    assert_eq!(one.switch(name, other), 200);
    let said = ends_with(compared(&[&one, &three], &[]), 1).stdout;
    assert!(said.contains(&format!("namespace {name}: mode\n")), "{said}");
}

#[test]
fn a_configuration_is_compared_with_the_fleet_before_it_is_rolled_out() {
    let redis = Redis::start();
    let builder = Proxy::builder(&redis).ceiling("10s");
    let text = builder.text();
    let proxy = builder.start();
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = file.path().to_str().expect("text");
    std::fs::write(path, &text).expect("it is ours");
    let same = ends_with(compared(&[&proxy], &["-c", path]), 0).stdout;
    assert!(same.contains("this configuration"), "{same}");
    let checked = ends_with(lockwarden(&["check", "-c", path]), 0).stdout;
    let line = format!("config hash: {}\n", hash(&proxy));
    assert!(checked.contains(&line), "{checked}");
    let version = ends_with(lockwarden(&["version", "-c", path]), 0).stdout;
    assert!(version.contains(&format!("config hash {}\n", hash(&proxy))), "{version}");
    let address = proxy.admin_address().to_string();
    let running = ends_with(lockwarden(&["check", "--fleet", &address, "-o", "json"]), 0).stdout;
    let running: Value = serde_json::from_str(&running).expect("JSON");
    let running = &running["proxies"][0]["answer"]["version"];
    assert_eq!(running["config_hash"], hash(&proxy), "{running}");
    assert!(running["in_force"].is_array() && running["revision"].is_string(), "{running}");
    std::fs::write(path, text.replace("\"10s\"", "\"30s\"")).expect("it is ours");
    let other = ends_with(compared(&[&proxy], &["-c", path]), 1).stdout;
    assert!(other.contains("30000ms at this configuration\n"), "{other}");
    // An error in the file is reported before any proxy is asked.
    std::fs::write(path, "nonsense = 1").expect("it is ours");
    let wrong = ends_with(compared(&[&proxy], &["-c", path]), 2);
    assert!(wrong.stdout.contains("nonsense"), "{wrong:?}");
}

#[test]
fn a_proxy_that_does_not_answer_is_named_and_hidden_values_stay_hidden() {
    let redis = Redis::start();
    let with = |name: &str| {
        let names = format!("[\"{name}\"]");
        Proxy::builder(&redis).top("admin_identities", &names).start()
    };
    let (one, two) = (with("geheim-1"), with("geheim-2"));
    let silent = ends_with(compared(&[&one], &["--fleet", "127.0.0.1:1"]), 1);
    assert!(silent.stderr.contains("127.0.0.1:1"), "{silent:?}");
    assert!(silent.stdout.contains(&hash(&one)), "{silent:?}");
    let said = ends_with(compared(&[&one, &two], &[]), 1).stdout;
    assert!(said.contains("admin_identities\n  (hidden, sha256 "), "{said}");
    let (_, meaning) = one.get("/api/v1/meaning");
    assert!(!(said + &meaning).contains("geheim"), "{meaning}");
    ends_with(compared(&[], &["--fleet", "127.0.0.1:1"]), 3);
    ends_with(compared(&[&one], &["--backend"]), 2);
}
