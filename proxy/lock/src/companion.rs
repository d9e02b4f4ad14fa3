//! The companion key: where the proxy keeps its own record of a lock, in the same slot as the lock itself. This module
//! owns the name and the slots; it knows nothing of the record's content. [`crate::namespace`] decides which keys are
//! locks.

use std::sync::LazyLock;

use crate::namespace::Namespaces;
use crate::record::{COUNTED, DEBT_BYTES, DEBT_ENDS, OPEN, PAID, WAITS};
use crate::record_version::{VERSION, later_version};

/// The number of slots into which Redis divides the key space.
pub const SLOTS: u16 = 16_384;

/// The digits of a tag, in their order.
const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// No tag is longer: all strings of three digits reach 16,299 slots, four digits reach the rest.
const MAX_TAG_BYTES: usize = 4;

/// The slot of a key, as Redis computes it: of the part between the first `{` and the next `}`
/// where that is not empty, else of the whole key.
pub fn slot(key: &[u8]) -> u16 {
    crc16(0, hash_tag(key).unwrap_or(key)) % SLOTS
}

/// A short string that hashes to the slot (taken modulo [`SLOTS`]): the shortest string of base-36
/// digits (`0`–`9`, `a`–`z`) that does, the lexicographically first among those of its length.
/// Companion keys in Redis are named by it, so it never changes.
pub fn tag(slot: u16) -> &'static str {
    let (tag, length) = &TAGS[usize::from(slot % SLOTS)];
    std::str::from_utf8(&tag[..usize::from(*length)]).expect("a tag is made of ASCII digits")
}

/// The tags and their lengths in one array: every lock command looks one up.
static TAGS: LazyLock<Vec<([u8; MAX_TAG_BYTES], u8)>> = LazyLock::new(|| {
    let packed = |tag: String| {
        let mut bytes = [0; MAX_TAG_BYTES];
        bytes[..tag.len()].copy_from_slice(tag.as_bytes());
        (bytes, tag.len() as u8)
    };
    all_tags().into_iter().map(packed).collect()
});

/// The tags of all slots in a row, each padded with blanks to the longest length: for scripts that build names of
/// records.
pub(crate) fn tags() -> &'static str {
    static ROW: LazyLock<String> = LazyLock::new(|| {
        let padded = (0..SLOTS).map(|slot| format!("{:MAX_TAG_BYTES$}", tag(slot)));
        padded.collect()
    });
    &ROW
}

/// The name of the record of a lock key: `prefix{tag}:key`. Wrapping the key itself in braces would not work: a key
/// with braces of its own has another slot.
pub fn companion_key(prefix: &[u8], key: &[u8]) -> Vec<u8> {
    companion_in(slot(key), prefix, key)
}

/// The same in this slot, whatever slot the key itself has.
pub(crate) fn companion_in(slot: u16, prefix: &[u8], key: &[u8]) -> Vec<u8> {
    let (tag, length) = &TAGS[usize::from(slot)];
    let mut name = Vec::with_capacity(prefix.len() + key.len() + MAX_TAG_BYTES + 3);
    name.extend_from_slice(prefix);
    name.push(b'{');
    name.extend_from_slice(&tag[..usize::from(*length)]);
    name.extend_from_slice(b"}:");
    name.extend_from_slice(key);
    name
}

/// The lock that one of the proxy's own key names belongs to, if it has that form; [`OwnKey::of`] decides whether it is
/// one.
pub fn lock_behind(own: &[u8]) -> Option<&[u8]> {
    let is_end = |pair: &[u8]| matches!(pair, b"}:" | b"}#");
    let at = own.windows(2).position(is_end)?;
    Some(&own[at + 2..])
}

/// The name of a lock's release debts, from the name of its record.
pub fn debts_beside(companion: &[u8]) -> Vec<u8> {
    let tag_ends = memchr::memmem::find(companion, b"}:").unwrap_or(companion.len());
    let mut name = companion.to_vec();
    if let Some(colon) = name.get_mut(tag_ends + 1) {
        *colon = b'#';
    }
    name
}

/// A key that does not exist, in the slot of a companion, for commands that must change nothing. The rights check
/// before a step builds the same name.
pub fn key_beside(companion: &[u8]) -> Vec<u8> {
    let tag_ends = memchr::memmem::find(companion, b"}:").unwrap_or(companion.len());
    [&companion[..tag_ends], b"}!lockwarden"].concat()
}

