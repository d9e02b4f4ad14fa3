//! A server that has no `EVAL`, or no `EVALSHA`: renamed, or forbidden by its operator. Locks cannot be governed there,
//! and no client sees a word of the proxy's own scripts.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use lockwarden_tests::{Mode, Proxy, ProxyBuilder, Redis, Server, wait_for};

const COMPARE_AND_DELETE: &str = "EVAL \"if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end\" 1 lock:a 6e3d0bcd-9c1e-4a07";

/// Commands of applications, in a block and outside.
const LINES: &[&str] = &[
    "SETNX lock:a 1",
    "SETNX lock:a 2",
    "EXPIRE lock:a 9",
    "GET lock:a",
    "DEL lock:a",
    "SET lock:a 6e3d0bcd-9c1e-4a07 NX PX 9000",
    COMPARE_AND_DELETE,
    "EVAL \"redis.call('incr', KEYS[2]) return redis.call('pttl', KEYS[1]) > 0\" 2 lock:a count",
    "EVALSHA 6e3d0bcd9c1e4a076e3d0bcd9c1e4a076e3d0bcd 1 lock:a x",
    "DEL lock:a",
    "MULTI",
    "SETNX lock:b 1",
    "RPUSH jobs one",
    "EXEC",
    "MULTI",
    "DEL lock:b",
    COMPARE_AND_DELETE,
    "EXEC",
    "FLUSHDB",
];

fn without(command: &str) -> Redis {
    Redis::with_arguments(&["--rename-command", command, ""])
}

#[test]
fn monitored_everything_is_answered_by_redis_itself_and_counted() {
    for missing in ["EVAL", "EVALSHA"] {
        let (straight, redis) = (without(missing), without(missing));
        let proxy = Proxy::monitoring(&redis);
        // The first client meets a server of which nothing is known yet, the second does not.
        for _ in 0..2 {
            let (direct, client) = (straight.client(), proxy.client());
            for line in LINES {
                let wanted = direct.sends(*line).reply().to_string();
                let got = client.sends(*line).reply().to_string();
                assert_eq!(got, wanted, "{missing}: {line}");
            }
        }
        // What only a script can find out stays unknown.
        proxy.client().sends("LOCKWARDEN LEASE lock:a").gets_error(
            "NOPERM lockwarden runs LOCKWARDEN LEASE on a lock as a script: the server has no EVAL or no EVALSHA",
        );
        assert!(proxy.metric("lockwarden_unjudged_commands_total{why=\"no-scripts\"}") >= 10.0);
        assert_eq!(proxy.ready(), Some(200));
    }
}

#[test]
fn enforced_no_client_is_served_and_one_line_says_why() {
    for missing in ["EVAL", "EVALSHA"] {
        let redis = without(missing);
        let proxy = Proxy::builder(&redis).mode(Mode::Enforce).without_waiting().start();
        proxy.logs(&["ERROR", "no client is served", "the server has no EVAL or no EVALSHA"]);
        assert_eq!(proxy.ready(), Some(503));
        assert!(redis.is_free("lock:a"));
        assert_eq!(proxy.logged(&["no client is served"]), 1);
    }
}

#[test]
fn a_switch_to_enforce_mode_ends_the_service_and_back_begins_it() {
    let redis = without("EVALSHA");
    let proxy = Proxy::monitoring(&redis);
    proxy.client().sends("SETNX lock:a 1").gets(":1");
    assert_eq!(proxy.switch("locks", Mode::Enforce), 200);
    proxy.logs(&["ERROR", "no client is served", "no EVALSHA"]);
    assert_eq!(proxy.switch("locks", Mode::Monitor), 200);
    wait_for("the service", || proxy.ready() == Some(200));
    proxy.client().sends("DEL lock:a").gets(":1");
}

/// A service in front of Redis that has words of its own for scripts, as long as it refuses them.
fn service_without_scripts(redis: &Redis, refuses: &Arc<AtomicBool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let (redis, refuses) = (redis.address(), refuses.clone());
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let refuses = refuses.clone();
            thread::spawn(move || serve(client, redis, &refuses));
        }
    });
    address
}

fn serve(mut client: TcpStream, redis: SocketAddr, refuses: &AtomicBool) -> std::io::Result<()> {
    let mut server = TcpStream::connect(redis)?;
    let (mut replies, mut back) = (server.try_clone()?, client.try_clone()?);
    thread::spawn(move || std::io::copy(&mut replies, &mut back));
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = client.read(&mut buffer)?;
        let words = String::from_utf8_lossy(&buffer[..read]);
        if read == 0 {
            return server.shutdown(Shutdown::Both);
        }
        // The proxy's request comes in one piece, and nothing else with it.
        let is_script = words.contains("\r\nEVAL\r\n") || words.contains("\r\nEVALSHA\r\n");
        match is_script && refuses.load(Ordering::Relaxed) {
            true => client.write_all(b"-ERR scripts are not part of this plan\r\n")?,
            false => server.write_all(&buffer[..read])?,
        }
    }
}

#[test]
fn a_service_that_refuses_scripts_to_everybody_counts_as_a_server_without() {
    let redis = Redis::start();
    let address = service_without_scripts(&redis, &Arc::new(AtomicBool::new(true)));
    let url = format!("redis://{address}");
    let watching = ProxyBuilder::for_backend(&url).mode(Mode::Monitor).start();
    let client = watching.client();
    client.sends("SETNX lock:a 1").gets(":1");
    client.sends("DEL lock:a").gets(":1");
    client.sends("MULTI").gets("+OK");
    client.sends("SETNX lock:a 1").gets("+QUEUED");
    client.sends("EXEC").gets("[:1]");
    assert!(watching.metric("lockwarden_unjudged_commands_total{why=\"no-scripts\"}") >= 3.0);
    let enforcing = ProxyBuilder::for_backend(&url).without_waiting().start();
    // On older servers the proxy uses no script that is declared as read-only.
    let why: &[&str] = match Server::under_test().lacks("a script that says that it only reads", 7, 0) {
        true => &["no EVALSHA"],
        false => &["the server runs no scripts", "scripts are not part of this plan"],
    };
    enforcing.logs(&[&["ERROR", "no client is served"], why].concat());
}

/// As Valkey 9.1 does in cluster mode after one script with a command over two slots, until it is started again.
#[test]
fn a_server_that_ceases_to_run_scripts_is_not_served_until_it_runs_them_again() {
    if Server::under_test().lacks("a script that says that it only reads", 7, 0) {
        return;
    }
    let (redis, refuses) = (Redis::start(), Arc::new(AtomicBool::new(false)));
    let url = format!("redis://{}", service_without_scripts(&redis, &refuses));
    let proxy = ProxyBuilder::for_backend(&url).start();
    proxy.client().sends("SET lock:a x NX PX 100").gets("+OK");
    refuses.store(true, Ordering::Relaxed);
    wait_for("nobody to be served", || proxy.ready() == Some(503));
    let why = "the server runs no scripts, without which no lock can be governed";
    proxy.logs(&["ERROR", "no client is served", why, "scripts are not part of this plan"]);
    let (_, said) = proxy.get("/ready");
    assert!(said.contains(why), "{said}");
    refuses.store(false, Ordering::Relaxed);
    wait_for("clients to be served again", || proxy.ready() == Some(200));
    proxy.client().sends("SET lock:b x NX PX 100").gets("+OK");
    assert_eq!(proxy.logged(&[why]), 1);
}
