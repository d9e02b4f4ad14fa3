//! Another server behind the same name. The proxy notices it by the role of the server, not by the end of its
//! connection: a virtual address keeps old connections open, and a server that was made a replica in place
//! closes none.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use lockwarden_tests::{Forwarder, Proxy, ProxyBuilder, Redis, lockwarden, run_to_end, wait_for};

const DEMOTED: &str = "lockwarden_backend_reconnects_total{reason=\"demoted\"}";
const RENEWED: &str = "lockwarden_keep_alive_renewals_total{outcome=\"renewed\"}";

/// A primary, its replica, and the address that leads to the primary.
struct Pair {
    old: Redis,
    new: Redis,
    address: Forwarder,
}

impl Pair {
    fn start() -> Pair {
        let (old, new) = (Redis::start(), Redis::start());
        follows(&new, &old);
        let address = Forwarder::to(old.address());
        Pair { old, new, address }
    }

    fn builder(&self) -> ProxyBuilder {
        ProxyBuilder::for_backend(&format!("redis://{}", self.address.address())).default_ttl("4s")
    }

    /// The replica becomes the primary, and new connections lead to it; what is open stays open.
    #[track_caller]
    fn switches(&self) {
        self.old.client().sends("CLIENT PAUSE 60000 WRITE").gets("+OK");
        wait_for("the replica to have everything", || {
            offset(&self.old, "master_repl_offset:") == offset(&self.new, "slave_repl_offset:")
        });
        self.new.client().sends("REPLICAOF NO ONE").gets("+OK");
        let old = self.old.client();
        let port = self.new.address().port();
        old.sends(format!("REPLICAOF 127.0.0.1 {port}")).gets("+OK");
        self.address.leads_to(self.new.address());
        old.sends("CLIENT UNPAUSE").gets("+OK");
    }
}

#[track_caller]
fn follows(replica: &Redis, primary: &Redis) {
    let port = primary.address().port();
    let client = replica.client();
    client.sends(format!("REPLICAOF 127.0.0.1 {port}")).gets("+OK");
    wait_for("the replica to be linked", || {
        let info = client.sends("INFO replication").text();
        info.contains("master_link_status:up")
    });
}

fn offset(redis: &Redis, field: &str) -> Option<String> {
    let info = redis.client().sends("INFO replication").text();
    let mut lines = info.lines();
    lines.find_map(|line| Some(line.strip_prefix(field)?.to_owned()))
}

#[track_caller]
fn becomes(proxy: &Proxy, status: u16) {
    wait_for(&format!("/ready to answer {status}"), || proxy.ready() == Some(status));
}

#[track_caller]
fn has_moved(proxy: &Proxy) {
    wait_for("the proxy to leave the old primary", || proxy.metric(DEMOTED) > 0.0);
    becomes(proxy, 200);
}

#[test]
fn a_backend_that_becomes_a_replica_in_place_is_not_served() {
    for renamed in [
        &[][..],
        &["--rename-command", "HELLO", ""],
        &["--rename-command", "HELLO", "", "--rename-command", "ROLE", ""],
    ] {
        let primary = Redis::start();
        let redis = Redis::with_arguments(renamed);
        let proxy = Proxy::enforcing(&redis);
        proxy.client().sends("SETNX lock:job a1").gets(":1");
        follows(&redis, &primary);
        becomes(&proxy, 503);
        let (_, why) = proxy.get("/ready");
        assert!(why.contains("replica"), "{why}");
        proxy.logs(&["ERROR", "no client is served", "replica"]);
        assert!(proxy.metric(DEMOTED) >= 1.0, "{renamed:?}");
        assert_eq!(proxy.metric("lockwarden_backend_up"), 0.0);
        proxy.client().sends("GET plain").gets_close();

        redis.client().sends("REPLICAOF NO ONE").gets("+OK");
        becomes(&proxy, 200);
        proxy.client().sends("SETNX lock:other a1").gets(":1");
        assert_eq!(proxy.logged(&["the backend is a replica"]), 1);
    }
}

