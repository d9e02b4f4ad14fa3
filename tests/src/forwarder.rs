//! An address that leads to a server, as a virtual address or a balancer does. A test sets where new
//! connections go, may close or freeze open ones, and may cut off those from one address. It forwards bytes
//! without reading them, except to find the connections on which certain words were sent.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::client::connect_from;

/// Between two looks whether a connection is still frozen, or over.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What is remembered of what a client has said, in bytes.
const MAX_REMEMBERED: usize = 16 << 20;
/// Above so many connections those that are over are forgotten, and their descriptors given back.
const MAX_KEPT: usize = 64;

/// A running forwarder. Dropping it closes its connections.
pub struct Forwarder {
    address: SocketAddr,
    state: Arc<State>,
}

struct State {
    target: Mutex<SocketAddr>,
    /// Nothing is forwarded from or to these, and neither end is told.
    cut_off: Mutex<BTreeSet<IpAddr>>,
    /// Whether the server sees the addresses of clients.
    keeps_sources: bool,
    connections: Mutex<Vec<Arc<Connection>>>,
    is_over: AtomicBool,
}

/// One connection through it.
struct Connection {
    client: TcpStream,
    source: IpAddr,
    server: TcpStream,
    /// Nothing more is forwarded, and neither end is told.
    is_frozen: AtomicBool,
    is_over: AtomicBool,
    /// How many of the two directions still forward.
    ways_open: AtomicUsize,
    /// What the client has sent first.
    said: Mutex<Vec<u8>>,
}

impl Forwarder {
    /// Leads to this server.
    #[track_caller]
    pub fn to(target: SocketAddr) -> Forwarder {
        Forwarder::launched(target, false)
    }

    /// Leads to this server, which sees each client's own address, as behind a router.
    #[track_caller]
    pub fn transparent_to(target: SocketAddr) -> Forwarder {
        Forwarder::launched(target, true)
    }

