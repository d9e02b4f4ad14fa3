//! How the proxy's own connections log in where their password does not stay the same: `[backend_login]`.

use std::fs;
use std::path::Path;

use lockwarden_tests::{Proxy, ProxyBuilder, Redis, lockwarden, run_to_end, wait_for};

const WARDEN: &str = "ACL SETUSER warden on resetpass >one ~* &* +@all";
const REFRESHED: &str = "lockwarden_login_refreshes_total{result=\"ok\"}";
const NOT_REFRESHED: &str = "lockwarden_login_refreshes_total{result=\"failed\"}";

/// A server that lets no client in without a password, and a user for the proxy.
fn guarded() -> Redis {
    let redis = Redis::with_arguments(&["--requirepass", "secret"]);
    orders(&redis, WARDEN);
    redis
}

/// As the server's own administrator.
fn orders(redis: &Redis, line: &str) -> String {
    let client = redis.client();
    client.sends("AUTH secret").gets("+OK");
    client.sends(line).reply().to_string()
}

fn with(redis: &Redis, login: &str) -> ProxyBuilder {
    let table = format!("[backend_login]\nuser = \"warden\"\n{login}\n");
    Proxy::builder(redis).default_ttl("1s").more(&table)
}

fn by_file(path: &Path) -> String {
    format!("password_file = \"{}\"", path.display())
}

/// Takes and keeps a lock: that needs the proxy's own connections.
fn works(proxy: &Proxy) {
    let client = proxy.client();
    client.sends("AUTH secret").gets("+OK");
    client.sends("SETNX lock:job 1").gets(":1");
    client.sends("DEL lock:job").gets(":1");
}

#[test]
fn the_password_is_read_again_for_each_connection() {
    let redis = guarded();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("password");
    fs::write(&file, "one\n").expect("the folder is ours");
    let proxy = with(&redis, &by_file(&file)).start();
    works(&proxy);
    orders(&redis, "ACL SETUSER warden resetpass >two");
    fs::write(&file, "two\n").expect("the folder is ours");
    // As a server does whose tokens end.
    orders(&redis, "CLIENT KILL USER warden");
    wait_for("the proxy to be back", || {
        proxy.metric("lockwarden_backend_reconnects_total") > 0.0 && proxy.ready() == Some(200)
    });
    works(&proxy);
    let log = proxy.log();
    assert!(!log.contains("\"two\"") && !log.contains(">two"), "{log}");
}

#[test]
fn a_program_prints_the_password() {
    let redis = guarded();
    let folder = tempfile::tempdir().expect("a folder");
    let calls = folder.path().join("calls");
    let script = format!("echo called >> {}; echo one", calls.display());
    let command = format!("password_command = [\"sh\", \"-c\", \"{script}\"]");
    let proxy = with(&redis, &command).start();
    works(&proxy);
    let before = fs::read_to_string(&calls).expect("it was called").lines().count();
    orders(&redis, "CLIENT KILL USER warden");
    wait_for("it to be called again", || fs::read_to_string(&calls).is_ok_and(|calls| calls.lines().count() > before));
    wait_for("the proxy to be back", || proxy.ready() == Some(200));
    works(&proxy);
    // The arguments of the command may be a secret.
    let shown = proxy.get("/api/v1/settings").1;
    assert!(shown.contains("hidden") && !shown.contains("echo one"), "{shown}");
}

