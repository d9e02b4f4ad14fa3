//! A9: a grant whose reply the client did not get. The client timed out, closed, and tries again with the
//! same value, while its first try had succeeded: without the proxy it blocks itself until the TTL is over.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lockwarden_tests::{Client, Mode, Proxy, Redis, World, encode, wait_for};

const ALICES: &str = "5c9e2f70-alice-d1b3";
const ACQUIRE: &str = "SET lock:job 5c9e2f70-alice-d1b3 NX PX 9000";
const RELEASE: &str = "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
const MARKED: &str = "lockwarden_undelivered_grants_total{namespace=\"locks\",outcome=\"marked\"}";

/// Sends a command and reads nothing.
fn asks(client: &Client, line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    client.write(&encode(&words));
}

/// How a client that gave up goes away.
#[derive(Clone, Copy, Debug)]
enum Leaving {
    /// It closes before the reply comes.
    Closes,
    /// It closes by a reset before the reply comes.
    Resets,
    /// It closes with the reply unread.
    ClosesUnread,
    /// It closes by a reset with the reply unread.
    ResetsUnread,
}

impl Leaving {
    const ALL: [Leaving; 4] = [Leaving::Closes, Leaving::Resets, Leaving::ClosesUnread, Leaving::ResetsUnread];

    /// Those after which a lock is granted that the client has had before. A step for many clients leaves
    /// such a grant to a separate step, which is not sent for a client that is gone.
    fn after_a_grant(proxy: Option<&Proxy>) -> &'static [Leaving] {
        match proxy.is_some_and(Proxy::is_multiplexed) {
            true => &Leaving::ALL[2..],
            false => &Leaving::ALL,
        }
    }

    /// The client asks, Redis grants, and the client does not get the reply.
    fn play(&self, redis: &Redis, client: Client, line: &str) {
        match self {
            Leaving::Closes | Leaving::Resets => {
                // The reply to an earlier request shows that the proxy has the connection ready.
                client.sends("PING").gets("+PONG");
                redis.freeze();
                asks(&client, line);
                // A command that is written to the server itself has arrived.
                if !redis.is_asked_directly_by(&client) {
                    redis.acquires_wait(1);
                }
                match self {
                    Leaving::Resets => client.resets(),
                    _ => drop(client),
                }
                redis.thaw();
            }
            Leaving::ClosesUnread | Leaving::ResetsUnread => {
                asks(&client, line);
                client.leaves_a_reply_unread();
                match self {
                    Leaving::ResetsUnread => client.resets(),
                    _ => drop(client),
                }
            }
        }
    }
}

#[track_caller]
fn becomes_undelivered(redis: &Redis, key: &str) {
    wait_for("the lease to be marked as undelivered", || {
        redis.record(key).is_some_and(|record| record.is_undelivered())
    });
}

in_every_world!(a_client_that_did_not_hear_of_its_grant_is_not_blocked_by_itself);

fn a_client_that_did_not_hear_of_its_grant_is_not_blocked_by_itself(world: &World) {
    let ways = Leaving::after_a_grant(world.proxy());
    for (round, leaving) in ways.iter().enumerate() {
        leaving.play(world.redis(), world.client_from("127.18.0.1"), ACQUIRE);
        wait_for("the first try to succeed", || !world.redis().is_free("lock:job"));
        world.counts(MARKED, round as f64 + 1.0);
        let again = world.client_from("127.18.0.1");
        again.sends(ACQUIRE).gets(world.either("nil", "+OK"));
        again.sends("GET lock:job").gets(format!("${} {ALICES}", ALICES.len()));
        again.sends(format!("EVAL \"{RELEASE}\" 1 lock:job {ALICES}")).gets(":1");
    }
    let all = u32::try_from(ways.len()).expect("few ways");
    let (repeated, contended) = world.either((0, all), (all, 0));
    world.acquires("acquired", all);
    world.acquires("repeated", repeated);
    world.acquires("contended", contended);
}

