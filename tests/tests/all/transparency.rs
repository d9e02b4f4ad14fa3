//! An untouched command stays untouched: the same bytes go to two fresh servers, to one of them through an
//! enforcing proxy, and both must send the same bytes back.

use std::time::Duration;

use lockwarden_tests::{Client, Proxy, Redis, encode, wait_for};

/// Two fresh servers, one behind a proxy.
struct Twins {
    plain: Redis,
    behind: Redis,
    proxy: Proxy,
}

impl Twins {
    fn start() -> Twins {
        let (plain, behind) = (Redis::start(), Redis::start());
        let proxy = Proxy::enforcing(&behind);
        Twins { plain, behind, proxy }
    }

    /// A client without and one with the proxy, in this order.
    fn pair(&self) -> (Client, Client) {
        (self.plain.client(), self.proxy.client())
    }
}

/// Sends a line to both and compares the bytes of the replies.
#[track_caller]
fn same(pair: &(Client, Client), line: &str) {
    let replies = [&pair.0, &pair.1].map(|client| shown(client, line));
    assert_eq!(replies[1], replies[0], "{line}");
}

fn shown(client: &Client, line: &str) -> String {
    client.write(&encode(&split(line)));
    client.raw_reply().escape_ascii().to_string()
}

/// Blanks separate; `_` stands for a blank and `^` for CRLF within an argument.
fn split(line: &str) -> Vec<Vec<u8>> {
    line.split_ascii_whitespace().map(|word| word.replace('_', " ").replace('^', "\r\n").into_bytes()).collect()
}

/// One command a line, in the notation of [`split`].
const SCRIPT: &str = include_str!("transparency/ordinary-commands.txt");

fn script() -> impl Iterator<Item = &'static str> {
    SCRIPT.lines().filter(|line| !line.starts_with('#'))
}

#[test]
fn ordinary_commands_are_answered_byte_for_byte() {
    let twins = Twins::start();
    let pair = twins.pair();
    for line in script() {
        same(&pair, line);
    }
}

#[test]
fn ordinary_commands_are_answered_byte_for_byte_under_resp3() {
    let twins = Twins::start();
    let pair = twins.pair();
    for client in [&pair.0, &pair.1] {
        client.sends("HELLO 3").reply();
    }
    for line in script() {
        same(&pair, line);
    }
}

#[test]
fn ordinary_commands_are_answered_byte_for_byte_in_one_pipeline() {
    let twins = Twins::start();
    let pair = twins.pair();
    // BLPOP and XREAD BLOCK are no exception here: they just wait their turn.
    let bytes: Vec<u8> = script().flat_map(|line| encode(&split(line))).collect();
    pair.0.write(&bytes);
    pair.1.write(&bytes);
    for line in script() {
        let expected = pair.0.raw_reply().escape_ascii().to_string();
        assert_eq!(pair.1.raw_reply().escape_ascii().to_string(), expected, "{line}");
    }
}

#[test]
fn blocks_are_answered_byte_for_byte() {
    let twins = Twins::start();
    let pair = twins.pair();
    for line in [
        "MULTI",
        "SET a 1",
        "INCR a",
        "LPUSH a x",
        "GET a",
        "EXEC",
        "MULTI",
        "DISCARD",
        "MULTI",
        "NOSUCH",
        "GET a",
        "EXEC",
        "MULTI",
        "GET",
        "EXEC",
        "EXEC",
        "WATCH a",
        "MULTI",
        "GET a",
        "EXEC",
        "WATCH a",
        "SET a 2",
        "MULTI",
        "GET a",
        "EXEC",
        "WATCH a",
        "UNWATCH",
        "MULTI",
        "SELECT 1",
        "SET b 1",
        "EXEC",
        "GET b",
        "SELECT 0",
        "MULTI",
        "EVAL return_{1,2} 0",
        "EVAL return_1 2 a",
        "ZUNIONSTORE dst 9 a",
        "HGETALL none",
        "EXEC",
        "MULTI",
        "SUBSCRIBE c",
        "EXEC",
        "GET a",
        "RESET",
    ] {
        same(&pair, line);
    }
}

