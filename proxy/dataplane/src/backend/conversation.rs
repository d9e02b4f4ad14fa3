//! The small client of the proxy's own connection: one request, one reply, with a deadline.

use std::io;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use lockwarden_control::config::{BackendUrl, Target};
use lockwarden_control::net::tls::HandshakeError;
use lockwarden_lock::plan::{Form, Plan};
use lockwarden_resp::{Protocol, ReplyLimits, ReplyScanner, Scan, Value, parse_reply, put_request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::open_connections::Connected;
use super::own_login::PasswordError;
use super::sentinel::named::SentinelsError;

/// How long a connection may take to be made.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// How long a reply on the proxy's own connection may take. While a script runs, Redis answers no client for
/// `busy-reply-threshold`, which is 5 s by default.
const REPLY_PATIENCE: Duration = Duration::from_secs(7);
/// The longest reply that the own connection reads, in bytes. `COMMAND` of a server with modules is shorter.
const MAX_REPLY: usize = 16 * 1024 * 1024;

/// Why the own connection cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// Nothing was sent, so trying again is safe.
    #[error("cannot connect to the backend {address}: {source}")]
    Connect { address: String, source: io::Error },
    /// No request was sent, so trying again is safe.
    #[error("cannot speak TLS with the backend {address}: {source}")]
    Handshake { address: String, source: HandshakeError },
    /// A request was sent and not answered.
    #[error("the connection to the backend broke: {0}")]
    Broken(io::Error),
    /// It sent what no Redis sends.
    #[error("the backend is out of step: {0}")]
    OutOfStep(String),
    /// It refused the login of the proxy's own user.
    #[error("the backend refused the login of its URL: {0}")]
    Login(String),
    /// The password could not be found.
    #[error("there is no password for the backend: {0}")]
    Password(#[from] PasswordError),
    /// It refused a client the database that the client had selected before.
    #[error("the backend refused database {db}: {text}")]
    Database { db: u32, text: String },
    /// It will answer later.
    #[error("the backend does not answer questions now: {0}")]
    NotNow(String),
    /// It is a replica of another server.
    #[error(
        "the backend is a replica, and locks are its primary's to grant: \
         promote it, or let the backend's name lead to the primary"
    )]
    Replica,
    /// It is a replica of another server, and both take writes.
    #[error(
        "the backend is a replica that takes writes, as the server that it follows does, so the same lock can be granted on \
         both: make it a plain replica (replica-read-only yes; on KeyDB active-replica no), or let the backend's name lead to a \
         server that follows nobody"
    )]
    WritableReplica,
    /// No sentinel says where the primary is.
    #[error("{0}")]
    NoSentinel(String),
    /// No node of a cluster says which node has which slots.
    #[error("{0}")]
    NoNode(String),
    /// Sentinels or nodes of a cluster named a server that does not say that it is the primary.
    #[error("the server that was named as the primary does not say so of itself")]
    NoPrimary,
    /// The backend's name leads to this server and to the one that the proxy's own connection has.
    #[error("another server answers at the backend's address")]
    AnotherServer,
    /// Another primary is named now.
    #[error("the primary of {name} has changed")]
    PrimaryChanged { name: String },
}

impl From<SentinelsError> for BackendError {
    fn from(error: SentinelsError) -> BackendError {
        BackendError::NoSentinel(error.to_string())
    }
}

impl BackendError {
    /// A possible cause, for a client that has just connected to this server and got no reply.
    pub fn hint(&self, url: &BackendUrl) -> &'static str {
        let is_cut = match self {
            BackendError::Broken(error) => {
                matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof)
            }
            BackendError::OutOfStep(_) => true,
            _ => false,
        };
        let is_plain = !url.tls && matches!(url.target, Target::Tcp { .. });
        match is_cut && is_plain {
            true => "; if it speaks TLS at this port, write rediss://",
            false => "",
        }
    }

    /// The error for a client that asked for something. In most cases its connection is closed instead.
    pub(crate) fn for_client(&self) -> Option<Bytes> {
        match self {
            BackendError::Database { db, text } => Some(Bytes::from(format!(
                "-{text} (lockwarden opened a new connection for this client, which had selected database {db})\r\n"
            ))),
            BackendError::Connect { .. }
            | BackendError::Handshake { .. }
            | BackendError::Broken(_)
            | BackendError::OutOfStep(_)
            | BackendError::Login(_)
            | BackendError::Password(_)
            | BackendError::NotNow(_)
            | BackendError::Replica
            | BackendError::WritableReplica
            | BackendError::NoSentinel(_)
            | BackendError::NoNode(_)
            | BackendError::NoPrimary
            | BackendError::AnotherServer
            | BackendError::PrimaryChanged { .. } => None,
        }
    }
}

