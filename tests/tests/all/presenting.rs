//! The proxy as a Sentinel: programs that are configured with sentinels find the proxy through it, and get the replies
//! of a real sentinel. Connections that are hostile or too many are closed, and nothing else suffers.

use std::fmt::Write as _;
use std::net::SocketAddr;

use lockwarden_tests::balancer::{OVER_IPV4, version_2};
use lockwarden_tests::random::Random;
use lockwarden_tests::{
    Authority, Client, Failover, Proxy, ProxyBuilder, Redis, Reply, Sentinels, Server, Subject, Trust, Watchers,
    encode, lockwarden, run_to_end, wait_for,
};
use tempfile::TempDir;

/// A sentinel beside the port of a proxy, with these further lines.
fn with_sentinel(redis: &Redis, more: &str) -> ProxyBuilder {
    Proxy::builder(redis).more(&sentinel(more))
}

fn sentinel(more: &str) -> String {
    format!("[[listener]]\naddress = \"127.0.0.1:0\"\npresent = \"sentinel\"\n{more}\n")
}

/// The line that names another sentinel.
const PEER: &str = "peers = [\"127.0.0.1:26399\"]";

/// The address of the primary, by the reply of a sentinel.
fn found(sentinel: &Client, name: &str) -> SocketAddr {
    let said = sentinel.sends(format!("SENTINEL GET-MASTER-ADDR-BY-NAME {name}"));
    let said = said.reply();
    let [host, port] = said.elements() else {
        panic!("no address: {said}");
    };
    format!("{}:{}", host.text(), port.text()).parse().expect("an address")
}

/// The keys of a map or of a flat array, and their values.
fn fields(reply: &Reply) -> Vec<(String, String)> {
    let (Reply::Map(all) | Reply::Array(all)) = reply else {
        panic!("no fields: {reply}");
    };
    let pairs = all.chunks(2);
    pairs.map(|pair| (pair[0].text(), pair[1].text())).collect()
}

fn value(reply: &Reply, field: &str) -> String {
    let fields = fields(reply);
    let found = fields.into_iter().find(|(name, _)| name == field);
    found.unwrap_or_else(|| panic!("no {field} in {reply}")).1
}

/// The type of a reply, and the types of its elements.
fn shape(reply: &Reply) -> String {
    let list = |kind: &str, all: &[Reply]| {
        let kinds: Vec<String> = all.iter().map(shape).collect();
        format!("{kind}[{}]", kinds.join(" "))
    };
    match reply {
        Reply::Status(_) => "status".to_owned(),
        Reply::Error(_) => "error".to_owned(),
        Reply::Integer(_) => "integer".to_owned(),
        Reply::Bulk(_) => "bulk".to_owned(),
        Reply::Nil | Reply::NilArray | Reply::Null => reply.to_string(),
        Reply::Array(all) => list("array", all),
        Reply::Map(all) => list("map", all),
        Reply::Set(all) => list("set", all),
        Reply::Push(all) => list("push", all),
        Reply::Line(line) => format!("line {line}"),
        Reply::Verbatim(_) => "verbatim".to_owned(),
    }
}

