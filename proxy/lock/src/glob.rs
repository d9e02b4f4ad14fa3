//! Redis's glob patterns, as `KEYS`, `SCAN MATCH` and ACLs read them: bytes, case-sensitive. This
//! module owns one pattern and its match; it never allocates or recurses while matching. How
//! patterns choose a namespace is in [`crate::namespace`].

use std::fmt;

use bytes::Bytes;

/// A glob: `*` any bytes, `?` one byte, `[a-z]` and `[^a-z]` classes, `\` escapes. Every byte string is a pattern; a
/// broken one (an unterminated class, a final lone `\`) is handled as Redis handles it.
#[derive(Clone, PartialEq, Eq)]
pub struct Glob {
    pattern: Bytes,
    /// The bytes with which every matching key begins, escapes resolved.
    prefix: Bytes,
    /// The bytes after the last wildcard, escapes resolved; empty if there is no wildcard.
    suffix: Bytes,
    shape: Shape,
}

/// The rest of the pattern after its literal prefix.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Nothing: only the prefix itself matches.
    Exact,
    /// Only stars, after a prefix that is not empty.
    StartsWith,
    /// Only stars, and a literal suffix.
    Ends,
    /// The pattern `*`, which Redis takes before matching starts: the empty key matches too.
    Everything,
    /// Anything else: matched byte by byte.
    General,
}

impl Glob {
    /// Parses a pattern.
    pub fn new(pattern: Bytes) -> Glob {
        let (prefix, rest) = split_prefix(&pattern);
        let (suffix, tail) = split_suffix(&pattern, rest);
        let shape = match &pattern[rest..] {
            [] => Shape::Exact,
            [b'*'] if rest == 0 => Shape::Everything,
            stars if !prefix.is_empty() && stars.iter().all(|&byte| byte == b'*') => Shape::StartsWith,
            _ if !suffix.is_empty() && pattern[rest..tail].iter().all(|&byte| byte == b'*') => Shape::Ends,
            _ => Shape::General,
        };
        Glob { pattern, prefix: prefix.into(), suffix: suffix.into(), shape }
    }

    /// The pattern, as given.
    pub fn pattern(&self) -> &[u8] {
        &self.pattern
    }

    /// Whether the whole key matches. The time is at most pattern length × key length.
    pub fn matches(&self, key: &[u8]) -> bool {
        match self.shape {
            Shape::Exact => key == self.prefix,
            Shape::StartsWith => key.starts_with(&self.prefix),
            Shape::Everything => true,
            Shape::Ends => {
                key.len() >= self.prefix.len() + self.suffix.len()
                    && key.starts_with(&self.prefix)
                    && key.ends_with(&self.suffix)
            }
            Shape::General => key.ends_with(&self.suffix) && matches_by_byte(&self.pattern, key),
        }
    }

    /// The same for a key that is known to begin with the literal prefix or, if that is empty, to end with the literal
    /// suffix.
    #[inline]
    pub(crate) fn matches_from_end(&self, key: &[u8]) -> bool {
        match self.shape {
            Shape::Exact => key.len() == self.prefix.len(),
            Shape::StartsWith | Shape::Everything => true,
            Shape::Ends => {
                let behind = key.get(self.prefix.len()..);
                behind.is_some_and(|behind| ends_with(behind, &self.suffix))
            }
            Shape::General => ends_with(key, &self.suffix) && matches_by_byte(&self.pattern, key),
        }
    }

    /// The bytes with which every matching key begins, escapes resolved; empty if the pattern
    /// begins with a wildcard.
    pub fn literal_prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// The bytes after the last wildcard, with which every matching key ends, escapes resolved; empty if the pattern
    /// ends with a wildcard or has none.
    pub fn literal_suffix(&self) -> &[u8] {
        &self.suffix
    }

    /// A key that matches, if one is easily made.
    pub fn example(&self) -> Option<Vec<u8>> {
        let between = [&self.prefix[..], b"lockwarden", &self.suffix[..]].concat();
        let candidates = [between, self.prefix.to_vec()];
        candidates.into_iter().find(|key| self.matches(key))
    }

