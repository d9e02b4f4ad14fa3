//! A machine that is short of file descriptors, places at the admin address, or memory. The clients that are connected
//! are served on, and the admin address still answers.

use std::io::Write;
use std::net::TcpStream;

use lockwarden_tests::{Client, Mode, Proxy, ProxyBuilder, Redis, Reply, encode, wait_for};

const FULL: &str = "-ERR max number of clients reached";

/// Connects until one is refused; those that are served.
fn fill(proxy: &Proxy) -> Vec<Client> {
    let mut served = Vec::new();
    loop {
        let client = proxy.client();
        match client.sends("PING").reply() {
            Reply::Error(text) => {
                assert_eq!(format!("-{text}"), FULL);
                return served;
            }
            pong => assert_eq!(pong.to_string(), "+PONG"),
        }
        served.push(client);
        assert!(served.len() < 1_000, "nobody is refused");
    }
}

#[test]
fn a_proxy_without_descriptors_serves_those_that_it_has_and_can_be_looked_at() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).top("sessions", "\"dedicated\"").descriptors(256).start();
    let mut served = fill(&proxy);
    assert!(served.len() > 50, "{} clients", served.len());
    let most = proxy.metric("lockwarden_client_connections_max{listener=\"default\"}");
    assert!((most - served.len() as f64).abs() <= 2.0, "{most}");

    // Every one of them may take a lock, which is kept alive.
    for (number, client) in served.iter().enumerate() {
        client.sends(format!("SETNX lock:{number} a1")).gets(":1");
    }
    for _ in 0..200 {
        proxy.client().then().gets(FULL);
    }
    for path in ["/live", "/ready", "/metrics"] {
        assert_eq!(proxy.get(path).0, 200, "{path}");
    }
    let refused = proxy.metric("lockwarden_client_connections_refused_total");
    assert!(refused >= 201.0, "{refused}");
    assert_eq!(proxy.logged(&["new clients are refused"]), 1);
    assert_eq!(proxy.logged(&["cannot accept"]), 0);
    let (status, answer) = proxy.post("/reload");
    assert_eq!(status, 200, "{answer}");

    // A place that becomes free is given to the next.
    served.truncate(10);
    wait_for("a newcomer is served", || proxy.client().sends("PING").reply().to_string() == "+PONG");
    for (number, client) in served.iter().enumerate() {
        client.sends(format!("DEL lock:{number}")).gets(":1");
    }
}

#[test]
fn where_clients_share_connections_there_may_be_twice_as_many() {
    let redis = Redis::start();
    let dedicated = Proxy::builder(&redis).top("sessions", "\"dedicated\"").descriptors(256).start();
    let shared = Proxy::builder(&redis).descriptors(256).multiplexed().start();
    let (dedicated, shared) = (fill(&dedicated).len(), fill(&shared).len());
    assert!(shared + 20 > 2 * dedicated, "{shared} and {dedicated}");
}

#[test]
fn the_configuration_may_say_how_many_clients_there_may_be() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).top("max_clients", "3").start();
    let served = fill(&proxy);
    assert_eq!(served.len(), 3);
    drop(served);
    wait_for("the places are free", || proxy.client().sends("PING").reply().to_string() == "+PONG");
}

#[test]
fn silent_connections_do_not_take_health_away() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).top("metrics", "\"127.0.0.1:0\"").start();
    let connect = || TcpStream::connect(proxy.admin_address()).expect("the address is served");
    // As many as there were places, and then more than there are places now.
    for silent in [64, 300] {
        let silent: Vec<TcpStream> = (0..silent).map(|_| connect()).collect();
        wait_for("health is answered", || ["/live", "/ready", "/metrics"].iter().all(|path| proxy.get(path).0 == 200));
        drop(silent);
    }
}

const MIB: usize = 1 << 20;

/// Every client has a connection of its own to Redis, and little memory is for all of them.
fn with_memory(redis: &Redis, most: &str) -> ProxyBuilder {
    Proxy::builder(redis).top("sessions", "\"dedicated\"").top("max_memory", &format!("\"{most}\""))
}

fn held(proxy: &Proxy) -> f64 {
    proxy.metric("lockwarden_client_buffers_bytes{listener=\"default\"}")
}

fn evicted(proxy: &Proxy) -> f64 {
    proxy.metric("lockwarden_clients_evicted_total")
}

#[test]
fn who_does_not_read_leaves_its_replies_with_redis_and_gets_them_later() {
    let redis = Redis::start();
    let proxy = with_memory(&redis, "16MiB").start();
    let value = "v".repeat(4 * MIB);
    redis.client().sends_arguments(&["SET", "big", &value]).gets("+OK");
    let slow: Vec<Client> = (0..12).map(|_| proxy.client()).collect();
    for client in &slow {
        for _ in 0..2 {
            client.write(&encode(&["GET", "big"]));
        }
    }
    wait_for("replies are waiting", || held(&proxy) > 4.0 * MIB as f64);
    let quick = proxy.client();
    for _ in 0..100 {
        quick.sends("SETNX lock:job a1").gets(":1");
        quick.sends("DEL lock:job").gets(":1");
        assert!(held(&proxy) <= 16.0 * MIB as f64);
    }
    let expected = format!("${}\r\n{value}\r\n", value.len()).into_bytes();
    for client in &slow {
        for _ in 0..2 {
            assert!(client.raw_reply() == expected, "another reply");
        }
    }
    assert_eq!(evicted(&proxy), 0.0);
    wait_for("nothing is waiting any more", || held(&proxy) == 0.0);
}

