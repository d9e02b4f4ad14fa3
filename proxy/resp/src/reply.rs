//! The backend's replies: every frame type of RESP2 and RESP3, scanned without being stored. The scanner gets new bytes
//! as they arrive, reports where frames end, and stores only its position, so a reply of any size can be relayed while
//! it arrives. It does not read values; for the few replies whose content is needed, see [`crate::value`].

mod error;
mod levels;
mod number;
#[cfg(test)]
mod tests;

pub use error::ReplyError;

use crate::length::{Length, LengthReader, LengthStep, short_length};
use levels::{Level, Levels};
use memchr::{memchr, memchr2, memmem};
use number::{DoubleReader, IntegerReader, NumberStep};

/// The limits of one reply. The scanner needs no memory for it: these limits detect a backend that no longer sends
/// frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyLimits {
    /// The nesting depth of aggregates.
    pub max_depth: usize,
    /// Size of one bulk string, blob error or verbatim string, in bytes.
    pub max_bulk: usize,
    /// Elements in one frame, at all depths together.
    pub max_elements: u64,
}

/// The nesting depth of aggregates in a relayed reply. Redis makes 7,995 levels from a script's return value before
/// Lua's stack is full; the scanner stores 16 bytes for each.
const MAX_RELAYED_DEPTH: usize = 16 * 1024;
/// The same for a reply whose value is read: reading recurses.
const MAX_READ_DEPTH: usize = 32;
/// A length line has at most 20 digits; a longer one is invalid anyway.
const MAX_LENGTH_LINE: usize = 32;

impl Default for ReplyLimits {
    /// For replies that are relayed: depth 16,384, bulks up to 4 GiB (a server's `proto-max-bulk-len`
    /// may be raised above the usual 512 MiB), 2³² elements.
    fn default() -> Self {
        Self {
            max_depth: MAX_RELAYED_DEPTH,
            max_bulk: usize::try_from(4_u64 << 30).unwrap_or(usize::MAX),
            max_elements: 1 << 32,
        }
    }
}

impl ReplyLimits {
    /// For replies whose value is read: depth 32.
    pub(crate) fn for_reading() -> Self {
        Self { max_depth: MAX_READ_DEPTH, ..Self::default() }
    }
}

/// The state of the current frame after one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// All of the input belongs to the current frame, which continues.
    Partial,
    /// The frame ended.
    Complete {
        /// Bytes of the input that belong to it.
        consumed: usize,
    },
}

/// The bytes that [`ReplyScanner::skip_frames`] skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Frames that ended.
    pub frames: u64,
    /// Bytes of the input that belong to them and, if fewer frames ended than requested, to the one that continues.
    pub bytes: usize,
}

/// Errors by which a node of a Redis Cluster sends a client to another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Redirects {
    /// `-MOVED`: for good.
    pub moved: u64,
    /// `-ASK`: for this request only.
    pub ask: u64,
}

/// Finds the ends of frames in bytes that arrive in pieces of any size.
pub struct ReplyScanner {
    limits: ReplyLimits,
    state: State,
    /// The aggregates that are open.
    open: Levels,
    /// Elements of the current frame so far.
    elements: u64,
    /// Whether the current frame has begun.
    begun: bool,
    frame_type: Option<u8>,
    redirects: Redirects,
    is_of_replica: bool,
    failed: Option<ReplyError>,
}

#[derive(Clone, Copy)]
enum State {
    /// At a type byte.
    Type,
    /// In a `+`, `-` or `(` line.
    Text,
    Integer(IntegerReader),
    Double(DoubleReader),
    /// At the letter of a `#`.
    Boolean,
    Length {
        kind: u8,
        reader: LengthReader,
    },
    /// In a bulk of any kind, with this many bytes still to come.
    Body(u64),
    /// At the CR that ends an element.
    CarriageReturn,
    /// At the LF that ends an element.
    LineFeed,
}

