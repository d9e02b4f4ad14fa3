//! What the scripts cost Redis: the microseconds of a call by Redis's own clock for each operation on a lock,
//! compared with the plain commands that they replace (which pass through the same proxy, so that Redis's
//! caches are in the same state), and the memory of the record beside a lock. `cargo run --release -p
//! lockwarden-tests --example script_cost` only prints medians over rounds; earlier output is in
//! `docs/performance/`. With the word `guard` it prints the cost of the guard around scripts that compute
//! names of keys.

use lockwarden_tests::{Client, Proxy, Redis};

const ROUNDS: usize = 5;
const BLOCKS: usize = 40;
/// Locks of a block: taken, extended and released together.
const LOCKS: usize = 100;
/// What most libraries put into a lock: a UUID.
const OWNER_TOKEN: &str = "6e3d0bcd-9c1e-4a07-8b3f-5c1d00a7f9e2";
const ANOTHER_TOKEN: &str = "0a94c2de-6f3b-4a55-9d1e-77b1d3c5e8f4";

/// One operation on a lock, as clients write it.
struct Operation {
    name: &'static str,
    command: fn(key: &str) -> String,
    reply: &'static str,
    by_the_holder: bool,
    /// The command itself, as Redis's statistics call it; empty where it would do something else.
    plain: &'static str,
}

/// In this order, again and again: afterwards the lock is free.
const OPERATIONS: [Operation; 7] = [
    Operation { name: "acquire, never held before", command: acquire, reply: "+OK", by_the_holder: true, plain: "set" },
    Operation {
        name: "acquire, held by another",
        command: |key| format!("SET {key} {ANOTHER_TOKEN} NX PX 30000"),
        reply: "nil",
        by_the_holder: false,
        plain: "set",
    },
    Operation {
        name: "extend",
        command: |key| format!("PEXPIRE {key} 20000"),
        reply: ":1",
        by_the_holder: true,
        plain: "pexpire",
    },
    Operation {
        name: "release by a stranger",
        command: release,
        reply: ":0",
        by_the_holder: false,
        // On its own it would delete.
        plain: "",
    },
    Operation { name: "release", command: release, reply: ":1", by_the_holder: true, plain: "del" },
    Operation { name: "acquire, held before", command: acquire, reply: "+OK", by_the_holder: true, plain: "set" },
    Operation { name: "release", command: release, reply: ":1", by_the_holder: true, plain: "del" },
];

fn acquire(key: &str) -> String {
    format!("SET {key} {OWNER_TOKEN} NX PX 30000")
}

fn release(key: &str) -> String {
    format!("DEL {key}")
}

fn main() {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).default_ttl("30s").ceiling("60s").start();
    if std::env::args().nth(1).as_deref() == Some("guard") {
        guard_cost(&redis, &proxy);
        return;
    }
    let console = redis.client();
    let (holder, stranger) = (proxy.client(), proxy.client());
    warm_up(&holder);

    let before = used_memory(&console);
    let mut rounds: Vec<[(f64, f64); OPERATIONS.len()]> = Vec::new();
    for round in 0..ROUNDS {
        let mut totals = [(0.0, 0.0); OPERATIONS.len()];
        for block in 0..BLOCKS {
            for (operation, total) in OPERATIONS.iter().zip(&mut totals) {
                let client = if operation.by_the_holder { &holder } else { &stranger };
                let keys = |prefix: &str| keys(&format!("{prefix}:{round}:{block}"));
                total.0 += spent(&console, "evalsha", operation, client, &keys("lock"));
                if !operation.plain.is_empty() {
                    total.1 += spent(&console, operation.plain, operation, client, &keys("plain"));
                }
            }
        }
        rounds.push(totals);
    }
    let records = (ROUNDS * BLOCKS * LOCKS) as f64;
    let growth = (used_memory(&console) - before) / records;

    println!("{:<28}{:>12}{:>18}", "µs of Redis a call", "lockwarden", "the command alone");
    for (at, operation) in OPERATIONS.iter().enumerate() {
        let governed = median(rounds.iter().map(|totals| totals[at].0));
        let plain = match operation.plain {
            "" => "–".to_owned(),
            _ => format!("{:.2}", median(rounds.iter().map(|totals| totals[at].1))),
        };
        println!("{:<28}{governed:>12.2}{plain:>18}", operation.name);
    }
    println!("({ROUNDS} rounds of {} calls each: medians)", BLOCKS * LOCKS);
    println!("\nbytes beside a lock, with a UUID as owner token");
    let key = &keys("lock:0:0")[0];
    println!("{:<28}{:>12}", "MEMORY USAGE of the record", memory_usage(&console, key));
    println!("{:<28}{growth:>12.0}", "growth of used_memory");
}