/// Each has a connection of its own, on which the rest of its replies waits, as it would without a proxy.
#[test]
fn of_replies_that_are_not_read_a_megabyte_for_each_client_is_kept() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).top("sessions", "\"dedicated\"").start();
    let value = "v".repeat(MIB);
    let set = redis.client();
    set.sends_arguments(&["SET", "big", &value]).gets("+OK");
    let deaf: Vec<Client> = (0..5).map(|_| proxy.client()).collect();
    let memory = || proxy.metric("process_resident_memory_bytes");
    let before = memory();
    for client in &deaf {
        client.write(&encode(&["GET", "big"]).repeat(100));
        client.leaves_a_reply_unread();
    }
    wait_for("replies are waiting", || held(&proxy) >= 5.0 * MIB as f64);
    let quick = proxy.client();
    for _ in 0..100 {
        quick.sends("PING").gets("+PONG");
    }
    assert!(held(&proxy) <= 5.0 * 1.5 * MIB as f64, "{}", held(&proxy));
    let grown = memory() - before;
    assert!(grown < 48.0 * MIB as f64, "grown by {grown} bytes");
    for client in &deaf {
        for _ in 0..100 {
            assert!(client.raw_reply().len() > MIB);
        }
    }
}

#[test]
fn unfinished_requests_take_no_more_than_their_bound_and_the_greediest_goes() {
    let redis = Redis::start();
    let proxy = with_memory(&redis, "16MiB").start();
    let small = proxy.client();
    small.sends("SETNX lock:job a1").gets(":1");
    let half =
        [format!("*3\r\n$3\r\nSET\r\n$5\r\nplain\r\n${}\r\n", 8 * MIB).into_bytes(), vec![b'x'; 4 * MIB]].concat();
    let mut greedy = Vec::new();
    for _ in 0..10 {
        let mut stream = TcpStream::connect(proxy.address()).expect("the proxy listens");
        // A client that is closed cannot write all of it.
        let _ = stream.write_all(&half);
        greedy.push(stream);
        assert!(held(&proxy) <= 16.0 * MIB as f64);
        small.sends("EXISTS plain").gets(":0");
    }
    wait_for("the greediest are closed", || evicted(&proxy) >= 6.0);
    assert_eq!(proxy.logged(&["more than max_memory"]), 1);
    small.sends("DEL lock:job").gets(":1");
    drop(greedy);
    wait_for("nothing is held any more", || held(&proxy) == 0.0);
}

#[test]
fn a_value_too_long_for_a_lock_is_refused_without_being_kept() {
    let redis = Redis::start();
    let proxy = with_memory(&redis, "4MiB").start();
    let long = "x".repeat(12 * MIB);
    let too_long = "LOCKLIMIT other key=lock:job";
    let client = proxy.client();
    for command in [
        vec!["SETNX", "lock:job", &long],
        vec!["SET", "lock:job", &long, "NX", "PX", "5000"],
        vec!["GETSET", "lock:job", &long],
        vec!["PSETEX", "lock:job", "5000", &long],
    ] {
        client.sends_arguments(&command).gets_error(too_long);
        client.sends("PING").gets("+PONG");
    }
    // In one write with what is before and behind it, and byte by byte where it begins and ends.
    let request = encode(&["SETNX", "lock:job", &long]);
    let ping = encode(&["PING"]);
    client.write(&[&ping[..], &request, &ping].concat());
    client.then().gets("+PONG");
    client.then().gets_error(too_long);
    client.then().gets("+PONG");
    let (begin, rest) = request.split_at(60);
    let (middle, end) = rest.split_at(rest.len() - 30);
    for byte in begin {
        client.write(&[*byte]);
    }
    client.write(middle);
    for byte in end {
        client.write(&[*byte]);
    }
    client.then().gets_error(too_long);
    client.sends("MULTI").gets("+OK");
    client.sends_arguments(&["SETNX", "lock:job", &long]).gets_error(too_long);
    client.sends("EXEC").gets_error("EXECABORT");
    assert_eq!(evicted(&proxy), 0.0);
    assert!(redis.is_free("lock:job"));

    // Where the key is no lock, or is only watched, the length does not matter.
    let value = &long[..MIB];
    client.sends_arguments(&["SET", "plain", value]).gets("+OK");
    let monitoring = with_memory(&redis, "4MiB").mode(Mode::Monitor).start();
    let watched = monitoring.client();
    watched.sends_arguments(&["SETNX", "lock:job", value]).gets(":1");
    for key in ["plain", "lock:job"] {
        let length = redis.client().sends(format!("STRLEN {key}")).integer();
        assert_eq!(length, MIB as i64, "{key}");
    }
}

/// The request had begun when its namespace was enforced.
#[test]
fn a_value_that_was_cut_is_never_stored_whatever_comes_into_force() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let client = proxy.client();
    let request = encode(&["SETNX", "lock:job", &"x".repeat(4 * MIB)]);
    let (most, end) = request.split_at(3 * MIB);
    client.write(most);
    let before = proxy.metric("lockwarden_client_bytes_total{direction=\"in\"}");
    wait_for("the proxy has read it", || {
        before.max(proxy.metric("lockwarden_client_bytes_total{direction=\"in\"}")) >= most.len() as f64
    });
    assert_eq!(proxy.switch("locks", Mode::Monitor), 200);
    client.write(end);
    client.then().gets_error("ERR the mode of this lock's namespace");
    assert!(redis.is_free("lock:job"));
    client.sends_arguments(&["SETNX", "lock:job", "a1"]).gets(":1");
}