    /// Whether a key that begins and ends like this could match, whatever is between. For patterns with a wildcard in
    /// their middle only the ends are compared.
    pub fn may_match_between(&self, beginning: &[u8], ending: &[u8]) -> bool {
        let begins = starts_with(beginning, &self.prefix) || starts_with(&self.prefix, beginning);
        let ends = ends_with(ending, &self.suffix) || ends_with(&self.suffix, ending);
        match self.shape {
            Shape::Exact => {
                let text = &self.prefix;
                starts_with(text, beginning) && ends_with(text, ending) && beginning.len() + ending.len() <= text.len()
            }
            Shape::StartsWith | Shape::Everything => begins,
            Shape::Ends | Shape::General => begins && ends,
        }
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

    /// A letter for the shape, with its text, as `flush.lua` takes them: `x` the text is the key, `p` the key begins
    /// with it, `a` any key matches, `g` it is a pattern.
    pub(crate) fn for_script(&self) -> (u8, &[u8]) {
        match self.shape {
            Shape::Exact => (b'x', &self.prefix),
            Shape::StartsWith => (b'p', &self.prefix),
            Shape::Everything => (b'a', &self.pattern),
            Shape::Ends | Shape::General => (b'g', &self.pattern),
        }
    }

    /// Sample keys that this pattern matches, to compare it with others: each star as several texts, each class and `?`
    /// as every byte that it takes. At most [`MAX_EXAMPLES`]; none if nothing matches.
    pub fn examples(&self) -> Vec<Vec<u8>> {
        let elements = elements(&self.pattern);
        let spelled = |star: &str, varied: Option<(usize, u8)>| {
            let mut key = Vec::new();
            for (place, element) in elements.iter().enumerate() {
                match (varied, element) {
                    (Some((at, byte)), _) if at == place => key.push(byte),
                    (_, Element::Star) => key.extend_from_slice(star.as_bytes()),
                    (_, Element::Byte(bytes)) => key.extend(bytes.first()),
                }
            }
            key
        };
        let by_star = STAR_EXAMPLES.iter().map(|star| spelled(star, None));
        let choices = elements.iter().enumerate().flat_map(|(place, element)| {
            let bytes = match element {
                Element::Byte(bytes) => &bytes[..],
                Element::Star => &[],
            };
            bytes.iter().skip(1).map(move |&byte| (place, byte))
        });
        let by_byte = choices.map(|choice| spelled(STAR_EXAMPLES[0], Some(choice)));
        let keys = by_star.chain(by_byte).take(MAX_EXAMPLES);
        keys.filter(|key| self.matches(key)).collect()
    }
}

/// The most samples of one pattern: enough for seven `?` and as many classes.
pub const MAX_EXAMPLES: usize = 2_048;

/// Samples for a star: letters, digits, other characters, nothing. A narrower pattern misses one of them.
const STAR_EXAMPLES: [&str; 4] = ["~", "a0", "0A", ""];

/// An element of a pattern.
pub(crate) enum Element {
    /// One byte out of these.
    Byte(Vec<u8>),
    Star,
}

/// The parts of a pattern.
pub(crate) fn elements(pattern: &[u8]) -> Vec<Element> {
    let (mut elements, mut at) = (Vec::new(), 0);
    while at < pattern.len() {
        match pattern[at] {
            b'*' => {
                elements.push(Element::Star);
                at += 1;
            }
            b'?' | b'[' | b'\\' => {
                let taken = (0..=u8::MAX).filter_map(|byte| Some((byte, take_one(pattern, at, byte)?)));
                let (bytes, behind): (Vec<u8>, Vec<usize>) = taken.unzip();
                // An element that matches nothing: no key matches, and the rest of the pattern does not matter.
                at = behind.first().copied().unwrap_or(pattern.len());
                elements.push(Element::Byte(bytes));
            }
            literal => {
                elements.push(Element::Byte(vec![literal]));
                at += 1;
            }
        }
    }
    elements
}

impl fmt::Debug for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Glob(\"{}\")", self.pattern.escape_ascii())
    }
}

/// Like the method of slices. The texts compared with keys are a few bytes long, where a call of `memcmp` costs more
/// than the comparison.
#[inline]
pub(crate) fn starts_with(text: &[u8], beginning: &[u8]) -> bool {
    text.len() >= beginning.len() && equal(&text[..beginning.len()], beginning)
}

/// Like the method of slices, see [`starts_with`].
#[inline]
pub(crate) fn ends_with(text: &[u8], ending: &[u8]) -> bool {
    text.len() >= ending.len() && equal(&text[text.len() - ending.len()..], ending)
}

/// Compares slices of the same length word by word; the last word overlaps the one before.
#[inline]
fn equal(a: &[u8], b: &[u8]) -> bool {
    if let (Some(last_of_a), Some(last_of_b)) = (a.last_chunk::<8>(), b.last_chunk::<8>()) {
        let words = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0);
        return last_of_a == last_of_b && words.fold(true, |same, (a, b)| same & (a == b));
    }
    if let (Some(last_of_a), Some(last_of_b)) = (a.last_chunk::<4>(), b.last_chunk::<4>()) {
        return last_of_a == last_of_b && a.first_chunk::<4>() == b.first_chunk();
    }
    a.iter().zip(b).all(|(a, b)| a == b)
}

/// The literal beginning, and the position of the first wildcard in the pattern.
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

/// The literal end, and where in the pattern it begins; `first` is the position of the first wildcard.
fn split_suffix(pattern: &[u8], first: usize) -> (Vec<u8>, usize) {
    let (mut suffix, mut tail) = (Vec::new(), pattern.len());
    let mut at = first;
    while let Some(&byte) = pattern.get(at) {
        let literal = match (byte, pattern.get(at + 1)) {
            (b'*' | b'?', _) => None,
            (b'[', _) => {
                at = take_class(pattern, at + 1, 0).0 - 1;
                None
            }
            (b'\\', Some(&escaped)) => {
                at += 1;
                Some(escaped)
            }
            _ => Some(byte),
        };
        at += 1;
        match literal {
            Some(byte) => suffix.push(byte),
            None => {
                suffix.clear();
                tail = at;
            }
        }
    }
    (suffix, tail)
}

/// Redis tries a star's continuation at every later byte and, since 6.2.11, gives up on earlier stars once the last one
/// has failed. Going back only to the last star is equivalent, without the recursion.
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
            at += pattern[at..].iter().take_while(|&&byte| byte == b'*').count();
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

/// Matches a class, from after its `[` to after its `]`, or to the end if that is missing.
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
                // Redis compares C chars, which are signed where it mostly runs (x86-64): bytes from 0x80 up sort
                // before all others. Either end may be the larger one.
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
