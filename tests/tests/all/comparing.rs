//! Commands that compare before they act, in front of a Redis that has none of them: DELEX and
//! `SET … IFEQ` of Redis 8.4, DELIFEQ of Valkey 9, CAS and CAD of Tair. Row B8 of the misuse
//! catalogue, and with counters row A11.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lockwarden_tests::{Client, Mode, Proxy, Redis, Reply, World, WorldKind};

const ALICES: &str = "3f1c9a1e-alice-5a77";
const BOBS: &str = "77e0b2d4-bob-90cc41";
/// The reply of `DIGEST` in Redis 8.4 for "hello".
const DIGEST_OF_HELLO: &str = "9555e8555c62dcfd";

/// In enforce mode these commands work whatever the server; in monitor mode where it knows them.
fn both_modes(commands: &[&str], scenario: impl Fn(&Redis, &Proxy)) {
    for mode in [Mode::Enforce, Mode::Monitor] {
        let redis = Redis::start();
        if mode == Mode::Monitor && !commands.iter().all(|command| knows(&redis, command)) {
            continue;
        }
        let proxy = Proxy::builder(&redis).mode(mode).start();
        scenario(&redis, &proxy);
    }
}

fn takes(client: &Client, key: &str, value: &str) {
    client.sends(format!("SET {key} {value} NX PX 8000")).gets("+OK");
}

/// Whether the server has this command itself, or this condition of SET.
fn knows(redis: &Redis, command: &str) -> bool {
    if command.starts_with("IF") {
        let docs = redis.client().sends("COMMAND DOCS SET").reply().to_string();
        return docs.contains(command);
    }
    let info = redis.client().sends(format!("COMMAND INFO {command}")).reply();
    matches!(info.elements(), [Reply::Array(_)])
}

/// B8: a command that the server does not know works through the proxy, and is unknown without it. A command
/// that the server knows does the same in both cases.
fn a_compared_release_on_a_server_without_it(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    let mut compared = 0;
    for (line, gone) in [
        ("DELEX lock:job IFEQ {}", ":0"),
        ("delex lock:job ifeq {}", ":0"),
        ("DELIFEQ lock:job {}", ":0"),
        ("CAD lock:job {}", ":-1"),
    ] {
        takes(&alice, "lock:job", ALICES);
        let (wrong, right) = (line.replace("{}", BOBS), line.replace("{}", ALICES));
        let command = line.split(' ').next().expect("a line begins with a command");
        let is_own = matches!(world.kind, WorldKind::Direct | WorldKind::Monitor);
        if is_own && !knows(world.redis(), command) {
            bob.sends(&wrong).gets_error("ERR unknown command");
            alice.sends("DEL lock:job").gets(":1");
            continue;
        }
        compared += 1;
        bob.sends(&wrong).gets(":0");
        assert_eq!(world.redis().value("lock:job"), format!("${} {ALICES}", ALICES.len()));
        // A client that names the owner token is the owner, on any connection.
        world.client().sends(&right).gets(":1");
        assert!(world.redis().is_free("lock:job"), "{line}");
        alice.sends(&right).gets(gone);
    }
    world.releases("released", 4);
    world.releases("not-owner", compared);
    world.releases("absent", compared);
}
in_every_world!(a_compared_release_on_a_server_without_it);

