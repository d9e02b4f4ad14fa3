//! The proxy's own keys are hidden from applications: commands that list keys, invalidations of a cache and
//! notifications about keys contain all other keys, but none of these.

use std::collections::BTreeSet;
use std::time::Duration;

use lockwarden_tests::{Client, Proxy, Redis, Reply, World, encode};

/// Locks, plain keys, and names that only look like the proxy's own.
const KEYS: [&str; 5] = ["lock:a", "lock:b", "lw:mine", "lw:{0j4}:plain", "plain"];

fn fill(client: &Client) {
    for key in KEYS {
        client.sends(format!("SET {key} v1 NX PX 9000")).gets("+OK");
    }
}

fn names(reply: &Reply) -> BTreeSet<String> {
    reply.elements().iter().map(Reply::text).collect()
}

fn all() -> BTreeSet<String> {
    KEYS.map(str::to_owned).into()
}

/// Every name that a whole iteration returns.
fn scanned(client: &Client, options: &str) -> BTreeSet<String> {
    let (mut cursor, mut found) = ("0".to_owned(), BTreeSet::new());
    loop {
        let page = client.sends(format!("SCAN {cursor} {options}")).reply();
        found.extend(names(&page.elements()[1]));
        cursor = page.elements()[0].text();
        if cursor == "0" {
            return found;
        }
    }
}

/// The same in every world, and under both protocols.
fn listings_name_the_keys_of_applications(world: &World) {
    let client = world.client();
    fill(&client);
    for hello in ["HELLO 2", "HELLO 3"] {
        client.sends(hello).reply();
        assert_eq!(names(&client.sends("KEYS *").reply()), all());
        let reply = client.sends("KEYS lw:*").reply();
        assert_eq!(names(&reply), ["lw:mine", "lw:{0j4}:plain"].map(str::to_owned).into());
        client.sends("KEYS *}:lock:*").gets("[]");
        for options in ["", "COUNT 1", "COUNT 1000", "TYPE string COUNT 2", "MATCH *"] {
            assert_eq!(scanned(&client, options), all(), "{options}");
        }
        let locks = scanned(&client, "MATCH *lock:* COUNT 3");
        assert_eq!(locks, ["lock:a", "lock:b"].map(str::to_owned).into());
        assert!(scanned(&client, "TYPE hash").is_empty());
        client.sends("SCAN x").gets("-ERR invalid cursor");
        for _ in 0..40 {
            let key = client.sends("RANDOMKEY").text();
            assert!(KEYS.contains(&key.as_str()), "{key}");
        }
    }
}
in_every_world!(listings_name_the_keys_of_applications);

/// At their places among others, with commands before and behind.
fn listings_in_blocks_and_pipelines(world: &World) {
    let client = world.client();
    client.sends("SET lock:a v1 NX PX 9000").gets("+OK");
    client.pipelines(
        &["PING", "KEYS *", "SCAN 0", "SETNX lock:a v2", "KEYS none", "ECHO end"],
        &["+PONG", "[$6 lock:a]", "[$1 0, [$6 lock:a]]", ":0", "[]", "$3 end"],
    );
    client.pipelines(
        &["MULTI", "KEYS *", "GET lock:a", "SCAN 0 COUNT 100", "DEL lock:a", "KEYS *", "EXEC"],
        &[
            "+OK",
            "+QUEUED",
            "+QUEUED",
            "+QUEUED",
            "+QUEUED",
            "+QUEUED",
            "[[$6 lock:a], $2 v1, [$1 0, [$6 lock:a]], :1, []]",
        ],
    );
    client.sends("KEYS *").gets("[]");
    client.pipelines(&["RANDOMKEY", "PING"], &["nil", "+PONG"]);
    client.pipelines(&["MULTI", "RANDOMKEY", "EXEC"], &["+OK", "+QUEUED", "[nil]"]);
    client.sends("HELLO 3").reply();
    client.sends("RANDOMKEY").gets("null");
    client.pipelines(&["MULTI", "RANDOMKEY", "EXEC"], &["+OK", "+QUEUED", "[null]"]);
    client.pipelines(&["CLIENT REPLY OFF", "KEYS *", "RANDOMKEY", "CLIENT REPLY ON"], &["+OK"]);
}
in_every_world!(listings_in_blocks_and_pipelines);

