//! Where the backend is: its name is looked up for every connection. If the name has several addresses, the primary's
//! is taken.

mod descent;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use arc_swap::ArcSwapOption;
use lockwarden_control::config::{BackendLogin, BackendUrl, HostAndPort, Secret, Target};
use lockwarden_control::net::listener;
use lockwarden_control::net::stream::Stream;
use lockwarden_control::net::tls::{BackendFiles, Connector, HandshakeError, Observe, TlsError};
use lockwarden_control::telemetry::metrics::Metrics;
use lockwarden_resp::Protocol;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout_at};

use super::authority::Authority;
use super::cluster::{ClusterMap, ShardId, Slots, nodes};
use super::conversation::{BackendError, Conversation, PATIENCE};
use super::open_connections::{Connected, OpenConnections};
use super::own_login::{Fresh, OwnLogin};
use super::profile::{Login, Profile};
use super::sentinel::{Named, Place, Sentinels};
use super::server_info::role::{Role, RoleQuestion};

/// Most addresses of the backend's name that are tried.
const MAX_ADDRESSES: usize = 16;

/// Where the backend is.
#[derive(Clone, Debug)]
pub struct Address {
    pub url: BackendUrl,
    /// How the proxy's own connections log in, if that is not in the URL.
    login: Option<Arc<OwnLogin>>,
    /// How the backend's identity is verified, if the URL asks for TLS.
    connector: Option<Arc<Connector>>,
    /// If a name has several addresses: the one that was the primary when last asked.
    primary: Arc<ArcSwapOption<Home>>,
    /// The source that says where the primary is.
    pub authority: Authority,
    /// Every connection that was made.
    pub(super) open: Arc<OpenConnections>,
}

/// One place where the backend may be.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Home {
    Tcp(SocketAddr),
    /// The same for a host that sentinels, or nodes of a cluster, named.
    Named(SocketAddr, Arc<Named>),
    Unix(PathBuf),
}

/// Why a connection to one place was not made.
enum ConnectError {
    Io(io::Error),
    Handshake(HandshakeError),
}

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> ConnectError {
        ConnectError::Io(error)
    }
}

/// As in the configuration; a shard of a cluster as its primary, once that is known.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.authority.map().and_then(|(map, shard)| map.primary(shard)) {
            Some(primary) => primary.place.fmt(f),
            None => self.url.fmt(f),
        }
    }
}

impl Address {
    /// Reads the files that TLS needs, if the URL asks for TLS.
    pub fn new(
        url: BackendUrl,
        login: Option<BackendLogin>,
        files: Option<&BackendFiles>,
        observer: Arc<dyn Observe>,
    ) -> Result<Address, TlsError> {
        let host = match &url.target {
            Target::Tcp { host, .. } => Some(host.as_str()),
            Target::Sentinel(_) | Target::Cluster(_) | Target::Unix(_) => None,
        };
        let connector = match url.tls {
            true => {
                let files = files.cloned().unwrap_or_default();
                Some(Arc::new(Connector::new(files, host, observer)?))
            }
            false => None,
        };
        let authority = match &url.target {
            Target::Sentinel(target) => Authority::Sentinels(Arc::new(Sentinels::new(target, connector.clone()))),
            Target::Cluster(nodes) => {
                Authority::of_shard(Arc::new(ClusterMap::new(nodes, connector.is_some())), ShardId::FIRST)
            }
            Target::Tcp { .. } | Target::Unix(_) => Authority::Address,
        };
        Ok(Address {
            url,
            login: login.map(|login| Arc::new(OwnLogin::new(login))),
            connector,
            primary: Arc::default(),
            authority,
            open: Arc::default(),
        })
    }

    /// The same login and the same TLS with another shard of the cluster.
    pub(crate) fn of_shard(&self, shard: ShardId) -> Address {
        let authority = match self.authority.map() {
            Some((map, _)) => Authority::of_shard(map.clone(), shard),
            None => self.authority.clone(),
        };
        Address { authority, ..self.elsewhere(self.url.target.clone()) }
    }

    /// The same login and TLS with one node of the cluster, in any role.
    pub(crate) fn of_node(&self, place: &Place) -> Address {
        self.elsewhere(Target::Tcp { host: place.host.clone(), port: place.port })
    }

