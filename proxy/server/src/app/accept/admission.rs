//! Decides whether a new client may be served, by the number of clients and of file descriptors. Checked once per client; it
//! counts nothing on the path of a command.

use std::sync::Arc;
use std::time::Instant;

use lockwarden_control::config::Sessions;
use lockwarden_control::net::descriptors;
use lockwarden_control::net::stream::Stream;
use lockwarden_control::telemetry::logging::Pace;
use lockwarden_control::telemetry::vocabulary::ConnectionState;
use lockwarden_dataplane::state::ProxyState;

use crate::app::endpoints::Security;

/// The reply of Redis at its `maxclients`.
const FULL: &[u8] = b"-ERR max number of clients reached\r\n";

/// See the module.
pub(super) struct Admission {
    shared: Arc<ProxyState>,
    /// Descriptors that were open before the first client.
    base: u64,
    refused: Pace,
    failed: Pace,
}

impl Admission {
    pub(super) fn new(shared: Arc<ProxyState>) -> Admission {
        let admission =
            Admission { shared, base: descriptors::open(), refused: Pace::default(), failed: Pace::default() };
        admission.most();
        admission
    }

    /// Whether one more client may be served beside `clients`; if not, it gets the same error as from Redis.
    pub(super) fn admits(&mut self, newcomer: &mut Stream, security: Security, clients: usize) -> bool {
        let most = self.most();
        if (clients as u64) < most {
            return true;
        }
        if security == Security::Plain {
            // Its buffer is empty, so it accepts the line or is gone.
            let _ = newcomer.try_write(FULL);
        }
        self.shared.metrics.clients_refused.inc();
        if let Some(refused) = self.refused.line(Instant::now()) {
            tracing::warn!(
                clients,
                refused,
                descriptors = descriptors::limit(),
                "new clients are refused: there are as many as may be (max_clients, or the limit of open files)"
            );
        }
        false
    }

    /// Accepting failed: probably the whole system has no descriptor left.
    pub(super) fn failed(&mut self, error: &std::io::Error) {
        if let Some(times) = self.failed.line(Instant::now()) {
            tracing::warn!(%error, times, "cannot accept clients");
        }
    }

    /// The number of clients that are possible now.
    fn most(&self) -> u64 {
        let metrics = &self.shared.metrics;
        let free = descriptors::for_clients(self.base);
        let by_descriptors = match self.shared.sessions {
            // One descriptor for the client, and one for each server that it may use.
            Sessions::Dedicated => free / (1 + self.shared.shards.each().len().max(1) as u64),
            // There are few backend connections, and some clients have one of their own.
            Sessions::Multiplexed => {
                let states = [ConnectionState::Connecting, ConnectionState::Open];
                let taken = states.map(|state| metrics.backend_connections.at(state).get());
                let taken: i64 = taken.iter().sum();
                free.saturating_sub(u64::try_from(taken).unwrap_or(0))
            }
        };
        let asked_for = self.shared.max_clients.unwrap_or(u64::MAX);
        let most = by_descriptors.min(asked_for).max(1);
        metrics.client_connections_max.set(i64::try_from(most).unwrap_or(i64::MAX));
        most
    }
}
