//! TLS on both sides: which clients are let in, which errors occur, what a certificate says, and files that change
//! meanwhile.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lockwarden_tests::{
    Authority, Client, Issued, Proxy, ProxyBuilder, Redis, Server, Subject, Trust, lockwarden, run_to_end, wait_for,
};
use tempfile::TempDir;

/// A folder with what a listener shows, and what it asks of clients.
struct Place {
    folder: TempDir,
    authority: Authority,
    clients: Authority,
}

impl Place {
    fn new() -> Place {
        let place = Place {
            folder: tempfile::tempdir().expect("a folder"),
            authority: Authority::new("who issued the server's"),
            clients: Authority::new("who issues clients'"),
        };
        place.authority.issue(&Subject::server()).write(place.path(), "tls");
        place.put("clients.pem", &place.clients.pem());
        place
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn put(&self, name: &str, text: &str) {
        fs::write(self.path().join(name), text).expect("the folder is ours");
    }

    /// The end of a configuration with a listener that shows this, and these further lines.
    fn listener(&self, more: &str) -> String {
        let folder = self.path().display();
        format!(
            "[[listener]]\naddress = \"127.0.0.1:0\"\ntls = true\n\n\
             [tls]\ncert = \"{folder}/tls.crt\"\nkey = \"{folder}/tls.key\"\n{more}\n"
        )
    }

    /// The same that asks for certificates.
    fn asking(&self, want: &str) -> String {
        let folder = self.path().display();
        self.listener(&format!("client_ca = \"{folder}/clients.pem\"\nclient_cert = \"{want}\""))
    }

    fn trust(&self, own: Option<&Issued>) -> Trust {
        Trust::new(&self.authority, own)
    }
}

fn try_tls(proxy: &Proxy, trust: &Trust) -> std::io::Result<Client> {
    Client::try_tls(Ipv4Addr::LOCALHOST, proxy.tls_address(), trust)
}

/// Makes the proxy look at the files now.
fn reload(proxy: &Proxy) {
    let (status, said) = proxy.post("/reload");
    assert_eq!(status, 200, "{said}");
}

fn handshakes(side: &str, result: &str, resumed: bool) -> String {
    format!("lockwarden_tls_handshakes_total{{side=\"{side}\",result=\"{result}\",resumed=\"{resumed}\"}}")
}

#[test]
fn locks_are_governed_over_tls_on_both_sides() {
    if Server::under_test().lacks_tls() {
        return;
    }
    let redis = Redis::with_tls(&[]);
    let place = Place::new();
    let proxy = ProxyBuilder::for_backend(&redis.tls_url()).default_ttl("5s").more(&place.listener("")).start();
    let (one, other) = (
        Client::connect_tls(proxy.tls_address(), &place.trust(None)),
        Client::connect_tls(proxy.tls_address(), &place.trust(None)),
    );
    one.sends("SETNX lock:a 1").gets(":1");
    other.sends("SETNX lock:a 1").gets(":0");
    other.sends("DEL lock:a").gets(":0");
    // A client without TLS is governed by the same rules.
    proxy.client().sends("DEL lock:a").gets(":0");
    one.sends("DEL lock:a").gets(":1");
    let value = "x".repeat(3_000_000);
    one.sends_arguments(&["SET", "plain", &value]).gets("+OK");
    other.sends("GET plain").gets(format!("${} {value}", value.len()));
    proxy.counts(&handshakes("client", "ok", false), 2.0);
    // A client that hangs up has read what it was granted last.
    one.sends("SETNX lock:b 1").gets(":1");
    drop((one, other));
    wait_for("the clients to be gone", || proxy.metrics().find("lockwarden_client_connections") == Some(0.0));
    assert!(!proxy.log().contains("did not read"), "{}", proxy.log());
}

#[test]
fn a_grant_that_nobody_read_is_seen_over_tls_too() {
    let redis = Redis::start();
    let place = Place::new();
    let proxy = Proxy::builder(&redis).default_ttl("10s").more(&place.listener("")).start();
    let gone = Client::connect_tls(proxy.tls_address(), &place.trust(None));
    gone.write(b"SETNX lock:a 1\r\n");
    gone.leaves_a_reply_unread();
    drop(gone);
    let next = Client::connect_tls(proxy.tls_address(), &place.trust(None));
    wait_for("the grant to be taken for undelivered", || proxy.log().contains("did not read that it was granted"));
    next.sends("PING").gets("+PONG");
}

#[test]
fn who_is_let_in_depends_on_the_certificate_and_on_what_is_wanted() {
    let place = Place::new();
    let stranger = Authority::new("a stranger");
    let worker = Subject::named("worker").uri("spiffe://corp/ns/shop/worker");
    let shown: [(&str, Option<Issued>); 4] = [
        ("none", None),
        ("good", Some(place.clients.issue(&worker))),
        ("stranger", Some(stranger.issue(&worker))),
        ("ended", Some(place.clients.issue(&worker.clone().that_has_ended()))),
    ];
    let redis = Redis::start();
    let answers = [
        ("ask", ["ok", "ok", "unknown-ca", "expired"]),
        ("require", ["no-certificate", "ok", "unknown-ca", "expired"]),
    ];
    for (want, results) in answers {
        let proxy = Proxy::builder(&redis).more(&place.asking(want)).start();
        for ((name, own), result) in shown.iter().zip(results) {
            let before = proxy.metrics().find(&handshakes("client", result, false));
            let client = try_tls(&proxy, &place.trust(own.as_ref()));
            assert_eq!(client.is_ok(), result == "ok", "{want}, {name}");
            if let Ok(client) = client {
                client.sends("PING").gets("+PONG");
            }
            proxy.counts(&handshakes("client", result, false), before.unwrap_or(0.0) + 1.0);
        }
    }
    // A listener that wants none is shown none, whatever a client has.
    let proxy = Proxy::builder(&redis).more(&place.listener("")).start();
    for (_, own) in &shown {
        let client = try_tls(&proxy, &place.trust(own.as_ref())).expect("everybody is let in");
        client.sends("PING").gets("+PONG");
    }
}

#[test]
fn a_client_is_told_apart_and_called_by_the_name_in_its_certificate() {
    let redis = Redis::start();
    let place = Place::new();
    let names = [
        ("uri", "spiffe://corp/ns/shop/worker"),
        ("dns", "worker.shop.corp"),
        ("cn", "worker"),
        ("subject", "CN=worker"),
    ];
    let subject = Subject::named("worker")
        .dns("worker.shop.corp")
        .uri("spiffe://corp/ns/shop/worker")
        .uri("spiffe://corp/ns/shop/other");
    let own = place.clients.issue(&subject);
    for (by, name) in names {
        let more = place.asking("ask") + &format!("client_name = \"{by}\"\n");
        let proxy = Proxy::builder(&redis).more(&more).start();
        let client = try_tls(&proxy, &place.trust(Some(&own))).expect("it is let in");
        client.sends("SETNX lock:a 1").gets(":1");
        client.sends("DEL lock:a").gets(":1");
        let clients = proxy.api("connections");
        assert_eq!(clients["connections"][0]["client"]["certificate"], name, "{clients}");
    }
    // By its common name, unless the configuration says otherwise. A certificate without one is good, and names no
    // client.
    let proxy = Proxy::builder(&redis).more(&place.asking("require")).start();
    let client = try_tls(&proxy, &place.trust(Some(&own))).expect("it is let in");
    client.sends("PING").gets("+PONG");
    let clients = proxy.api("connections");
    assert_eq!(clients["connections"][0]["client"]["certificate"], "worker");
    drop(client);
    let warning = "a client's certificate has no name of the kind that client_name asks for";
    assert_eq!(proxy.logged(&[warning]), 0);
    let nameless = Subject::named("").uri("spiffe://corp/ns/shop/worker");
    let nameless = place.clients.issue(&nameless);
    let client = try_tls(&proxy, &place.trust(Some(&nameless))).expect("it is let in");
    client.sends("PING").gets("+PONG");
    proxy.logs(&[warning, "\"client_name\":\"cn\"", "\"times\":1"]);
    drop(client);

    // Two certificates at one address are two clients.
    let proxy = Proxy::builder(&redis).default_ttl("5s").more(&place.asking("require")).start();
    let billing = place.clients.issue(&Subject::named("billing").uri("spiffe://corp/ns/billing/worker"));
    let shop = try_tls(&proxy, &place.trust(Some(&own))).expect("it is let in");
    shop.sends("SETNX lock:job 1").gets(":1");
    let billing = try_tls(&proxy, &place.trust(Some(&billing))).expect("it is let in");
    billing.sends("DEL lock:job").gets(":0");
    shop.sends("DEL lock:job").gets(":1");
}

/// The first bytes of a client that speaks TLS 1.1 and nothing newer.
fn hello_of_tls_1_1() -> Vec<u8> {
    let mut body = vec![3, 2];
    body.extend([7; 32]);
    // No session, one cipher (TLS_RSA_WITH_AES_128_CBC_SHA), no compression, no extension.
    body.extend([0, 0, 2, 0, 0x2f, 1, 0]);
    let length = body.len() as u8;
    let mut hello = vec![22, 3, 1, 0, length + 4, 1, 0, 0, length];
    hello.extend(body);
    hello
}

#[test]
fn what_is_no_tls_or_an_old_one_is_closed_and_counted() {
    let redis = Redis::start();
    let place = Place::new();
    let proxy = Proxy::builder(&redis).more(&place.listener("")).start();
    let hears = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(proxy.tls_address()).expect("it listens");
        stream.write_all(bytes).expect("it takes them");
        let within = Some(Duration::from_secs(5));
        stream.set_read_timeout(within).expect("not zero");
        let mut heard = Vec::new();
        let _ = stream.read_to_end(&mut heard);
        heard
    };
    assert_eq!(hears(b"*1\r\n$4\r\nPING\r\n"), b"");
    assert_eq!(hears(b"PING\r\n"), b"");
    let no_tls = "lockwarden_protocol_errors_total{side=\"client\",kind=\"no-tls\"}";
    proxy.counts(no_tls, 2.0);
    proxy.logs(&["TLS handshake failed", "the other end does not speak TLS"]);
    // An alert (21): nothing in common (40).
    let alert = hears(&hello_of_tls_1_1());
    assert_eq!((alert.first(), alert.last()), (Some(&21), Some(&40)));
    hears(b"\x16\x03\x01\x00\x05hello");
    proxy.counts(&handshakes("client", "protocol", false), 4.0);
    // A client that only checks whether the port is open has not failed.
    drop(TcpStream::connect(proxy.tls_address()));
    // The other way round.
    let trust = place.trust(None);
    assert!(Client::try_tls(Ipv4Addr::LOCALHOST, proxy.address(), &trust).is_err());
    proxy.counts("lockwarden_protocol_errors_total{side=\"client\",kind=\"tls\"}", 1.0);
    proxy.logs(&["TLS, which is not spoken here"]);
    proxy.counts(&handshakes("client", "other", false), 0.0);
}

