//! The operator's commands to the proxy over RESP: which users may send them, the replies in each protocol, and that
//! everything around them stays as it was.

use lockwarden_tests::{Client, Proxy, ProxyBuilder, Redis, Reply, wait_for, wait_for_value};
use serde_json::Value;

/// One of each, as an operator types them.
const COMMANDS: &[&str] = &[
    "LOCKWARDEN LOCKS",
    "LOCKWARDEN LOCKS lock:*",
    "lockwarden why 7F3K2A",
    "LOCKWARDEN MODE monitor",
    "LOCKWARDEN MODE locks enforce",
    "LOCKWARDEN MODE locks loud",
    "LOCKWARDEN Clients",
];

fn builder(redis: &Redis) -> ProxyBuilder {
    let user = "ACL SETUSER operator on >pw ~* &* +@all";
    redis.client().sends(user).gets("+OK");
    Proxy::builder(redis).top("admin_identities", "[\"operator\"]")
}

fn named(proxy: &Proxy, name: &str) -> Client {
    let client = proxy.client();
    client.sends(format!("CLIENT SETNAME {name}")).gets("+OK");
    client
}

/// Logged in as the one that may ask.
fn operator(proxy: &Proxy) -> Client {
    let client = named(proxy, "operator");
    client.sends("AUTH operator pw").gets("+OK");
    client
}

/// The value of this name, in a map or in the flat array that RESP2 has for it.
#[track_caller]
fn field<'a>(reply: &'a Reply, name: &str) -> &'a Reply {
    let (Reply::Array(pairs) | Reply::Map(pairs)) = reply else {
        panic!("no map: {reply}");
    };
    let mut pairs = pairs.chunks(2);
    let found = pairs.find(|pair| pair[0] == Reply::Bulk(name.into()));
    found.map_or_else(|| panic!("no {name} in {reply}"), |pair| &pair[1])
}

/// The entries of a list, as soon as they are as expected: the list is some milliseconds behind the real state.
#[track_caller]
fn entries(operator: &Client, command: &str, name: &str, expected: impl Fn(&[Reply]) -> bool) -> Vec<Reply> {
    wait_for_value("the reply to be as expected", || {
        let reply = operator.sends(command).reply();
        let entries = field(&reply, name).elements().to_vec();
        assert_eq!(field(&reply, "matching"), &Reply::Integer(entries.len() as i64));
        expected(&entries).then_some(entries)
    })
}

#[test]
fn only_one_of_admin_identities_is_answered() {
    let redis = Redis::start();
    let proxy = builder(&redis).start();
    // Any client may call itself so.
    let stranger = named(&proxy, "operator");
    for line in COMMANDS {
        stranger.sends(*line).gets_error("NOPERM LOCKWARDEN ");
    }
    proxy.counts("lockwarden_commands_total{class=\"admin\",result=\"denied\"}", COMMANDS.len() as f64);
    // The list of commands is no secret.
    assert!(!stranger.sends("LOCKWARDEN HELP").reply().elements().is_empty());
    assert_eq!(proxy.logged(&["mode switched"]), 0, "nothing was done");
    // Every client may ask for its own fencing token, and the reply to an unknown word names the known ones.
    stranger.sends("LOCKWARDEN FENCE lock:a").gets("nil");
    for line in ["LOCKWARDEN", "LOCKWARDEN UNLOCK lock:a"] {
        stranger.sends(line).gets_error("ERR unknown subcommand");
    }
    stranger.sends("LOCKWARDEN FENCE").gets_error("ERR syntax error");
    let operator = operator(&proxy);
    let help = operator.sends("LOCKWARDEN HELP").reply();
    let Reply::Status(first) = &help.elements()[0] else {
        panic!("{help}");
    };
    assert!(first.starts_with("LOCKWARDEN <subcommand>"), "{first}");
    operator.sends("LOCKWARDEN UNLOCK lock:a").gets_error("ERR unknown subcommand");
    // A client that logs out has no rights left.
    operator.sends("RESET").gets("+RESET");
    operator.sends("LOCKWARDEN CLIENTS").gets_error("NOPERM");
}

#[test]
fn nobody_is_answered_where_nobody_is_named() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let operator = named(&proxy, "operator");
    for line in COMMANDS {
        operator.sends(*line).gets_error("NOPERM");
    }
}

