//! All errors of a bad configuration are reported, with line and field, and nothing is half-started.

use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::process::Stdio;

use lockwarden_tests::{Finished, Proxy, ProxyBuilder, Redis, lockwarden, run_to_end, wait_for};

/// Runs `lockwarden COMMAND --config FILE` on this text, with files beside it.
#[track_caller]
fn told(command: &str, text: &str, files: &[(&str, &[u8])]) -> Finished {
    let directory = tempfile::tempdir().expect("a directory for the configuration");
    for (name, bytes) in files {
        fs::write(directory.path().join(name), bytes).expect("the directory is ours");
    }
    let config = directory.path().join("bad.toml");
    fs::write(&config, text).expect("the directory is ours");
    run_to_end(lockwarden(&[command, "--config"]).arg(&config).current_dir(&directory))
}

/// The same text is refused by `check` and by `run`, with exit code 2 and these words.
#[track_caller]
fn refused(text: &str, files: &[(&str, &[u8])], words: &[&str]) {
    for command in ["check", "run"] {
        let end = told(command, text, files);
        assert_eq!(end.code, Some(2), "{command}: {end:?}\n{text}");
        let said = format!("{}{}", end.stdout, end.stderr);
        for word in words {
            assert!(said.contains(word), "{command} does not say {word:?}:\n{said}");
        }
        assert!(!said.contains("panicked") && !said.contains("\"serving\""), "{said}");
    }
}

fn usual() -> ProxyBuilder {
    ProxyBuilder::for_backend("redis://127.0.0.1:1")
}

#[test]
fn a_good_configuration_passes_the_check() {
    let end = told("check", &usual().text(), &[]);
    assert_eq!(end.code, Some(0), "{end:?}");
}

#[test]
fn a_reader_who_has_seen_enough_ends_no_check_and_a_full_disk_is_told() {
    let directory = tempfile::tempdir().expect("a directory for the configuration");
    let config = directory.path().join("good.toml");
    fs::write(&config, usual().text()).expect("the directory is ours");
    let (reader, closed) = io::pipe().expect("a pipe");
    drop(reader);
    let full = File::options().write(true).open("/dev/full").expect("Linux has it");
    for (stdout, code, said) in [
        (Stdio::from(closed), 0, ""),
        (Stdio::from(full), 2, "lockwarden: cannot write the answer: No space left on device (os error 28)\n"),
    ] {
        let end = lockwarden(&["check", "--config"]).arg(&config).stdout(stdout).output().expect("it runs");
        assert_eq!((end.status.code(), &*String::from_utf8_lossy(&end.stderr)), (Some(code), said));
    }
}