/// Hands bytes on one at a time, which cuts every record at every byte.
fn dribbling(to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        let (near, _) = listener.accept().expect("the test connects");
        let far = TcpStream::connect(to).expect("the proxy listens");
        for socket in [&near, &far] {
            socket.set_nodelay(true).expect("a TCP socket");
        }
        let copy = |mut from: TcpStream, mut to: TcpStream| {
            let mut byte = [0];
            while matches!(from.read(&mut byte), Ok(1)) && to.write_all(&byte).is_ok() {}
        };
        let pair = (near.try_clone().expect("a descriptor"), far.try_clone().expect("one"));
        thread::spawn(move || copy(pair.1, pair.0));
        copy(near, far);
    });
    address
}

#[test]
fn records_may_be_cut_anywhere() {
    if Server::under_test().lacks_tls() {
        return;
    }
    let redis = Redis::with_tls(&[]);
    let place = Place::new();
    let backend = dribbling_all(redis.tls_address());
    let proxy = ProxyBuilder::for_backend(&format!("rediss://{backend}")).more(&place.listener("")).start();
    let client = Client::connect_tls(dribbling(proxy.tls_address()), &place.trust(None));
    client.sends("SET plain value").gets("+OK");
    client.pipelines(&["GET plain", "PING", "GET plain"], &["$5 value", "+PONG", "$5 value"]);
}

