//! Where the backend is, and how to reach it. Also the small client of the proxy's own connection:
//! one request, one reply, with a deadline. Clients' traffic does not come here; see `wires`.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use lockwarden_resp::{Protocol, ReplyLimits, ReplyScanner, Scan, Value, parse_reply, put_request};
use prometheus::IntGauge;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::config::BackendUrl;
use crate::metrics::{ConnectionState, Metrics};
use crate::trunk::{Lane, Login};

/// How long a connection may take to be made, and a reply of the own connection to come.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest reply that the own connection reads. `COMMAND` of a server with modules has less.
const LONGEST_REPLY: usize = 16 * 1024 * 1024;

/// Where the backend is.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    pub(crate) url: BackendUrl,
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
}

impl Address {
    /// Connects. The name is looked up every time, so a backend that moved is found.
    pub(crate) async fn connect(&self) -> Result<TcpStream, BackendError> {
        let target = (self.url.host.as_str(), self.url.port);
        let attempt = tokio::time::timeout(PATIENCE, TcpStream::connect(target)).await;
        let stream = match attempt {
            Ok(Ok(stream)) => stream,
            Ok(Err(source)) => return Err(self.unreachable(source)),
            Err(_) => return Err(self.unreachable(io::ErrorKind::TimedOut.into())),
        };
        stream
            .set_nodelay(true)
            .map_err(|source| self.unreachable(source))?;
        Ok(stream)
    }

    /// Opens a connection of this kind for clients.
    pub(crate) async fn open(&self, lane: &Lane, metrics: &Metrics) -> Result<Link, BackendError> {
        let connecting = metrics.backend_connections.at(ConnectionState::Connecting);
        connecting.inc();
        let opened = self.introduced(lane).await;
        connecting.dec();
        let open = metrics.backend_connections.at(ConnectionState::Open);
        opened.map(|stream| Link::new(stream, open))
    }

    /// Connects, and says what connections of this kind say first.
    async fn introduced(&self, lane: &Lane) -> Result<TcpStream, BackendError> {
        let stream = self.connect().await?;
        let mut conversation = Conversation::new(stream);
        if let Some(Login { user, password }) = &lane.login {
            conversation.log_in(user, password).await?;
        }
        if lane.db != 0 {
            let db = lane.db.to_string();
            conversation.must(&[b"SELECT", db.as_bytes()]).await?;
        }
        if lane.protocol == Protocol::Resp3 {
            conversation.must(&[b"HELLO", b"3"]).await?;
        }
        Ok(conversation.stream)
    }

    fn unreachable(&self, source: io::Error) -> BackendError {
        BackendError::Connect {
            address: self.to_string(),
            source,
        }
    }

    /// A connection of the proxy's own, logged in as the URL says.
    pub(crate) async fn converse(&self) -> Result<Conversation, BackendError> {
        let mut conversation = Conversation::new(self.connect().await?);
        if let Some(password) = &self.url.password {
            let user = self.url.user.as_deref().unwrap_or("default");
            let password = password.expose();
            conversation
                .log_in(user.as_bytes(), password.as_bytes())
                .await?;
        }
        Ok(conversation)
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
        Address { url }
    }
}

/// A connection for clients. Counted while it is open.
pub(crate) struct Link {
    pub(crate) stream: TcpStream,
    open: IntGauge,
}

impl Link {
    fn new(stream: TcpStream, open: &IntGauge) -> Link {
        open.inc();
        Link {
            stream,
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
        Link::new(stream, &open)
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
        match tokio::time::timeout(PATIENCE, self.read_frame()).await {
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
            if self.buffer.remaining() > LONGEST_REPLY {
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
