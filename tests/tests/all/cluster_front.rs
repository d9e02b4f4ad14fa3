//! One lockwarden in front of a whole cluster, `redis-cluster://`, whose clients do not notice the cluster.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread;
use std::time::Duration;

use lockwarden_tests::{Client, Cluster, Proxy, ProxyBuilder, Redis, Stops, encode, holds_for, wait_for};

fn front(cluster: &Cluster) -> ProxyBuilder {
    ProxyBuilder::for_backend(&cluster.url())
}

/// Keys of each shard, one behind the other.
#[track_caller]
fn one_of_each(cluster: &Cluster, prefix: &str) -> [String; 3] {
    [0, 1, 2].map(|at| {
        let mut names = (0..).map(|number| format!("{prefix}{number}"));
        names.find(|name| cluster.home_of(name) == at).expect("each shard has some")
    })
}

#[test]
fn a_client_that_knows_no_cluster_sees_one_redis() {
    if Cluster::is_lacking() {
        return;
    }
    let cluster = Cluster::start();
    let proxy = front(&cluster).start();
    let client = proxy.client();
    let [a, b, c] = one_of_each(&cluster, "key:");
    for (key, value) in [(&a, 1), (&b, 2), (&c, 3)] {
        client.sends(format!("SET {key} {value}")).gets("+OK");
        client.sends(format!("GET {key}")).gets(format!("$1 {value}"));
    }
    // The replies of several shards are combined.
    client.sends(format!("MGET {a} none {c} {b} {a}")).gets("[$1 1, nil, $1 3, $1 2, $1 1]");
    client.sends(format!("EXISTS {a} {b} {c} {c} none")).gets(":4");
    client.sends(format!("MSET {a} 4 {b} 5 {c} 6")).gets("+OK");
    client.sends(format!("DEL {b} none {a}")).gets(":2");
    client.sends(format!("MSET {a} 4 {b} 5")).gets("+OK");
    client.sends(format!("RENAME {a} {b}")).gets_error("CROSSSLOT Keys in request don't hash to the same slot");
    client.sends(format!("MSET {a}")).gets_error("ERR wrong number of arguments for 'mset' command");
    // No record of a lock is counted by KEYS and SCAN, all keys are.
    let mut keys = names(&client.sends("KEYS key:*").reply());
    let mut scanned = Vec::new();
    let mut cursor = "0".to_owned();
    loop {
        let page = client.sends(format!("SCAN {cursor} MATCH key:* COUNT 1000")).reply();
        scanned.extend(names(&page.elements()[1]));
        cursor = page.elements()[0].clone().text();
        if cursor == "0" {
            break;
        }
    }
    keys.sort();
    scanned.sort();
    let mut all = [a.clone(), b.clone(), c.clone()];
    all.sort();
    assert_eq!((keys.as_slice(), scanned.as_slice()), (&all[..], &all[..]));
    client.sends("SCAN 7x").gets_error("ERR invalid cursor");
    assert!(all.contains(&client.sends("RANDOMKEY").text()));
    client.sends("DBSIZE").gets(":3");
    let sha = client.sends("SCRIPT LOAD return(redis.call('get',KEYS[1]))").text();
    for (key, value) in [(&a, 4), (&b, 5), (&c, 6)] {
        client.sends(format!("EVALSHA {sha} 1 {key}")).gets(format!("$1 {value}"));
    }
    client.sends(format!("SCRIPT EXISTS {sha} {}", "0".repeat(40))).gets("[:1, :0]");
    client.sends("FLUSHALL").gets("+OK");
    client.sends(format!("MGET {a} {b} {c}")).gets("[nil, nil, nil]");
    // No reply shows that it is a cluster.
    let info = client.sends("INFO").text();
    assert!(info.contains("_mode:standalone") && info.contains("cluster_enabled:0"), "{info}");
    client.sends("CLUSTER NODES").gets_error("ERR This instance has cluster support disabled");
    client.sends("READONLY").gets_error("ERR This instance has cluster support disabled");
    client.sends("MONITOR").gets_error("ERR lockwarden stands before a whole cluster");
    let hello = client.sends("HELLO 3").reply().to_string();
    assert!(hello.contains("standalone") && !hello.contains("cluster"), "{hello}");
}

#[track_caller]
fn names(reply: &lockwarden_tests::Reply) -> Vec<String> {
    reply.elements().iter().map(|name| name.clone().text()).collect()
}

#[test]
fn replies_come_in_the_order_of_their_requests_from_whatever_shard() {
    if Cluster::is_lacking() {
        return;
    }
    let cluster = Cluster::start();
    let proxy = front(&cluster).start();
    let client = proxy.client();
    let lines: Vec<String> = (0..1000).map(|number| format!("SET key:{number} {number}")).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    client.pipelines(&lines, &vec!["+OK"; lines.len()]);
    let mut lines = Vec::new();
    let mut replies = Vec::new();
    for number in 0..1000 {
        lines.push(format!("GET key:{number}"));
        replies.push(format!("${} {number}", number.to_string().len()));
        if number % 100 == 0 {
            lines.extend(["PING".to_owned(), "CLUSTER INFO".to_owned(), format!("MGET key:{number} key:1")]);
            let own = format!("${} {number}", number.to_string().len());
            let error = "-ERR This instance has cluster support disabled".to_owned();
            replies.extend(["+PONG".to_owned(), error, format!("[{own}, $1 1]")]);
        }
    }
    let (lines, replies): (Vec<&str>, Vec<&str>) =
        (lines.iter().map(String::as_str).collect(), replies.iter().map(String::as_str).collect());
    client.pipelines(&lines, &replies);
    // A long reply does not keep those behind it.
    let long = "x".repeat(3_000_000);
    let [a, b, _] = one_of_each(&cluster, "long:");
    client.sends_arguments(&["SET", &a, &long]).gets("+OK");
    client.sends(format!("SET {b} 1")).gets("+OK");
    client.pipelines(
        &[&format!("GET {b}"), &format!("GET {a}"), &format!("GET {b}")],
        &["$1 1", &format!("$3000000 {long}"), "$1 1"],
    );
    // The same holds for long combined replies, and for published messages.
    client.sends(format!("MGET {a} {b}")).gets(format!("[$3000000 {long}, $1 1]"));
    client.sends(format!("DEL {a} {b}")).gets(":2");
    for resp3 in [false, true] {
        let listener = proxy.client();
        if resp3 {
            listener.sends("HELLO 3").reply();
        }
        listener.sends("SUBSCRIBE news").reply();
        client.sends_arguments(&["PUBLISH", "news", &long]).reply();
        let message = listener.then().reply().to_string();
        assert!(message.contains(&long), "{} bytes", message.len());
        listener.sends("PING").reply();
    }
    // A client that wants no reply gets none.
    client.write(b"CLIENT REPLY SKIP\r\nSET key:1 x\r\nGET key:1\r\n");
    client.then().gets("$1 x");
    client.write(b"CLIENT REPLY OFF\r\nSET key:1 y\r\nMGET key:1 key:2\r\nCLIENT REPLY ON\r\nGET key:1\r\n");
    client.then().gets("+OK");
    client.then().gets("$1 y");
}

