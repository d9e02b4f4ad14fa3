//! What clients send: arrays of bulk strings in exactly canonical form, or inline lines. The decoder finds a request's
//! end and its arguments and refuses everything else; it never copies an array's bytes and never examines what a
//! command means. `inline` splits inline lines, `error` has the texts for refusals, `frame` the type of a decoded
//! request.

mod error;
mod frame;
mod inline;
#[cfg(test)]
mod tests;

pub use error::{RequestError, UnexpectedByte};
pub use frame::{OwnedRequest, Request};

use crate::length::{LengthReader, LengthStep, short_length};
use bytes::BytesMut;
use frame::ArgRange;
use inline::is_http_word;
use memchr::{memchr2, memrchr};

/// The limits of one request. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// Elements of one request, its name included.
    pub max_args: usize,
    /// Size of one argument.
    pub max_bulk: usize,
    /// Length of an inline line, without its LF; at most 64 MiB.
    pub max_inline: usize,
    /// Length of a `*` or `$` line that does not end; at least 32.
    pub max_header_line: usize,
    /// Size of a whole request; at most 4 GiB − 1.
    pub max_frame: usize,
    /// Whether `max_args` and `max_bulk` apply only until a successful AUTH: selects Redis's text for the refusal.
    pub unauthenticated: bool,
}

impl Default for RequestLimits {
    /// Redis's own limits, except for the number of elements, where Redis allows 2³¹ − 1.
    fn default() -> Self {
        Self {
            max_args: 1_048_576,
            max_bulk: 512 * 1024 * 1024,
            max_inline: 64 * 1024,
            max_header_line: 64 * 1024,
            max_frame: 1024 * 1024 * 1024,
            unauthenticated: false,
        }
    }
}

impl RequestLimits {
    /// Redis's limits for a client that has yet to authenticate: 10 elements, 16 KiB each.
    #[must_use]
    pub fn before_auth() -> Self {
        Self { max_args: 10, max_bulk: 16 * 1024, unauthenticated: true, ..Self::default() }
    }

    /// The bounds that the decoder relies on: offsets are kept in 32 bits, and a header of
    /// ordinary length is always read.
    fn clamped(self) -> Self {
        Self {
            max_frame: self.max_frame.min(u32::MAX as usize),
            max_inline: self.max_inline.min(MAX_INLINE_BYTES),
            max_header_line: self.max_header_line.max(32),
            ..self
        }
    }
}

/// The result for the bytes so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The request has not ended.
    Incomplete {
        /// At least this many bytes are missing. Comes from a length that the client announced, so a caller that
        /// reserves memory by it must cap it first.
        wants: usize,
    },
    /// `*0`, `*-1`, any other number below or an empty line: Redis does not reply, and neither does the proxy.
    Ignored {
        /// Bytes to drop.
        consumed: usize,
    },
    /// A request; [`RequestDecoder::request`] returns it.
    Request {
        /// Bytes to drop once the request has been dealt with.
        consumed: usize,
    },
}

/// An argument that has not arrived completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announced {
    /// Its place; the name of the command has 0.
    pub place: usize,
    /// Its size in bytes.
    pub length: usize,
}

/// Finds requests in a growing buffer. Remembers its position in the current one, so slow arrival costs no more than
/// fast. Allocates nothing per request, except for inline lines.
pub struct RequestDecoder {
    limits: RequestLimits,
    phase: Phase,
    /// Bytes of the current frame that were read.
    pos: usize,
    /// Announced arguments that have not arrived yet.
    missing: usize,
    /// Grows as arguments arrive, never by the announced number.
    ranges: Vec<ArgRange>,
    /// The canonical frame of an inline line.
    canonical: Vec<u8>,
    failed: Option<RequestError>,
}

#[derive(Clone, Copy)]
enum Phase {
    Start,
    ArrayLength(LengthReader),
    Bulk,
    BulkLength(LengthReader),
    BulkBody { len: usize },
    Inline,
    Found { source: Source },
}

#[derive(Clone, Copy)]
enum Source {
    Array,
    Inline,
}

/// A TLS ClientHello begins with a handshake record of version 3.
const TLS_HANDSHAKE: u8 = 0x16;
const TLS_MAJOR: u8 = 0x03;
/// Keeps the canonical form of an inline line, at most seven bytes for two, within 32 bits.
const MAX_INLINE_BYTES: usize = 64 * 1024 * 1024;
/// Room for this many arguments is kept between requests (8 KiB); more is freed.
const KEPT_RANGES: usize = 1024;
/// Room for an inline request that is kept between requests, in bytes.
const KEPT_CANONICAL: usize = 4 * 1024;

