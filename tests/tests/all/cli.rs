//! The commands that query a running proxy, as a person on call or a script runs them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use lockwarden_tests::{Client, Finished, Mode, Proxy, Redis, lockwarden, run_to_end, wait_for, wait_for_value};
use serde_json::Value;

/// `lockwarden` with these words, pointed at the proxy.
fn asks(proxy: &Proxy, words: &[&str]) -> Command {
    let mut command = lockwarden(words);
    command.env("LOCKWARDEN_ADMIN", proxy.admin_address().to_string());
    command
}

#[track_caller]
fn says(proxy: &Proxy, words: &[&str], code: i32) -> String {
    ends_with(asks(proxy, words), code).stdout
}

#[track_caller]
fn ends_with(mut command: Command, code: i32) -> Finished {
    let finished = run_to_end(&mut command);
    assert_eq!(finished.code, Some(code), "{command:?}: {finished:?}");
    finished
}

#[track_caller]
fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn named(proxy: &Proxy, name: &str) -> Client {
    let client = proxy.client();
    client.sends(format!("CLIENT SETNAME {name}")).gets("+OK");
    client
}

/// The shown state is some milliseconds behind the real one.
#[track_caller]
fn shows(proxy: &Proxy, words: &[&str], expected: &str) -> String {
    wait_for_value(&format!("{words:?} to show {expected:?}"), || {
        let said = run_to_end(&mut asks(proxy, words)).stdout;
        said.contains(expected).then_some(said)
    })
}

#[test]
fn a_held_lock_is_listed_with_its_holder_and_its_fencing_token() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    for words in [&["locks"][..], &["locks", "list"]] {
        assert_eq!(says(&proxy, words, 0), "no lock is held\n");
    }
    let billing = named(&proxy, "billing-7");
    billing.sends("SET lock:order:42 a-secret-owner-token NX PX 60000").gets("+OK");
    let list = shows(&proxy, &["locks", "list"], "billing-7");
    let fence = redis.fence("lock:order:42");
    let lines: Vec<_> = list.lines().collect();
    assert_eq!(lines.len(), 2, "{list}");
    let heads: Vec<_> = lines[0].split_whitespace().collect();
    assert_eq!(heads[..4], ["KEY", "NAMESPACE", "STATE", "HOLDER"]);
    for word in ["lock:order:42", "locks", "held", "billing-7", &fence.to_string()] {
        assert!(lines[1].contains(word), "{word}: {list}");
    }
    let answer = json(&says(&proxy, &["locks", "list", "-o", "json"], 0));
    assert_eq!(answer["matching"], 1);
    assert_eq!(answer["locks"][0]["key"], "lock:order:42");
    assert_eq!(answer["locks"][0]["fence"], fence);
    let story = says(&proxy, &["locks", "show", "lock:order:42"], 0);
    for word in ["billing-7", "acquired", "SET", &fence.to_string()] {
        assert!(story.contains(word), "{word}: {story}");
    }
    for said in [list, story, answer.to_string()] {
        assert!(!said.contains("a-secret-owner-token"), "{said}");
    }
    billing.sends("DEL lock:order:42").gets(":1");
    shows(&proxy, &["locks", "list"], "no lock is held");
    // It is free, so a script gets 1; its story is there all the same.
    shows(&proxy, &["locks", "show", "lock:order:42"], "released");
    let story = says(&proxy, &["locks", "show", "lock:order:42"], 1);
    assert!(story.contains("free"), "{story}");
}

