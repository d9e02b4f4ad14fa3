//! `LOCKWARDEN CHECK` and `LEASE`: what every client may ask about the lease of a lock, whichever client was granted it,
//! and `HELP`, which says so.

use std::fmt::Write;

use lockwarden_tests::{Client, Mode, Proxy, ProxyBuilder, Redis, Reply, Server};

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

/// State, fencing token and whose it is, as text.
#[track_caller]
fn lease(client: &Client, key: &str) -> String {
    let reply = client.sends(format!("LOCKWARDEN LEASE {key}")).reply();
    let mut told = String::new();
    for name in ["state", "fence", "own"] {
        let _ = write!(told, "{} ", field(&reply, name));
    }
    told.trim_end().to_owned()
}

#[track_caller]
fn checks(client: &Client, key: &str, fence: i64, expected: i64) {
    let line = format!("LOCKWARDEN CHECK {key} {fence}");
    client.sends(line).gets(format!(":{expected}"));
}

#[test]
fn only_the_fencing_token_of_the_lease_that_holds_the_lock_checks() {
    let redis = Redis::start();
    for mode in [Mode::Enforce, Mode::Monitor] {
        redis.client().sends("FLUSHALL").gets("+OK");
        let proxy = Proxy::builder(&redis).mode(mode).start();
        let other_proxy = Proxy::builder(&redis).mode(mode).start();
        let (alice, bob) = (proxy.client(), other_proxy.client());
        alice.sends("SET lock:a a1 NX PX 9000").gets("+OK");
        let first = alice.sends("LOCKWARDEN FENCE lock:a").integer();
        for client in [&alice, &bob] {
            checks(client, "lock:a", first, 1);
            checks(client, "lock:a", first - 1, 0);
            checks(client, "lock:a", first + 1, 0);
            checks(client, "lock:b", first, 0);
        }
        // An extension is no other lease.
        alice.sends("PEXPIRE lock:a 8000").gets(":1");
        checks(&bob, "lock:a", first, 1);
        // Another database is another lock.
        bob.sends("SELECT 1").gets("+OK");
        checks(&bob, "lock:a", first, 0);
        bob.sends("SELECT 0").gets("+OK");

        alice.sends("DEL lock:a").gets(":1");
        checks(&alice, "lock:a", first, 0);
        bob.sends("SET lock:a b1 NX PX 100").gets("+OK");
        let second = bob.sends("LOCKWARDEN FENCE lock:a").integer();
        assert!(second > first);
        checks(&alice, "lock:a", first, 0);
        redis.becomes_free("lock:a");
        checks(&bob, "lock:a", second, 0);
        // A lease that was lost around the proxy, and a lock that was taken there.
        alice.sends("SET lock:a a2 NX PX 9000").gets("+OK");
        let third = alice.sends("LOCKWARDEN FENCE lock:a").integer();
        checks(&bob, "lock:a", third, 1);
        redis.client().sends("SET lock:a straight").gets("+OK");
        checks(&alice, "lock:a", third, 0);
    }
}

