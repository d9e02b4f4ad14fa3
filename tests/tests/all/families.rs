//! Families of lock scripts beyond plain compare-and-delete. Their replies and effects through the proxy are
//! those on Redis itself: for the holder, for a thief, on a free lock and after the lease ran out; also in
//! every state of the key and with odd arguments, as far as the proxy lets them run.

use lockwarden_tests::random::Random;
use lockwarden_tests::{Client, Mode, Proxy, Redis, Server, World, WorldKind};

const ALICES: &str = "9f86d081-884c-alice";
const BOBS: &str = "2c26b46b-68ff-bob-00";

/// A script that acquires, extends or both, with the arguments `me`, `ms`, `s`, or words as they are.
struct Family {
    text: &'static str,
    arguments: &'static [&'static str],
    /// Its reply on a free lock, to the holder, and to a stranger.
    free: &'static str,
    holder: &'static str,
    stranger: &'static str,
    /// Whether it takes a free lock.
    takes: bool,
}

const fn family(
    text: &'static str,
    arguments: &'static [&'static str],
    takes: bool,
    [free, holder, stranger]: [&'static str; 3],
) -> Family {
    Family { text, arguments, free, holder, stranger, takes }
}

/// The meanings of the scripts of known libraries, in words of our own.
const FAMILIES: &[Family] = &[
    // SETNX and EXPIRE in one script (sherlock and much hand-written code).
    family(
        "local got = redis.call('SETNX', KEYS[1], ARGV[1]) if got == 1 and ARGV[2] ~= -1 then redis.call('EXPIRE', KEYS[1], ARGV[2]) end return got",
        &["me", "s"],
        true,
        [":1", ":0", ":0"],
    ),
    family(
        "if redis.call('setnx', KEYS[1], ARGV[1]) == 1 then return redis.call('pexpire', KEYS[1], ARGV[2]) end return false",
        &["me", "ms"],
        true,
        [":1", "nil", "nil"],
    ),
    family(
        "return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])",
        &["me", "ms"],
        true,
        ["+OK", "nil", "nil"],
    ),
    family(
        "if redis.call('exists', KEYS[1]) == 0 then redis.call('psetex', KEYS[1], ARGV[2], ARGV[1]) return 'taken' end return {err = 'BUSY somebody has it'}",
        &["me", "ms"],
        true,
        ["$5 taken", "-BUSY somebody has it", "-BUSY somebody has it"],
    ),
    family(
        "local there = redis.call('get', KEYS[1]) if there then return there end redis.call('set', KEYS[1], ARGV[1], 'EX', ARGV[2]) return true",
        &["me", "s"],
        true,
        [":1", "own", "stored"],
    ),
    // node redlock: loops over its keys.
    family(
        "for _, key in ipairs(KEYS) do if redis.call('exists', key) == 1 then return 0 end end for _, key in ipairs(KEYS) do redis.call('set', key, ARGV[1], 'PX', ARGV[2]) end return #KEYS",
        &["me", "ms"],
        true,
        [":1", ":0", ":0"],
    ),
    family(
        "for _, key in ipairs(KEYS) do if redis.call('get', key) ~= ARGV[1] then return 0 end end for _, key in ipairs(KEYS) do redis.call('set', key, ARGV[1], 'PX', ARGV[2]) end return #KEYS",
        &["me", "ms"],
        false,
        [":0", ":1", ":0"],
    ),
    // Set if free, extend if mine: Spring, aioredlock, redlock-rb, redsync, RedLock.net, bsm.
    family(
        "local v = redis.call('GET', KEYS[1]) if v == ARGV[1] then redis.call('PEXPIRE', KEYS[1], ARGV[2]) return true elseif not v then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return true end return false",
        &["me", "ms"],
        true,
        [":1", ":1", "nil"],
    ),
    family(
        "local v = redis.call('get', KEYS[1]) if not v or v == ARGV[1] then return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) else return redis.error_reply('NOTYOURS') end",
        &["me", "ms"],
        true,
        ["+OK", "+OK", "-ERR NOTYOURS"],
    ),
    family(
        "if (redis.call('exists', KEYS[1]) == 0 and ARGV[3] == 'yes') or redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) end",
        &["me", "ms", "yes"],
        true,
        ["+OK", "+OK", "nil"],
    ),
    family(
        "if (redis.call('exists', KEYS[1]) == 0 and ARGV[3] == 'yes') or redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) end",
        &["me", "ms", "no"],
        false,
        ["nil", "+OK", "nil"],
    ),
    family(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) elseif redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2], 'NX') then return 1 else return 0 end",
        &["me", "ms"],
        true,
        [":1", ":1", ":0"],
    ),
    family(
        "local now = redis.call('get', KEYS[1]) if now == false then return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) and 1 or 0 elseif now == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return -1 end",
        &["me", "ms"],
        true,
        [":1", ":1", ":-1"],
    ),
    family(
        "if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[3]) then return redis.status_reply('OK') end local n = tonumber(ARGV[2]) if redis.call('getrange', KEYS[1], 0, n - 1) == string.sub(ARGV[1], 1, n) then return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[3]) end",
        &["me", "16", "ms"],
        true,
        ["+OK", "+OK", "nil"],
    ),
    // redis-py: added to what is left, or in its place; nothing where there is no TTL.
    family(
        "local v = redis.call('get', KEYS[1]) if not v or v ~= ARGV[1] then return 0 end local left = redis.call('pttl', KEYS[1]) if not left then left = 0 end if left < 0 then return 0 end local new = ARGV[2] if ARGV[3] == '0' then new = ARGV[2] + left end redis.call('pexpire', KEYS[1], new) return 1",
        &["me", "ms", "0"],
        false,
        [":0", ":1", ":0"],
    ),
    family(
        "local v = redis.call('get', KEYS[1]) if not v or v ~= ARGV[1] then return 0 end local left = redis.call('pttl', KEYS[1]) if not left then left = 0 end if left < 0 then return 0 end local new = ARGV[2] if ARGV[3] == '0' then new = ARGV[2] + left end redis.call('pexpire', KEYS[1], new) return 1",
        &["me", "ms", "1"],
        false,
        [":0", ":1", ":0"],
    ),
    // python-redis-lock: its replies are the other way round.
    family(
        "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 1 elseif redis.call('ttl', KEYS[1]) < 0 then return 2 else redis.call('expire', KEYS[1], ARGV[2]) return 0 end",
        &["me", "s"],
        false,
        [":1", ":0", ":1"],
    ),
    // rslock.
    family(
        "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 else if redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) ~= nil then return 1 else return 0 end end",
        &["me", "ms"],
        false,
        [":0", ":1", ":0"],
    ),
    // Laravel, with a time.
    family(
        "if redis.call('get', KEYS[1]) == ARGV[1] then if tonumber(ARGV[2]) > 0 then return redis.call('expire', KEYS[1], ARGV[2]) else return redis.call('persist', KEYS[1]) end else return 0 end",
        &["me", "s"],
        false,
        [":0", ":1", ":0"],
    ),
    family(
        "local v = redis.pcall('get', KEYS[1]) if v == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2] * 1) end return v and 'other' or 'none'",
        &["me", "ms"],
        false,
        ["$4 none", ":1", "$5 other"],
    ),
];