/// A connection for the proxy's own questions.
pub struct Conversation {
    connected: Connected,
    buffer: BytesMut,
    /// The number of the password that it last logged in with, among those that were read again.
    pub(crate) logged_in_with: u64,
}

impl Conversation {
    pub fn new(connected: Connected) -> Conversation {
        Conversation { connected, buffer: BytesMut::new(), logged_in_with: 0 }
    }

    #[cfg(test)]
    pub(super) fn stream(&self) -> &lockwarden_control::net::stream::Stream {
        &self.connected.stream
    }

    /// The connection, on which nothing is under way.
    pub(super) fn into_connected(self) -> Connected {
        self.connected
    }

    /// It was found to lead to the server of this era.
    pub(crate) fn leads_to(&self, era: u64) {
        self.connected.place.leads_to(era);
    }

    /// Sends one request and returns the reply.
    pub async fn ask<A: AsRef<[u8]>>(&mut self, words: &[A]) -> Result<Value, BackendError> {
        parsed(&self.exchange(words).await?)
    }

    /// Carries out one step, whether or not the server knows its script.
    pub(crate) async fn execute(&mut self, step: &Plan) -> Result<Value, BackendError> {
        let mut request = BytesMut::new();
        step.put(&mut request, Form::Text);
        self.send(&request).await?;
        self.read().await
    }

    /// Selects a database.
    pub(crate) async fn select(&mut self, db: u32) -> Result<(), BackendError> {
        let word = db.to_string();
        let selected = self.must(&[b"SELECT", word.as_bytes()]).await;
        // `must` calls every refusal one of the login; this one is about the database.
        selected.map_err(|error| match error {
            BackendError::Login(text) => BackendError::Database { db, text },
            other => other,
        })
    }

    /// Sends one request and returns the reply as it came.
    async fn exchange<A: AsRef<[u8]>>(&mut self, words: &[A]) -> Result<Bytes, BackendError> {
        let mut request = BytesMut::new();
        put_request(&mut request, words);
        self.send(&request).await?;
        self.frame().await
    }

    pub(super) async fn log_in(&mut self, user: &[u8], password: &[u8]) -> Result<(), BackendError> {
        self.must(&[b"AUTH", user, password]).await
    }

    /// Sends a request that must succeed, or the connection cannot be used.
    pub(super) async fn must(&mut self, words: &[&[u8]]) -> Result<(), BackendError> {
        let answer = self.exchange(words).await?;
        let Some(text) = answer.strip_prefix(b"-") else {
            return Ok(());
        };
        let text = String::from_utf8_lossy(text.trim_ascii_end());
        Err(BackendError::Login(text.into_owned()))
    }

    /// Sends requests whose replies are read with [`Conversation::read`].
    pub async fn send(&mut self, requests: &[u8]) -> Result<(), BackendError> {
        let sent = tokio::time::timeout(PATIENCE, self.connected.stream.write_all(requests)).await;
        match sent {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(BackendError::Broken(error)),
            Err(_) => Err(BackendError::Broken(io::ErrorKind::TimedOut.into())),
        }
    }

    /// Reads one reply.
    pub async fn read(&mut self) -> Result<Value, BackendError> {
        parsed(&self.frame().await?)
    }

    /// The next frame, as it came; `None` if none comes within this time. Part of a frame that has come is kept.
    pub async fn frame_within(&mut self, time: Duration) -> Result<Option<Bytes>, BackendError> {
        match tokio::time::timeout(time, self.read_frame()).await {
            Ok(frame) => frame.map(Some),
            Err(_) => Ok(None),
        }
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
            match self.connected.stream.read_buf(&mut self.buffer).await {
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
