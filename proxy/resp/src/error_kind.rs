//! What is wrong with bytes that are no frame, as far as it is counted.

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Not a frame of the protocol.
    Malformed,
    /// A frame that is larger, longer or deeper than the limits.
    Limit,
}