    #[track_caller]
    fn launched(target: SocketAddr, keeps_sources: bool) -> Forwarder {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        let state = Arc::new(State {
            target: Mutex::new(target),
            cut_off: Mutex::default(),
            keeps_sources,
            connections: Mutex::default(),
            is_over: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&state);
        thread::spawn(move || accept(&listener, &accepting));
        Forwarder { address, state }
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// New connections go to this server from now on; those that are open stay where they are.
    pub fn leads_to(&self, target: SocketAddr) {
        *lock(&self.state.target) = target;
    }

    /// Ends every connection that is open.
    pub fn closes_all(&self) {
        for connection in lock(&self.state.connections).drain(..) {
            connection.end();
        }
    }

    /// Separates all clients at this address from the server, as a broken network does: connections stay, new ones
    /// can be made, and nothing comes through. Bytes that were sent meanwhile arrive after
    /// [`Forwarder::rejoins_all`].
    pub fn cuts_off(&self, source: IpAddr) {
        lock(&self.state.cut_off).insert(source);
    }

    /// Ends every [`Forwarder::cuts_off`].
    pub fn rejoins_all(&self) {
        lock(&self.state.cut_off).clear();
    }

    /// Freezes all open connections, and returns their number.
    pub fn freezes_all(&self) -> usize {
        self.freezes_those_that_said("")
    }

    /// Ends every freeze: bytes that were sent meanwhile arrive now.
    pub fn thaws_all(&self) {
        for connection in lock(&self.state.connections).iter() {
            connection.is_frozen.store(false, Ordering::Relaxed);
        }
    }

    /// Forwards nothing any more on the connections on which a client has said this; neither end is told.
    /// Returns the number of these connections.
    pub fn freezes_those_that_said(&self, words: &str) -> usize {
        let connections = lock(&self.state.connections);
        let chosen = connections.iter().filter(|one| one.has_said(words));
        chosen.map(|one| one.is_frozen.store(true, Ordering::Relaxed)).count()
    }

    /// Whether a client has said this on a connection that is open.
    pub fn has_heard(&self, words: &str) -> bool {
        let connections = lock(&self.state.connections);
        connections.iter().any(|one| one.has_said(words))
    }

    /// Sends these bytes to the clients that have sent these words, as if the server did. Returns the number
    /// of clients.
    #[track_caller]
    pub fn says_to_those_that_said(&self, words: &str, bytes: &[u8]) -> usize {
        let connections = lock(&self.state.connections);
        let chosen = connections.iter().filter(|one| one.has_said(words));
        chosen.map(|one| (&one.client).write_all(bytes).expect("an open connection")).count()
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        let connections = lock(&self.state.connections);
        let is_open = |one: &&Arc<Connection>| !one.is_over.load(Ordering::Relaxed);
        connections.iter().filter(is_open).count()
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::Relaxed);
        self.closes_all();
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

impl Connection {
    fn has_said(&self, words: &str) -> bool {
        let said = lock(&self.said);
        words.is_empty() || said.windows(words.len()).any(|part| part == words.as_bytes())
    }

    fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }

    fn stands_still(&self, state: &State) -> bool {
        self.is_frozen.load(Ordering::Relaxed) || lock(&state.cut_off).contains(&self.source)
    }

    /// Forwards one way until one side is gone.
    fn forward(&self, state: &State, mut from: &TcpStream, mut to: &TcpStream, heard: Option<&Mutex<Vec<u8>>>) {
        let mut bytes = vec![0; 64 * 1024];
        while !self.is_over.load(Ordering::Relaxed) {
            if self.stands_still(state) {
                thread::sleep(LOOK_EVERY);
                continue;
            }
            let read = match from.read(&mut bytes) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if is_for_now(error.kind()) => continue,
                Err(_) => break,
            };
            if let Some(heard) = heard {
                let mut heard = lock(heard);
                let room = MAX_REMEMBERED.saturating_sub(heard.len());
                heard.extend_from_slice(&bytes[..read.min(room)]);
            }
            while self.stands_still(state) && !self.is_over.load(Ordering::Relaxed) {
                thread::sleep(LOOK_EVERY);
            }
            if to.write_all(&bytes[..read]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
        self.ways_open.fetch_sub(1, Ordering::Relaxed);
    }
}

fn accept(listener: &TcpListener, state: &Arc<State>) {
    for client in listener.incoming() {
        if state.is_over.load(Ordering::Relaxed) {
            return;
        }
        let target = *lock(&state.target);
        let Ok(client) = client else {
            continue;
        };
        let Ok(source) = client.peer_addr() else {
            continue;
        };
        let server = match source.ip() {
            IpAddr::V4(source) if state.keeps_sources => connect_from(source, target),
            _ => TcpStream::connect(target),
        };
        // A server that is not there closes, as it would without us.
        let Ok(server) = server else {
            continue;
        };
        for stream in [&client, &server] {
            let _ = stream.set_nodelay(true);
            // So that a thread looks up now and then.
            let _ = stream.set_read_timeout(Some(Duration::from_millis(100)));
        }
        let connection = Arc::new(Connection {
            client,
            source: source.ip(),
            server,
            is_frozen: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            ways_open: AtomicUsize::new(2),
            said: Mutex::default(),
        });
        let mut connections = lock(&state.connections);
        if connections.len() > MAX_KEPT {
            connections.retain(|one| one.ways_open.load(Ordering::Relaxed) > 0);
        }
        connections.push(Arc::clone(&connection));
        drop(connections);
        let (up, this) = (Arc::clone(&connection), Arc::clone(state));
        thread::spawn(move || up.forward(&this, &up.client, &up.server, Some(&up.said)));
        let this = Arc::clone(state);
        thread::spawn(move || {
            connection.forward(&this, &connection.server, &connection.client, None);
            connection.is_over.store(true, Ordering::Relaxed);
        });
    }
}

fn is_for_now(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
