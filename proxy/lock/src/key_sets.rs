//! Sets of keys that a list of globs can express, and the remainder of one when others are removed. Redis's ACLs only
//! add patterns; there is no "all except". So the keys that remain for a user without lock keys must be written as
//! globs: `*` without `lock:*` is `[^l]*`, `l`, `l[^o]*` and so on. Exact for globs with at most one `*`;
//! docs/decisions/0055 says what happens to others. Pure; the server crate knows the users.

#[cfg(test)]
mod tests;

use std::fmt::Write;

use crate::glob::{Element, elements};

/// The most globs in a result. Redis compares every key of every command with all patterns of its user.
pub const MAX_PATTERNS: usize = 512;
/// The most pieces while a result is computed.
const MAX_PIECES: usize = 1_024;

/// A set of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Bytes256([u64; 4]);

impl Bytes256 {
    const ANY: Bytes256 = Bytes256([u64::MAX; 4]);
    const NONE: Bytes256 = Bytes256([0; 4]);

    fn of(bytes: &[u8]) -> Bytes256 {
        let mut set = Bytes256::NONE;
        for &byte in bytes {
            set.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
        }
        set
    }

    fn has(self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
    }

    fn and(self, other: Bytes256) -> Bytes256 {
        Bytes256(std::array::from_fn(|word| self.0[word] & other.0[word]))
    }

    fn not(self) -> Bytes256 {
        Bytes256(self.0.map(|word| !word))
    }

    fn len(self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }
}

/// The keys that begin with `head` and end with `tail`, which do not overlap; without a `tail`, the keys that equal
/// `head`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Piece {
    head: Vec<Bytes256>,
    tail: Option<Vec<Bytes256>>,
}

/// Why a remainder cannot be expressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeySetError {
    /// It needs too many globs.
    #[error("it takes more than {MAX_PATTERNS} patterns")]
    TooMany,
}

/// The remainder of a list of globs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remainder {
    /// Globs that match exactly the remaining keys; each key is matched by at least one of them.
    pub patterns: Vec<Vec<u8>>,
    /// Globs with several `*` that share keys with the removed ones: they are dropped as a whole.
    pub dropped: Vec<Vec<u8>>,
}

/// Keys that are removed.
#[derive(Clone, Debug)]
pub struct Taken {
    pieces: Vec<Piece>,
    /// Globs with several `*`: all keys with their beginning and end are removed.
    pub widened: Vec<Vec<u8>>,
    /// The remainder of all keys.
    complement: Vec<Piece>,
}

impl Taken {
    /// The keys of these globs.
    pub fn new<'a>(globs: impl Iterator<Item = &'a [u8]>) -> Result<Taken, KeySetError> {
        let (mut pieces, mut widened) = (Vec::new(), Vec::new());
        for glob in globs {
            let (piece, exact) = Piece::around(glob);
            if !exact {
                widened.push(glob.to_vec());
            }
            pieces.push(piece);
        }
        let mut complement = vec![Piece::everything()];
        for piece in &pieces {
            complement = intersection(&complement, &piece.complement())?;
        }
        Ok(Taken { pieces, widened, complement })
    }

    /// The remainder of these globs. A glob that shares no key with the removed ones stays as written.
    pub fn from<'a>(&self, globs: impl Iterator<Item = &'a [u8]>) -> Result<Remainder, KeySetError> {
        let mut left = Remainder::default();
        for glob in globs {
            let (piece, exact) = Piece::around(glob);
            let is_apart = |taken: &Piece| piece.and(taken).is_empty();
            if self.pieces.iter().all(is_apart) {
                left.patterns.push(glob.to_vec());
            } else if exact {
                let pieces = intersection(&[piece], &self.complement)?;
                left.patterns.extend(pieces.iter().filter_map(Piece::glob));
            } else {
                left.dropped.push(glob.to_vec());
            }
        }
        left.patterns.sort();
        left.patterns.dedup();
        match left.patterns.len() > MAX_PATTERNS {
            true => Err(KeySetError::TooMany),
            false => Ok(left),
        }
    }

    /// Whether this glob shares a key with the removed ones. For a glob with several `*` only the ends are compared.
    pub fn touches(&self, glob: &[u8]) -> bool {
        let (piece, _) = Piece::around(glob);
        self.pieces.iter().any(|taken| !piece.and(taken).is_empty())
    }
}

/// The keys of one glob, to be compared with those of others. For a glob with several `*` only the ends are compared.
#[derive(Clone, Debug)]
pub struct KeyRange(Piece);

impl KeyRange {
    /// The keys of this glob.
    pub fn of(glob: &[u8]) -> KeyRange {
        KeyRange(Piece::around(glob).0)
    }

    /// Whether a key may be in both.
    pub fn may_share_a_key_with(&self, other: &KeyRange) -> bool {
        !self.0.and(&other.0).is_empty()
    }
}

/// Whether an ACL accepts this glob: it must have neither blanks nor NUL.
pub fn fits_acl(glob: &[u8]) -> bool {
    !glob.iter().any(|&byte| is_forbidden(byte))
}