#[test]
fn big_values_arrive_whole() {
    let twins = Twins::start();
    let pair = twins.pair();
    for megabytes in [1, 20] {
        // Not a repetition of anything that a buffer's size divides.
        let value: Vec<u8> = (0..megabytes << 20).map(|at: u32| (at % 251) as u8).collect();
        for client in [&pair.0, &pair.1] {
            client.sends_arguments(&[b"SET".as_slice(), b"big", &value]).gets("+OK");
            client.sends("STRLEN big").gets(format!(":{}", value.len()));
            client.write(&encode(&["GET", "big"]));
            let raw = client.raw_reply();
            let head = format!("${}\r\n", value.len());
            assert!(raw.starts_with(head.as_bytes()));
            assert!(raw[head.len()..raw.len() - 2] == value[..], "{megabytes} MiB came back changed");
        }
    }
    assert_eq!(twins.behind.client().sends("STRLEN big").integer(), 20 << 20);
}

#[test]
fn hello_and_the_protocols_are_the_servers_own() {
    let twins = Twins::start();
    let pair = twins.pair();
    for line in ["HELLO 3", "HELLO", "HELLO 2", "HELLO 4", "HELLO x", "HELLO 3 AUTH nobody pw", "HELLO 3 SETNAME app"] {
        // The number of the connection is the one thing that differs.
        let [direct, proxied] = [&pair.0, &pair.1].map(|client| {
            let shown = shown(client, line);
            match shown.split_once("id\\r\\n:") {
                Some((before, after)) => {
                    let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
                    format!("{before}id{rest}")
                }
                None => shown,
            }
        });
        assert_eq!(proxied, direct, "{line}");
    }
    for line in ["HGETALL none", "CLIENT GETNAME", "RESET", "CLIENT GETNAME", "HGETALL none"] {
        same(&pair, line);
    }
}

#[test]
fn silenced_replies_stay_silent() {
    let twins = Twins::start();
    let pair = twins.pair();
    for client in [&pair.0, &pair.1] {
        client.pipelines(
            &[
                "CLIENT REPLY SKIP",
                "SET a 1",
                "GET a",
                "CLIENT REPLY OFF",
                "SET a 2",
                "GET a",
                "CLIENT REPLY ON",
                "GET a",
            ],
            &["$1 1", "+OK", "$1 2"],
        );
        // A lock command is silenced as well, and done all the same.
        client.pipelines(
            &["CLIENT REPLY OFF", "SETNX lock:job a1", "GET lock:job", "CLIENT REPLY ON", "DEL lock:job"],
            &["+OK", ":1"],
        );
        client.pipelines(&["CLIENT REPLY SKIP", "SETNX lock:job a1", "PING"], &["+PONG"]);
        client.pipelines(&["CLIENT REPLY SKIP", "MULTI", "PING", "EXEC"], &["+QUEUED", "[+PONG]"]);
        client.sends("CLIENT REPLY WHAT").gets("-ERR syntax error");
        client.hears_nothing_for(Duration::from_millis(30));
    }
}

#[test]
fn messages_arrive_under_both_protocols() {
    let twins = Twins::start();
    for protocol in ["2", "3"] {
        for (redis, client) in [(&twins.plain, twins.plain.client()), (&twins.behind, twins.proxy.client())] {
            client.sends(format!("HELLO {protocol}")).reply();
            let (open, close) = if protocol == "3" { (">[", "]") } else { ("[", "]") };
            let framed = |text: &str| format!("{open}{text}{close}");
            client.sends("SUBSCRIBE news sport").gets(framed("$9 subscribe, $4 news, :1"));
            client.then().gets(framed("$9 subscribe, $5 sport, :2"));
            client.sends("PSUBSCRIBE n*").gets(framed("$10 psubscribe, $2 n*, :3"));
            redis.client().sends("PUBLISH news one").gets(":2");
            client.then().gets(framed("$7 message, $4 news, $3 one"));
            client.then().gets(framed("$8 pmessage, $2 n*, $4 news, $3 one"));
            if protocol == "3" {
                client.sends("GET a").gets("null");
                client.sends("PING").gets("+PONG");
                client.sends("SETNX lock:sub a1").gets(":1");
                client.sends("DEL lock:sub").gets(":1");
            } else {
                client.sends("PING").gets("[$4 pong, $0 ]");
                client.sends("GET a").gets_error("ERR Can't execute 'get'");
            }
            client.sends("UNSUBSCRIBE news").gets(framed("$11 unsubscribe, $4 news, :2"));
            client.sends("PUNSUBSCRIBE").gets(framed("$12 punsubscribe, $2 n*, :1"));
            client.sends("UNSUBSCRIBE").gets(framed("$11 unsubscribe, $5 sport, :0"));
            let nothing = if protocol == "3" { "null" } else { "nil" };
            client.sends("GET a").gets(nothing);
        }
    }
}