#[test]
fn a_repetition_has_the_same_lease_and_becomes_its_holder() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    Leaving::ClosesUnread.play(&redis, proxy.client_from("127.18.1.1"), ACQUIRE);
    becomes_undelivered(&redis, "lock:job");
    let fence = redis.fence("lock:job");

    let again = proxy.client_from("127.18.1.1");
    again.sends(format!("SET lock:job {ALICES} NX PX 3000")).gets("+OK");
    assert_eq!(redis.fence("lock:job"), fence);
    assert!((1..=3000).contains(&redis.pttl("lock:job")));
    assert!(!redis.record("lock:job").expect("a record").is_undelivered());
    again.sends(ACQUIRE).gets("nil");
    // Its raw DEL is the holder's.
    again.sends("DEL lock:job").gets(":1");
    again.sends(ACQUIRE).gets("+OK");
    assert!(redis.fence("lock:job") > fence);
}

#[test]
fn the_ttl_of_a_repetition_is_under_the_rules_of_any_acquire() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).ceiling("2s").start();
    for (line, longest) in
        [(format!("SET lock:job {ALICES} NX PX 9000"), 2_000), (format!("SETNX lock:job {ALICES}"), 600)]
    {
        let first = format!("SET lock:job {ALICES} NX PX 1500");
        Leaving::ResetsUnread.play(&redis, proxy.client_from("127.18.2.1"), &first);
        becomes_undelivered(&redis, "lock:job");
        let again = proxy.client_from("127.18.2.1");
        assert!(matches!(again.sends(line).reply().to_string().as_str(), "+OK" | ":1"));
        assert!((1..=longest).contains(&redis.pttl("lock:job")));
        // A TTL that the proxy chose is kept alive, now that a client knows that it holds the lock.
        wait_for("a renewal", || proxy.metric("lockwarden_keep_alive_renewals_total{outcome=\"renewed\"}") >= 1.0);
        again.sends("DEL lock:job").gets(":1");
    }
}

#[test]
fn nobody_else_is_taken_for_the_client_that_did_not_hear() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    Leaving::ClosesUnread.play(&redis, proxy.client_from("127.18.3.1"), ACQUIRE);
    becomes_undelivered(&redis, "lock:job");
    let before = redis.lease("lock:job");
    let (other, same) = (proxy.client_from("127.18.3.2"), proxy.client_from("127.18.3.1"));
    other.sends(ACQUIRE).gets("nil");
    same.sends("SET lock:job 5c9e2f70-bob-99-d1b3 NX PX 9000").gets("nil");
    same.sends("CLIENT SETNAME worker-7").gets("+OK");
    same.sends(ACQUIRE).gets("nil");
    assert_eq!(redis.lease("lock:job"), before);

    // `1` may be any client's value.
    Leaving::ClosesUnread.play(&redis, proxy.client_from("127.18.3.1"), "SET lock:one 1 NX PX 9000");
    becomes_undelivered(&redis, "lock:one");
    proxy.client_from("127.18.3.1").sends("SET lock:one 1 NX PX 9000").gets("nil");
}

#[test]
fn a_grant_that_was_read_is_not_granted_again() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let alice = proxy.client_from("127.18.4.1");
    alice.sends(ACQUIRE).gets("+OK");
    alice.sends(ACQUIRE).gets("nil");
    let pooled = proxy.client_from("127.18.4.1");
    pooled.sends(ACQUIRE).gets("nil");
    // She went on after it, so she had read it, however she goes.
    alice.sends("PING").gets("+PONG");
    alice.resets();
    wait_for("her session to end", || proxy.metric("lockwarden_client_connections") == 1.0);
    pooled.sends(ACQUIRE).gets("nil");
    assert!(!redis.record("lock:job").expect("a record").is_undelivered());
    assert_eq!(proxy.metric(MARKED), 0.0);
}

