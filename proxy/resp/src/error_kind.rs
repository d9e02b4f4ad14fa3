//! The kinds of errors in bytes that are no frame, as they are counted.

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Not a frame of the protocol.
    Malformed,
    /// A frame that is larger, longer or deeper than the limits.
    Limit,
}