#[test]
fn a_list_is_narrowed_as_it_was_asked_for() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis)
        .mode(Mode::Monitor)
        .more("[[namespace]]\nname = \"stock\"\nkeys = [\"stock:*\"]")
        .start();
    let client = proxy.client();
    for key in ["lock:a", "lock:b", "stock:a"] {
        client.sends(format!("SET {key} 1 NX PX 60000")).gets("+OK");
    }
    shows(&proxy, &["locks", "list"], "stock:a");
    let keys = |words: &[&str]| {
        let words = [&["locks", "list"], words].concat();
        let said = run_to_end(&mut asks(&proxy, &words)).stdout;
        let mut keys: Vec<_> =
            said.lines().skip(1).map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect();
        keys.sort();
        keys
    };
    assert_eq!(keys(&["--namespace", "stock"]), ["stock:a"]);
    assert_eq!(keys(&["--contains", "k:b"]), ["lock:b"]);
    assert_eq!(keys(&["--pattern", "*:[ab]", "--namespace", "locks"]), ["lock:a", "lock:b"]);
    assert_eq!(keys(&["--application", "nobody"]), Vec::<String>::new());
    assert_eq!(keys(&["--limit", "1"]).len(), 2, "one lock, and how many more");
    // Nothing is wrong, so a script that asks for problems goes on; then something is.
    let said = says(&proxy, &["locks", "list", "--problems"], 0);
    assert_eq!(said, "no lock has a problem\n");
    client.sends("SETNX lock:forever 1").gets(":1");
    shows(&proxy, &["locks", "list"], "lock:forever");
    let said = says(&proxy, &["locks", "list", "--problems"], 1);
    assert!(said.contains("no TTL") && said.contains("lock:forever"), "{said}");
    assert_eq!(keys(&["--problems"]), ["lock:forever"]);
}

/// Keys and names are chosen by clients, and a terminal obeys what it is sent.
#[test]
fn a_hostile_key_is_spelled_and_can_be_asked_for_as_it_is_spelled() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let client = proxy.client();
    let key = b"lock:\x1b[2J\xff/..?a b\\";
    client.sends_arguments(&[&b"SET"[..], key, b"1", b"NX", b"PX", b"60000"]).gets("+OK");
    let spelled = r"lock:\x1b[2J\xff/..?a b\\";
    let list = shows(&proxy, &["locks", "list"], spelled);
    assert!(!list.contains('\x1b'), "{list:?}");
    let story = says(&proxy, &["locks", "show", spelled], 0);
    assert!(story.starts_with(spelled), "{story}");
}

#[test]
fn what_goes_wrong_has_a_line_and_a_code() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let said = ends_with(asks(&proxy, &["locks", "show", "lock:never"]), 1);
    assert!(said.stderr.contains("nothing is known of this lock"), "{said:?}");
    let said = ends_with(asks(&proxy, &["locks", "show", r"lock:\q"]), 2);
    assert!(said.stderr.contains("backslash"), "{said:?}");
    let list = |admin: &str| {
        let mut command = lockwarden(&["locks", "list"]);
        command.args(["--admin", admin]);
        command
    };
    let said = ends_with(list("127.0.0.1:1"), 3);
    assert!(said.stderr.contains("127.0.0.1:1 cannot be reached"), "{said:?}");
    for wrong in ["localhost", "off", "https://localhost:1", "127.0.0.1:0"] {
        ends_with(list(wrong), 2);
    }
    // A Redis is no admin address.
    let said = ends_with(list(&redis.address().to_string()), 3);
    assert!(said.stderr.contains("lockwarden: "), "{said:?}");
}

#[test]
fn without_an_address_the_configuration_is_asked() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let file = proxy.directory().join("operator.toml");
    fs::write(&file, format!("admin = \"{}\"\n", proxy.admin_address())).expect("the directory is ours");
    let named = |words: &[&str]| {
        let mut command = lockwarden(words);
        command.arg("--config").arg(&file);
        command
    };
    assert_eq!(ends_with(named(&["locks", "list"]), 0).stdout, "no lock is held\n");
    fs::write(&file, "admin = \"off\"\n").expect("the directory is ours");
    let said = ends_with(named(&["locks", "list"]), 2);
    assert!(said.stderr.contains("--admin"), "{said:?}");
    fs::write(&file, "nonsense = 1\n").expect("the directory is ours");
    let said = ends_with(named(&["locks", "list"]), 2);
    assert!(said.stderr.contains("nonsense") && said.stderr.contains("--admin"), "{said:?}");
    // Where flags and environment have all that is needed, a mistake in the file does not stop an operator at
    // three in the morning.
    let address = proxy.admin_address().to_string();
    let mut command = named(&["locks", "list", "--admin", &address]);
    command.env("LOCKWARDEN_ADMIN_TOKEN", "any");
    ends_with(command, 0);
}