/// `on_repeat = "grant"`: with a name and without one, when the proxy has not looked at these connections yet
/// and when their process is known.
#[test]
fn a_holder_may_be_granted_its_own_lock_as_often_as_it_asks() {
    for name in [None, Some("worker-7")] {
        // A value that two names use is a shared one.
        let redis = Redis::start();
        let proxy = Proxy::builder(&redis).namespace("on_repeat", "\"grant\"").start();
        let connect = |source: &str| {
            let client = proxy.client_from(source);
            if let Some(name) = name {
                client.sends(format!("CLIENT SETNAME {name}")).gets("+OK");
            }
            client
        };
        let [alice, pooled, other] = ["127.18.14.1", "127.18.14.1", "127.18.14.2"].map(connect);
        alice.sends(ACQUIRE).gets("+OK");
        let fence = redis.fence("lock:job");
        pooled.sends(format!("SET lock:job {ALICES} NX PX 7000")).gets("+OK");
        assert!((1..=7000).contains(&redis.pttl("lock:job")), "{name:?}");
        for (client, line, reply) in [
            (&pooled, format!("SETNX lock:job {ALICES}"), ":1"),
            (&alice, ACQUIRE.to_owned(), "+OK"),
            (&alice, format!("SET lock:job {ALICES} NX GET"), "nil"),
            (
                &pooled,
                format!("EVAL \"return redis.call('set',KEYS[1],ARGV[1],'NX','PX',9000)\" 1 lock:job {ALICES}"),
                "+OK",
            ),
        ] {
            client.sends(line).gets(reply);
        }
        pooled.pipelines(&["MULTI", ACQUIRE, ACQUIRE, "EXEC"], &["+OK", "+QUEUED", "+QUEUED", "[+OK, +OK]"]);
        assert_eq!(redis.fence("lock:job"), fence, "{name:?}");

        let before = redis.lease("lock:job");
        other.sends(ACQUIRE).gets("nil");
        pooled.sends("SET lock:job 5c9e2f70-bob-99-d1b3 NX PX 9000").gets("nil");
        let namesake = connect("127.18.14.1");
        namesake.sends("CLIENT SETNAME somebody-else").gets("+OK");
        namesake.sends(ACQUIRE).gets("nil");
        namesake.pipelines(&["MULTI", ACQUIRE, "EXEC"], &["+OK", "+QUEUED", "[nil]"]);
        assert_eq!(redis.lease("lock:job"), before, "{name:?}");
        // A client that was refused has not made the value a shared one.
        alice.sends(ACQUIRE).gets("+OK");
        let repeated = "lockwarden_lock_acquires_total{namespace=\"locks\",outcome=\"repeated\"}";
        proxy.counts(repeated, 8.0);
        alice.sends("DEL lock:job").gets(":1");
    }
}

#[test]
fn a_holder_that_came_by_another_proxy_is_looked_up_by_that_one_for_a_repetition() {
    let redis = Redis::start();
    let [here, there] = [0, 1].map(|_| Proxy::builder(&redis).namespace("on_repeat", "\"grant\"").start());
    let first = here.client_from("127.18.15.1");
    first.sends(ACQUIRE).gets("+OK");
    let fence = redis.fence("lock:job");
    let again = there.client_from("127.18.15.1");
    wait_for("the repetition to be granted", || again.sends(ACQUIRE).reply().to_string() == "+OK");
    assert_eq!(redis.fence("lock:job"), fence);
    // `1` may be any client's, so not even its holder may repeat it.
    first.sends("SET lock:one 1 NX PX 9000").gets("+OK");
    for client in [&first, &again] {
        client.sends("SET lock:one 1 NX PX 9000").gets("nil");
    }
    first.sends("PING").gets("+PONG");
    drop(first);
    again.sends("DEL lock:job").gets(":1");
}

#[test]
fn an_acquire_that_meets_its_own_value_is_tried_once_more_and_no_other_is() {
    let redis = Redis::start();
    // A step for many clients would be one more.
    let proxy = Proxy::builder(&redis).dedicated().start();
    let (console, watched) = (redis.client(), redis.client());
    let holder = proxy.client_from("127.18.13.1");
    holder.sends(ACQUIRE).gets("+OK");
    wait_for("the holder's process", || redis.record("lock:job").is_some_and(|record| record.process_is_known()));
    let (pooled, other) = (proxy.client_from("127.18.13.1"), proxy.client_from("127.18.13.2"));
    watched.sends("MONITOR").gets("+OK");
    for (client, line, tries) in [
        // Her connection may be about to end, as far as the proxy can tell.
        (&pooled, ACQUIRE, 2),
        (&pooled, "SET lock:job 5c9e2f70-anna-d1b3 NX PX 9000", 1),
        (&other, ACQUIRE, 1),
        // On this one it was granted, and this one has not ended.
        (&holder, ACQUIRE, 1),
    ] {
        client.sends(line).gets("nil");
        console.sends("ECHO end").gets("$3 end");
        let seen = String::from_utf8(watched.reads_until(b"\"ECHO\" \"end\"\r\n")).expect("a text");
        // The proxy's own steps have no owner token among their words.
        let acquires = seen.lines().filter(|line| line.contains("\"EVALSHA\"") && line.contains("5c9e2f70-"));
        assert_eq!(acquires.count(), tries, "{line}: {seen}");
    }
}

