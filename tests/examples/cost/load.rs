//! What is sent: the workloads as ready-made bytes with the exact bytes of their replies, and a
//! blocking connection that exchanges them. It measures nothing; `run` in `cost.rs` does.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use lockwarden_tests::encode;

/// Keys a connection goes round, so that neither memory nor companions grow with the run.
const KEYS: usize = 500;
/// Commands in one write of the pipelined workload.
const DEPTH: usize = 16;
/// The value of ordinary keys.
const VALUE: [u8; 64] = [b'x'; 64];
/// What most libraries put into a lock: a UUID.
const OWNER_TOKEN: &str = "6e3d0bcd-9c1e-4a07-8b3f-5c1d00a7f9e2";
/// The release of most libraries, in its usual spelling, and the SHA-1 that names it.
const RELEASE: &str = "if redis.call(\"get\",KEYS[1]) == ARGV[1] then return redis.call(\"del\",KEYS[1]) else return 0 end";
const RELEASE_SHA: &str = "b70c2384248f88e6b75b9f89241a180f856ad852";

/// One write and what must come back.
pub(crate) struct Step {
    request: Vec<u8>,
    reply: Vec<u8>,
}

/// Steps that belong together: a lock is free again after them.
pub(crate) type Cycle = Vec<Step>;

/// What the connections of a workload do.
#[derive(Clone, Copy)]
enum Kind {
    /// SET and GET in turns.
    SetGet,
    /// The same, [`DEPTH`] in one write.
    Pipelined,
    /// SETNX, EXPIRE, DEL.
    Legacy,
    /// SET NX PX, and the compare-and-delete script by its SHA-1.
    Good,
}

/// Something to compare the ways with.
pub(crate) struct Workload {
    /// For the table's title.
    pub(crate) name: &'static str,
    /// How many clients send it at once.
    pub(crate) connections: usize,
    kind: Kind,
}

/// In the order of the tables.
pub(crate) const WORKLOADS: [Workload; 7] = [
    workload(
        "SET/GET 64 B, passed through, 1 connection",
        1,
        Kind::SetGet,
    ),
    workload(
        "SET/GET 64 B, passed through, 8 connections",
        8,
        Kind::SetGet,
    ),
    workload(
        "SET/GET 64 B, passed through, 8 connections, 16 in a pipeline",
        8,
        Kind::Pipelined,
    ),
    workload("SETNX, EXPIRE, DEL: 1 connection", 1, Kind::Legacy),
    workload("SETNX, EXPIRE, DEL: 8 connections", 8, Kind::Legacy),
    workload(
        "SET NX PX, EVALSHA compare-and-delete: 1 connection",
        1,
        Kind::Good,
    ),
    workload(
        "SET NX PX, EVALSHA compare-and-delete: 8 connections",
        8,
        Kind::Good,
    ),
];

const fn workload(name: &'static str, connections: usize, kind: Kind) -> Workload {
    Workload {
        name,
        connections,
        kind,
    }
}

impl Workload {
    /// What one connection sends, over and over. Every way has keys of its own, so that a lock
    /// taken around the proxy is never one that it governs.
    pub(crate) fn cycles(&self, way: &str, connection: usize) -> Vec<Cycle> {
        (0..KEYS)
            .map(|n| {
                let plain = format!("cost:{way}:{connection}:{n}");
                let lock = format!("lock:{plain}");
                match self.kind {
                    Kind::SetGet => vec![set(&plain), get(&plain)],
                    Kind::Pipelined => vec![pipelined(&plain)],
                    Kind::Legacy => vec![
                        step(&["SETNX", &lock, OWNER_TOKEN], ":1\r\n"),
                        step(&["EXPIRE", &lock, "30"], ":1\r\n"),
                        step(&["DEL", &lock], ":1\r\n"),
                    ],
                    Kind::Good => vec![
                        step(&["SET", &lock, OWNER_TOKEN, "NX", "PX", "30000"], "+OK\r\n"),
                        step(&["EVALSHA", RELEASE_SHA, "1", &lock, OWNER_TOKEN], ":1\r\n"),
                    ],
                }
            })
            .collect()
    }

    /// How many commands stand in one write.
    pub(crate) fn commands_a_round_trip(&self) -> usize {
        match self.kind {
            Kind::SetGet | Kind::Legacy | Kind::Good => 1,
            Kind::Pipelined => DEPTH,
        }
    }
}

/// Loads the release script over this way, as an application does when it starts.
pub(crate) fn prepare(address: SocketAddr) -> Result<(), String> {
    let mut link = Link::open(address).map_err(|error| error.to_string())?;
    let reply = format!("$40\r\n{RELEASE_SHA}\r\n");
    link.exchange(&step(&["SCRIPT", "LOAD", RELEASE], &reply))
}

fn step(arguments: &[&str], reply: &str) -> Step {
    Step {
        request: encode(arguments),
        reply: reply.into(),
    }
}

fn set(key: &str) -> Step {
    Step {
        request: encode(&[b"SET", key.as_bytes(), &VALUE]),
        reply: b"+OK\r\n".into(),
    }
}

fn get(key: &str) -> Step {
    Step {
        request: encode(&["GET", key]),
        reply: [b"$64\r\n", VALUE.as_slice(), b"\r\n"].concat(),
    }
}

fn pipelined(key: &str) -> Step {
    let pair = [set(key), get(key)];
    let join = |part: fn(&Step) -> &[u8]| pair.iter().map(part).collect::<Vec<_>>().concat();
    Step {
        request: join(|step| &step.request).repeat(DEPTH / 2),
        reply: join(|step| &step.reply).repeat(DEPTH / 2),
    }
}

/// A connection that knows what it will be answered.
pub(crate) struct Link {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Link {
    pub(crate) fn open(address: SocketAddr) -> io::Result<Link> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        // A wrong reply may be shorter than the right one, and then nothing more comes.
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        Ok(Link {
            stream,
            input: vec![0; 1 << 14],
        })
    }

    /// Sends a step and reads exactly its reply; anything else is an error.
    pub(crate) fn exchange(&mut self, step: &Step) -> Result<(), String> {
        let words = || step.request.escape_ascii().to_string();
        let failed = |error: io::Error| format!("{}: {error}", words());
        self.stream.write_all(&step.request).map_err(failed)?;
        let mut length = 0;
        while length < step.reply.len() {
            match self
                .stream
                .read(&mut self.input[length..])
                .map_err(failed)?
            {
                0 => return Err(format!("{}: the connection was closed", words())),
                more => length += more,
            }
            if !step.reply.starts_with(&self.input[..length]) {
                let came = self.input[..length].escape_ascii();
                return Err(format!("{}: answered {came}", words()));
            }
        }
        Ok(())
    }
}
