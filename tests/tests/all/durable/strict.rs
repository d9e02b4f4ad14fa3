//! `durability = "strict:…"`: does all that `wait` does; in addition no free lock is granted where a failover, a server that
//! drops keys or a clock that jumps could give the lock a second holder.

use std::fs;

use lockwarden_tests::holds_for;

use super::*;

const UNTIL: &str = "lockwarden_quarantine_until_timestamp_seconds{namespace=\"locks\"}";
/// The log line about locks that are not granted.
const NOT_GRANTED: &str = "no free lock is granted: the server is not what durability";
const FREE: &str = "[[namespace]]\nname = \"free\"\nkeys = [\"free:*\"]\nmode = \"enforce\"";

/// With a quarantine of a second, so that no test waits long for the one at the start.
fn strict(builder: ProxyBuilder) -> ProxyBuilder {
    builder.namespace("durability", "\"strict:1:300ms\"").namespace("quarantine", "\"1s\"").more(FREE)
}

/// Every report says why, and locks are granted in other namespaces only.
#[track_caller]
fn grants_nothing(builder: ProxyBuilder, why: &[&str]) {
    let (said, code) = runs(&["check", "--backend"], &builder);
    for words in why {
        let line = "backend: namespace locks: its durability is strict, so no free lock would be granted: ";
        let has = |text: &str| text.starts_with(line) && text.contains(words);
        assert!(said.lines().any(has), "{words}\n{said}");
    }
    assert_eq!(code, Some(1), "{said}");

    let proxy = builder.start();
    for words in why {
        proxy.logs(&["ERROR", NOT_GRANTED, "\"namespace\":\"locks\"", words]);
    }
    let client = proxy.client();
    client.sends("SET free:a f NX PX 9000").gets("+OK");
    // It has no end: the quarantine of the start would be over.
    holds_for(Duration::from_millis(2_500), "nothing to be granted", || client.sends("SETNX lock:a x").integer() == 0);
    client.sends("SET lock:a x PX 9000").gets_error("LOCKDENIED quarantine key=lock:a");
    assert!(proxy.metric(UNTIL) > 200e9, "{}", proxy.metric(UNTIL));
    assert_eq!(proxy.ready(), Some(200));
    let quarantine = proxy.api("config")[0]["quarantine"].clone();
    assert!(quarantine["until"].is_null(), "{quarantine}");
    for words in why {
        assert!(quarantine.to_string().contains(words), "{quarantine}");
    }
    assert_eq!(proxy.logged(&[NOT_GRANTED]), 1, "once");
}

#[test]
fn nothing_is_granted_where_too_few_replicas_follow() {
    let alone = Redis::start();
    let few = [
        "the server has 0 replicas online, and 1 must have each grant: attach what is missing",
        "appendonly is no, so without a replica a restart loses every lock",
    ];
    grants_nothing(strict(Proxy::builder(&alone)), &few);
    let pair = Pair::start();
    let two = strict(pair.builder()).namespace("durability", "\"strict:2:300ms\"");
    grants_nothing(two, &["the server has 1 replica online, and 2 must have"]);
}

#[test]
fn nothing_is_granted_where_the_server_may_drop_locks() {
    let pair = Pair::start();
    let primary = pair.primary.client();
    // It drops nothing where memory has no bound.
    primary.sends("CONFIG SET maxmemory-policy volatile-lru").gets("+OK");
    let proxy = strict(pair.builder()).start();
    comes_to(&proxy.client(), "SET lock:first f NX PX 1000", "+OK");
    primary.sends("CONFIG SET maxmemory 100mb").gets("+OK");
    let why = "maxmemory-policy is volatile-lru: when its memory is full, Redis drops locks";
    proxy.logs(&["ERROR", NOT_GRANTED, why]);
    proxy.client().sends("SETNX lock:b x").gets(":0");
    grants_nothing(strict(pair.builder()), &[why]);
    primary.sends("CONFIG SET maxmemory-policy noeviction").gets("+OK");
    proxy.logs(&["INFO", "the server is what durability", "needs again"]);
    comes_to(&proxy.client(), "SETNX lock:b x", ":1");
}

#[test]
fn nothing_is_granted_where_the_server_says_nothing_of_itself() {
    let pair = Pair::start();
    let admin = pair.primary.client();
    admin.sends("ACL SETUSER own on >pw ~* &* +@all -info").gets("+OK");
    let url = pair.primary.url().replacen("://", "://own:pw@", 1);
    let builder = strict(ProxyBuilder::for_backend(&url));
    let why = "the server does not tell the proxy's own user about its memory and its replicas: give that user +info";
    grants_nothing(builder, &[why]);
}

