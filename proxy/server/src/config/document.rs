//! The configuration file as text: read within a bound, parsed to a tree of values that know where
//! they stand, byte offsets turned into lines and columns. Knows TOML and no key of ours; `reader`
//! looks into the tree.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::DeTable;

use super::finding::{Findings, Place, Position};

/// Largest configuration file, in bytes.
const MAX_FILE: usize = 1 << 20;

/// Deepest dotted key. The parser bounds brackets but not dots, and a tree as deep as a file is long
/// would overflow the stack when it is dropped. Our own deepest key has four parts.
const MAX_KEY_PARTS: usize = 32;

/// One configuration file.
pub(super) struct Document<'a> {
    pub(super) path: &'a Path,
    text: &'a str,
    line_starts: Vec<usize>,
}

/// The file's text; what kept it from being read is a finding.
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

    /// The tree of values; every error of syntax is a finding.
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
            // What follows an error on its own line is mostly its echo.
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

    pub(super) fn place(&self, span: Range<usize>) -> Place {
        self.at(self.position(span.start))
    }

    /// A path that the file names: a relative one starts at the file's own directory, wherever the
    /// proxy was started.
    pub(super) fn beside(&self, named: &Path) -> PathBuf {
        self.path.parent().map_or_else(|| named.to_owned(), |directory| directory.join(named))
    }

    pub(super) fn at(&self, position: Position) -> Place {
        Place::File { path: self.path.to_owned(), position: Some(position) }
    }
}

/// Where a dotted key or table header with too many parts begins to be too long. Strings and
/// comments are skipped by TOML's own rules; only `[a-zA-Z0-9_-]`, dots, blanks and quotes continue
/// a key.
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

/// The offset behind the string that begins at `start` with its quote.
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