/// With another prefix other names are the proxy's own.
fn the_prefix_that_is_configured_counts(world: &World) {
    let client = world.client();
    client.sends("SET lock:a v1 NX PX 9000").gets("+OK");
    world.redis().client().sends("SET lw:{0j4}:lock:a mine").gets("+OK");
    let shown = names(&client.sends("KEYS *").reply());
    assert_eq!(shown, ["lock:a", "lw:{0j4}:lock:a"].map(str::to_owned).into());
}
in_every_world!(the_prefix_that_is_configured_counts, |proxy| proxy.top("companion_prefix", "\"wardens:\""));

#[test]
fn what_counts_keys_counts_all_of_them() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let client = proxy.client();
    client.sends("SET lock:a v1 NX PX 9000").gets("+OK");
    // The lock, its record, the mark of the prefix, and the proxies that serve under it.
    assert_eq!(client.sends("DBSIZE").integer(), 4);
    let companion = redis.client().sends("KEYS lw:{*}:lock:a").reply().elements()[0].text();
    for line in ["GET", "TYPE", "DUMP", "OBJECT ENCODING", "MEMORY USAGE", "EXISTS"] {
        client.sends(format!("{line} {companion}")).gets_error("LOCKDENIED opaque-write");
    }
}

#[test]
fn a_long_listing_is_relayed_whole_but_for_companions() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    redis.client().sends("DEBUG POPULATE 200000").gets("+OK");
    let listed = |client: Client| {
        client.write(&[encode(&["KEYS", "*"]), encode(&["QUIT"])].concat());
        client.reads_to_end()
    };
    let (direct, proxied) = (listed(redis.client()), listed(proxy.client()));
    assert!(direct == proxied, "without a companion it is the same");
    proxy.client().sends("SET lock:a v1 NX PX 9000").gets("+OK");
    let told = listed(proxy.client());
    let lock = b"$6\r\nlock:a\r\n";
    assert!(told.starts_with(b"*200001\r\n"));
    assert_eq!(told.len(), direct.len() + lock.len());
    assert!(told.windows(lock.len()).any(|window| window == lock));
}

/// Writers come straight to Redis and through the proxy; the client is told of both.
#[test]
fn invalidations_name_the_keys_of_applications() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (cache, curious) = (proxy.client(), proxy.client());
    for (client, options) in [(&cache, "BCAST"), (&curious, "BCAST PREFIX lw:")] {
        client.sends("HELLO 3").reply();
        client.sends(format!("CLIENT TRACKING on {options}")).gets("+OK");
    }
    let (listener, tracked) = (proxy.client(), proxy.client());
    let id = listener.sends("CLIENT ID").integer();
    listener.sends("SUBSCRIBE __redis__:invalidate").gets("[$9 subscribe, $20 __redis__:invalidate, :1]");
    tracked.sends(format!("CLIENT TRACKING on REDIRECT {id} BCAST")).gets("+OK");
    let writer = proxy.client();
    for (line, reply, key) in [
        ("SET lock:a v1 NX PX 9000", "+OK", "$6 lock:a"),
        ("PEXPIRE lock:a 8000", ":1", "$6 lock:a"),
        ("DEL lock:a", ":1", "$6 lock:a"),
        ("SET plain 1", "+OK", "$5 plain"),
    ] {
        writer.sends(line).gets(reply);
        cache.then().gets(format!(">[$10 invalidate, [{key}]]"));
        listener.then().gets(format!("[$7 message, $20 __redis__:invalidate, [{key}]]"));
    }
    writer.sends("SET lw:mine 1").gets("+OK");
    for client in [&cache, &curious] {
        client.then().gets(">[$10 invalidate, [$7 lw:mine]]");
    }
    redis.client().sends("FLUSHALL").gets("+OK");
    for client in [&cache, &curious] {
        client.then().gets(">[$10 invalidate, null]");
        client.hears_nothing_for(Duration::from_millis(30));
        client.sends("PING").gets("+PONG");
    }
}