fn words(family: &Family, key: &str, me: &str, ms: &str) -> Vec<String> {
    let mut words: Vec<String> = ["EVAL", family.text, "1", key].map(String::from).into();
    for argument in family.arguments {
        words.push(match *argument {
            "me" => me.to_owned(),
            "ms" => ms.to_owned(),
            "s" => ms.strip_suffix("000").unwrap_or(ms).to_owned(),
            other => other.to_owned(),
        });
    }
    words
}

/// The reply of a family, in words that name whose value it shows.
fn expected(world: &World, reply: &str, owner: &str) -> String {
    let bare = world.kind == WorldKind::Direct && !Server::under_test().since(7, 0);
    match reply {
        // 7.0 puts the `ERR` before a script's own error of one word, and so does the proxy.
        "-ERR NOTYOURS" if bare => "-NOTYOURS".to_owned(),
        "own" | "stored" => format!("${} {owner}", owner.len()),
        other => other.to_owned(),
    }
}

fn every_family(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    let mut taken = 0;
    for (at, family) in FAMILIES.iter().enumerate() {
        let key = format!("lock:f{at}");
        let text = family.text;
        let runs = |client: &Client, me: &str, ms: &str, reply: &str| {
            client.sends_arguments(&words(family, &key, me, ms)).gets(expected(world, reply, ALICES));
        };
        // Free.
        runs(&alice, ALICES, "100000", family.free);
        assert_eq!(!world.redis().is_free(&key), family.takes, "{text}");
        if family.takes {
            taken += 1;
            let left = world.redis().pttl(&key);
            assert!((50_000..=100_000).contains(&left), "{text}: {left}");
        } else {
            alice.sends(format!("SET {key} {ALICES} NX PX 100000")).gets("+OK");
        }
        // A thief, who brings a value of its own.
        let before = world.redis().lease(&key);
        runs(&bob, BOBS, "900000", family.stranger);
        assert_eq!(world.redis().lease(&key), before, "{text}");
        // The holder, and the holder's token over another connection.
        for holder in [&alice, &world.client()] {
            runs(holder, ALICES, "500000", family.holder);
            assert_eq!(world.redis().value(&key), before.0, "{text}");
        }
        let left = world.redis().pttl(&key);
        let extends = family.holder != "nil" && family.holder != family.stranger;
        if extends && family.holder != "own" {
            assert!(left > 400_000, "{text}: {left}");
        }
        // The lease runs out; the next one is the thief's, and the holder's script says so.
        world.redis().client().sends(format!("PEXPIRE {key} 1")).gets(":1");
        world.redis().becomes_free(&key);
        bob.sends(format!("SET {key} {BOBS} NX PX 100000")).gets("+OK");
        let before = world.redis().lease(&key);
        let stranger = expected(world, family.stranger, BOBS);
        alice.sends_arguments(&words(family, &key, ALICES, "900000")).gets(stranger);
        assert_eq!(world.redis().lease(&key), before, "{text}");
    }
    world.counted_for("unsafe-script", 0);
    world.counted_for("not-owner", 0);
    let others = FAMILIES.len() as u32;
    world.acquires("acquired", taken + (others - taken) + others);
}
in_every_world!(every_family, |proxy| proxy.ceiling("1h").default_ttl("1h"));

