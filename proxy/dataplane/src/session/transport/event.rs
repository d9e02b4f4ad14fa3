//! What happens on the two connections, what a session waits for, and how it ends.

use bytes::Bytes;
use lockwarden_resp::{ReplyError, RequestError};

/// Why a session ends.
#[derive(Debug, thiserror::Error)]
pub enum End {
    /// The client closed its connection, or it broke.
    #[error("the client is gone")]
    Client,
    /// The backend closed its connection, or it broke. Requests that were sent and not answered may have been
    /// executed; the client learns that by its own connection closing.
    #[error("the backend is gone")]
    Backend,
    /// It held more memory than any other session when memory was short.
    #[error("it held the most memory when there was too little")]
    Evicted,
    /// Everything was answered and the connection is to be closed.
    #[error("done")]
    Done,
    /// The backend sent what no Redis sends, or a script returned what none of the proxy's returns.
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
    /// The client sends no more; all that it sent was handed over.
    ClientDone,
    /// The proxy is about to stop, and nothing is under way here.
    Drain,
    /// The connection is as old as it may become, and nothing is under way here.
    Aged,
    /// Leases of this session are to be renewed over its own connection.
    Wakeup,
    /// Nothing is under way, and an error that only a replica gives has come before, or `Transport::tell_when_idle`
    /// was called.
    Idle,
}

/// A reply that was to be looked at.
#[derive(Debug)]
pub struct Reply<L> {
    /// Why it is looked at.
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