#[test]
fn delex_in_all_its_forms() {
    both_modes(&["DELEX"], |redis, proxy| {
        let alice = proxy.client();
        takes(&alice, "lock:job", "hello");
        alice.sends("DELEX lock:job IFNE hello").gets(":0");
        alice.sends(format!("DELEX lock:job IFDEQ {}", "0".repeat(16))).gets(":0");
        alice.sends("DELEX lock:job IFDEQ zzzzzzzzzzzzzzzz").gets(":0");
        assert_eq!(redis.value("lock:job"), "$5 hello");
        alice.sends(format!("DELEX lock:job IFDEQ {DIGEST_OF_HELLO}")).gets(":1");
        alice.sends(format!("DELEX lock:job IFDEQ {DIGEST_OF_HELLO}")).gets(":0");

        takes(&alice, "lock:job", "hello");
        alice.sends("DELEX lock:job IFNE other").gets(":1");
        alice.sends("DELEX lock:job IFNE other").gets(":0");
        takes(&alice, "lock:job", "hello");
        alice.sends("DELEX lock:job").gets(":1");
        alice.sends("DELEX lock:job").gets(":0");

        for (line, error) in [
            ("DELEX lock:job IFEQ", "ERR wrong number of arguments for 'delex' command"),
            ("DELEX lock:job IFEQ a b", "ERR wrong number of arguments for 'delex' command"),
            ("DELEX lock:job IFGT 1", "ERR Invalid condition."),
            ("DELEX lock:job IFDEQ 0123", "ERR must be exactly 16 hexadecimal characters"),
        ] {
            alice.sends(line).gets_error(error);
        }
    });
}

#[test]
fn a_thief_gets_nothing_by_a_comparison_that_names_nobody() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    takes(&alice, "lock:job", ALICES);
    let before = redis.lease("lock:job");
    bob.sends("DELEX lock:job").gets(":0");
    bob.sends("DELEX lock:job IFNE other").gets(":0");
    bob.sends(format!("SET lock:job {BOBS} IFNE other")).gets_error("LOCKDENIED overwrite key=lock:job cmd=SET");
    bob.sends(format!("SET lock:job {BOBS} IFNE other GET")).gets_error("LOCKDENIED take-over key=lock:job cmd=SET");
    bob.sends(format!("SET lock:job {BOBS} IFEQ other PX 9000")).gets("nil");
    bob.sends(format!("CAS lock:job other {BOBS}")).gets(":0");
    assert_eq!(redis.lease("lock:job"), before);
    proxy.counts(
        "lockwarden_decisions_total{namespace=\"locks\",operation=\"release\",reason=\"not-owner\",decision=\"deny\"}",
        2.0,
    );
}

#[test]
fn monitored_a_thief_does_what_the_command_does_and_is_counted() {
    let redis = Redis::start();
    if !knows(&redis, "DELEX") || !knows(&redis, "IFNE") {
        return;
    }
    let proxy = Proxy::builder(&redis).mode(Mode::Monitor).start();
    let (alice, bob) = (proxy.client(), proxy.client());
    takes(&alice, "lock:1", ALICES);
    takes(&alice, "lock:2", ALICES);
    bob.sends("DELEX lock:1 IFNE other").gets(":1");
    assert!(redis.is_free("lock:1"));
    bob.sends(format!("SET lock:2 {BOBS} IFNE other GET PX 9000")).gets(format!("${} {ALICES}", ALICES.len()));
    assert_eq!(redis.value("lock:2"), format!("${} {BOBS}", BOBS.len()));
    proxy.counts(
        "lockwarden_decisions_total{namespace=\"locks\",operation=\"release\",reason=\"not-owner\",decision=\"would-deny\"}",
        1.0,
    );
    proxy.counts("lockwarden_decisions_total{namespace=\"locks\",reason=\"take-over\",decision=\"would-deny\"}", 1.0);
}

#[test]
fn set_extends_where_the_value_is_the_one_it_names() {
    both_modes(&["IFEQ", "IFNE", "DELEX"], |redis, proxy| {
        let (alice, pooled) = (proxy.client(), proxy.client());
        pooled.sends(format!("SET lock:job {ALICES} IFEQ {ALICES} PX 9000")).gets("nil");
        assert!(redis.is_free("lock:job"));
        takes(&alice, "lock:job", ALICES);
        let grant = redis.lease("lock:job");
        pooled.sends(format!("SET lock:job {ALICES} PX 9500 IFEQ {ALICES}")).gets("+OK");
        assert!(redis.pttl("lock:job") > 8_000);
        pooled
            .sends(format!("set lock:job next-{ALICES} ifeq {ALICES} keepttl get"))
            .gets(format!("${} {ALICES}", ALICES.len()));
        assert!(redis.pttl("lock:job") > 8_000);
        // With GET a comparison that fails shows what is there.
        pooled.sends(format!("SET lock:job x IFEQ {ALICES} GET")).gets(format!("${} next-{ALICES}", ALICES.len() + 5));
        pooled.sends(format!("SET lock:job x IFNE next-{ALICES}")).gets("nil");
        assert_ne!(redis.lease("lock:job"), grant);
        alice.sends(format!("DELEX lock:job IFEQ next-{ALICES}")).gets(":1");
    });
}