#[test]
fn every_error_is_told_at_once_with_line_field_and_suggestion() {
    let text = "\
lisen = \"127.0.0.1:0\"
backend = \"http://127.0.0.1:6379\"
admin = \"nowhere\"

[[namespace]]
name = \"orders\"
keys = [\"lock:*\"]
mode = \"enforced\"

[[namespace]]
name = \"orders\"
keys = []
on_fault = \"shrug\"
adopt = \"cap\"
";
    refused(
        text,
        &[],
        &[
            "bad.toml:1:",
            "lisen",
            "listen",
            "bad.toml:2:",
            "backend",
            "bad.toml:3:",
            "admin",
            "bad.toml:8:",
            "enforce",
            "bad.toml:12:",
            "keys",
            "bad.toml:13:",
            "on_fault",
        ],
    );
}

#[test]
fn a_file_that_is_no_toml_or_not_there_is_told() {
    refused("listen = \n", &[], &["bad.toml:1:"]);
    let end = run_to_end(&mut lockwarden(&["check", "--config", "/nowhere/at/all.toml"]));
    assert_eq!(end.code, Some(2), "{end:?}");
    assert!(format!("{}{}", end.stdout, end.stderr).contains("/nowhere/at/all.toml"), "{end:?}");
}

#[test]
fn settings_that_a_policy_refuses_are_told_with_the_policys_words() {
    refused(
        &usual().setting("ttl-ceiling", "ceilling", "\"1s\"").text(),
        &[],
        &["bad.toml:", "ttl-ceiling", "ceilling"],
    );
    refused(&usual().default_ttl("soon").text(), &[], &["ttl-ceiling", "default"]);
    refused(&usual().default_ttl("1m").ceiling("10s").text(), &[], &["ttl-ceiling"]);
    refused(&usual().setting("owner-token", "proofs", "[]").text(), &[], &["owner-token", "proofs"]);
    refused(&usual().setting("owner-token", "proofs", "[\"trust\"]").text(), &[], &["owner-token", "trust"]);
    refused(&usual().setting("fencing", "counter", "\"up\"").text(), &[], &["fencing", "counter"]);
    refused(&usual().setting("no-such-policy", "a", "1").text(), &[], &["no-such-policy"]);
    refused(&usual().namespace("policies", "[\"owner-tokn\"]").text(), &[], &["owner-tokn", "owner-token"]);
}

#[test]
fn settings_that_a_policy_rejects_are_told_each_at_its_own_line() {
    let text = usual()
        .setting("owner-token", "proofs", "[\"trust\"]")
        .setting("owner-token", "take_over", "\"soon\"")
        .setting("owner-token", "doubt", "\"some\"")
        .setting("ttl-ceiling", "keep_alive", "\"long\"")
        .setting("ttl-ceiling", "on_excess", "\"shout\"")
        .setting("ttl-ceiling", "max_hold", "\"a while\"")
        .text();
    let end = told("check", &text, &[]);
    assert_eq!(end.code, Some(2), "{end:?}");
    for (name, word) in [
        ("proofs", "trust"),
        ("take_over", "soon"),
        ("doubt", "some"),
        ("keep_alive", "long"),
        ("on_excess", "shout"),
        ("max_hold", "a while"),
    ] {
        let is_it = |line: &str| line.contains(&format!("{name} =")) && line.contains(word);
        let line = text.lines().position(is_it).expect("it stands there") + 1;
        let place = format!(":{line}:");
        let said = format!("{}{}", end.stdout, end.stderr);
        let finding = said.lines().find(|said| said.contains(&place));
        let finding = finding.unwrap_or_else(|| panic!("nothing is said of {name}: {said}"));
        assert!(finding.contains(name) && finding.contains(word), "{finding}");
    }
}

fn with_module(file: &str) -> String {
    usual()
        .namespace("policies", "[\"owner-token\", \"fencing\", \"ttl-ceiling\", \"mine\"]")
        .more(&format!("[[policy]]\nname = \"mine\"\nmodule = \"{file}\"\n"))
        .text()
}

/// A component whose one import, `danger`, the proxy does not offer.
const FOREIGN: &[u8] = b"\0asm\x0d\0\x01\0\x07\x05\x01\x40\0\x01\0\x0a\x0b\x01\0\x06danger\x01\0";

#[test]
fn a_policy_file_that_is_missing_or_no_component_or_foreign_is_told() {
    refused(&with_module("mine.wasm"), &[], &["mine.wasm"]);
    refused(&with_module("mine.wasm"), &[("mine.wasm", b"not wasm at all")], &["mine.wasm"]);
    refused(
        &with_module("mine.wasm"),
        &[("mine.wasm", b"\0asm\x01\0\0\0")],
        &["mine.wasm", "does not fit the world lockwarden:policy/policy"],
    );
    refused(&with_module("mine.wasm"), &[("mine.wasm", b"\0asm\x0d\0\x01\0")], &["mine.wasm"]);
    refused(&with_module("mine.wasm"), &[("mine.wasm", FOREIGN)], &["mine.wasm", "danger"]);
}

#[test]
fn an_occupied_port_is_one_clear_line() {
    let redis = Redis::start();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("a bound listener has an address");
    for key in ["listen", "admin"] {
        let text = Proxy::builder(&redis).top(key, &format!("\"{address}\"")).text();
        let end = told("run", &text, &[]);
        assert_eq!(end.code, Some(2), "{end:?}");
        let lines: Vec<&str> = end.stderr.lines().filter(|line| line.contains(&address.port().to_string())).collect();
        assert_eq!(lines.len(), 1, "{}", end.stderr);
        assert!(!end.stderr.contains("panicked"));
    }
}

#[test]
fn usage_errors_end_with_two() {
    for arguments in [["run", "--nonsense"].as_slice(), &["nonsense"], &["run", "--mode", "locks=loud"]] {
        let end = run_to_end(&mut lockwarden(arguments));
        assert_eq!(end.code, Some(2), "{arguments:?}: {end:?}");
    }
}

#[test]
fn checking_the_backend_tells_an_unreachable_one_apart() {
    let redis = Redis::start();
    let directory = tempfile::tempdir().expect("a directory for the configuration");
    let config = directory.path().join("good.toml");
    for (text, code) in [(Proxy::builder(&redis).text(), 0), (usual().text(), 3)] {
        fs::write(&config, text).expect("the directory is ours");
        let end = run_to_end(lockwarden(&["check", "--backend", "--config"]).arg(&config));
        assert_eq!(end.code, Some(code), "{end:?}");
    }
}

#[test]
fn an_open_redis_is_not_opened_to_a_network() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).top("listen", "\"0.0.0.0:0\"").without_waiting().start();
    proxy.logs(&["allow_open"]);
    for _ in 0..3 {
        proxy.client().sends("SETNX lock:job a1").gets_close();
    }
    assert_eq!(proxy.ready(), Some(503));
    assert_eq!(proxy.logged(&["allow_open"]), 1);
    assert!(redis.is_free("lock:job"));
}

