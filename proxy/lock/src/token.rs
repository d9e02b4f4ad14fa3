//! The names and numbers around a lease: owner tokens, fencing tokens, grants, sessions and identities. Each has its
//! own type, so that none can be passed in place of another, and only those that may be printed can be.

use std::fmt;
use std::ops::Deref;

use bytes::Bytes;
use sha1::{Digest, Sha1};
use triomphe::ThinArc;
use twox_hash::XxHash3_64;

use crate::record::MAX_STORED_TOKEN;

/// The value that a client stored in the lock. It proves ownership, so it is never printed.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct OwnerToken(Bytes);

/// A value with at least this many bytes is assumed to be one client's own: a UUID, a random string, a snowflake
/// number; not `1`, `locked` or a thread id.
pub const DISTINCTIVE_BYTES: usize = 16;

impl OwnerToken {
    /// Takes the value as the client sent it.
    pub fn new(value: Bytes) -> OwnerToken {
        OwnerToken(value)
    }

    /// Copies the value out of a larger buffer, so that a small token does not keep it alive.
    pub fn copy_of(value: &[u8]) -> OwnerToken {
        OwnerToken(Bytes::copy_from_slice(value))
    }

    /// The value itself, for Redis and for policies only.
    pub fn expose(&self) -> &Bytes {
        &self.0
    }

    /// The form in which a companion record stores it.
    pub fn stored_form(&self) -> StoredToken {
        stored_form(&self.0)
    }

    /// Whether the value differs from other clients' values. A deadline does not, however long its fraction: two
    /// clients may well write the same one.
    pub fn is_distinctive(&self) -> bool {
        self.0.len() >= DISTINCTIVE_BYTES && !looks_like_deadline(&self.0)
    }
}

impl fmt::Debug for OwnerToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnerToken({} bytes)", self.0.len())
    }
}

/// An owner token in a companion record's form: the value, or its SHA-1 in hex if it is longer than
/// [`MAX_STORED_TOKEN`]. The scripts compute the same. Never compared with a value as it was sent, and never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StoredToken(Bytes);

/// The form in which a companion record stores this value.
pub fn stored_form(value: &Bytes) -> StoredToken {
    match value.len() <= MAX_STORED_TOKEN {
        true => StoredToken(value.clone()),
        false => StoredToken(hex(&Sha1::digest(value)).into()),
    }
}

impl Deref for StoredToken {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for StoredToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoredToken({} bytes)", self.0.len())
    }
}

/// A stored token that is kept as long as its lease: one pointer to bytes of its own, which never keep a client's buffer
/// alive.
#[derive(Clone)]
pub struct KeptToken(ThinArc<(), u8>);

impl From<StoredToken> for KeptToken {
    fn from(token: StoredToken) -> KeptToken {
        KeptToken(ThinArc::from_header_and_slice((), &token))
    }
}

impl PartialEq<StoredToken> for KeptToken {
    fn eq(&self, other: &StoredToken) -> bool {
        self.0.slice == other[..]
    }
}

impl fmt::Debug for KeptToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeptToken({} bytes)", self.0.slice.len())
    }
}

/// XXH3 of a value: a short name by which the value is recognised later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueHash(u64);

impl ValueHash {
    /// The hash of a value.
    pub fn of(value: &[u8]) -> ValueHash {
        ValueHash(XxHash3_64::oneshot(value))
    }
}

/// The digest of a value as `DIGEST` returns it: XXH3 with 64 bits, as 16 hex digits. It distinguishes values that were
/// not made to collide, so it may replace a value in a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueDigest([u8; 16]);

impl ValueDigest {
    /// The digest of a value.
    pub fn of(value: &[u8]) -> ValueDigest {
        let digits = hex(&ValueHash::of(value).0.to_be_bytes());
        ValueDigest::parse(digits.as_bytes()).expect("8 bytes are 16 hex digits")
    }

    /// A digest as a client writes it. Redis only checks its length: one that is not hex is the digest of no value.
    pub fn parse(digits: &[u8]) -> Option<ValueDigest> {
        let digits = <[u8; 16]>::try_from(digits).ok()?;
        Some(ValueDigest(digits.map(|digit| digit.to_ascii_lowercase())))
    }
}

/// Lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    use fmt::Write;
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        write!(text, "{byte:02x}").expect("writing to a String does not fail");
    }
    text
}

/// Whether a value has the form of a wall-clock deadline: decimal with an optional fraction, its whole part 10 digits
/// (seconds) or 13 (milliseconds). The script decides whether it is near Redis's clock, and whether it has passed.
pub fn looks_like_deadline(value: &[u8]) -> bool {
    let mut parts = value.splitn(2, |&byte| byte == b'.');
    let whole = parts.next().unwrap_or_default();
    let fraction_fits =
        parts.next().is_none_or(|fraction| !fraction.is_empty() && fraction.iter().all(u8::is_ascii_digit));
    matches!(whole.len(), 10 | 13) && whole.iter().all(u8::is_ascii_digit) && fraction_fits
}

/// Grows with every grant of the same lock, and is never handed out twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(pub u64);

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Sixteen bytes that name something; printed as hex.
macro_rules! sixteen_bytes {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub [u8; 16]);

        impl $name {
            /// The value with these bytes, if there are sixteen.
            pub fn from_slice(bytes: &[u8]) -> Option<$name> {
                bytes.try_into().ok().map($name)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&hex(&self.0))
            }
        }
    };
}

sixteen_bytes! {
    /// The name of one lease: random bytes drawn for every grant. All proofs compare grants.
    Grant
}
impl Grant {
    /// The name of one more lease that the same step grants, counted from 1. The script computes the same.
    pub fn further(self, count: u16) -> Grant {
        let hash = Sha1::new().chain_update(self.0).chain_update(count.to_string());
        let mut name = [0; 16];
        name.copy_from_slice(&hex(&hash.finalize()).as_bytes()[..16]);
        Grant(name)
    }
}

sixteen_bytes! {
    /// One client connection, for as long as it lives.
    SessionId
}
sixteen_bytes! {
    /// Who a client is: eight bytes of a hash of everything that its connection tells (see
    /// [`Identity::of`]), and eight that say which process of this machine it is (see [`Process`]).
    /// Equal only as a whole.
    Identity
}

/// Which process on the proxy's own machine a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Process {
    /// Unknown: the client is elsewhere, or the process may not be inspected.
    None,
    /// Not yet looked up.
    Pending,
    /// A hash of what distinguishes it from every other process.
    Known([u8; 8]),
}

impl Process {
    const NONE: [u8; 8] = [0; 8];
    const PENDING: [u8; 8] = [0xff; 8];

    /// Hashes what distinguishes a process from every other.
    pub fn of(parts: &[&[u8]]) -> Process {
        match first_eight(&hashed(b"lockwarden process 1", parts)) {
            Process::NONE | Process::PENDING => Process::None,
            hash => Process::Known(hash),
        }
    }

    /// The form in a record.
    pub(crate) fn bytes(self) -> [u8; 8] {
        match self {
            Process::None => Process::NONE,
            Process::Pending => Process::PENDING,
            Process::Known(hash) => hash,
        }
    }
}

impl Identity {
    /// Hashes the parts of an identity. Two proxies compute the same identity from the same parts.
    pub fn of(parts: &[&[u8]]) -> Identity {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&first_eight(&hashed(b"lockwarden identity 1", parts)));
        Identity(bytes)
    }

    /// Whether both may be the same client: everything that their connections show is equal, and their processes are
    /// not known to differ. `kin` in the scripts.
    pub fn may_be(self, other: Identity) -> bool {
        self.0[..8] == other.0[..8] && (self.0[8..] == other.0[8..] || !self.has_process() || !other.has_process())
    }

    /// This identity, or the other if only that one names a process. Both may be the same client.
    #[must_use]
    pub fn or_known(self, other: Identity) -> Identity {
        if self.has_process() { self } else { other }
    }

    fn has_process(self) -> bool {
        matches!(self.process(), Process::Known(_))
    }

    /// The process that it names.
    pub fn process(self) -> Process {
        let mut process = [0; 8];
        process.copy_from_slice(&self.0[8..]);
        match process {
            Process::NONE => Process::None,
            Process::PENDING => Process::Pending,
            known => Process::Known(known),
        }
    }

    /// The same client, as this process.
    #[must_use]
    pub fn with_process(mut self, process: Process) -> Identity {
        self.0[8..].copy_from_slice(&process.bytes());
        self
    }
}

