//! Frames that the proxy itself writes: requests to the backend and replies to the client. Every frame is canonical,
//! and no text can break out of its line. Relayed bytes never come here.

#[cfg(test)]
mod tests;

use crate::value::{Protocol, Value};
use bytes::{BufMut, BytesMut};
use memchr::memchr2;

/// Appends one request: an array of bulk strings.
pub fn put_request<A: AsRef<[u8]>>(out: &mut BytesMut, args: &[A]) {
    let mut request = RequestWriter::new(out);
    request.put_header(args.len());
    for arg in args {
        request.put_bulk(arg.as_ref());
    }
}

/// Writes one request argument by argument, if they are not in one slice.
///
/// Invariant: as many bulks follow the header as it announced; anything else would tear the
/// connection's framing apart, so debug builds check it.
pub struct RequestWriter<'a> {
    out: &'a mut BytesMut,
    missing: usize,
}

impl<'a> RequestWriter<'a> {
    /// Appends to `out`.
    pub fn new(out: &'a mut BytesMut) -> Self {
        Self { out, missing: 0 }
    }

    /// Announces a request of `args` arguments, the name included.
    pub fn put_header(&mut self, args: usize) {
        debug_assert_eq!(self.missing, 0, "the request before has not ended");
        write_header(self.out, b'*', args);
        self.missing = args;
    }

    /// One argument.
    pub fn put_bulk(&mut self, arg: &[u8]) {
        debug_assert_ne!(self.missing, 0, "more arguments than announced");
        write_bulk(self.out, arg);
        self.missing -= 1;
    }
}

impl Drop for RequestWriter<'_> {
    fn drop(&mut self) {
        debug_assert!(self.missing == 0 || std::thread::panicking(), "{} arguments fewer than announced", self.missing);
    }
}

/// Appends a simple string (`+`). Line ends in it become blanks.
pub fn put_simple(out: &mut BytesMut, text: impl AsRef<[u8]>) {
    write_line(out, b'+', text.as_ref());
}

/// Appends an error (`-`), which begins with its code: `ERR no such key`. Line ends in it become
/// blanks; a leading `-` is taken for the one that is written anyway, as Redis does.
pub fn put_error(out: &mut BytesMut, text: impl AsRef<[u8]>) {
    let text = text.as_ref();
    write_line(out, b'-', text.strip_prefix(b"-").unwrap_or(text));
}

/// Appends an integer (`:`).
pub fn put_integer(out: &mut BytesMut, value: i64) {
    out.put_u8(b':');
    if value < 0 {
        out.put_u8(b'-');
    }
    write_decimal(out, value.unsigned_abs());
    out.put_slice(CRLF);
}

/// Appends a bulk string (`$`).
pub fn put_bulk(out: &mut BytesMut, bytes: impl AsRef<[u8]>) {
    write_bulk(out, bytes.as_ref());
}

/// Appends this protocol's reply for a missing value.
pub fn put_null(out: &mut BytesMut, protocol: Protocol) {
    out.put_slice(match protocol {
        Protocol::Resp2 => b"$-1\r\n",
        Protocol::Resp3 => b"_\r\n",
    });
}

/// Appends this protocol's reply for a missing array, as for an aborted EXEC.
pub fn put_null_array(out: &mut BytesMut, protocol: Protocol) {
    out.put_slice(match protocol {
        Protocol::Resp2 => b"*-1\r\n",
        Protocol::Resp3 => b"_\r\n",
    });
}

/// Announces an array; the caller appends its elements.
pub fn put_array_header(out: &mut BytesMut, elements: usize) {
    write_header(out, b'*', elements);
}

