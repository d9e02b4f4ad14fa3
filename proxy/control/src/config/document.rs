//! The configuration file as text: read within a size limit, and parsed to a tree of values with their positions. Turns
//! byte offsets into lines and columns. Knows TOML, but none of our keys; `reader` looks into the tree.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::DeTable;

use super::finding::{Findings, Place, Position};

/// Largest configuration file, in bytes.
const MAX_FILE: usize = 16 << 20;

/// Deepest dotted key. The parser bounds brackets but not dots, and a tree as deep as a file is long
/// would overflow the stack when it is dropped. Our own deepest key has four parts.
const MAX_KEY_PARTS: usize = 32;

/// One configuration file.
pub(super) struct Document<'a> {
    pub(super) path: &'a Path,
    text: &'a str,
    line_starts: Vec<usize>,
}

/// The file's text; an error while reading it becomes a finding.
pub(super) fn read(path: &Path, findings: &mut Findings) -> Option<String> {
    let whole = || Place::File { path: path.to_owned(), position: None };
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FILE as u64 + 1).read_to_end(&mut bytes));
    if let Err(error) = read {
        findings.error(whole(), format!("cannot read the file: {error}"));
        return None;
    }
    if bytes.len() > MAX_FILE {
        findings.error(whole(), format!("the file is longer than {MAX_FILE} bytes"));
        return None;
    }
    match String::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) => {
            let good = error.utf8_error().valid_up_to();
            let text = String::from_utf8_lossy(&error.as_bytes()[..good]).into_owned();
            let place = Document::new(path, &text).place(good..good);
            findings.error(place, "not UTF-8 text, which TOML has to be".to_owned());
            None
        }
    }
}

impl<'a> Document<'a> {
    pub(super) fn new(path: &'a Path, text: &'a str) -> Document<'a> {
        let after_newlines = text.match_indices('\n').map(|(newline, _)| newline + 1);
        let line_starts = std::iter::once(0).chain(after_newlines).collect();
        Document { path, text, line_starts }
    }

    /// The tree of values; every syntax error becomes a finding.
    pub(super) fn parse(&self, findings: &mut Findings) -> Option<Spanned<DeTable<'a>>> {
        if let Some(offset) = too_deep_key(self.text) {
            let message = format!("a key has more than {MAX_KEY_PARTS} parts");
            findings.error(self.place(offset..offset), message);
            return None;
        }
        let (tree, errors) = DeTable::parse_recoverable(self.text);
        let mut last_line = 0;
        for error in &errors {
            let position = self.position(error.span().map_or(0, |span| span.start));
            // Further errors on the same line are mostly consequences of the first.
            if position.line != last_line {
                findings.error(self.at(position), format!("not valid TOML: {}", error.message()));
            }
            last_line = position.line;
        }
        errors.is_empty().then_some(tree)
    }

    pub(super) fn position(&self, offset: usize) -> Position {
        let line = self.line_starts.partition_point(|&start| start <= offset);
        let start = self.line_starts[line - 1];
        let before = self.text.get(start..offset).unwrap_or_default();
        Position { line, column: before.chars().count() + 1 }
    }

    /// The position in the file of one byte of a string's value: `span` is the string with its quotes, `at` the offset
    /// of the byte in the value. Inside an escape, this is where the escape begins.
    pub(super) fn offset_in_string(&self, span: &Range<usize>, at: usize) -> usize {
        let text = self.text.get(span.clone()).unwrap_or_default().as_bytes();
        let is_long = text.starts_with(b"\"\"\"") || text.starts_with(b"'''");
        let has_escapes = text.starts_with(b"\"");
        let mut rest = text.get(if is_long { 3 } else { 1 }..).unwrap_or_default();
        if is_long {
            // A line end directly after the opening quotes is not part of the value.
            rest = rest.strip_prefix(b"\n").or_else(|| rest.strip_prefix(b"\r\n")).unwrap_or(rest);
        }
        let mut passed = 0;
        while passed < at && !rest.is_empty() {
            let (written, meant) = if has_escapes { escaped(rest) } else { (1, 1) };
            rest = rest.get(written..).unwrap_or_default();
            passed += meant;
        }
        span.start + text.len() - rest.len()
    }

    pub(super) fn place(&self, span: Range<usize>) -> Place {
        self.at(self.position(span.start))
    }

    /// A path named in the file: a relative one starts at the file's own directory, wherever the proxy was started.
    pub(super) fn beside(&self, named: &Path) -> PathBuf {
        self.path.parent().map_or_else(|| named.to_owned(), |directory| directory.join(named))
    }

    pub(super) fn at(&self, position: Position) -> Place {
        Place::File { path: self.path.to_owned(), position: Some(position) }
    }
}