/// The same for many connections.
fn dribbling_all(to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        while let Ok((mut near, _)) = listener.accept() {
            thread::spawn(move || {
                let one = dribbling(to);
                let far = TcpStream::connect(one).expect("it listens");
                let mut back = (far.try_clone().expect("one"), near.try_clone().expect("one"));
                thread::spawn(move || std::io::copy(&mut back.0, &mut back.1));
                let mut far = far;
                let _ = std::io::copy(&mut near, &mut far);
            });
        }
    });
    address
}

/// Passes on the bytes of a client, but changes one of them.
fn garbling(to: SocketAddr, at: usize) -> (SocketAddr, thread::JoinHandle<()>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    let relay = thread::spawn(move || {
        let (mut near, _) = listener.accept().expect("the test connects");
        let mut far = TcpStream::connect(to).expect("the proxy listens");
        let mut back = (far.try_clone().expect("one"), near.try_clone().expect("one"));
        let hearing = thread::spawn(move || {
            let _ = std::io::copy(&mut back.0, &mut back.1);
            let _ = back.1.shutdown(Shutdown::Both);
        });
        let (mut chunk, mut passed) = ([0; 4096], 0);
        while let Ok(length @ 1..) = near.read(&mut chunk) {
            if let Some(byte) = at.checked_sub(passed).and_then(|at| chunk[..length].get_mut(at)) {
                *byte ^= 0x21;
            }
            passed += length;
            if far.write_all(&chunk[..length]).is_err() {
                break;
            }
        }
        let _ = far.shutdown(Shutdown::Both);
        hearing.join().expect("it does not panic");
    });
    (address, relay)
}