enum Progress {
    Inside,
    FrameEnded,
}

impl ReplyScanner {
    /// A scanner at the start of a connection.
    #[must_use]
    pub fn new(limits: ReplyLimits) -> Self {
        Self {
            limits,
            state: State::Type,
            open: Levels::default(),
            elements: 0,
            begun: false,
            frame_type: None,
            redirects: Redirects::default(),
            is_of_replica: false,
            failed: None,
        }
    }

    /// Consumes new bytes, up to the end of the current frame. Without any it returns [`Scan::Partial`].
    ///
    /// # Errors
    /// Bytes that are no frame: the connection has lost its framing and must be dropped. Final;
    /// every later call returns it again.
    pub fn scan(&mut self, input: &[u8]) -> Result<Scan, ReplyError> {
        let skipped = self.skip_frames(input, 1)?;
        Ok(match skipped.frames {
            0 => Scan::Partial,
            _ => Scan::Complete { consumed: skipped.bytes },
        })
    }

    /// Consumes new bytes, up to the end of the `max_frames`th frame.
    ///
    /// # Errors
    /// As [`scan`](Self::scan). Frames that ended before the bad byte are reported first, with
    /// the error left to the next call: they are answers, and may be relayed.
    pub fn skip_frames(&mut self, input: &[u8], max_frames: u64) -> Result<Skipped, ReplyError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let mut ended = Skipped { frames: 0, bytes: 0 };
        let mut pos = 0;
        while pos < input.len() && ended.frames < max_frames {
            let rest = &input[pos..];
            let progress = match self.take_whole(rest) {
                Some((size, progress)) => {
                    pos += size;
                    Ok(progress)
                }
                None => self.step(rest, &mut pos),
            };
            match progress {
                Ok(Progress::Inside) => {}
                Ok(Progress::FrameEnded) => {
                    ended.frames += 1;
                    ended.bytes = pos;
                }
                Err(error) => {
                    self.failed = Some(error);
                    return if ended.frames > 0 { Ok(ended) } else { Err(error) };
                }
            }
        }
        Ok(Skipped { frames: ended.frames, bytes: pos })
    }

    /// Whether no byte of a frame has arrived: at such a point pushes and replies can be distinguished, and a
    /// connection may be handed over.
    #[must_use]
    pub fn at_frame_start(&self) -> bool {
        !self.begun && self.failed.is_none()
    }

    /// Type byte of the frame being scanned, or of the one just completed: `b'>'` for a push.
    /// `None` before the first, and until the attributes of a frame have passed.
    #[must_use]
    pub fn frame_type(&self) -> Option<u8> {
        self.frame_type
    }

    /// The redirections since the last call. One whose first word arrived in two pieces is not included.
    pub fn take_redirects(&mut self) -> Redirects {
        std::mem::take(&mut self.redirects)
    }

    /// Whether an error that only a replica sends has arrived since the last reset. It is recognised by its first word
    /// alone, so a script may have produced it.
    #[must_use]
    pub fn has_replica_error(&self) -> bool {
        self.is_of_replica
    }

    /// The same, and resets it.
    pub fn take_replica_error(&mut self) -> bool {
        std::mem::take(&mut self.is_of_replica)
    }

    /// The fast path for an element that is completely here and in the usual form. Leaves everything else, including
    /// errors, to the slow path.
    #[inline]
    fn take_whole(&mut self, rest: &[u8]) -> Option<(usize, Progress)> {
        let State::Type = self.state else {
            return None;
        };
        let size = whole_element(rest, self.limits.max_bulk)?;
        let elements = if self.begun { self.elements + 1 } else { 1 };
        if elements > self.limits.max_elements {
            return None;
        }
        self.elements = elements;
        if !self.open.is_empty() {
            return Some((size, self.element_ended()));
        }
        self.frame_type = Some(rest[0]);
        self.begun = false;
        Some((size, Progress::FrameEnded))
    }

    /// Processes one state's part of `rest`, which is not empty; advances `pos` by the consumed bytes.
    fn step(&mut self, rest: &[u8], pos: &mut usize) -> Result<Progress, ReplyError> {
        match &mut self.state {
            State::Type => {
                *pos += 1;
                self.element(rest)?;
            }
            State::Text => match memchr2(b'\r', b'\n', rest) {
                None => *pos += rest.len(),
                Some(end) if rest[end] == b'\r' => {
                    *pos += end + 1;
                    self.state = State::LineFeed;
                }
                Some(_) => return Err(ReplyError::LineEnd),
            },
            State::Integer(reader) => match reader.read(rest) {
                NumberStep::More => *pos += rest.len(),
                NumberStep::End(at) => {
                    *pos += at;
                    self.state = State::CarriageReturn;
                }
                NumberStep::Malformed => return Err(ReplyError::Number),
            },
            State::Double(reader) => match reader.read(rest) {
                NumberStep::More => *pos += rest.len(),
                NumberStep::End(at) => {
                    *pos += at;
                    self.state = State::CarriageReturn;
                }
                NumberStep::Malformed => return Err(ReplyError::Number),
            },
            State::Boolean => {
                if !matches!(rest[0], b't' | b'f') {
                    return Err(ReplyError::Boolean);
                }
                *pos += 1;
                self.state = State::CarriageReturn;
            }
            State::Length { kind, reader } => match reader.read(rest, MAX_LENGTH_LINE) {
                LengthStep::More => *pos += rest.len(),
                LengthStep::Done(length, used) => {
                    *pos += used;
                    let kind = *kind;
                    return self.announced(kind, length);
                }
                LengthStep::Negative(_) | LengthStep::Malformed | LengthStep::TooLong => {
                    return Err(ReplyError::Length);
                }
            },
            State::Body(missing) => {
                let taken = rest.len().min(usize::try_from(*missing).unwrap_or(usize::MAX));
                *pos += taken;
                *missing -= taken as u64;
                if *missing == 0 {
                    self.state = State::CarriageReturn;
                }
            }
            State::CarriageReturn => {
                if rest[0] != b'\r' {
                    return Err(ReplyError::LineEnd);
                }
                *pos += 1;
                self.state = State::LineFeed;
            }
            State::LineFeed => {
                if rest[0] != b'\n' {
                    return Err(ReplyError::LineEnd);
                }
                *pos += 1;
                return Ok(self.element_ended());
            }
        }
        Ok(Progress::Inside)
    }

    /// An element begins with the type byte of `rest`.
    fn element(&mut self, rest: &[u8]) -> Result<(), ReplyError> {
        let kind = rest[0];
        if !self.begun {
            self.begun = true;
            self.frame_type = None;
            self.elements = 0;
        }
        if self.open.is_empty() && kind != b'|' {
            self.frame_type = Some(kind);
        }
        self.elements += 1;
        if self.elements > self.limits.max_elements {
            return Err(ReplyError::TooManyElements);
        }
        self.state = match kind {
            b'+' | b'(' => State::Text,
            // Only here, so that other replies have no cost from this check.
            b'-' => {
                self.note_error(rest);
                State::Text
            }
            b':' => State::Integer(IntegerReader::new()),
            b',' => State::Double(DoubleReader::new()),
            b'#' => State::Boolean,
            b'_' => State::CarriageReturn,
            b'$' | b'!' | b'=' | b'*' | b'%' | b'~' | b'>' | b'|' => {
                State::Length { kind, reader: LengthReader::new() }
            }
            b';' | b'.' => return Err(ReplyError::Streamed),
            other => return Err(ReplyError::Type(other)),
        };
        Ok(())
    }

    fn note_error(&mut self, rest: &[u8]) {
        if rest.starts_with(b"-MOVED ") {
            self.redirects.moved += 1;
        } else if rest.starts_with(b"-ASK ") {
            self.redirects.ask += 1;
        } else if is_of_replica(rest) {
            self.is_of_replica = true;
        }
    }

    /// An element of this kind with this length begins.
    fn announced(&mut self, kind: u8, length: Length) -> Result<Progress, ReplyError> {
        match (kind, length) {
            (b'$' | b'*', None) => Ok(self.element_ended()),
            (_, None) => Err(ReplyError::Length),
            // Three letters and a colon stand before the text.
            (b'=', Some(0..4)) => Err(ReplyError::Length),
            (b'$' | b'!' | b'=', Some(len)) => {
                if len > self.limits.max_bulk as u64 {
                    return Err(ReplyError::TooBig);
                }
                self.state = if len == 0 { State::CarriageReturn } else { State::Body(len) };
                Ok(Progress::Inside)
            }
            (b'%' | b'|', Some(pairs)) => self.open(kind, pairs.saturating_mul(2)),
            (_, Some(elements)) => self.open(kind, elements),
        }
    }

    fn open(&mut self, kind: u8, elements: u64) -> Result<Progress, ReplyError> {
        if elements > self.limits.max_elements {
            return Err(ReplyError::TooManyElements);
        }
        if self.open.depth() >= self.limits.max_depth {
            return Err(ReplyError::TooDeep);
        }
        self.state = State::Type;
        match (kind, elements) {
            (b'|', 0) => return Ok(Progress::Inside),
            (_, 0) => return Ok(self.element_ended()),
            _ => {}
        }
        self.open.push(Level { missing: elements, is_attribute: kind == b'|' });
        Ok(Progress::Inside)
    }

    /// An element has ended, and with it every aggregate whose last element it was.
    fn element_ended(&mut self) -> Progress {
        self.state = State::Type;
        while let Some(top) = self.open.top() {
            top.missing -= 1;
            if top.missing > 0 {
                return Progress::Inside;
            }
            let is_attribute = top.is_attribute;
            self.open.pop();
            if is_attribute {
                // The value that the attribute belongs to is still to come.
                return Progress::Inside;
            }
        }
        self.begun = false;
        Progress::FrameEnded
    }
}

