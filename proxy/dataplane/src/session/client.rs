//! One client as the proxy knows it: everything of a session except its sockets. What follows from a command is
//! computed from this alone, so it can be tested without a connection.

pub(super) mod block;
pub(super) mod connection_state;
pub mod entry;
pub(super) mod login;
pub(super) mod sharing;
pub(super) mod watch;

use std::sync::Arc;
use std::time::Instant;

use arc_swap::{ArcSwap, Cache};
use bytes::Bytes;
use lockwarden_control::clock::Moment;
use lockwarden_control::net::peer::PeerAddress;
use lockwarden_control::ruleset::Active;
use lockwarden_control::ruleset::rollout::Application;
use lockwarden_control::telemetry::events::{Asked, Caller, SessionNumber};
use lockwarden_control::telemetry::metrics::Tally;
use lockwarden_control::telemetry::vocabulary::{CommandClass, CommandResult, LatencyPath};
use lockwarden_discovery::FirstWrites;
use lockwarden_lock::classify::{self, Class, MAX_VALUE_BYTES};
use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::decision::ClientDescription;
use lockwarden_lock::evidence::{Evidence, Own};
use lockwarden_lock::rules::Mode;
use lockwarden_lock::settle::Circumstances;
use lockwarden_lock::time::ProxyTime;
use lockwarden_lock::token::{Grant, Identity};

use crate::backend::profile::Login;
use crate::holders::handover::Ended;
use crate::registry::clients::Holder;
use crate::registry::undelivered::PendingGrants;
use crate::session::client::connection_state::ConnectionState;
use crate::session::transport::request_buffer::RequestBuffer;
use crate::state::ProxyState;

/// See the module.
pub struct Client {
    pub(crate) shared: Arc<ProxyState>,
    pub(crate) active: Cache<Arc<ArcSwap<Active>>, Arc<Active>>,
    /// The configuration as this client sees it, if that depends on the client.
    view: Option<Seen>,
    pub(crate) connection: ConnectionState,
    pub(crate) evidence: Evidence,
    pub(crate) pending_grants: PendingGrants,
    /// The counters of this thread.
    tally: Arc<Tally>,
    pub peer: PeerAddress,
    pub(crate) number: SessionNumber,
    /// The same with the way to wake it, for keep-alive.
    pub(crate) holder: Holder,
    /// The client as it presents itself now, for the event log.
    pub(super) caller: Arc<Caller>,
    /// What the policies were asked about the command that is being judged, where questions are kept.
    pub(crate) asked: Vec<Asked>,
    /// The locks for which the last step found a refusal, each with the refusal's name, until the error line is
    /// written.
    pub(crate) refused: Vec<(Bytes, String)>,
    /// What is known of whether this connection leads to a replica.
    pub(crate) replica: Suspicion,
    /// How its connection ended.
    pub(super) ended: Ended,
    /// Requests that have come.
    pub(super) requests: u64,
    /// The number of its first request that is not about the connection itself. If that request takes a lock, the
    /// client may have connected only for that.
    first_command: Option<u64>,
    /// The lock that it took with that request.
    pub(crate) first_lock: Option<(DbKey, Grant)>,
    /// Until when it may hold a lock that no namespace has, Unix time, ms; 0: it holds none.
    pub(super) may_hold_until_ms: u64,
    /// What it wrote before it took a lock.
    pub(super) first_writes: FirstWrites,
}

/// What is known of whether this connection leads to a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suspicion {
    /// No error was seen that only a replica gives.
    None,
    /// An error was seen that only a replica gives, or that a script made up.
    Raised,
    /// The server was asked.
    Asked,
    /// It is a replica.
    Confirmed,
}

/// The configuration as a client with this identity sees it.
struct Seen {
    of: Arc<Active>,
    client: Identity,
    seen: Arc<Active>,
}

impl Client {
    /// A client that has said nothing yet.
    pub fn new(
        shared: Arc<ProxyState>,
        holder: Holder,
        peer: PeerAddress,
        connection: ConnectionState,
        tally: Arc<Tally>,
    ) -> Client {
        let number = holder.session;
        Client {
            active: Cache::new(shared.active.clone()),
            view: None,
            caller: caller(number, peer, &connection),
            shared,
            connection,
            evidence: Evidence::default(),
            pending_grants: PendingGrants::default(),
            tally,
            peer,
            number,
            holder,
            asked: Vec::new(),
            refused: Vec::new(),
            replica: Suspicion::None,
            ended: Ended::ByUs,
            requests: 0,
            first_command: None,
            first_lock: None,
            may_hold_until_ms: 0,
            first_writes: FirstWrites::default(),
        }
    }

    /// Notes whether the request at hand is the first that is not about the connection itself.
    pub(super) fn note_first_command(&mut self, class: &Class<'_>) {
        if self.first_command.is_none() && !matches!(class, Class::Session(..)) {
            self.first_command = Some(self.requests);
        }
    }

    /// Whether it is.
    pub(super) fn is_first_command(&self) -> bool {
        self.first_command == Some(self.requests)
    }

    /// Makes this client's present identity known to the rest of the proxy.
    pub(crate) fn introduce(&mut self) {
        self.caller = caller(self.number, self.peer, &self.connection);
        let who = self.connection.who();
        self.shared.clients.put((who.client, who.application), self.connection.peer(), &self.caller);
    }

    /// The client is logged in as this user from now on.
    pub(super) fn logged_in(&mut self, login: Login) {
        self.connection.set_user(login.user.clone());
        let may_have_twin = self.may_have_twin();
        self.connection.login.succeeded(login, may_have_twin);
        self.introduce();
    }