/// Appends a value. Types that RESP2 lacks are written as Redis writes them there: maps as flat arrays, sets and pushes
/// as arrays, booleans as integers, other scalars as bulk strings.
pub fn put_value(out: &mut BytesMut, value: &Value, protocol: Protocol) {
    let resp3 = protocol == Protocol::Resp3;
    match value {
        Value::Simple(text) => put_simple(out, text),
        Value::Error(text) => write_line(out, b'-', text),
        Value::Integer(number) => put_integer(out, *number),
        Value::Bulk(bytes) => put_bulk(out, bytes),
        Value::Null => put_null(out, protocol),
        Value::Array(items) => put_items(out, b'*', items, protocol),
        Value::Set(items) => put_items(out, if resp3 { b'~' } else { b'*' }, items, protocol),
        Value::Push(items) => put_items(out, if resp3 { b'>' } else { b'*' }, items, protocol),
        Value::Map(pairs) => {
            match protocol {
                Protocol::Resp2 => write_header(out, b'*', pairs.len() * 2),
                Protocol::Resp3 => write_header(out, b'%', pairs.len()),
            }
            for (key, item) in pairs {
                put_value(out, key, protocol);
                put_value(out, item, protocol);
            }
        }
        Value::Double(text) if resp3 => write_line(out, b',', text),
        Value::BigNumber(text) if resp3 => write_line(out, b'(', text),
        Value::Double(text) | Value::BigNumber(text) => put_bulk(out, text),
        Value::Boolean(truth) if resp3 => {
            out.put_slice(if *truth { b"#t\r\n" } else { b"#f\r\n" });
        }
        Value::Boolean(truth) => put_integer(out, i64::from(*truth)),
        Value::Verbatim { format, data } if resp3 => put_verbatim(out, format, data),
        Value::Verbatim { data, .. } => put_bulk(out, data),
        Value::BlobError(text) if resp3 => {
            write_header(out, b'!', text.len());
            out.put_slice(text);
            out.put_slice(CRLF);
        }
        Value::BlobError(text) => write_line(out, b'-', text),
    }
}

fn put_items(out: &mut BytesMut, kind: u8, items: &[Value], protocol: Protocol) {
    write_header(out, kind, items.len());
    for item in items {
        put_value(out, item, protocol);
    }
}

/// The format is three bytes on the wire; any other size is written as plain text.
fn put_verbatim(out: &mut BytesMut, format: &[u8], data: &[u8]) {
    let format = if format.len() == 3 { format } else { b"txt" };
    write_header(out, b'=', data.len() + 4);
    out.put_slice(format);
    out.put_u8(b':');
    out.put_slice(data);
    out.put_slice(CRLF);
}

const CRLF: &[u8] = b"\r\n";

pub(crate) fn write_header(out: &mut impl BufMut, kind: u8, length: usize) {
    out.put_u8(kind);
    write_decimal(out, length as u64);
    out.put_slice(CRLF);
}

/// A bulk string up to this size is assembled first and appended at once: a request to the backend has twenty of them,
/// and each append checks the free room.
const SMALL_BULK: usize = 90;

pub(crate) fn write_bulk(out: &mut impl BufMut, bytes: &[u8]) {
    let length = bytes.len();
    if length > SMALL_BULK {
        write_header(out, b'$', length);
        out.put_slice(bytes);
        out.put_slice(CRLF);
        return;
    }
    let mut bulk = [0; SMALL_BULK + 7];
    bulk[0] = b'$';
    // Less than 100.
    let (tens, ones) = ((length / 10) as u8, (length % 10) as u8);
    let at = if tens > 0 {
        (bulk[1], bulk[2]) = (b'0' + tens, b'0' + ones);
        3
    } else {
        bulk[1] = b'0' + ones;
        2
    };
    bulk[at..at + 2].copy_from_slice(CRLF);
    bulk[at + 2..at + 2 + length].copy_from_slice(bytes);
    bulk[at + 2 + length..at + 4 + length].copy_from_slice(CRLF);
    out.put_slice(&bulk[..at + 4 + length]);
}

fn write_line(out: &mut BytesMut, kind: u8, text: &[u8]) {
    out.put_u8(kind);
    let mut rest = text;
    while let Some(end) = memchr2(b'\r', b'\n', rest) {
        out.put_slice(&rest[..end]);
        out.put_u8(b' ');
        rest = &rest[end + 1..];
    }
    out.put_slice(rest);
    out.put_slice(CRLF);
}

fn write_decimal(out: &mut impl BufMut, value: u64) {
    // u64::MAX has 20 digits.
    let mut digits = [0_u8; 20];
    let mut first = digits.len();
    let mut rest = value;
    loop {
        first -= 1;
        // A remainder by ten fits a byte.
        digits[first] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.put_slice(&digits[first..]);
}
