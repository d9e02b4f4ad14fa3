//! Characters that a terminal obeys, that change the direction of writing, or that are invisible are never
//! shown raw: keys, names and words of the command line are escaped wherever they are repeated.

use lockwarden_tests::{Proxy, Redis, lockwarden, run_to_end};

/// C1, DEL, marks of direction, a tag, a space that is none: in UTF-8.
const ODD: &str = "a\u{9b}2J\u{7f}\u{202e}\u{2066}\u{200f}\u{a0}\u{e0001}b";

#[track_caller]
fn is_readable(text: &str, of: &str) {
    let odd = text.chars().find(|character| {
        let is_seen = character.escape_debug().len() == 1 && !character.is_whitespace();
        !matches!(character, ' '..='~' | '\n') && !is_seen
    });
    assert_eq!(odd, None, "{of}: {text:?}");
}

#[test]
fn nothing_odd_is_said_over_a_terminal_whatever_was_asked() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let lock = format!("lock:{ODD}");
    let (holder, stranger) = (proxy.client(), proxy.client_from("127.0.0.9"));
    holder.sends_arguments(&["SET", &lock, "8c1f0a2e9b7d4f6a", "NX", "PX", "60000"]).gets("+OK");
    let said = stranger.sends_arguments(&["DEL", &lock]).reply().to_string();
    assert!(said.contains("LOCKDENIED") || said == ":0", "{said}");
    is_readable(&said, "the refusal");
    let said = stranger.sends_arguments(&["SET", &lock, "x"]).reply();
    is_readable(&said.to_string(), "the refusal");
    let admin = proxy.admin_address().to_string();
    let odd_file = format!("/{ODD}.toml");
    let file = std::env::temp_dir().join(format!("lockwarden-odd-{}.toml", std::process::id()));
    let text = format!("listen = \"127.0.0.1:0\"\nbackend = {ODD}\n\"{ODD}\" = 1\n");
    std::fs::write(&file, text).expect("a file");
    let file = file.display().to_string();
    for arguments in [
        &["locks", "list", "--admin", &admin][..],
        &["locks", "list", "--admin", &admin, "-o", "json"],
        &["locks", "show", &lock, "--admin", &admin],
        &["locks", "show", ODD, "--admin", &admin],
        &["audit", "--all", "--admin", &admin],
        &["why", ODD, "--admin", &admin],
        &["why", "7F3K2A", "--log", &odd_file],
        &["mode", &format!("{ODD}=enforce"), "--admin", &admin],
        &["locks", "list", "--admin", ODD],
        &["check", "--config", &odd_file],
        &["check", "--config", &file],
        &["run", "--config", &file],
        &["lock", ODD, "--redis", ODD, "--", "true"],
        &[ODD],
        &["locks", ODD],
    ] {
        let end = run_to_end(lockwarden(arguments).env_remove("LOCKWARDEN_CONFIG"));
        let said = end.stdout + &end.stderr;
        assert!(!said.is_empty(), "{arguments:?}");
        is_readable(&said, &format!("{arguments:?}"));
    }
    let _ = std::fs::remove_file(&file);
    for path in ["/", "/patterns", "/why?id=%C2%9B%E2%80%AE", "/application?name=%C2%9B%E2%80%AE"] {
        is_readable(&proxy.get(path).1, path);
    }
}