#[test]
fn set_ifne_of_a_free_lock_is_an_acquire() {
    both_modes(&["IFNE"], |redis, proxy| {
        let alice = proxy.client();
        alice.sends(format!("SET lock:job {ALICES} IFNE other PX 8000")).gets("+OK");
        assert!(redis.pttl("lock:job") > 7_000);
        alice.sends(format!("SET lock:job {ALICES} IFNE other PX 9000")).gets("+OK");
        assert!(redis.pttl("lock:job") > 8_000);
        proxy.counts("lockwarden_lock_acquires_total{namespace=\"locks\",outcome=\"acquired\"}", 1.0);
        alice.sends("DEL lock:job").gets(":1");
    });
}

#[test]
fn cas_answers_as_tair_does_and_never_leaves_a_lock_without_a_ttl() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).default_ttl("7s").start();
    let (alice, pooled) = (proxy.client(), proxy.client());
    pooled.sends(format!("CAS lock:job {ALICES} x")).gets(":-1");
    takes(&alice, "lock:job", ALICES);
    pooled.sends("CAS lock:job other x").gets(":0");
    pooled.sends(format!("CAS lock:job {ALICES} {ALICES}")).gets(":1");
    let left = redis.pttl("lock:job");
    assert!((6_000..=7_000).contains(&left), "the default TTL: {left}");
    for (options, least) in [("EX 9", 8_000), ("px 9900", 9_000), ("KEEPTTL", 8_000)] {
        pooled.sends(format!("CAS lock:job {ALICES} {ALICES} {options}")).gets(":1");
        assert!(redis.pttl("lock:job") > least, "{options}");
    }
    for (options, error) in [
        ("EX", "ERR syntax error"),
        ("EX 9 PX 9", "ERR syntax error"),
        ("EX x", "ERR value is not an integer or out of range"),
        ("PX 0", "ERR invalid expire time in 'cas' command"),
    ] {
        pooled.sends(format!("CAS lock:job {ALICES} {ALICES} {options}")).gets_error(error);
    }
    alice.sends(format!("CAD lock:job {ALICES}")).gets(":1");
}

/// The holder's value is a constant: after a refusal it proves nothing, and the answer is the
/// command's own "not equal".
#[test]
fn a_constant_value_proves_nothing_on_a_connection_that_was_refused() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    takes(&alice, "lock:job", "locked");
    bob.sends("SET lock:job locked NX PX 8000").gets("nil");
    bob.sends("DELEX lock:job IFEQ locked").gets(":0");
    bob.sends("DELIFEQ lock:job locked").gets(":0");
    bob.sends("CAD lock:job locked").gets(":0");
    bob.sends("CAS lock:job locked mine").gets(":0");
    bob.sends("SET lock:job mine IFEQ locked PX 9000").gets("nil");
    // With GET the value would be read as "done".
    bob.sends("SET lock:job mine IFEQ locked PX 9000 GET").gets_error("LOCKDENIED not-owner key=lock:job cmd=SET");
    assert_eq!(redis.value("lock:job"), "$6 locked");
    alice.sends("CAS lock:job locked locked PX 9500").gets(":1");
    alice.sends("DELIFEQ lock:job locked").gets(":1");
}

#[test]
fn refused_comparisons_are_errors_where_violations_are_errors() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).namespace("on_violation", "\"error\"").start();
    let (alice, bob) = (proxy.client(), proxy.client());
    takes(&alice, "lock:job", "locked");
    bob.sends("SET lock:job locked NX PX 8000").gets("nil");
    for (line, command) in [
        ("DELEX lock:job IFEQ locked", "DELEX"),
        ("CAD lock:job locked", "CAD"),
        ("CAS lock:job locked mine", "CAS"),
        ("SET lock:job mine IFEQ locked", "SET"),
    ] {
        let text =
            bob.sends(line).gets_error(&format!("LOCKDENIED not-owner key=lock:job cmd={command} policy=owner-token"));
        assert!(!text.contains("syntax error") && !text.contains("unknown command"));
    }
    // A comparison that fails is no violation.
    bob.sends("CAD lock:job other").gets(":0");
}