#[test]
fn the_locks_are_told_over_resp() {
    let redis = Redis::start();
    let proxy = builder(&redis).start();
    let (operator, holder) = (operator(&proxy), named(&proxy, "billing-7"));
    operator.sends("LOCKWARDEN LOCKS").gets("[$8 matching, :0, $5 locks, []]");
    holder.sends("SET lock:a secret-of-mine NX PX 60000").gets("+OK");
    holder.sends("SETNX lock:b b1").gets(":1");
    let waiter = named(&proxy, "billing-8");
    for _ in 0..3 {
        waiter.sends("SETNX lock:a w").gets(":0");
    }
    let told = entries(&operator, "LOCKWARDEN LOCKS", "locks", |locks| {
        locks.len() == 2 && locks.iter().any(|lock| field(lock, "waiters") == &Reply::Integer(1))
    });
    let first = &told[0];
    for (name, expected) in [
        ("key", Reply::Bulk("lock:a".into())),
        ("db", Reply::Integer(0)),
        ("namespace", Reply::Bulk("locks".into())),
        ("state", Reply::Bulk("held".into())),
        ("application", Reply::Bulk("billing-7".into())),
        ("address", Reply::Bulk(holder.source().to_string().into())),
        ("fence", Reply::Integer(holder.sends("LOCKWARDEN FENCE lock:a").integer())),
        ("seen", Reply::Bulk("acquire".into())),
    ] {
        assert_eq!(field(first, name), &expected, "{name} of {first}");
    }
    let left = field(first, "ttl_left_ms").integer();
    assert!((1..=60_000).contains(&left), "{first}");
    // A glob, as for KEYS; under RESP3 the maps are maps.
    let one = entries(&operator, "LOCKWARDEN LOCKS lock:[^a]", "locks", |_| true);
    assert_eq!(field(&one[0], "key"), &Reply::Bulk("lock:b".into()));
    assert_eq!(one.len(), 1);
    entries(&operator, "LOCKWARDEN LOCKS LOCK:*", "locks", <[_]>::is_empty);
    operator.sends("HELLO 3").reply();
    let reply = operator.sends("LOCKWARDEN LOCKS lock:b").reply();
    let locks = field(&reply, "locks").elements();
    assert!(matches!(&reply, Reply::Map(_)), "{reply}");
    assert!(matches!(&locks[0], Reply::Map(_)), "{reply}");
    assert!(!reply.to_string().contains("secret"), "{reply}");
}

#[test]
fn the_clients_are_told_over_resp() {
    let redis = Redis::start();
    let proxy = builder(&redis).start();
    let (operator, holder) = (operator(&proxy), named(&proxy, "billing-7"));
    holder.sends("SET lock:a a1 NX PX 60000").gets("+OK");
    holder.sends("SELECT 3").gets("+OK");
    holder.sends("SET lock:b a1 NX PX 60000").gets("+OK");
    let waiter = named(&proxy, "billing-8");
    for _ in 0..3 {
        waiter.sends("SETNX lock:a w").gets(":0");
    }
    let told = entries(&operator, "LOCKWARDEN CLIENTS", "clients", |clients| {
        clients.len() == 3
            && field(&clients[0], "holding") == &Reply::Integer(2)
            && field(&clients[1], "waiting") == &Reply::Integer(1)
    });
    let names: Vec<_> = told.iter().map(|one| field(one, "name").text()).collect();
    assert_eq!(names, ["billing-7", "billing-8", "operator"]);
    assert_eq!(field(&told[0], "holds").to_string(), "[$6 lock:a, $13 lock:b (db 3)]");
    assert_eq!(field(&told[1], "waits_for").to_string(), "[$6 lock:a]");
    assert_eq!(field(&told[0], "user"), &Reply::Nil, "it is the default one");
    assert_eq!(field(&told[0], "address").text(), holder.source().to_string());
}

#[test]
fn a_decision_is_told_over_resp_in_the_words_of_the_command_line() {
    let redis = Redis::start();
    let proxy = builder(&redis).start();
    let (operator, holder) = (operator(&proxy), named(&proxy, "billing-7"));
    holder.sends("SET lock:a a1 NX PX 60000").gets("+OK");
    let stranger = named(&proxy, "stock-2");
    let refused = stranger.sends("SET lock:a s1").gets_error("LOCKDENIED overwrite");
    let id = refused.split("id=").nth(1).expect("an id");
    let id = id.split(' ').next().expect("an id");
    let reply = wait_for_value("the decision to be remembered", || {
        let reply = operator.sends(format!("LOCKWARDEN WHY {id}")).reply();
        matches!(reply, Reply::Array(_)).then_some(reply)
    });
    let said = reply.to_string();
    for words in [
        format!("+{id}: SET lock:a was refused: overwrite"),
        "who      stock-2 at ".to_owned(),
        "granted to billing-7 at ".to_owned(),
        "do       acquire with SET key value NX PX ms".to_owned(),
    ] {
        assert!(said.contains(&words), "{words}: {said}");
    }
    // As it was copied, with the wrong case.
    let again = operator.sends(format!("LOCKWARDEN WHY {}", id.to_lowercase()));
    again.gets(&reply);
    for unknown in ["AAAAAA", "\"\u{1b}[2J\""] {
        let said = operator.sends(format!("LOCKWARDEN WHY {unknown}")).gets_error("ERR this proxy does not remember ");
        assert!(!said.contains('\u{1b}'), "{said:?}");
    }
}