#[test]
fn locks_of_every_shard_are_governed() {
    if Cluster::is_lacking() {
        return;
    }
    let cluster = Cluster::start();
    let proxy = front(&cluster).default_ttl("1s").start();
    let (alice, bob) = (proxy.client_from("127.44.0.1"), proxy.client_from("127.44.0.2"));
    let locks = one_of_each(&cluster, "lock:");
    for (at, lock) in locks.iter().enumerate() {
        alice.sends(format!("SETNX {lock} 1")).gets(":1");
        bob.sends(format!("SETNX {lock} 1")).gets(":0");
        bob.sends(format!("DEL {lock}")).gets(":0");
        assert!(cluster.node(at).fence(lock) > 0, "{lock}");
        alice.sends(format!("LOCKWARDEN FENCE {lock}")).gets(format!(":{}", cluster.node(at).fence(lock)));
    }
    // They are kept alive beyond their TTL, on each of them.
    holds_for(Duration::from_secs(3), "all are held", || {
        let held = bob.sends(format!("EXISTS {}", locks.join(" "))).integer();
        held == 3
    });
    // The API has all of them, and knows the shards.
    let listed = proxy.api("locks");
    assert_eq!(listed["locks"].as_array().map(Vec::len), Some(3), "{listed}");
    let overview = proxy.api("overview");
    assert_eq!(overview["backend"]["shards"].as_array().map(Vec::len), Some(3), "{overview}");
    proxy.counts("lockwarden_locks_held{namespace=\"locks\",ttl=\"finite\"}", 3.0);
    proxy.counts("lockwarden_client_connections", 2.0);
    alice.sends(format!("DEL {}", locks.join(" "))).gets(":3");
    // An operator breaks one wherever it is.
    alice.sends(format!("SETNX {} 1", locks[2])).gets(":1");
    let fence = cluster.node(2).fence(&locks[2]);
    let body = format!("{{\"db\":0,\"fence\":{fence},\"reason\":\"test\"}}");
    let (status, text) =
        proxy.post_with(Some(lockwarden_tests::ADMIN_TOKEN), &format!("/api/v1/locks/{}/break", locks[2]), &body);
    assert_eq!(status, 200, "{text}");
    bob.sends(format!("SETNX {} 1", locks[2])).gets(":1");
}

#[test]
fn no_shard_is_emptied_where_another_would_refuse_it() {
    if Cluster::is_lacking() {
        return;
    }
    let cluster = Cluster::start();
    let proxy = front(&cluster).start();
    let (alice, bob) = (proxy.client(), proxy.client());
    let keys = one_of_each(&cluster, "key:");
    let named = keys.join(" ");
    let furnish = || keys.iter().for_each(|key| bob.sends(format!("SET {key} 1")).gets("+OK"));
    for lock in one_of_each(&cluster, "lock:") {
        furnish();
        alice.sends(format!("SET {lock} a1 NX PX 60000")).gets("+OK");
        for flush in ["FLUSHALL", "FLUSHDB ASYNC"] {
            let text = bob.sends(flush).gets_error(&format!("LOCKDENIED bulk-delete key={lock} cmd=FLUSH"));
            assert!(text.contains(" locks=1 hint=") && !text.contains(" done="), "{text}");
            bob.sends(format!("EXISTS {named}")).gets(":3");
        }
        alice.sends(format!("DEL {lock}")).gets(":1");
        bob.sends("FLUSHALL NOW").gets_error("ERR syntax error");
        bob.sends(format!("EXISTS {named}")).gets(":3");
        bob.sends("FLUSHALL").gets("+OK");
        bob.sends(format!("EXISTS {named}")).gets(":0");
    }
    // An error that shows only while the command runs is reported with what was done.
    furnish();
    cluster.node(2).client().sends("ACL SETUSER default -flushall").gets("+OK");
    let text = bob.sends("FLUSHALL").gets_error("NOPERM");
    assert!(text.ends_with(" done=2 of=3"), "{text}");
    bob.sends(format!("EXISTS {named}")).gets(":1");
}

#[test]
fn a_client_that_goes_leaves_its_locks_on_all_shards() {
    if Cluster::is_lacking() {
        return;
    }
    let cluster = Cluster::start();
    let proxy = front(&cluster).default_ttl("1s").start();
    let locks = one_of_each(&cluster, "lock:");
    let (alice, bob) = (proxy.client_from("127.44.1.1"), proxy.client_from("127.44.1.2"));
    for lock in &locks {
        alice.sends(format!("SETNX {lock} 1")).gets(":1");
    }
    drop(alice);
    for lock in &locks {
        wait_for("the lock to run out", || bob.sends(format!("SETNX {lock} 2")).integer() == 1);
    }
}

#[test]
fn a_client_of_several_shards_is_one_to_those_who_look() {
    if Cluster::is_lacking() {
        return;
    }
    let cluster = Cluster::start();
    let proxy = front(&cluster).start();
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("CLIENT SETNAME checkout").gets("+OK");
    bob.sends("CLIENT SETNAME refund").gets("+OK");
    let locks = one_of_each(&cluster, "lock:");
    for lock in &locks {
        alice.sends(format!("SET {lock} a1 NX PX 60000")).gets("+OK");
        bob.sends(format!("SET {lock} b1 NX PX 60000")).gets("nil");
        bob.sends(format!("SET {lock} b1 NX PX 60000")).gets("nil");
    }
    wait_for("the clients to be shown with their locks", || {
        let shown = proxy.api("connections");
        let clients = shown["connections"].as_array().expect("a list");
        let told = |one: &serde_json::Value| format!("{} {} {}", one["client"]["name"], one["holding"], one["waiting"]);
        let told: Vec<String> = clients.iter().map(told).collect();
        shown["matching"] == 2 && told == ["\"checkout\" 3 0", "\"refund\" 0 3"]
    });
    let applications = proxy.api("clients");
    let count = |name: &str| {
        let mut all = applications.as_array().expect("a list").iter();
        all.find(|one| one["application"] == name).map(|one| one["connections"].clone())
    };
    assert_eq!((count("checkout"), count("refund")), (Some(1.into()), Some(1.into())), "{applications}");
    proxy.counts("lockwarden_client_connections", 2.0);
}