impl RequestDecoder {
    /// A decoder at the start of a connection.
    #[must_use]
    pub fn new(limits: RequestLimits) -> Self {
        Self {
            limits: limits.clamped(),
            phase: Phase::Start,
            pos: 0,
            missing: 0,
            ranges: Vec::new(),
            canonical: Vec::new(),
            failed: None,
        }
    }

    /// Applies to every length that is read from now on.
    pub fn set_limits(&mut self, limits: RequestLimits) {
        self.limits = limits.clamped();
    }

    /// Continues with the current request. `input` begins where the request begins and only grows from call to call;
    /// after any step but [`Step::Incomplete`] the caller drops `consumed` bytes, and the next call is about the next
    /// request.
    ///
    /// # Errors
    /// Bytes that are no request, or one beyond the limits. It is final: nothing after the first error is ever decoded,
    /// and every later call returns it again.
    pub fn decode(&mut self, input: &[u8]) -> Result<Step, RequestError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if let Some(consumed) = self.whole(input) {
            return Ok(Step::Request { consumed });
        }
        let step = self.advance(input);
        if let Err(error) = step {
            self.failed = Some(error);
            self.begin();
        }
        step
    }

    /// The request that the last [`decode`](Self::decode) found, in the same `input`.
    ///
    /// # Panics
    /// If the last step was not [`Step::Request`].
    #[must_use]
    #[inline]
    pub fn request<'a>(&'a self, input: &'a [u8]) -> Request<'a> {
        let Phase::Found { source } = self.phase else {
            panic!("request() is for after Step::Request");
        };
        let frame = match source {
            Source::Array => &input[..self.pos],
            Source::Inline => &self.canonical,
        };
        Request::new(frame, &self.ranges)
    }

    /// The argument still to arrive after [`Step::Incomplete`], if its length is known.
    #[must_use]
    pub fn announced(&self) -> Option<Announced> {
        match self.phase {
            Phase::BulkBody { len } => Some(Announced { place: self.ranges.len(), length: len }),
            _ => None,
        }
    }

    /// An argument before the one that is still to arrive.
    #[must_use]
    pub fn arg_so_far<'a>(&self, input: &'a [u8], place: usize) -> Option<&'a [u8]> {
        self.ranges.get(place).map(|range| range.of(input))
    }

    /// Replaces the argument that is still to arrive by this many zeros; does nothing if there is none. Returns how
    /// many of its bytes are still to come: the caller must drop these when it reads them, and not append them to
    /// `input`.
    pub fn replace_announced(&mut self, input: &mut BytesMut, zeros: usize) -> usize {
        let Phase::BulkBody { len } = self.phase else {
            return 0;
        };
        let body = self.pos;
        // Its header contains digits only after the dollar.
        let Some(header) = memrchr(b'$', &input[..body]) else {
            return 0;
        };
        let come = (input.len() - body).min(len);
        let behind = input.split_off(body + come);
        input.truncate(header);
        input.extend_from_slice(format!("${zeros}\r\n").as_bytes());
        input.resize(input.len() + zeros, 0);
        input.extend_from_slice(&behind);
        self.begin();
        len - come
    }

    /// Bytes of memory kept, for tests of its bound.
    #[cfg(any(test, feature = "properties"))]
    pub(crate) fn retained(&self) -> usize {
        self.ranges.capacity() * size_of::<ArgRange>() + self.canonical.capacity()
    }

    /// The fast path for a request that is completely here and in the usual form: returns its size. Otherwise the slow
    /// path continues from where it stopped.
    #[inline]
    fn whole(&mut self, input: &[u8]) -> Option<usize> {
        match self.phase {
            Phase::Found { .. } => self.begin(),
            Phase::Start => {}
            _ => return None,
        }
        let [b'*', rest @ ..] = input else {
            return None;
        };
        let (args, used) = self.short_array_length(rest)?;
        self.pos = 1 + used;
        self.missing = args;
        self.phase = Phase::Bulk;
        self.take_whole_bulks(input);
        if self.missing > 0 || is_http_word(self.ranges[0].of(input)) {
            return None;
        }
        self.phase = Phase::Found { source: Source::Array };
        Some(self.pos)
    }

    fn advance(&mut self, input: &[u8]) -> Result<Step, RequestError> {
        loop {
            match self.phase {
                Phase::Found { .. } => self.begin(),
                Phase::Start => match input {
                    [] | [TLS_HANDSHAKE] => return Ok(Step::Incomplete { wants: 1 }),
                    [b'*', rest @ ..] => match self.short_array_length(rest) {
                        Some((args, used)) => {
                            self.pos = 1 + used;
                            self.missing = args;
                            self.phase = Phase::Bulk;
                        }
                        None => {
                            self.pos = 1;
                            self.phase = Phase::ArrayLength(LengthReader::new());
                        }
                    },
                    [TLS_HANDSHAKE, TLS_MAJOR, ..] => return Err(RequestError::Tls),
                    [first, ..] if is_reply_type(*first) => {
                        return Err(RequestError::ExpectedArray(UnexpectedByte(*first)));
                    }
                    _ => self.phase = Phase::Inline,
                },
                Phase::ArrayLength(reader) => match self.array_length(reader, input)? {
                    Some(step) => return Ok(step),
                    None => self.phase = Phase::Bulk,
                },
                Phase::Bulk => {
                    self.take_whole_bulks(input);
                    if self.missing == 0 {
                        return self.found(Source::Array, input, self.pos);
                    }
                    match input.get(self.pos) {
                        None => return Ok(Step::Incomplete { wants: 1 }),
                        Some(b'$') => {
                            self.pos += 1;
                            self.phase = Phase::BulkLength(LengthReader::new());
                        }
                        Some(&other) => {
                            return Err(RequestError::ExpectedBulk(UnexpectedByte(other)));
                        }
                    }
                }
                Phase::BulkLength(reader) => match self.bulk_length(reader, input)? {
                    Some(step) => return Ok(step),
                    None => continue,
                },
                Phase::BulkBody { len } => {
                    let end = self.pos + len;
                    match input.get(end..end + 2) {
                        None => {
                            let wants = end + 2 - input.len();
                            return Ok(Step::Incomplete { wants });
                        }
                        Some(b"\r\n") => self.take_bulk(self.pos, len),
                        Some(_) => return Err(RequestError::BulkEnd),
                    }
                    self.phase = Phase::Bulk;
                }
                Phase::Inline => return self.inline(input),
            }
        }
    }

    /// The fast path for a length that is completely here and within the limit. Leaves everything else to the slow
    /// path.
    #[inline]
    fn short_array_length(&self, rest: &[u8]) -> Option<(usize, usize)> {
        let (args, used) = short_length(rest)?;
        let args = within(args, self.limits.max_args).filter(|args| *args > 0)?;
        Some((args, used))
    }

    /// `None` means that the length is known and bulks follow.
    fn array_length(&mut self, mut reader: LengthReader, input: &[u8]) -> Result<Option<Step>, RequestError> {
        match reader.read(&input[self.pos..], self.limits.max_header_line) {
            LengthStep::More => {
                self.pos = input.len();
                self.phase = Phase::ArrayLength(reader);
                Ok(Some(Step::Incomplete { wants: 1 }))
            }
            LengthStep::Done(None | Some(0), used) | LengthStep::Negative(used) => {
                let consumed = self.pos + used;
                self.begin();
                Ok(Some(Step::Ignored { consumed }))
            }
            LengthStep::Done(Some(args), used) => {
                self.pos += used;
                self.missing = within(args, self.limits.max_args).ok_or(RequestError::too_many_args(self.limits))?;
                Ok(None)
            }
            LengthStep::Malformed => Err(RequestError::ArrayLength),
            LengthStep::TooLong => Err(RequestError::ArrayLine),
        }
    }

    /// `None` means that the length is known and the bytes follow.
    fn bulk_length(&mut self, mut reader: LengthReader, input: &[u8]) -> Result<Option<Step>, RequestError> {
        match reader.read(&input[self.pos..], self.limits.max_header_line) {
            LengthStep::More => {
                self.pos = input.len();
                self.phase = Phase::BulkLength(reader);
                Ok(Some(Step::Incomplete { wants: 1 }))
            }
            LengthStep::Done(Some(len), used) => {
                self.pos += used;
                let len = within(len, self.limits.max_bulk).ok_or(RequestError::too_big_bulk(self.limits))?;
                if !self.fits(self.pos, len) {
                    return Err(RequestError::FrameSize);
                }
                self.phase = Phase::BulkBody { len };
                Ok(None)
            }
            LengthStep::Done(None, _) | LengthStep::Negative(_) | LengthStep::Malformed => {
                Err(RequestError::BulkLength)
            }
            LengthStep::TooLong => Err(RequestError::BulkLine),
        }
    }

    /// The fast path for bulks that are completely here. Leaves the first one that is not, or that has any error, to
    /// the slow path.
    #[inline]
    fn take_whole_bulks(&mut self, input: &[u8]) {
        let (mut pos, mut missing) = (self.pos, self.missing);
        while missing > 0 {
            let Some((start, len)) = whole_bulk(input, pos) else {
                break;
            };
            let behind = start + len + 2;
            if len > self.limits.max_bulk || behind > self.limits.max_frame {
                break;
            }
            self.ranges.push(ArgRange::new(start, len));
            pos = behind;
            missing -= 1;
        }
        (self.pos, self.missing) = (pos, missing);
    }

    fn take_bulk(&mut self, start: usize, len: usize) {
        self.ranges.push(ArgRange::new(start, len));
        self.pos = start + len + 2;
        self.missing -= 1;
    }

    fn fits(&self, start: usize, len: usize) -> bool {
        start.checked_add(len).and_then(|end| end.checked_add(2)).is_some_and(|end| end <= self.limits.max_frame)
    }

    fn inline(&mut self, input: &[u8]) -> Result<Step, RequestError> {
        // Bytes beyond the longest line are not examined, so the result does not depend on how many of them have
        // arrived.
        let upper = input.len().min(self.limits.max_inline + 1);
        let window = &input[self.pos..upper.max(self.pos)];
        let Some(found) = memchr2(0, b'\n', window) else {
            if input.len() > self.limits.max_inline {
                return Err(RequestError::InlineSize);
            }
            self.pos = input.len();
            return Ok(Step::Incomplete { wants: 1 });
        };
        if window[found] == 0 {
            return Err(RequestError::InlineNul);
        }
        let line = &input[..self.pos + found];
        let consumed = line.len() + 1;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if inline::is_http(line) {
            return Err(RequestError::CrossProtocol);
        }
        let words = inline::split(line).ok_or(RequestError::UnbalancedQuotes)?;
        if words.len() == 0 {
            self.begin();
            return Ok(Step::Ignored { consumed });
        }
        if words.len() > self.limits.max_args {
            return Err(RequestError::too_many_args(self.limits));
        }
        if words.iter().any(|word| word.len() > self.limits.max_bulk) {
            return Err(RequestError::too_big_bulk(self.limits));
        }
        frame::encode(words.iter(), &mut self.canonical, &mut self.ranges);
        self.found(Source::Inline, input, consumed)
    }

    /// All arguments are here. Redis closes the connection on these two names, in whatever form they arrive.
    fn found(&mut self, source: Source, input: &[u8], consumed: usize) -> Result<Step, RequestError> {
        self.pos = consumed;
        self.phase = Phase::Found { source };
        let frame = match source {
            Source::Array => input,
            Source::Inline => &self.canonical,
        };
        match self.ranges.first().map(|name| name.of(frame)) {
            Some(name) if is_http_word(name) => Err(RequestError::CrossProtocol),
            _ => Ok(Step::Request { consumed }),
        }
    }

    /// Returns to the start of a frame. After a huge request its memory is freed.
    fn begin(&mut self) {
        self.phase = Phase::Start;
        self.pos = 0;
        self.missing = 0;
        self.ranges.clear();
        self.canonical.clear();
        if self.ranges.capacity() > KEPT_RANGES {
            self.ranges.shrink_to(KEPT_RANGES);
        }
        if self.canonical.capacity() > KEPT_CANONICAL {
            self.canonical.shrink_to(KEPT_CANONICAL);
        }
    }
}

/// The position of the text of a bulk that is completely here, and its length. `pos` is where the bulk begins; `None`
/// only means that the slow path must decide.
#[inline]
fn whole_bulk(input: &[u8], pos: usize) -> Option<(usize, usize)> {
    let [b'$', rest @ ..] = input.get(pos..)? else {
        return None;
    };
    let (len, used) = short_length(rest)?;
    let len = usize::try_from(len).ok()?;
    let ended = rest.get(used + len..used + len + 2)? == b"\r\n";
    ended.then_some((pos + 1 + used, len))
}

/// The limits are checked in the type in which lengths are read, before any cast.
fn within(announced: u64, limit: usize) -> Option<usize> {
    usize::try_from(announced).ok().filter(|len| *len <= limit)
}

/// Every type byte of RESP2 and RESP3 except an array's. No Redis command begins with one, and a peer that sends one
/// intends to send frames.
fn is_reply_type(byte: u8) -> bool {
    memchr::memchr(byte, b"+-:$_#,(=!%~>|;.").is_some()
}