#[test]
fn what_is_known_of_a_lease_is_told_to_everybody_but_for_its_owner_token() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    let free = "[$9 namespace, $5 locks, $5 state, $4 free, $5 fence, nil, $3 own, :0, $5 since, nil, $6 age_ms, nil, $11 ttl_left_ms, nil]";
    alice.sends("LOCKWARDEN LEASE lock:a").gets(free);
    alice.sends("SET lock:a secret-of-alice NX PX 9000").gets("+OK");
    let fence = alice.sends("LOCKWARDEN FENCE lock:a").integer();
    assert_eq!(lease(&alice, "lock:a"), format!("$4 held :{fence} :1"));
    let told = bob.sends("lockwarden Lease lock:a").reply();
    assert_eq!(lease(&bob, "lock:a"), format!("$4 held :{fence} :0"));
    let number = |name| field(&told, name).integer();
    let granted = redis.record("lock:a").expect("it has a record");
    assert_eq!(number("fence"), i64::try_from(granted.fence).expect("it fits"));
    assert_eq!(number("since"), fence / 1000, "the time of the grant, ms");
    assert!((0..9_000).contains(&number("age_ms")), "{told}");
    assert!((1..=9_000).contains(&number("ttl_left_ms")), "{told}");
    assert!(!told.to_string().contains("secret"), "{told}");
    // Another connection of the same process is another connection.
    assert_eq!(lease(&proxy.client(), "lock:a"), format!("$4 held :{fence} :0"));

    alice.sends("DEL lock:a").gets(":1");
    assert_eq!(lease(&bob, "lock:a"), format!("$4 free :{fence} :0"));
    redis.client().sends("SET lock:a around PX 9000").gets("+OK");
    let around = bob.sends("LOCKWARDEN LEASE lock:a").reply();
    assert_eq!(lease(&bob, "lock:a"), "$10 ungoverned nil :0");
    assert!((1..=9_000).contains(&field(&around, "ttl_left_ms").integer()));
    redis.client().sends("PERSIST lock:a").gets(":1");
    bob.sends("HELLO 3").reply();
    let around = bob.sends("LOCKWARDEN LEASE lock:a").reply();
    assert!(matches!(around, Reply::Map(_)), "{around}");
    for name in ["fence", "since", "age_ms", "ttl_left_ms"] {
        assert_eq!(field(&around, name).to_string(), "null", "{name}");
    }
}

/// Where the lock is a hash, as Redisson's, the lease is a field of it.
#[test]
fn a_lock_that_is_a_hash_can_be_asked_about() {
    let take = "if redis.call('exists', KEYS[1]) == 0 then redis.call('hincrby', KEYS[1], ARGV[2], 1); redis.call('pexpire', KEYS[1], ARGV[1]); return nil; end; return redis.call('pttl', KEYS[1]);";
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let alice = proxy.client();
    let owner = "6e3d2b5e-1f0a-4c6f-9a55-3f1c2b7d9e10:731";
    let taken = alice.eval(take, &["lock:h"], &["9000", owner]);
    assert_eq!(taken, "nil");
    redis.client().sends("TYPE lock:h").gets("+hash");
    let fence = i64::try_from(redis.fence("lock:h")).expect("it fits");
    assert_eq!(lease(&alice, "lock:h"), format!("$4 held :{fence} :1"));
    checks(&proxy.client(), "lock:h", fence, 1);
    redis.client().sends(format!("HDEL lock:h {owner}")).gets(":1");
    checks(&alice, "lock:h", fence, 0);
}

#[test]
fn a_question_that_cannot_be_answered_is_an_error_that_says_why() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis)
        .more("[[namespace]]\nname = \"bare\"\nkeys = [\"bare:*\"]\npolicies = [\"owner-token\", \"ttl-ceiling\"]\n")
        .start();
    let client = proxy.client();
    for (line, error) in [
        ("LOCKWARDEN CHECK", "ERR syntax error: LOCKWARDEN CHECK key fence"),
        ("LOCKWARDEN CHECK lock:a", "ERR syntax error: LOCKWARDEN CHECK key fence"),
        ("LOCKWARDEN CHECK lock:a 1 2", "ERR syntax error: LOCKWARDEN CHECK key fence"),
        ("LOCKWARDEN LEASE", "ERR syntax error: LOCKWARDEN LEASE key"),
        ("LOCKWARDEN LEASE lock:a lock:b", "ERR syntax error: LOCKWARDEN LEASE key"),
        ("LOCKWARDEN CHECK lock:a 0", "ERR a fencing token is a whole number from 1 to 9999999999999999"),
        ("LOCKWARDEN CHECK lock:a one", "ERR a fencing token is "),
        ("LOCKWARDEN CHECK lock:a 99999999999999999999", "ERR a fencing token is "),
        ("LOCKWARDEN CHECK stock:a 1", "ERR this key is in no namespace, so it is no lock"),
        ("LOCKWARDEN LEASE stock:a", "ERR this key is in no namespace, so it is no lock"),
        ("LOCKWARDEN LEASE lw:{0j4}:lock:a", "ERR this key is in no namespace, so it is no lock"),
        ("LOCKWARDEN CHECK bare:a 1", "ERR namespace \"bare\" numbers no leases: add the policy \"fencing\" to it"),
    ] {
        client.sends(line).gets_error(error);
    }
    let long = format!("LOCKWARDEN LEASE lock:{}", "k".repeat(1_024));
    client.sends(long).gets_error("ERR a lock key has at most 1024 bytes");
    // A lease without a number is one all the same.
    client.sends("SET bare:a a1 NX PX 9000").gets("+OK");
    assert_eq!(lease(&client, "bare:a"), "$4 held nil :1");
    // Redis itself knows no such command.
    for line in ["LOCKWARDEN CHECK lock:a 1", "LOCKWARDEN LEASE lock:a"] {
        redis.client().sends(line).gets_error("ERR unknown command");
    }
}