/// Where a family reads nothing but the lock, the record follows it: fencing, ceiling, holder.
#[test]
fn a_lock_that_a_script_took_is_governed_like_any_other() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (alice, bob) = (proxy.client(), proxy.client());
    for (at, family) in FAMILIES.iter().enumerate().filter(|(_, family)| family.takes) {
        let key = format!("lock:g{at}");
        alice.sends_arguments(&words(family, &key, ALICES, "86400000")).gets(family.free);
        let first = redis.fence(&key);
        let left = redis.pttl(&key);
        assert!(left <= 10_000, "{}: {left}", family.text);
        bob.sends(format!("DEL {key}")).gets(":0");
        bob.sends(format!("SET {key} x")).gets_error("LOCKDENIED overwrite");
        alice.sends(format!("DEL {key}")).gets(":1");
        alice.sends_arguments(&words(family, &key, ALICES, "5000")).gets(family.free);
        assert!(redis.fence(&key) > first, "{}", family.text);
    }
}

#[test]
fn a_script_without_a_ttl_gets_the_default() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).default_ttl("8s").start();
    let alice = proxy.client();
    let text = "return redis.call('setnx', KEYS[1], ARGV[1])";
    alice.sends_arguments(&["EVAL", text, "1", "lock:job", ALICES]).gets(":1");
    alice.sends_arguments(&["EVAL", text, "1", "lock:job", ALICES]).gets(":0");
    let left = redis.pttl("lock:job");
    assert!((1..=8_000).contains(&left), "{left}");
}

