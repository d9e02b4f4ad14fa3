//! What many of something cost lockwarden: patterns of locks, held locks, names of applications. Every row is measured on a
//! freshly started proxy.

use std::error::Error;
use std::thread::sleep;
use std::time::{Duration, Instant};

use lockwarden_tests::encode;
use serde_json::{Value, json};

use crate::Bench;
use crate::drive::{connect, exchange};
use crate::footprint::cpu_share;
use crate::process::{CpuTime, interrupted, resident};
use crate::table::number;
use crate::ways::{LOCKS, Open, Way, namespace};
use crate::wire::{Address, Plain};

/// A configuration may have so many patterns in each namespace.
const PATTERNS_EACH: usize = 1_000;
const PATTERNS: [usize; 3] = [1_000, 10_000, 100_000];
const HELD: [u64; 3] = [10_000, 100_000, 1_000_000];
const KEPT: [u64; 2] = [10_000, 100_000];
const APPLICATIONS: [u64; 3] = [100, 1_000, 10_000];
/// Connections that take the locks.
const HOLDERS: u64 = 20;
/// Commands in one write.
const BATCH: u64 = 100;
/// A program has settled when it took no time for so long.
const CALM: Duration = Duration::from_millis(500);
const MOST_SETTLING: Duration = Duration::from_secs(20);
const MIB: f64 = 1024.0 * 1024.0;

/// Every series, printed as it comes.
pub(crate) fn run(bench: &Bench<'_>, way: &Way) -> Result<Vec<Value>, Box<dyn Error>> {
    let locks = namespace("locks", &[format!("{LOCKS}*")], None).replace("30s", "2h").replace("60s", "2h");
    let alone = Measured::of(bench, &way.with_namespaces("alone", &locks))?;
    let mut series = Vec::new();

    let mut table =
        Table::new("patterns, a thousand in each namespace", &["file KiB", "start ms", "MiB more", "reload CPU ms"]);
    for count in PATTERNS {
        let many: String = (0..count / PATTERNS_EACH).map(patterns).chain([locks.clone()]).collect();
        let way = way.with_namespaces(&format!("patterns-{count}"), &many);
        let proxy = Measured::of(bench, &way)?;
        let before = proxy.spent()?;
        proxy.open.reload()?;
        let reload = proxy.settled()? - before;
        let start = proxy.open.started_in.as_secs_f64() * 1e3;
        table.row(count as u64, &[many.len() as f64 / 1024.0, start, proxy.memory - alone.memory, reload]);
    }
    series.push(table.end());

    let takes = |lock: &str, owner_token: &str| encode(&["SET", lock, owner_token, "NX", "PX", "7000000"]);
    series.push(held(bench, way, &locks, ("held", "held locks"), &HELD, (takes, b"+OK\r\n"))?);
    let takes = |lock: &str, owner_token: &str| encode(&["SETNX", lock, owner_token]);
    series.push(held(
        bench,
        way,
        &locks,
        ("kept", "held locks without a TTL, which the proxy keeps alive"),
        &KEPT,
        (takes, b":1\r\n"),
    )?);

    let mut table = Table::new(
        "applications, each with its own name, which takes a lock once",
        &["MiB more", "bytes each", "CPU µs each"],
    );
    for count in APPLICATIONS {
        let proxy = Measured::of(bench, &way.with_namespaces(&format!("applications-{count}"), &locks))?;
        let mut client = connect(&proxy.open.address)?;
        let before = proxy.spent()?;
        for number in 0..count {
            let (name, lock) = (format!("application-{number:05}"), format!("{LOCKS}{number}"));
            let requests = [
                encode(&["CLIENT", "SETNAME", &name]),
                encode(&["SET", &lock, &name, "NX", "PX", "30000"]),
                encode(&["DEL", &lock]),
            ];
            exchange(&mut client, &requests.concat(), b"+OK\r\n+OK\r\n:1\r\n")?;
        }
        let spent = proxy.settled()? - before;
        let more = proxy.memory()? - proxy.memory;
        table.row(count, &[more, more * MIB / count as f64, spent * 1e3 / count as f64]);
    }
    series.push(table.end());
    Ok(series)
}