#[test]
fn a_handshake_with_one_wrong_byte_fails_and_harms_nobody() {
    let redis = Redis::start();
    let place = Place::new();
    let own = place.clients.issue(&Subject::named("worker").dns("worker.corp"));
    let proxy = Proxy::builder(&redis).more(&place.asking("require")).start();
    let staying = try_tls(&proxy, &place.trust(Some(&own))).expect("it is let in");
    for trust in [place.trust(Some(&own)), place.trust(Some(&own)).of_tls_1_2()] {
        // Behind the handshake, at the end, are the first requests.
        for at in (0..1100).step_by(7) {
            let (relay, done) = garbling(proxy.tls_address(), at);
            let client = Client::try_tls(Ipv4Addr::LOCALHOST, relay, &trust.without_resumption());
            if let Ok(client) = client {
                client.write(b"PING\r\nPING\r\n");
                drop(client);
            }
            done.join().expect("it does not panic");
        }
    }
    staying.sends("PING").gets("+PONG");
    wait_for("the clients to be gone", || proxy.metrics().find("lockwarden_client_connections") == Some(1.0));
    assert_eq!(proxy.logged(&["a part of the proxy failed"]), 0);
}

#[test]
fn a_peer_that_vanishes_in_the_middle_of_a_record_harms_nobody() {
    let redis = Redis::start();
    let place = Place::new();
    let proxy = Proxy::builder(&redis).more(&place.listener("")).start();
    let client = Client::connect_tls(proxy.tls_address(), &place.trust(None));
    for length in [1, 4, 5, 6, 300, 16_000] {
        let mut stream = TcpStream::connect(proxy.tls_address()).expect("it listens");
        let mut record = vec![22, 3, 1, 64, 0];
        record.resize(length, 7);
        stream.write_all(&record).expect("it takes them");
    }
    for length in [1, 5, 6, 20] {
        // Behind a good handshake: the beginning of a record that never ends.
        let vanishing = Client::connect_tls(proxy.tls_address(), &place.trust(None));
        vanishing.sends("PING").gets("+PONG");
        let mut cut = vec![23, 3, 3, 1, 0];
        cut.resize(length, 7);
        vanishing.write_below_tls(&cut);
        drop(vanishing);
    }
    // One that breaks the cipher is closed.
    let broken = Client::connect_tls(proxy.tls_address(), &place.trust(None));
    broken.write_below_tls(&[&[23, 3, 3, 0, 40], &[7; 40][..]].concat());
    broken.then().gets_close();
    wait_for("the clients to be gone", || proxy.metrics().find("lockwarden_client_connections") == Some(1.0));
    client.sends("PING").gets("+PONG");
}

