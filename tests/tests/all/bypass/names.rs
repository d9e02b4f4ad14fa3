//! Words with a NUL, which Redis may still take for a command or an option: it hashes a name with all its bytes but compares it
//! as a C string, so that about one in some hundred such names is the command.

use lockwarden_tests::{Client, Proxy, Redis, Server};

/// Nearly always enough for each command on Redis.
const TRIES: usize = 6_000;
/// So often, for Valkey, which finds one of some thousands.
const ROUNDS: usize = 50;
const AT_ONCE: usize = 500;

/// Sends a command again and again with another name each time; returns whatever is no error.
fn guesses(client: &Client, command: &[u8], rest: &[&[u8]], from: usize) -> Vec<String> {
    let mut answers = Vec::new();
    for first in (from..from + TRIES).step_by(AT_ONCE) {
        let tries = first..first + AT_ONCE;
        for guess in tries.clone() {
            let word = [command, b"\0", guess.to_string().as_bytes()].concat();
            let words: Vec<&[u8]> = [&word[..]].into_iter().chain(rest.iter().copied()).collect();
            client.write(&lockwarden_tests::encode(&words));
        }
        answers.extend(tries.map(|_| client.then().reply().to_string()));
    }
    answers.retain(|answer| !answer.starts_with("-ERR unknown"));
    answers
}

#[test]
fn no_command_is_found_behind_a_nul() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (holder, stranger) = (proxy.client(), proxy.client());
    holder.sends("SET lock:job h NX PX 600000").gets("+OK");
    let cases: [(&[u8], &[&[u8]]); 8] = [
        (b"DEL", &[b"lock:job"]),
        (b"SET", &[b"lock:job", b"mine"]),
        (b"EVAL", &[b"return redis.call('del', KEYS[1])", b"1", b"lock:job"]),
        (b"FLUSHALL", &[]),
        (b"FLUSHDB", &[]),
        (b"CONFIG", &[b"SET", b"maxmemory-policy", b"allkeys-lru"]),
        (b"REPLICAOF", &[b"127.0.0.1", b"1"]),
        (b"RENAME", &[b"lock:job", b"mine"]),
    ];
    for (command, rest) in cases {
        let answers = guesses(&stranger, command, rest, 0);
        assert!(answers.is_empty(), "{}: {answers:?}", command.escape_ascii());
    }
    assert_eq!(redis.value("lock:job"), "$1 h");
    // Redis alone is not so strict: otherwise this test would prove nothing.
    let direct = redis.client();
    let found = (0..ROUNDS).any(|round| {
        let found = guesses(&direct, b"DEL", &[b"lock:job"], round * TRIES);
        found.contains(&":1".to_owned())
    });
    assert!(found);
}

#[test]
fn no_subcommand_is_found_behind_a_nul() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let client = proxy.client();
    let cases = [
        "CONFIG SET maxmemory-policy allkeys-lru",
        "XGROUP CREATE lock:job group 0 MKSTREAM",
        "ACL SETUSER mine on",
        "CLIENT REPLY OFF",
    ];
    for line in cases {
        for guess in 0..2_000 {
            let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            words[1] += &format!("\0{guess}");
            client.write(&lockwarden_tests::encode(&words));
            let answer = client.then().reply().to_string();
            assert!(answer.to_ascii_lowercase().contains("unknown subcommand"), "{line}: {answer}");
        }
    }
    assert!(redis.is_free("lock:job"));
    assert_eq!(redis.client().sends("CONFIG GET maxmemory-policy").reply().elements()[1].to_string(), "$10 noeviction");
    client.sends("PING").gets("+PONG");
}

/// The proxy replies in the server's words, and a block fails as on Redis.
#[test]
fn what_is_no_name_is_answered_as_redis_does() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let worlds = [proxy.client(), redis.client()];
    let cases: [&[&[u8]]; 6] = [
        &[b"NOSUCH\0x"],
        &[b"NOSUCH\0x", b"a\0b", b"", b"two words"],
        &[b"nosuch\xff", b"lock:job", b"\xf8 '"],
        &[b"NO\r\nSUCH", b"a\r\nb"],
        &[&[b'x'; 200], &[b'y'; 100], &[b'z'; 100]],
        &[b"config", b"nosuch\0x", b"a"],
    ];
    for words in cases {
        let [ours, theirs] = worlds.each_ref().map(|client| {
            client.write(&lockwarden_tests::encode(words));
            client.then().reply().to_string()
        });
        assert_eq!(ours, theirs);
    }
    let [ours, theirs] = worlds.each_ref().map(|client| {
        client.sends("MULTI").gets("+OK");
        client.write(&lockwarden_tests::encode(&[b"NOSUCH\0x".as_slice(), b"lock:job"]));
        [client.then().reply(), client.sends("SET plain 1").reply(), client.sends("EXEC").reply()]
            .map(|reply| reply.to_string())
    });
    assert_eq!(ours, theirs);
}