#[test]
fn a_block_belongs_to_one_shard() {
    if Cluster::is_lacking() {
        return;
    }
    let cluster = Cluster::start();
    let proxy = front(&cluster).start();
    let client = proxy.client();
    let [a, b, _] = one_of_each(&cluster, "key:");
    let beside = format!("{{{a}}}");
    client.pipelines(
        &[
            "MULTI",
            "PING",
            "EXEC",
            "MULTI",
            &format!("SET {a} 1"),
            &format!("INCR {a}"),
            &format!("GET {beside}"),
            "EXEC",
        ],
        &["+OK", "+QUEUED", "[+PONG]", "+OK", "+QUEUED", "+QUEUED", "+QUEUED", "[+OK, :2, nil]"],
    );
    client.pipelines(&["MULTI", "EXEC", "MULTI", "DISCARD"], &["+OK", "[]", "+OK", "+OK"]);
    client.sends("EXEC").gets_error("ERR EXEC without MULTI");
    // Over two it is carried out by neither.
    client.sends("MULTI").gets("+OK");
    client.sends(format!("SET {a} 9")).gets("+QUEUED");
    client.sends(format!("SET {b} 9")).gets_error("CROSSSLOT");
    client.sends("EXEC").gets_error("EXECABORT");
    client.sends(format!("MGET {a} {b}")).gets("[$1 2, nil]");
    // What is watched and what is written are on the same one.
    client.sends(format!("WATCH {a} {b}")).gets_error("CROSSSLOT");
    client.sends(format!("WATCH {a}")).gets("+OK");
    client.sends(format!("WATCH {b}")).gets_error("CROSSSLOT");
    client.sends(format!("GET {b}")).gets("nil");
    proxy.client().sends(format!("SET {a} 5")).gets("+OK");
    client.pipelines(&["MULTI", &format!("SET {a} 6"), "EXEC"], &["+OK", "+QUEUED", "nil-array"]);
    client.sends(format!("WATCH {a}")).gets("+OK");
    client.pipelines(&["MULTI", &format!("SET {a} 6"), "EXEC"], &["+OK", "+QUEUED", "[+OK]"]);
    client.sends(format!("WATCH {a}")).gets("+OK");
    client.sends("UNWATCH").gets("+OK");
    client.sends(format!("WATCH {b}")).gets("+OK");
    client.pipelines(
        &["MULTI", &format!("SET {a} 6"), "EXEC"],
        &[
            "+OK",
            "-CROSSSLOT Keys in request don't hash to the same slot",
            "-EXECABORT Transaction discarded because of previous errors.",
        ],
    );
    proxy.client().sends(format!("SET {b} 3")).gets("+OK");
    client.pipelines(&["MULTI", &format!("SET {b} 7"), "EXEC"], &["+OK", "+QUEUED", "[+OK]"]);
    proxy.counts("lockwarden_cluster_cross_slot_total", 4.0);
}

#[test]
fn what_a_client_says_of_itself_is_known_on_every_shard() {
    if Cluster::is_lacking() {
        return;
    }
    let cluster = Cluster::start();
    let [a, b, c] = one_of_each(&cluster, "key:");
    for at in 0..3 {
        let node = cluster.node(at).client();
        node.sends("ACL SETUSER app on >secret ~* &* +@all").gets("+OK");
        node.sends("ACL SETUSER default resetpass >other").gets("+OK");
    }
    let url = cluster.url().replace("://", "://default:other@");
    let proxy = ProxyBuilder::for_backend(&url).start();
    let client = proxy.client();
    client.sends(format!("GET {a}")).gets_error("NOAUTH");
    client.sends("AUTH app wrong").gets_error("WRONGPASS");
    client.sends("CLIENT SETNAME worker-1").gets_error("NOAUTH");
    client.sends("AUTH app secret").gets("+OK");
    client.sends("CLIENT SETNAME worker-1").gets("+OK");
    for key in [&a, &b, &c] {
        client.sends(format!("SET {key} 1")).gets("+OK");
        client.sends("ACL WHOAMI").gets("$3 app");
        client.sends(format!("EVAL return(redis.call('get',KEYS[1])) 1 {key}")).gets("$1 1");
    }
    let admin = cluster.node(1).client();
    admin.sends("AUTH other").gets("+OK");
    assert!(admin.sends("CLIENT LIST").text().contains("name=worker-1"), "the name is known on every shard");
    // A later change of name or login is sent to the open connections.
    client.sends("HELLO 3 AUTH default other SETNAME worker-2").reply();
    for key in [&a, &b, &c] {
        client.sends(format!("EVAL return(redis.setresp(3)) 1 {key}")).reply();
    }
    client.sends("ACL WHOAMI").gets("$7 default");
    wait_for("the new name to be known", || admin.sends("CLIENT LIST").text().contains("name=worker-2"));
    client.sends("RESET").gets("+RESET");
    client.sends(format!("GET {b}")).gets_error("NOAUTH");
}

#[test]
fn a_long_pipeline_does_not_see_that_a_slot_has_moved() {
    const REQUESTS: usize = 6_000;

    if Cluster::is_lacking() {
        return;
    }
    let cluster = Cluster::start();
    let proxy = front(&cluster).start();
    let client = proxy.client();
    let key = cluster.locks_of(0, 1).swap_remove(0).replace("lock:", "key:");
    let (slot, home) = (cluster.slot(&key), cluster.home_of(&key));
    let value = "x".repeat(100);
    let requests: Vec<u8> =
        (0..REQUESTS).flat_map(|number| encode(&["SET", &format!("{{{key}}}{number}"), &value])).collect();
    let (mut from, mut to) = (home, (home + 1) % 3);
    for _ in 0..4 {
        cluster.moves_slot(slot, from, to);
        // Before the proxy has looked who has the slot.
        client.write(&requests);
        (0..REQUESTS).for_each(|_| client.then().gets("+OK"));
        (from, to) = (to, from);
    }
}