#[test]
fn a_client_that_half_closes_and_reads_its_reply_has_heard() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    for key in ["lock:a", "lock:b"] {
        let client = proxy.client_from("127.18.5.1");
        asks(&client, &format!("SET {key} {ALICES} NX PX 9000"));
        if key == "lock:b" {
            // The command behind it keeps the connection busy when the end comes.
            asks(&client, "DEBUG SLEEP 0.05");
        }
        client.half_closes();
        let all = client.reads_to_end();
        assert!(all.starts_with(b"+OK\r\n"), "{}", all.escape_ascii());
    }
    wait_for("both sessions to end", || proxy.metric("lockwarden_client_connections") == 0.0);
    for key in ["lock:a", "lock:b"] {
        assert!(!redis.record(key).expect("a record").is_undelivered());
    }
    assert_eq!(proxy.metric("lockwarden_undelivered_grants_total"), 0.0);
}

#[test]
fn a_client_that_asks_for_no_reply_misses_none() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let silent = proxy.client_from("127.18.6.1");
    asks(&silent, "CLIENT REPLY OFF");
    asks(&silent, ACQUIRE);
    wait_for("the grant", || !redis.is_free("lock:job"));
    silent.resets();
    wait_for("its session to end", || proxy.metric("lockwarden_client_connections") == 0.0);
    assert!(!redis.record("lock:job").expect("a record").is_undelivered());
}

#[test]
fn every_spelling_of_an_acquire_may_be_repeated_alone_or_in_a_block() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    for (spelling, granted) in [
        ("SETNX lock:job 5c9e2f70-alice-d1b3", ":1"),
        ("SET lock:job 5c9e2f70-alice-d1b3 NX", "+OK"),
        ("SET lock:job 5c9e2f70-alice-d1b3 PX 9000 NX GET", "nil"),
    ] {
        Leaving::ClosesUnread.play(&redis, proxy.client_from("127.18.7.1"), ACQUIRE);
        becomes_undelivered(&redis, "lock:job");
        let again = proxy.client_from("127.18.7.1");
        again.sends(spelling).gets(granted);
        again.sends("DEL lock:job").gets(":1");
    }

    // The first try in a block, and the second.
    let block = proxy.client_from("127.18.7.1");
    for (line, reply) in [("MULTI", "+OK"), (ACQUIRE, "+QUEUED")] {
        block.sends(line).gets(reply);
    }
    Leaving::ResetsUnread.play(&redis, block, "EXEC");
    becomes_undelivered(&redis, "lock:job");
    let again = proxy.client_from("127.18.7.1");
    for (line, reply) in [("MULTI", "+OK"), (ACQUIRE, "+QUEUED"), ("EXEC", "[+OK]")] {
        again.sends(line).gets(reply);
    }
    again.sends("DEL lock:job").gets(":1");

    // All or none: several locks at once are not taken apart.
    Leaving::ClosesUnread.play(&redis, proxy.client_from("127.18.7.1"), ACQUIRE);
    becomes_undelivered(&redis, "lock:job");
    proxy.client_from("127.18.7.1").sends(format!("MSETNX lock:other {ALICES} lock:job {ALICES}")).gets(":0");
    assert!(redis.is_free("lock:other"));
}

#[test]
fn keep_alive_lets_an_undelivered_lease_go() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let line = format!("SETNX lock:job {ALICES}");
    Leaving::ResetsUnread.play(&redis, proxy.client_from("127.18.8.1"), &line);
    becomes_undelivered(&redis, "lock:job");
    redis.becomes_free("lock:job");
    assert_eq!(proxy.metric("lockwarden_keep_alive_renewals_total{outcome=\"renewed\"}"), 0.0);
}

