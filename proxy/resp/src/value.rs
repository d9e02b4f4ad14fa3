//! Values, for the few replies that the proxy reads. A frame is scanned first, so only complete frames of limited depth
//! are passed to `redis-protocol`, whose recursion would otherwise crash the process. Types that it cannot return byte
//! for byte are read here instead. To write a value, see [`crate::encode`].

#[cfg(test)]
mod tests;

use crate::reply::{ReplyError, ReplyLimits, ReplyScanner, Scan};
use bytes::Bytes;
use redis_protocol::{resp2, resp3};

/// The version that a connection speaks, chosen by HELLO.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// The version in which every connection begins.
    #[default]
    Resp2,
    /// The version with maps, pushes and its own null.
    Resp3,
}

/// One reply. Texts are the bytes that were sent, as slices of the frame: to keep one for long,
/// copy it. Attributes are not kept.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `+`
    Simple(Bytes),
    /// `-`, from its code on.
    Error(Bytes),
    /// `:`
    Integer(i64),
    /// `$`
    Bulk(Bytes),
    /// `_`, `$-1` or `*-1`.
    Null,
    /// `*`
    Array(Vec<Value>),
    /// `%`, in the order sent, equal keys included.
    Map(Vec<(Value, Value)>),
    /// `~`, in the order sent, equal elements included.
    Set(Vec<Value>),
    /// `>`
    Push(Vec<Value>),
    /// `,` as sent, because decimals do not survive conversion to a float and back.
    Double(Bytes),
    /// `#`
    Boolean(bool),
    /// `(` as sent.
    BigNumber(Bytes),
    /// `=`
    Verbatim {
        /// Three bytes: `txt`, `mkd`.
        format: Bytes,
        /// The text behind the format.
        data: Bytes,
    },
    /// `!`, from its code on.
    BlobError(Bytes),
}

impl Value {
    /// The text of a string of any kind.
    #[must_use]
    pub fn as_bytes(&self) -> Option<&Bytes> {
        match self {
            Self::Simple(text) | Self::Bulk(text) | Self::Verbatim { data: text, .. } => Some(text),
            _ => None,
        }
    }

    /// The number of an integer.
    #[must_use]
    pub fn as_integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            _ => None,
        }
    }

    /// The elements of an array, set or push.
    #[must_use]
    pub fn as_items(&self) -> Option<&[Value]> {
        match self {
            Self::Array(items) | Self::Set(items) | Self::Push(items) => Some(items),
            _ => None,
        }
    }

    /// The text of an error of either kind, from its code on.
    #[must_use]
    pub fn as_error(&self) -> Option<&Bytes> {
        match self {
            Self::Error(text) | Self::BlobError(text) => Some(text),
            _ => None,
        }
    }

    /// Whether this is an error of either kind.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.as_error().is_some()
    }

    /// Whether this is null.
    #[must_use]
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }
}

/// Reads one complete frame.
///
/// # Errors
/// If the bytes are not exactly one frame, or one that this protocol version does not have.
pub fn parse_reply(frame: &Bytes, protocol: Protocol) -> Result<Value, ReplyError> {
    match plain(frame) {
        Some(value) => Ok(value),
        None => parse_any(frame, protocol),
    }
}

/// The elements of an array that is read at once.
const MAX_PLAIN_ITEMS: usize = 64;

/// Most replies that the proxy reads are one string or number, or an array of these: they are read in one pass if they
/// are in Redis's usual form. `None` for all others.
fn plain(frame: &Bytes) -> Option<Value> {
    let mut pos = 0;
    let value = match frame.first()? {
        b'*' => {
            let items = usize::try_from(plain_number(frame, &mut pos)?).ok()?;
            if items > MAX_PLAIN_ITEMS {
                return None;
            }
            let mut all = Vec::with_capacity(items);
            for _ in 0..items {
                all.push(plain_scalar(frame, &mut pos)?);
            }
            Value::Array(all)
        }
        _ => plain_scalar(frame, &mut pos)?,
    };
    (pos == frame.len()).then_some(value)
}

fn plain_scalar(frame: &Bytes, pos: &mut usize) -> Option<Value> {
    match frame.get(*pos)? {
        b':' => plain_number(frame, pos).map(Value::Integer),
        b'$' => match plain_number(frame, pos)? {
            -1 => Some(Value::Null),
            length => {
                let (start, length) = (*pos, usize::try_from(length).ok()?);
                let end = start.checked_add(length)?;
                if frame.get(end..end.checked_add(2)?)? != b"\r\n" {
                    return None;
                }
                *pos = end + 2;
                Some(Value::Bulk(frame.slice(start..end)))
            }
        },
        _ => None,
    }
}

/// The number after the type byte here; advances past its line.
fn plain_number(frame: &[u8], pos: &mut usize) -> Option<i64> {
    let line = frame.get(*pos + 1..)?;
    let negative = line.first() == Some(&b'-');
    let digits = &line[usize::from(negative)..];
    let mut number: i64 = 0;
    let mut count = 0;
    while let Some(digit) = digits.get(count).filter(|byte| byte.is_ascii_digit()) {
        // One more digit could be too large.
        if count == 18 {
            return None;
        }
        number = number * 10 + i64::from(digit - b'0');
        count += 1;
    }
    let padded = digits.first() == Some(&b'0') && (count > 1 || negative);
    if count == 0 || padded || digits.get(count..count + 2)? != b"\r\n" {
        return None;
    }
    *pos += 1 + usize::from(negative) + count + 2;
    Some(if negative { -number } else { number })
}