#[test]
fn a_question_has_its_turn_and_is_no_part_of_a_block() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).setting("fencing", "counter", "\"sequential\"").start();
    let client = proxy.client();
    client.pipelines(
        &[
            "SET plain 1",
            "LOCKWARDEN CHECK lock:a 1",
            "SET lock:a a1 NX PX 9000",
            "LOCKWARDEN CHECK lock:a 1",
            "GET plain",
            "DEL lock:a",
            "LOCKWARDEN CHECK lock:a 1",
            "PING",
        ],
        &["+OK", ":0", "+OK", ":1", "$1 1", ":1", ":0", "+PONG"],
    );
    client.sends("SET lock:a a1 NX PX 9000").gets("+OK");
    // As it is typed by hand, and where the client does not want the reply.
    client.sends_bytes("  lockwarden   check lock:a \"2\"\r\n").gets(":1");
    client.write(b"CLIENT REPLY SKIP\r\nLOCKWARDEN LEASE lock:a\r\n");
    client.sends("PING").gets("+PONG");
    for line in ["LOCKWARDEN CHECK lock:a 2", "LOCKWARDEN LEASE lock:a"] {
        client.sends("MULTI").gets("+OK");
        client.sends("SET plain 2").gets("+QUEUED");
        let said = client.sends(line).gets_error("ERR LOCKWARDEN ");
        assert!(said.ends_with("is not possible inside a transaction"), "{said}");
        client.sends("EXEC").gets_error("EXECABORT");
    }
    client.sends("GET plain").gets("$1 1");
    // A WATCH has no effect on it.
    client.sends("WATCH plain").gets("+OK");
    checks(&client, "lock:a", 2, 1);
    client.sends("MULTI").gets("+OK");
    client.sends("SET plain 3").gets("+QUEUED");
    client.sends("EXEC").gets("[+OK]");
    // While it listens, a client of RESP2 may send little.
    client.sends("SUBSCRIBE news").reply();
    client.sends("LOCKWARDEN CHECK lock:a 2").gets_error("ERR Can't execute 'lockwarden'");
    client.sends("UNSUBSCRIBE news").reply();
    checks(&client, "lock:a", 2, 1);
}

