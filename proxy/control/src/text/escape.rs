//! Writes bytes as text that can be read, copied and converted back: keys and names come from clients, which may send
//! any bytes. It also makes text safe to show to people, wherever it comes from: characters that control a terminal,
//! change the direction of writing or are invisible are escaped.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Bytes as text. Printable characters are unchanged, and a backslash is doubled. Everything else (control characters,
/// marks that change the direction of writing, broken UTF-8) becomes `\xNN`, byte by byte.
pub fn spell(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str(r"\\"),
                _ if is_plain(character) => text.push(character),
                _ => put_hex(&mut text, character.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        put_hex(&mut text, chunk.invalid());
    }
    text
}

/// A text on one line, for people: unusual characters are escaped as in [`spell`]. A backslash is unchanged: keys in
/// the text were already escaped.
pub fn readable(text: &str) -> Cow<'_, str> {
    replaced(text, is_plain, |text, odd| {
        put_hex(text, odd.encode_utf8(&mut [0; 4]).as_bytes());
    })
}

/// The same for several lines.
pub fn readable_lines(text: &str) -> Cow<'_, str> {
    let stays = |character| is_plain(character) || character == '\n';
    replaced(text, stays, |text, odd| {
        put_hex(text, odd.encode_utf8(&mut [0; 4]).as_bytes());
    })
}

/// JSON in which unusual characters are escaped with `\u`; line ends stay.
pub fn readable_json(text: &str) -> Cow<'_, str> {
    replaced(text, |character| is_plain(character) || character == '\n', put_json)
}

/// A character as JSON and TOML spell it.
pub fn put_json(text: &mut String, odd: char) {
    for unit in odd.encode_utf16(&mut [0; 2]) {
        let _ = write!(text, "\\u{unit:04x}");
    }
}

fn replaced(text: &str, stays: impl Fn(char) -> bool, put: impl Fn(&mut String, char)) -> Cow<'_, str> {
    if text.chars().all(&stays) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match stays(character) {
            true => shown.push(character),
            false => put(&mut shown, character),
        }
    }
    Cow::Owned(shown)
}

/// Converts a text of [`spell`] back to bytes; `None` for a backslash that begins no escape.
pub fn unspell(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split('\\');
    bytes.extend_from_slice(parts.next()?.as_bytes());
    while let Some(part) = parts.next() {
        if part.is_empty() {
            // A doubled backslash: the text after the second one is plain.
            bytes.push(b'\\');
            bytes.extend_from_slice(parts.next()?.as_bytes());
            continue;
        }
        let digits = part.strip_prefix('x')?.get(..2)?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(part.get(3..)?.as_bytes());
    }
    Some(bytes)
}

fn put_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, r"\x{byte:02x}");
    }
}

/// Whether a reader sees the character as itself, in its place. `char::escape_debug` knows what cannot be printed;
/// spaces other than the plain one look like it.
pub fn is_plain(character: char) -> bool {
    match character {
        ' '..='~' => true,
        _ if character.is_ascii() => false,
        _ => !character.is_whitespace() && character.escape_debug().len() == 1,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_cannot_be_read_is_spelled_byte_by_byte() {
        for (bytes, text) in [
            (&b"lock:order:42"[..], "lock:order:42"),
            (br"a\b", r"a\\b"),
            (b"a\r\n\0\xff", r"a\x0d\x0a\x00\xff"),
            ("größe:日本".as_bytes(), "größe:日本"),
            ("a\u{202e}b".as_bytes(), r"a\xe2\x80\xaeb"),
            ("a\u{200b}b\u{a0}c".as_bytes(), r"a\xe2\x80\x8bb\xc2\xa0c"),
            (b"<script>", "<script>"),
        ] {
            assert_eq!(spell(bytes), text);
            assert_eq!(unspell(text).as_deref(), Some(bytes));
        }
    }

    #[test]
    fn what_is_odd_in_a_text_is_spelled_and_the_rest_stays() {
        let odd = "gr\u{f6}\u{df}e \\x00 \u{1b}[2J\u{9b}\u{7f}\u{202e}\u{2066}\u{e0001}\n";
        let spelled = r"größe \x00 \x1b[2J\xc2\x9b\x7f\xe2\x80\xae\xe2\x81\xa6\xf3\xa0\x80\x81";
        assert_eq!(readable(odd), format!(r"{spelled}\x0a"));
        assert_eq!(readable_lines(odd), format!("{spelled}\n"));
        assert_eq!(readable("größe"), "größe");
        let json = readable_json("\"\u{9b}\u{e0001}\"\n");
        assert_eq!(json, "\"\\u009b\\udb40\\udc01\"\n");
    }

    #[test]
    fn a_backslash_that_begins_nothing_is_no_spelling() {
        for text in [r"\", r"a\", r"\y00", r"\x", r"\x0", r"\x0g", r"\x+1", r"\\\"] {
            assert_eq!(unspell(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_bytes_come_back(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            prop_assert_eq!(unspell(&spell(&bytes)), Some(bytes));
        }

        #[test]
        fn texts_come_back_and_show_nothing_odd(text in any::<String>()) {
            let spelled = spell(text.as_bytes());
            prop_assert!(spelled.chars().all(is_plain));
            prop_assert_eq!(unspell(&spelled), Some(text.into_bytes()));
        }
    }
}
