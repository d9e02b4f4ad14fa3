//! Where the backend is, and how to reach it. Also the small client of the proxy's own connection:
//! one request, one reply, with a deadline. Clients' traffic does not come here; see `session::transport`.

mod address;
mod authority;
pub mod cluster;
mod conversation;
pub(crate) mod functions;
mod heard;
mod info;
mod link;
pub mod open_connections;
pub mod own_login;
pub mod passwords;
pub mod pool;
pub mod profile;
pub mod rights;
pub mod sentinel;
pub mod server_info;
pub mod shared_connection;
pub mod strict;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub use address::Address;
pub use authority::{Agreement, Switch};
use cluster::ShardId;
pub use conversation::{BackendError, Conversation};
pub use link::Link;
use lockwarden_control::telemetry::metrics::Metrics;
use lockwarden_control::telemetry::vocabulary::ConnectionState;
use passwords::Passwords;
use profile::Profile;
use server_info::Server;
use strict::StrictTerms;

/// The server: its address, and what is known of it.
pub struct Backend {
    pub address: Address,
    pub server: Server,
    /// Which of the servers behind the process it is.
    pub shard: ShardId,
    /// What is known of it that `durability = "strict:…"` needs.
    pub strict: StrictTerms,
    pub(crate) metrics: Arc<Metrics>,
    /// The passwords that clients have logged in with.
    pub(crate) passwords: Passwords,
    /// It has answered, and its connection has not ended since.
    pub(crate) is_up: AtomicBool,
    /// It drops locks that are held when its memory is full.
    pub(crate) evicts_locks: AtomicBool,
}

impl Backend {
    pub fn new(address: Address, metrics: Arc<Metrics>) -> Backend {
        Backend {
            server: Server::new(address.open.clone()),
            shard: address.authority.map().map_or(ShardId::FIRST, |(_, shard)| shard),
            strict: StrictTerms::default(),
            address,
            metrics,
            passwords: Passwords::default(),
            is_up: AtomicBool::new(false),
            evicts_locks: AtomicBool::new(false),
        }
    }

    /// Opens a connection of this kind for clients.
    pub async fn open(&self, profile: &Profile) -> Result<Link, BackendError> {
        let (metrics, era) = (&self.metrics, self.server.era());
        let connecting = metrics.backend_connections.at(ConnectionState::Connecting);
        connecting.inc();
        let opened = self.converse_as(profile).await;
        connecting.dec();
        let open = metrics.backend_connections.at(ConnectionState::Open);
        opened.map(|conversation| Link::new(conversation.into_connected(), era, open))
    }

    /// The same for a question of the proxy's own. If a newer password of the same user may be used, it is tried
    /// first: a token that has expired is a failed login on the server, and many failed logins lock a user out.
    pub async fn converse_as(&self, profile: &Profile) -> Result<Conversation, BackendError> {
        let era = self.server.era();
        let newer = profile.login.as_ref();
        if let Some(login) = newer.and_then(|login| self.passwords.newer_than(login, era)) {
            let newer = Profile { login: Some(login.clone()), ..profile.clone() };
            match self.address.converse_as(&newer).await {
                Err(BackendError::Login(_)) => self.passwords.refused(&login),
                other => return other,
            }
        }
        self.address.converse_as(profile).await
    }
}