/// Held locks go on: they can be given back, and an extension gets the reply that it gets where too few replicas
/// have it.
#[test]
fn a_replica_that_goes_ends_all_granting_until_one_follows_again() {
    let mut pair = Pair::start();
    let proxy = strict(pair.builder()).start();
    let alice = proxy.client();
    comes_to(&alice, "SET lock:held a1 NX PX 9000", "+OK");
    alice.sends("PEXPIRE lock:held 8000").gets(":1");
    assert_eq!(proxy.metric(UNTIL), 0.0);
    pair.replica.stop();
    proxy.logs(&["ERROR", NOT_GRANTED, "the server has 0 replicas online"]);
    let before = proxy.metric(TOO_FEW);
    let bob = proxy.client();
    bob.sends("SET lock:free b1 NX PX 9000").gets("nil");
    assert_eq!(proxy.metric(TOO_FEW), before, "nothing was given back");
    alice.sends("PEXPIRE lock:held 9000").gets(":0");
    alice.sends("DEL lock:held").gets(":1");
    was_given_back(&pair.primary, "lock:held");
    pair.replica.start_again();
    let port = pair.primary.address().port();
    let replica = pair.replica.client();
    replica.sends(format!("REPLICAOF 127.0.0.1 {port}")).gets("+OK");
    proxy.logs(&["INFO", "the server is what durability", "needs again"]);
    comes_to(&bob, "SET lock:free b1 NX PX 9000", "+OK");
    assert_eq!(pair.replica.value("lock:free"), "$2 b1");
}

#[test]
fn a_reload_brings_it_and_one_that_is_weaker_has_to_be_allowed() {
    let alone = Redis::start();
    let proxy = strict(Proxy::builder(&alone)).namespace("durability", "\"none\"").start();
    comes_to(&proxy.client(), "SET lock:a x NX PX 100", "+OK");
    let text = fs::read_to_string(proxy.config()).expect("it is there");
    proxy.reload(&text.replace("\"none\"", "\"strict:1:50ms\""));
    proxy.logs(&["ERROR", NOT_GRANTED]);
    comes_to(&proxy.client(), "SETNX lock:b x", ":0");
    let weaker = text.replace("\"none\"", "\"wait:1:50ms\"");
    let (status, said) = proxy.reloads(weaker.as_bytes(), "/reload");
    assert_ne!(status, 200, "{said}");
    assert!(said.contains("durability would not be strict"), "{said}");
    let (status, said) = proxy.reloads(text.as_bytes(), "/reload?allow=weaker");
    assert_eq!(status, 200, "{said}");
    comes_to(&proxy.client(), "SETNX lock:b x", ":1");
}

#[test]
fn strict_has_a_quarantine_that_cannot_be_switched_off() {
    let pair = Pair::start();
    let usual = pair.waiting("strict:1:300ms");
    let usual = usual.default_ttl("600ms").ceiling("2s");
    let (said, code) = runs(&["check"], &usual);
    assert_eq!(code, Some(0), "{said}");
    // The ceiling, ten seconds, and one for clocks.
    let began = Instant::now();
    let proxy = usual.start();
    let client = proxy.client();
    client.sends("SET lock:a x NX PX 1000").gets("nil");
    comes_to(&client, "SET lock:a x NX PX 1000", "+OK");
    let took = began.elapsed();
    let expected = Duration::from_secs(12)..Duration::from_secs(20);
    assert!(expected.contains(&took), "{took:?}");

    let off = pair.waiting("strict:1:300ms");
    let (said, code) = runs(&["check"], &off.namespace("quarantine", "\"off\""));
    assert_eq!(code, Some(2), "{said}");
    let words = "namespace \"locks\": quarantine: \"off\" lets a second client have a lock that a failover has lost";
    assert!(said.contains(words), "{said}");
    let endless = "[[namespace]]\nname = \"bare\"\nkeys = [\"bare:*\"]\npolicies = [\"owner-token\"]\ndurability = \"strict:1:50ms\"";
    let (said, code) = runs(&["check"], &pair.builder().more(endless));
    assert_eq!(code, Some(2), "{said}");
    let words = "quarantine = \"auto\", which is part of durability = \"strict:…\", lasts as long as the longest lease";
    assert!(said.contains(words), "{said}");
}

/// Asks for a lock over a connection of its own, which may be closed.
fn is_granted(proxy: &Proxy, value: &str) -> bool {
    let client = proxy.client();
    client.write(format!("SETNX lock:job {value}\r\nQUIT\r\n").as_bytes());
    client.reads_to_end().starts_with(b":1\r\n")
}

