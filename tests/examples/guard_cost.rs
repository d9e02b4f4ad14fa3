//! What a guard costs one client: the microseconds that Redis needs for a write of guarded data by the holder of its lock, and
//! the time that the client waits for it. For comparison the same SET without a guard, with a guard in monitor mode, and as a
//! script that compares the record itself, as an application would write it by hand. All are measured in every round. `cargo
//! run --release -p lockwarden-tests --example guard_cost` only prints a table; `docs/performance.md` has one.

use std::time::{Duration, Instant};

use lockwarden_tests::{Client, Proxy, Redis, encode};

const ROUNDS: usize = 20;
/// Writes of one way in a round.
const A_TURN: usize = 500;
const SIZES: [usize; 2] = [64, 10_000];
const OWNER_TOKEN: &str = "6e3d0bcd-9c1e-4a07-8b3f-5c1d00a7f9e2";
/// Compares the number of a lease, then writes.
const SCRIPT: &str = "if redis.call('getrange',KEYS[2],0,50) ~= ARGV[1] then return redis.error_reply('STALE') end \
    return redis.call('set',KEYS[1],ARGV[2])";
/// As long as what a record begins with.
const RECORD: &str = "000000000000000000000000000000000000000000000000001";

/// A way to write, and its measured times.
struct Way<'a> {
    name: &'static str,
    client: Client,
    /// The words before the value.
    write: &'a [&'a str],
    /// The commands whose time, as Redis counts it, contains that of all others.
    spent_in: &'static [&'static str],
    spent: Vec<f64>,
    waited: Vec<Duration>,
}

impl<'a> Way<'a> {
    fn new(name: &'static str, client: Client, write: &'a [&'a str], spent_in: &'static [&'static str]) -> Way<'a> {
        Way { name, client, write, spent_in, spent: Vec::new(), waited: Vec::new() }
    }

    /// Writes so many times, and notes both times where they count.
    fn takes_a_turn(&mut self, console: &Client, value: &str, counts: bool) {
        let request = encode(&[self.write, &[value]].concat());
        console.sends("CONFIG RESETSTAT").gets("+OK");
        for _ in 0..A_TURN {
            let asked = Instant::now();
            self.client.write(&request);
            let reply = self.client.raw_reply();
            let waited = asked.elapsed();
            assert_eq!(reply, b"+OK\r\n", "{}", self.name);
            if counts {
                self.waited.push(waited);
            }
        }
        let info = console.sends("INFO commandstats").text();
        if counts {
            let spent = self.spent_in.iter().map(|name| usec(&info, name));
            self.spent.push(spent.sum::<f64>() / A_TURN as f64);
        }
    }
}

fn main() {
    let redis = Redis::start();
    let console = redis.client();
    let guarded = |mode: &str| {
        let text = format!(
            "[[guard]]\nname = \"data\"\nkeys = [\"data:{{size}}\"]\nlock = \"lock:{mode}:{{size}}\"\nmode = {mode:?}\n"
        );
        Proxy::builder(&redis).ceiling("1h").more(&text).start()
    };
    let (without, monitor, enforce) = (Proxy::builder(&redis).start(), guarded("monitor"), guarded("enforce"));
    let sha = console.sends_arguments(&["SCRIPT", "LOAD", SCRIPT]).text();
    console.sends(format!("SET own-record {RECORD}")).gets("+OK");
    for size in SIZES {
        let data = format!("data:{size}");
        let holder = |proxy: &Proxy, mode: &str| {
            let client = proxy.client();
            client.sends(format!("SET lock:{mode}:{size} {OWNER_TOKEN} NX PX 3600000")).gets("+OK");
            client
        };
        let set = ["SET", &data];
        let script = ["EVALSHA", &sha, "2", &data, "own-record", RECORD];
        let mut ways = [
            Way::new("SET, no proxy", redis.client(), &set, &["set"]),
            Way::new("script, no proxy", redis.client(), &script, &["evalsha"]),
            Way::new("no guard", without.client(), &set, &["set"]),
            Way::new("guard watches", holder(&monitor, "monitor"), &set, &["getrange", "set"]),
            Way::new(
                "guard enforces",
                holder(&enforce, "enforce"),
                &set,
                // The SET is within EXEC.
                &["watch", "getrange", "multi", "exec"],
            ),
        ];
        let value = "v".repeat(size);
        // The first round is for caches and connections.
        for round in 0..=ROUNDS {
            for turn in 0..ways.len() {
                let way = (round + turn) % ways.len();
                ways[way].takes_a_turn(&console, &value, round > 0);
            }
        }
        print(size, &mut ways);
    }
}

fn print(size: usize, ways: &mut [Way<'_>]) {
    println!("{:<24}{:>12}{:>8}{:>10}{:>8}", format!("SET of {size} bytes"), "Redis µs", "×", "p50 µs", "×");
    let mut first = None;
    for way in ways {
        let spent = middle(&mut way.spent, f64::total_cmp);
        let waited = middle(&mut way.waited, Duration::cmp).as_secs_f64() * 1e6;
        let (least_spent, least_waited) = *first.get_or_insert((spent, waited));
        println!(
            "{:<24}{spent:>12.2}{:>8.2}{waited:>10.0}{:>8.2}",
            way.name,
            spent / least_spent,
            waited / least_waited
        );
    }
    println!("({ROUNDS} rounds of {A_TURN} writes each: medians)\n");
}

fn middle<T: Copy>(values: &mut [T], order: impl Fn(&T, &T) -> std::cmp::Ordering) -> T {
    values.sort_by(order);
    values[values.len() / 2]
}

/// Redis's microseconds in all calls of a command.
fn usec(info: &str, command: &str) -> f64 {
    let start = format!("cmdstat_{command}:");
    let line = info.lines().find_map(|line| line.strip_prefix(&start));
    line.and_then(|line| line.split(',').find_map(|field| field.strip_prefix("usec=")))
        .and_then(|number| number.parse().ok())
        .unwrap_or_else(|| panic!("nothing of {command} in:\n{info}"))
}
