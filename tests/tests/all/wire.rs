//! Bytes that are no command, commands that are written by hand, and floods.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use lockwarden_tests::{Client, PATIENCE, Proxy, ProxyBuilder, Redis, encode};

/// Not in the one form that is relayed: a protocol error, and the connection ends.
const MALFORMED: &[&[u8]] = &[
    b"*1\r\n$-1\r\n",
    b"*-0\r\n",
    b"*+1\r\n$4\r\nPING\r\n",
    b"*01\r\n$4\r\nPING\r\n",
    b"* 1\r\n$4\r\nPING\r\n",
    b"*1 \r\n$4\r\nPING\r\n",
    b"*x\r\n",
    b"*1\r\n$+4\r\nPING\r\n",
    b"*1\r\n$04\r\nPING\r\n",
    b"*1\r\n$4 \r\nPING\r\n",
    b"*1\r\n$x\r\n",
    b"*1\n$4\nPING\n",
    b"*1\r\n$4\nPING\r\n",
    b"*1\r\n$4\r\nPINGxx",
    b"*1\r\n$4\r\nPING\n\n",
    b"*1\r\n*1\r\n$4\r\nPING\r\n",
    b"*1\r\n:4\r\n",
    b"*1\r\n+PING\r\n",
    b"*2147483648\r\n",
    b"*99999999999999999999\r\n",
    b"*1\r\n$536870913\r\n",
    b"*1\r\n$99999999999999999999\r\n",
    b"+PING\r\n",
    b":1\r\n",
    b"%1\r\n",
    b"~1\r\n",
    b"_\r\n",
    b"SET \"a\r\n",
    b"SET 'a\r\n",
    b"SET \"a\"b c\r\n",
    b"SET a\x00b c\r\n",
];

#[test]
fn malformed_frames_end_their_connection_and_nobody_elses() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let other = proxy.client();
    other.sends("SETNX lock:job a1").gets(":1");
    for bytes in MALFORMED {
        let client = proxy.client();
        // Commands after the first error are never executed.
        let mut sent = bytes.to_vec();
        sent.extend_from_slice(b"\r\n");
        sent.extend(encode(&["SET", "canary", "dead"]));
        client.sends_bytes(&sent).gets_error("ERR Protocol error");
        client.then().gets_close();
        assert!(redis.is_free("canary"), "{}", bytes.escape_ascii());
        other.sends("PING").gets("+PONG");
    }
    proxy.counts("lockwarden_protocol_errors_total", MALFORMED.len() as f64);
    // More elements, or a longer one, than there may be.
    let limits = "lockwarden_protocol_errors_total{side=\"client\",kind=\"limit\"}";
    assert_eq!(proxy.metric(limits), 4.0);
    other.sends("DEL lock:job").gets(":1");
}

#[test]
fn what_was_sent_before_a_malformed_frame_is_answered() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let client = proxy.client();
    let mut bytes = encode(&["SETNX", "lock:job", "a1"]);
    bytes.extend(encode(&["PING"]));
    bytes.extend_from_slice(b"*1\r\n$-1\r\n");
    client.sends_bytes(bytes).gets(":1");
    client.then().gets("+PONG");
    client.then().gets_error("ERR Protocol error");
    client.then().gets_close();
}

#[test]
fn other_protocols_are_closed_at_once_and_run_nothing() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    for bytes in [
        b"POST / HTTP/1.1\r\nHost: redis\r\n\r\nSET canary dead\r\n".as_slice(),
        b"GET / HTTP/1.1\r\nHost: redis\r\n\r\nSET canary dead\r\n",
        b"Host: redis\r\nSET canary dead\r\n",
        b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\r\nSET canary dead\r\n",
    ] {
        let client = proxy.client();
        client.write(bytes);
        let answer = client.reads_to_end();
        assert!(
            answer.is_empty() || answer.starts_with(b"-ERR"),
            "{}: {}",
            bytes.escape_ascii(),
            answer.escape_ascii()
        );
        assert!(redis.is_free("canary"));
    }
}

#[test]
fn empty_frames_are_ignored() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let client = proxy.client();
    client.sends_bytes(b"*0\r\n\r\n*-1\r\n*-10\r\n\n   \r\nPING\r\n").gets("+PONG");
    client.hears_nothing_for(Duration::from_millis(50));
}

/// All replies to these bytes, until the connection ends.
fn answered(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("somebody listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    stream.write_all(bytes).expect("somebody reads");
    let mut answer = Vec::new();
    // A reset after the last reply ends it, too.
    let _ = stream.read_to_end(&mut answer);
    answer
}

#[test]
fn numbers_before_a_request_mean_what_they_mean_to_the_server() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    for begins in [
        "*0",
        "*-1",
        "*-2",
        "*-10",
        "*-9223372036854775808",
        "",
        " ",
        "\t",
        "*-0",
        "*-",
        "*-x",
        "*-01",
        "*-9223372036854775809",
        "*1\r\n$-1",
        "*1\r\n$-10",
        "*2147483648",
        "*1\r\n$536870913",
        "*1\r\n$-0",
    ] {
        let bytes = format!("{begins}\r\nPING\r\nQUIT\r\n");
        let [straight, through] = [redis.address(), proxy.address()].map(|address| answered(address, bytes.as_bytes()));
        assert_eq!(through.escape_ascii().to_string(), straight.escape_ascii().to_string(), "{begins:?}");
    }
}