#[test]
fn a_program_that_asks_for_the_primary_finds_the_proxy_and_takes_its_lock_there() {
    let redis = Redis::start();
    let proxy = with_sentinel(&redis, "names = [\"mymaster\", \"orders\"]\npeers = [\"b.corp:26380\"]").start();
    let asking = proxy.sentinel();
    asking.sends("PING").gets("+PONG");
    for name in ["mymaster", "orders"] {
        assert_eq!(found(&asking, name), proxy.address());
    }
    asking.sends("SENTINEL get-master-addr-by-name MyMaster").gets("nil-array");
    asking.sends("SENTINEL REPLICAS mymaster").gets("[]");
    asking.sends("SENTINEL SLAVES orders").gets("[]");
    let peers = asking.sends("SENTINEL SENTINELS mymaster").reply();
    let [peer] = peers.elements() else {
        panic!("one peer was configured: {peers}");
    };
    assert_eq!(value(peer, "ip"), "b.corp");
    assert_eq!(value(peer, "port"), "26380");
    let masters = asking.sends("SENTINEL MASTERS").reply();
    assert_eq!(masters.elements().len(), 2);
    let master = &masters.elements()[1];
    for (field, expected) in [
        ("name", "orders"),
        ("ip", "127.0.0.1"),
        ("port", &proxy.address().port().to_string()),
        ("flags", "master"),
        ("num-slaves", "0"),
        ("num-other-sentinels", "1"),
        ("quorum", "2"),
    ] {
        assert_eq!(value(master, field), expected, "{field}");
    }

    let client = Client::connect(found(&asking, "mymaster"));
    client.sends("SETNX lock:job a1").gets(":1");
    let stranger = Client::connect(found(&asking, "mymaster"));
    stranger.sends("DEL lock:job").gets(":0");
    assert!(!redis.is_free("lock:job"));
}

/// The requests of libraries, operators and monitoring programs.
const ASKED: &[&str] = &[
    "PING",
    "PING hello",
    "SENTINEL MASTERS",
    "SENTINEL MASTER mymaster",
    "SENTINEL MASTER nosuch",
    "SENTINEL SLAVES mymaster",
    "SENTINEL REPLICAS mymaster",
    "SENTINEL REPLICAS nosuch",
    "SENTINEL SENTINELS mymaster",
    "SENTINEL SENTINELS nosuch",
    "SENTINEL GET-MASTER-ADDR-BY-NAME mymaster",
    "SENTINEL GET-MASTER-ADDR-BY-NAME nosuch",
    "SENTINEL CKQUORUM mymaster",
    "SENTINEL CKQUORUM nosuch",
    "SENTINEL MYID",
    "ROLE",
    "INFO sentinel",
    "CLIENT ID",
    "CLIENT GETNAME",
    "CLIENT SETNAME job-7",
    "CLIENT GETNAME",
    "CLIENT INFO",
    "COMMAND COUNT",
    "COMMAND INFO nosuch",
    "PSUBSCRIBE * +switch-master",
];

#[test]
fn a_sentinel_answers_with_the_fields_and_types_of_a_real_one() {
    if Server::under_test().lacks("these fields", 7, 0) {
        return;
    }
    let redis = Redis::start();
    let watchers = Watchers::of(&redis);
    let proxy = with_sentinel(&redis, PEER).start();
    for hello in ["", "HELLO 2", "HELLO 3"] {
        let (real, ours) = (watchers.client(0), proxy.sentinel());
        if !hello.is_empty() {
            let (real, ours) = (real.sends(hello).reply(), ours.sends(hello).reply());
            assert_eq!(shape(&ours), shape(&real), "{hello}");
        }
        for line in ASKED {
            let (real, ours) = (real.sends(line).reply(), ours.sends(line).reply());
            assert_eq!(shape(&ours), shape(&real), "{line} after {hello:?}: {ours}; really {real}");
        }
        // The second confirmation of the last one.
        assert_eq!(shape(&ours.then().reply()), shape(&real.then().reply()));
    }
    // The names of the fields as well, in their order.
    let (real, ours) = (watchers.client(0), proxy.sentinel());
    let names = |reply: &Reply| -> Vec<String> { fields(reply).into_iter().map(|(name, _)| name).collect() };
    for line in ["SENTINEL MASTERS", "SENTINEL SENTINELS mymaster"] {
        let (real, ours) = (real.sends(line).reply(), ours.sends(line).reply());
        assert_eq!(names(&ours.elements()[0]), names(&real.elements()[0]), "{line}");
    }
    let line = "INFO sentinel";
    let (real, ours) = (real.sends(line).text(), ours.sends(line).text());
    let keys = |info: &str| -> Vec<String> {
        let keys = info.lines().map(|line| line.split(':').next().unwrap_or(line).to_owned());
        keys.collect()
    };
    // Newer versions of Redis have one more field, which the proxy always sends.
    let missing = keys(&real).into_iter().find(|key| !keys(&ours).contains(key));
    assert_eq!(missing, None, "{ours}\n{real}");
    assert!(ours.contains(",slaves=0,sentinels=2\r\n"), "{ours}");
}