#[test]
fn a_script_that_makes_a_lock_eternal_is_refused_as_persist_is() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let alice = proxy.client();
    let text = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('persist', KEYS[1]) else return 0 end";
    let run = |client: &Client| client.sends_arguments(&["EVAL", text, "1", "lock:job", ALICES]).reply();
    alice.sends(format!("SET lock:job {ALICES} NX PX 8000")).gets("+OK");
    let reply = run(&alice).to_string();
    assert!(reply.starts_with("-LOCKDENIED no-ttl"), "{reply}");
    assert!(redis.pttl("lock:job") > 0);

    let redis = Redis::start();
    let proxy = Proxy::monitoring(&redis);
    let alice = proxy.client();
    alice.sends(format!("SET lock:job {ALICES} NX PX 8000")).gets("+OK");
    assert_eq!(run(&alice).to_string(), ":1");
    assert_eq!(redis.pttl("lock:job"), -1);
    assert_eq!(run(&alice).to_string(), ":0", "there is no TTL any more");
}

/// Scripts that acquire, extend and release keep their places and replies in a block, and the lease
/// is the session's own from the EXEC on.
fn families_in_a_block(world: &World) {
    let (alice, bob) = (world.client(), world.client());
    let take = "local v = redis.call('get', KEYS[1]) if v and v ~= ARGV[1] then return 'no' end return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])";
    let acquire = "return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) or redis.call('ttl', KEYS[1])";
    let queues = |text: &str, key: &str, me: &str| {
        alice.sends_arguments(&["EVAL", text, "1", key, me, "9400"]).gets("+QUEUED");
    };
    bob.sends(format!("SET lock:busy {BOBS} NX PX 9400")).gets("+OK");
    alice.sends("MULTI").gets("+OK");
    queues(take, "lock:job", ALICES);
    queues(take, "lock:job", ALICES);
    queues(take, "lock:busy", ALICES);
    queues(acquire, "lock:busy", ALICES);
    queues("return redis.call('get', KEYS[1])", "lock:busy", ALICES);
    let stored = format!("${} {BOBS}", BOBS.len());
    alice.sends("EXEC").gets(format!("[+OK, +OK, $2 no, :9, {stored}]"));
    bob.sends("DEL lock:job").gets(world.either(":1", ":0"));
    if !world.is_harmed() {
        alice.sends("DEL lock:job").gets(":1");
    }
}
in_every_world!(families_in_a_block);

/// Scripts that write nothing run as they are, whatever they read.
fn readers(world: &World) {
    let alice = world.client();
    alice.sends(format!("SET lock:job {ALICES} NX PX 8000")).gets("+OK");
    let run = |text: &str, arguments: &[&str]| {
        let mut words = vec!["EVAL", text, "2", "lock:job", "plain"];
        words.extend(arguments);
        alice.sends_arguments(&words).reply().to_string()
    };
    let ttl = "if redis.call('get', KEYS[1]) == ARGV[1] then local ms = redis.call('pttl', KEYS[1]) return (ms > 0) and ms or 0 else return -3 end";
    let left = run(ttl, &[ALICES]);
    let ms = left.strip_prefix(':').and_then(|left| left.parse().ok());
    assert!(ms.is_some_and(|ms: i64| (1..=8_000).contains(&ms)), "{left}");
    assert_eq!(run(ttl, &[BOBS]), ":-3");
    assert_eq!(run("return redis.call('exists', KEYS[1])", &[]), ":1");
    assert_eq!(
        run("if redis.call('hlen', KEYS[2]) > 3 then return 'many' end return redis.call('get', KEYS[1]) .. '!'", &[]),
        format!("${} {ALICES}!", ALICES.len() + 1)
    );
    let type_of = "if redis.call('type', KEYS[1]).ok == 'string' then return redis.call('strlen', KEYS[1]) end return redis.call('time')[1]";
    assert_eq!(run(type_of, &[]), format!(":{}", ALICES.len()));
    world.counted_for("unsafe-script", 0);
}
in_every_world!(readers);

