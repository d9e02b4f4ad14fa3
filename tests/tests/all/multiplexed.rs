//! `sessions = "multiplexed"`: clients of one kind share a connection to Redis, and none of them notices. The
//! proxy of these tests has one thread, so that all clients that may share a connection do. What is the same
//! on unshared connections is in the other files, all of which can be run with
//! `LOCKWARDEN_TEST_SESSIONS=multiplexed`.

use std::thread;
use std::time::Duration;

use lockwarden_tests::{
    Client, Mode, Numbers, Proxy, ProxyBuilder, Redis, Reply, Server, comes_true, encode, wait_for,
};

fn multiplexed(redis: &Redis) -> Proxy {
    Proxy::builder(redis).multiplexed().start()
}

fn monitoring(redis: &Redis) -> Proxy {
    Proxy::builder(redis).multiplexed().mode(Mode::Monitor).start()
}

/// Under the key `big`.
#[track_caller]
fn with_a_value_of(redis: &Redis, bytes: usize) {
    let set = format!("SET big {}", "x".repeat(bytes));
    redis.client().sends(set).gets("+OK");
}

/// The proxy's own connection, the one over which it writes for itself, and two shared ones, one for reads and one
/// for writes; and sometimes, for a moment, the one over which it checks whether a password is required.
const FEW: usize = 5;

#[track_caller]
fn has_at_most(redis: &Redis, connections: usize) {
    let mut found = 0;
    let few = comes_true(|| {
        found = redis.connections();
        found <= connections
    });
    assert!(few, "{found} connections, not {connections}");
}

#[test]
fn a_hundred_clients_share_one_connection() {
    let redis = Redis::start();
    let proxy = multiplexed(&redis);
    let clients: Vec<_> = (0..100).map(|_| proxy.client()).collect();
    for (at, client) in clients.iter().enumerate() {
        client.sends(format!("SET key:{at} {at}")).gets("+OK");
        client.sends(format!("SET lock:{at} a{at} NX PX 9000")).gets("+OK");
    }
    has_at_most(&redis, FEW);
    for (at, client) in clients.iter().enumerate() {
        let length = at.to_string().len();
        client.sends(format!("GET key:{at}")).gets(format!("${length} {at}"));
        client.sends(format!("DEL lock:{at}")).gets(":1");
    }
    has_at_most(&redis, FEW);
}

/// Clients that begin as libraries do: their introduction costs no connection for good.
#[test]
fn clients_that_introduce_themselves_share_as_well() {
    let redis = Redis::start();
    let proxy = multiplexed(&redis);
    let clients: Vec<_> = (0..50).map(|_| proxy.client()).collect();
    for client in &clients {
        client.sends("HELLO 3").reply();
        client.sends("CLIENT SETINFO LIB-NAME somelib").reply();
        client.sends("CLIENT SETINFO LIB-VER 7.1").reply();
        client.sends("SELECT 2").gets("+OK");
        client.sends("INCR clients").reply();
    }
    has_at_most(&redis, FEW);
    let redis = redis.client();
    redis.sends("SELECT 2").gets("+OK");
    redis.sends("GET clients").gets("$2 50");
    let client = &clients[7];
    // A connection that is needed again is introduced again.
    let info = client.sends("CLIENT INFO").reply().to_string();
    if !Server::under_test().lacks("CLIENT SETINFO", 7, 2) {
        assert!(info.contains("lib-name=somelib lib-ver=7.1"), "{info}");
        assert!(info.contains("resp=3"), "{info}");
    }
    assert!(info.contains("db=2"), "{info}");
}

#[test]
fn each_gets_its_own_replies_in_order_under_load() {
    let redis = Redis::start();
    let proxy = multiplexed(&redis);
    thread::scope(|scope| {
        for seed in 1..=4 {
            let proxy = &proxy;
            scope.spawn(move || {
                let mut dice = Numbers(seed);
                let clients: Vec<_> = (0..8).map(|_| proxy.client()).collect();
                for round in 0..40 {
                    // All have sent before the first reads.
                    let expected: Vec<Vec<String>> = clients
                        .iter()
                        .enumerate()
                        .map(|(at, client)| {
                            let me = format!("{seed}-{at}-{round}");
                            let (requests, replies) = turn(&mut dice, &me);
                            let bytes: Vec<u8> = requests.iter().flat_map(|words| encode(words)).collect();
                            match dice.below(3) {
                                0 => bytes.chunks(bytes.len() / 3 + 1).for_each(|part| client.write(part)),
                                _ => client.write(&bytes),
                            }
                            replies
                        })
                        .collect();
                    for (client, replies) in clients.iter().zip(expected) {
                        for reply in replies {
                            client.then().gets(reply);
                        }
                    }
                }
            });
        }
    });
    has_at_most(&redis, FEW + 8);
}

/// The commands that one client sends at once, and the replies that must come.
fn turn(dice: &mut Numbers, me: &str) -> (Vec<Vec<String>>, Vec<String>) {
    let (mut requests, mut replies) = (Vec::new(), Vec::new());
    let mut says = |line: String, reply: String| {
        requests.push(line.split(' ').map(str::to_owned).collect());
        replies.push(reply);
    };
    let mine = format!("${} {me}", me.len());
    for _ in 0..=dice.below(6) {
        match dice.below(9) {
            0 | 1 => says(format!("ECHO {me}"), mine.clone()),
            2 => {
                says(format!("SET key:{me} {me}"), "+OK".into());
                says(format!("GET key:{me}"), mine.clone());
            }
            3 => {
                let long = me.repeat(1 + dice.below(3_000));
                says(format!("ECHO {long}"), format!("${} {long}", long.len()));
            }
            4 => {
                says("MULTI".into(), "+OK".into());
                says(format!("SET block:{me} {me}"), "+QUEUED".into());
                says(format!("GET block:{me}"), "+QUEUED".into());
                says("EXEC".into(), format!("[+OK, {mine}]"));
            }
            5 => {
                let db = 1 + dice.below(2);
                says(format!("SELECT {db}"), "+OK".into());
                says(format!("SET in:{db}:{me} {me}"), "+OK".into());
                says(format!("EXISTS in:{db}:{me}"), ":1".into());
                says("SELECT 0".into(), "+OK".into());
                says(format!("EXISTS in:{db}:{me}"), ":0".into());
            }
            6 => {
                says(format!("SET lock:{me} {me} NX PX 9000"), "+OK".into());
                says(format!("GET lock:{me}"), mine.clone());
                says(format!("DEL lock:{me}"), ":1".into());
            }
            7 => {
                says(format!("WATCH key:{me}"), "+OK".into());
                says("UNWATCH".into(), "+OK".into());
                says(format!("RPUSH list:{me} {me}"), ":1".into());
                says(format!("BLPOP list:{me} 1"), format!("[${} list:{me}, {mine}]", me.len() + 5));
            }
            _ => says(format!("SET {me}"), "-ERR wrong number of arguments for 'set' command".into()),
        }
    }
    (requests, replies)
}