/// As rueidis does for a value that it keeps.
#[test]
fn the_next_command_is_tracked_wherever_it_goes() {
    if Cluster::is_lacking() {
        return;
    }
    let cluster = Cluster::start();
    let proxy = front(&cluster).start();
    let (client, other) = (proxy.client(), proxy.client());
    let keys = one_of_each(&cluster, "key:");
    client.sends("HELLO 3").reply();
    client.sends("CLIENT TRACKING on OPTIN").gets("+OK");
    let is_told_of = |key: &str| {
        other.sends(format!("SET {key} 2")).gets("+OK");
        client.then().gets(format!(">[$10 invalidate, [${} {key}]]", key.len()));
    };
    for key in &keys {
        other.sends(format!("SET {key} 1")).gets("+OK");
        client.sends("CLIENT CACHING yes").gets("+OK");
        client.sends("MULTI").gets("+OK");
        client.sends(format!("PTTL {key}")).gets("+QUEUED");
        client.sends(format!("GET {key}")).gets("+QUEUED");
        client.sends("EXEC").gets("[:-1, $1 1]");
        is_told_of(key);
    }
    client.sends("CLIENT CACHING yes").gets("+OK");
    client.sends(format!("MGET {}", keys.join(" "))).gets("[$1 2, $1 2, $1 2]");
    keys.iter().for_each(|key| is_told_of(key));
    // Of a command that is not tracked nothing is told, nor of one behind another that was to be.
    client.sends("CLIENT CACHING yes").gets("+OK");
    client.sends("INFO server").reply();
    client.sends(format!("GET {}", keys[0])).gets("$1 2");
    other.sends(format!("SET {} 3", keys[0])).gets("+OK");
    client.sends("PING").gets("+PONG");
    client.sends(format!("GET {}", keys[0])).gets("$1 3");
}

#[test]
fn a_client_is_not_served_as_somebody_else_on_one_of_the_shards() {
    if Cluster::is_lacking() {
        return;
    }
    let cluster = Cluster::start();
    let [a, b, _] = one_of_each(&cluster, "key:");
    // The user was forgotten on one node, where the default user may do everything.
    for at in [0, 2] {
        cluster.node(at).client().sends("ACL SETUSER app on >secret ~* &* +@all").gets("+OK");
    }
    let proxy = front(&cluster).start();
    wait_for("a client that meets a node with its user first", || {
        let client = proxy.client();
        if client.sends("AUTH app secret").reply().to_string() != "+OK" {
            return false;
        }
        client.sends(format!("SET {a} 1")).gets("+OK");
        client.sends(format!("SET {b} 1")).gets_close();
        true
    });
    cluster.node(1).client().sends(format!("EXISTS {b}")).gets(":0");
    proxy.logs(&["WARN", "a node of the cluster refuses what others have taken from it"]);
}

#[test]
fn what_is_published_is_heard_from_any_shard() {
    if Cluster::is_lacking() {
        return;
    }
    let cluster = Cluster::start();
    let proxy = front(&cluster).start();
    let (listener, talker) = (proxy.client(), proxy.client());
    let [a, ..] = one_of_each(&cluster, "key:");
    listener.sends("SUBSCRIBE news").gets("[$9 subscribe, $4 news, :1]");
    listener.sends("PSUBSCRIBE n*").gets("[$10 psubscribe, $2 n*, :2]");
    listener.sends(format!("GET {a}")).gets_error("ERR Can't execute 'get'");
    talker.sends("PUBLISH news hello").reply();
    listener.then().gets("[$7 message, $4 news, $5 hello]");
    listener.then().gets("[$8 pmessage, $2 n*, $4 news, $5 hello]");
    listener.sends("UNSUBSCRIBE").gets("[$11 unsubscribe, $4 news, :1]");
    listener.write(format!("PUNSUBSCRIBE n*\r\nSET {a} 1\r\nGET {a}\r\n").as_bytes());
    listener.then().gets("[$12 punsubscribe, $2 n*, :0]");
    listener.then().gets("+OK");
    listener.then().gets("$1 1");
    // With RESP3 what is published comes between replies.
    listener.sends("HELLO 3").reply();
    listener.write(b"SUBSCRIBE news\r\nPING\r\n");
    let first = listener.then().reply().to_string();
    assert!(first.contains("subscribe"), "{first}");
    listener.then().gets("+PONG");
    talker.sends("PUBLISH news again").reply();
    let message = listener.then().reply().to_string();
    assert!(message.contains("again"), "{message}");
    listener.sends(format!("GET {a}")).gets("$1 1");
}