fn parse_any(frame: &Bytes, protocol: Protocol) -> Result<Value, ReplyError> {
    match ReplyScanner::new(ReplyLimits::for_reading()).scan(frame)? {
        Scan::Complete { consumed } if consumed == frame.len() => {}
        Scan::Complete { .. } | Scan::Partial => return Err(ReplyError::NotOneFrame),
    }
    match protocol {
        Protocol::Resp2 => {
            let (found, _) = resp2::decode::decode_range(frame).ok().flatten().ok_or(ReplyError::Protocol)?;
            Ok(from_resp2(frame, found))
        }
        Protocol::Resp3 => Cursor { frame, pos: 0 }.value(),
    }
}

/// Recurses as deep as the frame, which the scan has limited.
fn from_resp2(frame: &Bytes, found: resp2::types::RangeFrame) -> Value {
    use resp2::types::RangeFrame;
    match found {
        RangeFrame::SimpleString((start, end)) => Value::Simple(frame.slice(start..end)),
        RangeFrame::Error((start, end)) => Value::Error(frame.slice(start..end)),
        RangeFrame::Integer(number) => Value::Integer(number),
        RangeFrame::BulkString((start, end)) => Value::Bulk(frame.slice(start..end)),
        RangeFrame::Array(items) => Value::Array(items.into_iter().map(|item| from_resp2(frame, item)).collect()),
        RangeFrame::Null => Value::Null,
    }
}

/// Walks the aggregates of a RESP3 frame that was scanned, and leaves values without elements to `redis-protocol`. That
/// library's own maps and sets lose the order and merge equal keys, it refuses aggregates as keys, RESP2's nulls and
/// formats it does not know, and it rounds doubles.
struct Cursor<'a> {
    frame: &'a Bytes,
    pos: usize,
}

impl Cursor<'_> {
    /// The value that begins here. Recurses as deep as the frame, which the scan has limited.
    fn value(&mut self) -> Result<Value, ReplyError> {
        loop {
            return match self.frame.get(self.pos..) {
                Some([b'|', ..]) => {
                    for _ in 0..self.length()?.saturating_mul(2) {
                        self.value()?;
                    }
                    continue;
                }
                Some([b'$' | b'*', b'-', ..]) => {
                    self.line()?;
                    Ok(Value::Null)
                }
                Some([b'*', ..]) => self.items().map(Value::Array),
                Some([b'~', ..]) => self.items().map(Value::Set),
                Some([b'>', ..]) => self.items().map(Value::Push),
                Some([b'%', ..]) => {
                    let pairs = (0..self.length()?).map(|_| Ok((self.value()?, self.value()?)));
                    pairs.collect::<Result<_, _>>().map(Value::Map)
                }
                Some([b',', ..]) => self.line().map(Value::Double),
                Some([b'=', ..]) => self.verbatim(),
                Some([_, ..]) => self.scalar(),
                Some([]) | None => Err(ReplyError::NotOneFrame),
            };
        }
    }

    fn items(&mut self) -> Result<Vec<Value>, ReplyError> {
        (0..self.length()?).map(|_| self.value()).collect()
    }

    /// A text's format and data, of which the scan only knows the size.
    fn verbatim(&mut self) -> Result<Value, ReplyError> {
        let len = self.length()?;
        let text = self.frame.slice(self.pos..self.pos + len);
        if text[3] != b':' {
            return Err(ReplyError::Protocol);
        }
        self.pos += len + 2;
        Ok(Value::Verbatim { format: text.slice(..3), data: text.slice(4..) })
    }

    fn scalar(&mut self) -> Result<Value, ReplyError> {
        use resp3::types::RangeFrame;
        let start = self.pos;
        let (found, used) =
            resp3::decode::complete::decode_range(&self.frame[start..]).ok().flatten().ok_or(ReplyError::Protocol)?;
        self.pos += used;
        let text = |(from, to): (usize, usize)| self.frame.slice(start + from..start + to);
        match found {
            RangeFrame::BlobString { data, .. } => Ok(Value::Bulk(text(data))),
            RangeFrame::SimpleString { data, .. } => Ok(Value::Simple(text(data))),
            RangeFrame::SimpleError { data, .. } => Ok(Value::Error(text(data))),
            RangeFrame::BlobError { data, .. } => Ok(Value::BlobError(text(data))),
            RangeFrame::BigNumber { data, .. } => Ok(Value::BigNumber(text(data))),
            RangeFrame::Number { data, .. } => Ok(Value::Integer(data)),
            RangeFrame::Boolean { data, .. } => Ok(Value::Boolean(data)),
            RangeFrame::Null => Ok(Value::Null),
            _ => Err(ReplyError::Protocol),
        }
    }

    /// The length after the type byte here; advances past its line.
    fn length(&mut self) -> Result<usize, ReplyError> {
        let line = self.line()?;
        std::str::from_utf8(&line).ok().and_then(|digits| digits.parse().ok()).ok_or(ReplyError::Length)
    }

    /// The bytes between the type byte here and the line's end; advances past them.
    fn line(&mut self) -> Result<Bytes, ReplyError> {
        let rest = &self.frame[self.pos..];
        let end = memchr::memchr(b'\r', rest).ok_or(ReplyError::LineEnd)?;
        let line = self.frame.slice(self.pos + 1..self.pos + end);
        self.pos += end + 2;
        Ok(line)
    }
}
