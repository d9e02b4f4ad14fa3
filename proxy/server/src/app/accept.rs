//! Accepts clients: one task for each, with a connection to the backend. While the backend cannot be served, a client's
//! connection is closed at once, as a server that is down would do; while only the proxy's own connection is being restored, a
//! client waits for it.

mod admission;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use lockwarden_control::net::arrival::Arrival;
use lockwarden_control::net::certificate_name::CertificateName;
use lockwarden_control::net::peer::PeerAddress;
use lockwarden_control::net::proxy_protocol::HeaderError;
use lockwarden_control::net::stream::Stream;
use lockwarden_control::net::tls::{HandshakeError, NamedBy, Shown};
use lockwarden_control::net::unix_listener::SocketFile;
use lockwarden_control::net::{listener, proxy_protocol};
use lockwarden_control::random;
use lockwarden_control::telemetry::vocabulary::{ProtocolErrorKind, Side};
use lockwarden_dataplane::front::Front;
use lockwarden_dataplane::presented;
use lockwarden_dataplane::session::Session;
use lockwarden_dataplane::session::enter::enter;
use lockwarden_dataplane::state::ProxyState;
use lockwarden_lock::token::SessionId;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::endpoints::{Gate, Listening, Security};
use super::workers::{Seats, Workers};
use admission::Admission;

/// Pause after accepting failed, for example because no file descriptor was left.
const BREATH: Duration = Duration::from_millis(50);

/// While the proxy drains, sessions that continued check this often whether they may end.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Closing a listener resets connections that are not accepted yet; so clients are still accepted for this long after the order
/// to stop.
const LAST_ARRIVALS: Duration = Duration::from_millis(100);

/// How long a stopping proxy waits for its clients.
pub(crate) struct Patience {
    /// The longest wait.
    pub(crate) most: Duration,
    /// Ends the wait early, at a second signal.
    pub(crate) over: Arc<Notify>,
}

/// One listener in the runtime of this thread.
enum Listener {
    Tcp(TcpListener, Gate),
    Unix(UnixListener),
}

impl Listener {
    /// Together with its socket file, which is removed with the listener.
    fn attach(listening: Listening) -> io::Result<(Listener, Option<SocketFile>)> {
        Ok(match listening {
            Listening::Tcp(listener, gate) => {
                let listener = TcpListener::from_std(listener)?;
                (Listener::Tcp(listener, gate), None)
            }
            Listening::Unix(listener, file) => {
                let listener = UnixListener::from_std(listener)?;
                (Listener::Unix(listener), Some(file))
            }
        })
    }

    async fn accept(&self) -> io::Result<Newcomer> {
        match self {
            Listener::Tcp(listener, gate) => {
                let (stream, peer) = listener.accept().await?;
                Ok(Newcomer { stream: stream.into(), peer: peer.into(), gate: gate.clone() })
            }
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let peer = PeerAddress::of_unix(&stream);
                Ok(Newcomer { stream: stream.into(), peer, gate: Gate::plain() })
            }
        }
    }
}

/// A client that has just connected.
struct Newcomer {
    stream: Stream,
    peer: PeerAddress,
    gate: Gate,
}

/// Accepts at all listeners until the proxy drains, and a little longer.
pub(crate) async fn accept(shared: Arc<ProxyState>, listeners: Vec<Listening>, seats: Seats) {
    let mut accepting = JoinSet::new();
    for listening in listeners {
        match Listener::attach(listening) {
            Ok((listener, file)) => {
                let (shared, seats) = (shared.clone(), seats.clone());
                accepting.spawn_local(async move {
                    accept_at(shared, listener, seats).await;
                    drop(file);
                });
            }
            Err(error) => tracing::error!(%error, "a listener failed"),
        }
    }
    accepting.join_all().await;
}

async fn accept_at(shared: Arc<ProxyState>, listener: Listener, seats: Seats) {
    let mut admission = Admission::new(shared.clone());
    let mut drain = shared.drain.subscribe();
    while !*drain.borrow() {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(newcomer) => seat(&shared, newcomer, &seats, &mut admission),
                Err(error) => {
                    admission.failed(&error);
                    tokio::time::sleep(BREATH).await;
                }
            },
            _ = drain.changed() => {}
        }
    }
    let begun = Instant::now();
    while let Some(left) = LAST_ARRIVALS.checked_sub(begun.elapsed())
        && let Ok(Ok(newcomer)) = tokio::time::timeout(left, listener.accept()).await
    {
        seat(&shared, newcomer, &seats, &mut admission);
    }
}

