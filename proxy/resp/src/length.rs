//! The length after `*`, `$` and similar type bytes: decimal, canonical, ended by CRLF, readable in pieces. It knows no
//! limits on the value; `request` and `reply` decide which lengths are allowed.

/// One length, `None` for the `-1` that means null.
pub(crate) type Length = Option<u64>;

/// The progress of one call of [`LengthReader::read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LengthStep {
    /// All bytes were consumed, and the line has not ended.
    More,
    /// The line ended; this many bytes of the slice belong to it.
    Done(Length, usize),
    /// The same with a number below -1, which is invalid in a reply and which Redis ignores before a request.
    Negative(usize),
    /// Not a canonical length, or not ended by CRLF.
    Malformed,
    /// More bytes than the line may have, and it has not ended.
    TooLong,
}

/// Reads one length and remembers its position, so that a line that arrives byte by byte is read only once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LengthReader {
    place: Place,
    value: u64,
    seen: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    First,
    Zero,
    Digits,
    Minus,
    Negative,
    LineFeed,
    NegativeLineFeed,
}

/// The lowest number that Redis reads, without its sign.
const LEAST: u64 = 1 << 63;

impl LengthReader {
    /// At the byte after the type byte.
    pub(crate) const fn new() -> Self {
        Self { place: Place::First, value: 0, seen: 0 }
    }

    /// Continues with the bytes that follow those of earlier calls. `max_line` limits the line, in bytes before its CR.
    /// The value saturates at `u64::MAX`, which every limit refuses.
    pub(crate) fn read(&mut self, bytes: &[u8], max_line: usize) -> LengthStep {
        if self.place == Place::First
            && let Some((value, used)) = short_length(bytes)
        {
            return LengthStep::Done(Some(value), used);
        }
        for (index, &byte) in bytes.iter().enumerate() {
            self.place = match (self.place, byte) {
                (Place::First, b'0') => Place::Zero,
                (Place::First, b'1'..=b'9') | (Place::Digits, b'0'..=b'9') => {
                    self.value = self.value.saturating_mul(10).saturating_add(digit(byte));
                    Place::Digits
                }
                (Place::First, b'-') => Place::Minus,
                (Place::Minus, b'1'..=b'9') | (Place::Negative, b'0'..=b'9') => {
                    self.value = self.value.saturating_mul(10).saturating_add(digit(byte));
                    Place::Negative
                }
                (Place::Zero | Place::Digits, b'\r') => Place::LineFeed,
                (Place::Negative, b'\r') if self.value <= LEAST => Place::NegativeLineFeed,
                (Place::LineFeed, b'\n') => return LengthStep::Done(Some(self.value), index + 1),
                (Place::NegativeLineFeed, b'\n') if self.value == 1 => {
                    return LengthStep::Done(None, index + 1);
                }
                (Place::NegativeLineFeed, b'\n') => return LengthStep::Negative(index + 1),
                _ => return LengthStep::Malformed,
            };
            self.seen += 1;
            if self.seen > max_line && matches!(self.place, Place::Digits | Place::Negative) {
                return LengthStep::TooLong;
            }
        }
        LengthStep::More
    }
}

/// The usual case, in one step: a length of at most nine digits whose whole line is here. Returns the value and the
/// line's size; `None` only means that the slow path must decide.
#[inline]
pub(crate) fn short_length(bytes: &[u8]) -> Option<(u64, usize)> {
    match *bytes {
        [ones @ b'0'..=b'9', b'\r', b'\n', ..] => Some((digit(ones), 3)),
        [tens @ b'1'..=b'9', ones @ b'0'..=b'9', b'\r', b'\n', ..] => Some((digit(tens) * 10 + digit(ones), 4)),
        [b'1'..=b'9', ..] => longer_length(bytes),
        _ => None,
    }
}

/// The same for more than two digits; the first is known not to be `0`.
fn longer_length(bytes: &[u8]) -> Option<(u64, usize)> {
    const MAX_DIGITS: usize = 9;
    let mut value = 0;
    for (index, &byte) in bytes.iter().enumerate().take(MAX_DIGITS + 1) {
        if !byte.is_ascii_digit() {
            let ended = byte == b'\r' && bytes.get(index + 1) == Some(&b'\n');
            return ended.then_some((value, index + 2));
        }
        value = value * 10 + digit(byte);
    }
    None
}