#[test]
fn the_repetition_may_come_through_another_proxy_and_before_the_first_try_is_answered() {
    let redis = Redis::start();
    let (here, there) = (Proxy::enforcing(&redis), Proxy::enforcing(&redis));
    let (first, again) = (here.client_from("127.18.9.1"), there.client_from("127.18.9.1"));
    for client in [&first, &again] {
        client.sends("PING").gets("+PONG");
    }
    redis.freeze();
    asks(&first, ACQUIRE);
    redis.acquires_wait(1);
    drop(first);
    asks(&again, ACQUIRE);
    redis.acquires_wait(2);
    redis.thaw();
    // Her second try may still be too early for the end of the first connection; a third is not.
    let mut heard = again.then().reply().to_string();
    wait_for("the repetition to be granted", || {
        if heard == "nil" {
            heard = again.sends(ACQUIRE).reply().to_string();
        }
        heard == "+OK"
    });
    again.sends("DEL lock:job").gets(":1");
}

#[test]
fn a_repetition_that_is_not_heard_either_may_be_repeated() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    for (round, leaving) in Leaving::after_a_grant(Some(&proxy)).iter().enumerate() {
        leaving.play(&redis, proxy.client_from("127.18.10.1"), ACQUIRE);
        proxy.counts(MARKED, round as f64 + 1.0);
    }
    let fence = redis.fence("lock:job");
    let again = proxy.client_from("127.18.10.1");
    again.sends(ACQUIRE).gets("+OK");
    assert_eq!(redis.fence("lock:job"), fence);
    again.sends("DEL lock:job").gets(":1");
}

#[test]
fn in_monitor_mode_it_is_counted_and_nothing_is_changed() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).mode(Mode::Monitor).start();
    let line = format!("SETNX lock:job {ALICES}");
    Leaving::ClosesUnread.play(&redis, proxy.client_from("127.18.11.1"), &line);
    proxy.counts(MARKED, 1.0);
    proxy.client_from("127.18.11.1").sends(&line).gets(":0");
    assert_eq!(redis.pttl("lock:job"), -1);
    assert!(redis.record("lock:job").expect("a record").is_undelivered());
}

