//! Where the backend is, and how to reach it. Also the small client of the proxy's own connection:
//! one request, one reply, with a deadline. Clients' traffic does not come here; see `session::transport`.

pub(crate) mod functions;
pub(crate) mod pool;
pub(crate) mod profile;
pub(crate) mod rights;
pub(crate) mod server_info;
pub(crate) mod shared_connection;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use arc_swap::ArcSwapOption;
use bytes::{Buf, Bytes, BytesMut};
use lockwarden_resp::{Protocol, ReplyLimits, ReplyScanner, Scan, Value, parse_reply, put_request};
use prometheus::IntGauge;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::config::BackendUrl;
use crate::net::listener;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::vocabulary::ConnectionState;
use profile::{Login, Profile};
use server_info::{Role, RoleQuestion, Server};

/// How long a connection may take to be made.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a reply of the own connection may take to come. While a script runs Redis answers nobody
/// for `busy-reply-threshold`, 5 s unless it is set.
const REPLY_PATIENCE: Duration = Duration::from_secs(7);
/// The longest reply that the own connection reads. `COMMAND` of a server with modules has less.
const MAX_REPLY: usize = 16 * 1024 * 1024;
/// Addresses of the backend's name that are tried.
const MAX_ADDRESSES: usize = 16;

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

/// Where the backend is.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    pub(crate) url: BackendUrl,
    /// Where a name has several addresses: which of them was the primary when it was asked last.
    primary: Arc<ArcSwapOption<SocketAddr>>,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}

/// Why the own connection is of no use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackendError {
    /// Nothing was sent, so trying again is safe.
    #[error("cannot connect to the backend {address}: {source}")]
    Connect { address: String, source: io::Error },
    /// Sent and not answered.
    #[error("the connection to the backend broke: {0}")]
    Broken(io::Error),
    /// It answered what no Redis answers.
    #[error("the backend is out of step: {0}")]
    OutOfStep(String),
    /// It did not let the proxy's own user in.
    #[error("the backend refused the login of its URL: {0}")]
    Login(String),
    /// It did not let a client into the database that the client had selected before.
    #[error("the backend refused database {db}: {text}")]
    Database { db: u32, text: String },
    /// It will answer later.
    #[error("the backend does not answer questions now: {0}")]
    NotNow(String),
    /// It follows another server.
    #[error(
        "the backend is a replica and takes no writes: \
         promote it, or let the backend's name lead to the primary"
    )]
    Replica,
}

impl BackendError {
    /// The error that a client is told which asked for something. Most are told by closing its connection.
    pub(crate) fn for_client(&self) -> Option<Bytes> {
        match self {
            BackendError::Database { db, text } => Some(Bytes::from(format!(
                "-{text} (lockwarden opened a new connection for this client, which had selected database {db})\r\n"
            ))),
            BackendError::Connect { .. }
            | BackendError::Broken(_)
            | BackendError::OutOfStep(_)
            | BackendError::Login(_)
            | BackendError::NotNow(_)
            | BackendError::Replica => None,
        }
    }
}

impl Address {
    pub(crate) fn new(url: BackendUrl) -> Address {
        Address {
            url,
            primary: Arc::default(),
        }
    }

    /// Connects. The name is looked up every time, so a backend that moved is found.
    pub(crate) async fn connect(&self) -> Result<TcpStream, BackendError> {
        let addresses = self.addresses().await?;
        let known = self.primary.load_full();
        self.connect_to_first(to_try(&addresses, known.as_deref()))
            .await
    }

    /// All addresses of the name.
    async fn addresses(&self) -> Result<Vec<SocketAddr>, BackendError> {
        let target = (self.url.host.as_str(), self.url.port);
        match tokio::time::timeout(PATIENCE, tokio::net::lookup_host(target)).await {
            Ok(Ok(found)) => Ok(found.take(MAX_ADDRESSES).collect()),
            Ok(Err(source)) => Err(self.unreachable(source)),
            Err(_) => Err(self.unreachable(io::ErrorKind::TimedOut.into())),
        }
    }