/// The start of the names of the proxy's own keys that are about no lock.
pub(crate) const OWN: &[u8] = b"lockwarden";
const INDEX: &str = "lockwarden-kept";
const ERA: &str = "lockwarden-era";
const PROXIES: &str = "lockwarden-proxies";
/// The key, in each database, with the highest fencing token whose record went with its lock; scripts name it.
const FLOOR: &str = "lockwarden-floor";

/// The slot in which a server has those of the proxy's own keys that are about no lock. All but
/// the one with a fencing token are in its database 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    tag: &'static str,
}

impl Home {
    /// For a server that has all keys.
    pub const WHOLE: Home = Home { tag: "" };

    /// For a node of a cluster that has the keys of this slot.
    pub fn of_slot(slot: u16) -> Home {
        Home { tag: tag(slot) }
    }

    /// The name of the index of leases with keep-alive.
    pub fn index_key(self, prefix: &[u8]) -> Vec<u8> {
        self.name(prefix, INDEX)
    }

    /// The name of the key that says which server is the primary, and since when.
    pub fn era_key(self, prefix: &[u8]) -> Vec<u8> {
        self.name(prefix, ERA)
    }

    /// The name of the key in which proxies with this prefix register themselves.
    pub fn proxies_key(self, prefix: &[u8]) -> Vec<u8> {
        self.name(prefix, PROXIES)
    }

    /// The key that says which companion prefix is used on a Redis. Its own name is the same for every prefix: the one
    /// with the usual prefix.
    pub fn prefix_mark(self) -> Vec<u8> {
        let (before, behind) = PREFIX_MARKS;
        [before, self.tag.as_bytes(), behind].concat()
    }

    fn name(self, prefix: &[u8], what: &str) -> Vec<u8> {
        [prefix, b"{", self.tag.as_bytes(), b"}:", what.as_bytes()].concat()
    }
}

/// The form of the names of prefix marks: the text before the tag, and after it.
pub const PREFIX_MARKS: (&[u8], &[u8]) = (b"lw:{", b"}:lockwarden-prefix");

/// Whether this is the prefix mark of some home.
#[inline]
pub(crate) fn is_prefix_mark(key: &[u8]) -> bool {
    let (before, behind) = PREFIX_MARKS;
    let tag = key.strip_prefix(before).and_then(|key| key.strip_suffix(behind));
    tag.is_some_and(|tag| !tag.contains(&b'}'))
}

/// The text after the tag in the names of the counts of surplus releases; 40 hexadecimal digits follow.
const SURPLUS: &str = "lockwarden-surplus:";

/// Whether a name that begins and ends like this may be one of the proxy's own keys that are about no lock.
pub(crate) fn may_be_about_no_lock(prefix: &[u8], beginning: &[u8], ending: &[u8]) -> bool {
    let last = &ending[ending.len().saturating_sub(40)..];
    let is_hex = last.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    // Any tag may be between the two.
    let begins = |before: &[u8], behind: &[u8]| {
        before.starts_with(beginning)
            || beginning.strip_prefix(before).is_some_and(|rest| is_beginning_of_tagged(rest, behind))
    };
    let ends = |behind: &[u8]| behind.ends_with(ending) || ending.ends_with(behind);
    let before = [prefix, b"{"].concat();
    let behind = |what: &str| [b"}:", what.as_bytes()].concat();
    let is_fixed = |behind: Vec<u8>| begins(&before, &behind) && ends(&behind);
    let (mark, behind_mark) = PREFIX_MARKS;
    begins(mark, behind_mark) && ends(behind_mark)
        || [INDEX, ERA, PROXIES, FLOOR].map(behind).into_iter().any(is_fixed)
        || is_hex && begins(&before, &behind(SURPLUS))
}

/// Whether a tag followed by `behind` may begin like this, or with a part of what follows it.
fn is_beginning_of_tagged(rest: &[u8], behind: &[u8]) -> bool {
    match rest.iter().position(|&byte| byte == b'}') {
        Some(end) => behind.starts_with(&rest[end..]) || rest[end..].starts_with(behind),
        None => true,
    }
}