#[test]
fn sessions_are_resumed_until_the_authority_of_clients_changes() {
    let redis = Redis::start();
    let place = Place::new();
    let own = place.clients.issue(&Subject::named("worker"));
    let proxy = Proxy::builder(&redis).more(&place.asking("require")).start();
    let trust = place.trust(Some(&own));
    let first = try_tls(&proxy, &trust).expect("it is let in");
    assert!(!first.was_resumed());
    assert!(try_tls(&proxy, &trust).expect("it is let in").was_resumed());
    proxy.counts(&handshakes("client", "ok", true), 1.0);
    // Another certificate for the proxy leaves sessions as they are.
    place.authority.issue(&Subject::server()).write(place.path(), "tls");
    reload(&proxy);
    assert!(try_tls(&proxy, &trust).expect("it is let in").was_resumed());
    place.put("clients.pem", &Authority::new("another one").pem());
    reload(&proxy);
    assert!(try_tls(&proxy, &trust).is_err());
    proxy.counts(&handshakes("client", "unknown-ca", false), 1.0);
    // No connection was closed for it.
    first.sends("PING").gets("+PONG");
}

#[test]
fn a_new_certificate_is_taken_while_clients_come_and_go() {
    let redis = Redis::start();
    let place = Place::new();
    // As Kubernetes puts files in place: a link to a folder is turned round.
    let put = |name: &str, issued: &Issued| {
        let folder = place.path().join(name);
        fs::create_dir(&folder).expect("the folder is ours");
        issued.write(&folder, "tls");
        let next = place.path().join("..next");
        symlink(name, &next).expect("a link");
        fs::rename(&next, place.path().join("..data")).expect("in one step");
    };
    put("..1", &place.authority.issue(&Subject::server()));
    for file in ["tls.crt", "tls.key"] {
        let path = place.path().join(file);
        fs::remove_file(&path).expect("it is there");
        symlink(Path::new("..data").join(file), path).expect("a link");
    }
    let proxy = Proxy::builder(&redis).more(&place.listener("")).start();
    let (old, new) = (place.trust(None).without_resumption(), Authority::new("the next one"));
    let new_trust = Trust::new(&new, None).without_resumption();
    let staying = try_tls(&proxy, &old).expect("it is let in");
    let (stop, dropped, done) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let client = try_tls(&proxy, &old).or_else(|_| try_tls(&proxy, &new_trust));
                match client {
                    Ok(client) => client.sends("PING").gets("+PONG"),
                    Err(_) => drop(dropped.fetch_add(1, Ordering::Relaxed)),
                }
                done.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(20));
            }
        });
        let began = Instant::now();
        put("..2", &new.issue(&Subject::server()));
        wait_for_long("the new certificate", || try_tls(&proxy, &new_trust).is_ok());
        let took = began.elapsed();
        stop.store(true, Ordering::Relaxed);
        eprintln!("taken after {took:?}");
    });
    assert_eq!(dropped.load(Ordering::Relaxed), 0);
    assert!(done.load(Ordering::Relaxed) > 10);
    assert!(try_tls(&proxy, &old).is_err());
    staying.sends("PING").gets("+PONG");
    proxy.logs(&["new connections use the certificates as they are now"]);
}

/// The proxy looks at the files every ten seconds only, so this waits for up to a minute.
fn wait_for_long(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < until, "{what} did not come");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_certificate_that_ends_soon_is_a_warning_of_check() {
    let redis = Redis::start();
    let place = Place::new();
    let config = place.path().join("lockwarden.toml");
    let text = format!("backend = \"{}\"\n{}", redis.url(), place.asking("require"));
    fs::write(&config, &text).expect("the folder is ours");
    let checked = || {
        let config = config.to_str().expect("UTF-8");
        run_to_end(&mut lockwarden(&["check", "--config", config]))
    };
    let said = checked();
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(!said.stdout.contains("renew"), "{said:?}");
    let day = Duration::from_secs(86_400);
    for (days, warned) in [(15, false), (13, true)] {
        let soon = Subject::server().that_lasts(day * days);
        place.authority.issue(&soon).write(place.path(), "tls");
        let said = checked();
        assert_eq!(said.code, Some(0), "{said:?}");
        let found = said.stdout.contains("warning: tls: cert ends 20");
        assert_eq!(found, warned, "{days} days: {said:?}");
    }
}

