//! What keeping leases alive costs. For several numbers of kept leases: the microseconds that a renewal takes by
//! Redis's own clock, the share of Redis's core, how late renewals are, how many leases were lost, and how long a
//! plain command on another connection waits meanwhile. `cargo run --release -p lockwarden-tests --example
//! kept_leases` only prints a table. With another number of leases, another TTL and other seconds: `… --example
//! kept_leases -- 100000 10s 20`.

use std::thread;
use std::time::{Duration, Instant};

use lockwarden_tests::{Client, Proxy, Redis, encode};

/// Locks that one connection takes.
const A_CONNECTION: usize = 500;
/// Between two plain commands.
const PAUSE: Duration = Duration::from_micros(500);

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    println!(
        "{:>8}{:>6}{:>12}{:>14}{:>12}{:>8}{:>12}{:>12}",
        "leases", "TTL", "renewals/s", "µs a renewal", "Redis CPU %", "lost", "plain p50", "p99 µs"
    );
    match &words[..] {
        [] => {
            measure(0, "30s", 10);
            for (leases, ttl) in [(10_000, "30s"), (10_000, "2s"), (100_000, "10s")] {
                measure(leases, ttl, 20);
            }
        }
        [leases, ttl, seconds] => {
            measure(leases.parse().expect("a number of leases"), ttl, seconds.parse().expect("a number of seconds"))
        }
        _ => panic!("kept_leases [LEASES TTL SECONDS]"),
    }
}

fn measure(leases: usize, ttl: &str, seconds: u64) {
    let redis = Redis::start();
    let proxy = Proxy::builder(&redis).default_ttl(ttl).ceiling("1h").start();
    let holders: Vec<Client> = (0..leases)
        .step_by(A_CONNECTION)
        .map(|first| {
            let holder = proxy.client();
            let last = leases.min(first + A_CONNECTION);
            let lines = (first..last).map(|n| encode(&["SETNX", &format!("lock:{n}"), "owner"]));
            holder.write(&lines.flatten().collect::<Vec<u8>>());
            for _ in first..last {
                holder.then().gets(":1");
            }
            holder
        })
        .collect();
    let console = redis.client();
    // The first renewals come in waves, as the grants did.
    thread::sleep(Duration::from_secs(3));
    let before = Figures::of(&console, &proxy);
    let mut waits = Vec::new();
    let (start, plain) = (Instant::now(), redis.client());
    while start.elapsed() < Duration::from_secs(seconds) {
        let asked = Instant::now();
        plain.sends("GET plain").gets("nil");
        waits.push(asked.elapsed());
        thread::sleep(PAUSE);
    }
    let took = start.elapsed().as_secs_f64();
    let after = Figures::of(&console, &proxy);
    let keys: Vec<String> = (0..leases).map(|n| format!("lock:{n}")).collect();
    let there: i64 = keys.chunks(1000).map(|keys| console.sends(format!("EXISTS {}", keys.join(" "))).integer()).sum();
    let renewals = after.renewals - before.renewals;
    waits.sort_unstable();
    let quantile = |share: f64| waits[(waits.len() as f64 * share) as usize].as_micros();
    println!(
        "{leases:>8}{ttl:>6}{:>12.0}{:>14.2}{:>12.1}{:>8}{:>12}{:>12}",
        renewals / took,
        (after.script_us - before.script_us) / renewals.max(1.0),
        (after.cpu - before.cpu) / took * 100.0,
        leases as i64 - there,
        quantile(0.5),
        quantile(0.99),
    );
    drop(holders);
}

/// Sums since the start.
struct Figures {
    renewals: f64,
    script_us: f64,
    cpu: f64,
}

impl Figures {
    fn of(console: &Client, proxy: &Proxy) -> Figures {
        let info = console.sends("INFO all").text();
        let field = |start: &str, name: &str| -> f64 {
            let line = info.lines().find_map(|line| line.strip_prefix(start));
            line.and_then(|line| line.split(',').find_map(|field| field.strip_prefix(name)))
                .and_then(|number| number.trim().parse().ok())
                .unwrap_or(0.0)
        };
        let renewed = "lockwarden_keep_alive_renewals_total{outcome=\"renewed\"}";
        Figures {
            renewals: proxy.metric(renewed),
            script_us: field("cmdstat_eval:", "usec=") + field("cmdstat_evalsha:", "usec="),
            cpu: field("used_cpu_user:", "") + field("used_cpu_sys:", ""),
        }
    }
}