    /// A lock's value that is too long to be judged is refused whatever it is, so it need not be kept until it has
    /// come whole.
    pub(super) fn look_at_long_argument(&mut self, inbox: &mut RequestBuffer) {
        if self.refuses_long_argument(inbox) {
            inbox.replace_long_argument(MAX_VALUE_BYTES + 1);
        } else {
            inbox.keep_long_argument();
        }
    }

    fn refuses_long_argument(&mut self, inbox: &RequestBuffer) -> bool {
        let (Some(awaited), Some(name), Some(key)) = (inbox.long_argument(), inbox.arg_so_far(0), inbox.arg_so_far(1))
        else {
            return false;
        };
        let active = self.active();
        classify::has_value_at(name, awaited.place)
            && active.namespaces.find(key).is_some_and(|namespace| active.rules(namespace).mode == Mode::Enforce)
    }

    /// Whether Redis may refuse its commands because it has not logged in.
    pub(super) fn may_lack_login(&self) -> bool {
        !self.connection.login.is_done() && self.shared.backend.server.may_want_password()
    }

    pub(super) fn holds_a_lease(&self, now: Instant) -> bool {
        let lives = |own: &Own| own.ends.is_none_or(|ends| ends > now);
        self.evidence.held().any(|(_, own)| lives(own)) || self.shared.keeps_leases_of(self.number)
    }

    /// The configuration in force, as this client sees it.
    pub(crate) fn active(&mut self) -> Arc<Active> {
        let active = self.active.load().clone();
        self.seen(active)
    }

    /// The same configuration as this client sees it now. What a client says of itself can change while replies are
    /// awaited, so callers that have awaited one call this again.
    pub(crate) fn seen(&mut self, active: Arc<Active>) -> Arc<Active> {
        if active.rollouts.is_none() {
            return active;
        }
        let client = self.connection.client();
        if let Some(view) = &self.view
            && view.client == client
            && (Arc::ptr_eq(&view.of, &active) || Arc::ptr_eq(&view.seen, &active))
        {
            return view.seen.clone();
        }
        let application = Application {
            name: self.connection.name(),
            user: self.connection.user(),
            address: self.peer,
            certificate: self.certificate(),
            entrance: self.connection.peer().known_by.entrance(),
        };
        let seen = active.seen_by(&application);
        self.view = Some(Seen { of: active, client, seen: seen.clone() });
        seen
    }

    pub(crate) fn circumstances(&self, now: Moment) -> Circumstances {
        Circumstances {
            db: self.connection.db(),
            client: self.number.0,
            time: ProxyTime(now.unix_ms),
            now: now.at,
            transactional: self.connection.block.is_some(),
        }
    }

    pub(crate) fn description(&self) -> ClientDescription {
        ClientDescription {
            name: String::from_utf8_lossy(self.connection.name()).into_owned(),
            user: String::from_utf8_lossy(self.connection.user()).into_owned(),
            address: self.peer.host(),
            certificate: self.certificate().map(str::to_owned),
            application: self.caller().steady_application(),
        }
    }

    /// The name in its certificate.
    pub fn certificate(&self) -> Option<&str> {
        self.connection.peer().known_by.certificate()
    }

    /// A command that concerns no lock was forwarded. One in `SAMPLED_ONE_IN` is timed, from here on.
    pub(super) fn passed_through(&mut self, sampled: Option<Instant>) {
        self.queued();
        self.count(CommandClass::PassThrough, CommandResult::Ok);
        if let Some(begun) = sampled {
            let latency = &self.shared.metrics.added_latency;
            let latency = latency.at(LatencyPath::PassThrough);
            latency.observe(begun.elapsed().as_secs_f64());
        }
    }

    /// A passed-through command, for the counters.
    pub fn count(&self, class: CommandClass, result: CommandResult) {
        self.tally.command(class, result);
    }
}

/// The client behind a session, as it presents itself now.
fn caller(session: SessionNumber, address: PeerAddress, state: &ConnectionState) -> Arc<Caller> {
    Arc::new(Caller {
        session,
        address,
        name: state.name().clone(),
        user: state.user().clone(),
        library: state.library.told(),
        known_by: state.peer().known_by.clone(),
    })
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use lockwarden_control::net::arrival::Arrival;
    use lockwarden_control::net::certificate_name::CertificateName;
    use lockwarden_control::random;
    use lockwarden_lock::token::SessionId;

    use super::*;
    use crate::registry::clients::ClientConnection;
    use crate::state;

    fn description(certificate: Option<&str>) -> ClientDescription {
        let shared = state::for_tests("");
        let address = SocketAddr::from(([10, 0, 0, 7], 40_000));
        let certificate = certificate.map(|name| CertificateName::new(name.as_bytes()));
        let arrival =
            Arrival { certificate: certificate.map(|name| name.expect("a name")), ..Arrival::direct(address.into()) };
        let (session, holder) = (SessionId(random::sixteen()), Holder::new());
        let naming = Arc::default();
        let connection = ClientConnection::new(session, holder.clone(), arrival, Some(address), naming);
        let state = ConnectionState::new(Arc::new(connection), true);
        Client::new(shared, holder, address.into(), state, Arc::default()).description()
    }

    #[test]
    fn a_policy_is_told_the_name_in_the_certificate() {
        let expected = |certificate: Option<&str>| ClientDescription {
            user: "default".to_owned(),
            address: "10.0.0.7".to_owned(),
            certificate: certificate.map(str::to_owned),
            application: certificate.unwrap_or("10.0.0.7").to_owned(),
            ..ClientDescription::default()
        };
        for certificate in [None, Some("spiffe://corp/ns/shop/api")] {
            assert_eq!(description(certificate), expected(certificate));
        }
    }
}