#[test]
fn files_that_cannot_be_used_keep_the_proxy_from_starting_and_change_nothing_later() {
    let redis = Redis::start();
    let place = Place::new();
    let other = place.authority.issue(&Subject::server());
    let ended = place.authority.issue(&Subject::server().that_has_ended());
    let config = place.path().join("lockwarden.toml");
    let text = format!("backend = \"{}\"\n{}", redis.url(), place.asking("require"));
    fs::write(&config, &text).expect("the folder is ours");
    let good = ["tls.crt", "tls.key", "clients.pem"].map(|name| {
        let path = place.path().join(name);
        (name, fs::read_to_string(path).expect("it is there"))
    });
    let ending = |name: &str| format!("{}/{name}", place.path().display());
    let cases = [
        ("tls.key", other.key.as_str(), format!("tls: key does not belong to cert ({})", ending("tls.crt"))),
        (
            "tls.crt",
            "",
            format!(
                "tls: cert: there is no certificate in {}; it has to be PEM text, with BEGIN CERTIFICATE",
                ending("tls.crt")
            ),
        ),
        (
            "tls.key",
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
            format!(
                "tls: key: there is no private key in {}; it has to be PEM text, with BEGIN PRIVATE KEY, and without a password",
                ending("tls.key")
            ),
        ),
        ("tls.crt", &ended.cert, format!("tls: cert ended 2021-01-01T00:00:00Z ({})", ending("tls.crt"))),
        (
            "clients.pem",
            "nothing",
            format!(
                "tls: client_ca: there is no certificate in {}; it has to be PEM text, with BEGIN CERTIFICATE",
                ending("clients.pem")
            ),
        ),
    ];
    for (name, bad, expected) in &cases {
        place.put(name, bad);
        let checked = run_to_end(lockwarden(&["check", "--config"]).arg(&config));
        assert_eq!(checked.code, Some(2), "{name}");
        let said = checked.stdout;
        assert!(said.contains(expected), "{said}\n is not\n{expected}");
        for (name, text) in &good {
            place.put(name, text);
        }
    }
    let proxy = Proxy::builder(&redis).more(&place.listener("")).start();
    let successful = "lockwarden_tls_reload_last_successful";
    proxy.counts(successful, 1.0);
    place.put("tls.key", &other.key);
    let (status, _) = proxy.post("/reload");
    assert_ne!(status, 200);
    proxy.counts(successful, 0.0);
    proxy.logs(&["certificates were not read again; those from before stay in use"]);
    try_tls(&proxy, &place.trust(None)).expect("the old one is shown");
    other.write(place.path(), "tls");
    reload(&proxy);
    proxy.counts(successful, 1.0);
    try_tls(&proxy, &place.trust(None)).expect("the new one is shown");
}

#[test]
fn the_backend_has_to_be_who_it_should_be() {
    if Server::under_test().lacks_tls() {
        return;
    }
    let redis = Redis::with_tls(&["--tls-auth-clients", "yes"]);
    let folder = tempfile::tempdir().expect("a folder");
    let put = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("the folder is ours");
    };
    put("ca.pem", &Authority::of_harness().pem());
    put("other.pem", &Authority::new("another one").pem());
    Authority::of_harness().issue(&Subject::named("lockwarden")).write(folder.path(), "own");
    let check = |backend: &str, table: &str| {
        let config = folder.path().join("lockwarden.toml");
        fs::write(&config, format!("backend = \"{backend}\"\n[backend_tls]\n{table}\n")).expect("the folder is ours");
        let checked = run_to_end(lockwarden(&["check", "--backend", "--config"]).arg(&config));
        checked.stdout
    };
    let port = redis.tls_address().port();
    let own = "cert = \"own.crt\"\nkey = \"own.key\"";
    let url = redis.tls_url();
    for (backend, table, expected) in [
        (url.as_str(), format!("ca = \"ca.pem\"\n{own}"), "answers, redis"),
        (&url, format!("ca = \"other.pem\"\n{own}"), "issued by nobody"),
        (&url, "ca = \"ca.pem\"".to_owned(), "the backend broke"),
        (
            &format!("rediss://localhost.localdomain:{port}"),
            format!("ca = \"ca.pem\"\nserver_name = \"localhost\"\n{own}"),
            "",
        ),
        (&url, format!("ca = \"ca.pem\"\nserver_name = \"cache.corp\"\n{own}"), "not valid for name"),
        (&url, format!("ca = \"ca.pem\"\nserver_name = \"cache.corp\"\nverify = \"ca\"\n{own}"), "answers, redis"),
        (&url, format!("ca = \"other.pem\"\nverify = \"ca\"\n{own}"), "issued by nobody"),
        (&format!("redis://127.0.0.1:{port}"), String::new(), "if it speaks TLS at this port, write rediss://"),
    ] {
        let said = check(backend, &table);
        assert!(said.contains(expected), "{backend} {table}: {said}");
    }
}

