//! Memory of the proxy, of a silent connection, and of a held lock: the memory that the system has given to the process itself,
//! without the pages of its file, which come and go. A difference is measured only after enough equal steps, so that buffers
//! that grow once have already grown.

use std::error::Error;
use std::fs;
use std::ops::Range;
use std::thread::sleep;
use std::time::Duration;

use lockwarden_tests::budget::Measure;
use lockwarden_tests::encode;

use crate::program::{Place, Program};
use crate::wire::Connection;

/// Connections that say nothing after their first PING.
const IDLE: u64 = 2000;
/// Those that come and go before.
const FIRST: u64 = 200;
/// Held locks, after a first thousand.
const LOCKS: Range<u64> = 2_000..12_000;
/// In one write.
const BATCH: usize = 100;
/// How long the proxy may put things in order before memory is looked at.
const SETTLE: Duration = Duration::from_millis(1500);

pub(crate) fn measure(place: &Place) -> Result<[Measure; 3], Box<dyn Error>> {
    // What compiling the policies takes, and partly gives back, is no memory of a proxy that serves.
    place.check(&[])?;
    let program = place.start(&[])?;
    drop(silent(&program, 1)?);
    let alone = settled(&program)?;
    drop(silent(&program, FIRST)?);
    let before = settled(&program)?;
    let clients = silent(&program, IDLE)?;
    let after = settled(&program)?;
    drop(clients);
    drop(program);
    Ok([
        Measure { name: "memory without clients", is: alone / 1024 },
        Measure { name: "an idle connection", is: after.saturating_sub(before) / IDLE },
        Measure { name: "a held lock", is: lock(place)? },
    ])
}

/// Of a proxy of its own, whose memory no connections have used before.
fn lock(place: &Place) -> Result<u64, Box<dyn Error>> {
    let program = place.start(&[])?;
    let mut holder = Connection::open(program.address)?;
    take(&mut holder, 0..LOCKS.start)?;
    let before = settled(&program)?;
    take(&mut holder, LOCKS)?;
    let after = settled(&program)?;
    Ok(after.saturating_sub(before) / (LOCKS.end - LOCKS.start))
}

fn silent(program: &Program, count: u64) -> Result<Vec<Connection>, Box<dyn Error>> {
    (0..count).map(|_| Connection::open(program.address)).collect()
}

fn take(holder: &mut Connection, numbers: Range<u64>) -> Result<(), Box<dyn Error>> {
    let numbers: Vec<u64> = numbers.collect();
    for batch in numbers.chunks(BATCH) {
        let requests = batch.iter().map(|number| {
            let (lock, owner_token) = (format!("lock:held:{number:06}"), format!("{number:032x}"));
            encode(&["SET", &lock, &owner_token, "NX", "PX", "60000"])
        });
        holder.say(&requests.collect::<Vec<_>>().concat(), &b"+OK\r\n".repeat(batch.len()))?;
    }
    Ok(())
}

/// Bytes that are the process's own, when it has put things in order.
fn settled(program: &Program) -> Result<u64, Box<dyn Error>> {
    sleep(SETTLE);
    let status = fs::read_to_string(format!("/proc/{}/status", program.id()))?;
    let kib = status.lines().find_map(|line| {
        let text = line.strip_prefix("RssAnon:")?.trim().strip_suffix("kB")?;
        text.trim().parse::<u64>().ok()
    });
    Ok(kib.ok_or("a system whose /proc says no RssAnon")? * 1024)
}
