//! Why a client's bytes were refused, in Redis's words where Redis has any. Each error ends the connection; this module
//! only defines what is sent before and how the error is counted.

use super::RequestLimits;
use crate::error_kind::ErrorKind;
use std::{borrow::Cow, fmt};

/// A client's bytes are no acceptable request. Final for the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The first byte is a frame type other than an array's.
    #[error("expected '*', got '{0}'")]
    ExpectedArray(UnexpectedByte),
    /// An array length that is not canonical.
    #[error("invalid multibulk length")]
    ArrayLength,
    /// More elements than the limit.
    #[error("invalid multibulk length")]
    TooManyElements,
    /// More elements than a client may send before it authenticates.
    #[error("unauthenticated multibulk length")]
    UnauthenticatedArrayLength,
    /// An array length line that does not end.
    #[error("too big mbulk count string")]
    ArrayLine,
    /// An element that is no bulk string.
    #[error("expected '$', got '{0}'")]
    ExpectedBulk(UnexpectedByte),
    /// A bulk length that is not canonical (null included).
    #[error("invalid bulk length")]
    BulkLength,
    /// A bigger argument than the limit.
    #[error("invalid bulk length")]
    TooBigBulk,
    /// A bigger argument than a client may send before it authenticates.
    #[error("unauthenticated bulk length")]
    UnauthenticatedBulkLength,
    /// A bulk length line that does not end.
    #[error("too big bulk count string")]
    BulkLine,
    /// A bulk that is not followed by exactly CRLF. Redis does not look at these two bytes.
    #[error("expected CRLF after bulk")]
    BulkEnd,
    /// A whole request over the limit. Redis closes the connection without a reply.
    #[error("too big request")]
    FrameSize,
    /// An inline line over the limit.
    #[error("too big inline request")]
    InlineSize,
    /// An inline line with a NUL, where Redis would stop reading.
    #[error("unexpected NUL in inline request")]
    InlineNul,
    /// A quote in an inline line that is not closed, or that is directly followed by a word.
    #[error("unbalanced quotes in request")]
    UnbalancedQuotes,
    /// HTTP: a client that did not mean to talk to Redis.
    #[error("another protocol on a redis port")]
    CrossProtocol,
    /// A handshake of TLS.
    #[error("TLS, which is not spoken here")]
    Tls,
}

impl RequestError {
    pub(super) fn too_many_args(limits: RequestLimits) -> Self {
        if limits.unauthenticated { Self::UnauthenticatedArrayLength } else { Self::TooManyElements }
    }

    pub(super) fn too_big_bulk(limits: RequestLimits) -> Self {
        if limits.unauthenticated { Self::UnauthenticatedBulkLength } else { Self::TooBigBulk }
    }

    /// The line to send before closing, from its `-` on and without its CRLF. `None` if nothing is sent.
    #[must_use]
    pub fn reply(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::CrossProtocol | Self::Tls => None,
            _ => Some(format!("-ERR Protocol error: {self}").into()),
        }
    }

    /// What kind of error it is, for counters.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::ExpectedArray(_)
            | Self::ArrayLength
            | Self::ExpectedBulk(_)
            | Self::BulkLength
            | Self::BulkEnd
            | Self::InlineNul
            | Self::UnbalancedQuotes
            | Self::CrossProtocol
            | Self::Tls => ErrorKind::Malformed,
            Self::TooManyElements
            | Self::UnauthenticatedArrayLength
            | Self::ArrayLine
            | Self::TooBigBulk
            | Self::UnauthenticatedBulkLength
            | Self::BulkLine
            | Self::FrameSize
            | Self::InlineSize => ErrorKind::Limit,
        }
    }
}

/// An unexpected byte, printed so that it cannot break its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnexpectedByte(pub u8);

impl fmt::Display for UnexpectedByte {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            printable @ b' '..=b'~' => write!(f, "{}", char::from(printable)),
            // Redis also replaces line ends in its error lines by blanks.
            b'\r' | b'\n' => f.write_str(" "),
            other => write!(f, "\\x{other:02x}"),
        }
    }
}