#[test]
fn the_page_says_when_certificates_end() {
    if Server::under_test().lacks_tls() {
        return;
    }
    let redis = Redis::with_tls(&[]);
    let place = Place::new();
    let proxy = ProxyBuilder::for_backend(&redis.tls_url()).more(&place.asking("require")).start();
    let metrics = proxy.metrics();
    for (side, role, is_there) in
        [("client", "own", true), ("client", "ca", true), ("backend", "ca", true), ("backend", "own", false)]
    {
        let series = format!("lockwarden_tls_certificate_expiry_timestamp_seconds{{side=\"{side}\",role=\"{role}\"}}");
        assert_eq!(metrics.find(&series).is_some(), is_there, "{series}");
    }
}

#[test]
fn a_balancer_that_hands_tls_through_says_before_it_who_comes() {
    let redis = Redis::start();
    let place = Place::new();
    let proxy = Proxy::builder(&redis).top("proxy_protocol_from", "[\"127.0.0.1\"]").more(&place.listener("")).start();
    let balancer = relaying_behind(b"PROXY TCP4 203.0.113.9 10.0.0.1 40000 6380\r\n", proxy.tls_address());
    let client = Client::connect_tls(balancer, &place.trust(None));
    client.sends("SETNX lock:a 1").gets(":1");
    let connections = proxy.api("connections");
    let address = &connections["connections"][0]["client"]["address"];
    assert_eq!(address, "203.0.113.9:40000", "{connections}");
}

/// Sends this first, and then passes everything on, both ways.
fn relaying_behind(header: &'static [u8], to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        let (mut near, _) = listener.accept().expect("the test connects");
        let mut far = TcpStream::connect(to).expect("the proxy listens");
        far.write_all(header).expect("it takes them");
        let mut back = (far.try_clone().expect("one"), near.try_clone().expect("one"));
        thread::spawn(move || std::io::copy(&mut back.0, &mut back.1));
        let _ = std::io::copy(&mut near, &mut far);
    });
    address
}

/// Bytes of memory that the process has.
fn memory(proxy: &Proxy) -> f64 {
    proxy.metric("process_resident_memory_bytes")
}

#[test]
fn an_idle_connection_with_tls_has_no_buffers() {
    const CLIENTS: usize = 1000;
    /// The memory that rustls keeps for a session, and the allocator's rounding.
    const MOST: f64 = 6.0 * 1024.0;
    let redis = Redis::with_arguments(&["--maxclients", "5000"]);
    let place = Place::new();
    let proxy = Proxy::builder(&redis).descriptors(8000).more(&place.listener("")).start();
    let trust = place.trust(None);
    // The first clients of each kind have a one-time cost.
    let mut kept: Vec<Client> =
        (0..50).flat_map(|_| [proxy.client(), Client::connect_tls(proxy.tls_address(), &trust)]).collect();
    for client in &kept {
        client.sends("PING").gets("+PONG");
    }
    let mut cost = |connect: &dyn Fn() -> Client| {
        let before = memory(&proxy);
        for _ in 0..CLIENTS {
            let client = connect();
            client.sends("PING").gets("+PONG");
            kept.push(client);
        }
        (memory(&proxy) - before) / CLIENTS as f64
    };
    let plain = cost(&|| proxy.client());
    let tls = cost(&|| Client::connect_tls(proxy.tls_address(), &trust));
    eprintln!("an idle connection: {plain:.0} bytes, with TLS {tls:.0}");
    assert!(tls - plain <= MOST, "{tls:.0} with TLS, {plain:.0} without");
}

/// A connection that a thread keeps for the next client says goodbye when the thread ends.
#[test]
fn a_proxy_that_keeps_connections_with_tls_for_others_ends_well() {
    let redis = Redis::with_tls(&[]);
    let proxy = ProxyBuilder::for_backend(&redis.tls_url()).multiplexed().start();
    let client = proxy.client();
    client.pipelines(&["MULTI", "SET data x", "EXEC"], &["+OK", "+QUEUED", "[+OK]"]);
    client.sends("GET data").gets("$1 x");
    assert_eq!(proxy.stop(), Some(0));
}