/// Whether this is an error that only a replica sends. Before Redis 7, such an error of a command in a script follows
/// other words.
fn is_of_replica(rest: &[u8]) -> bool {
    if rest.starts_with(b"-ERR Error running script (") || rest.starts_with(b"-@user_script: ") {
        let line = memchr(b'\r', rest).map_or(rest, |end| &rest[..end]);
        return memmem::find(line, b" -READONLY ").is_some();
    }
    rest.starts_with(b"-READONLY ") || rest.starts_with(b"-MASTERDOWN ")
}

/// The size of the element at the start of `rest`, if it has no inner elements, is complete and is in Redis's spelling.
/// `rest` is not empty.
#[inline]
fn whole_element(rest: &[u8], max_bulk: usize) -> Option<usize> {
    let behind_type = &rest[1..];
    match rest[0] {
        b'$' => match short_length(behind_type) {
            Some((len, used)) => {
                let len = usize::try_from(len).ok().filter(|len| *len <= max_bulk)?;
                let end = 1 + used + len;
                (rest.get(end..end + 2)? == b"\r\n").then_some(end + 2)
            }
            None => behind_type.starts_with(b"-1\r\n").then_some(5),
        },
        b'+' if behind_type.starts_with(b"OK\r\n") => Some(5),
        b'+' => {
            let end = memchr2(b'\r', b'\n', rest)?;
            (rest.get(end..end + 2)? == b"\r\n").then_some(end + 2)
        }
        b':' => short_length(behind_type).map(|(_, used)| 1 + used),
        b'*' => behind_type.starts_with(b"-1\r\n").then_some(5),
        b'_' => behind_type.starts_with(b"\r\n").then_some(3),
        _ => None,
    }
}