#[test]
fn a_mode_is_switched_over_resp_and_the_audit_trail_names_who_did_it() {
    let redis = Redis::start();
    redis.client().sends("ACL SETUSER keeper on >pw ~* &* +@all").gets("+OK");
    let directory = tempfile::tempdir().expect("a directory");
    let trail = directory.path().join("audit.jsonl");
    let proxy = Proxy::builder(&redis)
        .top("admin_identities", "[\"keeper\"]")
        .top("audit_file", &format!("{:?}", trail.display()))
        .start();
    let operator = named(&proxy, "night-shift");
    operator.sends("AUTH keeper pw").gets("+OK");
    let (holder, stranger) = (proxy.client(), proxy.client());
    holder.sends("SET lock:a a1 NX PX 60000").gets("+OK");
    stranger.sends("SET lock:a s1").gets_error("LOCKDENIED");
    operator.sends("LOCKWARDEN MODE locks monitor").gets("[$5 locks, $7 monitor]");
    stranger.sends("SET lock:a s1").gets("+OK");
    operator.sends("HELLO 3").reply();
    let reply = operator.sends("lockwarden mode ENFORCE").reply();
    assert_eq!(field(&reply, "locks").text(), "enforce");
    assert!(matches!(reply, Reply::Map(_)), "{reply}");
    holder.sends("SET lock:c a1 NX PX 60000").gets("+OK");
    stranger.sends("SET lock:c s1").gets_error("LOCKDENIED");
    // A mistake changes nothing, and says what is right.
    let said = operator.sends("LOCKWARDEN MODE orders monitor").gets_error("ERR no such namespace: \"orders\"");
    assert!(said.contains("locks"), "{said}");
    for wrong in
        ["LOCKWARDEN MODE", "LOCKWARDEN MODE locks", "LOCKWARDEN MODE locks off", "LOCKWARDEN MODE locks monitor now"]
    {
        operator.sends(wrong).gets_error("ERR syntax error: LOCKWARDEN MODE [namespace] enforce|monitor [ANYWAY]");
    }
    operator
        .sends_arguments(&[&b"LOCKWARDEN"[..], b"MODE", b"\xff\x1b[2J", b"monitor"])
        .gets_error("ERR no such namespace");
    stranger.sends("SET lock:c s1").gets_error("LOCKDENIED");
    proxy.logs(&["mode set for one of admin_identities", "\"user\":\"keeper\""]);

    let (code, _) = proxy.post_mode("locks", "monitor", Some("the-tests-own-admin-token"));
    assert_eq!(code, 200);
    let switches = wait_for_value("three switches to be in the audit trail", || {
        let text = std::fs::read_to_string(&trail).unwrap_or_default();
        // The last line may be under way.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let lines = whole.lines().map(|line| serde_json::from_str(line).expect(line));
        let switches: Vec<Value> = lines.filter(|line: &Value| line["event"] == "mode-switched").collect();
        (switches.len() == 3).then_some(switches)
    });
    for (switch, detail) in switches.iter().zip(["locks=monitor", "locks=enforce"]) {
        assert_eq!(switch["detail"], detail);
        let who = &switch["client"];
        assert_eq!(who["user"], "keeper", "{switch}");
        assert_eq!(who["name"], "night-shift", "{switch}");
        assert_eq!(who["address"], operator.source().to_string(), "{switch}");
    }
    let by_http = &switches[2]["client"];
    assert!(by_http["user"].is_null(), "{by_http}");
    assert!(by_http["address"].as_str().is_some_and(|address| address.starts_with("127.0.0.1:")), "{by_http}");
}