#[test]
fn a_sentinel_refuses_in_the_words_of_a_real_one() {
    if Server::under_test().lacks("these words", 7, 0) {
        return;
    }
    let redis = Redis::start();
    let watchers = Watchers::of(&redis);
    let proxy = with_sentinel(&redis, PEER).start();
    let long = "x".repeat(200);
    let (real, ours) = (watchers.client(0), proxy.sentinel());
    for line in [
        "GET a",
        "SET a b c d",
        "SELECT 0",
        "FOO",
        "get-master-addr-by-name mymaster",
        &format!("{long} {long} {long}"),
        "\"F\\r\\nOO\" \"a\\r\\n+b\"",
        "PING a b",
        "SENTINEL",
        "SENTINEL FOO",
        "SENTINEL MASTERS x",
        "SENTINEL MASTER",
        "SENTINEL MASTER nosuch",
        "SENTINEL REPLICAS mymaster x",
        "CLIENT",
        "CLIENT FOO",
        "CLIENT SETNAME",
        "CLIENT SETNAME \"a b\"",
        "COMMAND FOO",
        "HELLO x",
        "HELLO 4",
        "HELLO 3 BOO",
        "HELLO 3 AUTH a",
        "SUBSCRIBE",
        "PUBLISH a b",
    ] {
        assert_eq!(ours.sends(line).reply().error(), real.sends(line).reply().error(), "{line}");
    }
    // A client of RESP2 that has subscribed is told which commands it may send.
    for line in ["SUBSCRIBE a", "SENTINEL MASTERS", "ROLE", "PING", "PING x", "UNSUBSCRIBE", "PING"] {
        let (ours, real) = (ours.sends(line).reply(), real.sends(line).reply());
        assert_eq!(ours.to_string(), real.to_string(), "{line}");
    }
}

#[test]
fn subscriptions_are_confirmed_and_counted_as_by_redis() {
    let redis = Redis::start();
    let proxy = with_sentinel(&redis, PEER).start();
    let lines = [
        "SUBSCRIBE +switch-master +sdown",
        "PSUBSCRIBE *",
        "SUBSCRIBE +sdown",
        "UNSUBSCRIBE +sdown nosuch",
        "UNSUBSCRIBE",
        "PUNSUBSCRIBE",
        "UNSUBSCRIBE",
        "PUNSUBSCRIBE a",
    ];
    let replies = [2, 1, 1, 2, 1, 1, 1, 1];
    for hello in ["HELLO 2", "HELLO 3"] {
        let (real, ours) = (redis.client(), proxy.sentinel());
        real.sends(hello).reply();
        ours.sends(hello).reply();
        for (line, replies) in lines.iter().zip(replies) {
            for number in 0..replies {
                let (said, expected) = match number {
                    0 => (ours.sends(line), real.sends(line)),
                    _ => (ours.then(), real.then()),
                };
                let (said, expected) = (said.reply(), expected.reply());
                let after = format!("{line} after {hello}");
                assert_eq!(said.to_string(), expected.to_string(), "{after}");
                assert_eq!(shape(&said), shape(&expected), "{after}");
            }
        }
    }
}