/// Each message comes from the server that has the slot of its channel, and for the client it is as with one
/// server.
#[test]
fn what_is_published_to_sharded_channels_is_heard_wherever_their_slots_are() {
    if Cluster::is_lacking() {
        return;
    }
    let cluster = Cluster::start();
    let proxy = front(&cluster).start();
    let [a, b, c] = one_of_each(&cluster, "news:");
    let (listener, talker) = (proxy.client(), proxy.client());
    let confirms = |kind: &str, name: &str, count| {
        listener.then().gets(format!("[${} {kind}, ${} {name}, :{count}]", kind.len(), name.len()));
    };
    let says = |name: &str, text: &str| {
        talker.sends(format!("SPUBLISH {name} {text}")).gets(":1");
        listener.then().gets(format!("[$8 smessage, ${} {name}, ${} {text}]", name.len(), text.len()));
    };
    listener.write(format!("SSUBSCRIBE {a}\r\nSSUBSCRIBE {b}\r\nSUBSCRIBE all\r\nSSUBSCRIBE {c}\r\n").as_bytes());
    confirms("ssubscribe", &a, 1);
    confirms("ssubscribe", &b, 2);
    confirms("subscribe", "all", 1);
    confirms("ssubscribe", &c, 3);
    listener.write(format!("SSUBSCRIBE {a}\r\n").as_bytes());
    confirms("ssubscribe", &a, 3);
    listener.sends(format!("SSUBSCRIBE {a} {b}")).gets_error("CROSSSLOT");
    listener.sends(format!("GET {a}")).gets_error("ERR Can't execute 'get'");
    for (name, text) in [(&a, "one"), (&b, "two"), (&c, "three")] {
        says(name, text);
    }
    talker.sends("PUBLISH all four").reply();
    listener.then().gets("[$7 message, $3 all, $4 four]");
    listener.write(format!("SUNSUBSCRIBE {a}\r\n").as_bytes());
    confirms("sunsubscribe", &a, 2);
    talker.sends(format!("SPUBLISH {a} lost")).gets(":0");
    says(&b, "five");
    listener.write(b"SUNSUBSCRIBE\r\nUNSUBSCRIBE\r\nPING\r\n");
    let two = [0, 1].map(|_| listener.then().reply().to_string());
    assert!(two.iter().all(|one| one.starts_with("[$12 sunsubscribe")) && two[1].ends_with(":0]"), "{two:?}");
    confirms("unsubscribe", "all", 0);
    listener.then().gets("+PONG");
    // With RESP3 commands go on beside them; a slot that moves ends its subscription, as on a node.
    listener.sends("HELLO 3").reply();
    listener.write(format!("SSUBSCRIBE {a}\r\nSSUBSCRIBE {b}\r\nPING\r\n").as_bytes());
    for told in ["ssubscribe", "ssubscribe", "PONG"] {
        let reply = listener.then().reply().to_string();
        assert!(reply.contains(told), "{reply}");
    }
    cluster.moves_slot(cluster.slot(&a), 0, 1);
    let ended = listener.then().reply().to_string();
    assert!(ended.contains("sunsubscribe") && ended.contains(&a), "{ended}");
    wait_for("the new node to be asked", || {
        listener.write(format!("SSUBSCRIBE {a}\r\n").as_bytes());
        listener.then().reply().to_string().contains("ssubscribe")
    });
    talker.sends(format!("SPUBLISH {a} six")).gets(":1");
    let heard = listener.then().reply().to_string();
    assert!(heard.contains("six"), "{heard}");
    listener.sends("SUNSUBSCRIBE").reply();
}

#[test]
fn a_client_that_looks_for_a_cluster_sees_one_node_that_has_all_slots() {
    if Cluster::is_lacking() {
        return;
    }
    let cluster = Cluster::start();
    let proxy = front(&cluster).more("[[listener]]\naddress = \"127.0.0.1:0\"\npresent = \"cluster\"\n").start();
    let client = Client::connect_plain(proxy.cluster_address());
    let port = proxy.cluster_address().port();
    let id = client.sends("CLUSTER MYID").text();
    assert_eq!(id.len(), 40);
    client.sends("CLUSTER SLOTS").gets(format!("[[:0, :16383, [$9 127.0.0.1, :{port}, $40 {id}, []]]]"));
    let shards = client.sends("CLUSTER SHARDS").reply().to_string();
    assert!(shards.starts_with("[[$5 slots, [:0, :16383], $5 nodes, [[$2 id, $40 "), "{shards}");
    let nodes = client.sends("CLUSTER NODES").text();
    assert_eq!(nodes, format!("{id} 127.0.0.1:{port}@{} myself,master - 0 0 1 connected 0-16383\n", port + 10_000));
    assert!(client.sends("CLUSTER INFO").text().contains("cluster_state:ok\r\n"));
    client.sends("CLUSTER KEYSLOT foo").gets(":12182");
    for line in ["READONLY", "READWRITE", "ASKING"] {
        client.sends(line).gets("+OK");
    }
    client.sends("CLUSTER FAILOVER").gets_error("NOPERM lockwarden presents a cluster of one node");
    client.sends("CLUSTER RESET").gets_error("NOPERM lockwarden presents a cluster of one node");
    client.sends("CLUSTER NOSUCH").gets_error("ERR unknown subcommand");
    let [a, b, c] = one_of_each(&cluster, "lock:");
    for lock in [&a, &b, &c] {
        client.sends(format!("SET {lock} 1 NX PX 9000")).gets("+OK");
        client.sends(format!("CLUSTER COUNTKEYSINSLOT {}", cluster.slot(lock))).integer();
        client.sends(format!("SET {lock} 1 NX PX 9000")).gets("nil");
    }
    assert!(client.sends("INFO").text().contains("cluster_enabled:1"));
    // Before a single server there is no such face.
    let end = Proxy::builder(&Redis::start())
        .more("[[listener]]\naddress = \"127.0.0.1:0\"\npresent = \"cluster\"\n")
        .check_backend();
    assert!(end.stdout.contains("present = \"cluster\" is for a backend that is one"), "{end:?}");
}

/// StackExchange.Redis asks a server who it is before anything else, on two connections, and turns to the nodes that `CLUSTER NODES` names.
/// It releases and extends a lock in a block, behind a look at the value.
#[test]
fn a_client_that_asks_the_server_who_it_is_stays_with_it() {
    if Cluster::is_lacking() {
        return;
    }
    let cluster = Cluster::start();
    let proxy = front(&cluster).more("[[listener]]\naddress = \"127.0.0.1:0\"\npresent = \"cluster\"\n").start();
    let port = proxy.cluster_address().port();
    for is_presented in [false, true] {
        let connect = || match is_presented {
            true => Client::connect_plain(proxy.cluster_address()),
            false => proxy.client(),
        };
        let (client, subscriber) = (connect(), connect());
        client.pipelines(
            &[
                "CLIENT SETNAME app",
                "CONFIG GET timeout",
                "CONFIG GET replica-read-only",
                "CONFIG GET databases",
                "INFO replication",
                "INFO server",
                "CLUSTER NODES",
                "GET __Booksleeve_TieBreak",
                "ECHO e4ff",
            ],
            &["+OK", "[$7 timeout, $1 0]", "[$17 replica-read-only, $3 yes]"],
        );
        let databases = cluster.node(0).client().sends("CONFIG GET databases").reply();
        assert_eq!(client.then().reply(), databases);
        assert!(client.then().text().contains("role:master\r\n"));
        let mode = if is_presented { "redis_mode:cluster\r\n" } else { "redis_mode:standalone\r\n" };
        let server = client.then().text().replace("server_mode:", "redis_mode:");
        assert!(server.contains(mode), "{server}");
        match is_presented {
            true => assert!(client.then().text().contains(&format!(" 127.0.0.1:{port}@"))),
            false => drop(client.then().gets_error("ERR This instance has cluster support disabled")),
        }
        client.then().gets("nil");
        client.then().gets("$4 e4ff");
        subscriber.pipelines(
            &["CLIENT SETNAME app", "ECHO e4ff", "SUBSCRIBE __Booksleeve_MasterChanged"],
            &["+OK", "$4 e4ff", "[$9 subscribe, $26 __Booksleeve_MasterChanged, :1]"],
        );
        let other = connect();
        for lock in one_of_each(&cluster, "lock:") {
            client.sends(format!("SET {lock} job-8c1f0a2e9b7d NX PX 9000")).gets("+OK");
            other.sends(format!("SET {lock} job-51d2c03b77aa NX PX 9000")).gets("nil");
            for (ends, reply) in [("PEXPIRE {} 8000", "[:1]"), ("DEL {}", "[:1]")] {
                client.pipelines(&[&format!("WATCH {lock}"), &format!("GET {lock}")], &["+OK", "$16 job-8c1f0a2e9b7d"]);
                client.pipelines(&["MULTI", &ends.replace("{}", &lock), "EXEC"], &["+OK", "+QUEUED", reply]);
            }
            other.sends(format!("SET {lock} job-51d2c03b77aa NX PX 9000")).gets("+OK");
            client.pipelines(
                &[&format!("WATCH {lock}"), &format!("GET {lock}"), "UNWATCH"],
                &["+OK", "$16 job-51d2c03b77aa", "+OK"],
            );
            other.sends(format!("DEL {lock}")).gets(":1");
        }
    }
}