    /// The primaries of a cluster, each with its own address, as the cluster's nodes name them now; a single server
    /// returns itself alone.
    pub async fn primaries(&self) -> Result<Vec<Address>, BackendError> {
        let Some(slots) = self.ask_for_slots().await? else {
            return Ok(vec![self.clone()]);
        };
        Ok(slots.with_slots().map(|(_, shard)| self.of_node(&shard.primary.place)).collect())
    }

    /// The same for all nodes that have not failed.
    pub async fn nodes(&self) -> Result<Vec<Address>, BackendError> {
        let Some(slots) = self.ask_for_slots().await? else {
            return Ok(vec![self.clone()]);
        };
        Ok(slots.places().iter().map(|place| self.of_node(place)).collect())
    }

    /// Its host and port, as messages about one of several servers give them.
    pub fn place(&self) -> String {
        match &self.url.target {
            Target::Tcp { host, port } => HostAndPort(host, *port).to_string(),
            Target::Unix(_) | Target::Sentinel(_) | Target::Cluster(_) => self.to_string(),
        }
    }

    /// The same login at another server.
    pub fn at(&self, other: &Address) -> Address {
        self.elsewhere(other.url.target.clone())
    }

    /// The map of the cluster, if there is one: the first node that returns it is trusted.
    async fn ask_for_slots(&self) -> Result<Option<Arc<Slots>>, BackendError> {
        let Some((map, _)) = self.authority.map() else {
            return Ok(None);
        };
        let mut silent = Vec::new();
        for place in map.places() {
            let at = Instant::now().into_std();
            let asked = async {
                let mut own = self.of_node(&place).converse().await?;
                nodes::ask(&mut own).await
            };
            match asked.await {
                Ok(Ok(nodes)) => {
                    map.told(&nodes, &place, at);
                }
                Ok(Err(why)) => silent.push(format!("{place}: {why}")),
                Err(error) => silent.push(format!("{place}: {error}")),
            }
            let slots = map.slots();
            if slots.served() > 0 {
                return Ok(Some(slots));
            }
        }
        map.is_silent(silent.join("; "));
        Err(BackendError::NoNode(map.silence()))
    }

    fn elsewhere(&self, target: Target) -> Address {
        Address {
            url: BackendUrl { target, ..self.url.clone() },
            login: self.login.clone(),
            connector: self.connector.clone(),
            primary: Arc::default(),
            authority: Authority::Address,
            open: Arc::default(),
        }
    }

    /// How the backend's identity is verified, if TLS is used.
    pub(crate) fn connector(&self) -> Option<&Connector> {
        self.connector.as_deref()
    }

    /// Connects. The name is looked up every time, so a backend that moved is found.
    pub async fn connect(&self) -> Result<Connected, BackendError> {
        let era = self.open.era();
        let homes = self.homes().await?;
        let known = self.primary.load_full();
        let stream = self.connect_to_first(to_try(&homes, known.as_deref())).await?;
        Ok(self.open.enter(stream, era))
    }

    /// All addresses of the name, or the one path.
    async fn homes(&self) -> Result<Vec<Home>, BackendError> {
        match (&self.url.target, self.authority.find().await?) {
            (_, Some(named)) => self.homes_of(named).await,
            (Target::Tcp { host, port }, None) => {
                let found = self.look_up(host, *port).await?;
                Ok(found.into_iter().map(Home::Tcp).collect())
            }
            (Target::Unix(path), None) => Ok(vec![Home::Unix(path.clone())]),
            (Target::Sentinel(_) | Target::Cluster(_), None) => Ok(Vec::new()),
        }
    }

    /// The same for a server that sentinels or nodes of a cluster name.
    async fn homes_of(&self, named: Named) -> Result<Vec<Home>, BackendError> {
        let found = self.look_up(&named.place.host, named.place.port).await?;
        let named = Arc::new(named);
        Ok(found.into_iter().map(|address| Home::Named(address, named.clone())).collect())
    }

