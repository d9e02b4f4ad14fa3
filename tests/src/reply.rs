//! Replies as a server sends them, RESP2 and RESP3, and the compact text that transcripts compare: `+OK`,
//! `:0`, `$2 a1`, `nil`, `-ERR …`, `[+OK, :1]`. The reader is lenient where Redis is free to choose, and
//! keeps no state; the strict framer under test is in the proxy.

use std::fmt;

/// One reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `+OK`
    Status(String),
    /// `-ERR …`, or RESP3's `!` form.
    Error(String),
    /// `:0`
    Integer(i64),
    /// A string of bytes.
    Bulk(Vec<u8>),
    /// `$-1`
    Nil,
    /// `*-1`, the answer of an EXEC that lost its WATCH.
    NilArray,
    /// RESP3's `_`
    Null,
    /// An array.
    Array(Vec<Reply>),
    /// RESP3's `%`, keys and values in turn.
    Map(Vec<Reply>),
    /// RESP3's `~`
    Set(Vec<Reply>),
    /// RESP3's `>`, not an answer to anything.
    Push(Vec<Reply>),
    /// RESP3's `#t`, `,1.5`, `(123`: the line as sent, with its mark.
    Line(String),
    /// RESP3's `=txt:…`
    Verbatim(Vec<u8>),
}

impl Reply {
    /// Reads one reply from the beginning of `bytes`; `None` while it is incomplete, otherwise the
    /// reply and its length in bytes. Panics on what no server may send.
    pub fn parse(bytes: &[u8]) -> Option<(Reply, usize)> {
        let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
        let line = String::from_utf8_lossy(bytes.get(1..end)?).into_owned();
        let after = end + 2;
        let mark = *bytes.first()?;
        Some(match mark {
            b'+' => (Reply::Status(line), after),
            b'-' => (Reply::Error(line), after),
            b':' => (Reply::Integer(number(&line)), after),
            b'_' => (Reply::Null, after),
            b'#' | b',' | b'(' => (Reply::Line(format!("{}{line}", mark as char)), after),
            b'$' | b'=' | b'!' => {
                let length = number(&line);
                let Ok(length) = usize::try_from(length) else {
                    return Some((Reply::Nil, after));
                };
                let content = bytes.get(after..after + length)?.to_vec();
                let tail = bytes.get(after + length..after + length + 2)?;
                assert_eq!(tail, b"\r\n", "a bulk string that does not end where it said");
                let reply = match mark {
                    b'$' => Reply::Bulk(content),
                    b'=' => Reply::Verbatim(content),
                    _ => Reply::Error(String::from_utf8_lossy(&content).into_owned()),
                };
                (reply, after + length + 2)
            }
            b'*' | b'~' | b'>' | b'%' => {
                let count = number(&line);
                let Ok(count) = usize::try_from(count) else {
                    return Some((Reply::NilArray, after));
                };
                let count = if mark == b'%' { count * 2 } else { count };
                let (elements, after) = Self::parse_elements(bytes, after, count)?;
                let reply = match mark {
                    b'*' => Reply::Array(elements),
                    b'~' => Reply::Set(elements),
                    b'>' => Reply::Push(elements),
                    _ => Reply::Map(elements),
                };
                (reply, after)
            }
            other => panic!("a reply cannot begin with byte {other:#04x}: {line:?}"),
        })
    }

    fn parse_elements(bytes: &[u8], mut at: usize, count: usize) -> Option<(Vec<Reply>, usize)> {
        let mut elements = Vec::new();
        for _ in 0..count {
            let (element, length) = Self::parse(bytes.get(at..)?)?;
            elements.push(element);
            at += length;
        }
        Some((elements, at))
    }

    /// The number of an integer reply; panics on anything else.
    #[track_caller]
    pub fn integer(&self) -> i64 {
        match self {
            Reply::Integer(number) => *number,
            other => panic!("not an integer: {other}"),
        }
    }

    /// The text of an error; panics on anything else.
    #[track_caller]
    pub fn error(&self) -> String {
        match self {
            Reply::Error(text) => text.clone(),
            other => panic!("not an error: {other}"),
        }
    }

    /// The bytes of a bulk string; panics on anything else.
    #[track_caller]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Reply::Bulk(bytes) => bytes,
            other => panic!("not a bulk string: {other}"),
        }
    }

    /// The bulk string as text; panics on anything else.
    #[track_caller]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.bytes()).into_owned()
    }

    /// The elements of an array; panics on anything else.
    #[track_caller]
    pub fn elements(&self) -> &[Reply] {
        match self {
            Reply::Array(elements) => elements,
            other => panic!("not an array: {other}"),
        }
    }
}

fn number(line: &str) -> i64 {
    line.parse().unwrap_or_else(|_| panic!("a server sent {line:?} where a number belongs"))
}

impl fmt::Display for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reply::Status(line) => write!(f, "+{line}"),
            Reply::Error(line) => write!(f, "-{line}"),
            Reply::Integer(number) => write!(f, ":{number}"),
            Reply::Bulk(bytes) => write!(f, "${} {}", bytes.len(), bytes.escape_ascii()),
            Reply::Nil => f.write_str("nil"),
            Reply::NilArray => f.write_str("nil-array"),
            Reply::Null => f.write_str("null"),
            Reply::Array(elements) => list(f, "[", elements, "]"),
            Reply::Map(elements) => list(f, "{", elements, "}"),
            Reply::Set(elements) => list(f, "~[", elements, "]"),
            Reply::Push(elements) => list(f, ">[", elements, "]"),
            Reply::Line(line) => f.write_str(line),
            Reply::Verbatim(bytes) => write!(f, "={} {}", bytes.len(), bytes.escape_ascii()),
        }
    }
}

fn list(f: &mut fmt::Formatter<'_>, open: &str, elements: &[Reply], close: &str) -> fmt::Result {
    f.write_str(open)?;
    for (at, element) in elements.iter().enumerate() {
        if at > 0 {
            f.write_str(", ")?;
        }
        write!(f, "{element}")?;
    }
    f.write_str(close)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(bytes: &[u8]) -> String {
        let (reply, length) = Reply::parse(bytes).unwrap();
        assert_eq!(length, bytes.len());
        reply.to_string()
    }

    #[test]
    fn every_kind_of_reply_has_its_own_text() {
        assert_eq!(shown(b"+OK\r\n"), "+OK");
        assert_eq!(shown(b":-2\r\n"), ":-2");
        assert_eq!(shown(b"$2\r\na1\r\n"), "$2 a1");
        assert_eq!(shown(b"$-1\r\n"), "nil");
        assert_eq!(shown(b"*-1\r\n"), "nil-array");
        assert_eq!(shown(b"_\r\n"), "null");
        assert_eq!(shown(b"*2\r\n:1\r\n*1\r\n$0\r\n\r\n"), "[:1, [$0 ]]");
        assert_eq!(shown(b"%1\r\n+a\r\n#t\r\n"), "{+a, #t}");
        assert_eq!(shown(b"!3\r\nERR\r\n"), "-ERR");
    }

    #[test]
    fn an_incomplete_reply_is_no_reply_yet() {
        let whole = b"*2\r\n$3\r\nabc\r\n:1\r\n";
        for length in 0..whole.len() {
            assert_eq!(Reply::parse(&whole[..length]), None);
        }
    }
}