    /// Connects to the first of these that listens.
    async fn connect_to_first(&self, addresses: &[SocketAddr]) -> Result<TcpStream, BackendError> {
        let each = PATIENCE / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for address in addresses {
            match tokio::time::timeout(each, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    let prepared = listener::prepare_backend(&stream);
                    prepared.map_err(|source| self.unreachable(source))?;
                    return Ok(stream);
                }
                Ok(Err(error)) => last = error,
                Err(_) => last = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(self.unreachable(last))
    }

    /// Connects, and says what connections of this kind say first.
    async fn introduced(&self, profile: &Profile) -> Result<TcpStream, BackendError> {
        Ok(self.converse_as(profile).await?.stream)
    }

    /// The same for a question of the proxy's own.
    pub(crate) async fn converse_as(
        &self,
        profile: &Profile,
    ) -> Result<Conversation, BackendError> {
        let stream = self.connect().await?;
        let mut conversation = Conversation::new(stream);
        if let Some(Login { user, password }) = &profile.login {
            conversation.log_in(user, password).await?;
        }
        if profile.db != 0 {
            let db = profile.db.to_string();
            let selected = conversation.must(&[b"SELECT", db.as_bytes()]).await;
            selected.map_err(|error| match error {
                BackendError::Login(text) => BackendError::Database {
                    db: profile.db,
                    text,
                },
                other => other,
            })?;
        }
        if profile.protocol == Protocol::Resp3 {
            conversation.must(&[b"HELLO", b"3"]).await?;
        }
        Ok(conversation)
    }

    fn unreachable(&self, source: io::Error) -> BackendError {
        BackendError::Connect {
            address: self.to_string(),
            source,
        }
    }

    /// Who the proxy's own connection is, where the URL says so.
    pub(crate) fn user(&self) -> Option<&str> {
        let user = self.url.user.as_deref().unwrap_or("default");
        self.url.password.as_ref().map(|_| user)
    }

    /// A connection of the proxy's own, logged in as the URL says.
    pub(crate) async fn converse(&self) -> Result<Conversation, BackendError> {
        let stream = self.connect().await?;
        self.log_in(stream).await
    }

    async fn log_in(&self, stream: TcpStream) -> Result<Conversation, BackendError> {
        let mut conversation = Conversation::new(stream);
        if let Some(password) = &self.url.password {
            let user = self.url.user.as_deref().unwrap_or("default");
            let password = password.expose();
            conversation
                .log_in(user.as_bytes(), password.as_bytes())
                .await?;
        }
        Ok(conversation)
    }

    /// The same with the primary, of all addresses that the name has; and the question by which it
    /// tells its role. Clients are led to that address from now on, as long as the name has it.
    pub(crate) async fn converse_with_primary(
        &self,
    ) -> Result<(Conversation, RoleQuestion), BackendError> {
        let addresses = self.addresses().await?;
        self.find_primary(&addresses).await
    }

    async fn find_primary(
        &self,
        addresses: &[SocketAddr],
    ) -> Result<(Conversation, RoleQuestion), BackendError> {
        let (mut failure, mut silent) = (None, None);
        for address in addresses {
            let mut question = RoleQuestion::Hello;
            let asked = async {
                let stream = self.connect_to_first(std::slice::from_ref(address)).await?;
                let mut own = self.log_in(stream).await?;
                let role = question.ask(&mut own).await?;
                Ok((own, role))
            };
            match asked.await {
                Ok((own, Role::Primary)) => {
                    self.primary.store(Some(Arc::new(*address)));
                    return Ok((own, question));
                }
                Ok((own, Role::Unknown)) => silent = silent.or(Some((own, question))),
                Ok((_, Role::Replica)) => failure = Some(BackendError::Replica),
                // What a replica is, is known; why another does not answer is not.
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        self.primary.store(None);
        match (silent, failure) {
            (Some(silent), _) => Ok(silent),
            (None, Some(failure)) => Err(failure),
            (None, None) => Err(self.unreachable(io::ErrorKind::NotFound.into())),
        }
    }

    /// The address of the proxy's own Redis.
    pub(crate) fn private(address: SocketAddr) -> Address {
        let url = BackendUrl {
            host: address.ip().to_string(),
            port: address.port(),
            user: None,
            password: None,
            db: 0,
        };
        Address::new(url)
    }
}

/// Which of a name's addresses a connection goes to: where one was the primary, it alone, for as long
/// as the name has it.
fn to_try<'a>(addresses: &'a [SocketAddr], primary: Option<&SocketAddr>) -> &'a [SocketAddr] {
    match addresses.iter().position(|one| Some(one) == primary) {
        Some(at) => &addresses[at..=at],
        None => addresses,
    }
}

/// A connection for clients. Counted while it is open.
pub(crate) struct Link {
    pub(crate) stream: TcpStream,
    /// In which the backend's name was looked up for it.
    pub(crate) era: u64,
    open: IntGauge,
}

impl Link {
    fn new(stream: TcpStream, era: u64, open: &IntGauge) -> Link {
        open.inc();
        Link {
            stream,
            era,
            open: open.clone(),
        }
    }