/// The same glob with `?` in place of bytes that an ACL refuses: it matches a few more keys.
pub fn fitting_acl(glob: &[u8]) -> Vec<u8> {
    let fit = |&byte: &u8| if is_forbidden(byte) { b'?' } else { byte };
    glob.iter().map(fit).collect()
}

/// Bytes that Redis refuses in a pattern (`ACLStringHasSpaces`).
fn is_forbidden(byte: u8) -> bool {
    matches!(byte, 0 | 9..=13 | b' ')
}

impl Piece {
    fn everything() -> Piece {
        Piece { head: Vec::new(), tail: Some(Vec::new()) }
    }

    /// The smallest piece that contains all keys of a glob, and whether it contains no others.
    fn around(glob: &[u8]) -> (Piece, bool) {
        let elements = elements(glob);
        let bytes = |part: &[Element]| -> Vec<Bytes256> {
            let of = |element: &Element| match element {
                Element::Byte(bytes) => Some(Bytes256::of(bytes)),
                Element::Star => None,
            };
            part.iter().map_while(of).collect()
        };
        let is_star = |element: &Element| matches!(element, Element::Star);
        let first = elements.iter().position(is_star);
        let last = elements.iter().rposition(is_star);
        let (Some(first), Some(last)) = (first, last) else {
            let head = bytes(&elements);
            return (Piece { head, tail: None }, true);
        };
        let exact = elements[first..=last].iter().all(is_star);
        let piece = Piece { head: bytes(&elements[..first]), tail: Some(bytes(&elements[last + 1..])) };
        (piece, exact)
    }

    /// The length of its shortest key, bytes.
    fn least(&self) -> usize {
        self.head.len() + self.tail.as_ref().map_or(0, Vec::len)
    }

    fn has_keys(&self) -> bool {
        let tail = self.tail.iter().flatten();
        self.head.iter().chain(tail).all(|set| *set != Bytes256::NONE)
    }

    /// All other keys, each in exactly one of the pieces.
    fn complement(&self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let mut add = |head: Vec<Bytes256>, tail: Option<Vec<Bytes256>>| {
            let piece = Piece { head, tail };
            if piece.has_keys() {
                pieces.push(piece);
            }
        };
        // Shorter than the head, or with another byte in it.
        for at in 0..self.head.len() {
            let begin = &self.head[..at];
            add(begin.to_vec(), None);
            add([begin, &[self.head[at].not()]].concat(), Some(Vec::new()));
        }
        match &self.tail {
            None => add([&self.head[..], &[Bytes256::ANY]].concat(), Some(Vec::new())),
            Some(tail) => {
                for at in 0..tail.len() {
                    // Too short for both ends.
                    add([&self.head[..], &vec![Bytes256::ANY; at]].concat(), None);
                    // Long enough, with another byte in the tail; any bytes before that one.
                    let before = vec![Bytes256::ANY; at];
                    let tail = [&before[..], &[tail[at].not()], &tail[at + 1..]].concat();
                    add(self.head.clone(), Some(tail));
                }
            }
        }
        pieces
    }

    /// The keys that are in both.
    fn and(&self, other: &Piece) -> Vec<Piece> {
        let mut found = Vec::new();
        let mut add = |piece: Option<Piece>| found.extend(piece.filter(Piece::has_keys));
        match (&self.tail, &other.tail) {
            (None, None) if self.head.len() != other.head.len() => {}
            (None, _) => add(self.of_length(other, self.head.len())),
            (_, None) => add(self.of_length(other, other.head.len())),
            (Some(one), Some(two)) => {
                let head = merged(&self.head, &other.head, End::Beginning);
                let tail = merged(one, two, End::Ending);
                // Where the longer ends of both would overlap.
                let lengths = self.least().max(other.least())..head.len() + tail.len();
                for length in lengths {
                    add(self.of_length(other, length));
                }
                add(Some(Piece { head, tail: Some(tail) }));
            }
        }
        found
    }

    /// The keys of this length that are in both.
    fn of_length(&self, other: &Piece, length: usize) -> Option<Piece> {
        let (one, two) = (self.spelled(length)?, other.spelled(length)?);
        let head = one.iter().zip(&two).map(|(one, two)| one.and(*two)).collect();
        Some(Piece { head, tail: None })
    }

    /// The possible bytes in each place of a key of this length; `None` if it contains none.
    fn spelled(&self, length: usize) -> Option<Vec<Bytes256>> {
        let between = length.checked_sub(self.least())?;
        match &self.tail {
            None => (between == 0).then(|| self.head.clone()),
            Some(tail) => Some([&self.head[..], &vec![Bytes256::ANY; between], tail].concat()),
        }
    }