/// Another multiplexing proxy sends WATCH on a shared connection and the transaction on another one: there a
/// stale holder deletes its successor's lock.
#[test]
fn a_stale_holders_release_by_watch_never_deletes_a_strangers_lock() {
    let redis = Redis::start();
    for (mode, key) in [(Mode::Enforce, "lock:job"), (Mode::Monitor, "lock:job"), (Mode::Monitor, "mutex:job")] {
        let proxy = Proxy::builder(&redis).multiplexed().mode(mode).start();
        let (alice, bob, other) = (proxy.client(), proxy.client(), proxy.client());
        for round in 0..10 {
            alice.sends(format!("SET {key} alice-{round} NX PX 9000")).gets("+OK");
            other.sends("PING").gets("+PONG");
            alice.sends(format!("WATCH {key}")).gets("+OK");
            other.sends("PING").gets("+PONG");
            alice.sends(format!("GET {key}")).gets(format!("$7 alice-{round}"));
            // Her lease runs out, and it is Bob's.
            redis.client().sends(format!("DEL {key}")).gets(":1");
            bob.sends(format!("SET {key} bob-{round} NX PX 9000")).gets("+OK");
            alice.sends("MULTI").gets("+OK");
            other.sends("PING").gets("+PONG");
            alice.sends(format!("DEL {key}")).gets("+QUEUED");
            alice.sends("EXEC").gets("nil-array");
            assert_eq!(redis.value(key), format!("$5 bob-{round}"));
            bob.sends(format!("DEL {key}")).gets(":1");
        }
        // No other client came between: the lock is hers to release.
        alice.sends(format!("SET {key} alice NX PX 9000")).gets("+OK");
        alice.pipelines(
            &[&format!("WATCH {key}"), &format!("GET {key}"), "MULTI", &format!("DEL {key}"), "EXEC"],
            &["+OK", "$5 alice", "+OK", "+QUEUED", "[:1]"],
        );
        assert!(redis.is_free(key));
    }
}