/// A client that only sent lock commands never read a companion record, so it gets no notice that it changed.
#[test]
fn a_tracking_client_does_not_hear_of_companions_that_its_scripts_read() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("HELLO 3").reply();
    alice.sends("CLIENT TRACKING on NOLOOP").gets("+OK");
    // It may hear of the lock itself: the scripts read it for this client.
    let answered = |line: &str, expected: &str| {
        alice.write(&encode(&line.split(' ').collect::<Vec<_>>()));
        loop {
            match alice.then().reply().to_string().as_str() {
                ">[$10 invalidate, [$6 lock:a]]" => {}
                answer => return assert_eq!(answer, expected, "{line}"),
            }
        }
    };
    for _ in 0..3 {
        answered("SET lock:a v1 NX PX 9000", "+OK");
        answered("SETNX lock:a v1", ":0");
        answered("DEL lock:a", ":1");
        bob.sends("SET lock:a v2 NX PX 9000").gets("+OK");
        bob.sends("DEL lock:a").gets(":1");
    }
    answered("ECHO end", "$3 end");
}

#[test]
fn notifications_tell_of_the_keys_of_applications() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    redis.client().sends("CONFIG SET notify-keyspace-events KEA").gets("+OK");
    let (writer, plain) = (proxy.client(), redis.client());
    for (hello, open, close) in [("HELLO 2", "[", "]"), ("HELLO 3", ">[", "]")] {
        let (events, spaces, exact) = (proxy.client(), proxy.client(), proxy.client());
        for (client, line) in [
            (&events, "PSUBSCRIBE __keyevent@0__:*"),
            (&spaces, "PSUBSCRIBE __keyspace@*"),
            (&exact, "SUBSCRIBE __keyevent@0__:del news"),
        ] {
            client.sends(hello).reply();
            client.sends(line).reply();
        }
        exact.then().reply();
        writer.sends("SET lock:a v1 NX PX 9000").gets("+OK");
        writer.sends("DEL lock:a").gets(":1");
        plain.sends("RPUSH list x").gets(":1");
        plain.sends("DEL list").gets(":1");
        for (event, key) in
            [("set", "lock:a"), ("expire", "lock:a"), ("del", "lock:a"), ("rpush", "list"), ("del", "list")]
        {
            let told = |text: &str| format!("${} {text}", text.len());
            let (pattern, channel) = (told("__keyevent@0__:*"), format!("__keyevent@0__:{event}"));
            events.then().gets(format!("{open}$8 pmessage, {pattern}, {}, {}{close}", told(&channel), told(key)));
            let (pattern, channel) = (told("__keyspace@*"), format!("__keyspace@0__:{key}"));
            spaces.then().gets(format!("{open}$8 pmessage, {pattern}, {}, {}{close}", told(&channel), told(event)));
        }
        // A message that contains such a name, on an application's own channel, is left alone.
        plain.sends("PUBLISH news lw:{0j4}:lock:a").gets(":1");
        for message in
            ["$18 __keyevent@0__:del, $6 lock:a", "$18 __keyevent@0__:del, $4 list", "$4 news, $15 lw:{0j4}:lock:a"]
        {
            exact.then().gets(format!("{open}$7 message, {message}{close}"));
        }
        for client in [&events, &spaces, &exact] {
            client.hears_nothing_for(Duration::from_millis(30));
        }
    }
}