#[test]
fn what_libraries_say_besides_is_taken_although_a_real_one_refuses_some_of_it() {
    let redis = Redis::start();
    let proxy = with_sentinel(&redis, PEER).start();
    let client = proxy.sentinel();
    client.sends("AUTH secret").gets("+OK");
    client.sends("AUTH user secret").gets("+OK");
    client.sends("AUTH a b c").gets("-ERR syntax error");
    client.sends("ECHO hi").gets("$2 hi");
    client.sends("CLIENT SETINFO LIB-NAME redis-py").gets("+OK");
    client.sends("CLIENT NO-EVICT on").gets("+OK");
    client.sends("HELLO 3 AUTH user secret SETNAME job-7").reply();
    client.sends("CLIENT GETNAME").gets("$5 job-7");
    client.sends("SUBSCRIBE a").gets(">[$9 subscribe, $1 a, :1]");
    client.sends("RESET").gets("+RESET");
    // As after connecting: RESP2, without a name or a subscription.
    client.sends("CLIENT GETNAME").gets("nil");
    client.sends("SENTINEL MYID").reply();
    let refused = client.sends("SENTINEL FAILOVER mymaster").gets_error("ERR lockwarden");
    assert!(refused.contains("sentinels of Redis"), "{refused}");
    let names = client.sends("COMMAND LIST").reply();
    assert_eq!(client.sends("COMMAND COUNT").integer(), names.elements().len() as i64);
    for name in names.elements() {
        let described = client.sends(format!("COMMAND INFO {}", name.text())).reply();
        assert_eq!(described.elements()[0].elements().len(), 10, "{described}");
    }
    client.sends("QUIT").gets("+OK");
    client.then().gets_close();
}

#[test]
fn requests_are_answered_in_order_however_they_come() {
    let redis = Redis::start();
    let proxy = with_sentinel(&redis, PEER).start();
    let client = proxy.sentinel();
    // Inline, in one go, and byte by byte.
    client.sends_bytes("PING\r\n\r\n*0\r\nping two\r\n").gets("+PONG");
    client.then().gets("$3 two");
    let mut requests = Vec::new();
    for number in 0..5_000 {
        requests.extend(encode(&["PING".to_owned(), number.to_string()]));
    }
    client.write(&requests);
    for number in 0..5_000 {
        assert_eq!(client.then().text(), number.to_string());
    }
    for byte in encode(&["SENTINEL", "REPLICAS", "mymaster"]) {
        client.write(&[byte]);
    }
    client.then().gets("[]");
}

#[test]
fn it_says_where_the_proxy_is_while_that_has_no_backend() {
    let mut redis = Redis::start();
    redis.stop();
    let proxy = with_sentinel(&redis, PEER).without_waiting().start();
    assert_eq!(proxy.ready(), Some(503));
    assert_eq!(found(&proxy.sentinel(), "mymaster"), proxy.address());
    redis.start_again();
    wait_for("the proxy to be ready", || proxy.ready() == Some(200));
    let client = Client::connect(found(&proxy.sentinel(), "mymaster"));
    client.sends("SETNX lock:job a1").gets(":1");
}

#[test]
fn a_failover_changes_nothing_for_those_who_ask_the_proxy() {
    if Sentinels::are_lacking() {
        return;
    }
    let mut all = Sentinels::start();
    let proxy = ProxyBuilder::for_backend(&all.url()).more(&sentinel(PEER)).start();
    let (asking, listening) = (proxy.sentinel(), proxy.sentinel());
    listening.sends("SUBSCRIBE +switch-master").gets("[$9 subscribe, $14 +switch-master, :1]");
    assert_eq!(found(&asking, "mymaster"), proxy.address());
    all.fails_over(Failover::Planned);
    wait_for("the proxy to serve the new primary", || {
        proxy.metric("lockwarden_backend_era_changes_total") > 0.0 && proxy.ready() == Some(200)
    });
    // Both connections have stayed, and nothing was published: the next reply is that to the question.
    assert_eq!(found(&asking, "mymaster"), proxy.address());
    listening.sends("PING").gets("[$4 pong, $0 ]");
    let client = Client::connect(found(&asking, "mymaster"));
    client.sends("SETNX lock:job a1").gets(":1");
}

