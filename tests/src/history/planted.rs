//! Mistakes that lockwarden does not have, put into it from outside: a relay between a proxy and Redis changes the text
//! of the proxy's scripts. It makes Redis appear to forget every script (each digest is replaced by an unknown one), so
//! the proxy sends the text. This shows, with the binary that is shipped, that the checker finds such mistakes.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::client::encode;

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A lock is taken whether it is free or not.
    SetWithoutNx,
    /// A lock is given back for every client that asks for it.
    ReleaseWithoutProof,
    /// Times are not Redis's but those of the proxy, whose clock is a minute ahead.
    ClockOfTheProxy,
    /// A write of guarded data is carried out whatever became of the lock since it was looked at.
    WriteWithoutWatch,
    /// No mistake, but some blocks are delayed on their way to Redis, and locks change hands meanwhile.
    SlowBlocks,
}

/// How long one block of three is delayed.
const ON_ITS_WAY: Duration = Duration::from_millis(60);

/// How wrong that clock is.
const AHEAD: Duration = Duration::from_secs(60);
/// No script has this digest.
const UNKNOWN: &[u8] = &[b'0'; 40];

/// A relay that plants a mistake. Dropping it leaves its connections to their ends.
pub struct Planter {
    address: SocketAddr,
    changed: Arc<AtomicUsize>,
}

impl Planter {
    /// In front of this Redis.
    pub fn before(target: SocketAddr, mistake: Planted) -> Planter {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let changed = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&changed);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(target)) else {
                    continue;
                };
                let count = Arc::clone(&count);
                thread::spawn(move || relays(&client, &server, mistake, &count));
            }
        });
        Planter { address, changed }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many scripts went to Redis with the mistake in them.
    pub fn changed(&self) -> usize {
        self.changed.load(Ordering::Relaxed)
    }
}

fn relays(client: &TcpStream, server: &TcpStream, mistake: Planted, count: &AtomicUsize) {
    for stream in [client, server] {
        let _ = stream.set_nodelay(true);
    }
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ = std::io::copy(&mut { server }, &mut { client });
            let _ = client.shutdown(Shutdown::Both);
        });
        let mut bytes = Vec::new();
        let mut chunk = vec![0; 64 * 1024];
        let mut from = client;
        while let Ok(read @ 1..) = from.read(&mut chunk) {
            bytes.extend_from_slice(&chunk[..read]);
            let mut out = Vec::new();
            while let Some((request, length)) = request(&bytes) {
                out.extend(mistake.put_into(request, count));
                bytes.drain(..length);
            }
            let mut to = server;
            if to.write_all(&out).is_err() {
                break;
            }
        }
        let _ = server.shutdown(Shutdown::Both);
    });
}

impl Planted {
    fn put_into(self, mut request: Vec<Vec<u8>>, count: &AtomicUsize) -> Vec<u8> {
        let plays_blocks = matches!(self, Planted::WriteWithoutWatch | Planted::SlowBlocks);
        if let (Some(name), true) = (request.first_mut(), plays_blocks) {
            if name.eq_ignore_ascii_case(b"MULTI") {
                if count.fetch_add(1, Ordering::Relaxed).is_multiple_of(3) {
                    thread::sleep(ON_ITS_WAY);
                }
            } else if self == Planted::WriteWithoutWatch && name.eq_ignore_ascii_case(b"WATCH") {
                *name = b"TOUCH".to_vec();
            }
        } else if let [name, script, ..] = request.as_mut_slice() {
            if name.eq_ignore_ascii_case(b"EVALSHA") {
                *script = UNKNOWN.to_vec();
            } else if name.eq_ignore_ascii_case(b"EVAL") {
                let text = String::from_utf8_lossy(script).into_owned();
                let changed = self.changes(&text);
                if changed != text {
                    count.fetch_add(1, Ordering::Relaxed);
                    *script = changed.into_bytes();
                }
            }
        }
        encode(&request)
    }

    /// The text with the mistake, where it has the place for it.
    fn changes(self, text: &str) -> String {
        match self {
            Planted::SetWithoutNx => text.replace("'SET',lock,value,'NX'", "'SET',lock,value"),
            Planted::ReleaseWithoutProof if text.contains("return'R'..") => {
                text.replace("if not has(flags,'r')then", "if true then").replace("if ARGV[2]==''and", "if false and")
            }
            Planted::ReleaseWithoutProof | Planted::WriteWithoutWatch | Planted::SlowBlocks => text.to_owned(),
            Planted::ClockOfTheProxy => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                let now = now.expect("the clock is past 1970") + AHEAD;
                let told = format!("({{'{}','{}'}})", now.as_secs(), now.subsec_micros());
                ["redis.pcall('TIME')", "redis.call('TIME')", "read('TIME')"]
                    .iter()
                    .fold(text.to_owned(), |text, place| text.replace(place, &told))
            }
        }
    }
}

/// The first request and its length, if it is whole. The proxy sends arrays of strings only.
fn request(bytes: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
    let (count, mut at) = number(bytes, 0)?;
    let mut parts = Vec::new();
    for _ in 0..count {
        let (length, start) = number(bytes, at)?;
        parts.push(bytes.get(start..start + length)?.to_vec());
        at = start + length + 2;
        bytes.get(at - 1)?;
    }
    Some((parts, at))
}

/// The number of a line that begins with a mark, and where the next one begins.
fn number(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let line = bytes.get(at..)?;
    let end = line.windows(2).position(|pair| pair == b"\r\n")?;
    let digits = std::str::from_utf8(line.get(1..end)?).ok()?;
    Some((digits.parse().ok()?, at + end + 2))
}