#[test]
fn two_hundred_timeouts_block_nobody_and_make_no_two_holders() {
    const TIMEOUTS: u32 = 200;
    let redis = Redis::start();
    let proxies = [0, 1].map(|_| Proxy::builder(&redis).ceiling("10m").start());
    let (timeouts, holders) = (AtomicU32::new(0), AtomicI64::new(0));
    let started = Instant::now();
    thread::scope(|scope| {
        for worker in 0..4_u64 {
            let (proxies, redis, timeouts, holders) = (&proxies, &redis, &timeouts, &holders);
            scope.spawn(move || {
                let value = format!("5c9e2f70-worker-{worker}-d1b3");
                let source = format!("127.18.12.{}", worker + 1);
                // Few workers may be blocked by themselves, or the test takes too long. One may: a
                // machine that is busy elsewhere lets it give up more than a second after its reply.
                let acquire = format!("SET lock:job {value} NX PX 20000");
                let mut dice = worker.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
                let mut proxy = 0;
                let mut connect = || {
                    proxy += 1;
                    proxies[proxy % 2].client_from(&source)
                };
                while timeouts.load(Ordering::SeqCst) < TIMEOUTS {
                    assert!(started.elapsed() < Duration::from_secs(90), "somebody is blocked");
                    let client = connect();
                    dice ^= dice << 13;
                    dice ^= dice >> 7;
                    dice ^= dice << 17;
                    asks(&client, &acquire);
                    match dice % 6 {
                        0 => drop(client),
                        1 => client.resets(),
                        2 => {
                            client.leaves_a_reply_unread();
                            drop(client);
                        }
                        3 => {
                            client.leaves_a_reply_unread();
                            client.resets();
                        }
                        _ => {
                            if client.then().reply().to_string() == "+OK" {
                                assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                                let held = redis.value("lock:job");
                                assert_eq!(held, format!("${} {value}", value.len()));
                                holders.fetch_sub(1, Ordering::SeqCst);
                                client.sends(format!("EVAL \"{RELEASE}\" 1 lock:job {value}")).gets(":1");
                            }
                            continue;
                        }
                    }
                    timeouts.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
}

/// How long a client rests after it has read everything.
const REST: Duration = Duration::from_millis(1_100);

fn rests() {
    let since = Instant::now();
    wait_for("the client to have rested", || since.elapsed() > REST);
}

/// A load balancer, a firewall or a NAT resets connections on which nothing happens. The holder had
/// read that it was granted the lock, and goes on working; its value is a name that others have, too.
#[test]
fn a_reset_of_a_resting_connection_makes_no_second_holder() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let granted = [
        (vec![ACQUIRE], "+OK"),
        (vec!["SETNX lock:job 5c9e2f70-alice-d1b3"], ":1"),
        (vec!["MULTI", ACQUIRE, "EXEC"], "[+OK]"),
    ];
    for (lines, reply) in granted {
        let holder = proxy.client_from("127.18.16.1");
        for line in &lines[..lines.len() - 1] {
            holder.sends(line).reply();
        }
        holder.sends(lines[lines.len() - 1]).gets(reply);
        rests();
        holder.resets();
        wait_for("the session to end", || proxy.metric("lockwarden_client_connections") == 0.0);
        let second = proxy.client_from("127.18.16.1");
        second.sends(ACQUIRE).gets("nil");
        let record = redis.record("lock:job").expect("a record");
        assert!(!record.is_undelivered(), "{lines:?}");
        redis.client().sends("FLUSHALL").gets("+OK");
    }
    assert_eq!(proxy.metric(MARKED), 0.0);
}

/// A client that reads nothing from its connection: the reply waits in the proxy, or in the kernel, however
/// long. It cannot have been read.
#[test]
fn a_reply_that_never_left_is_unread_however_late_the_end_comes() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    // On a shared connection nothing more is asked for where a megabyte waits for the client.
    let sizes = match proxy.is_multiplexed() {
        true => &[400_000, 1_500_000][..],
        false => &[400_000, 1_500_000, 16_000_000],
    };
    for (round, &bytes) in sizes.iter().enumerate() {
        let words = ["SET", "before", &"x".repeat(bytes)];
        redis.client().sends_arguments(&words).gets("+OK");
        let client = proxy.client_from("127.18.17.1");
        asks(&client, "GET before");
        asks(&client, ACQUIRE);
        wait_for("the grant", || !redis.is_free("lock:job"));
        rests();
        client.resets();
        proxy.counts(MARKED, round as f64 + 1.0);
        let again = proxy.client_from("127.18.17.1");
        again.sends(ACQUIRE).gets("+OK");
        again.sends("DEL lock:job").gets(":1");
    }
}

/// A balancer that names its clients (PROXY protocol). Bytes that it has read from its connection count as
/// read by the client.
#[test]
fn behind_a_balancer_a_repetition_is_granted_where_the_balancer_resets_at_once() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).top("proxy_protocol_from", "[\"127.0.0.0/8\"]").without_waiting().start();
    wait_for("the proxy to be ready", || proxy.ready() == Some(200));
    let connect = || {
        let client = proxy.client();
        client.write(b"PROXY TCP4 10.1.2.3 10.9.9.9 40000 6379\r\n");
        client
    };
    // Its client gave up, and it says so by a reset, with or without the reply in its own hands.
    for (round, taken) in [false, true].into_iter().enumerate() {
        let balancer = connect();
        if taken {
            balancer.sends(ACQUIRE).gets("+OK");
        } else {
            asks(&balancer, ACQUIRE);
            balancer.leaves_a_reply_unread();
        }
        balancer.resets();
        proxy.counts(MARKED, round as f64 + 1.0);
        connect().sends(ACQUIRE).gets("+OK");
        redis.client().sends("FLUSHALL").gets("+OK");
    }
    // It drops a connection that rests.
    let balancer = connect();
    balancer.sends(ACQUIRE).gets("+OK");
    rests();
    balancer.resets();
    wait_for("the session to end", || proxy.metric("lockwarden_client_connections") == 0.0);
    connect().sends(ACQUIRE).gets("nil");
    assert_eq!(proxy.metric(MARKED), 2.0);
}
