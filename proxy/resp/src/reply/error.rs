//! How a backend's bytes stop being replies. After each of these errors it is no longer known which reply belongs to
//! which request, so the backend connection is dropped; nothing here is ever repaired.

use crate::error_kind::ErrorKind;

/// The backend's bytes are no reply. Final for the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// No frame begins with this byte.
    #[error("unknown reply type byte 0x{0:02x}")]
    Type(u8),
    /// A length that is not canonical, or null where there is no null.
    #[error("invalid length in a reply")]
    Length,
    /// An invalid integer or double.
    #[error("invalid number in a reply")]
    Number,
    /// A boolean that is neither true nor false.
    #[error("invalid boolean in a reply")]
    Boolean,
    /// Not exactly CRLF at the end of an element.
    #[error("invalid line end in a reply")]
    LineEnd,
    /// A string of unknown length, which no server sends unasked.
    #[error("streamed type in a reply")]
    Streamed,
    /// More aggregates inside each other than the limit.
    #[error("reply nested too deep")]
    TooDeep,
    /// A bulk over the limit.
    #[error("bulk too big in a reply")]
    TooBig,
    /// More elements than the limit.
    #[error("too many elements in a reply")]
    TooManyElements,
    /// When a value is read: not exactly one complete frame.
    #[error("reply is not one complete frame")]
    NotOneFrame,
    /// When a value is read: not a frame of the protocol that this connection uses.
    #[error("reply does not fit the protocol version")]
    Protocol,
}

impl ReplyError {
    /// What kind of error it is, for counters.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Type(_)
            | Self::Length
            | Self::Number
            | Self::Boolean
            | Self::LineEnd
            | Self::Streamed
            | Self::NotOneFrame
            | Self::Protocol => ErrorKind::Malformed,
            Self::TooDeep | Self::TooBig | Self::TooManyElements => ErrorKind::Limit,
        }
    }
}