#[test]
fn a_flood_of_messages_and_commands_keeps_every_reply_in_place() {
    let twins = Twins::start();
    let client = twins.proxy.client();
    client.sends("HELLO 3").reply();
    client.sends("SUBSCRIBE news").gets(">[$9 subscribe, $4 news, :1]");
    let publisher = twins.behind.client();
    let (mut messages, mut answers) = (0, 0);
    for round in 0..100 {
        publisher.sends(format!("PUBLISH news {round}")).gets(":1");
        client.write(&encode(&["ECHO", &round.to_string()]));
        client.write(&encode(&["SETNX", &format!("lock:{round}"), "a1"]));
    }
    while messages < 100 || answers < 200 {
        let reply = client.then().reply().to_string();
        if reply.starts_with(">[$7 message") {
            messages += 1;
        } else {
            let round = answers / 2;
            let text = round.to_string();
            let expected = if answers % 2 == 0 { format!("${} {text}", text.len()) } else { ":1".to_owned() };
            assert_eq!(reply, expected);
            answers += 1;
        }
    }
}

#[test]
fn blocking_commands_wait_for_their_moment() {
    let twins = Twins::start();
    for (redis, client) in [(&twins.plain, twins.plain.client()), (&twins.behind, twins.proxy.client())] {
        client.write(&encode(&["BLPOP", "queue", "5"]));
        client.hears_nothing_for(Duration::from_millis(50));
        redis.client().sends("RPUSH queue work").gets(":1");
        client.then().gets("[$5 queue, $4 work]");
        client.write(&encode(&["BZPOPMIN", "board", "5"]));
        redis.client().sends("ZADD board 1 a").gets(":1");
        client.then().gets("[$5 board, $1 a, $1 1]");
        client.sends("BRPOP queue 0.02").gets("nil-array");
        client.pipelines(&["BLPOP queue 0.02", "PING"], &["nil-array", "+PONG"]);
    }
}

#[test]
fn a_client_that_stops_sending_still_gets_every_reply() {
    let twins = Twins::start();
    for client in [twins.plain.client(), twins.proxy.client()] {
        let mut bytes = encode(&["SETNX", "lock:job", "a1"]).to_vec();
        bytes.extend(encode(&["SET", "a", "1"]));
        bytes.extend(encode(&["GET", "a"]));
        bytes.extend(encode(&["DEL", "lock:job"]));
        client.write(&bytes);
        client.half_closes();
        let answer = client.reads_to_end();
        // Redis itself may close before it has sent all replies; the proxy may send any beginning of them.
        assert!(b":1\r\n+OK\r\n$1\r\n1\r\n:1\r\n".starts_with(&answer), "{}", answer.escape_ascii());
    }
    let client = twins.proxy.client();
    client.write(&encode(&["PING"]));
    client.half_closes();
    assert_eq!(client.reads_to_end(), b"+PONG\r\n");
}

/// Only the server knows whether such a command waits. So the server has a while to reply, and the commands
/// behind it get their replies, too.
#[test]
fn what_stands_behind_an_unknown_command_is_answered_though_the_client_sends_no_more() {
    let requests: &[&[&str]] = &[
        &["X.UNKNOWN", "a"],
        &["SET", "a", "1"],
        &["SETNX", "lock:job", "a1"],
        &["X.UNKNOWN", "b"],
        &["GET", "a"],
        &["DEL", "lock:job"],
        &["PING"],
    ];
    let bytes: Vec<u8> = requests.iter().flat_map(|words| encode(words)).collect();
    let redis = Redis::start();
    let says = |words: &[&str]| redis.client().sends_arguments(words).reply().to_string();
    let (first, second) = (says(requests[0]), says(requests[3]));
    let expected = format!("{first}\r\n+OK\r\n:1\r\n{second}\r\n$1\r\n1\r\n:1\r\n+PONG\r\n");
    for builder in [Proxy::builder(&redis), Proxy::builder(&redis).multiplexed()] {
        let proxy = builder.start();
        for run in 0..40 {
            let client = proxy.client();
            client.write(&bytes);
            client.half_closes();
            let answer = client.reads_to_end();
            let answer = String::from_utf8_lossy(&answer);
            assert_eq!(answer, expected, "run {run}");
        }
    }
}

