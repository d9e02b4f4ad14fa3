//! Finds the elements of a complete aggregate without parsing them: for replies that are changed in one place and must
//! be unchanged in all others.

use crate::reply::{ReplyLimits, ReplyScanner, Scan};
use memchr::memchr;
use std::ops::Range;

/// The positions of the elements of an array, set or push in its frame, in order. Ends at the end of the frame, or
/// before an incomplete element.
pub struct Elements<'a> {
    frame: &'a [u8],
    at: usize,
    scanner: ReplyScanner,
}

impl<'a> Elements<'a> {
    /// The elements of this frame; `None` if it is null or no aggregate.
    #[must_use]
    pub fn of(frame: &'a [u8]) -> Option<Elements<'a>> {
        if !matches!(frame, [b'*' | b'~' | b'>', b'0'..=b'9', ..]) {
            return None;
        }
        let at = memchr(b'\n', frame)? + 1;
        let scanner = ReplyScanner::new(ReplyLimits::default());
        Some(Elements { frame, at, scanner })
    }
}

impl Iterator for Elements<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let start = self.at;
        match self.scanner.scan(&self.frame[start..]) {
            Ok(Scan::Complete { consumed }) => {
                self.at += consumed;
                Some(start..self.at)
            }
            Ok(Scan::Partial) | Err(_) => None,
        }
    }
}

/// The bytes of a bulk string, given its whole frame; `None` if it is null or something else.
#[must_use]
pub fn bulk_text(frame: &[u8]) -> Option<&[u8]> {
    if !matches!(frame, [b'$', b'0'..=b'9', ..]) {
        return None;
    }
    let begin = memchr(b'\n', frame)? + 1;
    frame.get(begin..)?.strip_suffix(b"\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(frame: &[u8]) -> Option<Vec<&[u8]>> {
        Some(Elements::of(frame)?.map(|place| &frame[place]).collect())
    }

    #[test]
    fn the_elements_of_an_aggregate_are_found() {
        let array = b"*3\r\n:1\r\n*2\r\n$1\r\na\r\n:2\r\n$-1\r\n";
        assert_eq!(texts(array), Some(vec![&b":1\r\n"[..], b"*2\r\n$1\r\na\r\n:2\r\n", b"$-1\r\n"]));
        assert_eq!(texts(b"*0\r\n"), Some(vec![]));
        assert_eq!(texts(b"*-1\r\n"), None);
        assert_eq!(texts(b"+OK\r\n"), None);
        assert_eq!(texts(b"*1\r\n$5\r\nab"), Some(vec![]), "cut off");
    }

    #[test]
    fn the_text_of_a_bulk_string_may_be_anything() {
        assert_eq!(bulk_text(b"$4\r\na\r\nb\r\n"), Some(&b"a\r\nb"[..]));
        assert_eq!(bulk_text(b"$0\r\n\r\n"), Some(&b""[..]));
        assert_eq!(bulk_text(b"$-1\r\n"), None);
        assert_eq!(bulk_text(b"+a\r\n"), None);
    }
}
