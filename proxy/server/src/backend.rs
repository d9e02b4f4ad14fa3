//! Where the backend is, and how to reach it. Also the small client of the proxy's own connection:
//! one request, one reply, with a deadline. Clients' traffic does not come here; see `session::transport`.

mod address;
mod conversation;
pub(crate) mod functions;
mod link;
mod own_login;
pub(crate) mod pool;
pub(crate) mod profile;
pub(crate) mod rights;
pub(crate) mod server_info;
pub(crate) mod shared_connection;

use std::sync::Arc;

use crate::telemetry::metrics::Metrics;
use crate::telemetry::vocabulary::ConnectionState;
pub(crate) use address::Address;
pub(crate) use conversation::{BackendError, Conversation};
pub(crate) use link::Link;
use profile::Profile;
use server_info::Server;

/// The server: where it is, and what is known of it.
pub(crate) struct Backend {
    pub(crate) address: Address,
    pub(crate) server: Server,
    pub(crate) metrics: Arc<Metrics>,
}

impl Backend {
    pub(crate) fn new(address: Address, metrics: Arc<Metrics>) -> Backend {
        Backend {
            address,
            server: Server::default(),
            metrics,
        }
    }

    /// Opens a connection of this kind for clients.
    pub(crate) async fn open(&self, profile: &Profile) -> Result<Link, BackendError> {
        let (metrics, era) = (&self.metrics, self.server.era());
        let connecting = metrics.backend_connections.at(ConnectionState::Connecting);
        connecting.inc();
        let opened = self.address.introduced(profile).await;
        connecting.dec();
        let open = metrics.backend_connections.at(ConnectionState::Open);
        opened.map(|stream| Link::new(stream, era, open))
    }
}