#[test]
fn an_operators_command_has_its_turn_and_is_no_part_of_a_block() {
    let redis = Redis::start();
    let proxy = builder(&redis).start();
    let operator = operator(&proxy);
    let none = "[$8 matching, :0, $5 locks, []]";
    operator.pipelines(
        &["SET plain 1", "LOCKWARDEN LOCKS", "GET plain", "LOCKWARDEN LOCKS", "PING"],
        &["+OK", none, "$1 1", none, "+PONG"],
    );
    // As it is typed by hand.
    operator.sends_bytes("LOCKWARDEN LOCKS\r\n").gets(none);
    operator.sends_bytes("  lockwarden   LOCKS \"lock:*\"\r\n").gets(none);
    // Replies that the client does not want.
    operator.write(b"CLIENT REPLY SKIP\r\nLOCKWARDEN HELP\r\n");
    operator.sends("PING").gets("+PONG");
    operator.write(b"CLIENT REPLY OFF\r\nLOCKWARDEN LOCKS\r\nLOCKWARDEN WHY\r\nCLIENT REPLY ON\r\n");
    operator.then().gets("+OK");
    // In a block an order could not be taken back.
    for line in COMMANDS {
        operator.sends("MULTI").gets("+OK");
        operator.sends("SET plain 2").gets("+QUEUED");
        let said = operator.sends(*line).gets_error("ERR LOCKWARDEN ");
        assert!(said.ends_with("is not possible inside a transaction"), "{said}");
        operator.sends("EXEC").gets_error("EXECABORT");
    }
    operator.sends("GET plain").gets("$1 1");
    operator.sends("MULTI").gets("+OK");
    operator.sends("LOCKWARDEN HELP").gets_error("ERR");
    operator.sends("DISCARD").gets("+OK");
    let stranger = proxy.client();
    stranger.sends("MULTI").gets("+OK");
    stranger.sends("LOCKWARDEN CLIENTS").gets_error("NOPERM");
    stranger.sends("EXEC").gets_error("EXECABORT");
    assert_eq!(proxy.logged(&["mode switched"]), 0);
    // While it listens, a client of RESP2 may send little.
    operator.sends("SUBSCRIBE news").reply();
    operator.sends("LOCKWARDEN LOCKS").gets_error("ERR Can't execute 'lockwarden'");
    operator.sends("UNSUBSCRIBE news").reply();
    operator.sends("LOCKWARDEN LOCKS").gets(none);
}

#[test]
fn before_the_login_an_operator_is_nobody() {
    let redis = Redis::with_arguments(&["--requirepass", "secret"]);
    let backend = format!("redis://:secret@{}", redis.address());
    let proxy = ProxyBuilder::for_backend(&backend).top("admin_identities", "[\"operator\", \"default\"]").start();
    let client = proxy.client();
    for line in COMMANDS {
        client.sends(*line).gets_error("NOAUTH");
    }
    client.sends("AUTH secret").gets("+OK");
    client.sends("LOCKWARDEN LOCKS").gets("[$8 matching, :0, $5 locks, []]");
}

/// `redis-cli` prints to a terminal, and clients choose keys and names.
#[test]
fn hostile_keys_and_names_are_spelled_over_resp() {
    let redis = Redis::start();
    let proxy = builder(&redis).start();
    let operator = operator(&proxy);
    let client = named(&proxy, "=cmd|<script>");
    client.sends_arguments(&[&b"SET"[..], b"lock:\x1b[2J\xff\r\n+OK", b"1", b"NX", b"PX", b"60000"]).gets("+OK");
    for command in ["LOCKWARDEN LOCKS\r\n", "LOCKWARDEN CLIENTS\r\n"] {
        wait_for("the lock to be told", || {
            operator.write(command.as_bytes());
            let reply = String::from_utf8(operator.raw_reply()).expect("it is text");
            assert!(!reply.contains('\u{1b}'), "{reply:?}");
            reply.contains(r"lock:\x1b[2J\xff\x0d\x0a+OK")
        });
    }
    // A glob is for the bytes of the key.
    let found = entries(&operator, "LOCKWARDEN LOCKS lock:?[[]2J*", "locks", |_| true);
    assert_eq!(found.len(), 1);
}

#[test]
fn a_long_list_is_cut_and_says_how_many_there_are() {
    let redis = Redis::start();
    let proxy = builder(&redis).start();
    let (operator, holder) = (operator(&proxy), proxy.client());
    for number in 0..230 {
        holder.sends(format!("SET lock:{number} x NX PX 60000")).gets("+OK");
    }
    wait_for("all locks to be told", || {
        let reply = operator.sends("LOCKWARDEN LOCKS").reply();
        assert!(field(&reply, "locks").elements().len() <= 200);
        field(&reply, "matching") == &Reply::Integer(230)
    });
}
