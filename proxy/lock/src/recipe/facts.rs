//! What a server remembers about a script text it has seen, so that a later EVALSHA means as much
//! as the text did. Everything here follows from the text alone; where the facts are kept, and how
//! many, is the business of the server.

use std::fmt;

use sha1::{Digest, Sha1};

use super::{Recipe, recognise};

/// The name Redis gives to a script: the SHA-1 of its text, byte for byte.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScriptSha([u8; 20]);

impl ScriptSha {
    /// The name of a text.
    pub fn of(text: &[u8]) -> ScriptSha {
        ScriptSha(Sha1::digest(text).into())
    }

    /// The name as EVALSHA takes it: 40 hexadecimal digits, of any case. Anything else names no
    /// script; Redis answers it with NOSCRIPT.
    pub fn from_hex(hex: &[u8]) -> Option<ScriptSha> {
        if hex.len() != 40 {
            return None;
        }
        let mut sha = [0; 20];
        for (byte, digits) in sha.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = nibble(digits[0])? << 4 | nibble(digits[1])?;
        }
        Some(ScriptSha(sha))
    }
}

impl fmt::Display for ScriptSha {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ScriptSha {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScriptSha({self})")
    }
}

/// What follows from a script's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptFacts {
    /// The name by which EVALSHA calls it.
    pub sha: ScriptSha,
    /// What it does to a lock, if that is understood.
    pub recipe: Option<Recipe>,
    /// Whether it begins with `#!`, which Redis 7 reads and older servers refuse.
    pub shebang: bool,
    /// Whether its first line says `no-writes` in a form that the server cannot read otherwise, so
    /// the server itself keeps it from writing.
    pub no_writes: bool,
}

impl ScriptFacts {
    /// The facts of a text. Linear in its length.
    pub fn of(text: &[u8]) -> ScriptFacts {
        ScriptFacts {
            sha: ScriptSha::of(text),
            recipe: recognise(text),
            shebang: text.starts_with(b"#!"),
            no_writes: says_no_writes(text),
        }
    }
}

/// `#!lua flags=no-writes,…` up to a line end. A first line with anything odd in it (a control
/// character such as NUL, where the server may stop reading; quotes, which it interprets; an
/// unknown option) says nothing.
fn says_no_writes(text: &[u8]) -> bool {
    let Some(end) = text.iter().position(|byte| *byte == b'\n') else {
        return false;
    };
    let Some(options) = text[..end].strip_prefix(b"#!lua ") else {
        return false;
    };
    let plain = |byte: &u8| matches!(byte, b' ' | b'a'..=b'z' | b'-' | b'=' | b',');
    if !options.iter().all(plain) {
        return false;
    }
    let mut no_writes = false;
    for option in options.split(|byte| *byte == b' ') {
        if option.is_empty() {
            continue;
        }
        let Some(flags) = option.strip_prefix(b"flags=") else {
            return false;
        };
        no_writes |= flags
            .split(|byte| *byte == b',')
            .any(|flag| flag == b"no-writes");
    }
    no_writes
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}