#[test]
fn a_late_comparison_never_reaches_the_successor() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    alice.sends("SET lock:job hello NX PX 60").gets("+OK");
    redis.becomes_free("lock:job");
    takes(&bob, "lock:job", "hello");
    alice.sends("CAS lock:job hello hello PX 9000").gets(":0");
    alice.sends("DELEX lock:job IFEQ hello").gets(":0");
    alice.sends(format!("DELEX lock:job IFDEQ {DIGEST_OF_HELLO}")).gets(":0");
    assert_eq!(redis.value("lock:job"), "$5 hello");
    bob.sends("DELEX lock:job IFEQ hello").gets(":1");
}

/// The waiter's compare-and-set of a deadline that has passed: one winner, with a lease of his own.
#[test]
fn a_passed_deadline_is_taken_over_by_comparing_it() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970").as_secs();
    let (passed, next) = (now - 5, now + 60);
    let (holder, two, three) = (proxy.client(), proxy.client(), proxy.client());
    holder.sends(format!("SET lock:job {passed} NX PX 9000")).gets("+OK");
    redis.was_granted_earlier("lock:job", Duration::from_secs(30));
    let first = redis.fence("lock:job");
    two.sends(format!("CAS lock:job {passed} {next}")).gets(":1");
    three.sends(format!("SET lock:job {} IFEQ {passed}", next + 1)).gets("nil");
    assert!(redis.fence("lock:job") > first, "a lease of its own");
    // The client whose deadline passed is late.
    holder.sends("DEL lock:job").gets(":0");
    two.sends("DEL lock:job").gets(":1");
}

#[test]
fn a_key_of_another_type_is_told_in_the_commands_own_words() {
    both_modes(&["DELEX", "DELIFEQ", "CAD", "CAS", "IFEQ"], |redis, proxy| {
        redis.client().sends("RPUSH lock:job a").gets(":1");
        let alice = proxy.client();
        for (line, error) in [
            ("DELEX lock:job IFEQ a", "ERR Key should be of string type if conditions are specified"),
            ("DELEX lock:job IFDEQ 0000000000000000", "ERR Key should be of string type if conditions are specified"),
            ("DELIFEQ lock:job a", "WRONGTYPE"),
            ("CAD lock:job a", "WRONGTYPE"),
            ("CAS lock:job a b", "WRONGTYPE"),
            ("SET lock:job a IFEQ b", "WRONGTYPE"),
            ("SET lock:job a IFNE b", "WRONGTYPE"),
            ("SET lock:job a IFDEQ 0000000000000000", "WRONGTYPE"),
        ] {
            alice.sends(line).gets_error(error);
        }
        assert_eq!(redis.client().sends("LLEN lock:job").integer(), 1);
    });
}

#[test]
fn a_lease_without_a_record_is_redis_own_affair() {
    both_modes(&["DELEX", "CAS", "IFEQ"], |redis, proxy| {
        let alice = proxy.client();
        let direct = redis.client();
        direct.sends("SET lock:job old").gets("+OK");
        alice.sends("CAS lock:job other new").gets(":0");
        alice.sends("CAS lock:job old new EX 9").gets(":1");
        assert!(redis.pttl("lock:job") > 8_000);
        alice.sends("SET lock:job newer IFEQ new GET").gets("$3 new");
        assert_eq!(redis.pttl("lock:job"), -1);
        alice.sends("DELEX lock:job IFEQ newer").gets(":1");
    });
}