    async fn look_up(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, BackendError> {
        match tokio::time::timeout(PATIENCE, tokio::net::lookup_host((host, port))).await {
            Ok(Ok(found)) => Ok(found.take(MAX_ADDRESSES).collect()),
            Ok(Err(source)) => Err(self.unreachable(source)),
            Err(_) => Err(self.unreachable(io::ErrorKind::TimedOut.into())),
        }
    }

    /// Connects to the first of these that listens.
    async fn connect_to_first(&self, homes: &[Home]) -> Result<Stream, BackendError> {
        // All addresses together may take as long as one would.
        let each = PATIENCE / u32::try_from(homes.len().max(1)).unwrap_or(u32::MAX);
        let mut last = ConnectError::Io(io::ErrorKind::NotFound.into());
        for home in homes {
            match self.open(home, each).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(match last {
            ConnectError::Io(source) => self.unreachable(source),
            ConnectError::Handshake(source) => BackendError::Handshake { address: self.to_string(), source },
        })
    }

    async fn open(&self, home: &Home, within: Duration) -> Result<Stream, ConnectError> {
        let end = Instant::now() + within;
        let connect = async {
            Ok::<_, io::Error>(match home {
                Home::Tcp(address) | Home::Named(address, _) => Stream::Tcp(TcpStream::connect(address).await?),
                Home::Unix(path) => Stream::Unix(UnixStream::connect(path).await?),
            })
        };
        let stream = match timeout_at(end, connect).await {
            Ok(connected) => connected?,
            Err(_) => return Err(ConnectError::Io(io::ErrorKind::TimedOut.into())),
        };
        listener::prepare_backend(&stream)?;
        let (connector, socket) = match (&self.connector, stream) {
            (Some(connector), Stream::Tcp(socket)) => (connector, socket),
            (_, stream) => return Ok(stream),
        };
        let host = match (home, &self.url.target) {
            (Home::Named(_, named), _) => named.place.host.as_str(),
            (_, Target::Tcp { host, .. }) => host.as_str(),
            (_, Target::Unix(_) | Target::Sentinel(_) | Target::Cluster(_)) => "",
        };
        match timeout_at(end, connector.connect(socket, host)).await {
            Ok(Ok(stream)) => Ok(Stream::Tls(Box::new(stream))),
            Ok(Err(error)) => Err(ConnectError::Handshake(error)),
            Err(_) => Err(ConnectError::Handshake(HandshakeError::Late(within))),
        }
    }

    /// Connects, and sends what connections of this kind send first.
    pub async fn converse_as(&self, profile: &Profile) -> Result<Conversation, BackendError> {
        let mut conversation = Conversation::new(self.connect().await?);
        if let Some(Login { user, password }) = &profile.login {
            conversation.log_in(user, password).await?;
        }
        if profile.db != 0 {
            conversation.select(profile.db).await?;
        }
        if profile.protocol == Protocol::Resp3 {
            conversation.must(&[b"HELLO", b"3"]).await?;
        }
        Ok(conversation)
    }

    fn unreachable(&self, source: io::Error) -> BackendError {
        BackendError::Connect { address: self.to_string(), source }
    }

    /// The user of the proxy's own connection, if the URL or the login names one.
    pub fn user(&self) -> Option<&str> {
        if let Some(login) = &self.login {
            return Some(login.user());
        }
        let user = self.url.user.as_deref().unwrap_or("default");
        self.url.password.as_ref().map(|_| user)
    }

    /// A connection of the proxy's own, logged in as the URL says.
    pub async fn converse(&self) -> Result<Conversation, BackendError> {
        let connected = self.connect().await?;
        self.log_in(connected).await
    }

    async fn log_in(&self, connected: Connected) -> Result<Conversation, BackendError> {
        let mut conversation = Conversation::new(connected);
        if let Some(login) = &self.login {
            conversation.logged_in_with = login.fresh().map_or(0, |fresh| fresh.number);
        }
        if let Some((user, password)) = self.own_login().await? {
            conversation.log_in(user.as_bytes(), password.expose().as_bytes()).await?;
        }
        Ok(conversation)
    }

    /// The user and password of the proxy's own connections.
    pub(crate) async fn own_login(&self) -> Result<Option<(&str, Secret)>, BackendError> {
        let password = match &self.login {
            Some(login) => Some(login.password().await?),
            None => self.url.password.clone(),
        };
        Ok(self.user().zip(password))
    }

    /// The same with the primary, among all addresses that the name has; also returns the question that it answers
    /// with its role. Clients are connected to that address from now on, as long as the name has it.
    pub async fn converse_with_primary(&self) -> Result<(Conversation, RoleQuestion), BackendError> {
        let homes = self.homes().await?;
        self.find_primary(&homes).await
    }

    async fn find_primary(&self, homes: &[Home]) -> Result<(Conversation, RoleQuestion), BackendError> {
        let era = self.open.era();
        let (mut failure, mut silent) = (None, None);
        for home in homes {
            let mut question = RoleQuestion::Hello;
            let asked = async {
                let stream = self.connect_to_first(std::slice::from_ref(home)).await?;
                let mut own = self.log_in(self.open.enter(stream, era)).await?;
                let role = question.ask(&mut own).await?;
                Ok((own, role))
            };
            match asked.await {
                Ok((own, Role::Primary)) => {
                    self.primary.store(Some(Arc::new(home.clone())));
                    if let Home::Named(_, named) = home {
                        self.authority.is_primary(named);
                    }
                    return Ok((own, question));
                }
                // A server that was named must itself say that it is the primary.
                Ok((_, Role::Unknown)) if self.authority.wants_proof() => {
                    failure = failure.or(Some(BackendError::NoPrimary));
                }
                Ok((own, Role::Unknown)) => silent = silent.or(Some((own, question))),
                Ok((_, Role::Replica | Role::WritableReplica)) if self.authority.wants_proof() => {
                    failure = Some(BackendError::NoPrimary);
                }
                Ok((_, Role::WritableReplica)) => failure = Some(BackendError::WritableReplica),
                Ok((_, Role::Replica)) => failure = Some(BackendError::Replica),
                // The reason for a replica is known; why another server does not answer is not.
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        self.primary.store(None);
        if let Some(Home::Named(_, named)) = homes.first() {
            self.authority.is_not_primary(named, std::time::Instant::now());
        }
        match (silent, failure) {
            (Some(silent), _) => Ok(silent),
            (None, Some(failure)) => Err(failure),
            (None, None) => Err(self.unreachable(io::ErrorKind::NotFound.into())),
        }
    }

    /// Logs an open connection in again, if a newer password was read since its last login. It must not wait for a
    /// reply. A refusal leaves it logged in as it was.
    pub(crate) async fn stay_logged_in(&self, own: &mut Conversation) -> Result<(), BackendError> {
        let Some(login) = &self.login else {
            return Ok(());
        };
        let Some(fresh) = login.fresh().filter(|fresh| fresh.number > own.logged_in_with) else {
            return Ok(());
        };
        own.logged_in_with = fresh.number;
        let (user, password) = (login.user().as_bytes(), fresh.password.expose().as_bytes());
        match own.log_in(user, password).await {
            Err(BackendError::Login(text)) => {
                login.was_refused(&text);
                Ok(())
            }
            other => other,
        }
    }

    /// Reads the password again and again, if the configuration says so, until the process ends.
    pub async fn keep_login_fresh(&self, metrics: &Metrics) {
        if let Some(login) = &self.login {
            login.keep_fresh(metrics).await;
        }
    }

    /// Returns when a password newer than this number was read; otherwise never.
    pub(crate) async fn login_changes(&self, own: u64) {
        if let Some(login) = &self.login {
            let mut changes = login.changes();
            let newer = |fresh: &Option<Arc<Fresh>>| {
                let fresh = fresh.as_ref();
                fresh.is_some_and(|fresh| fresh.number > own)
            };
            if changes.wait_for(newer).await.is_ok() {
                return;
            }
        }
        std::future::pending().await
    }

    /// The address of the proxy's own Redis.
    pub fn private(address: SocketAddr) -> Address {
        let (host, port) = (address.ip().to_string(), address.port());
        Address {
            url: BackendUrl::at(Target::Tcp { host, port }),
            login: None,
            connector: None,
            primary: Arc::default(),
            authority: Authority::Address,
            open: Arc::default(),
        }
    }
}

/// Which of a name's addresses a connection tries: if one was the primary, that one alone, as long as the name has
/// it.
fn to_try<'a>(homes: &'a [Home], primary: Option<&Home>) -> &'a [Home] {
    match homes.iter().position(|one| Some(one) == primary) {
        Some(at) => &homes[at..=at],
        None => homes,
    }
}