#[test]
fn a_question_takes_the_rights_of_its_client() {
    let redis = Redis::with_arguments(&["--requirepass", "secret"]);
    let admin = redis.client();
    admin.sends("AUTH secret").gets("+OK");
    for user in [
        // All that a step which reads takes, and nothing else.
        "reader on >pw ~lock:* ~lw:* -@all +eval +evalsha +hexists +mget +pttl +time +type +zscore",
        "no-scripts on >pw ~* +@all -eval -evalsha",
        "no-ttl on >pw ~* +@all -pttl",
        "elsewhere on >pw ~other:* +@all",
        "no-records on >pw ~lock:* +@all",
    ] {
        admin.sends(format!("ACL SETUSER {user}")).gets("+OK");
    }
    let proxy = ProxyBuilder::for_backend(&format!("redis://:secret@{}", redis.address())).start();
    let holder = proxy.client();
    holder.sends("LOCKWARDEN LEASE lock:a").gets_error("NOAUTH");
    holder.sends("LOCKWARDEN CHECK lock:a 1").gets_error("NOAUTH");
    holder.sends("LOCKWARDEN HELP").gets_error("NOAUTH");
    holder.sends("AUTH secret").gets("+OK");
    holder.sends("SET lock:a a1 NX PX 9000").gets("+OK");
    let fence = holder.sends("LOCKWARDEN FENCE lock:a").integer();
    let client = proxy.client();
    client.sends("AUTH reader pw").gets("+OK");
    checks(&client, "lock:a", fence, 1);
    assert_eq!(lease(&client, "lock:a"), format!("$4 held :{fence} :0"));
    for user in ["no-scripts", "no-ttl", "elsewhere", "no-records"] {
        let client = proxy.client();
        client.sends(format!("AUTH {user} pw")).gets("+OK");
        for (line, name) in
            [(format!("LOCKWARDEN CHECK lock:a {fence}"), "CHECK"), ("LOCKWARDEN LEASE lock:a".to_owned(), "LEASE")]
        {
            let said = client
                .sends(line)
                .gets_error(&format!("NOPERM lockwarden runs LOCKWARDEN {name} on a lock as a script: "));
            assert!(said.contains("+eval +evalsha") && said.contains("~lw:*"), "{user}: {said}");
        }
        // Answers that the proxy gives by itself need no rights.
        client.sends("LOCKWARDEN FENCE lock:a").gets("nil");
        client.sends("PING").gets("+PONG");
    }
    if Server::under_test().since(7, 2) {
        let client = proxy.client();
        client.sends("AUTH no-ttl pw").gets("+OK");
        let said = client.sends("LOCKWARDEN LEASE lock:a").gets_error("NOPERM");
        assert!(said.contains("this user lacks +pttl; "), "{said}");
    }
}

#[test]
fn a_server_that_is_full_or_has_forgotten_the_script_answers_and_one_that_pauses_does_so_later() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).setting("fencing", "counter", "\"sequential\"").start();
    let (client, admin) = (proxy.client(), redis.client());
    client.sends("SET lock:a a1 NX PX 9000").gets("+OK");
    checks(&client, "lock:a", 1, 1);
    admin.sends("SCRIPT FLUSH").gets("+OK");
    checks(&client, "lock:a", 1, 1);
    admin.sends("CONFIG SET maxmemory 1").gets("+OK");
    admin.sends("SCRIPT FLUSH").gets("+OK");
    checks(&client, "lock:a", 1, 1);
    assert_eq!(lease(&client, "lock:a"), "$4 held :1 :1");
    admin.sends("CONFIG SET maxmemory 0").gets("+OK");
    // As every command on a lock.
    admin.sends("CLIENT PAUSE 100 WRITE").gets("+OK");
    checks(&client, "lock:a", 1, 1);
}

#[test]
fn every_client_is_told_what_can_be_asked() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let client = proxy.client();
    let help = client.sends("LOCKWARDEN HELP").reply().to_string();
    for words in [
        "+LOCKWARDEN <subcommand> [<arg> [value] ...]. Subcommands are:",
        "+FENCE <key>",
        "+CHECK <key> <fence>",
        "+LEASE <key>",
        "+LOCKS [<pattern>]",
        "LOCKS, WHY, MODE and CLIENTS are for admin_identities only.",
    ] {
        assert!(help.contains(words), "{words}: {help}");
    }
    client.sends("LOCKWARDEN HELP me").gets_error("ERR syntax error: LOCKWARDEN HELP");
    for line in ["LOCKWARDEN LOCKS", "LOCKWARDEN CLIENTS", "LOCKWARDEN MODE monitor"] {
        client.sends(line).gets_error("NOPERM");
    }
    client.sends("HELLO 3").reply();
    assert_eq!(client.sends("LOCKWARDEN HELP").reply().to_string(), help);
}
