//! `lockwarden upgrade-check`: what this version makes of a configuration that was written for an older one.

use std::fs;
use std::path::Path;

use lockwarden_tests::{Finished, lockwarden, run_to_end};
use serde_json::Value;

/// As somebody had it who built the proxy early: it says little.
const OLD: &str = "\
listen = \"127.0.0.1:6380\"
sweep = \"off\"

[[namespace]]
name = \"orders\"
keys = [\"lock:order:*\"]
mode = \"enforce\"

[[namespace]]
name = \"stock\"
keys = [\"lock:stock:*\"]
opaque_scripts = \"deny\"
policies = [\"ttl-ceiling\"]
";

fn checked_in(directory: &Path, text: &str, arguments: &[&str]) -> Finished {
    let file = directory.join("old.toml");
    fs::write(&file, text).expect("the directory is ours");
    let mut command = lockwarden(&["upgrade-check", "old.toml"]);
    run_to_end(command.args(arguments).current_dir(directory))
}

fn checked(text: &str, arguments: &[&str]) -> Finished {
    let directory = tempfile::tempdir().expect("a directory");
    checked_in(directory.path(), text, arguments)
}

#[test]
fn a_default_that_changed_is_told_with_what_it_means_and_how_to_keep_it() {
    let end = checked(OLD, &[]);
    assert_eq!(end.code, Some(1), "{end:?}");
    for words in [
        "weaker    opaque_scripts of namespace orders\n",
        "was \"deny\", is \"wrap\" since 0.1.0 (2026-11-21)",
        "to keep what was: opaque_scripts = \"deny\"",
        "stricter  computed_names\n",
        "different settings.ttl-ceiling.keep_alive_by of namespaces orders, stock\n",
        "0 errors, ",
    ] {
        assert!(end.stdout.contains(words), "{words:?}: {}", end.stdout);
    }
    // The file says it.
    assert!(!end.stdout.contains("sweep"), "{}", end.stdout);
    let (_, table) = end.stdout.split_once("NAMESPACE").expect("a table");
    let weaker = |name: &str| {
        let line = table.lines().find(|line| line.starts_with(name));
        line.is_some_and(|line| line.contains("opaque_scripts"))
    };
    assert!(weaker("orders") && !weaker("stock"), "{table}");
}

#[test]
fn the_same_is_told_to_programs() {
    let end = checked(OLD, &["-o", "json"]);
    assert_eq!(end.code, Some(1), "{end:?}");
    let told: Value = serde_json::from_str(&end.stdout).expect("JSON");
    assert_eq!(told["starts"], true, "{told}");
    assert_eq!(told["errors"], Value::Array(Vec::new()), "{told}");
    let changes = told["changes"].as_array().expect("a list");
    let scripts = changes.iter().find(|one| one["key"] == "opaque_scripts").expect("it is there");
    assert_eq!(scripts["kind"], "default");
    assert_eq!(scripts["table"], "namespace");
    assert_eq!(scripts["names"], serde_json::json!(["orders"]));
    assert_eq!(scripts["effect"], "weaker");
    assert_eq!(scripts["keep"], "opaque_scripts = \"deny\"");
    let namespaces = told["namespaces"].as_array().expect("a list");
    assert_eq!(namespaces[0]["mode"], "enforce", "{told}");
    assert_eq!(namespaces[1]["mode"], "monitor", "{told}");
    assert_eq!(namespaces[1]["weaker"], serde_json::json!([]), "{told}");
}

/// The lines that keep what was are ones that this version understands, and nothing is different then.
#[test]
fn the_advice_is_right() {
    let text = "[[namespace]]\nname = \"orders\"\nkeys = [\"lock:*\"]\nmode = \"enforce\"\n";
    let before: Value = serde_json::from_str(&checked(text, &["-o", "json"]).stdout).expect("JSON");
    let (mut top, mut namespace) = (String::new(), String::new());
    for change in before["changes"].as_array().expect("a list") {
        let own = match change["key"].as_str() {
            // Nothing says "no limit": whoever upgrades says how many.
            Some("max_clients") => "max_clients = 5000",
            Some("max_memory") => "max_memory = \"1GiB\"",
            Some("trusted_functions") => "trusted_functions = [\"my_lock\"]",
            _ => change["keep"].as_str().expect("a line"),
        };
        match change["table"].is_null() {
            true => top.push_str(&format!("{own}\n")),
            false => namespace.push_str(&format!("{own}\n")),
        }
    }
    let kept = format!("{top}{text}{namespace}");
    let end = checked(&kept, &[]);
    assert_eq!(end.code, Some(0), "{end:?}\n{kept}");
    assert!(end.stdout.contains("nothing is different"), "{end:?}");
    assert!(end.stdout.starts_with("old.toml: "), "{end:?}");
}

#[test]
fn what_was_there_already_is_not_told_again() {
    let version = env!("CARGO_PKG_VERSION");
    let end = checked(OLD, &["--from", version]);
    assert_eq!(end.code, Some(0), "{end:?}");
    let end = checked(OLD, &["--from", "2026-11-22"]);
    assert_eq!(end.code, Some(1), "{end:?}");
    assert!(end.stdout.contains("computed_names"), "{end:?}");
    assert!(!end.stdout.contains("opaque_scripts"), "{end:?}");
    for (from, words) in [("yesterday", "nor a day"), ("99.0.0", "ask a newer one")] {
        let end = checked(OLD, &["--from", from]);
        assert_eq!(end.code, Some(2), "{end:?}");
        assert!(end.stderr.contains(words), "{end:?}");
    }
}

#[test]
fn a_file_that_this_version_refuses_is_told_with_its_places() {
    let text = "colour = \"red\"\n[[namespace]]\nname = \"a\"\nkeys = [\"lock:*\"]\ncounter_lock = true\n\
                [namespace.settings.ttl-ceiling]\nceilling = \"1h\"\n";
    let end = checked(text, &["--from", env!("CARGO_PKG_VERSION")]);
    assert_eq!(end.code, Some(1), "{end:?}");
    for words in [
        "error     old.toml:1:1\n",
        "unknown key \"colour\"",
        "old.toml:5:1",
        "did you mean \"counter_locks\"?",
        "2 errors, 0 changes",
    ] {
        assert!(end.stdout.contains(words), "{words:?}: {}", end.stdout);
    }
    // A policy's own opinion is asked once the rest is right.
    let mended = text.replace("colour = \"red\"\n", "").replace("counter_lock ", "counter_locks ");
    let end = checked(&mended, &["--from", env!("CARGO_PKG_VERSION")]);
    assert_eq!(end.code, Some(1), "{end:?}");
    assert!(end.stdout.contains("ceilling"), "{end:?}");
}

#[test]
fn what_cannot_be_read_ends_with_two_in_one_line_each() {
    for text in ["[[namespace]\n", "a = \u{1b}[2J\n", "a = \"\u{0}\"\n"] {
        let end = checked(text, &[]);
        assert_eq!(end.code, Some(2), "{end:?}");
        assert!(end.stderr.contains("old.toml"), "{end:?}");
        assert!(!end.stderr.contains('\u{1b}'), "{end:?}");
        assert!(end.stdout.is_empty(), "{end:?}");
    }
    let end = run_to_end(&mut lockwarden(&["upgrade-check", "/nowhere/old.toml"]));
    assert_eq!(end.code, Some(2), "{end:?}");
    assert!(end.stderr.contains("cannot read the file"), "{end:?}");
}

/// Names and keys of a file are somebody's text; so is the environment of whoever asks.
#[test]
fn hostile_names_and_variables_change_nothing() {
    let text = "[[namespace]]\nname = \"a\\u001b[2Jb\"\nkeys = [\"lock:*\"]\n";
    let end = checked(text, &[]);
    assert_eq!(end.code, Some(1), "{end:?}");
    assert!(!end.stdout.contains('\u{1b}'), "{end:?}");
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("old.toml"), OLD).expect("the directory is ours");
    let plain = checked_in(directory.path(), OLD, &[]);
    let mut command = lockwarden(&["upgrade-check", "old.toml"]);
    command.env("LOCKWARDEN_MODE", "nonsense");
    let end = run_to_end(command.current_dir(directory.path()));
    assert_eq!(end.stdout, plain.stdout);
}
