//! What happens on the two connections, what a session waits for, and how it ends.

use bytes::Bytes;
use lockwarden_resp::{ReplyError, RequestError};

/// Why a session ends.
#[derive(Debug, thiserror::Error)]
pub enum End {
    /// The client closed its connection, or it broke.
    #[error("the client is gone")]
    Client,
    /// The backend closed its connection, or it broke. What was sent and not answered may have
    /// happened; the client learns that by its own connection closing.
    #[error("the backend is gone")]
    Backend,
    /// It held more memory than any other when there was not enough.
    #[error("it held the most memory when there was too little")]
    Evicted,
    /// Everything was answered and the connection is to be closed.
    #[error("done")]
    Done,
    /// The backend sent what no Redis sends, or a script answered what none of ours does.
    #[error("the backend is out of step: {0}")]
    OutOfStep(String),
    /// The backend's bytes are no frame.
    #[error("the backend is out of step: {0}")]
    Framing(#[from] ReplyError),
}

/// What happened on the two connections.
#[derive(Debug)]
pub enum Event<L> {
    /// A request is complete; see `RequestBuffer::request`.
    Request,
    /// A request that is not complete announces a long argument; see `RequestBuffer::long_argument`.
    LongArgument,
    /// A reply arrived that was to be looked at.
    Reply(Reply<L>),
    /// The client sent something that is no request.
    Malformed(RequestError),
    /// The client sends no more; what it sent was handed over.
    ClientDone,
    /// The proxy is about to stop, and nothing is under way here.
    Drain,
    /// The connection is as old as it may become, and nothing is under way here.
    Aged,
    /// Leases of this session want to be renewed over its own connection.
    Wakeup,
    /// Nothing is under way, and an error has come before that only a replica gives, or
    /// `Transport::tell_when_idle` was asked for.
    Idle,
}

/// A reply that was to be looked at.
#[derive(Debug)]
pub struct Reply<L> {
    /// What it is looked at for.
    pub(crate) look: L,
    /// As it came.
    pub(crate) frame: Bytes,
    /// Whether its client wants it.
    pub(crate) muted: Muted,
}

/// Whether the client asked not to be answered (`CLIENT REPLY`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Muted {
    /// It wants the reply.
    No,
    /// It does not.
    Yes,
}