#[test]
fn replies_that_are_none_are_counted_by_what_is_wrong_with_them() {
    let redis = Redis::start();
    for (reply, kind) in [(&b"?what\r\n"[..], "malformed"), (b"$5368709120\r\n", "limit")] {
        let relay = garbling(redis.address(), b"garble", reply);
        let proxy = ProxyBuilder::for_backend(&format!("redis://{relay}")).start();
        let client = proxy.client();
        client.sends("SET plain garble").gets_close();
        let series = format!("lockwarden_protocol_errors_total{{side=\"backend\",kind=\"{kind}\"}}");
        proxy.counts(&series, 1.0);
    }
}

/// A way to the server: every request that contains `word` gets `reply` instead of being forwarded.
fn garbling(server: SocketAddr, word: &'static [u8], reply: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(mut backend) = TcpStream::connect(server) else {
                return;
            };
            let (mut from, mut to) = (backend.try_clone().expect("a socket"), client.try_clone().expect("a socket"));
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            let mut client = client;
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(read @ 1..) = client.read(&mut bytes) {
                    let sent = &bytes[..read];
                    let done = match sent.windows(word.len()).any(|part| part == word) {
                        true => client.write_all(reply),
                        false => backend.write_all(sent),
                    };
                    if done.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[test]
fn inline_commands_are_judged_like_any_other() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends_bytes(b"SETNX \"\\x6cock:job\" 'a1'\r\n").gets(":1");
    assert!((1..=600).contains(&redis.pttl("lock:job")));
    bob.sends_bytes(b"del lock:job\n").gets(":0");
    bob.sends_bytes(b"  SET   lock:job\tthief  \r\n").gets_error("LOCKDENIED overwrite");
    bob.sends_bytes(b"SET plain \"a \\\"b\\\" \\n\\t\\\\\"\r\nGET plain\r\n").gets("+OK");
    bob.then().gets("$9 a \\\"b\\\" \\n\\t\\\\");
    alice.sends_bytes(b"DEL lock:job\r\n").gets(":1");
}

#[test]
fn a_command_may_come_in_pieces_of_any_size() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let client = proxy.client();
    let bytes = encode(&["SET", "lock:job", "a1", "NX", "PX", "9000"]);
    for split in 1..bytes.len() {
        client.write(&bytes[..split]);
        proxy.get("/live");
        client.sends_bytes(&bytes[split..]).gets("+OK");
        client.sends("DEL lock:job").gets(":1");
    }
}

#[test]
fn an_announced_length_reserves_nothing() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let before = proxy.metric("process_resident_memory_bytes");
    let clients: Vec<Client> = (0..20).map(|_| proxy.client()).collect();
    for client in &clients {
        client.write(b"*3\r\n$3\r\nSET\r\n$5\r\nplain\r\n$500000000\r\nonly this");
    }
    for client in (0..20).map(|_| proxy.client()) {
        client.write(b"*1048576\r\n$4\r\nPING\r\n");
    }
    proxy.client().sends("PING").gets("+PONG");
    let grown = proxy.metric("process_resident_memory_bytes") - before;
    assert!(grown < 100e6, "{grown} bytes more for a few hundred that came");
}

#[test]
fn two_hundred_thousand_commands_in_one_write_are_answered_before_anybody_reads() {
    let redis = Redis::start();
    // A busy machine takes longer for this than the usual lease lasts.
    let proxy = Proxy::builder(&redis).ceiling("10m").default_ttl("10m").start();
    for client in [redis.client(), proxy.client()] {
        let start = Instant::now();
        let command = encode(&["SET", "plain", "some value of thirty-two bytes.."]);
        let mut bytes = command.repeat(100_000);
        bytes.extend(encode(&["SETNX", "lock:job", "a1"]));
        bytes.extend(encode(&["GET", "plain"]).repeat(99_998));
        bytes.extend(encode(&["DEL", "lock:job"]));
        client.write(&bytes);
        for _ in 0..100_000 {
            assert_eq!(client.raw_reply(), b"+OK\r\n");
        }
        client.then().gets(":1");
        for _ in 0..99_998 {
            assert_eq!(client.raw_reply(), b"$32\r\nsome value of thirty-two bytes..\r\n");
        }
        client.then().gets(":1");
        eprintln!("200,000 commands took {:?}", start.elapsed());
    }
}

#[test]
fn a_pipeline_of_lock_commands_keeps_its_order() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let client = proxy.client();
    let mut bytes = Vec::new();
    for round in 0..300 {
        for command in [
            vec!["SETNX".to_owned(), format!("lock:{round}"), "a1".to_owned()],
            vec!["ECHO".to_owned(), round.to_string()],
            vec!["DEL".to_owned(), format!("lock:{round}")],
            vec!["INCR".to_owned(), "plain".to_owned()],
        ] {
            bytes.extend(encode(&command));
        }
    }
    client.write(&bytes);
    for round in 0..300 {
        let text = round.to_string();
        client.then().gets(":1");
        client.then().gets(format!("${} {text}", text.len()));
        client.then().gets(":1");
        client.then().gets(format!(":{}", round + 1));
    }
}

#[test]
fn a_client_that_never_reads_harms_nobody_else() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    redis.client().sends(format!("SET big {}", "x".repeat(1 << 20))).gets("+OK");
    let deaf = proxy.client();
    deaf.write(&encode(&["GET", "big"]).repeat(64));
    let other = proxy.client();
    for _ in 0..50 {
        other.sends("SETNX lock:job a1").gets(":1");
        other.sends("DEL lock:job").gets(":1");
    }
    for _ in 0..64 {
        assert_eq!(deaf.raw_reply().len(), (1 << 20) + 12);
    }
}