#[test]
fn a_replica_that_takes_writes_is_no_authority_either() {
    let primary = Redis::start();
    let redis = Redis::with_arguments(&["--replica-read-only", "no"]);
    follows(&redis, &primary);
    redis.client().sends("SET written here").gets("+OK");
    let proxy = Proxy::builder(&redis).without_waiting().start();
    proxy.logs(&["ERROR", "no client is served", "the backend is a replica that takes writes"]);
    assert_eq!(proxy.ready(), Some(503));
    is_doubted(&redis.url(), "the backend is a replica that takes writes");
}

/// It would go on granting locks to clients that are already connected.
#[test]
fn a_backend_that_becomes_a_replica_that_takes_writes_is_left_by_all() {
    let primary = Redis::start();
    let redis = Redis::with_arguments(&["--replica-read-only", "no"]);
    let proxy = Proxy::enforcing(&redis);
    let alice = proxy.client();
    alice.sends("SETNX lock:job a1").gets(":1");
    follows(&redis, &primary);
    becomes(&proxy, 503);
    alice.sends("SETNX lock:other a1").gets_close();
    assert!(redis.is_free("lock:other"));
}

/// Both of them take writes and copy them to each other, so a lock would be granted on each at the same moment.
#[test]
fn an_active_replica_is_no_authority_whichever_question_it_answers() {
    let redis = Redis::start();
    for asked in ["HELLO", "ROLE", "INFO"] {
        let url = format!("redis://{}", active_replica(&redis, asked));
        let proxy = ProxyBuilder::for_backend(&url).without_waiting().start();
        proxy.logs(&["ERROR", "no client is served", "the backend is a replica that takes writes"]);
        assert_eq!(proxy.ready(), Some(503), "{asked}");
        is_doubted(&url, "the backend is a replica that takes writes");
    }
}

#[track_caller]
fn is_doubted(url: &str, words: &str) {
    let directory = tempfile::tempdir().expect("a directory for the configuration");
    let config = directory.path().join("lw.toml");
    std::fs::write(&config, ProxyBuilder::for_backend(url).text()).expect("the directory is ours");
    let check = run_to_end(lockwarden(&["check", "--backend", "--config"]).arg(&config));
    assert_eq!(check.code, Some(1), "{}", check.stdout);
    assert!(check.stdout.contains(words), "{}", check.stdout);
}

/// A server that says of itself, to this question alone, that it is one, as KeyDB does with `active-replica yes`.
fn active_replica(redis: &Redis, answered: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let (address, redis) = (listener.local_addr().expect("it is bound"), redis.address());
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || says_that_it_is_active(client, redis, answered));
        }
    });
    address
}

fn says_that_it_is_active(mut client: TcpStream, redis: SocketAddr, answered: &str) -> std::io::Result<()> {
    let mut server = TcpStream::connect(redis)?;
    let (mut replies, mut back) = (server.try_clone()?, client.try_clone()?);
    thread::spawn(move || std::io::copy(&mut replies, &mut back));
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = client.read(&mut buffer)?;
        let words = String::from_utf8_lossy(&buffer[..read]);
        let asked = ["HELLO", "ROLE", "INFO"].into_iter().find(|word| words.contains(&format!("\r\n{word}\r\n")));
        // The proxy's request comes in one piece, and nothing else with it.
        match asked {
            _ if read == 0 => return server.shutdown(Shutdown::Both),
            Some("HELLO") if answered == "HELLO" => {
                client
                    .write_all(b"*4\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$14\r\nactive-replica\r\n")?;
            }
            Some("ROLE") if answered == "ROLE" => client.write_all(b"*1\r\n$14\r\nactive-replica\r\n")?,
            Some("INFO") if answered == "INFO" => client.write_all(b"$21\r\nrole:active-replica\r\n\r\n")?,
            Some(word) => client.write_all(format!("-ERR unknown command '{word}'\r\n").as_bytes())?,
            None => server.write_all(&buffer[..read])?,
        }
    }
}

/// The proxy renews leases over its own connection, which must not stay with a server that takes no writes.
#[test]
fn kept_leases_outlive_a_failover_behind_one_address() {
    for sessions in ["dedicated", "multiplexed"] {
        let pair = Pair::start();
        let proxy = pair.builder().top("sessions", &format!("\"{sessions}\"")).start();
        let alice = proxy.client();
        alice.sends("SETNX lock:job a1").gets(":1");
        let fence = pair.old.fence("lock:job");
        pair.switches();
        has_moved(&proxy);
        assert_eq!(pair.new.fence("lock:job"), fence, "it was not lost meanwhile");
        let before = proxy.metric(RENEWED);
        wait_for("renewals on the new primary", || proxy.metric(RENEWED) >= before + 2.0);
        assert!(!pair.new.is_free("lock:job"), "{sessions}");
        assert_eq!(pair.new.fence("lock:job"), fence);

        let bob = proxy.client();
        bob.sends("SETNX lock:job b1").gets(":0");
        bob.sends("SET plain 1").gets("+OK");
        assert_eq!(pair.new.value("plain"), "$1 1");
    }
}