#[test]
fn comparisons_keep_their_places_in_a_block() {
    both_modes(&["DELEX", "DELIFEQ", "CAD", "CAS", "IFEQ"], |_, proxy| {
        let (alice, bob) = (proxy.client(), proxy.client());
        takes(&alice, "lock:1", ALICES);
        takes(&alice, "lock:2", ALICES);
        bob.sends("MULTI").gets("+OK");
        for line in [
            "SET plain 1".to_owned(),
            format!("DELEX lock:1 IFEQ {BOBS}"),
            format!("CAS lock:1 {ALICES} {ALICES} PX 9000"),
            format!("SET lock:1 {ALICES} IFEQ {BOBS} GET"),
            format!("CAD lock:1 {ALICES}"),
            format!("CAD lock:1 {ALICES}"),
            format!("DELIFEQ lock:2 {ALICES}"),
            "INCR plain".to_owned(),
        ] {
            bob.sends(line).gets("+QUEUED");
        }
        bob.sends("EXEC").gets(format!("[+OK, :0, :1, ${} {ALICES}, :1, :-1, :1, :2]", ALICES.len()));
    });
}

#[test]
fn a_digest_that_no_one_step_can_judge_is_said_so() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let alice = proxy.client();
    takes(&alice, "lock:job", "hello");
    for line in [format!("DELEX lock:job IFDNE {}", "0".repeat(16)), format!("SET lock:job x IFDNE {}", "0".repeat(16))]
    {
        let text = alice.sends(line).gets_error("LOCKLIMIT other key=lock:job cmd=");
        assert!(!text.contains("syntax error"), "{text}");
    }
    alice.sends("MULTI").gets("+OK");
    alice.sends(format!("DELEX lock:job IFDEQ {DIGEST_OF_HELLO}")).gets_error("LOCKLIMIT other key=lock:job cmd=DELEX");
    alice.sends("EXEC").gets_error("EXECABORT");
    alice.sends(format!("SET lock:job next IFDEQ {DIGEST_OF_HELLO} PX 9000")).gets("+OK");
    assert_eq!(redis.value("lock:job"), "$4 next");

    let watched = Proxy::builder(&redis).mode(Mode::Monitor).start();
    let bob = watched.client();
    bob.sends(format!("DELEX lock:job IFDNE {}", "0".repeat(16))).reply();
    // A command that the server does not know gets an error, and nothing was run.
    let counted = if knows(&redis, "DELEX") { 1.0 } else { 0.0 };
    let all = "lockwarden_unjudged_commands_total{namespace=\"locks\"}";
    let digest = "lockwarden_unjudged_commands_total{namespace=\"locks\",why=\"digest\"}";
    assert_eq!(watched.metric(digest), counted);
    assert_eq!(watched.metric(all), counted);
}

#[test]
fn the_third_protocol_has_its_own_nil() {
    both_modes(&["DELEX", "CAS", "IFEQ"], |_, proxy| {
        let alice = proxy.client();
        alice.sends("HELLO 3").reply();
        alice.sends("SET lock:job x IFEQ y").gets(Reply::Null);
        alice.sends("SET lock:job x IFEQ y GET").gets(Reply::Null);
        alice.sends("CAS lock:job x y").gets(":-1");
        takes(&alice, "lock:job", ALICES);
        alice.sends("SET lock:job x IFEQ y GET").gets(format!("${} {ALICES}", ALICES.len()));
        alice.sends(format!("DELEX lock:job IFEQ {ALICES}")).gets(":1");
    });
}

#[test]
fn off_a_lock_these_commands_are_the_servers_own() {
    both_modes(&[], |redis, proxy| {
        let (alice, direct) = (proxy.client(), redis.client());
        for line in [
            "DELEX plain IFEQ a",
            "DELIFEQ plain a",
            "CAD plain a",
            "CAS plain a b",
            "SET plain a IFEQ b",
            "SET plain a IFNE b",
        ] {
            direct.sends("SET plain c").gets("+OK");
            let expected = direct.sends(line).reply();
            direct.sends("SET plain c").gets("+OK");
            alice.sends(line).gets(expected);
        }
    });
}