#[test]
fn clients_are_sent_to_the_address_that_they_came_by_or_to_the_one_that_is_configured() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis)
        .top("listen", "\"0.0.0.0:0\"")
        .top("allow_open", "true")
        .more("[[listener]]\naddress = \"0.0.0.0:0\"\npresent = \"sentinel\"\n")
        .more(&sentinel("advertise = \"locks.corp:6390\""))
        .start();
    let port = proxy.sentinel_address().port();
    for host in ["127.0.0.1", "127.9.8.7"] {
        let asked = format!("{host}:{port}").parse().expect("an address");
        let client = Client::connect_plain(asked);
        let expected = SocketAddr::new(asked.ip(), proxy.address().port());
        assert_eq!(found(&client, "mymaster"), expected);
        let info = client.sends("INFO sentinel").text();
        assert!(info.contains(&format!("address={expected},")), "{info}");
    }
    let configured = Client::connect_plain(proxy.sentinel_addresses()[1]);
    let said = configured.sends("SENTINEL GET-MASTER-ADDR-BY-NAME mymaster");
    said.gets("[$10 locks.corp, $4 6390]");
}

#[test]
fn a_sentinel_that_the_network_reaches_opens_no_redis_to_it() {
    let redis = Redis::start();
    // Redis wants no password here, so its own port may not be on the network; a sentinel has no data.
    let on_network = "address = \"0.0.0.0:0\"\npresent = \"sentinel\"\nadvertise = \"locks.corp:6390\"";
    let proxy = Proxy::builder(&redis).more(&format!("[[listener]]\n{on_network}\n{PEER}\n")).start();
    assert_eq!(proxy.ready(), Some(200));
    let port = proxy.sentinel_address().port();
    let client = Client::connect_plain(([127, 0, 0, 1], port).into());
    client.sends("SET lock:job a1").gets_error("ERR unknown command 'SET'");
    assert!(redis.is_free("lock:job"));
}

#[test]
fn a_sentinel_with_tls_names_the_listener_with_tls() {
    let redis = Redis::start();
    let folder = TempDir::new().expect("a folder");
    let authority = Authority::new("who issued the server's");
    let (cert, key) = authority.issue(&Subject::server()).write(folder.path(), "tls");
    let more = format!(
        "[[listener]]\naddress = \"127.0.0.1:0\"\ntls = true\n{}tls = true\n[tls]\ncert = {cert:?}\nkey = {key:?}\n",
        sentinel(PEER)
    );
    let proxy = Proxy::builder(&redis).more(&more).start();
    let trust = Trust::new(&authority, None);
    let asking = Client::connect_tls(proxy.sentinel_address(), &trust);
    let address = found(&asking, "mymaster");
    assert_eq!(address, proxy.tls_address());
    Client::connect_tls(address, &trust).sends("SETNX lock:job a1").gets(":1");
    // One that speaks no TLS is closed, and counted.
    proxy.sentinel().sends("PING").gets_close();
    proxy.counts("lockwarden_protocol_errors_total{side=\"client\",kind=\"no-tls\"}", 1.0);
}

#[test]
fn a_balancer_says_first_who_asks() {
    let redis = Redis::start();
    let proxy = with_sentinel(&redis, PEER).top("proxy_protocol_from", "[\"127.0.0.0/8\"]").without_waiting().start();
    let client = proxy.sentinel();
    client.write(&version_2(0x21, 0x11, &OVER_IPV4));
    let info = client.sends("CLIENT INFO").text();
    assert!(info.contains(" addr=10.1.2.3:40000 laddr="), "{info}");
    // A connection that does not do so is closed.
    proxy.sentinel().sends("PING").gets_close();
}