/// The end of a watch is the end of the test.
struct Watching(Child);

impl Drop for Watching {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_watch_tells_of_every_change() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let words = ["locks", "list", "--follow", "--interval", "100ms", "-o", "json"];
    let mut command = asks(&proxy, &words);
    command.stdout(Stdio::piped()).stdin(Stdio::null());
    let mut watching = Watching(command.spawn().expect("the binary is there"));
    let out = watching.0.stdout.take().expect("it is piped");
    let mut lines = BufReader::new(out).lines();
    let mut told = |what: &str, fence: u64| {
        let line = lines.next().expect("another line").expect("text");
        let change = json(&line);
        assert_eq!(change["what"], what, "{line}");
        assert_eq!(change["lock"]["key"], "lock:a", "{line}");
        assert_eq!(change["lock"]["fence"], fence, "{line}");
    };
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("SET lock:a a1 NX PX 60000").gets("+OK");
    let first = redis.fence("lock:a");
    told("held", first);
    alice.pipelines(&["DEL lock:a"], &[":1"]);
    told("gone", first);
    bob.sends("SET lock:a b1 NX PX 60000").gets("+OK");
    told("held", redis.fence("lock:a"));
}

#[test]
fn a_reader_who_has_seen_enough_is_no_error() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let client = proxy.client();
    for number in 0..500 {
        client.sends(format!("SET lock:{number:0>200} 1 NX PX 60000")).gets("+OK");
    }
    shows(&proxy, &["locks", "list", "--limit", "500"], &format!("lock:{:0>200}", 499));
    let mut command = asks(&proxy, &["locks", "list", "--limit", "500"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary is there");
    drop(child.stdout.take());
    let ended = child.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
    assert!(ended.status.success());
}

#[test]
fn breaking_needs_a_fencing_token_a_reason_and_the_admin_token() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    for words in [
        &["locks", "break", "lock:a"][..],
        &["locks", "break", "lock:a", "--fence", "1"],
        &["locks", "break", "lock:a", "--fence", "x", "--reason", "y"],
        &["locks", "break", "lock:a", "--fence", "1", "--reason", " "],
    ] {
        ends_with(asks(&proxy, words), 2);
    }
    let words = ["locks", "break", "lock:a", "--fence", "1", "--reason", "stuck"];
    let said = ends_with(asks(&proxy, &words), 2);
    assert!(said.stderr.contains("--admin-token-file"), "{said:?}");
    let mut command = asks(&proxy, &words);
    command.env("LOCKWARDEN_ADMIN_TOKEN", "wrong");
    let said = ends_with(command, 1);
    assert!(said.stderr.contains("401"), "{said:?}");
}