#[test]
fn each_shard_is_checked() {
    if Cluster::is_lacking() {
        return;
    }
    let cluster = Cluster::start();
    let end = front(&cluster).check_backend();
    assert_eq!(end.code, Some(0), "{end:?}");
    assert!(end.stdout.contains("backend: a cluster of 3 primaries, with 16384 slots"), "{end:?}");
    for at in 0..3 {
        let line = format!("backend {}: answers, ", cluster.node(at).address());
        assert!(end.stdout.contains(&line), "{line}: {end:?}");
    }
    cluster.node(1).client().sends("CONFIG SET maxmemory 100mb").gets("+OK");
    cluster.node(1).client().sends("CONFIG SET maxmemory-policy allkeys-lru").gets("+OK");
    let end = front(&cluster).check_backend();
    let line = format!("backend {}: maxmemory-policy is allkeys-lru", cluster.node(1).address());
    assert!(end.code == Some(1) && end.stdout.contains(&line), "{line}: {end:?}");
}

/// A client that asks as a legacy program does.
#[track_caller]
fn takes(client: &Client, lock: &str, token: &str) -> bool {
    client.sends(format!("SET {lock} {token} NX PX 20000")).reply().to_string() == "+OK"
}

#[test]
fn no_client_sees_that_slots_move() {
    const CLIENTS: usize = 4;

    if Cluster::is_lacking() {
        return;
    }
    let cluster = Cluster::start();
    let proxy = front(&cluster).start();
    let locks = cluster.locks_of(0, 3);
    let held: Vec<AtomicUsize> = locks.iter().map(|_| AtomicUsize::new(0)).collect();
    let (granted, twice, is_over) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            let client = proxy.client_from(&format!("127.45.0.{}", number + 1));
            let (locks, held, granted, twice, is_over) = (&locks, &held, &granted, &twice, &is_over);
            scope.spawn(move || {
                let mut turn = number;
                while !is_over.load(Relaxed) {
                    turn += 1;
                    let at = turn % locks.len();
                    let (lock, data) = (&locks[at], format!("{{{}}}:data", locks[at]));
                    if !takes(&client, lock, &format!("c{number}")) {
                        continue;
                    }
                    granted.fetch_add(1, Relaxed);
                    twice.fetch_add(held[at].fetch_add(1, Relaxed), Relaxed);
                    client.pipelines(
                        &[&format!("INCR {data}x"), &format!("EXISTS {data}y")],
                        &[&client_counts(&client, &data), ":0"],
                    );
                    held[at].fetch_sub(1, Relaxed);
                    client.sends(format!("DEL {lock}")).gets(":1");
                }
            });
        }
        let _stops = Stops(&is_over);
        cluster.moves_to_and_fro(&locks, &granted);
    });
    assert_eq!(twice.load(Relaxed), 0);
    assert!(granted.load(Relaxed) > 100, "{granted:?}");
}

/// What the next `INCR` of a counter that only the holder counts gives.
#[track_caller]
fn client_counts(client: &Client, data: &str) -> String {
    let before = client.sends(format!("GET {data}x")).reply().to_string();
    let before = before.rsplit(' ').next().and_then(|digits| digits.parse().ok()).unwrap_or(0);
    format!(":{}", before + 1)
}

#[test]
fn redirects_are_followed_however_nodes_name_one_another() {
    if Cluster::is_lacking() {
        return;
    }
    let cluster = Cluster::start();
    let proxy = front(&cluster).start();
    let client = proxy.client();
    let locks = cluster.locks_of(0, 4);
    let kinds = ["ip", "hostname", "hostname", "unknown-endpoint"];
    for (round, (kind, lock)) in kinds.iter().zip(&locks).enumerate() {
        for at in 0..3 {
            let node = cluster.node(at).client();
            node.sends(format!("CONFIG SET cluster-preferred-endpoint-type {kind}")).gets("+OK");
            // At first it has none that it could tell.
            if round > 1 {
                node.sends(format!("CONFIG SET cluster-announce-hostname node-{at}.corp")).gets("+OK");
            }
        }
        let slot = cluster.slot(lock);
        cluster.opens_slot(slot, 0, 1);
        client.sends(format!("SET {lock} a1 NX PX 60000")).gets("+OK");
        cluster.closes_slot(slot, 1);
        client.sends(format!("SET {lock} a2 NX PX 60000")).gets("nil");
        client.sends(format!("DEL {lock}")).gets(":1");
    }
}

