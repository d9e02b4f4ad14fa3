//! A decoded request: its frame and the positions of its arguments. Only the decoder and [`OwnedRequest`] make one, so
//! a `Request` is always a canonical frame with at least a name.

use crate::encode::{write_bulk, write_header};
use bytes::Bytes;
use std::fmt;

/// The position of one argument in its frame. Frames are under 4 GiB, so 32 bits each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ArgRange {
    start: u32,
    len: u32,
}

impl ArgRange {
    /// Both ends lie within a frame whose size was checked against the limit.
    #[inline]
    pub(super) fn new(start: usize, len: usize) -> Self {
        const FITS: &str = "frames are limited to what 32 bits can count";
        Self { start: u32::try_from(start).expect(FITS), len: u32::try_from(len).expect(FITS) }
    }

    #[inline]
    pub(super) fn of(self, frame: &[u8]) -> &[u8] {
        let start = self.start as usize;
        &frame[start..start + self.len as usize]
    }
}

/// Writes the canonical frame of these arguments, and returns their positions.
pub(super) fn encode<'a>(
    args: impl ExactSizeIterator<Item = &'a [u8]>,
    frame: &mut Vec<u8>,
    ranges: &mut Vec<ArgRange>,
) {
    write_header(frame, b'*', args.len());
    for arg in args {
        write_bulk(frame, arg);
        ranges.push(ArgRange::new(frame.len() - 2 - arg.len(), arg.len()));
    }
}

/// One request: its canonical frame and its arguments, borrowed from the input buffer. Never prints its contents, for
/// an argument may be an owner token or a password.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    frame: &'a [u8],
    ranges: &'a [ArgRange],
}

#[expect(clippy::len_without_is_empty, reason = "a request has a name, so it is never empty")]
impl<'a> Request<'a> {
    #[inline]
    pub(super) fn new(frame: &'a [u8], ranges: &'a [ArgRange]) -> Self {
        debug_assert!(!ranges.is_empty(), "a request without a name");
        Self { frame, ranges }
    }

    /// The bytes to relay: the input, or the canonical form of an inline line.
    #[must_use]
    #[inline]
    pub fn frame(&self) -> &'a [u8] {
        self.frame
    }

    /// Number of arguments, the name included; at least one.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// The command's name as it was sent, in any case.
    #[must_use]
    #[inline]
    pub fn name(&self) -> &'a [u8] {
        self.arg(0)
    }

    /// Argument `i`; 0 is the name.
    ///
    /// # Panics
    /// If there are not that many.
    #[must_use]
    #[inline]
    pub fn arg(&self, i: usize) -> &'a [u8] {
        self.ranges[i].of(self.frame)
    }

    /// Argument `i`, if there are that many; 0 is the name.
    #[must_use]
    #[inline]
    pub fn get(&self, i: usize) -> Option<&'a [u8]> {
        self.ranges.get(i).map(|range| range.of(self.frame))
    }

    /// All arguments, the name first.
    #[inline]
    pub fn args(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a> {
        let Self { frame, ranges } = *self;
        ranges.iter().map(move |range| range.of(frame))
    }
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Request({} arguments, {} bytes)", self.len(), self.frame.len())
    }
}

/// A request that owns its frame, made from arguments: for commands that the proxy itself makes, and for tests of code
/// that takes a [`Request`].
#[derive(Clone)]
pub struct OwnedRequest {
    frame: Bytes,
    ranges: Vec<ArgRange>,
}

impl OwnedRequest {
    /// The canonical frame of these arguments, the name first.
    ///
    /// # Panics
    /// If there are none, or the frame would reach 4 GiB.
    pub fn new<I, A>(args: I) -> Self
    where
        I: IntoIterator<Item = A>,
        A: AsRef<[u8]>,
    {
        let args: Vec<A> = args.into_iter().collect();
        assert!(!args.is_empty(), "a request has at least a name");
        let mut frame = Vec::new();
        let mut ranges = Vec::with_capacity(args.len());
        encode(args.iter().map(AsRef::as_ref), &mut frame, &mut ranges);
        Self { frame: frame.into(), ranges }
    }

    /// The same request as from the decoder.
    #[must_use]
    pub fn request(&self) -> Request<'_> {
        Request::new(&self.frame, &self.ranges)
    }

    /// The frame by itself.
    #[must_use]
    #[inline]
    pub fn frame(&self) -> &Bytes {
        &self.frame
    }
}

impl fmt::Debug for OwnedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.request().fmt(f)
    }
}