#[test]
fn a_watch_lasts_until_redis_has_ended_it() {
    let redis = Redis::start();
    let proxy = multiplexed(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("WATCH plain").gets("+OK");
    // An error that ends nothing.
    alice.sends("EXEC").gets("-ERR EXEC without MULTI");
    alice.sends("GET plain").gets("nil");
    bob.sends("SET plain b").gets("+OK");
    alice.sends("GET plain").gets("$1 b");
    // Her connection is hers as long as it watches.
    bob.pipelines(&["MULTI", "SET plain c", "EXEC"], &["+OK", "+QUEUED", "[+OK]"]);
    alice.sends("MULTI").gets("+OK");
    alice.sends("SET plain a").gets("+QUEUED");
    alice.sends("EXEC").gets("nil-array");
    // The next client on that connection finds no trace of it.
    for round in 0..3 {
        bob.sends("SET plain b").gets("+OK");
        bob.pipelines(&["MULTI", &format!("SET plain {round}"), "EXEC"], &["+OK", "+QUEUED", "[+OK]"]);
    }
}

#[test]
fn blocks_that_come_byte_by_byte_at_the_same_time_stay_apart() {
    let redis = Redis::start();
    let proxy = multiplexed(&redis);
    let clients: Vec<_> = (0..3).map(|_| proxy.client()).collect();
    let blocks: Vec<Vec<u8>> = (0..3)
        .map(|at| {
            let lines = [
                "MULTI".to_owned(),
                format!("SET key:{at} {at}"),
                format!("SET lock:{at} a{at} NX PX 9000"),
                format!("GET key:{at}"),
                "EXEC".to_owned(),
                format!("ECHO {at}"),
            ];
            lines.iter().flat_map(|line| encode(&line.split(' ').collect::<Vec<_>>())).collect()
        })
        .collect();
    let longest = blocks.iter().map(Vec::len).max().unwrap_or_default();
    for byte in 0..longest {
        for (client, block) in clients.iter().zip(&blocks) {
            client.write(block.get(byte..byte + 1).unwrap_or_default());
        }
    }
    for (at, client) in clients.iter().enumerate() {
        for reply in ["+OK", "+QUEUED", "+QUEUED", "+QUEUED"] {
            client.then().gets(reply);
        }
        client.then().gets(format!("[+OK, +OK, $1 {at}]"));
        client.then().gets(format!("$1 {at}"));
    }
    has_at_most(&redis, FEW + 3);
}

#[test]
fn databases_and_protocols_are_shared_by_their_kind() {
    let redis = Redis::start();
    let proxy = multiplexed(&redis);
    let clients: Vec<_> = (0..24).map(|_| proxy.client()).collect();
    for (at, client) in clients.iter().enumerate() {
        let (db, protocol) = (at % 3, 2 + at % 2);
        client.sends(format!("HELLO {protocol}")).reply();
        client.sends(format!("SELECT {db}")).gets("+OK");
        client.sends(format!("HSET hash:{db}:{at} f v")).gets(":1");
    }
    for (at, client) in clients.iter().enumerate() {
        let shown = match at % 2 {
            0 => "[$1 f, $1 v]",
            _ => "{$1 f, $1 v}",
        };
        let db = at % 3;
        client.sends(format!("HGETALL hash:{db}:{at}")).gets(shown);
        let elsewhere = (db + 1) % 3;
        client.sends(format!("SELECT {elsewhere}")).gets("+OK");
        client.sends(format!("EXISTS hash:{db}:{at}")).gets(":0");
    }
    // Three databases and two protocols, each once shared; those that were left may be kept a while.
    drop(clients);
    let lists = redis.client().sends("CLIENT LIST").text();
    let shared = lists.lines().filter(|line| line.contains("cmd=exists"));
    assert!(shared.count() <= 7, "{lists}");
}

#[test]
fn users_share_with_those_who_proved_the_same() {
    let redis = Redis::with_arguments(&["--requirepass", "secret"]);
    let admin = redis.client();
    admin.sends("AUTH secret").gets("+OK");
    admin.sends("ACL SETUSER bob on >bobs ~* &* +@all").gets("+OK");
    let proxy = ProxyBuilder::for_backend(&format!("redis://:secret@{}", redis.address())).multiplexed().start();
    let [defaults, bobs, strangers] = [0, 1, 2].map(|_| -> Vec<Client> { (0..10).map(|_| proxy.client()).collect() });
    for client in &strangers {
        client.sends("GET plain").gets_error("NOAUTH");
        client.sends("AUTH wrong").gets_error("WRONGPASS");
    }
    for client in &defaults {
        client.sends("AUTH secret").gets("+OK");
        client.sends("ACL WHOAMI").gets("$7 default");
    }
    for client in &bobs {
        client.sends("AUTH bob bobs").gets("+OK");
        client.sends("ACL WHOAMI").gets("$3 bob");
    }
    let before = admin.sends("CLIENT LIST").text();
    for _ in 0..3 {
        for client in &defaults {
            client.sends("ACL WHOAMI").gets("$7 default");
        }
        for client in &strangers {
            client.sends("ACL WHOAMI").gets_error("NOAUTH");
        }
        for client in &bobs {
            client.sends("ACL WHOAMI").gets("$3 bob");
        }
    }
    let bobs_own = before.lines().filter(|line| line.contains("user=bob"));
    assert!(bobs_own.count() <= 11, "{before}");
    // The sharing clients used one connection, and the others are at rest.
    let after = admin.sends("CLIENT LIST").text();
    let busy = |user: &str| {
        let line = |line: &&str| line.contains(&format!("user={user}")) && line.contains("cmd=acl");
        after.lines().filter(line).count()
    };
    assert_eq!(busy("bob"), 1, "{after}");
    // A user that is gone takes its own connections along, and no others.
    admin.sends("ACL DELUSER bob").gets(":1");
    defaults[0].sends("ACL WHOAMI").gets("$7 default");
    bobs[0].sends("ACL WHOAMI").gets_close();
}

/// On Redis, a password that is set later concerns later clients only.
#[test]
fn a_password_that_is_set_later_is_asked_of_newcomers() {
    let redis = Redis::start();
    let proxy = multiplexed(&redis);
    let old = proxy.client();
    old.sends("SET plain 1").gets("+OK");
    // A connection that was let in is kept for the next client that needs one.
    old.sends("MULTI").gets("+OK");
    old.sends("EXEC").gets("[]");
    old.sends("PING").gets("+PONG");
    redis.client().sends("CONFIG SET requirepass secret").gets("+OK");
    wait_for(
        "newcomers to be asked",
        || matches!(proxy.client().sends("GET plain").reply(), Reply::Error(text) if text.starts_with("NOAUTH")),
    );
    let new = proxy.client();
    new.sends("MULTI").gets_error("NOAUTH");
    new.sends("AUTH wrong").gets_error("WRONGPASS");
    new.sends("GET plain").gets_error("NOAUTH");
    new.sends("AUTH secret").gets("+OK");
    new.sends("GET plain").gets("$1 1");
    old.sends("GET plain").gets("$1 1");
}

#[test]
fn names_and_numbers_of_a_connection_stay() {
    let redis = Redis::start();
    let proxy = multiplexed(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("CLIENT SETNAME alice").gets("+OK");
    let id = alice.sends("CLIENT ID").integer();
    for round in 0..3 {
        alice.sends("SET plain 1").gets("+OK");
        bob.sends("CLIENT GETNAME").gets("nil");
        bob.sends("GET plain").gets("$1 1");
        alice.sends("CLIENT GETNAME").gets("$5 alice");
        assert_eq!(alice.sends("CLIENT ID").integer(), id, "round {round}");
        alice.sends("MULTI").gets("+OK");
        alice.sends("CLIENT ID").gets("+QUEUED");
        alice.sends("EXEC").gets(format!("[:{id}]"));
    }
    let info = alice.sends("CLIENT INFO").text();
    assert!(info.contains(&format!("id={id} ")), "{info}");
    assert!(info.contains("name=alice"), "{info}");
    assert_ne!(bob.sends("CLIENT ID").integer(), id);
}

/// A name that came with HELLO, or inside a block, is no other client's.
#[test]
fn nobody_finds_what_another_left_on_its_connection() {
    let redis = Redis::start();
    let proxy = multiplexed(&redis);
    for leaves in [
        &["HELLO 3 SETNAME alice"][..],
        &["HELLO 3", "MULTI", "CLIENT SETNAME alice", "EXEC"],
        &["HELLO 3", "WATCH plain", "CLIENT SETNAME alice", "UNWATCH"],
        &["HELLO 3", "CLIENT TRACKING ON BCAST"],
        &["HELLO 3", "CLIENT TRACKING ON"],
        &["HELLO 3", "WATCH plain", "EXEC"],
        &["HELLO 3", "SUBSCRIBE c c", "UNSUBSCRIBE d"],
        &["HELLO 3", "CLIENT NO-EVICT ON"],
        &["HELLO 3", "MULTI", "CLIENT NO-EVICT ON", "EXEC"],
        &["HELLO 3", "MULTI", "DISCARD", "EXEC x"],
    ] {
        let (alice, bob) = (proxy.client(), proxy.client());
        bob.sends("HELLO 3").reply();
        bob.sends("GET plain").reply();
        for line in leaves {
            alice.sends(line).reply();
        }
        for _ in 0..3 {
            alice.sends("ECHO hers").reply();
        }
        // He writes what she may have watched, and is told what she may have subscribed to.
        bob.pipelines(&["MULTI", "SET plain 1", "EXEC"], &["+OK", "+QUEUED", "[+OK]"]);
        bob.sends("MULTI").gets("+OK");
        bob.sends("CLIENT GETNAME").gets("+QUEUED");
        bob.sends("CLIENT INFO").gets("+QUEUED");
        let told = bob.sends("EXEC").reply().to_string();
        let state = ["name= ", "sub=0", "multi=2"];
        for word in state {
            assert!(told.contains(word), "{leaves:?} left {told}");
        }
        assert!(!told.contains("flags=t"), "{leaves:?} left {told}");
        redis.client().sends("SET plain 2").gets("+OK");
        redis.client().sends("PUBLISH c news").reply();
        bob.sends("MULTI").gets("+OK");
        bob.sends("PING").gets("+QUEUED");
        bob.sends("EXEC").gets("[+PONG]");
        bob.sends("PING").gets("+PONG");
    }
}

#[test]
fn a_client_that_is_killed_by_its_number_is_gone_and_nobody_else() {
    let redis = Redis::start();
    let proxy = multiplexed(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    let id = alice.sends("CLIENT ID").integer();
    alice.sends("GET plain").gets("nil");
    bob.sends("GET plain").gets("nil");
    bob.sends(format!("CLIENT KILL ID {id}")).gets(":1");
    alice.then().gets_close();
    bob.sends("GET plain").gets("nil");
}

#[test]
fn a_subscriber_comes_back_to_the_shared_connection() {
    let redis = Redis::start();
    let proxy = multiplexed(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    for _ in 0..3 {
        alice.sends("SUBSCRIBE c c").gets("[$9 subscribe, $1 c, :1]");
        alice.then().gets("[$9 subscribe, $1 c, :1]");
        alice.sends("UNSUBSCRIBE d").gets("[$11 unsubscribe, $1 d, :1]");
        bob.sends("PUBLISH c news").gets(":1");
        alice.then().gets("[$7 message, $1 c, $4 news]");
        alice.sends("PING").gets("[$4 pong, $0 ]");
        alice.sends("UNSUBSCRIBE").gets("[$11 unsubscribe, $1 c, :0]");
        alice.sends("SET plain 1").gets("+OK");
        bob.sends("PUBLISH c news").gets(":0");
        alice.sends("GET plain").gets("$1 1");
    }
    has_at_most(&redis, FEW + 1);
}

#[test]
fn who_waits_holds_nobody_up() {
    let redis = Redis::start();
    let proxy = monitoring(&redis);
    let other = proxy.client();
    let waiting: Vec<_> = ["queue", "lock:queue"]
        .iter()
        .map(|key| {
            let client = proxy.client();
            client.sends("PING").gets("+PONG");
            client.write(&encode(&["BLPOP", key, "0"]));
            client
        })
        .collect();
    wait_for("two blocked clients", || {
        let clients = redis.client().sends("INFO clients").text();
        clients.contains("blocked_clients:2\r\n")
    });
    for _ in 0..20 {
        other.sends("INCR plain").reply();
    }
    redis.client().sends("RPUSH queue job").gets(":1");
    waiting[0].then().gets("[$5 queue, $3 job]");
    waiting[0].sends("GET plain").gets("$2 20");
    redis.client().sends("RPUSH lock:queue job").gets(":1");
    waiting[1].then().gets("[$10 lock:queue, $3 job]");
}

/// One connection runs the script; the order to end it has to use another one.
#[test]
fn a_script_that_does_not_end_can_be_killed() {
    let redis = Redis::with_arguments(&["--lua-time-limit", "20"]);
    let proxy = multiplexed(&redis);
    let (runaway, operator) = (proxy.client(), proxy.client());
    operator.sends("PING").gets("+PONG");
    runaway.write(&encode(&["EVAL", "while true do end", "0"]));
    wait_for("the script to be killed", || operator.sends("SCRIPT KILL").reply() == Reply::Status("OK".into()));
    let text = runaway.then().gets_error("");
    assert!(text.contains("killed by user"), "{text}");
    operator.sends("PING").gets("+PONG");
}

#[test]
fn a_client_that_does_not_read_holds_nobody_up() {
    let redis = Redis::start();
    let proxy = multiplexed(&redis);
    with_a_value_of(&redis, 1 << 20);
    let (deaf, other) = (proxy.client(), proxy.client());
    other.sends("PING").gets("+PONG");
    let memory = || proxy.metric("process_resident_memory_bytes");
    let before = memory();
    // The first replies come one by one; the replies that the client does not read then stay with Redis.
    deaf.write(&encode(&["GET", "big"]).repeat(200));
    deaf.leaves_a_reply_unread();
    for _ in 0..50 {
        other.sends("SETNX lock:job a1").gets(":1");
        other.sends("DEL lock:job").gets(":1");
        let newcomer = proxy.client();
        newcomer.sends("PING").gets("+PONG");
    }
    let grown = memory() - before;
    assert!(grown < f64::from(64 << 20), "grown by {grown} bytes");
    for _ in 0..200 {
        assert_eq!(deaf.raw_reply().len(), (1 << 20) + 12);
    }
    deaf.sends("PING").gets("+PONG");
}

/// The bytes of awaited replies are bounded: for each client one long reply comes over the shared connection,
/// or two.
#[test]
fn clients_that_do_not_read_their_long_replies_hold_nobody_up_together() {
    for (bytes, replies) in [(1 << 20, 40), (8 << 20, 4)] {
        let redis = Redis::start();
        let proxy = multiplexed(&redis);
        with_a_value_of(&redis, bytes);
        let others: Vec<_> = (0..20).map(|_| proxy.client()).collect();
        let deaf: Vec<_> = (0..5).map(|_| proxy.client()).collect();
        let serves_others = || {
            for other in &others {
                other.sends("SETNX lock:job a1").gets(":1");
                other.sends("DEL lock:job").gets(":1");
            }
        };
        serves_others();
        for client in &deaf {
            client.write(&encode(&["GET", "big"]).repeat(replies));
            client.leaves_a_reply_unread();
        }
        for _ in 0..20 {
            serves_others();
            let held = proxy.metric("lockwarden_client_buffers_bytes{listener=\"default\"}");
            let most = 5 * (2 * bytes + (2 << 20));
            assert!(held <= most as f64, "{held} bytes are held");
        }
        assert_eq!(proxy.logged(&["giving up a client"]), 0);
        for client in &deaf {
            for _ in 0..replies {
                assert!(client.raw_reply().len() > bytes);
            }
            client.sends("PING").gets("+PONG");
        }
    }
}

/// Only the first of them comes over the shared connection.
#[test]
fn a_client_with_very_long_replies_gets_them_over_a_connection_of_its_own() {
    let redis = Redis::start();
    let proxy = multiplexed(&redis);
    with_a_value_of(&redis, 30 << 20);
    let (client, other) = (proxy.client(), proxy.client());
    other.sends("SETNX lock:job a1").gets(":1");
    other.sends("DEL lock:job").gets(":1");
    client.sends("GET nothing").gets("nil");
    let operator = redis.client();
    let connections = || operator.sends("CLIENT LIST").reply().to_string().matches(" addr=").count();
    let before = connections();
    for _ in 0..3 {
        client.write(&encode(&["GET", "big"]));
        assert!(client.raw_reply().len() > 30 << 20);
        other.sends("SETNX lock:job a1").gets(":1");
        other.sends("DEL lock:job").gets(":1");
    }
    wait_for("one more connection", || connections() == before + 1);
    client.sends("PING").gets("+PONG");
    wait_for("the same, which is kept for a while", || connections() == before + 1);
    // The commands of others meanwhile do not wait behind the reply.
    client.write(&encode(&["GET", "big"]));
    for _ in 0..20 {
        other.sends("SETNX lock:job a1").gets(":1");
        other.sends("DEL lock:job").gets(":1");
    }
    assert!(client.raw_reply().len() > 30 << 20);
    client.sends("PING").gets("+PONG");
}

/// It has had short ones, so that many of its requests are under way at a time.
#[test]
fn long_replies_behind_short_ones_come_in_their_order() {
    let redis = Redis::start();
    let proxy = multiplexed(&redis);
    with_a_value_of(&redis, 1 << 20);
    let (client, other) = (proxy.client(), proxy.client());
    let long = [b"$1048576\r\n", &b"x".repeat(1 << 20)[..], b"\r\n"].concat();
    for _ in 0..3 {
        let mut expected = Vec::new();
        for at in 0..100 {
            client.write(&encode(&["ECHO", &at.to_string()]));
            expected.push(Reply::Bulk(at.to_string().into_bytes()));
        }
        for reply in expected {
            assert_eq!(client.then().reply(), reply);
        }
        let mut requests = Vec::new();
        for at in 0..40 {
            requests.extend(encode(&["GET", "big"]));
            requests.extend(encode(&["INCR", &format!("n{at}")]));
        }
        client.write(&requests);
        client.leaves_a_reply_unread();
        other.sends("PING").gets("+PONG");
        for _ in 0..40 {
            assert!(client.raw_reply() == long);
            client.then().reply().integer();
        }
    }
}

/// As a library does that sends a pipeline whole and reads then. Without the proxy Redis keeps the replies.
#[test]
fn a_pipeline_that_is_sent_whole_before_a_reply_is_read_is_answered() {
    let redis = Redis::start();
    with_a_value_of(&redis, 100 << 10);
    for sessions in ["dedicated", "multiplexed"] {
        let proxy = Proxy::builder(&redis).top("sessions", &format!("\"{sessions}\"")).start();
        let client = proxy.client();
        // More replies than the proxy keeps, a lock in their midst, and more requests than sockets keep.
        let mut requests = encode(&["GET", "big"]).repeat(200);
        requests.extend(encode(&["SETNX", "lock:job", "a1"]));
        requests.extend(encode(&["DEL", "lock:job"]));
        let set = encode(&["SET", "plain", &"y".repeat(100 << 10)]);
        requests.extend(set.repeat(200));
        client.write(&requests);
        for _ in 0..200 {
            assert!(client.raw_reply().len() > 100 << 10);
        }
        client.then().gets(":1");
        client.then().gets(":1");
        for _ in 0..200 {
            client.then().gets("+OK");
        }
    }
}

/// Where a reply is so long that it does not fit, others wait, but not for ever: clients whose replies come
/// behind it get them when the client is given up, and all others use another connection.
#[test]
fn a_client_that_takes_no_reply_while_others_wait_behind_it_is_given_up() {
    let redis = Redis::start();
    let proxy = multiplexed(&redis);
    with_a_value_of(&redis, 140 << 20);
    let (deaf, behind) = (proxy.client(), proxy.client());
    behind.sends("PING").gets("+PONG");
    let memory = || proxy.metric("process_resident_memory_bytes");
    let before = memory();
    deaf.write(&encode(&["GET", "big"]));
    deaf.leaves_a_reply_unread();
    behind.write(&encode(&["ECHO", "still"]));
    for _ in 0..10 {
        let newcomer = proxy.client();
        newcomer.write(&encode(&["ECHO", "new"]));
        assert_eq!(newcomer.reads_until(b"new\r\n"), b"$3\r\nnew\r\n");
    }
    assert_eq!(behind.reads_until(b"still\r\n"), b"$5\r\nstill\r\n");
    let grown = memory() - before;
    assert!(grown < f64::from(320 << 20), "grown by {grown} bytes");
    // It gets what was on its way to it, and no more.
    let got = deaf.reads_to_end().len();
    assert!(got < 140 << 20, "{got} bytes");
    behind.sends("PING").gets("+PONG");
}

#[test]
fn a_client_that_takes_its_time_gets_everything() {
    let redis = Redis::start();
    let proxy = multiplexed(&redis);
    with_a_value_of(&redis, 1 << 20);
    let slow = proxy.client();
    slow.write(&encode(&["GET", "big"]).repeat(150));
    slow.leaves_a_reply_unread();
    for _ in 0..150 {
        assert_eq!(slow.raw_reply().len(), (1 << 20) + 12);
    }
    slow.sends("PING").gets("+PONG");
}

#[test]
fn replies_to_a_client_that_is_gone_go_to_nobody() {
    let redis = Redis::start();
    let proxy = multiplexed(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("SET plain hers").gets("+OK");
    bob.sends("SET other his").gets("+OK");
    for _ in 0..5 {
        let gone = proxy.client();
        gone.sends("PING").gets("+PONG");
        redis.freeze();
        gone.write(&encode(&["ECHO", "not for you"]).repeat(20));
        alice.write(&encode(&["GET", "plain"]));
        gone.write(&encode(&["INCR", "counter"]));
        bob.write(&encode(&["GET", "other"]));
        gone.resets();
        let new = proxy.client();
        new.write(&encode(&["ECHO", "new"]));
        redis.thaw();
        alice.then().gets("$4 hers");
        bob.then().gets("$3 his");
        new.then().gets("$3 new");
    }
}

/// The number of the connection whose last command was this.
fn last_to(redis: &Redis, command: &str) -> Option<String> {
    let list = redis.client().sends("CLIENT LIST").text();
    let said = format!("cmd={command} ");
    let line = list.lines().find(|line| line.contains(&said))?;
    line.split(' ').next().map(str::to_owned)
}

/// The number of the connection that holds up a write.
fn held_up(redis: &Redis) -> Option<String> {
    let list = redis.client().sends("CLIENT LIST").text();
    let line = list.lines().find(|line| line.contains("flags=b"))?;
    line.split(' ').next()?.strip_prefix("id=").map(str::to_owned)
}

#[test]
fn when_the_shared_connection_ends_those_who_wait_are_closed_and_the_others_go_on() {
    let redis = Redis::start();
    let proxy = multiplexed(&redis);
    let [idle, waiting, marked] = [0, 1, 2].map(|_| proxy.client());
    for client in [&idle, &waiting, &marked] {
        client.sends("GET plain").gets("nil");
    }
    marked.sends("CLIENT ID").reply();
    marked.sends("GET plain").gets("nil");
    redis.client().sends("CLIENT PAUSE 60000 WRITE").gets("+OK");
    waiting.write(&encode(&["SET", "plain", "1"]));
    let mut id = None;
    wait_for("the write to be held up", || {
        id = held_up(&redis);
        id.is_some()
    });
    let id = id.expect("it is held up");
    redis.client().sends(format!("CLIENT KILL ID {id}")).gets(":1");
    // It is unknown whether it was carried out, so it is not sent again.
    waiting.then().gets_close();
    for client in [&idle, &marked, &proxy.client()] {
        client.sends("GET plain").gets("nil");
    }
    redis.client().sends("CLIENT UNPAUSE").gets("+OK");
    idle.sends("SET plain 2").gets("+OK");
    // All of them at once.
    redis.client().sends("CLIENT KILL TYPE normal").reply();
    marked.then().gets_close();
    idle.sends("GET plain").gets("$1 2");
}

#[test]
fn idle_clients_outlive_a_restart_of_the_backend() {
    let mut redis = Redis::start();
    let proxy = multiplexed(&redis);
    let (idle, subscribed) = (proxy.client(), proxy.client());
    idle.sends("SET plain 1").gets("+OK");
    idle.sends("SETNX lock:job a1").gets(":1");
    subscribed.sends("SUBSCRIBE c").reply();
    redis.start_again();
    subscribed.then().gets_close();
    idle.sends("GET plain").gets("nil");
    // Its lock is gone with the server, and a release says so.
    idle.sends("DEL lock:job").gets(":0");
    idle.sends("SETNX lock:job a2").gets(":1");
    wait_for("newcomers to be served", || {
        let client = proxy.client();
        client.write(&encode(&["DEL", "lock:job"]));
        client.reads_until(b":0\r\n") == b":0\r\n"
    });
    idle.sends("DEL lock:job").gets(":1");
}

/// The identity of a holder is noted a moment after its grant; where Redis does not answer then, that does not
/// concern the client.
#[test]
fn what_the_proxy_would_note_closes_no_idle_client() {
    let mut redis = Redis::start();
    let proxy = multiplexed(&redis);
    let idle = proxy.client();
    for round in 0..3 {
        idle.sends(format!("SETNX lock:{round} a1")).gets(":1");
        redis.stop();
        idle.hears_nothing_for(Duration::from_millis(300));
        redis.start_again();
        // Until it has noticed that this is another run, it would cut a connection to it as one of the run before.
        wait_for("the proxy to know the server", || {
            proxy.metric("lockwarden_backend_era_changes_total{backend=\"default\"}") > f64::from(round)
        });
        wait_for("the proxy to serve", || proxy.ready() == Some(200));
        idle.sends("GET plain").gets("nil");
    }
}

#[test]
fn silence_is_each_clients_own() {
    let redis = Redis::start();
    let proxy = multiplexed(&redis);
    let (quiet, loud) = (proxy.client(), proxy.client());
    quiet.write(&encode(&["CLIENT", "REPLY", "OFF"]));
    for round in 1..=20 {
        quiet.write(&encode(&["INCR", "counter"]));
        loud.sends(format!("ECHO {round:02}")).gets(format!("$2 {round:02}"));
    }
    quiet.sends("CLIENT REPLY ON").gets("+OK");
    quiet.sends("GET counter").gets("$2 20");
    quiet.write(&encode(&["CLIENT", "REPLY", "SKIP"]));
    quiet.write(&encode(&["INCR", "counter"]));
    quiet.sends("GET counter").gets("$2 21");
    // The connection of one that leaves stays for the others.
    quiet.sends("SELECT 3").gets("+OK");
    quiet.sends("RESET").gets("+RESET");
    quiet.sends("GET counter").gets("$2 21");
    quiet.sends("QUIT").gets("+OK");
    quiet.then().gets_close();
    loud.sends("GET counter").gets("$2 21");
}

#[test]
fn wait_is_never_a_lie() {
    let redis = Redis::start();
    let port = redis.address().port().to_string();
    let replica = Redis::with_arguments(&["--replicaof", "127.0.0.1", &port]);
    let proxy = multiplexed(&redis);
    let client = proxy.client();
    wait_for("the replica to follow", || {
        client.sends("SET warm 1").gets("+OK");
        client.sends("WAIT 1 100").integer() == 1
    });
    client.pipelines(&["SET plain 1", "WAIT 1 5000"], &["+OK", ":1"]);
    assert_eq!(replica.value("plain"), "$1 1");
    client.sends("SELECT 1").gets("+OK");
    replica.freeze();
    // Whatever the client did on a connection of its own meanwhile: its write went by another one.
    for between in ["PING", "CLIENT ID", "SELECT 0", "HELLO 3"] {
        client.sends("SET plain 2").gets("+OK");
        client.sends(between).reply();
        client.sends("WAIT 1 50").gets(":0");
    }
    replica.thaw();
    client.sends("WAIT 1 5000").gets(":1");
    // A second WAIT, without a write in between, gets the same reply.
    client.sends("WAIT 1 5000").gets(":1");
    drop(replica);
    wait_for("the replica to be gone", || {
        client.sends("SET plain 3").gets("+OK");
        client.sends("WAIT 1 50").integer() == 0
    });
}

#[test]
fn the_feed_of_monitor_is_one_clients_own() {
    let redis = Redis::start();
    let proxy = multiplexed(&redis);
    let (watcher, other) = (proxy.client(), proxy.client());
    watcher.sends("MONITOR").gets("+OK");
    other.sends("SET plain seen").gets("+OK");
    let feed = String::from_utf8(watcher.reads_until(b"seen\"\r\n")).expect("a feed is text");
    assert!(feed.contains("\"SET\" \"plain\" \"seen\""), "{feed}");
    other.sends("GET plain").gets("$4 seen");
    watcher.write(&encode(&["RESET"]));
    watcher.reads_until(b"+RESET\r\n");
    watcher.sends("GET plain").gets("$4 seen");
    other.sends("SET plain unseen").gets("+OK");
    watcher.sends("PING").gets("+PONG");
}

#[test]
fn invalidations_go_to_who_asked_for_them() {
    let redis = Redis::start();
    let proxy = multiplexed(&redis);
    let [noting, broadcast, other] = [0, 1, 2].map(|_| proxy.client());
    for client in [&noting, &broadcast, &other] {
        client.sends("HELLO 3").reply();
    }
    noting.sends("CLIENT TRACKING ON").gets("+OK");
    broadcast.sends("CLIENT TRACKING ON BCAST PREFIX pl").gets("+OK");
    for client in [&noting, &broadcast, &other] {
        client.sends("GET plain").reply();
        client.sends("GET else").reply();
    }
    redis.client().sends("SET plain 1").gets("+OK");
    for client in [&noting, &broadcast] {
        client.then().gets(">[$10 invalidate, [$5 plain]]");
        client.sends("CLIENT TRACKING OFF").gets("+OK");
        client.sends("GET plain").gets("$1 1");
    }
    redis.client().sends("SET plain 2").gets("+OK");
    for client in [&noting, &broadcast, &other] {
        client.sends("GET plain").gets("$1 2");
    }
}

#[test]
fn what_is_no_request_harms_its_sender_only() {
    let redis = Redis::with_arguments(&["--proto-max-bulk-len", "1mb"]);
    let (enforcing, watching) = (multiplexed(&redis), monitoring(&redis));
    let long = "x".repeat((1 << 20) + 1);
    for proxy in [&enforcing, &watching] {
        let other = proxy.client();
        other.sends("ECHO first").gets("$5 first");
        let shared = last_to(&redis, "echo");
        for bytes in [
            b"*1\r\n$-1\r\n".to_vec(),
            b"+PING\r\n".to_vec(),
            b"*2\r\n$4\r\nECHO\r\n$9\r\ncut off".to_vec(),
            encode(&["SET", "plain", &long]),
            encode(&["SET", "lock:long", &long]),
            encode(&["SCRIPT", "LOAD", &format!("return '{long}'")]),
            encode(&["EVAL", &format!("return #'{long}'"), "1", "lock:long"]),
        ] {
            other.write(&encode(&["ECHO", "before"]));
            let harmful = proxy.client();
            harmful.write(&bytes);
            other.write(&encode(&["ECHO", "behind"]));
            harmful.half_closes();
            harmful.reads_to_end();
            other.then().gets("$6 before");
            other.then().gets("$6 behind");
            assert_eq!(last_to(&redis, "echo"), shared);
        }
        // The next proxy is to be the only one.
        other.sends("PING").gets("+PONG");
        other.sends_bytes("SET inline 1\r\nGET inline\r\n").gets("+OK");
        other.then().gets("$1 1");
    }
}

#[test]
fn a_bare_setnx_is_kept_alive_and_released_while_others_share() {
    let redis = Redis::start();
    let proxy = multiplexed(&redis);
    let (alice, bob, waiter) = (proxy.client(), proxy.client(), proxy.client());
    waiter.sends("SUBSCRIBE released").reply();
    alice.sends("SETNX lock:job alices").gets(":1");
    lockwarden_tests::holds_for(Duration::from_millis(900), "her lock is kept", || {
        bob.sends("SETNX lock:job bobs").gets(":0");
        !redis.is_free("lock:job")
    });
    bob.sends("DEL lock:job").gets(":0");
    // As Redisson releases: compare, delete, wake the waiting clients.
    let release = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                   redis.call('DEL', KEYS[1]); redis.call('PUBLISH', KEYS[2], '0'); return 1 end return 0";
    alice.sends_arguments(&["EVAL", release, "2", "lock:job", "released", "alices"]).gets(":1");
    waiter.then().gets("[$7 message, $8 released, $1 0]");
    waiter.sends("UNSUBSCRIBE").reply();
    waiter.sends("SETNX lock:job waiters").gets(":1");
    alice.sends("DEL lock:job").gets(":0");
    waiter.sends("DEL lock:job").gets(":1");
}

/// A user that may begin what it may not end: Redis goes on with it, so its connection is given to no other
/// client.
#[test]
fn what_redis_does_not_end_is_not_handed_on() {
    let redis = Redis::start();
    let admin = redis.client();
    for user in ["+@all -discard", "+@all -unwatch"] {
        admin.sends(format!("ACL SETUSER carol reset on >carols ~* &* {user}")).gets("+OK");
        let proxy = multiplexed(&redis);
        let (first, second) = (proxy.client(), proxy.client());
        for client in [&second, &first] {
            client.sends("AUTH carol carols").gets("+OK");
            client.sends("GET plain").reply();
        }
        first.sends("WATCH plain").gets("+OK");
        first.sends("UNWATCH").reply();
        first.sends("MULTI").gets("+OK");
        first.sends("DISCARD").reply();
        first.sends("PING").reply();
        first.sends("PING").reply();
        admin.sends("SET plain 1").gets("+OK");
        second.sends("SUBSCRIBE c").gets("[$9 subscribe, $1 c, :1]");
        second.sends("UNSUBSCRIBE c").reply();
        second.pipelines(&["MULTI", "PING", "EXEC"], &["+OK", "+QUEUED", "[+PONG]"]);
    }
}

/// A client may have the invalidations of another sent to itself, and say nothing for long.
#[test]
fn invalidations_that_are_redirected_reach_a_client_at_rest() {
    let redis = Redis::start();
    let proxy = multiplexed(&redis);
    let [target, reader] = [0, 1].map(|_| proxy.client());
    target.sends("HELLO 3").reply();
    let id = target.sends("CLIENT ID").reply().integer();
    target.sends("GET plain").gets("null");
    reader.sends(format!("CLIENT TRACKING ON REDIRECT {id} BCAST")).gets("+OK");
    for round in 1..=3 {
        redis.client().sends(format!("SET plain {round}")).gets("+OK");
        target.then().gets(">[$10 invalidate, [$5 plain]]");
        target.sends("GET plain").gets(format!("$1 {round}"));
        target.sends("INCR count").gets(format!(":{round}"));
        target.then().gets(">[$10 invalidate, [$5 count]]");
    }
    // In the middle of its own commands.
    let (mut bytes, mut replies) = (Vec::new(), 0);
    for _ in 0..50 {
        bytes.extend(encode(&["INCR", "mine"]));
        replies += 1;
    }
    target.write(&bytes);
    let (mut counted, mut told) = (0, 0);
    while counted < replies || told == 0 {
        match target.then().reply().to_string() {
            reply if reply.starts_with(':') => {
                counted += 1;
                assert_eq!(reply, format!(":{counted}"));
            }
            push => {
                told += 1;
                assert_eq!(push, ">[$10 invalidate, [$4 mine]]");
            }
        }
    }
}

/// Redis leaves a connection in its database, whichever user logs in on it; a new connection would have to
/// select it.
#[test]
fn a_user_without_select_stays_in_the_database_that_was_selected() {
    let redis = Redis::start();
    let admin = redis.client();
    admin.sends("ACL SETUSER bob on >bobs ~* &* +@all -select").gets("+OK");
    let proxy = multiplexed(&redis);
    let bob = proxy.client();
    bob.sends("SELECT 2").gets("+OK");
    bob.sends("AUTH bob bobs").gets("+OK");
    for round in 1..=3 {
        bob.sends("INCR n").gets(format!(":{round}"));
        bob.sends("MULTI").gets("+OK");
        bob.sends("GET n").gets("+QUEUED");
        bob.sends("EXEC").gets(format!("[$1 {round}]"));
    }
    bob.sends("SELECT 3").gets_error("NOPERM");
    admin.sends("SELECT 2").gets("+OK");
    admin.sends("GET n").gets("$1 3");
}

/// The right is taken away later: a client that needs a new connection is told why it cannot have one.
#[test]
fn a_client_that_can_have_no_connection_in_its_database_is_told_so() {
    let redis = Redis::start();
    let admin = redis.client();
    admin.sends("ACL SETUSER bob on >bobs ~* &* +@all").gets("+OK");
    let proxy = multiplexed(&redis);
    let [blocked, plain] = [0, 1].map(|_| proxy.client());
    for bob in [&blocked, &plain] {
        bob.sends("AUTH bob bobs").gets("+OK");
        bob.sends("SELECT 2").gets("+OK");
        bob.sends("SET n 1").gets("+OK");
    }
    admin.sends("ACL SETUSER bob -select").gets("+OK");
    admin.sends("CLIENT KILL USER bob").reply();
    for (bob, asks) in [(&plain, "GET n"), (&blocked, "BLPOP queue 1")] {
        let said = bob.sends(asks).reply().to_string();
        assert!(said.starts_with("-NOPERM") && said.contains("database 2"), "{said}");
        bob.then().gets_close();
    }
}
