//! Unix sockets on both sides: the kernel names the process at the other end, so that identities are exact from the first
//! command on; and errors with a socket are reported.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use lockwarden_tests::{Client, Mode, Proxy, ProxyBuilder, Redis, holds_for, lockwarden, run_to_end, wait_for};
use tempfile::TempDir;

use crate::jobs::{self, Job};

/// A folder of the test's own, and a socket in it.
fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("lw.sock");
    (folder, path)
}

/// A proxy with a unix socket beside its port.
fn at(redis: &Redis, path: &Path) -> ProxyBuilder {
    Proxy::builder(redis).more(&format!("[[listener]]\naddress = \"unix:{}\"\n", path.display()))
}

/// The reply to another process by the socket: redis-cli, one process for each command.
fn cli(path: &Path, words: &[&str]) -> String {
    let output = Command::new("redis-cli").arg("-s").arg(path).args(words).output().expect("there is a redis-cli");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn processes_behind_one_socket_are_told_apart() {
    let redis = Redis::start();
    let (_folder, path) = place();
    let proxy = at(&redis, &path).default_ttl("5s").start();
    let ours = proxy.client_at(&path);
    ours.sends("SETNX lock:job 1").gets(":1");
    assert_eq!(cli(&path, &["DEL", "lock:job"]), "0");
    assert_eq!(cli(&path, &["SET", "lock:job", "2", "NX", "EX", "9"]), "");
    // Another connection of the process that holds it, of which nothing had to be looked up.
    proxy.client_at(&path).sends("DEL lock:job").gets(":1");
    assert!(redis.is_free("lock:job"));
}

#[test]
fn an_address_that_stands_for_a_process_does_not_make_a_socket_one() {
    let redis = Redis::start();
    let (_folder, path) = place();
    let proxy = at(&redis, &path).default_ttl("5s").setting("owner-token", "trust_address", "\"process\"").start();
    let ours = proxy.client_at(&path);
    ours.sends("SETNX lock:job 1").gets(":1");
    assert_eq!(cli(&path, &["DEL", "lock:job"]), "0");
    proxy.client_at(&path).sends("DEL lock:job").gets(":1");
}

#[test]
fn the_kernel_says_which_process_has_connected() {
    let redis = Redis::start();
    let (_folder, path) = place();
    let proxy = at(&redis, &path).mode(Mode::Monitor).start();
    let ours = proxy.client_at(&path);
    ours.sends("SETNX lock:job 1").gets(":1");
    let own = format!("unix:{}", std::process::id());
    let record = redis.record("lock:job").expect("a record");
    assert!(record.process_is_known(), "{record:?}");
    let shown = || proxy.get("/api/v1/connections").1;
    assert!(shown().contains(&own), "{}", shown());
    // By the program of the process, where a client gives no name.
    wait_for("its program to be told", || shown().contains("\"application\":\"all"));
}

#[test]
fn a_job_of_a_shell_works_over_the_socket() {
    let redis = Redis::start();
    let (_folder, path) = place();
    let _proxy = at(&redis, &path).default_ttl("2s").start();
    let client = format!("redis-cli -s {}", path.display());
    let job = Job::starts_calling(&client, jobs::PLAIN);
    jobs::is_taken(&redis);
    jobs::stays(&redis);
    let careless = Job::starts_calling(&client, r#"[ "$(cli DEL lock:job)" = 0 ]"#);
    assert_eq!(careless.ends(), Some(0));
    jobs::stays(&redis);
    assert_eq!(job.ends(), Some(0));
    assert!(redis.is_free("lock:job"));

    let killed = Job::starts_calling(&client, jobs::PLAIN);
    jobs::is_taken(&redis);
    jobs::stays(&redis);
    killed.dies();
    redis.becomes_free("lock:job");
}

#[test]
fn a_lock_ends_with_the_process_behind_the_socket_and_not_before() {
    let redis = Redis::start();
    let (_folder, path) = place();
    let proxy = at(&redis, &path).default_ttl("1s").start();
    let (first, second) = (proxy.client_at(&path), proxy.client_at(&path));
    first.sends("SETNX lock:job 1").gets(":1");
    drop(first);
    // Another connection of the same process lives.
    holds_for(std::time::Duration::from_secs(3), "the lock is held", || !redis.is_free("lock:job"));
    drop(second);
    redis.becomes_free("lock:job");
}

#[test]
fn a_backend_is_reached_by_its_socket_in_either_kind_of_session() {
    for sessions in ["dedicated", "multiplexed"] {
        let mut redis = Redis::start();
        let (_folder, path) = place();
        let builder = ProxyBuilder::for_backend(&format!("{}?db=0", redis.socket_url()))
            .top("sessions", &format!("\"{sessions}\""))
            .more(&format!("[[listener]]\naddress = \"unix:{}\"\n", path.display()));
        let proxy = builder.start();
        for client in [proxy.client(), proxy.client_at(&path)] {
            client.sends("SET plain 1").gets("+OK");
            client.sends("SETNX lock:job 1").gets(":1");
            client.sends("DEL lock:job").gets(":1");
            // Longer than any buffer of a socket, there and back.
            let long = "x".repeat(8 << 20);
            client.sends_arguments(&["SET", "long", &long]).gets("+OK");
            assert_eq!(client.sends("GET long").text().len(), long.len());
        }
        let listed = redis.client().sends("CLIENT LIST").text();
        let by_socket = format!("{}:0", redis.socket().display());
        assert!(listed.contains(&by_socket), "{listed}");
        let by_port = listed.lines().filter(|line| line.contains(" addr=127."));
        assert_eq!(by_port.count(), 1, "only this look goes by the port: {listed}");

        redis.stop();
        wait_for("the proxy to say so", || proxy.ready() == Some(503));
        redis.start_again();
        wait_for("the proxy to serve", || proxy.ready() == Some(200));
        proxy.client_at(&path).sends("SETNX lock:job 1").gets(":1");
    }
}

#[test]
fn a_grant_that_nobody_read_is_given_again_over_a_socket() {
    let redis = Redis::start();
    let (_folder, path) = place();
    let proxy = at(&redis, &path).start();
    let lost = proxy.client_at(&path);
    let acquire = "SET lock:job 5c9e2f70-alice-d1b3 NX PX 9000";
    lost.sends("PING").gets("+PONG");
    lost.write(&lockwarden_tests::encode(&acquire.split(' ').collect::<Vec<_>>()));
    lost.leaves_a_reply_unread();
    drop(lost);
    wait_for("the lease to be marked as undelivered", || {
        let record = redis.record("lock:job");
        record.is_some_and(|record| record.is_undelivered())
    });
    proxy.client_at(&path).sends(acquire).gets("+OK");
}

#[test]
fn the_socket_has_its_mode_and_goes_with_the_proxy() {
    let redis = Redis::start();
    let (_folder, path) = place();
    let access = "mode = \"0660\"\ngroup = \"0\"\n";
    let proxy = at(&redis, &path).more(access).start();
    let there = fs::metadata(&path).expect("the socket is there");
    assert_eq!(there.permissions().mode() & 0o777, 0o660);
    proxy.client_at(&path).sends("PING").gets("+PONG");
    assert_eq!(proxy.stop(), Some(0));
    assert!(!path.exists());
}

#[test]
fn a_socket_that_a_killed_proxy_left_is_used_again_and_one_in_use_is_not() {
    let redis = Redis::start();
    let (_folder, path) = place();
    let killed = at(&redis, &path).start();
    killed.kill();
    assert!(path.exists());
    let proxy = at(&redis, &path).start();
    proxy.client_at(&path).sends("PING").gets("+PONG");
    let second = ends(&at(&redis, &path));
    assert!(second.contains("cannot listen on unix:") && second.contains("--takeover"), "{second}");
    proxy.client_at(&path).sends("PING").gets("+PONG");
}

/// The error of a proxy that does not start.
fn ends(builder: &ProxyBuilder) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("lw.toml");
    fs::write(&config, builder.text()).expect("the folder is ours");
    let end = run_to_end(lockwarden(&["run", "--config"]).arg(&config));
    assert_eq!(end.code, Some(2), "{end:?}");
    format!("{}{}", end.stdout, end.stderr)
}

#[test]
fn what_is_in_the_way_of_a_socket_is_said_and_stays() {
    let redis = Redis::start();
    let (folder, path) = place();
    fs::write(&path, "precious").expect("the folder is ours");
    let said = ends(&at(&redis, &path));
    assert!(said.contains("is no socket; remove it, or choose another path"), "{said}");
    assert_eq!(fs::read_to_string(&path).expect("it stays"), "precious");

    let missing = folder.path().join("missing/lw.sock");
    let said = ends(&at(&redis, &missing));
    assert!(said.contains("No such file or directory"), "{said}");

    let other = folder.path().join("other.sock");
    let said = ends(&at(&redis, &other).more("group = \"nobody-has-this-group\"\n"));
    assert!(said.contains("there is no group nobody-has-this-group"), "{said}");

    // The socket of another program, which does not speak Redis's protocol.
    let stranger = folder.path().join("stranger.sock");
    let _listener = UnixListener::bind(&stranger).expect("the folder is ours");
    let said = ends(&at(&redis, &stranger));
    assert!(said.contains("cannot listen on unix:"), "{said}");
    assert!(stranger.exists());
}

#[test]
fn check_says_what_is_wrong_with_an_address() {
    let (folder, _) = place();
    let config = folder.path().join("lw.toml");
    let check = |text: &str| {
        fs::write(&config, text).expect("the folder is ours");
        let end = run_to_end(lockwarden(&["check", "--config"]).arg(&config));
        (end.code, format!("{}{}", end.stdout, end.stderr))
    };
    let long = format!("listen = \"unix:/run/{}\"", "x".repeat(120));
    for (text, expected) in [
        ("listen = \"unix:lw.sock\"", "has no whole path; write one, as in"),
        (&long, "has a path of 125 bytes; the system takes at most 107"),
        ("listen = \"/run/lw.sock\"", "is a path; write \"unix:/run/lw.sock\" for a unix socket"),
        ("listen = \"off\"", "there is no [[listener]], so nobody could connect"),
        ("[[listener]]\nmode = \"0660\"", "address is missing; write address ="),
        (
            "[[listener]]\naddress = \"127.0.0.1:7000\"\nmode = \"0660\"",
            "listener #1: mode: only a unix socket has one",
        ),
        (
            "[[listener]]\naddress = \"unix:/run/a.sock\"\nmode = \"rw\"",
            "listener #1: mode: \"rw\" is not a mode; write three octal digits",
        ),
        (
            "listen = \"unix:/run/a.sock\"\n[[listener]]\naddress = \"unix:/run/a.sock\"",
            "listener: unix:/run/a.sock is the address of listen too; give each its own path",
        ),
        ("backend = \"redis+unix://redis.sock\"", "the path of a unix socket has to be a whole one"),
    ] {
        let (code, said) = check(text);
        assert_eq!(code, Some(2), "{text}: {said}");
        assert!(said.contains(expected), "{text}: {said}");
    }
    let everybodys = folder.path().join("everybodys");
    fs::create_dir(&everybodys).expect("the folder is ours");
    fs::set_permissions(&everybodys, fs::Permissions::from_mode(0o777)).expect("it is ours");
    let (_, said) = check(&format!("listen = \"unix:{}/lw.sock\"", everybodys.display()));
    assert!(said.contains("anybody may write to"), "{said}");
}

#[test]
fn the_next_process_takes_the_socket_over_and_nobody_is_turned_away() {
    let redis = Redis::start();
    let (_folder, path) = place();
    let only = |builder: ProxyBuilder| builder.top("listen", "\"off\"");
    let first = only(at(&redis, &path)).default_ttl("5s").top("drain", "\"1m\"").start();
    let holder = first.client_at(&path);
    holder.sends("SETNX lock:job 1").gets(":1");
    let second = only(at(&redis, &path)).default_ttl("5s").argument("--takeover").start();
    let newcomer = Client::connect_unix(&path);
    newcomer.sends("SETNX lock:other 1").gets(":1");
    first.asks_to_stop();
    holder.sends("DEL lock:job").gets(":1");
    drop(holder);
    assert_eq!(first.ends(), Some(0));
    assert!(path.exists());
    Client::connect_unix(&path).sends("PING").gets("+PONG");
    newcomer.sends("DEL lock:other").gets(":1");
    drop(second);
}

#[test]
fn an_application_is_told_by_the_listener_that_its_clients_come_in_by() {
    let redis = Redis::start();
    let (folder, shop) = place();
    let stock = folder.path().join("stock.sock");
    let listeners: String = [("shop", &shop), ("stock", &stock)]
        .map(|(name, path)| {
            let address = format!("\"unix:{}\"", path.display());
            format!("[[listener]]\naddress = {address}\n[[application]]\nname = \"{name}\"\nlistener = {address}\n")
        })
        .concat();
    // Only one of them is enforced, which is known before its first command is judged.
    let proxy = Proxy::builder(&redis)
        .mode(Mode::Monitor)
        .namespace("enforce_for", "{ applications = [\"shop\"] }")
        .more(&listeners)
        .start();
    let holder = proxy.client();
    holder.sends("SET lock:a 6e3d0bcd-9c1e-4a07 NX PX 9000").gets("+OK");
    assert_eq!(cli(&shop, &["DEL", "lock:a"]), "0");
    assert_eq!(cli(&stock, &["DEL", "lock:a"]), "1");
    proxy.logs(&["refused", "lock:a"]);
    wait_for("both to be listed", || {
        let report = proxy.get("/api/v1/report").1;
        ["shop", "stock"].iter().all(|name| report.contains(&format!("\"application\":\"{name}\"")))
    });
}

#[test]
fn a_lock_of_phpredis_behind_the_socket_lives_as_long_as_its_process() {
    let has_phpredis = Command::new("php")
        .args(["-r", "exit(extension_loaded('redis') ? 0 : 1);"])
        .status()
        .is_ok_and(|status| status.success());
    if !has_phpredis {
        assert!(std::env::var_os("CI").is_none(), "there is no php-redis");
        eprintln!("skipped: there is no php with php-redis");
        return;
    }
    let redis = Redis::start();
    let (_folder, path) = place();
    let proxy = at(&redis, &path).start();
    let script = format!(
        "$r = new Redis(); $r->connect('{}'); var_dump($r->setnx('lock:php', '1')); fgets(STDIN); \
         var_dump($r->del('lock:php'));",
        path.display()
    );
    let mut php = Command::new("php")
        .args(["-r", &script])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("php runs");
    wait_for("the lock", || !redis.is_free("lock:php"));
    // Kept alive past its TTL of 600 ms, and no other client gives it back.
    holds_for(std::time::Duration::from_millis(1500), "the lock is held", || !redis.is_free("lock:php"));
    assert_eq!(cli(&path, &["DEL", "lock:php"]), "0");
    assert_eq!(proxy.client_at(&path).sends("DEL lock:php").integer(), 0);
    drop(php.stdin.take());
    let output = php.wait_with_output().expect("php ends");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "bool(true)\nint(1)\n");
    redis.becomes_free("lock:php");
}