#[test]
fn bytes_that_are_no_request_end_the_connection_and_are_counted() {
    let redis = Redis::start();
    let proxy = with_sentinel(&redis, PEER).start();
    let errors =
        |kind: &str| proxy.metric(&format!("lockwarden_protocol_errors_total{{side=\"client\",kind=\"{kind}\"}}"));
    let (malformed, limit, tls) = (errors("malformed"), errors("limit"), errors("tls"));
    for (bytes, said) in [
        (&b"*1\r\n:5\r\n"[..], "ERR Protocol error: expected '$', got ':'"),
        (b"*x\r\n", "ERR Protocol error: invalid multibulk length"),
        (b"PING \"a\r\n", "ERR Protocol error: unbalanced quotes in request"),
    ] {
        let client = proxy.sentinel();
        client.sends_bytes(bytes).gets_error(said);
        client.then().gets_close();
    }
    assert_eq!(errors("malformed") - malformed, 3.0);
    for (bytes, said) in [
        ("*65\r\n".to_owned(), "ERR Protocol error: invalid multibulk length"),
        ("*2\r\n$4\r\nPING\r\n$16385\r\n".to_owned(), "ERR Protocol error: invalid bulk length"),
        ("x".repeat(16 * 1024 + 1), "ERR Protocol error: too big inline request"),
    ] {
        let client = proxy.sentinel();
        client.sends_bytes(&bytes).gets_error(said);
        client.then().gets_close();
    }
    // Many arguments that are short enough each, and together too long.
    let client = proxy.sentinel();
    client.write(&encode(&vec!["y".repeat(1_000); 20]));
    client.reads_to_end();
    assert_eq!(errors("limit") - limit, 4.0);
    proxy.sentinel().sends_bytes([0x16, 0x03, 0x01, 0x02, 0x00]).gets_close();
    assert_eq!(errors("tls") - tls, 1.0);
    proxy.sentinel().sends("PING").gets("+PONG");
}

#[test]
fn random_bytes_break_nothing() {
    let redis = Redis::start();
    let mut proxy = with_sentinel(&redis, PEER).start();
    let words = [
        "SENTINEL",
        "MASTERS",
        "mymaster",
        "HELLO",
        "3",
        "SUBSCRIBE",
        "PUNSUBSCRIBE",
        "CLIENT",
        "SETNAME",
        "INFO",
        "COMMAND",
        "DOCS",
        "PING",
        "AUTH",
        "\r\n",
        "$-1",
        "RESET",
        "*",
        "",
    ];
    for seed in 0..60 {
        let mut random = Random::from_seed(seed);
        let client = proxy.sentinel();
        for _ in 0..random.between(1, 30) {
            let many = random.between(0, 6);
            let mut bytes = match random.one_in(2) {
                true => encode(&(0..many).map(|_| *random.among(&words)).collect::<Vec<_>>()),
                false => random.bytes(many * 7),
            };
            if random.one_in(4) {
                bytes.truncate(random.below(bytes.len() + 1));
            }
            client.write(&bytes);
        }
    }
    proxy.counts("lockwarden_client_connections{listener=\"default\"}", 0.0);
    assert!(proxy.runs());
    proxy.sentinel().sends("PING").gets("+PONG");
    assert!(!proxy.log().contains("panic"), "{}", proxy.log());
}

#[test]
fn one_client_has_so_many_subscriptions_and_no_more() {
    let redis = Redis::start();
    let proxy = with_sentinel(&redis, PEER).start();
    let client = proxy.sentinel();
    for number in 1..=256 {
        client
            .sends(format!("SUBSCRIBE c{number}"))
            .gets(format!("[$9 subscribe, ${} c{number}, :{number}]", number.to_string().len() + 1));
    }
    client.sends("PSUBSCRIBE *").gets_error("ERR too many subscriptions");
    client.sends("UNSUBSCRIBE c1").gets("[$11 unsubscribe, $2 c1, :255]");
    client.sends("PSUBSCRIBE *").gets("[$10 psubscribe, $1 *, :256]");
}