#[test]
fn open_connections_log_in_again_and_a_failure_leaves_them_as_they_were() {
    let redis = guarded();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("password");
    fs::write(&file, "one").expect("the folder is ours");
    let login = format!("{}\nrefresh = \"1s\"", by_file(&file));
    let proxy = with(&redis, &login).start();
    let holder = proxy.client();
    holder.sends("AUTH secret").gets("+OK");
    holder.sends("SETNX lock:job 1").gets(":1");
    let logins = || {
        let stats = orders(&redis, "INFO commandstats");
        let calls = stats.split_once("cmdstat_auth:calls=").map(|(_, rest)| rest.to_owned());
        let calls = calls.and_then(|rest| rest.split(',').next()?.parse::<u64>().ok());
        calls.unwrap_or_default()
    };
    let own = || {
        let listed = orders(&redis, "CLIENT LIST");
        let ids = listed.split("id=").filter(|client| client.contains("user=warden"));
        let mut ids: Vec<String> = ids.map(|client| client.split(' ').next().unwrap_or_default().to_owned()).collect();
        ids.sort();
        ids
    };
    proxy.counts(NOT_REFRESHED, 0.0);
    let (before, connections) = (logins(), own());
    let refreshed = proxy.metric(REFRESHED);
    wait_for("two refreshes", || proxy.metric(REFRESHED) >= refreshed + 2.0);
    // Ours are among them: one for each look.
    wait_for("the connections to log in again", || logins() >= before + 6);
    let now = own();
    assert!(connections.iter().all(|id| now.contains(id)), "a connection was closed");

    fs::remove_file(&file).expect("it is ours");
    wait_for("a failure", || proxy.metric(NOT_REFRESHED) > 0.0);
    proxy.logs(&["the login to the backend could not be refreshed"]);
    // Kept alive over the same connections: its TTL is 1 s.
    lockwarden_tests::holds_for(std::time::Duration::from_secs(3), "the lock is held", || {
        orders(&redis, "EXISTS lock:job") == ":1"
    });
    assert_eq!(proxy.ready(), Some(200));
    drop(holder);
}

#[test]
fn a_password_that_is_refused_on_open_connections_is_counted_and_logged() {
    let redis = guarded();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("password");
    fs::write(&file, "one").expect("the folder is ours");
    let login = format!("{}\nrefresh = \"1s\"", by_file(&file));
    let proxy = with(&redis, &login).start();
    let refused = "lockwarden_login_refreshes_total{result=\"refused\"}";
    proxy.counts(refused, 0.0);
    fs::write(&file, "another").expect("the folder is ours");
    wait_for("a refusal", || proxy.metric(refused) > 0.0);
    proxy.logs(&["WARN", "the backend refused the refreshed login"]);
    assert_eq!(proxy.ready(), Some(200));
}

#[test]
fn a_program_that_is_of_no_use_is_named_with_its_fault() {
    let redis = guarded();
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("lw.toml");
    for (command, expected) in [
        (r#"["no-such-program"]"#, "cannot run no-such-program: No such file or directory"),
        (r#"["sh", "-c", "echo no role for me >&2; exit 3"]"#, "sh ended with exit status: 3: no role for me"),
        (r#"["yes"]"#, "what yes printed is longer than 4096 bytes"),
        (r#"["true"]"#, "what true printed is empty"),
        (r#"["printf", "\\377"]"#, "what printf printed is not UTF-8 text"),
        (r#"["sleep", "60"]"#, "sleep did not end within 8s, and was stopped"),
        (r#"["echo", "wrong"]"#, "the backend refused the login"),
    ] {
        let text = with(&redis, &format!("password_command = {command}")).text();
        fs::write(&config, text).expect("the folder is ours");
        let end = run_to_end(lockwarden(&["check", "--backend", "--config"]).arg(&config));
        let said = format!("{}{}", end.stdout, end.stderr);
        assert_eq!(end.code, Some(3), "{command}: {said}");
        assert!(said.contains(expected), "{command}: {said}");
    }
}

#[test]
fn check_says_what_does_not_fit_together() {
    let redis = Redis::start();
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("lw.toml");
    for (login, expected) in [
        ("", "nothing says the password; write password_file or password_command"),
        (
            "password_file = \"a\"\npassword_command = [\"b\"]",
            "password_file and password_command are both there; keep one of them",
        ),
        ("password_command = []", "password_command: the list is empty"),
        ("password_file = \"a\"\nrefresh = \"0s\"", "refresh: \"0s\" is outside 1s to 1440m"),
        ("password = \"a\"", "unknown key \"password\""),
    ] {
        fs::write(&config, with(&redis, login).text()).expect("the folder is ours");
        let end = run_to_end(lockwarden(&["check", "--config"]).arg(&config));
        let said = format!("{}{}", end.stdout, end.stderr);
        assert_eq!(end.code, Some(2), "{login}: {said}");
        assert!(said.contains(expected), "{login}: {said}");
    }
    let twice = ProxyBuilder::for_backend(&format!("redis://:secret@{}", redis.address()))
        .more("[backend_login]\npassword_file = \"a\"\n");
    fs::write(&config, twice.text()).expect("the folder is ours");
    let end = run_to_end(lockwarden(&["check", "--config"]).arg(&config));
    let said = format!("{}{}", end.stdout, end.stderr);
    assert!(said.contains("the backend has a login already"), "{said}");
}