/// Options are compared up to the NUL: what the proxy does not read so is not forwarded.
#[test]
fn no_option_is_found_behind_a_nul() {
    if Server::under_test().lacks("GETEX", 6, 2) {
        return;
    }
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (holder, stranger) = (proxy.client(), proxy.client());
    holder.sends("SET lock:job h NX PX 600000").gets("+OK");
    for words in [
        [b"GETEX".as_slice(), b"lock:job", b"PX\0x", b"50"].as_slice(),
        &[b"GETEX", b"lock:job", b"PERSIST\0"],
        &[b"EXPIRE", b"lock:job", b"1", b"XX\0"],
        &[b"SET", b"lock:job", b"x", b"XX\0", b"PX", b"50"],
    ] {
        stranger.write(&lockwarden_tests::encode(words));
        let answer = stranger.then().reply().to_string();
        assert!(answer.starts_with('-'), "{answer}");
    }
    let left = redis.client().sends("PTTL lock:job").integer();
    assert!((1_000..=600_000).contains(&left), "{left}");
    // Redis reads it: otherwise this test would prove nothing.
    let direct = redis.client();
    direct.write(&lockwarden_tests::encode(&[b"GETEX".as_slice(), b"lock:job", b"PX\0x", b"50"]));
    direct.then().reply();
    assert!(direct.sends("PTTL lock:job").integer() <= 50);
}

/// Of an option that is given twice Redis reads the last number only, so the first may be anything.
#[test]
fn the_last_of_two_numbers_is_the_one_that_is_judged() {
    if Server::under_test().lacks("GETEX", 6, 2) {
        return;
    }
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (holder, stranger) = (proxy.client(), proxy.client());
    holder.sends("SET lock:job h NX PX 8000").gets("+OK");
    for twice in ["PX nonsense PX 50", "EX 0 EX 1", "PXAT x PXAT 1", "PX 50 PX 99999999999999999999"] {
        stranger.sends(format!("GETEX lock:job {twice}")).reply();
        stranger.sends("MULTI").gets("+OK");
        stranger.sends(format!("GETEX lock:job {twice}")).reply();
        stranger.sends("EXEC").reply();
        let left = redis.client().sends("PTTL lock:job").integer();
        assert!((4_000..=8_000).contains(&left), "{twice}: {left}");
    }
    holder.sends("GETEX lock:job PX nonsense PX 9900").gets("$1 h");
    assert!(redis.client().sends("PTTL lock:job").integer() > 8_000);
    for wrong in ["PX 9000 PX nonsense", "PX 9000 PX 0"] {
        // Redis looks for the key first, Valkey for the number.
        for key in ["lock:job", "lock:free"] {
            let line = format!("GETEX {key} {wrong}");
            let theirs = redis.client().sends(&line).reply().to_string();
            assert_eq!(holder.sends(&line).reply().to_string(), theirs, "{line}");
        }
    }
}

/// The same in scripts that compute names, and in those that declare them.
#[test]
fn no_option_is_found_behind_a_nul_in_a_script() {
    let redis = Redis::start();
    let proxy = Proxy::enforcing(&redis);
    let (holder, stranger) = (proxy.client(), proxy.client());
    stranger.sends("RPUSH list 2 1").gets(":2");
    for script in [
        "return redis.call('sort', 'list', 'store\\0x', 'lo' .. ARGV[1])",
        "return redis.call('geosearchstore\\0' .. 7, 'lo' .. ARGV[1], 'list')",
        "for i = 0, 3000 do redis.pcall('del\\0' .. i, 'lo' .. ARGV[1]) end",
        "for i = 0, 3000 do redis.pcall('set\\0' .. i, KEYS[1], '1') end",
        "for i = 0, 3000 do redis.pcall('del\\0' .. i, 'lock:job') end",
        "redis.call('set', 'plain', 1) return redis.call('copy', 'plain', 'lo' .. ARGV[1], 'db\\0', 0, 'replace')",
    ] {
        holder.sends("SET lock:job h NX PX 600000").reply();
        for key in ["lock:job", "list"] {
            stranger.eval(script, &[key], &["ck:job"]);
            assert_eq!(redis.value("lock:job"), "$1 h", "{script} {key}");
        }
    }
}