/// Locks that a few clients hold.
fn held(
    bench: &Bench<'_>,
    way: &Way,
    namespaces: &str,
    (name, title): (&str, &'static str),
    counts: &[u64],
    (takes, granted): (impl Fn(&str, &str) -> Vec<u8>, &[u8]),
) -> Result<Value, Box<dyn Error>> {
    let mut table = Table::new(title, &["MiB more", "bytes each", "CPU µs each", "idle CPU %"]);
    for &count in counts {
        let proxy = Measured::of(bench, &way.with_namespaces(&format!("{name}-{count}"), namespaces))?;
        let mut holders: Vec<Plain> = (0..HOLDERS).map(|_| connect(&proxy.open.address)).collect::<Result<_, _>>()?;
        let before = proxy.spent()?;
        for (batch, holder) in (0..count / BATCH).zip((0..holders.len()).cycle()) {
            let take = |number| takes(&format!("{LOCKS}{name}-{count}:{number:07}"), &format!("{number:032x}"));
            let requests: Vec<u8> = (batch * BATCH..(batch + 1) * BATCH).flat_map(take).collect();
            exchange(&mut holders[holder], &requests, &granted.repeat(BATCH as usize))?;
            if interrupted() {
                return Err("interrupted".into());
            }
        }
        let spent = proxy.settled()? - before;
        let more = proxy.memory()? - proxy.memory;
        let idle = cpu_share(proxy.id)?;
        table.row(count, &[more, more * MIB / count as f64, spent * 1e3 / count as f64, idle]);
    }
    Ok(table.end())
}

/// A namespace of many patterns that no lock of the load has, and no policies.
fn patterns(team: usize) -> String {
    let keys: Vec<_> = (0..PATTERNS_EACH).map(|job| format!("team{team:03}:job{job:03}:*")).collect();
    namespace(&format!("team{team:03}"), &keys, Some(&[]))
}

/// A proxy, and its memory in MiB before any client.
struct Measured {
    open: Open,
    id: u32,
    memory: f64,
}

impl Measured {
    fn of(bench: &Bench<'_>, way: &Way) -> Result<Measured, Box<dyn Error>> {
        eprintln!("{}", way.name);
        // A proxy finds the locks of those before it.
        exchange(&mut connect(&Address::Tcp(bench.place.redis))?, &encode(&["FLUSHALL", "ASYNC"]), b"+OK\r\n")?;
        let open = way.open(&bench.place).map_err(|error| format!("{}: {error}", way.name))?;
        let id = open.id().ok_or("a way with a program")?;
        let mut measured = Measured { open, id, memory: 0.0 };
        measured.settled()?;
        measured.memory = measured.memory()?;
        Ok(measured)
    }

    fn memory(&self) -> Result<f64, Box<dyn Error>> {
        Ok(resident(self.id)? as f64 / MIB)
    }

    /// CPU time since it was started, ms.
    fn spent(&self) -> Result<f64, Box<dyn Error>> {
        Ok(CpuTime::of(self.id)?.total.as_secs_f64() * 1e3)
    }

    /// The same, once it does nothing any more.
    fn settled(&self) -> Result<f64, Box<dyn Error>> {
        let begun = Instant::now();
        let mut spent = self.spent()?;
        loop {
            sleep(CALM);
            let now = self.spent()?;
            // What an idle proxy does each second is less.
            if now - spent <= CALM.as_secs_f64() * 1e3 / 20.0 || begun.elapsed() > MOST_SETTLING {
                return Ok(now);
            }
            spent = now;
        }
    }
}

/// One printed series.
struct Table {
    title: &'static str,
    columns: &'static [&'static str],
    rows: Vec<Value>,
}

impl Table {
    fn new(title: &'static str, columns: &'static [&'static str]) -> Table {
        println!("\n{title}");
        let heads: String = columns.iter().map(|column| format!("{column:>16}")).collect();
        println!("{:<12}{heads}", "");
        Table { title, columns, rows: Vec::new() }
    }

    fn row(&mut self, count: u64, values: &[f64]) {
        let cells: String = values.iter().map(|value| format!("{:>16}", number(Some(*value), 1))).collect();
        println!("{count:<12}{cells}");
        let named = self.columns.iter().zip(values).map(|(column, value)| ((*column).to_owned(), json!(value)));
        self.rows.push(json!({ "count": count, "is": named.collect::<serde_json::Map<_, _>>() }));
    }

    fn end(self) -> Value {
        json!({ "series": self.title, "points": self.rows })
    }
}