fn hashed(kind: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut hash = Sha1::new();
    hash.update(kind);
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().to_vec()
}

fn first_eight(digest: &[u8]) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&digest[..8]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_told_by_its_shape() {
        for (value, is) in [
            ("1736941234", true),
            ("1736941234123", true),
            ("1736941234.5", true),
            ("1736941234.123456789", true),
            ("1736941234.", false),
            ("173694123", false),
            ("-173694123", false),
            ("1736941234.1.2", false),
            ("1", false),
            ("", false),
            ("17369412341234567", false),
        ] {
            assert_eq!(looks_like_deadline(value.as_bytes()), is, "{value}");
        }
    }

    #[test]
    fn long_random_values_are_distinctive_and_deadlines_are_not() {
        let distinctive = |value: &'static str| OwnerToken::new(value.into()).is_distinctive();
        assert!(distinctive("8c1f0a2e9b7d4f6a"));
        assert!(distinctive("1234567890123456789"));
        assert!(!distinctive("1"));
        assert!(!distinctive("1736941234.123456789"));
    }

    #[test]
    fn owner_tokens_are_not_printed() {
        let token = OwnerToken::copy_of(b"very secret");
        assert_eq!(format!("{token:?}"), "OwnerToken(11 bytes)");
    }

    #[test]
    fn long_owner_tokens_are_stored_as_their_sha1() {
        let short = OwnerToken::copy_of(&[b'a'; 64]);
        assert_eq!(*short.stored_form(), short.expose()[..]);
        let long = OwnerToken::copy_of(&[b'a'; 65]);
        assert_eq!(long.stored_form().len(), 40);
    }

    #[test]
    fn the_parts_of_an_identity_cannot_run_into_each_other() {
        assert_ne!(Identity::of(&[b"ab", b"c"]), Identity::of(&[b"a", b"bc"]));
    }

    #[test]
    fn a_digest_is_the_one_that_redis_computes() {
        let digest = |text: &str| ValueDigest::parse(text.as_bytes()).unwrap();
        // From the tests of other implementations, which were compared with Redis 8.4.
        for (value, known) in [
            ("hello", "9555e8555c62dcfd"),
            ("", "2d06800538d394c2"),
            ("123", "404a763b3f4c8c9a"),
            ("v8", "0cc76dbb41381419"),
        ] {
            assert_eq!(ValueDigest::of(value.as_bytes()), digest(known), "{value}");
            assert_eq!(digest(known), digest(&known.to_uppercase()));
        }
        let nobodys = digest("zzzzzzzzzzzzzzzz");
        assert_ne!(ValueDigest::of(b"hello"), nobodys);
        for wrong in ["", "0123", "9555e8555c62dcf", "09555e8555c62dcfd"] {
            assert_eq!(ValueDigest::parse(wrong.as_bytes()), None);
        }
    }

    #[test]
    fn an_identity_is_equal_only_with_its_process() {
        let client = Identity::of(&[b"app"]);
        let (one, two) = (Process::of(&[b"7", b"100"]), Process::of(&[b"7", b"101"]));
        assert_ne!(client.with_process(one), client.with_process(two));
        assert_ne!(client.with_process(one), client.with_process(Process::Pending));
        assert_eq!(client.with_process(one).with_process(Process::None), client);
        for other in [Process::None, Process::Pending, one] {
            let other = client.with_process(other);
            assert!(client.with_process(one).may_be(other));
            assert_eq!(other.or_known(client.with_process(one)), client.with_process(one));
        }
        assert!(!client.with_process(one).may_be(client.with_process(two)));
        assert!(!client.may_be(Identity::of(&[b"other"])));
    }
}