#[test]
fn leases_that_are_kept_alive_go_with_their_slots() {
    if Cluster::is_lacking() {
        return;
    }
    let cluster = Cluster::start();
    let proxy = front(&cluster).default_ttl("1s").start();
    let locks = cluster.locks_of(0, 20);
    let (alice, bob) = (proxy.client_from("127.45.1.1"), proxy.client_from("127.45.1.2"));
    for lock in &locks {
        alice.sends(format!("SETNX {lock} 1")).gets(":1");
    }
    for lock in &locks {
        cluster.moves_slot(cluster.slot(lock), 0, 1);
    }
    holds_for(Duration::from_secs(4), "all are held where they are now", || {
        locks.iter().all(|lock| bob.sends(format!("SETNX {lock} 2")).integer() == 0)
    });
    assert_eq!(proxy.metric("lockwarden_cluster_leases_rehomed_total"), 20.0);
    assert_eq!(proxy.metric("lockwarden_locks_held{namespace=\"locks\",ttl=\"finite\"}"), 20.0);
    // She gives one back by another connection of hers than took it; the others go when she does.
    alice.sends(format!("DEL {}", locks[0])).gets(":1");
    bob.sends(format!("SETNX {} 2", locks[0])).gets(":1");
    drop(alice);
    wait_for("a lease to run out", || bob.sends(format!("SETNX {} 2", locks[1])).integer() == 1);
    wait_for("all to run out", || locks[2..].iter().all(|lock| bob.sends(format!("EXISTS {lock}")).integer() == 0));
}

#[test]
fn locks_of_a_shard_whose_primary_fails_over_are_found_again_and_the_others_go_on() {
    if Cluster::is_lacking() {
        return;
    }
    let cluster = Cluster::with_replicas();
    let proxy = front(&cluster).namespace("quarantine", "\"1500ms\"").default_ttl("1s").start();
    let [first, other, _] = one_of_each(&cluster, "lock:");
    let free = cluster.locks_of(0, 3).pop().expect("three were asked for");
    let alice = proxy.client_from("127.46.0.1");
    for lock in [&first, &other] {
        wait_for("the first quarantine to be over", || alice.sends(format!("SETNX {lock} 1")).integer() == 1);
    }
    cluster.hands_over_to(3);
    // A client that sends a request at the moment of the failover is closed, because the outcome is unknown.
    let asks = |lock: &str| {
        let client = proxy.client_from("127.46.0.2");
        client.write(format!("SETNX {lock} 2\r\n").as_bytes());
        client.half_closes();
        String::from_utf8_lossy(&client.reads_to_end()).into_owned()
    };
    wait_for("the new primary to be asked", || asks(&first) == ":0\r\n");
    assert_eq!(asks(&free), ":0\r\n", "what was held may have been lost");
    // The other shards know nothing of it.
    assert_eq!(asks(&other), ":0\r\n");
    assert_eq!(asks(&cluster.locks_of(1, 3)[2]), ":1\r\n");
    wait_for("the quarantine to be over", || asks(&free) == ":1\r\n");
    proxy.counts("lockwarden_backend_era_changes_total{backend=\"default\"}", 1.0);
}

#[test]
fn a_shard_that_is_down_is_said_to_be_and_the_others_are_served() {
    if Cluster::is_lacking() {
        return;
    }
    let mut cluster = Cluster::start();
    for at in 0..3 {
        cluster.node(at).client().sends("CONFIG SET cluster-require-full-coverage no").gets("+OK");
    }
    let proxy = front(&cluster).start();
    let [a, b, c] = one_of_each(&cluster, "key:");
    let client = proxy.client();
    client.sends(format!("MSET {a} 1 {b} 2 {c} 3")).gets("+OK");
    cluster.kill(1);
    wait_for("the shard to be noticed", || proxy.metric("lockwarden_cluster_slots_unserved") > 5_000.0);
    assert_eq!(proxy.ready(), Some(200));
    let client = proxy.client();
    client.sends(format!("GET {a}")).gets("$1 1");
    client.sends(format!("GET {b}")).gets_error("CLUSTERDOWN Hash slot not served");
    client.sends(format!("GET {c}")).gets("$1 3");
    client.sends(format!("MGET {a} {b}")).gets_error("CLUSTERDOWN Hash slot not served");
    client.sends("KEYS *").gets_error("CLUSTERDOWN Hash slot not served");
    let backend = &proxy.api("overview")["backend"];
    assert!(backend["problem"].as_str().is_some_and(|problem| problem.starts_with("shard 127.0.0.1:")), "{backend}");
    // Back again, it is served again.
    cluster.restart(1);
    wait_for("all to be served", || proxy.metric("lockwarden_cluster_slots_unserved") == 0.0);
    client.sends(format!("SET {b} 4")).gets("+OK");
    client.sends(format!("GET {b}")).gets("$1 4");
}

#[test]
fn a_grant_that_a_client_did_not_hear_of_is_noticed_through_the_front() {
    if Cluster::is_lacking() {
        return;
    }
    let cluster = Cluster::start();
    let proxy = front(&cluster).start();
    let locks = one_of_each(&cluster, "lock:");
    let acquires = ["5c9e2f70-d1b3", "8a07c1d4-77e2", "e1f09b3a-40c6"].iter().zip(&locks);
    let acquires: Vec<String> = acquires.map(|(token, lock)| format!("SET {lock} {token}-alice NX PX 9000")).collect();
    for acquire in &acquires {
        let client = proxy.client_from("127.44.2.1");
        client.write(format!("{acquire}\r\n").as_bytes());
        client.leaves_a_reply_unread();
        client.resets();
    }
    proxy.counts("lockwarden_undelivered_grants_total{namespace=\"locks\",outcome=\"marked\"}", 3.0);
    // Without the mark it would block itself until the TTL.
    let again = proxy.client_from("127.44.2.1");
    for acquire in &acquires {
        again.sends(acquire).gets("+OK");
    }
}

#[test]
fn a_client_of_several_shards_goes_when_it_is_old_and_nothing_depends_on_it() {
    if Cluster::is_lacking() {
        return;
    }
    let cluster = Cluster::start();
    let proxy = front(&cluster).top("max_connection_age", "\"1s\"").start();
    let [a, b, c] = one_of_each(&cluster, "key:");
    let on_all = || {
        let client = proxy.client();
        client.sends(format!("MGET {a} {b} {c}")).gets("[nil, nil, nil]");
        client
    };
    let [free, holder, in_block, half, listening] = [(); 5].map(|()| on_all());
    holder.sends("SET lock:job a1 NX PX 60000").gets("+OK");
    in_block.sends("MULTI").gets("+OK");
    half.write(b"*1\r\n$4\r\nPI");
    listening.sends("SUBSCRIBE news").gets("[$9 subscribe, $4 news, :1]");
    free.then().gets_close();
    // By then all of them were old for a while.
    on_all().then().gets_close();
    holder.sends("DEL lock:job").gets(":1");
    in_block.sends(format!("GET {c}")).gets("+QUEUED");
    in_block.sends("EXEC").gets("[nil]");
    half.write(b"NG\r\n");
    half.then().gets("+PONG");
    listening.sends("UNSUBSCRIBE news").gets("[$11 unsubscribe, $4 news, :0]");
    for client in [holder, in_block, half, listening] {
        client.then().gets_close();
    }
}