#[test]
fn the_command_line_describes_itself() {
    let help = ends_with(lockwarden(&["--help"]), 0).stdout;
    let commands = ["run", "check", "demo", "locks", "audit", "lock", "config", "completions", "man", "version"];
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = ends_with(lockwarden(&["completions", shell]), 0).stdout;
        for word in commands {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let directory = tempfile::tempdir().expect("a directory");
    let mut command = lockwarden(&["man", "--dir"]);
    command.arg(directory.path());
    ends_with(command, 0);
    for word in commands {
        assert!(help.contains(&format!("\n  {word} ")), "{word}: {help}");
        let page = directory.path().join(format!("lockwarden-{word}.1"));
        assert!(fs::read_to_string(&page).is_ok_and(|page| page.contains(".SH NAME")), "{word}");
    }
    assert!(ends_with(lockwarden(&["man"]), 0).stdout.contains(".TH lockwarden 1"));
    let version = ends_with(lockwarden(&["version"]), 0).stdout;
    for word in [env!("CARGO_PKG_VERSION"), "revision", "Wasmtime", "lockwarden:policy"] {
        assert!(version.contains(word), "{version}");
    }
}

#[test]
fn a_completion_script_is_one_that_the_shell_can_read() {
    let script = ends_with(lockwarden(&["completions", "bash"]), 0).stdout;
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("lockwarden.bash");
    fs::write(&file, script).expect("the directory is ours");
    let mut command = Command::new("bash");
    command.arg("-n").arg(&file);
    ends_with(command, 0);
}

/// A proxy cannot see what goes around it; the server can, and the operator knows where the proxies are.
#[test]
fn the_check_says_where_the_connections_of_the_server_come_from() {
    let redis = Redis::start();
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("check.toml");
    fs::write(&file, format!("backend = \"redis://{}\"\n", redis.address())).expect("the directory is ours");
    let check = || {
        let mut command = lockwarden(&["check", "--backend", "--config"]);
        command.arg(&file);
        run_to_end(&mut command).stdout
    };
    let said = check();
    assert!(!said.contains("besides this one"), "{said}");
    let (_one, _two) = (redis.client(), redis.client());
    let line = "backend: 2 connections besides this one, from 127.0.0.1 (2): what is no lockwarden goes around it";
    wait_for("both to be told of", || check().contains(line));
}

#[test]
fn the_check_says_after_which_time_the_server_closes_idle_connections() {
    let redis = Redis::with_arguments(&["--timeout", "300"]);
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("check.toml");
    let backend = format!("backend = \"redis://{}\"\n", redis.address());
    fs::write(&file, backend).expect("the directory is ours");
    let mut command = lockwarden(&["check", "--backend", "--config"]);
    command.arg(&file);
    let said = ends_with(command, 0).stdout;
    assert!(said.contains("backend: timeout is 300: Redis closes"), "{said}");
}

#[test]
fn a_lease_is_ended_by_its_fencing_token_and_no_other() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let holder = named(&proxy, "billing-7");
    holder.sends("SET lock:a a1 NX PX 9000").gets("+OK");
    let fence = redis.fence("lock:a");
    let breaks = |fence: u64| {
        let fence = fence.to_string();
        let words = ["locks", "break", "lock:a", "--fence", &fence, "--reason", "its host is down"];
        let file = proxy.directory().join("admin-token");
        fs::write(&file, "the-tests-own-admin-token\n").expect("the directory is ours");
        let mut command = asks(&proxy, &words);
        command.arg("--admin-token-file").arg(file);
        run_to_end(&mut command)
    };
    let said = breaks(fence - 1);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stdout.contains(&format!("{fence} does by now")), "{said:?}");
    assert_eq!(redis.value("lock:a"), "$2 a1");
    let said = breaks(fence);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.stdout.contains("is over, id "), "{said:?}");
    assert!(redis.is_free("lock:a"));
    let story = shows(&proxy, &["locks", "show", "lock:a"], "broken");
    assert!(story.contains("its host is down"), "{story}");
    let said = breaks(fence);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stdout.contains("nobody holds it"), "{said:?}");
}

#[test]
fn locks_from_before_the_proxy_with_one_value_are_found() {
    let redis = Redis::start();
    let around = redis.client();
    for command in [
        "SET lock:a constant PX 60000",
        "SET lock:b constant PX 60000",
        "SET lock:c 0f8fad5b-d9cb-469f-a165-70867728950e PX 60000",
        "SET lock:d 1790000000 PX 60000",
        "SET lock:e 1790000000 PX 60000",
        "SET plain constant",
    ] {
        around.sends(command).gets("+OK");
    }
    let proxy = Proxy::builder(&redis).mode(Mode::Monitor).start();
    let told = shows(&proxy, &["audit"], "With the same value");
    assert!(told.contains("With the same value as another in namespace locks: 2, such as lock:a and lock:b"), "{told}");
    assert!(!told.contains("constant"), "{told}");
    // Through the proxy, too; and no more, once they are gone.
    proxy.client().sends("SET lock:f constant NX PX 9000").gets("+OK");
    let brief = Proxy::builder(&redis).mode(Mode::Monitor).top("sweep", "\"200ms\"").start();
    shows(&brief, &["audit"], "namespace locks: 3, such as");
    around.sends("DEL lock:a lock:f").gets(":2");
    wait_for("the others to be found alone", || {
        let told = run_to_end(&mut asks(&brief, &["audit"])).stdout;
        !told.contains("With the same value")
    });
}