/// What one of the proxy's own key names is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnKey {
    /// The record of a lock, `prefix{…}:key` with the key in a namespace.
    Record,
    /// The release debts of a lock, `prefix{…}#key`.
    Debts,
    /// It is about no lock.
    Other,
}

impl OwnKey {
    /// Whether this name is one of the proxy's own. Only this function knows. The tag is not compared, so that a wrong
    /// tag cannot hide a companion-like key.
    pub fn of(prefix: &[u8], candidate: &[u8], namespaces: &Namespaces) -> Option<OwnKey> {
        if is_prefix_mark(candidate) {
            return Some(OwnKey::Other);
        }
        let [b'{', tagged @ ..] = candidate.strip_prefix(prefix)? else {
            return None;
        };
        // The first `}` ends the tag: a tag contains none, but the lock key may.
        let end = tagged.iter().position(|&byte| byte == b'}')?;
        let (own, key) = match &tagged[end + 1..] {
            [b':', key @ ..] if key.starts_with(OWN) => return Some(OwnKey::Other),
            [b':', key @ ..] => (OwnKey::Record, key),
            [b'#', key @ ..] => (OwnKey::Debts, key),
            _ => return None,
        };
        namespaces.claims(key).map(|_| own)
    }

    /// Whether the proxy may have written a key with this name whose value begins like this; `None` if it is no string.
    /// At most [`OwnKey::TELLING`] bytes are needed.
    pub fn may_hold(self, beginning: Option<&[u8]>) -> bool {
        match (self, beginning) {
            (OwnKey::Other, _) => true,
            (OwnKey::Record, Some([VERSION, ..])) => true,
            (OwnKey::Record, Some(record)) => later_version(record).is_some(),
            (OwnKey::Debts, Some(debt)) => is_debt(debt),
            (OwnKey::Record | OwnKey::Debts, None) => false,
        }
    }

    /// The first debt of a list: a letter, an identity and a time of 13 digits.
    pub const TELLING: usize = DEBT_BYTES;
}

fn is_debt(bytes: &[u8]) -> bool {
    bytes.len() == OwnKey::TELLING
        && matches!(bytes[0], OPEN | PAID | WAITS | COUNTED..)
        && bytes[DEBT_ENDS..].iter().all(u8::is_ascii_digit)
}

/// Whether the name is one of the proxy's own, of any kind.
pub fn names_companion(prefix: &[u8], candidate: &[u8], namespaces: &Namespaces) -> bool {
    OwnKey::of(prefix, candidate, namespaces).is_some()
}

fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|&byte| byte == b'{')?;
    let inside = &key[open + 1..];
    let close = inside.iter().position(|&byte| byte == b'}')?;
    (close > 0).then_some(&inside[..close])
}

/// Walks the strings of digits in order of length, then lexicographically, and assigns to each slot the first one that
/// hashes to it.
fn all_tags() -> Vec<String> {
    let mut tags = vec![String::new(); usize::from(SLOTS)];
    let mut missing = tags.len();
    for length in 1..=MAX_TAG_BYTES {
        let mut digits = vec![0; length];
        let mut more = true;
        while more && missing > 0 {
            let text: String = digits.iter().map(|&digit| char::from(DIGITS[digit])).collect();
            let place = &mut tags[usize::from(slot(text.as_bytes()))];
            if place.is_empty() {
                *place = text;
                missing -= 1;
            }
            more = count_up(&mut digits);
        }
    }
    debug_assert_eq!(missing, 0, "a slot without a tag");
    tags
}

/// The next string of the same length; false after the last.
fn count_up(digits: &mut [usize]) -> bool {
    for digit in digits.iter_mut().rev() {
        *digit += 1;
        if *digit < DIGITS.len() {
            return true;
        }
        *digit = 0;
    }
    false
}

/// CRC-16/XMODEM: polynomial 0x1021, no reflection, start 0.
fn crc16(start: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(start, |crc, &byte| (crc << 8) ^ CRC_TABLE[usize::from((crc >> 8) ^ u16::from(byte))])
}

static CRC_TABLE: [u16; 256] = crc_table();

const fn crc_table() -> [u16; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut crc = (index as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
}

#[cfg(test)]
mod tests;