    /// Whether it is still there, and nothing was said on it.
    pub(crate) fn is_quiet(&self) -> bool {
        let read = self.stream.try_read(&mut [0; 1]);
        matches!(read, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// One that nobody counts.
    #[cfg(test)]
    pub(crate) fn uncounted(stream: TcpStream) -> Link {
        let open = IntGauge::new("uncounted", "uncounted").expect("a name");
        Link::new(stream, 0, &open)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.open.dec();
    }
}

/// A connection on which the proxy asks for itself.
pub(crate) struct Conversation {
    stream: TcpStream,
    buffer: BytesMut,
}

impl Conversation {
    pub(crate) fn new(stream: TcpStream) -> Conversation {
        Conversation {
            stream,
            buffer: BytesMut::new(),
        }
    }

    /// Asks one thing.
    pub(crate) async fn ask<A: AsRef<[u8]>>(&mut self, words: &[A]) -> Result<Value, BackendError> {
        parsed(&self.exchange(words).await?)
    }

    /// Asks one thing; the reply as it came.
    async fn exchange<A: AsRef<[u8]>>(&mut self, words: &[A]) -> Result<Bytes, BackendError> {
        let mut request = BytesMut::new();
        put_request(&mut request, words);
        self.send(&request).await?;
        self.frame().await
    }

    async fn log_in(&mut self, user: &[u8], password: &[u8]) -> Result<(), BackendError> {
        self.must(&[b"AUTH", user, password]).await
    }

    /// Says what the connection is of no use without.
    async fn must(&mut self, words: &[&[u8]]) -> Result<(), BackendError> {
        let answer = self.exchange(words).await?;
        let Some(text) = answer.strip_prefix(b"-") else {
            return Ok(());
        };
        let text = String::from_utf8_lossy(text.trim_ascii_end());
        Err(BackendError::Login(text.into_owned()))
    }

    /// Sends requests whose replies are read with [`Conversation::read`].
    pub(crate) async fn send(&mut self, requests: &[u8]) -> Result<(), BackendError> {
        let sent = tokio::time::timeout(PATIENCE, self.stream.write_all(requests)).await;
        match sent {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(BackendError::Broken(error)),
            Err(_) => Err(BackendError::Broken(io::ErrorKind::TimedOut.into())),
        }
    }

    /// Reads one reply.
    pub(crate) async fn read(&mut self) -> Result<Value, BackendError> {
        parsed(&self.frame().await?)
    }

    /// Reads one reply, as it came.
    async fn frame(&mut self) -> Result<Bytes, BackendError> {
        match tokio::time::timeout(REPLY_PATIENCE, self.read_frame()).await {
            Ok(frame) => frame,
            Err(_) => Err(BackendError::Broken(io::ErrorKind::TimedOut.into())),
        }
    }

    async fn read_frame(&mut self) -> Result<Bytes, BackendError> {
        let mut scanner = ReplyScanner::new(ReplyLimits::default());
        let mut scanned = 0;
        loop {
            if scanned < self.buffer.len() {
                match scanner.scan(&self.buffer[scanned..]) {
                    Ok(Scan::Complete { consumed }) => {
                        return Ok(self.buffer.split_to(scanned + consumed).freeze());
                    }
                    Ok(Scan::Partial) => scanned = self.buffer.len(),
                    Err(error) => return Err(BackendError::OutOfStep(error.to_string())),
                }
            }
            if self.buffer.remaining() > MAX_REPLY {
                return Err(BackendError::OutOfStep("a reply is too long".into()));
            }
            self.buffer.reserve(16 * 1024);
            match self.stream.read_buf(&mut self.buffer).await {
                Ok(0) => return Err(BackendError::Broken(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => {}
                Err(error) => return Err(BackendError::Broken(error)),
            }
        }
    }
}

fn parsed(frame: &Bytes) -> Result<Value, BackendError> {
    parse_reply(frame, Protocol::Resp2).map_err(|error| BackendError::OutOfStep(error.to_string()))
}