#[inline]
fn digit(byte: u8) -> u64 {
    u64::from(byte - b'0')
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: usize = 64;

    #[test]
    fn the_short_way_reads_whole_lines_of_up_to_nine_digits_and_leaves_the_rest() {
        for value in [0, 7, 10, 99, 100, 101, 999, 1_000, 65_535, 999_999_999] {
            let line = format!("{value}\r\n");
            for behind in ["", "\n", "5\r\n"] {
                let text = format!("{line}{behind}");
                assert_eq!(short_length(text.as_bytes()), Some((value, line.len())), "{text:?}");
            }
        }
        for left in [
            "",
            "1",
            "12\r",
            "123",
            "123\r",
            "123\n",
            "123\r\r\n",
            "12a\r\n",
            "123a\r\n",
            "007\r\n",
            "1234567890\r\n",
            "-1\r\n",
        ] {
            assert_eq!(short_length(left.as_bytes()), None, "{left:?}");
        }
    }

    fn whole(text: &str) -> LengthStep {
        LengthReader::new().read(text.as_bytes(), LINE)
    }

    fn byte_by_byte(text: &str) -> LengthStep {
        let mut reader = LengthReader::new();
        for (index, byte) in text.bytes().enumerate() {
            match reader.read(&[byte], LINE) {
                LengthStep::More => {}
                LengthStep::Done(length, used) => return LengthStep::Done(length, index + used),
                LengthStep::Negative(used) => return LengthStep::Negative(index + used),
                end => return end,
            }
        }
        LengthStep::More
    }

    #[test]
    fn only_canonical_lengths_are_read_and_in_pieces_just_the_same() {
        let done = |value, used| LengthStep::Done(value, used);
        let table = [
            ("0\r\n", done(Some(0), 3)),
            ("7\r\nrest", done(Some(7), 3)),
            ("10\r\n", done(Some(10), 4)),
            ("999999999\r\n", done(Some(999_999_999), 11)),
            ("2147483647\r\n", done(Some(2_147_483_647), 12)),
            ("99999999999999999999999\r\n", done(Some(u64::MAX), 25)),
            ("-1\r\n", done(None, 4)),
            ("", LengthStep::More),
            ("12", LengthStep::More),
            ("12\r", LengthStep::More),
            ("-", LengthStep::More),
            ("-1\r", LengthStep::More),
            ("\r\n", LengthStep::Malformed),
            ("-0\r\n", LengthStep::Malformed),
            ("-01\r\n", LengthStep::Malformed),
            ("-2\r\n", LengthStep::Negative(4)),
            ("-10\r\n", LengthStep::Negative(5)),
            ("-9223372036854775808\r\n", LengthStep::Negative(22)),
            ("-9223372036854775809\r\n", LengthStep::Malformed),
            ("-\r\n", LengthStep::Malformed),
            ("+1\r\n", LengthStep::Malformed),
            ("01\r\n", LengthStep::Malformed),
            ("00\r\n", LengthStep::Malformed),
            (" 1\r\n", LengthStep::Malformed),
            ("1 \r\n", LengthStep::Malformed),
            ("1\t\r\n", LengthStep::Malformed),
            ("1\n", LengthStep::Malformed),
            ("1\r\r\n", LengthStep::Malformed),
            ("1\rx", LengthStep::Malformed),
            ("0x1\r\n", LengthStep::Malformed),
            ("?\r\n", LengthStep::Malformed),
        ];
        for (text, expected) in table {
            assert_eq!(whole(text), expected, "{text:?} at once");
            assert_eq!(byte_by_byte(text), expected, "{text:?} byte by byte");
        }
    }

    #[test]
    fn a_line_that_does_not_end_is_refused_at_its_bound() {
        let digits = "1".repeat(LINE);
        assert_eq!(whole(&digits), LengthStep::More);
        assert_eq!(whole(&format!("{digits}\r\n")), LengthStep::Done(Some(u64::MAX), LINE + 2));
        assert_eq!(whole(&format!("{digits}1")), LengthStep::TooLong);
        assert_eq!(byte_by_byte(&format!("{digits}1")), LengthStep::TooLong);
    }
}
