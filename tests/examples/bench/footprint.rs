//! What a program costs while it is idle: the time to start it, its memory, the memory of silent connections,
//! its CPU time, its size on disk. Each is measured on freshly started programs.

use std::error::Error;
use std::fs;
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::drive::connect;
use crate::figures::Figure;
use crate::process::{CpuTime, interrupted, resident};
use crate::table::number;
use crate::ways::{Open, Place, Program, Way};
use crate::wire::{Address, Plain};

/// How often it is started.
const STARTS: usize = 5;
/// Connections that stay silent.
const IDLE: usize = 1000;
/// Connections that come and go before memory is looked at for the first time.
const FIRST: usize = 100;
/// How long a program may put things in order before memory is looked at.
const SETTLE: Duration = Duration::from_millis(300);
/// How long idleness is watched.
const WATCHED: Duration = Duration::from_secs(1);
const KIB: f64 = 1024.0;

/// The footprint of one program.
pub(crate) struct Footprint {
    pub(crate) name: String,
    /// From starting it to its first answer, ms.
    pub(crate) start: Option<Figure>,
    /// Before any client, KiB.
    memory: f64,
    /// An idle connection's, KiB.
    pub(crate) connection: f64,
    /// Percent of a core, without clients, and with silent clients.
    idle: f64,
    idle_connected: f64,
    /// On disk, KiB.
    size: Option<f64>,
}

impl Footprint {
    pub(crate) fn of(way: &Way, place: &Place<'_>) -> Result<Footprint, Box<dyn Error>> {
        let mut starts = Vec::new();
        let mut open = None;
        for _ in 0..STARTS {
            drop(open.take());
            let started = way.open(place)?;
            starts.push(started.started_in.as_secs_f64() * 1e3);
            open = Some(started);
        }
        let open: Open = open.ok_or("it is started at least once")?;
        let id = open.id().ok_or("a way with a program")?;
        let memory = resident(id)? as f64 / KIB;
        drop(silent(&open.address, FIRST)?);
        sleep(SETTLE);
        let idle = cpu_share(id)?;
        let before = resident(id)? as f64;
        let clients = silent(&open.address, IDLE)?;
        sleep(SETTLE);
        let after = resident(id)? as f64;
        let idle_connected = cpu_share(id)?;
        drop(clients);
        Ok(Footprint {
            name: way.name.clone(),
            start: Figure::of(starts.into_iter()),
            memory,
            connection: (after - before) / IDLE as f64 / KIB,
            idle,
            idle_connected,
            size: size(way),
        })
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "way": self.name,
            "start_ms": self.start.map(|start| start.median),
            "rss_kib": self.memory,
            "idle_connection_kib": self.connection,
            "idle_cpu_percent": self.idle,
            "idle_cpu_connected_percent": self.idle_connected,
            "binary_kib": self.size,
        })
    }
}

/// As one table.
pub(crate) fn print(footprints: &[Footprint]) {
    println!(
        "\nfootprint: start to the first PONG (median of {STARTS}), memory, CPU of an idle process without clients and with {IDLE}"
    );
    println!(
        "{:<12}{:>10}{:>6}{:>10}{:>18}{:>12}{:>14}{:>12}",
        "", "start ms", "±%", "RSS MiB", "KiB a connection", "idle CPU %", "with clients", "binary MiB"
    );
    for footprint in footprints {
        println!(
            "{:<12}{:>10}{:>6}{:>10}{:>18}{:>12}{:>14}{:>12}",
            footprint.name,
            number(footprint.start.map(|start| start.median), 1),
            number(footprint.start.map(|start| start.spread), 1),
            number(Some(footprint.memory / KIB), 1),
            number(Some(footprint.connection), 2),
            number(Some(footprint.idle), 2),
            number(Some(footprint.idle_connected), 2),
            number(footprint.size.map(|size| size / KIB), 1),
        );
    }
}

fn silent(address: &Address, clients: usize) -> Result<Vec<Plain>, Box<dyn Error>> {
    let mut streams = Vec::with_capacity(clients);
    for _ in 0..clients {
        if interrupted() {
            return Err("interrupted".into());
        }
        streams.push(connect(address)?);
    }
    Ok(streams)
}

/// Percent of a core that a process takes while it is watched.
pub(crate) fn cpu_share(id: u32) -> io::Result<f64> {
    let (before, begun) = (CpuTime::of(id)?, Instant::now());
    sleep(WATCHED);
    let spent = CpuTime::of(id)?.since(before).total;
    Ok(spent.as_secs_f64() / begun.elapsed().as_secs_f64() * 100.0)
}

fn size(way: &Way) -> Option<f64> {
    let path = match &way.program {
        // This very program, which is much more than a forwarder.
        Program::Nothing | Program::Socket | Program::Forwarder => return None,
        Program::Haproxy(path, _)
        | Program::Stunnel(path)
        | Program::Twemproxy(path)
        | Program::Envoy(path, _)
        | Program::Predixy(path, _)
        | Program::Lockwarden { binary: path, .. } => path,
    };
    Some(fs::metadata(path).ok()?.len() as f64 / KIB)
}