#[test]
fn a_client_that_reads_late_is_in_nobodys_way_and_loses_nothing() {
    let redis = Redis::start();
    let names: Vec<String> = (0..64).map(|number| format!("m{number}")).collect();
    let proxy = with_sentinel(&redis, &format!("names = {names:?}\n{PEER}")).start();
    let late: Vec<Client> = (0..4).map(|_| proxy.sentinel()).collect();
    // Replies of 18 MB together, more than sockets hold.
    let asked = encode(&["SENTINEL", "MASTERS"]).repeat(400);
    for client in &late {
        client.write(&asked);
        client.leaves_a_reply_unread();
    }
    for _ in 0..50 {
        proxy.sentinel().sends("PING").gets("+PONG");
    }
    for _ in 0..400 {
        assert_eq!(late[0].then().reply().elements().len(), 64);
    }
    late[0].sends("PING").gets("+PONG");
}

#[test]
fn its_clients_count_among_all_and_are_limited_with_them() {
    let redis = Redis::start();
    let proxy = with_sentinel(&redis, PEER).top("max_clients", "3").start();
    let clients: Vec<Client> = (0..3).map(|_| proxy.sentinel()).collect();
    for client in &clients {
        client.sends("PING").gets("+PONG");
    }
    proxy.counts("lockwarden_client_connections{listener=\"default\"}", 3.0);
    let refused = proxy.sentinel();
    refused.then().gets("-ERR max number of clients reached");
    Client::connect_plain(proxy.address()).then().gets("-ERR max number of clients reached");
    drop(clients);
    proxy.counts("lockwarden_client_connections{listener=\"default\"}", 0.0);
    proxy.sentinel().sends("PING").gets("+PONG");
}

#[test]
fn a_proxy_that_stops_sends_nobody_to_itself() {
    let redis = Redis::start();
    let proxy = with_sentinel(&redis, PEER).top("drain", "\"20s\"").default_ttl("10s").start();
    let asking = proxy.sentinel();
    asking.sends("SUBSCRIBE +switch-master").gets("[$9 subscribe, $14 +switch-master, :1]");
    let holder = proxy.client();
    holder.sends("SETNX lock:job a1").gets(":1");
    proxy.asks_to_stop();
    asking.then().gets_close();
    // The holder may finish.
    holder.sends("DEL lock:job").gets(":1");
    assert_eq!(proxy.ends(), Some(0));
}

#[test]
fn a_sentinel_alone_is_warned_of() {
    let redis = Redis::start();
    let words = ["\"level\":\"WARN\"", "a sentinel without peers", "checkSentinelsList"];
    let alone = with_sentinel(&redis, "").start();
    assert_eq!(alone.logged(&words), 1);
    let one_of_two = with_sentinel(&redis, PEER).start();
    assert_eq!(one_of_two.logged(&words), 0);
    one_of_two.logs(&["\"message\":\"serving\"", "(sentinel)"]);
}

#[test]
fn check_says_where_a_sentinel_sends_its_clients() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("c.toml");
    let mut text = String::from("listen = \"0.0.0.0:6380\"\n");
    for (port, more) in [
        (26380, "names = [\"mymaster\", \"orders\"]\npeers = [\"b.corp:26380\", \"[fd00::7]:26380\"]"),
        (26381, "advertise = \"locks.corp:6390\""),
    ] {
        let _ = write!(text, "[[listener]]\naddress = \"0.0.0.0:{port}\"\npresent = \"sentinel\"\n{more}\n");
    }
    std::fs::write(&path, text).expect("the folder is ours");
    let checked = run_to_end(&mut lockwarden(&["check", "-c", &path.to_string_lossy()]));
    assert_eq!(checked.code, Some(0), "{checked:?}");
    for line in [
        "listener 0.0.0.0:26380: a sentinel; mymaster orders is at port 6380 of the address that it was asked at; \
         other sentinels: b.corp:26380 [fd00::7]:26380\n",
        "listener 0.0.0.0:26381: a sentinel; mymaster is at locks.corp:6390; other sentinels: none (Redisson wants one)\n",
    ] {
        assert!(checked.stdout.contains(line), "{}", checked.stdout);
    }
}