#[test]
fn a_client_on_a_connection_to_the_old_primary_is_closed_after_the_reply_to_its_write() {
    for write in ["SET plain 1", "SETNX lock:other a1", "EVAL \"return redis.call('INCR', KEYS[1])\" 1 n"] {
        let pair = Pair::start();
        let proxy = pair.builder().top("sessions", "\"dedicated\"").start();
        let (alice, reader) = (proxy.client(), proxy.client());
        reader.sends("GET plain").gets("nil");
        alice.sends("PING").gets("+PONG");
        pair.switches();
        has_moved(&proxy);
        let error = alice.sends(write).reply().to_string();
        assert!(error.contains("READONLY"), "{write}: {error}");
        alice.then().gets_close();
        // A client that only reads stays where it was, as without a proxy.
        reader.sends("GET plain").gets("nil");
        let again = proxy.client();
        again.sends("SET plain 1").gets("+OK");
    }
}

/// In order: earlier requests of the same write get their replies first.
#[test]
fn a_pipeline_to_the_old_primary_is_answered_to_its_end() {
    let pair = Pair::start();
    let proxy = pair.builder().top("sessions", "\"dedicated\"").start();
    let alice = proxy.client();
    alice.sends("PING").gets("+PONG");
    pair.switches();
    has_moved(&proxy);
    const READONLY: &str = "-READONLY You can't write against a read only replica.";
    alice.pipelines(
        &["INCR n", "PING", "MULTI", "INCR n", "DISCARD", "PING"],
        &[READONLY, "+PONG", "+OK", READONLY, "+OK", "+PONG"],
    );
    alice.then().gets_close();
}

#[test]
fn an_error_that_a_script_made_up_closes_nobody() {
    let redis = Redis::start();
    for sessions in ["dedicated", "multiplexed"] {
        let proxy = Proxy::builder(&redis).top("sessions", &format!("\"{sessions}\"")).start();
        let alice = proxy.client();
        for _ in 0..3 {
            let made_up = "EVAL \"return redis.error_reply('READONLY made up')\" 0";
            alice.sends(made_up).gets_error("READONLY");
        }
        alice.sends("PING").gets("+PONG");
        assert_eq!(proxy.metric(DEMOTED), 0.0);
    }
}

/// The shared connections of the proxy lead to the old primary until they are left.
#[test]
fn clients_that_share_connections_go_on_at_the_new_primary() {
    let pair = Pair::start();
    let proxy = pair.builder().multiplexed().start();
    let clients: Vec<_> = (0..10).map(|_| proxy.client()).collect();
    for client in &clients {
        client.sends("INCR n").reply();
    }
    // One keeps a connection of its own beside the shared one.
    clients[0].sends("CLIENT SETNAME first").gets("+OK");
    clients[0].sends("PING").gets("+PONG");
    pair.switches();
    has_moved(&proxy);
    for client in &clients {
        client.sends("INCR n").reply().integer();
    }
    proxy.client().sends("INCR n").gets(":21");
    assert_eq!(pair.new.value("n"), "$2 21");
}

#[test]
fn renewals_that_fail_are_told_once_and_not_each_time() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let holders: Vec<_> = (0..20).map(|_| proxy.client()).collect();
    for (at, holder) in holders.iter().enumerate() {
        holder.sends(format!("SETNX lock:{at} a1")).gets(":1");
    }
    let rights = "ACL SETUSER default -eval -evalsha";
    redis.client().sends(rights).gets("+OK");
    proxy.logs(&["WARN", "leases could not be renewed", "NOPERM"]);
    for at in 0..holders.len() {
        redis.becomes_free(&format!("lock:{at}"));
    }
    assert_eq!(proxy.logged(&["leases could not be renewed"]), 1);
}