#[test]
fn an_open_redis_is_opened_to_a_network_by_one_who_says_so_or_has_a_password() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).top("listen", "\"0.0.0.0:0\"").top("allow_open", "true").start();
    proxy.client().sends("SETNX lock:job a1").gets(":1");

    let guarded = Redis::with_arguments(&["--requirepass", "secret"]);
    let proxy = ProxyBuilder::for_backend(&format!("redis://:secret@{}", guarded.address()))
        .top("listen", "\"0.0.0.0:0\"")
        .start();
    proxy.client().sends("PING").gets_error("NOAUTH");
}

#[test]
fn a_reload_with_a_bad_file_changes_nothing_and_says_why() {
    let redis = Redis::start();
    let mut proxy = Proxy::enforcing(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("SET lock:job a1 NX PX 9000").gets("+OK");
    proxy.reload(&Proxy::builder(&redis).namespace("mode", "\"loud\"").text());
    wait_for("the reload to be told as failed", || proxy.metric("lockwarden_config_last_reload_successful") == 0.0);
    proxy.logs(&["loud"]);
    assert!(proxy.runs());
    bob.sends("DEL lock:job").gets(":0");
    bob.sends("APPEND lock:job x").gets_error("LOCKDENIED opaque-write");

    // A good one after it counts again, for connections that are there already.
    proxy.reload(&Proxy::builder(&redis).namespace("on_violation", "\"error\"").text());
    wait_for("the reload to be told as successful", || proxy.metric("lockwarden_config_last_reload_successful") == 1.0);
    bob.sends("DEL lock:job").gets_error("LOCKDENIED not-owner");
}

#[test]
fn a_reload_brings_new_namespaces_and_settings() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let alice = proxy.client();
    alice.sends("SETNX mutex:job a1").gets(":1");
    assert_eq!(redis.pttl("mutex:job"), -1);
    proxy.reload(
        &Proxy::builder(&redis)
            .default_ttl("900ms")
            .more("[[namespace]]\nname = \"more\"\nkeys = [\"mutex:*\"]\nmode = \"enforce\"")
            .text(),
    );
    wait_for("the new default TTL", || {
        alice.sends("SETNX lock:job a1").gets(":1");
        let left = redis.pttl("lock:job");
        alice.sends("DEL lock:job").gets(":1");
        left > 600
    });
    alice.sends("SETNX mutex:other a1").gets(":1");
    assert!(redis.pttl("mutex:other") > 0);
}

#[test]
fn the_proxy_says_at_the_start_what_is_in_force() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis)
        .mode(lockwarden_tests::Mode::Monitor)
        .namespace("enforce_for", "{ clients = [\"billing*\"] }")
        .more("[[namespace]]\nname = \"jobs\"\nkeys = [\"job:*\", \"*_running\"]\nmode = \"enforce\"\npolicies = [\"fencing\"]")
        .more("[[namespace]]\nname = \"rest\"\nkeys = [\"*\"]")
        .start();
    let in_force = "\"message\":\"in force\",\"namespace\"";
    for (namespace, keys, rest) in [
        ("locks", "lock:*", "\"mode\":\"monitor\",\"enforced_for\":\"billing*\""),
        ("jobs", "job:* *_running", "\"mode\":\"enforce\",\"policies\":\"fencing\""),
        ("rest", "*", "\"mode\":\"monitor\""),
    ] {
        let begins = format!("{in_force}:\"{namespace}\",\"keys\":\"{keys}\",");
        assert_eq!(proxy.logged(&[&begins, rest]), 1, "{}", proxy.log());
    }
    assert_eq!(proxy.logged(&["warning: namespace \"rest\": keys: \"*\" makes every key a lock"]), 1);
}