#[test]
fn a_server_that_is_no_node_is_not_served_as_a_cluster() {
    let single = Redis::start();
    let proxy = ProxyBuilder::for_backend(&format!("redis-cluster://{}", single.address())).without_waiting().start();
    proxy.logs(&[
        "ERROR",
        "no client is served",
        "no node of the cluster tells who has which slots",
        "cluster support disabled",
    ]);
    assert_eq!(proxy.ready(), Some(503));
    proxy.client().sends("SETNX lock:job a1").gets_close();
}

/// The connection of the client proves that a lease is its own, by whatever connection of the proxy it came.
#[test]
fn a_connection_proves_its_leases_wherever_their_slots_and_primaries_have_gone() {
    if Cluster::is_lacking() {
        return;
    }
    let cluster = Cluster::with_replicas();
    let proxy = front(&cluster).setting("owner-token", "proofs", "[\"session\"]").default_ttl("9s").start();
    let (alice, twin) = (proxy.client(), proxy.client());
    let [moved, failed] = cluster.locks_of(0, 2).try_into().expect("two");
    for lock in [&moved, &failed] {
        alice.sends(format!("SETNX {lock} 1")).gets(":1");
    }
    cluster.moves_slot(cluster.slot(&moved), 0, 1);
    twin.sends(format!("DEL {moved}")).gets(":0");
    alice.sends(format!("DEL {moved}")).gets(":1");
    cluster.hands_over_to(3);
    // A client that waits for a reply when connections to the old one are cut is closed.
    proxy.logs(&["WARN", "the nodes of the cluster name another primary"]);
    proxy.logs(&["INFO", "the backend is up", &cluster.node(3).address().to_string()]);
    wait_for("the new primary to be served", || {
        let other = proxy.client();
        other.write(format!("EXISTS {failed}\r\n").as_bytes());
        other.reply_if_any(Duration::from_secs(3)).is_some_and(|reply| reply.to_string() == ":1")
    });
    twin.sends(format!("DEL {failed}")).gets(":0");
    alice.sends(format!("DEL {failed}")).gets(":1");
}

/// The name of the lock stands in the data of the script, in the same slot.
#[test]
fn a_trusted_script_gives_back_a_lock_that_it_does_not_declare() {
    if Cluster::is_lacking() {
        return;
    }
    let cluster = Cluster::start();
    let script = "local name = redis.call('hget', KEYS[1], 'lock') \
                  if redis.call('get', name) == ARGV[1] then return redis.call('del', name) end return 0";
    let sha = cluster.node(0).client().sends_arguments(&["SCRIPT", "LOAD", script]).text();
    let proxy = front(&cluster).namespace("trusted_scripts", &format!("[\"{sha}\"]")).start();
    let client = proxy.client();
    for tag in one_of_each(&cluster, "") {
        client.sends(format!("HSET {{{tag}}}:task lock lock:{{{tag}}}")).gets(":1");
        client.sends(format!("SET lock:{{{tag}}} a1 NX PX 9000")).gets("+OK");
        client.sends_arguments(&["EVAL", script, "1", &format!("{{{tag}}}:task"), "a2"]).gets(":0");
        client.sends_arguments(&["EVAL", script, "1", &format!("{{{tag}}}:task"), "a1"]).gets(":1");
        client.sends(format!("SET lock:{{{tag}}} a3 NX PX 9000")).gets("+OK");
    }
}

#[test]
fn guarded_data_in_another_slot_than_its_lock_is_refused_with_what_to_do() {
    if Cluster::is_lacking() {
        return;
    }
    let cluster = Cluster::start();
    let guard = "[[guard]]\nname = \"stock\"\nkeys = [\"stock:{id}\"]\nlock = \"lock:{id}\"\nmode = \"enforce\"\n";
    let proxy = front(&cluster).more(guard).start();
    let client = proxy.client();
    for id in ["7", "{7}"] {
        client.sends(format!("SET lock:{id} a1 NX PX 60000")).gets("+OK");
    }
    let refused = client.sends("SET stock:7 5").reply().to_string();
    assert!(refused.starts_with("-LOCKLIMIT guarded-write key=stock:7"), "{refused}");
    assert!(refused.contains("give both one hash tag"), "{refused}");
    client.sends("SET stock:{7} 5").gets("+OK");
    proxy.client().sends("SET stock:{7} 6").gets_error("LOCKDENIED not-owner");
    assert_eq!(proxy.metric("lockwarden_guard_unchecked_total{guard=\"stock\",why=\"other-slot\"}"), 1.0);
}

/// As a library does that sends a whole pipeline before it reads. Without the proxy the servers keep the
/// replies.
#[test]
fn a_pipeline_that_is_sent_whole_before_a_reply_is_read_is_answered() {
    if Cluster::is_lacking() {
        return;
    }
    let cluster = Cluster::start();
    let proxy = front(&cluster).start();
    let keys = one_of_each(&cluster, "key:");
    let client = proxy.client();
    let long = "x".repeat(100 << 10);
    for key in &keys {
        client.sends_arguments(&["SET", key, &long]).gets("+OK");
    }
    let of_each = |words: &dyn Fn(&str) -> Vec<u8>, times: usize| -> Vec<u8> {
        let each = keys.iter().cycle().take(times);
        each.flat_map(|key| words(key)).collect()
    };
    // More replies than the proxy keeps, and more requests than sockets keep; more than it counted once, too.
    let mut requests = of_each(&|key| encode(&["GET", key]), 200);
    requests.extend(of_each(&|key| encode(&["SET", key, &long]), 200));
    requests.extend(of_each(&|key| encode(&["STRLEN", key]), 12_000));
    client.write(&requests);
    for _ in 0..200 {
        assert!(client.raw_reply().len() > 100 << 10);
    }
    for _ in 0..200 {
        client.then().gets("+OK");
    }
    for _ in 0..12_000 {
        assert_eq!(client.then().integer(), 100 << 10);
    }
}