/// The server's clock is set forward while a lock is held: its key goes, and the holder counts on more time. Returns how long
/// after the grant another client is granted the lock, through another proxy.
#[track_caller]
fn is_granted_after_a_jump(durability: &str, quarantine: &str) -> (Duration, [Proxy; 2]) {
    let pair = Pair::of(Redis::with_jumping_clock(&SYNCS_AT_ONCE));
    let proxies = [(), ()].map(|()| {
        strict(pair.builder())
            .namespace("durability", &format!("{durability:?}"))
            .namespace("quarantine", &format!("{quarantine:?}"))
            .default_ttl("2s")
            .ceiling("4s")
            .start()
    });
    let alice = proxies[0].client();
    comes_to(&alice, "SET lock:job a1 NX PX 4000", "+OK");
    let began = Instant::now();
    pair.primary.clock_jumps(3_500);
    wait_for("somebody else to be granted the lock", || is_granted(&proxies[1], "b1"));
    (began.elapsed(), proxies)
}

#[test]
fn after_the_clock_of_the_server_has_jumped_no_free_lock_is_granted_as_long_as_a_lease_lasts() {
    // This shows that the setting matters.
    let (after, _) = is_granted_after_a_jump("wait:1:300ms", "off");
    assert!(after < Duration::from_secs(3), "{after:?}");
    let (after, proxies) = is_granted_after_a_jump("strict:1:300ms", "4s");
    assert!(after >= Duration::from_secs(4), "{after:?}");
    for proxy in &proxies {
        proxy.logs(&["WARN", "the server's clock has jumped forward", "\"by_ms\":3"]);
    }
}

/// Between two looks at the clock, the time of a grant reveals the jump.
#[test]
fn a_grant_that_was_made_after_a_jump_is_given_back() {
    let pair = Pair::of(Redis::with_jumping_clock(&SYNCS_AT_ONCE));
    let proxy = strict(pair.builder()).default_ttl("600ms").start();
    // The look may come first, so it is tried again.
    wait_for("a grant between the jump and the next look", || {
        wait_for("a grant", || is_granted(&proxy, "a1"));
        pair.primary.clock_jumps(1_000);
        assert!(!is_granted(&proxy, "b1"));
        proxy.metric(UNKNOWN) > 0.0
    });
    was_given_back(&pair.primary, "lock:job");
    let words = "a lock was granted after the server's clock had jumped";
    proxy.logs(&["WARN", words]);
}

#[test]
fn a_clock_that_is_put_back_only_makes_leases_longer() {
    let pair = Pair::of(Redis::with_jumping_clock(&SYNCS_AT_ONCE));
    let proxy = strict(pair.builder()).start();
    let client = proxy.client();
    comes_to(&client, "SET lock:a x NX PX 9000", "+OK");
    pair.primary.clock_jumps(-60_000);
    holds_for(Duration::from_millis(2_500), "locks to be granted", || {
        client.sends("SET lock:b x NX PX 9000").reply().to_string() == "+OK"
            && client.sends("DEL lock:b").integer() == 1
    });
    assert_eq!(pair.primary.value("lock:a"), "$1 x");
    assert_eq!(proxy.logged(&["the server's clock has jumped"]), 0);
}

/// `check` names the users that lack it, and `acl` gives it: to a twin, and to the proxy's own user.
#[test]
fn the_right_to_ask_which_server_it_is_is_given_where_there_is_a_quarantine() {
    if Server::under_test().lacks("ACL DRYRUN", 7, 0) {
        return;
    }
    let guarded = Guarded::start();
    guarded.admin("ACL SETUSER shop -info");
    guarded.admin("ACL SETUSER warden -info");
    let careful = |quarantine: &str| {
        let builder = guarded.proxy(&["shop"]);
        builder.namespace("quarantine", &format!("{quarantine:?}"))
    };
    let shops = "user shop may take locks of namespace locks and lacks +info";
    let (said, _) = runs(&["check", "--backend"], &careful("off"));
    assert!(!said.contains(shops), "{said}");
    let (said, _) = runs(&["check", "--backend"], &careful("1s"));
    for lacks in ["the proxy's own user warden lacks +info:", shops] {
        assert!(said.contains(lacks), "{said}");
    }
    let (said, code) = runs(&["acl", "--apply", "--without-twin"], &careful("1s"));
    assert_eq!(code, Some(0), "{said}");
    let rules = |user: &str| guarded.admin(&format!("ACL GETUSER {user}"));
    for user in ["warden", "shop-lw"] {
        assert!(!rules(user).contains("-info"), "{}", rules(user));
    }
    assert!(rules("shop").contains("-info"), "{}", rules("shop"));
    let (said, _) = runs(&["acl", "--without-twin"], &careful("1s"));
    assert!(said.contains("nothing is to be changed"), "{said}");
    let (said, _) = runs(&["check", "--backend"], &careful("1s"));
    assert!(!said.contains("+info"), "{said}");
    // Through the proxy the twin asks, in its user's place.
    let proxy = careful("1s").start();
    let shop = proxy.client();
    shop.sends("AUTH shop pw").gets("+OK");
    comes_to(&shop, "SETNX lock:job s1", ":1");
    shop.sends("INFO server").gets_error("NOPERM");
}