/// One that waits all the same does so for no client that is gone.
#[test]
fn an_unknown_command_that_waits_is_ended_with_its_client() {
    let redis = Redis::with_arguments(&["--rename-command", "BLPOP", "WAITPOP"]);
    let proxy = Proxy::enforcing(&redis);
    let client = proxy.client();
    client.sends("CLIENT SETNAME leaver").gets("+OK");
    client.write(&[encode(&["WAITPOP", "queue", "0"]), encode(&["SETNX", "lock:job", "a1"])].concat());
    wait_for("it to wait", || listed(&redis).contains("cmd=blpop"));
    drop(client);
    wait_for("its connection to go", || !listed(&redis).contains("name=leaver"));
    redis.client().sends("RPUSH queue a").gets(":1");
}

fn listed(redis: &Redis) -> String {
    redis.client().sends("CLIENT LIST").text()
}

#[test]
fn quit_is_answered_and_closes() {
    let twins = Twins::start();
    for client in [twins.plain.client(), twins.proxy.client()] {
        client.sends("QUIT").gets("+OK");
        client.then().gets_close();
    }
}

#[test]
fn tracked_keys_are_invalidated() {
    let twins = Twins::start();
    for (redis, client) in [(&twins.plain, twins.plain.client()), (&twins.behind, twins.proxy.client())] {
        client.sends("HELLO 3").reply();
        client.sends("CLIENT TRACKING on").gets("+OK");
        client.sends("GET a").gets("null");
        redis.client().sends("SET a 1").gets("+OK");
        client.then().gets(">[$10 invalidate, [$1 a]]");
        client.sends("GET a").gets("$1 1");
        client.sends("CLIENT TRACKING off").gets("+OK");
        redis.client().sends("SET a 2").gets("+OK");
        client.hears_nothing_for(Duration::from_millis(30));
    }
}

#[test]
fn monitor_and_keyspace_notifications_pass() {
    let twins = Twins::start();
    let client = twins.proxy.client();
    client.sends("MONITOR").gets("+OK");
    twins.behind.client().sends("SET a 1").gets("+OK");
    // The proxy's own connection is in the feed, too.
    wait_for("the line of the feed", || {
        let line = client.then().reply().to_string();
        line.contains("\"SET\" \"a\" \"1\"")
    });

    twins.behind.client().sends("CONFIG SET notify-keyspace-events KEA").gets("+OK");
    let listener = twins.proxy.client();
    listener.sends("PSUBSCRIBE __keyevent@0__:*").gets("[$10 psubscribe, $16 __keyevent@0__:*, :1]");
    let alice = twins.proxy.client();
    alice.sends("SET lock:job a1 NX PX 9000").gets("+OK");
    alice.sends("DEL lock:job").gets(":1");
    for event in ["set", "expire", "del"] {
        let channel = format!("__keyevent@0__:{event}");
        listener.then().gets(format!("[$8 pmessage, $16 __keyevent@0__:*, ${} {channel}, $8 lock:job]", channel.len()));
    }
}

#[test]
fn most_traffic_never_meets_a_policy() {
    let twins = Twins::start();
    let (_, client) = twins.pair();
    for _ in 0..10 {
        client.sends("SET plain 1").gets("+OK");
    }
    let metrics = twins.proxy.metrics();
    assert!(metrics.get("lockwarden_commands_total{class=\"passthrough\",result=\"ok\"}") >= 10.0);
    assert_eq!(metrics.get("lockwarden_commands_total{class=\"policy\"}"), 0.0);
}
