//! Redis's glob patterns, as `KEYS`, `SCAN MATCH` and ACLs read them: bytes, case-sensitive. This
//! module owns one pattern and its match; it never allocates or recurses while matching. How
//! patterns choose a namespace is in [`crate::namespace`].

use std::fmt;

use bytes::Bytes;

/// A glob: `*` any bytes, `?` one byte, `[a-z]` and `[^a-z]` classes, `\` escapes. Every string of
/// bytes is a pattern; what Redis makes of a broken one (an unterminated class, a lone `\` at the
/// end) is what this makes of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Glob {
    pattern: Bytes,
    /// The bytes with which every matching key begins, escapes resolved.
    prefix: Bytes,
    shape: Shape,
}

/// What is left of the pattern after its literal prefix.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Nothing: only the prefix itself matches.
    Exact,
    /// Only stars, after a prefix that is not empty.
    StartsWith,
    /// The pattern `*`, which Redis takes before matching starts: the empty key matches too.
    Everything,
    /// Anything else: matched byte by byte.
    General,
}

impl Glob {
    /// Reads a pattern.
    pub fn new(pattern: Bytes) -> Glob {
        let (prefix, rest) = split_prefix(&pattern);
        let shape = match &pattern[rest..] {
            [] => Shape::Exact,
            [b'*'] if rest == 0 => Shape::Everything,
            stars if !prefix.is_empty() && stars.iter().all(|&byte| byte == b'*') => {
                Shape::StartsWith
            }
            _ => Shape::General,
        };
        Glob {
            pattern,
            prefix: prefix.into(),
            shape,
        }
    }

    /// The pattern, as it was given.
    pub fn pattern(&self) -> &[u8] {
        &self.pattern
    }

    /// Whether the whole key matches. Time is at most pattern length × key length.
    pub fn matches(&self, key: &[u8]) -> bool {
        match self.shape {
            Shape::Exact => key == self.prefix,
            Shape::StartsWith => key.starts_with(&self.prefix),
            Shape::Everything => true,
            Shape::General => matches_by_byte(&self.pattern, key),
        }
    }

    /// The bytes with which every matching key begins, escapes resolved; empty if the pattern
    /// begins with a wildcard.
    pub fn literal_prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Whether a key that begins with this byte could match.
    pub fn may_begin_with(&self, byte: u8) -> bool {
        match self.prefix.first() {
            Some(&first) => first == byte,
            None => match self.pattern.first() {
                None => false,
                Some(b'*') => true,
                Some(_) => take_one(&self.pattern, 0, byte).is_some(),
            },
        }
    }

    /// A letter for the shape, and the text that goes with it, as `flush.lua` takes them: `x` the
    /// text is the key, `p` the key begins with it, `a` any key matches, `g` it is a pattern.
    pub(crate) fn for_script(&self) -> (u8, &[u8]) {
        match self.shape {
            Shape::Exact => (b'x', &self.prefix),
            Shape::StartsWith => (b'p', &self.prefix),
            Shape::Everything => (b'a', &self.pattern),
            Shape::General => (b'g', &self.pattern),
        }
    }

    /// The pattern as it was written.
    pub fn as_bytes(&self) -> &[u8] {
        &self.pattern
    }
}

impl fmt::Debug for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Glob(\"{}\")", self.pattern.escape_ascii())
    }
}

/// The literal beginning, and where in the pattern the first wildcard stands.
fn split_prefix(pattern: &[u8]) -> (Vec<u8>, usize) {
    let mut prefix = Vec::new();
    let mut at = 0;
    while let Some(&byte) = pattern.get(at) {
        match (byte, pattern.get(at + 1)) {
            (b'*' | b'?' | b'[', _) => break,
            (b'\\', Some(&escaped)) => {
                prefix.push(escaped);
                at += 2;
            }
            _ => {
                prefix.push(byte);
                at += 1;
            }
        }
    }
    (prefix, at)
}

/// Redis tries a star's continuation at every later byte and, since 6.2.11, gives up on earlier
/// stars once the last one has failed. Going back to the last star only is the same, without the
/// recursion.
fn matches_by_byte(pattern: &[u8], key: &[u8]) -> bool {
    if key.is_empty() {
        // Redis skips stars only after it has taken a byte, so `**` does not match the empty key.
        return pattern.is_empty();
    }
    let (mut at, mut taken) = (0, 0);
    let mut last_star: Option<(usize, usize)> = None;
    loop {
        if taken == key.len() {
            // A later start for the last star would leave still fewer bytes: no way back.
            return pattern[at..].iter().all(|&byte| byte == b'*');
        }
        if pattern.get(at) == Some(&b'*') {
            at += pattern[at..]
                .iter()
                .take_while(|&&byte| byte == b'*')
                .count();
            if at == pattern.len() {
                return true;
            }
            last_star = Some((at, taken));
            continue;
        }
        match take_one(pattern, at, key[taken]) {
            Some(next) => (at, taken) = (next, taken + 1),
            None => match last_star {
                Some((after_star, start)) => {
                    (at, taken) = (after_star, start + 1);
                    last_star = Some((after_star, taken));
                }
                None => return false,
            },
        }
    }
}

/// Matches one byte against the element of the pattern at `at`, which is not a star: the place
/// after the element, or `None` if it does not match or the pattern is at its end.
fn take_one(pattern: &[u8], at: usize, byte: u8) -> Option<usize> {
    match (*pattern.get(at)?, pattern.get(at + 1)) {
        (b'?', _) => Some(at + 1),
        (b'[', _) => {
            let (next, matched) = take_class(pattern, at + 1, byte);
            matched.then_some(next)
        }
        (b'\\', Some(&escaped)) => (escaped == byte).then_some(at + 2),
        (literal, _) => (literal == byte).then_some(at + 1),
    }
}

/// A class from behind its `[` to behind its `]`, or to the end where that is missing.
fn take_class(pattern: &[u8], mut at: usize, byte: u8) -> (usize, bool) {
    let negated = pattern.get(at) == Some(&b'^');
    if negated {
        at += 1;
    }
    let mut matched = false;
    loop {
        match pattern.get(at..).unwrap_or_default() {
            [] => break,
            [b'\\', escaped, ..] => {
                matched |= *escaped == byte;
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [from, b'-', to, ..] => {
                // Redis compares C chars, which are signed where it mostly runs (x86-64): bytes
                // from 0x80 up stand before all others. Either end may be the larger one.
                let (from, to) = (*from as i8, *to as i8);
                matched |= (from.min(to)..=from.max(to)).contains(&(byte as i8));
                at += 3;
            }
            [literal, ..] => {
                matched |= *literal == byte;
                at += 1;
            }
        }
    }
    (at, matched != negated)
}

#[cfg(test)]
mod tests;
