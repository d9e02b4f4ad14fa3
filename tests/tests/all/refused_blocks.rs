//! Commands that Redis refuses to queue, or whose block it refuses at EXEC: out of memory, without enough replicas. A block
//! with a lock command behaves as without the proxy: all of it is carried out, or nothing.

use lockwarden_tests::{Client, Mode, Proxy, Redis, Server};

const TOKEN: &str = "6e3d0bcd-9c1e-4a07";

/// The commands that may stand in a block beside a job that is taken from its queue.
const COMMANDS: &[&str] = &[
    "SET lock:a 6e3d0bcd-9c1e-4a07 NX PX 9000",
    "SETNX lock:a 1",
    "SET held:a 6e3d0bcd-9c1e-4a07 XX PX 9000",
    "SET held:a 6e3d0bcd-9c1e-4a07 PX 9000",
    "SETEX lock:a 9 6e3d0bcd-9c1e-4a07",
    "GETSET held:a 6e3d0bcd-9c1e-4a08",
    "MSETNX lock:a 1 lock:b 1",
    "PEXPIRE held:a 9000",
    "PERSIST held:a",
    "DEL held:a",
    "UNLINK held:a",
    "GETDEL held:a",
    "EVAL \"if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end\" 1 held:a 6e3d0bcd-9c1e-4a07",
    "EVAL \"return redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', 9000)\" 1 lock:a 6e3d0bcd-9c1e-4a07",
    "GET held:a",
];

/// Scripts whose text says what they do, with a key.
fn with_flags() -> impl Iterator<Item = &'static str> {
    [
        "\"#!lua\\nreturn redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', 9000)\" 1 lock:a 6e3d0bcd-9c1e-4a07",
        "\"#!lua flags=allow-oom\\nreturn redis.call('del', KEYS[1])\" 1 held:a",
    ]
    .into_iter()
}

/// Why Redis refuses, and how it is taken back.
const CONDITIONS: &[(&str, &str)] = &[
    ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
    ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-to-write 0"),
];

/// When it begins.
#[derive(Clone, Copy, Debug)]
enum Begins {
    Ahead,
    WithinTheBlock,
    BeforeExec,
}

/// Runs a block with this command; returns the replies, and the keys that are left.
fn run(client: &Client, admin: &Client, command: &str, condition: (&str, &str), begins: Begins) -> Vec<String> {
    for line in ["DEL lock:a lock:b", "DEL held:a", "DEL jobs", "DEL done"] {
        client.sends(line).reply();
    }
    client.sends("RPUSH jobs job").gets(":1");
    client.sends(format!("SET held:a {TOKEN} NX PX 9000")).gets("+OK");
    let mut said = Vec::new();
    let refuse = || {
        admin.sends(condition.0).gets("+OK");
    };
    if matches!(begins, Begins::Ahead) {
        refuse();
    }
    said.push(client.sends("MULTI").reply().to_string());
    said.push(client.sends("RPOP jobs").reply().to_string());
    if matches!(begins, Begins::WithinTheBlock) {
        refuse();
    }
    said.push(client.sends(command).reply().to_string());
    if matches!(begins, Begins::BeforeExec) {
        refuse();
    }
    let executed = client.sends("EXEC").reply().to_string();
    // For an error in a recognised script, the place in its text is not reported.
    let place = " script: ";
    said.push(match (executed.find(place), executed.rfind(".]")) {
        (Some(from), Some(to)) => executed[..from].to_owned() + &executed[to + 1..],
        _ => executed,
    });
    admin.sends(condition.1).gets("+OK");
    for line in ["LLEN jobs", "GET lock:a", "GET held:a", "PING"] {
        said.push(format!("{line}: {}", client.sends(line).reply()));
    }
    said
}

#[test]
fn a_block_that_redis_refuses_is_refused_as_a_whole() {
    for mode in [Mode::Monitor, Mode::Enforce] {
        let (straight, redis) = (Redis::start(), Redis::start());
        let proxy = Proxy::builder(&redis).mode(mode).namespace("keys", "[\"lock:*\", \"held:*\"]").start();
        let admins = [straight.client(), redis.client()];
        let (direct, client) = (straight.client(), proxy.client());
        let mut commands: Vec<String> = COMMANDS.iter().map(|line| (*line).to_owned()).collect();
        if Server::under_test().since(7, 0) {
            commands.extend(with_flags().map(|text| format!("EVAL {text}")));
            for text in with_flags() {
                let load = format!("SCRIPT LOAD {}", text.split(" 1 ").next().expect("a text"));
                let sha = direct.sends(&load).reply().text();
                client.sends(&load).reply();
                let rest = text.split(" 1 ").nth(1).expect("its key");
                commands.push(format!("EVALSHA {sha} 1 {rest}"));
            }
        }
        for condition in CONDITIONS {
            for begins in [Begins::Ahead, Begins::WithinTheBlock, Begins::BeforeExec] {
                for command in &commands {
                    // A policy refuses this, whatever Redis would reply.
                    if command.starts_with("PERSIST") && matches!(mode, Mode::Enforce) {
                        continue;
                    }
                    let wanted = run(&direct, &admins[0], command, *condition, begins);
                    let got = run(&client, &admins[1], command, *condition, begins);
                    assert_eq!(got, wanted, "{mode:?} {condition:?} {begins:?} {command}");
                }
            }
        }
    }
}