    /// As a glob that an ACL accepts. Bytes that no ACL pattern can contain are left out, so it may match a few keys
    /// less; `None` if nothing is left.
    fn glob(&self) -> Option<Vec<u8>> {
        let mut glob = Vec::new();
        for set in &self.head {
            put(&mut glob, *set)?;
        }
        if let Some(tail) = &self.tail {
            glob.push(b'*');
            for set in tail {
                put(&mut glob, *set)?;
            }
        }
        Some(glob)
    }
}

enum End {
    Beginning,
    Ending,
}

/// Combines two lists of possible bytes at the same end of a key.
fn merged(one: &[Bytes256], two: &[Bytes256], end: End) -> Vec<Bytes256> {
    let length = one.len().max(two.len());
    let at = |list: &[Bytes256], place: usize| {
        let place = match end {
            End::Beginning => Some(place),
            End::Ending => (place + list.len()).checked_sub(length),
        };
        let set = place.and_then(|place| list.get(place));
        set.copied().unwrap_or(Bytes256::ANY)
    };
    (0..length).map(|place| at(one, place).and(at(two, place))).collect()
}

/// The keys that are in both lists. If the pieces within each list are disjoint, so are those of the result.
fn intersection(one: &[Piece], two: &[Piece]) -> Result<Vec<Piece>, KeySetError> {
    let mut found = Vec::new();
    for one in one {
        for two in two {
            found.extend(one.and(two));
            if found.len() > MAX_PIECES {
                return Err(KeySetError::TooMany);
            }
        }
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// One place of a key as a glob.
fn put(glob: &mut Vec<u8>, set: Bytes256) -> Option<()> {
    if set == Bytes256::ANY {
        glob.push(b'?');
        return Some(());
    }
    let bytes: Vec<u8> = (0..=u8::MAX).filter(|&byte| set.has(byte)).collect();
    if let [byte] = bytes[..] {
        if is_forbidden(byte) {
            return None;
        }
        match byte {
            // At the end of a pattern a plain `)` would end a selector.
            b')' => glob.extend_from_slice(b"[)]"),
            b'*' | b'?' | b'[' | b'\\' => glob.extend_from_slice(&[b'\\', byte]),
            _ => glob.push(byte),
        }
        return Some(());
    }
    let left_out = set.not();
    let others: Vec<u8> = (0..=u8::MAX).filter(|&byte| left_out.has(byte)).collect();
    if set.len() > 128 && others.iter().all(|&byte| !is_forbidden(byte)) {
        glob.extend_from_slice(b"[^");
        for byte in others {
            put_in_class(glob, byte);
        }
        glob.push(b']');
        return Some(());
    }
    put_ranges(glob, &bytes)
}

/// A class of these bytes, as ranges whose ends an ACL accepts.
fn put_ranges(glob: &mut Vec<u8>, bytes: &[u8]) -> Option<()> {
    let mut runs: Vec<(u8, u8)> = Vec::new();
    for &byte in bytes {
        match runs.last_mut() {
            // Redis compares C chars, which are signed on some machines: no range may cross 0x80.
            Some((_, last)) if last.checked_add(1) == Some(byte) && byte != 0x80 => *last = byte,
            _ => runs.push((byte, byte)),
        }
    }
    let start = glob.len();
    glob.push(b'[');
    for (first, last) in runs {
        // The ends of a range cannot be escaped, so bytes with a special meaning are written separately.
        let mut run: Vec<u8> = (first..=last).collect();
        while let Some(&edge) = run.first().filter(|byte| is_special(**byte)) {
            put_in_class(glob, edge);
            run.remove(0);
        }
        while let Some(&edge) = run.last().filter(|byte| is_special(**byte)) {
            put_in_class(glob, edge);
            run.pop();
        }
        match run[..] {
            [first, _, .., last] => glob.extend_from_slice(&[first, b'-', last]),
            _ => run.iter().for_each(|&byte| put_in_class(glob, byte)),
        }
    }
    if glob.len() == start + 1 {
        glob.truncate(start);
        return None;
    }
    glob.push(b']');
    Some(())
}

/// Whether a byte cannot be the end of a range.
fn is_special(byte: u8) -> bool {
    is_forbidden(byte) || has_meaning(byte)
}

fn has_meaning(byte: u8) -> bool {
    matches!(byte, b']' | b'\\' | b'^' | b'-')
}

fn put_in_class(glob: &mut Vec<u8>, byte: u8) {
    if is_forbidden(byte) {
        return;
    }
    if has_meaning(byte) {
        glob.push(b'\\');
    }
    glob.push(byte);
}

/// A glob, or any other word, quoted for `redis-cli`.
pub fn quoted(word: &[u8]) -> String {
    let plain = |&byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\');
    if !word.is_empty() && word.iter().all(plain) {
        return String::from_utf8_lossy(word).into_owned();
    }
    let mut text = String::from("\"");
    for &byte in word {
        match byte {
            b'"' | b'\\' => {
                text.push('\\');
                text.push(char::from(byte));
            }
            b' '..=b'~' => text.push(char::from(byte)),
            _ => {
                let _ = write!(text, "\\x{byte:02x}");
            }
        }
    }
    text.push('"');
    text
}
