//! Inline lines, split exactly as Redis's `sdssplitargs` splits them, and the first lines of other protocols that
//! arrive on a Redis port. It gets one line without its end and without a NUL; the decoder makes the canonical frame of
//! the words.

/// The words of one line, unescaped, in one buffer.
pub(super) struct Words {
    bytes: Vec<u8>,
    /// Where each word ends in `bytes`; it begins where the one before ends.
    ends: Vec<usize>,
}

impl Words {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.ends.len()).map(|i| {
            let start = if i == 0 { 0 } else { self.ends[i - 1] };
            &self.bytes[start..self.ends[i]]
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Quote {
    None,
    Single,
    Double,
}

/// `None` if the quotes are unbalanced: one is not closed, or is not followed by a blank.
pub(super) fn split(line: &[u8]) -> Option<Words> {
    let mut words = Words { bytes: Vec::with_capacity(line.len()), ends: Vec::new() };
    let mut rest = line;
    loop {
        let blanks = rest.iter().take_while(|byte| is_space(**byte)).count();
        rest = &rest[blanks..];
        if rest.is_empty() {
            return Some(words);
        }
        rest = take_word(rest, &mut words.bytes)?;
        words.ends.push(words.bytes.len());
    }
}

/// Adds one word to `out`, and returns what follows it.
fn take_word<'a>(line: &'a [u8], out: &mut Vec<u8>) -> Option<&'a [u8]> {
    let mut rest = line;
    let mut quote = Quote::None;
    loop {
        rest = match (quote, rest) {
            (Quote::None, []) => return Some(rest),
            // Not all of `isspace`: Redis allows a vertical tab or form feed inside a word.
            (Quote::None, [b' ' | b'\n' | b'\r' | b'\t', after @ ..]) => return Some(after),
            (Quote::None, [b'"', after @ ..]) => {
                quote = Quote::Double;
                after
            }
            (Quote::None, [b'\'', after @ ..]) => {
                quote = Quote::Single;
                after
            }
            (Quote::Double | Quote::Single, []) => return None,
            (Quote::Double, [b'"', after @ ..]) | (Quote::Single, [b'\'', after @ ..]) => {
                return after.first().is_none_or(|b| is_space(*b)).then_some(after);
            }
            (Quote::Double, [b'\\', b'x', high, low, after @ ..])
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                out.push(hex(*high) << 4 | hex(*low));
                after
            }
            (Quote::Double, [b'\\', escaped, after @ ..]) => {
                out.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                });
                after
            }
            (Quote::Single, [b'\\', b'\'', after @ ..]) => {
                out.push(b'\'');
                after
            }
            (_, [byte, after @ ..]) => {
                out.push(*byte);
                after
            }
        };
    }
}

/// C's `isspace` in the C locale.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}

/// Words by which Redis itself recognises a browser that was tricked into connecting to it.
#[inline]
pub(super) fn is_http_word(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"POST") || word.eq_ignore_ascii_case(b"Host:")
}

/// The first line of an HTTP request. `GET /key` stays a Redis command; only the root alone or a version at the end
/// makes it HTTP.
pub(super) fn is_http(line: &[u8]) -> bool {
    let mut words = line.split(|b| is_space(*b)).filter(|word| !word.is_empty());
    let Some(first) = words.next() else {
        return false;
    };
    if is_http_word(first) {
        return true;
    }
    match (words.next(), words.next(), words.next()) {
        (Some(b"/"), None, None) => first == b"GET",
        (Some(_), Some(version), None) => version.starts_with(b"HTTP/"),
        _ => false,
    }
}
