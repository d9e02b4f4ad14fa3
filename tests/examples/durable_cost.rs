//! What waiting for replicas costs: how long an acquire takes through lockwarden without `durability`, with `wait:1` and with
//! `strict:1`, in front of one primary with one replica. All three are measured in every round, so that a slow moment of the
//! machine affects all of them. `cargo run --release -p lockwarden-tests --example durable_cost` only prints a table;
//! `docs/performance.md` has one. With other numbers of rounds and of clients: `… --example durable_cost -- 40 8`.

use std::thread;
use std::time::{Duration, Instant};

use lockwarden_tests::{Client, Proxy, Redis, encode, wait_for};

const WAYS: [&str; 3] = ["none", "wait:1:1s", "strict:1:1s"];
/// Acquires of a client in one round on one way.
const A_TURN: usize = 500;
/// Locks that a client goes round.
const LOCKS: usize = 100;

fn main() {
    let words: Vec<usize> = std::env::args().skip(1).map(|word| word.parse().expect("a number")).collect();
    let (rounds, clients) = match words[..] {
        [] => (20, 1),
        [rounds] => (rounds, 1),
        [rounds, clients] => (rounds, clients),
        _ => panic!("durable_cost [ROUNDS [CLIENTS]]"),
    };
    let primary = Redis::with_arguments(&["--repl-diskless-sync-delay", "0"]);
    let replica = Redis::start();
    let port = primary.address().port();
    let order = format!("REPLICAOF 127.0.0.1 {port}");
    replica.client().sends(order).gets("+OK");
    let proxies = WAYS.map(|durability| {
        let proxy = Proxy::builder(&primary)
            .namespace("durability", &format!("{durability:?}"))
            .namespace("quarantine", "\"1s\"")
            .ceiling("60s")
            .start();
        let client = proxy.client();
        wait_for("a first grant", || client.sends("SET lock:first x NX PX 1").reply().to_string() == "+OK");
        proxy
    });
    let mut took = [const { Vec::new() }; WAYS.len()];
    // The first round is for caches and connections.
    for round in 0..=rounds {
        for turn in 0..WAYS.len() {
            let way = (round + turn) % WAYS.len();
            let found = turns(&proxies[way], clients);
            if round > 0 {
                took[way].extend(found);
            }
        }
    }
    println!(
        "clients: {clients}, acquires each way: {}\n{:<14}{:>10}{:>10}{:>8}{:>8}",
        rounds * clients * A_TURN,
        "durability",
        "p50 µs",
        "p99 µs",
        "p50 ×",
        "p99 ×"
    );
    let mut first = None;
    for (way, took) in WAYS.iter().zip(&mut took) {
        took.sort();
        let at = |share: f64| took[(took.len() as f64 * share) as usize].as_secs_f64() * 1e6;
        let (half, most) = (at(0.5), at(0.99));
        let (least, highest) = *first.get_or_insert((half, most));
        println!("{way:<14}{half:>10.0}{most:>10.0}{:>8.2}{:>8.2}", half / least, most / highest);
    }
}

/// How long each acquire took, of all clients at once.
fn turns(proxy: &Proxy, clients: usize) -> Vec<Duration> {
    thread::scope(|scope| {
        let each: Vec<_> = (0..clients)
            .map(|number| {
                let client = proxy.client();
                scope.spawn(move || turn(&client, number))
            })
            .collect();
        let each = each.into_iter();
        each.flat_map(|one| one.join().expect("a client does not panic")).collect()
    })
}

fn turn(client: &Client, number: usize) -> Vec<Duration> {
    let acquired = (0..A_TURN).map(|at| {
        let lock = format!("lock:{number}:{}", at % LOCKS);
        let request = encode(&["SET", &lock, "owner", "NX", "PX", "30000"]);
        let asked = Instant::now();
        client.write(&request);
        let reply = client.raw_reply();
        let took = asked.elapsed();
        assert_eq!(reply, b"+OK\r\n", "{lock}");
        client.sends(format!("DEL {lock}")).gets(":1");
        took
    });
    acquired.collect()
}
