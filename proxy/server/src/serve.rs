//! Accepting clients: one task and one backend connection for each. While the backend cannot be
//! served, a client's connection is closed at once, as it would be by a server that is down.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::facts::Standing;
use crate::metrics::{ConnectionState, ProtocolErrorKind, Side};
use crate::session::Session;
use crate::shared::Shared;
use crate::sockets;
use crate::wires::End;

/// Pause after accepting failed, for example because no file descriptor was left.
const BREATH: Duration = Duration::from_millis(50);

/// Accepts until the proxy drains, then waits until every client is gone or time is up.
pub(crate) async fn clients(shared: Arc<Shared>, listener: TcpListener, patience: Duration) {
    let mut sessions = JoinSet::new();
    let mut drain = shared.drain.subscribe();
    while !*drain.borrow() {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    sessions.spawn(client(shared.clone(), stream, peer));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a client");
                    tokio::time::sleep(BREATH).await;
                }
            },
            _ = sessions.join_next(), if !sessions.is_empty() => {}
            _ = drain.changed() => {}
        }
    }
    drop(listener);
    let gone = async { while sessions.join_next().await.is_some() {} };
    if tokio::time::timeout(patience, gone).await.is_err() {
        tracing::warn!(
            clients = sessions.len(),
            "closing the connections that are still in use"
        );
    }
    sessions.shutdown().await;
}

async fn client(shared: Arc<Shared>, stream: TcpStream, peer: SocketAddr) {
    if let Err(error) = sockets::prepare_client(&stream) {
        tracing::debug!(%peer, %error, "a client was gone before it was served");
        return;
    }
    if let Standing::NotServing(_) = &*shared.server.standing() {
        return;
    }
    let backend = match connect(&shared).await {
        Ok(backend) => backend,
        Err(error) => {
            // The upkeep connection says once that the backend is down; here it is one client.
            tracing::debug!(%peer, %error, "a client was closed: no backend");
            return;
        }
    };
    let open = shared.metrics.backend_connections.at(ConnectionState::Open);
    open.inc();
    let mut session = Session::new(shared.clone(), stream, backend, peer);
    let end = session.serve().await;
    if session.took_leave {
        session.report_outlived();
    }
    drop(session);
    open.dec();
    match end {
        End::Client | End::Done | End::Backend => {
            tracing::debug!(%peer, %end, "a client's session ended")
        }
        End::OutOfStep(_) => {
            let unexpected = shared.metrics.protocol_errors.at(Side::Backend);
            unexpected.at(ProtocolErrorKind::Unexpected).inc();
            tracing::error!(%peer, %end, "a client's connections were closed");
        }
    }
}

async fn connect(shared: &Shared) -> Result<TcpStream, crate::backend::BackendError> {
    let connecting = shared
        .metrics
        .backend_connections
        .at(ConnectionState::Connecting);
    connecting.inc();
    let connected = shared.backend.connect().await;
    connecting.dec();
    connected
}

/// A switch that sessions wait for.
pub(crate) fn drain_switch() -> watch::Sender<bool> {
    watch::Sender::new(false)
}