fn seat(shared: &Arc<ProxyState>, mut newcomer: Newcomer, seats: &Seats, admission: &mut Admission) {
    if !admission.admits(&mut newcomer.stream, newcomer.gate.security, seats.clients()) {
        return;
    }
    let shared = shared.clone();
    let seat = seats.free();
    if seat.is_here() {
        tokio::task::spawn_local(async move {
            client(shared, newcomer).await;
            drop(seat);
        });
        return;
    }
    let Newcomer { stream, peer, gate } = newcomer;
    // The other thread has a runtime of its own.
    match stream.detach() {
        Ok(stream) => seats.serve(seat, move |seat| async move {
            match stream.attach() {
                Ok(stream) => {
                    client(shared, Newcomer { stream, peer, gate }).await;
                }
                Err(error) => tracing::warn!(%peer, %error, "cannot serve a client"),
            }
            drop(seat);
        }),
        Err(error) => tracing::warn!(%peer, %error, "cannot serve a client"),
    }
}

/// Waits until every client is gone or the patience is over.
pub(crate) async fn until_all_are_gone(shared: &ProxyState, workers: &Workers, patience: Patience) {
    let gone = async {
        let mut look_again = tokio::time::interval(LOOK_AGAIN);
        look_again.reset();
        let empty = workers.empty();
        tokio::pin!(empty);
        loop {
            tokio::select! {
                () = &mut empty => return,
                _ = look_again.tick() => shared.keep_draining(),
            }
        }
    };
    tokio::select! {
        () = gone => {}
        () = tokio::time::sleep(patience.most) => {}
        () = patience.over.notified() => {}
    }
}

async fn client(shared: Arc<ProxyState>, newcomer: Newcomer) {
    // On the heap, and only until the client is served: none of it stays in memory beside an idle session.
    let Some((served, said)) = Box::pin(begin(&shared, newcomer)).await else {
        return;
    };
    let connections = &shared.metrics.client_connections;
    connections.inc();
    match served {
        Served::BySession(session) => session.serve_to_end(said).await,
        // In its own box, so that an idle session does not reserve space for it.
        Served::ByFront(front) => Box::pin(front.run(said)).await,
    }
    connections.dec();
}

/// The part that serves a client.
enum Served {
    /// A session with the only server.
    BySession(Box<Session>),
    /// A front with sessions for the shards of a cluster.
    ByFront(Box<Front>),
}

/// The steps before a client is served: its identity, its handshake, its connection to the backend. Returns its session and the
/// bytes that it has sent already; a client of a presented sentinel is served here.
async fn begin(shared: &Arc<ProxyState>, newcomer: Newcomer) -> Option<(Served, BytesMut)> {
    let Newcomer { mut stream, peer, gate } = newcomer;
    if let Err(error) = listener::prepare_client(&stream) {
        tracing::debug!(%peer, %error, "a client was gone before it was served");
        return None;
    }
    // A sentinel needs no backend: it names the proxy while the proxy waits for its backend.
    if gate.sentinel.is_none() && !shared.settles_to_serve().await {
        return None;
    }
    let (mut arrival, mut said) = match introduction(shared, &mut stream, peer).await {
        Ok(introduction) => introduction,
        Err(error) => {
            not_introduced(shared, peer, &error);
            return None;
        }
    };
    let peer = arrival.peer;
    if gate.security == Security::Tls {
        let (secured, certificate) = match secure(shared, peer, stream, &said).await {
            Ok(secured) => secured,
            Err(error) => {
                not_secured(shared, peer, &error);
                return None;
            }
        };
        (stream, said) = (secured, BytesMut::new());
        arrival.certificate = certificate.or(arrival.certificate);
        arrival.needs_certificate = shared.needs_certificates;
    }
    if let Some(sentinel) = &gate.sentinel {
        presented::serve(shared, sentinel, stream, peer, said).await;
        return None;
    }
    let served = match shared.shards.map() {
        Some(_) => {
            let front = Front::open(shared, stream, arrival, gate.cluster.as_deref()).await;
            front.map(|front| Served::ByFront(Box::new(front)))
        }
        None => enter(shared, &arrival).await.map(|(link, entry)| {
            Served::BySession(Box::new(Session::new(
                shared.clone(),
                stream,
                link,
                arrival,
                entry,
                SessionId(random::sixteen()),
            )))
        }),
    };
    match served {
        Ok(served) => Some((served, said)),
        Err(error) => {
            // The upkeep connection logs once that the backend is down; this is about one client.
            tracing::debug!(%peer, %error, "a client was closed: no backend");
            None
        }
    }
}

