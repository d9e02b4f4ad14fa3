//! Accepting clients: one task for each, and a way to the backend. While the backend cannot be
//! served, a client's connection is closed at once, as it would be by a server that is down.

mod admission;

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::endpoints::Listening;
use super::workers::{Seats, Workers};
use crate::backend::BackendError;
use crate::backend::profile::Profile;
use crate::backend::server_info::Standing;
use crate::backend::shared_connection::Attachment;
use crate::config::Sessions;
use crate::net::peer::PeerAddress;
use crate::net::proxy_protocol::{HeaderError, Origin};
use crate::net::stream::Stream;
use crate::net::unix_listener::SocketFile;
use crate::net::{listener, proxy_protocol};
use crate::session::Session;
use crate::session::transport::{BackendLink, End};
use crate::state::ProxyState;
use crate::telemetry::vocabulary::{ProtocolErrorKind, Side};
use admission::Admission;

/// Pause after accepting failed, for example because no file descriptor was left.
const BREATH: Duration = Duration::from_millis(50);

/// While the proxy drains, sessions that went on look this often whether they may go.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A listener that is closed resets those who have connected and were not accepted yet; so for so
/// long after the order to stop, whoever comes is still let in.
const LAST_ARRIVALS: Duration = Duration::from_millis(100);

/// How long a stopping proxy waits for its clients.
pub(crate) struct Patience {
    /// At most so long.
    pub(crate) most: Duration,
    /// Or until somebody asks a second time.
    pub(crate) over: Arc<Notify>,
}

/// One listener in the runtime of this thread.
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// With the file that goes when it does.
    fn attach(listening: Listening) -> io::Result<(Listener, Option<SocketFile>)> {
        Ok(match listening {
            Listening::Tcp(listener) => (Listener::Tcp(TcpListener::from_std(listener)?), None),
            Listening::Unix(listener, file) => {
                let listener = UnixListener::from_std(listener)?;
                (Listener::Unix(listener), Some(file))
            }
        })
    }

    async fn accept(&self) -> io::Result<Newcomer> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok((stream.into(), peer.into()))
            }
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let peer = PeerAddress::of_unix(&stream);
                Ok((stream.into(), peer))
            }
        }
    }
}

/// Who has just connected.
type Newcomer = (Stream, PeerAddress);

/// Accepts at all of them until the proxy drains, and a little longer.
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

fn seat(
    shared: &Arc<ProxyState>,
    (mut stream, peer): Newcomer,
    seats: &Seats,
    admission: &mut Admission,
) {
    if !admission.admits(&mut stream, seats.clients()) {
        return;
    }
    let shared = shared.clone();
    let seat = seats.free();
    if seat.is_here() {
        tokio::task::spawn_local(async move {
            client(shared, stream, peer).await;
            drop(seat);
        });
        return;
    }
    // The other thread has a runtime of its own.
    match stream.detach() {
        Ok(stream) => seats.serve(seat, move |seat| async move {
            match stream.attach() {
                Ok(stream) => client(shared, stream, peer).await,
                Err(error) => tracing::warn!(%peer, %error, "cannot serve a client"),
            }
            drop(seat);
        }),
        Err(error) => tracing::warn!(%peer, %error, "cannot serve a client"),
    }
}

/// Waits until every client is gone or patience is over.
pub(crate) async fn until_all_are_gone(shared: &ProxyState, workers: &Workers, patience: Patience) {
    let gone = async {
        let mut look_again = tokio::time::interval(LOOK_AGAIN);
        look_again.reset();
        let empty = workers.empty();
        tokio::pin!(empty);
        loop {
            tokio::select! {
                () = &mut empty => return,
                _ = look_again.tick() => shared.start_draining(),
            }
        }
    };
    tokio::select! {
        () = gone => {}
        () = tokio::time::sleep(patience.most) => {}
        () = patience.over.notified() => {}
    }
}

async fn client(shared: Arc<ProxyState>, mut stream: Stream, peer: PeerAddress) {
    if let Err(error) = listener::prepare_client(&stream) {
        tracing::debug!(%peer, %error, "a client was gone before it was served");
        return;
    }
    if let Standing::NotServing(_) = &*shared.backend.server.standing() {
        return;
    }
    let (peer, origin, said) = match introduction(&shared, &mut stream, peer).await {
        Ok(introduction) => introduction,
        Err(error) => {
            not_introduced(&shared, peer, &error);
            return;
        }
    };
    let backend_link = match backend_link(&shared).await {
        Ok(backend_link) => backend_link,
        Err(error) => {
            // The upkeep connection says once that the backend is down; here it is one client.
            tracing::debug!(%peer, %error, "a client was closed: no backend");
            return;
        }
    };
    let mut session = Session::new(shared.clone(), stream, backend_link, (peer, origin));
    let end = session.serve(said).await;
    if session.took_leave {
        session.client.report_outlived();
    }
    drop(session);
    match end {
        End::Client | End::Done | End::Backend | End::Evicted => {
            tracing::debug!(%peer, %end, "a client's session ended")
        }
        End::OutOfStep(_) | End::Framing(_) => {
            let kind = match &end {
                End::Framing(error) => error.kind().into(),
                _ => ProtocolErrorKind::Unexpected,
            };
            let errors = shared.metrics.protocol_errors.at(Side::Backend);
            errors.at(kind).inc();
            tracing::error!(%peer, %end, "a client's connections were closed");
        }
    }
}

/// Where the client comes from: from where its connection does, or as a balancer has to say first.
async fn introduction(
    shared: &ProxyState,
    stream: &mut Stream,
    peer: PeerAddress,
) -> Result<(PeerAddress, Origin, BytesMut), HeaderError> {
    let balancers = &shared.proxy_protocol_from;
    match peer {
        PeerAddress::Tcp(address)
            if balancers
                .iter()
                .any(|network| network.contains(address.ip())) =>
        {
            let (source, origin, said) = proxy_protocol::read_header(stream, address).await?;
            Ok((source.into(), origin, said))
        }
        PeerAddress::Tcp(_) | PeerAddress::Unix(_) => Ok((peer, Origin::Direct, BytesMut::new())),
    }
}

fn not_introduced(shared: &ProxyState, peer: PeerAddress, error: &HeaderError) {
    let kind = match error {
        HeaderError::Malformed(_) | HeaderError::Late => ProtocolErrorKind::Malformed,
        HeaderError::TooLong => ProtocolErrorKind::Limit,
        // Balancers look so whether somebody listens.
        HeaderError::Ended(_) => {
            tracing::debug!(%peer, %error, "a connection was not used");
            return;
        }
    };
    let errors = shared.metrics.protocol_errors.at(Side::Client);
    errors.at(kind).inc();
    tracing::info!(%peer, %error, "closing a connection: it has to begin with a PROXY header");
}

/// The way to the backend that a client begins with.
async fn backend_link(shared: &Arc<ProxyState>) -> Result<BackendLink, BackendError> {
    if shared.sessions == Sessions::Multiplexed
        && let Some(port) = Attachment::new(&Profile::plain(), &shared.backend)
    {
        return Ok(BackendLink::shared(port));
    }
    let link = shared.backend.open(&Profile::plain()).await?;
    Ok(BackendLink::own(link))
}
