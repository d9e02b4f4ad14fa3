//! An address that leads to a server, as a virtual address or a balancer does: a test says where new
//! connections go, and may close or freeze those that are open. It forwards bytes and reads none of
//! them, but for telling connections apart by what was said on them.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Between two looks whether a connection is still frozen, or over.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A running forwarder. Dropping it closes its connections.
pub struct Forwarder {
    address: SocketAddr,
    state: Arc<State>,
}

struct State {
    target: Mutex<SocketAddr>,
    connections: Mutex<Vec<Arc<Connection>>>,
    is_over: AtomicBool,
}

/// One connection through it.
struct Connection {
    client: TcpStream,
    server: TcpStream,
    /// Nothing more is forwarded, and nobody is told.
    is_frozen: AtomicBool,
    is_over: AtomicBool,
    /// Everything that the client has said.
    said: Mutex<Vec<u8>>,
}

impl Forwarder {
    /// Leads to this server.
    #[track_caller]
    pub fn to(target: SocketAddr) -> Forwarder {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener
            .local_addr()
            .expect("a bound listener has an address");
        let state = Arc::new(State {
            target: Mutex::new(target),
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

    /// Forwards nothing any more on those connections on which a client has said this; nobody is told.
    /// Returns how many they are.
    pub fn freezes_those_that_said(&self, words: &str) -> usize {
        let connections = lock(&self.state.connections);
        let chosen = connections.iter().filter(|one| one.has_said(words));
        chosen
            .map(|one| one.is_frozen.store(true, Ordering::Relaxed))
            .count()
    }

    /// Whether a client has said this on a connection that is open.
    pub fn has_heard(&self, words: &str) -> bool {
        let connections = lock(&self.state.connections);
        connections.iter().any(|one| one.has_said(words))
    }

    /// Says this to those clients that have said that, as if the server did. Returns how many they are.
    #[track_caller]
    pub fn says_to_those_that_said(&self, words: &str, bytes: &[u8]) -> usize {
        let connections = lock(&self.state.connections);
        let chosen = connections.iter().filter(|one| one.has_said(words));
        chosen
            .map(|one| (&one.client).write_all(bytes).expect("an open connection"))
            .count()
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
        said.windows(words.len())
            .any(|part| part == words.as_bytes())
    }

    fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }

    /// Forwards one way until one side is gone.
    fn forward(&self, mut from: &TcpStream, mut to: &TcpStream, heard: Option<&Mutex<Vec<u8>>>) {
        let mut bytes = vec![0; 64 * 1024];
        while !self.is_over.load(Ordering::Relaxed) {
            if self.is_frozen.load(Ordering::Relaxed) {
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
                lock(heard).extend_from_slice(&bytes[..read]);
            }
            while self.is_frozen.load(Ordering::Relaxed) && !self.is_over.load(Ordering::Relaxed) {
                thread::sleep(LOOK_EVERY);
            }
            if to.write_all(&bytes[..read]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    }
}

fn accept(listener: &TcpListener, state: &Arc<State>) {
    for client in listener.incoming() {
        if state.is_over.load(Ordering::Relaxed) {
            return;
        }
        let target = *lock(&state.target);
        // A server that is not there closes, as it would without us.
        let (Ok(client), Ok(server)) = (client, TcpStream::connect(target)) else {
            continue;
        };
        for stream in [&client, &server] {
            let _ = stream.set_nodelay(true);
            // So that a thread looks up now and then.
            let _ = stream.set_read_timeout(Some(Duration::from_millis(100)));
        }
        let connection = Arc::new(Connection {
            client,
            server,
            is_frozen: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            said: Mutex::default(),
        });
        lock(&state.connections).push(Arc::clone(&connection));
        let up = Arc::clone(&connection);
        thread::spawn(move || up.forward(&up.client, &up.server, Some(&up.said)));
        thread::spawn(move || {
            connection.forward(&connection.server, &connection.client, None);
            connection.is_over.store(true, Ordering::Relaxed);
        });
    }
}

fn is_for_now(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