#[test]
fn what_is_compared_may_be_as_long_as_a_value_and_no_longer() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let alice = proxy.client();
    let long = "v".repeat(16 * 1024);
    takes(&alice, "lock:job", &long);
    alice.sends(format!("DELEX lock:job IFEQ {long}v")).gets_error("LOCKLIMIT");
    alice.sends(format!("DELEX lock:job IFEQ {long}")).gets(":1");
}

/// A11: `INCR` = 1 means "mine". Without the proxy it has no TTL, and a client that dies holds it for ever.
fn a_counter_that_is_a_lock(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    alice.sends("INCR lock:job").gets(":1");
    bob.sends("INCR lock:job").gets(":2");
    let counted = bob.sends("INCR lock:job").integer();
    assert_eq!(counted, world.either(3, 2));
    assert_eq!(world.redis().value("lock:job"), world.either("$1 3", "$1 1"));
    let left = world.redis().pttl("lock:job");
    assert_eq!(left > 0, !world.is_harmed(), "{left}");
    alice.sends("EXPIRE lock:job 9").gets(":1");
    bob.sends("DEL lock:job").gets(world.either(":1", ":0"));
    world.counted("release", "not-owner", 1);
    if !world.is_harmed() {
        alice.sends("DEL lock:job").gets(":1");
    }
    world.acquires("acquired", 1);
    world.acquires("contended", 2);
}
in_every_world!(a_counter_that_is_a_lock, |proxy| proxy.namespace("counter_locks", "true"));

#[test]
fn a_counter_that_cannot_count_is_told_as_redis_tells_it() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).namespace("counter_locks", "true").start();
    let alice = proxy.client();
    for (held, reply) in [
        ("word", "-ERR value is not an integer or out of range"),
        ("9223372036854775807", "-ERR increment or decrement would overflow"),
        ("7", ":8"),
        // One would mean "mine".
        ("0", ":2"),
        ("-5", ":2"),
    ] {
        redis.client().sends(format!("SET lock:job {held}")).gets("+OK");
        alice.sends("INCR lock:job").gets(reply);
    }
    redis.client().sends("DEL lock:job").gets(":1");
    redis.client().sends("RPUSH lock:job a").gets(":1");
    alice.sends("INCR lock:job").gets_error("WRONGTYPE");
    alice.sends("MULTI").gets("+OK");
    alice.sends("INCR lock:next").gets("+QUEUED");
    alice.sends("INCR lock:next").gets("+QUEUED");
    alice.sends("EXEC").gets("[:1, :2]");
    alice.sends("DECR lock:next").gets_error("LOCKDENIED opaque-write");
}

/// In monitor mode every answer is the server's own, also that it does not know a command.
#[test]
fn monitored_a_server_says_itself_that_it_does_not_know_a_command() {
    let (straight, redis) = (Redis::start(), Redis::start());
    let proxy = Proxy::monitoring(&redis);
    let (direct, client) = (straight.client(), proxy.client());
    for line in [
        "SET lock:a hello NX PX 9000",
        "CAD lock:a other",
        "CAD lock:a",
        "cas lock:a other new",
        "CAS lock:a",
        "DELEX lock:a IFEQ other",
        "DELEX lock:a IFGT other",
        "DELEX lock:a IFDEQ 0123",
        "DELIFEQ lock:a other",
        "SET lock:a new IFEQ other",
        "SET lock:a new IFNE hello",
        "SET lock:a new IFDEQ 9555e8555c62dcfe",
        "SET lock:a new IFEQ",
        "MULTI",
        "GET lock:a",
        "DELIFEQ lock:a hello",
        "SET lock:a new IFEQ other",
        "EXEC",
        "GET lock:a",
        "CAD lock:a hello",
        "DELEX lock:a",
        "GET lock:a",
    ] {
        let wanted = direct.sends(line).reply().to_string();
        assert_eq!(client.sends(line).reply().to_string(), wanted, "{line}");
    }
    // Outside a block an error of the server says that nothing was run. Valkey knows both that are in the block.
    let unknown = proxy.metric("lockwarden_unjudged_commands_total{why=\"unknown-command\"}");
    match knows(&redis, "DELIFEQ") {
        true => assert_eq!(unknown, 0.0),
        false => assert!(unknown >= 2.0),
    }
}