/// How many bytes of a basic string form how many bytes of its value.
fn escaped(text: &[u8]) -> (usize, usize) {
    let [b'\\', escape, digits @ ..] = text else {
        return (1, 1);
    };
    let letter = |length: usize| {
        let digits = digits.get(..length).and_then(|digits| std::str::from_utf8(digits).ok());
        let letter = digits.and_then(|digits| char::from_u32(u32::from_str_radix(digits, 16).ok()?));
        (2 + length, letter.map_or(1, char::len_utf8))
    };
    match escape {
        b'x' => letter(2),
        b'u' => letter(4),
        b'U' => letter(8),
        // A line that continues on the next one.
        b' ' | b'\t' | b'\r' | b'\n' => {
            let blanks = text[1..].iter().take_while(|byte| byte.is_ascii_whitespace());
            (1 + blanks.count(), 0)
        }
        _ => (2, 1),
    }
}

/// The offset at which a dotted key or table header exceeds the limit of parts. Strings and comments are skipped by
/// TOML's own rules; only `[a-zA-Z0-9_-]`, dots, blanks and quotes continue a key.
fn too_deep_key(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut at, mut dots) = (0, 0);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' | b'\'' => {
                at = after_string(bytes, at);
                continue;
            }
            b'#' => {
                at += bytes[at..].iter().position(|&b| b == b'\n').unwrap_or(bytes.len() - at);
                continue;
            }
            b'.' => dots += 1,
            b'=' | b',' | b'[' | b']' | b'{' | b'}' | b'\n' => dots = 0,
            _ => {}
        }
        if dots >= MAX_KEY_PARTS {
            return Some(at);
        }
        at += 1;
    }
    None
}

/// The offset after the string whose opening quote is at `start`.
fn after_string(bytes: &[u8], start: usize) -> usize {
    let quote = bytes[start];
    let triple = bytes[start..].starts_with(&[quote; 3]);
    let mut at = start + if triple { 3 } else { 1 };
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'\\' if quote == b'"' => at += 2,
            b'\n' if !triple => return at,
            _ if byte == quote && !triple => return at + 1,
            _ if triple && bytes[at..].starts_with(&[quote; 3]) => return at + 3,
            _ => at += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use toml::de::DeValue;

    use super::*;

    #[test]
    fn a_byte_of_a_value_is_found_in_the_file() {
        for (written, at, found) in [
            ("'abX'", 2, "X'"),
            ("\"abX\"", 2, "X\""),
            (r#""a\"\\X""#, 3, "X\""),
            (r#""\u00e4\U0001F600X""#, 6, "X\""),
            ("'''\nabX'''", 2, "X'''"),
            ("\"\"\"\r\na\\\n   bX\"\"\"", 2, "X\"\"\""),
            ("'äX'", 2, "X'"),
            ("'ab'", 9, ""),
            ("'ab'", 2, "'"),
        ] {
            let text = format!("key = {written}");
            let document = Document::new(Path::new("c.toml"), &text);
            let mut findings = Findings::default();
            let tree = document.parse(&mut findings).expect("valid");
            let value = tree.get_ref().get("key").expect("it is there");
            assert!(matches!(value.get_ref(), DeValue::String(_)));
            let offset = document.offset_in_string(&value.span(), at);
            assert_eq!(&text[offset..], found, "{written}");
        }
    }
}