/// The identity of the client: from its connection, or from the header that a load balancer has to send first.
async fn introduction(
    shared: &ProxyState,
    stream: &mut Stream,
    peer: PeerAddress,
) -> Result<(Arrival, BytesMut), HeaderError> {
    let balancers = &shared.proxy_protocol_from;
    match peer {
        PeerAddress::Tcp(address) if balancers.iter().any(|network| network.contains(address.ip())) => {
            let told = proxy_protocol::read_header(stream, address).await?;
            let arrival = Arrival {
                peer: told.source.into(),
                origin: told.origin,
                endpoint: told.extensions.endpoint,
                certificate: told.extensions.common_name.filter(|_| shared.takes_common_names),
                ..Arrival::direct(peer)
            };
            Ok((arrival, told.rest))
        }
        PeerAddress::Tcp(_) | PeerAddress::Unix(_) => Ok((Arrival::direct(peer), BytesMut::new())),
    }
}

fn not_introduced(shared: &ProxyState, peer: PeerAddress, error: &HeaderError) {
    let kind = match error {
        HeaderError::Malformed(_) | HeaderError::Late => ProtocolErrorKind::Malformed,
        HeaderError::TooLong => ProtocolErrorKind::Limit,
        // Health checks of load balancers look like this.
        HeaderError::Ended(_) => {
            tracing::debug!(%peer, %error, "a connection was not used");
            return;
        }
    };
    let errors = shared.metrics.protocol_errors.at(Side::Client);
    errors.at(kind).inc();
    tracing::info!(%peer, %error, "closing a connection: it has to begin with a PROXY header");
}

/// Runs the TLS handshake with a client that has sent these bytes already; returns also the name in its certificate.
async fn secure(
    shared: &ProxyState,
    peer: PeerAddress,
    stream: Stream,
    said: &[u8],
) -> Result<(Stream, Option<CertificateName>), HandshakeError> {
    match (stream, shared.certificates.acceptor()) {
        (Stream::Tcp(socket), Some(acceptor)) => {
            let (stream, shown) = acceptor.accept(socket, said).await?;
            let name = match shown {
                Shown::Name(name) => Some(name),
                Shown::Nothing => None,
                Shown::Nameless(by) => {
                    nameless(shared, peer, by);
                    None
                }
            };
            Ok((Stream::Tls(Box::new(stream)), name))
        }
        // Every listener with TLS has a port and certificates.
        _ => Err(HandshakeError::Plain),
    }
}

fn nameless(shared: &ProxyState, peer: PeerAddress, by: NamedBy) {
    if let Some(times) = shared.certificates.was_nameless() {
        tracing::warn!(
            %peer,
            client_name = by.word(),
            times,
            "a client's certificate has no name of the kind that client_name asks for, so the client has none"
        );
    }
}

fn not_secured(shared: &ProxyState, peer: PeerAddress, error: &HandshakeError) {
    if let HandshakeError::Unused = error {
        tracing::debug!(%peer, %error, "a connection was not used");
        return;
    }
    if let HandshakeError::Plain = error {
        let errors = shared.metrics.protocol_errors.at(Side::Client);
        errors.at(ProtocolErrorKind::NoTls).inc();
    }
    if let Some(failures) = shared.certificates.handshake_failed() {
        tracing::warn!(%peer, why = %error, failures, "TLS handshake failed");
    }
}
