//! What the proxy costs end to end: the same commands sent straight to a Redis, through a forwarder
//! that only copies bytes, and through the proxy, in turns, so that a slow moment of the machine hits
//! all three. `cargo run --release -p lockwarden-tests --example cost -- [ROUNDS [SECONDS]]` prints
//! medians and ratios and judges nothing; `docs/performance.md` has the numbers. The forwarder is
//! this program again (`cost forward ADDRESS`), so that its CPU time is a process's own.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};
use std::{env, thread};

use lockwarden_tests::{Proxy, Redis};

use crate::forwarder::Forwarder;
use crate::load::{Cycle, Link, WORKLOADS, Workload};
use crate::table::{Sample, Table};

#[path = "cost/forwarder.rs"]
mod forwarder;
#[path = "cost/load.rs"]
mod load;
#[path = "cost/processes.rs"]
mod processes;
#[path = "cost/table.rs"]
mod table;

/// What runs before the measured window, for connections, caches and policy instances.
const WARM_UP: Duration = Duration::from_millis(200);

/// The phases that the connections of one run go through together.
const WARMING: u8 = 0;
const MEASURING: u8 = 1;
const STOPPING: u8 = 2;

/// A way to Redis.
struct Way {
    name: &'static str,
    address: SocketAddr,
    /// The process in between.
    between: Option<u32>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [word, backend] = arguments.as_slice()
        && word == "forward"
    {
        return forwarder::serve(backend.parse()?);
    }
    let rounds: usize = number(arguments.first(), 5.0)?.clamp(1.0, 50.0) as usize;
    let window = Duration::from_secs_f64(number(arguments.get(1), 1.0)?.clamp(0.2, 10.0));

    let (redis, server) = processes::started_by(Redis::start)?;
    let usual = Proxy::builder(&redis).default_ttl("30s").ceiling("60s");
    let (proxy, between) = processes::started_by(|| usual.start())?;
    let forwarder = Forwarder::start(redis.address())?;
    let ways = [
        Way {
            name: "direct",
            address: redis.address(),
            between: None,
        },
        Way {
            name: "forwarder",
            address: forwarder.address(),
            between: Some(forwarder.id()),
        },
        Way {
            name: "lockwarden",
            address: proxy.address(),
            between: Some(between),
        },
    ];
    for way in &ways {
        load::prepare(way.address)?;
    }
    let mut tables: Vec<Table> = WORKLOADS
        .iter()
        .map(|workload| Table::new(workload, &ways.each_ref().map(|way| way.name)))
        .collect();
    for round in 0..rounds {
        for (workload, table) in WORKLOADS.iter().zip(&mut tables) {
            // Another way goes first in every round.
            for turn in 0..ways.len() {
                let at = (round + turn) % ways.len();
                table.add(at, run(workload, &ways[at], server, window)?);
            }
        }
    }
    println!(
        "{rounds} rounds of {window:?}: medians, ± half the range over the rounds, ratios within a round.\n\
         µs: round trips (added: beside direct); CPU time a command of the process in between, and of Redis."
    );
    for table in &tables {
        table.print();
    }
    Ok(())
}

fn number(argument: Option<&String>, default: f64) -> Result<f64, String> {
    match argument.map(|text| (text, text.parse::<f64>())) {
        None => Ok(default),
        Some((_, Ok(number))) if number.is_finite() => Ok(number),
        Some((text, _)) => Err(format!(
            "{text} is no number; type: cost [ROUNDS [SECONDS]]"
        )),
    }
}

/// One workload on one way, once.
fn run(
    workload: &Workload,
    way: &Way,
    server: u32,
    window: Duration,
) -> Result<Sample, Box<dyn Error>> {
    let phase = AtomicU8::new(WARMING);
    // The connections and this thread.
    let ready = Barrier::new(workload.connections + 1);
    let mut prepared = Vec::new();
    for connection in 0..workload.connections {
        let cycles = workload.cycles(way.name, connection);
        prepared.push((Link::open(way.address)?, cycles));
    }
    thread::scope(|scope| {
        let (phase, ready) = (&phase, &ready);
        let threads: Vec<_> = prepared
            .into_iter()
            .map(|(link, cycles)| scope.spawn(move || drive(link, &cycles, phase, ready)))
            .collect();
        ready.wait();
        thread::sleep(WARM_UP);
        let times = || {
            let between = way.between.map(processes::cpu_time).transpose()?;
            Ok::<_, Box<dyn Error>>((between, processes::cpu_time(server)?))
        };
        let before = times();
        let begun = Instant::now();
        phase.store(MEASURING, Ordering::Relaxed);
        thread::sleep(window);
        phase.store(STOPPING, Ordering::Relaxed);
        let elapsed = begun.elapsed();
        let after = times();

        let mut round_trips = Vec::new();
        for thread in threads {
            let driven = thread.join().expect("the loop returns its errors");
            round_trips.append(&mut driven.map_err(|error| format!("{}: {error}", way.name))?);
        }
        let (before, after) = (before?, after?);
        Ok(Sample::new(
            &mut round_trips,
            workload.commands_a_round_trip(),
            elapsed,
            after.0.zip(before.0).map(|(after, before)| after - before),
            after.1 - before.1,
        ))
    })
}

/// Drives one connection until the end; answers its round trips within the window. It stops only
/// between cycles, so that no lock stays behind.
fn drive(
    mut link: Link,
    cycles: &[Cycle],
    phase: &AtomicU8,
    ready: &Barrier,
) -> Result<Vec<Duration>, String> {
    let mut round_trips = Vec::new();
    ready.wait();
    for cycle in cycles.iter().cycle() {
        for step in cycle {
            let begun = Instant::now();
            link.exchange(step)?;
            if phase.load(Ordering::Relaxed) == MEASURING {
                round_trips.push(begun.elapsed());
            }
        }
        if phase.load(Ordering::Relaxed) == STOPPING {
            break;
        }
    }
    Ok(round_trips)
}