/// Calls of SET, their keys named when the script runs.
const SETS: &str = "local names = redis.call('echo', 'queue:') \
    for i = 1, ARGV[1] do redis.call('set', names .. i, i) end";

/// What the guard costs around a script that computes names of keys.
fn guard_cost(redis: &Redis, proxy: &Proxy) {
    let without = Proxy::builder(redis).top("computed_names", "\"forward\"").start();
    let console = redis.client();
    println!("{:<28}{:>12}{:>18}", "a script that computes names", "guarded", "as it is");
    for calls in ["1", "10", "100"] {
        let [guarded, plain] = [proxy, &without].map(|proxy| {
            let client = proxy.client();
            let run = || client.sends_arguments(&["EVAL", SETS, "0", calls]).gets("nil");
            run();
            let loaded = client.sends_arguments(&["SCRIPT", "LOAD", SETS]).text();
            median((0..ROUNDS).map(|_| {
                console.sends("CONFIG RESETSTAT").gets("+OK");
                for _ in 0..1000 {
                    client.sends(format!("EVALSHA {loaded} 0 {calls}")).gets("nil");
                }
                let info = console.sends("INFO commandstats").text();
                field(&info, "evalsha", "usec=") / field(&info, "evalsha", "calls=")
            }))
        });
        let what = format!("{calls} calls of SET, µs");
        println!("{what:<28}{guarded:>12.1}{plain:>18.1}");
    }
}

/// The proxy's scripts become known to the server, and its policies warm.
fn warm_up(client: &Client) {
    for line in ["SET lock:warm 1 NX PX 9000", "PEXPIRE lock:warm 9000", "DEL lock:warm"] {
        let _ = client.sends(line).reply();
    }
}

fn keys(block: &str) -> Vec<String> {
    (0..LOCKS).map(|n| format!("{block}:{n:02}")).collect()
}

/// Does the operation on all keys, and returns the µs of a call by Redis's own statistics.
fn spent(console: &Client, statistics: &str, operation: &Operation, client: &Client, keys: &[String]) -> f64 {
    console.sends("CONFIG RESETSTAT").gets("+OK");
    for key in keys {
        client.sends((operation.command)(key)).gets(operation.reply);
    }
    let info = console.sends("INFO commandstats").text();
    let calls = field(&info, statistics, "calls=");
    assert_eq!(calls, keys.len() as f64, "{}: calls of {statistics}", operation.name);
    field(&info, statistics, "usec=") / calls / BLOCKS as f64
}

fn field(info: &str, command: &str, name: &str) -> f64 {
    let start = format!("cmdstat_{command}:");
    let line = info.lines().find_map(|line| line.strip_prefix(&start));
    line.and_then(|line| line.split(',').find_map(|field| field.strip_prefix(name)))
        .and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("no {name} of {command} in:\n{info}"))
}

fn used_memory(console: &Client) -> f64 {
    let info = console.sends("INFO memory").text();
    let line = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
    line.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no used_memory in:\n{info}"))
}

fn memory_usage(console: &Client, key: &str) -> i64 {
    let found = console.sends(format!("KEYS lw:{{*}}:{key}")).reply();
    let [name] = found.elements() else {
        panic!("{key} has {found} for records");
    };
    console.sends_arguments(&[b"MEMORY".as_slice(), b"USAGE", name.bytes()]).integer()
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}
