//! Instructions of commands and of a start. The proxy's chores run at fixed times, and under callgrind or on a busy machine
//! little work is done in that time. So the instructions that the chores take in a time without clients are subtracted. All
//! medians are over the rounds.

use std::error::Error;
use std::thread::sleep;
use std::time::{Duration, Instant};

use lockwarden_tests::budget::Measure;
use lockwarden_tests::encode;

use crate::callgrind::{self, Counted};
use crate::load::{Keys, Kind, Lane, RELEASE, RELEASE_SHA, Script, Texts, keys, put_set};
use crate::program::Place;
use crate::wire::Connection;

const ROUNDS: usize = 3;
/// How long it is counted at least, in seconds.
const SHORTEST: f64 = 2.0;
/// After which the threads that follow events have seen the last one.
const SETTLE: Duration = Duration::from_millis(300);
/// Before the first that is counted.
const WARM_UP: u64 = 20;

/// A load of the bench.
struct Load {
    name: &'static str,
    kind: Kind,
    /// Of what is counted, in a round.
    times: u64,
    /// In each of those.
    commands: u64,
}

/// On one lock, since some chores go over all locks that were ever seen.
const LOADS: [Load; 3] = [
    Load {
        name: "a command of no lock: SET, GET",
        kind: Kind::Plain { value: 64, depth: 1 },
        times: 1500,
        commands: 1,
    },
    Load { name: "a lock cycle: SET NX PX, EVALSHA", kind: Kind::Good(Keys::Hot), times: 70, commands: 2 },
    Load { name: "an old lock cycle: SETNX, EXPIRE, DEL", kind: Kind::Legacy(Keys::Hot), times: 50, commands: 3 },
];

pub(crate) fn measure(place: &Place) -> Result<Vec<Measure>, Box<dyn Error>> {
    // This leaves the compiled policies where the proxy then finds them.
    let check = callgrind::check(place)?;
    let mut counted = callgrind::start(place)?;
    let mut connection = Connection::open(counted.program.address)?;
    let start = counted.report()?;
    let mut measured = commands(&mut counted, &mut connection, place)?;
    measured.push(Measure { name: "compiling the policies, `lockwarden check`", is: check / 1_000_000 });
    measured.push(Measure { name: "a start to the first PONG, policies compiled", is: start / 1_000_000 });
    Ok(measured)
}

fn commands(
    counted: &mut Counted<'_>,
    connection: &mut Connection,
    place: &Place,
) -> Result<Vec<Measure>, Box<dyn Error>> {
    put_values(place)?;
    connection.say(&encode(&["SCRIPT", "LOAD", RELEASE]), format!("$40\r\n{RELEASE_SHA}\r\n").as_bytes())?;
    let lane = Lane { way: 0, run: 0 };
    let mut loads = LOADS.map(|load| (Texts::of(load.kind, "lock:"), Script::new(load.kind, lane, 0), load));
    for (texts, script, load) in &mut loads {
        connection.follow(script, texts, WARM_UP * load.commands)?;
    }
    let (mut idle, mut busy) = (Vec::new(), [const { Vec::new() }; LOADS.len()]);
    for _ in 0..ROUNDS {
        idle.push(window(counted, || Ok(()))?);
        for ((texts, script, load), windows) in loads.iter_mut().zip(&mut busy) {
            windows.push(window(counted, || connection.follow(script, texts, load.times * load.commands))?);
        }
    }
    let chores = median(idle.iter().map(|window| window.count / window.seconds));
    let each = LOADS.iter().zip(busy).map(|(load, windows)| {
        let is = median(windows.iter().map(|window| (window.count - chores * window.seconds) / load.times as f64));
        Measure { name: load.name, is: is as u64 }
    });
    Ok(each.collect())
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What was counted in a while.
struct Window {
    count: f64,
    seconds: f64,
}

/// Counts what the proxy does meanwhile. It ends after a whole number of seconds, since most chores run once a second: so a
/// window without clients has as many chores as one with clients.
fn window(
    counted: &mut Counted<'_>,
    work: impl FnOnce() -> Result<(), Box<dyn Error>>,
) -> Result<Window, Box<dyn Error>> {
    // What came between the windows.
    counted.report()?;
    let begun = Instant::now();
    work()?;
    let seconds = (begun.elapsed() + SETTLE).as_secs_f64().ceil().max(SHORTEST);
    sleep(Duration::from_secs_f64(seconds).saturating_sub(begun.elapsed()));
    Ok(Window { count: counted.report()? as f64, seconds })
}

/// The values that a GET of the load finds.
fn put_values(place: &Place) -> Result<(), Box<dyn Error>> {
    const VALUE: [u8; 64] = [b'x'; 64];
    let mut redis = Connection::open(place.redis())?;
    let mut requests = Vec::new();
    let count = keys(VALUE.len());
    for number in 0..count {
        put_set(&VALUE, number, &mut requests);
    }
    redis.say(&requests, b"+OK\r\n".repeat(count as usize).as_slice())
}