/// What a key holds before a script runs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Before {
    Free,
    /// Taken through the proxy, by the caller itself or by a connection with the same value.
    Own,
    OwnElsewhere,
    Others,
    /// A value that begins like the caller's.
    Alike,
    /// The same around the proxy.
    Eternal(&'static str),
    Bare(&'static str),
    Hash,
}

const BEFORE: [Before; 12] = [
    Before::Free,
    Before::Own,
    Before::OwnElsewhere,
    Before::Others,
    Before::Alike,
    Before::Eternal(ALICES),
    Before::Eternal(BOBS),
    Before::Eternal(""),
    Before::Bare(ALICES),
    Before::Bare(BOBS),
    Before::Bare("false"),
    Before::Hash,
];

/// One way to Redis, with what is behind it.
struct Way {
    redis: Client,
    alice: Client,
    bob: Client,
}

impl Way {
    /// The reply of the script, and what the key holds then.
    fn outcome(&self, before: Before, key: &str, words: &[String]) -> (String, String, i64) {
        let alike = format!("{}-alike", &ALICES[..16]);
        let (client, value) = match before {
            Before::Own => (&self.alice, ALICES),
            Before::OwnElsewhere => (&self.bob, ALICES),
            Before::Others => (&self.bob, BOBS),
            Before::Alike => (&self.bob, &alike[..]),
            Before::Eternal(value) | Before::Bare(value) => (&self.redis, value),
            Before::Free | Before::Hash => (&self.redis, ""),
        };
        match before {
            Before::Free => {}
            Before::Hash => client.sends(format!("HSET {key} field 1")).gets(":1"),
            Before::Eternal(_) => client.sends_arguments(&["SET", key, value]).gets("+OK"),
            _ => client.sends_arguments(&["SET", key, value, "NX", "PX", "300000"]).gets("+OK"),
        }
        let reply = self.alice.sends_arguments(words).reply().to_string();
        let held = match self.redis.sends(format!("TYPE {key}")).reply().to_string().as_str() {
            "+string" => self.redis.sends(format!("GET {key}")).reply().to_string(),
            other => other.to_owned(),
        };
        let left = self.redis.sends(format!("PTTL {key}")).integer();
        (reply, held, left)
    }
}

/// Errors of Redis are the same where their first word is: it adds the script's name to the text, and
/// before 7.0 words of its own at the front. Times pass while they are compared.
fn comparable(reply: &str) -> String {
    if reply.starts_with('-') && !Server::under_test().since(7, 0) {
        return "-".to_owned();
    }
    if reply.starts_with('-') && (reply.contains("script: ") || reply.contains("WRONGTYPE")) {
        return reply.split(' ').next().unwrap_or_default().to_owned();
    }
    match reply.strip_prefix(':').map(str::parse::<i64>) {
        Some(Ok(ms)) if ms > 1_000 => format!("some {}00000", (ms + 50_000) / 100_000),
        _ => reply.to_owned(),
    }
}

/// Redis alone, an enforcing proxy and a monitoring one, each with a Redis of its own. The servers
/// and proxies live as long as this does.
struct Ways {
    ways: Vec<Way>,
    _proxies: [Proxy; 2],
    _servers: [Redis; 3],
    number: u32,
    compared: u32,
}

impl Ways {
    fn start() -> Ways {
        let servers = [Redis::start(), Redis::start(), Redis::start()];
        let behind = |redis, mode| {
            let proxy = Proxy::builder(redis).mode(mode);
            proxy.ceiling("1h").default_ttl("1h").start()
        };
        let proxies = [behind(&servers[1], Mode::Enforce), behind(&servers[2], Mode::Monitor)];
        let clients = [
            [servers[0].client(), servers[0].client()],
            [proxies[0].client(), proxies[0].client()],
            [proxies[1].client(), proxies[1].client()],
        ];
        let ways = servers.iter().zip(clients);
        let ways = ways.map(|(redis, [alice, bob])| Way { redis: redis.client(), alice, bob });
        Ways { ways: ways.collect(), _proxies: proxies, _servers: servers, number: 0, compared: 0 }
    }

    /// Runs a call in this state on every way, and compares. `must_run` forbids the proxy to
    /// refuse it as a script that it does not understand.
    fn compare(&mut self, before: Before, call: &[String], must_run: bool) {
        self.number += 1;
        let key = format!("lock:{}", self.number);
        let mut call = call.to_vec();
        call[3].clone_from(&key);
        let direct = self.ways[0].outcome(before, &key, &call);
        for (way, name) in self.ways[1..].iter().zip(["enforced", "monitored"]) {
            let seen = way.outcome(before, &key, &call);
            let what = format!("{name} {before:?} {call:?}");
            if seen.0.starts_with("-LOCKDENIED") {
                assert!(!must_run, "{what}: {}", seen.0);
                continue;
            }
            // A wrapped script that was refused may say so in its own words.
            let others = matches!(before, Before::Others | Before::Alike);
            if name == "enforced" && !must_run && others && seen.0 != direct.0 {
                continue;
            }
            self.compared += 1;
            assert_eq!(comparable(&seen.0), comparable(&direct.0), "{what}");
            assert_eq!(seen.1, direct.1, "{what}");
            // A new lease without a TTL is given one: that is what the ceiling is for.
            // Nor may a script take one away.
            if direct.2 == -1 && name == "enforced" {
                continue;
            }
            let ceiling = if name == "enforced" { 3_600_000 } else { i64::MAX };
            let expected = direct.2.min(ceiling);
            let close = (seen.2 - expected).abs() < 60_000 && (seen.2 < 0) == (expected < 0);
            assert!(close, "{what}: PTTL {} and {}", seen.2, direct.2);
        }
    }
}

#[test]
fn in_every_state_and_with_odd_arguments_a_script_does_what_it_does_on_redis() {
    let mut ways = Ways::start();
    for family in FAMILIES {
        let usual = words(family, "lock:", ALICES, "600000");
        let mut calls = vec![usual.clone()];
        // Arguments missing, doubled, and times in spellings that Lua and Redis read differently.
        calls.push(usual[..usual.len() - 1].to_vec());
        calls.push(usual[..4].to_vec());
        calls.push([&usual[..], &usual[4..]].concat());
        for time in ["0", "-5000", "0600000", "6e5", "600000.5", "", "x", "99999999999999999999"] {
            calls.push(words(family, "lock:", ALICES, time));
        }
        calls.push(words(family, "lock:", "false", "600000"));
        calls.push(words(family, "lock:", "", "600000"));
        for (at, call) in calls.iter().enumerate() {
            for before in BEFORE {
                ways.compare(before, call, at == 0);
            }
        }
    }
    let Ways { number, compared, .. } = ways;
    println!("{compared} of {} runs compared", 2 * number);
    assert!(compared > number, "only {compared} of {number}");
}

/// Every run sees the same scripts.
struct Seeded(Random);

impl Seeded {
    fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound)
    }

    fn of<'a>(&mut self, pool: &[&'a str]) -> &'a str {
        self.0.among::<&str>(pool)
    }

    fn condition(&mut self) -> String {
        let part = |random: &mut Seeded| {
            random.of(&[
                "v == ARGV[1]",
                "v == ARGV[1]",
                "ARGV[1] ~= v",
                "not v",
                "v == false",
                "v == ARGV[3]",
                "tostring(v) == ARGV[1]",
                "redis.call('exists', KEYS[1]) == 0",
                "redis.call('get', KEYS[1]) == ARGV[1]",
                "redis.pcall('get', KEYS[1]) == ARGV[1]",
                "redis.call('pttl', KEYS[1]) < 0",
                "redis.call('ttl', KEYS[1]) == -1",
                "redis.call('pttl', KEYS[1]) > 0",
                "redis.call('setnx', KEYS[1], ARGV[1]) == 1",
                "redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', ARGV[2])",
                "redis.call('getrange', KEYS[1], 0, 15) == string.sub(ARGV[1], 1, 16)",
                "string.sub(ARGV[1], 1, 40) == redis.call('getrange', KEYS[1], 0, 39)",
                "redis.call('type', KEYS[1]).ok == 'string'",
                "ARGV[3] == 'yes'",
                "tonumber(ARGV[2]) > 0",
                "ARGV[4]",
                "#ARGV == 3",
                "redis.call('hexists', KEYS[1], ARGV[1]) == 1",
                "redis.call('strlen', KEYS[1]) > 3",
            ])
        };
        let first = part(self);
        match self.below(6) {
            0 => format!("{first} and {}", part(self)),
            1 => format!("{first} or {}", part(self)),
            2 => format!("not ({first})"),
            _ => first.to_owned(),
        }
    }

    fn action(&mut self) -> &'static str {
        self.of(&[
            "return redis.call('del', KEYS[1])",
            "redis.call('unlink', KEYS[1]) return 'gone'",
            "return redis.call('pexpire', KEYS[1], ARGV[2])",
            "redis.call('expire', KEYS[1], 600) return true",
            "redis.call('pexpire', KEYS[1], redis.call('pttl', KEYS[1]) + ARGV[2]) return 1",
            "return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])",
            "redis.call('setex', KEYS[1], 600, ARGV[1]) return 7",
            "return redis.call('set', KEYS[1], ARGV[1], 'XX', 'PX', ARGV[2])",
            "if redis.call('setnx', KEYS[1], ARGV[1]) == 1 then redis.call('pexpire', KEYS[1], ARGV[2]) return 1 end",
            "return redis.call('persist', KEYS[1])",
            "return redis.call('pttl', KEYS[1])",
            "return v",
            "return ARGV[1]",
            "return 0",
            "return 0",
            "return -1",
            "return false",
            "return {ok = 'FINE'}",
            "return redis.error_reply('NO way')",
            "v = ARGV[1]",
            "local w = v",
        ])
    }

    fn script(&mut self) -> String {
        let mut text = self
            .of(&[
                "local v = redis.call('get', KEYS[1])",
                "local v = redis.call('get', KEYS[1])",
                "local v = redis.pcall('GET', KEYS[1])",
                "local v",
            ])
            .to_owned();
        text.push_str(&format!(" if {} then {}", self.condition(), self.action()));
        if self.below(2) == 0 {
            text.push_str(&format!(" elseif {} then {}", self.condition(), self.action()));
        }
        if self.below(2) == 0 {
            text.push_str(&format!(" else {}", self.action()));
        }
        text.push_str(" end ");
        if self.below(2) == 0 {
            text.push_str(self.action());
        }
        text
    }
}

#[test]
fn scripts_put_together_at_random_do_what_they_do_on_redis() {
    let mut ways = Ways::start();
    let mut random = Seeded(Random::from_seed(6));
    for _ in 0..500 {
        let text = random.script();
        let arguments = ["EVAL", &text, "1", "lock:", ALICES, "600000"];
        let mut call: Vec<String> = arguments.map(String::from).into();
        if random.below(4) > 0 {
            call.push(random.of(&["yes", "no", BOBS]).to_owned());
        }
        for before in BEFORE {
            ways.compare(before, &call, false);
        }
    }
    let Ways { number, compared, .. } = ways;
    println!("{compared} of {} runs compared", 2 * number);
    // The monitoring proxy runs them all.
    assert!(compared > number + number / 5, "only {compared} of {number}");
}
