//! The index of leases with keep-alive, by which one proxy finds those that another has to give up: its entries, and
//! the steps that write it and read what is overdue.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use lockwarden_resp::Value;

use super::step::Digits;
use super::{Plan, Renewal, Step};
use crate::companion::Home;
use crate::db_key::DbKey;
use crate::record::{DISTINCTIVE, FENCE, MS};
use crate::rules::Rules;
use crate::scripts;
use crate::time::{KeepAliveMs, OutliveMs, TtlMs};
use crate::token::{FencingToken, Grant, Identity, SessionId};

/// One entry of the index: a lease, identified by its lock, with the terms of its keep-alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// The connection that took it has ended, at the time of the entry; a connection that keeps it alive from now on
    /// must have existed before. Otherwise a proxy is responsible for it until that time.
    pub offered: bool,
    /// The TTL that each renewal gives.
    pub ttl_ms: TtlMs,
    /// The age up to which a TTL is renewed: a default TTL, or any TTL if the namespace's rules say so.
    pub keep_alive_ms: KeepAliveMs,
    /// How much longer the companion lives.
    pub outlive_ms: OutliveMs,
    /// The lock.
    pub lock: DbKey,
}

impl IndexEntry {
    /// The entry for a lease that a proxy keeps alive.
    pub fn of(renewal: &Renewal) -> IndexEntry {
        IndexEntry {
            offered: false,
            ttl_ms: renewal.ttl_ms,
            keep_alive_ms: renewal.keep_alive_ms,
            outlive_ms: renewal.outlive_ms,
            lock: renewal.lock.clone(),
        }
    }

    /// The same lease, for another proxy to keep alive.
    #[must_use]
    pub fn offer(mut self) -> IndexEntry {
        self.offered = true;
        self
    }

    /// The renewal of this lease, under the rules of the proxy that keeps it alive from now on.
    pub fn renewal(&self, grant: Grant, rules: &Rules) -> Renewal {
        Renewal {
            lock: self.lock.clone(),
            grant,
            ttl_ms: self.ttl_ms,
            grace_ms: rules.grace_ms,
            keep_alive_ms: self.keep_alive_ms,
            keep_alive_ttl: rules.keep_alive_ttl,
            outlive_ms: self.outlive_ms,
        }
    }

    /// The entry as stored in the index.
    pub fn encoded(&self) -> Bytes {
        let mut word = BytesMut::with_capacity(self.lock.bytes().len() + 48);
        word.put_u8(if self.offered { b'o' } else { b'k' });
        let numbers = [u64::from(self.lock.db()), self.ttl_ms.0, self.keep_alive_ms.0, self.outlive_ms.0];
        for number in numbers {
            word.put_slice(Digits::new().of(number));
            word.put_u8(b':');
        }
        word.put_slice(self.lock.bytes());
        word.freeze()
    }

    /// Parses an entry; `None` if it is invalid.
    pub fn parse(word: &Bytes) -> Option<IndexEntry> {
        let offered = match word.first()? {
            b'o' => true,
            b'k' => false,
            _ => return None,
        };
        let mut at = 1;
        let mut next = || -> Option<u64> {
            let end = at + word[at..].iter().position(|&byte| byte == b':')?;
            let number = std::str::from_utf8(&word[at..end]).ok()?.parse().ok()?;
            at = end + 1;
            Some(number)
        };
        let db = u32::try_from(next()?).ok()?;
        Some(IndexEntry {
            offered,
            ttl_ms: TtlMs(next()?),
            keep_alive_ms: KeepAliveMs(next()?),
            outlive_ms: OutliveMs(next()?),
            lock: DbKey::new(db, &word[at..]),
        })
    }
}

/// Writes these entries, each overdue after the given number of ms, removes the others, and requests at most `most`
/// overdue entries after skipping `skip` of them. Runs in database 0.
pub fn index(
    written: &[(i64, Bytes)],
    removed: &[Bytes],
    (most, skip): (usize, usize),
    (companion_prefix, home): (&[u8], Home),
) -> Plan {
    let mut step = Step::of_keys(&[&home.index_key(companion_prefix)]);
    for number in [most, skip, written.len()] {
        step.number(number as u64);
    }
    for (from_now, entry) in written {
        step.bytes(from_now.to_string().as_bytes());
        step.bytes(entry);
    }
    step.words(removed);
    step.done(&scripts::INDEX)
}

/// The contents of the index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Indexed {
    /// The time until the next entry is overdue.
    pub next: Option<Duration>,
    /// Overdue entries, and for how long each has been overdue.
    pub overdue: Vec<(Bytes, Duration)>,
}

/// Parses the answer of [`index`]; `None` if it has not the script's form.
pub fn indexed(answer: &Value) -> Option<Indexed> {
    let (next, overdue) = answer.as_items()?.split_first()?;
    let ms = |value: &Value| -> Option<Duration> {
        let digits = std::str::from_utf8(value.as_bytes()?).ok()?.to_owned();
        Some(Duration::from_millis(digits.parse().ok()?))
    };
    let overdue = overdue.chunks_exact(2).map(|pair| Some((pair[0].as_bytes()?.clone(), ms(&pair[1])?)));
    Some(Indexed { next: ms(next), overdue: overdue.collect::<Option<_>>()? })
}

/// Reads the leases of these entries, which are all in one database.
pub fn orphans<'a>(entries: impl Iterator<Item = &'a IndexEntry> + Clone, companion_prefix: &[u8]) -> Plan {
    let locks: Vec<&[u8]> = entries.clone().map(|entry| entry.lock.bytes()).collect();
    let mut step = Step::new(&locks, companion_prefix, &[]);
    for entry in entries {
        if entry.offered {
            step.bytes(b"");
        } else {
            step.number(entry.ttl_ms.0 / 2);
        }
    }
    step.done(&scripts::ORPHANS)
}

/// A lease that may be kept alive by another proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Orphan {
    /// There is nothing to keep alive.
    Over,
    /// It is being renewed; check it again after this time.
    Renewed(Duration),
    /// It is not renewed, and this is left of its TTL.
    Left(RecordedLease, Duration),
}

/// A lease, as its record describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedLease {
    /// Its name.
    pub grant: Grant,
    /// The connection to which it was granted.
    pub session: SessionId,
    /// The identity of that client.
    pub identity: Identity,
    /// Whether that identity is distinctive even without its process.
    pub distinctive: bool,
    /// Its fencing token.
    pub fence: FencingToken,
    /// How long it has been held.
    pub held: Duration,
}

/// Parses the answer of [`orphans`], one entry per lease; `None` if it has not the script's form.
pub fn read_orphans(answer: &Value) -> Option<Vec<Orphan>> {
    answer.as_items()?.iter().map(read_orphan).collect()
}

fn read_orphan(value: &Value) -> Option<Orphan> {
    if let Some(ms) = value.as_integer() {
        let ms = u64::try_from(ms).ok()?;
        return Some(match ms {
            0 => Orphan::Over,
            ms => Orphan::Renewed(Duration::from_millis(ms)),
        });
    }
    let (lease, ttl) = RecordedLease::read(value.as_bytes()?)?;
    Some(Orphan::Left(lease, Duration::from_millis(number(ttl)?)))
}

impl RecordedLease {
    /// Parses a script's description of it: a part of its record, and for how many ms it has been held. Also returns
    /// the text after that.
    pub(super) fn read(word: &[u8]) -> Option<(RecordedLease, &[u8])> {
        let (flags, word) = word.split_first()?;
        let (grant, word) = word.split_at_checked(16)?;
        let (session, word) = word.split_at_checked(16)?;
        let (identity, word) = word.split_at_checked(16)?;
        let (fence, word) = word.split_at_checked(FENCE)?;
        let (held, rest) = word.split_at_checked(MS)?;
        let lease = RecordedLease {
            grant: Grant::from_slice(grant)?,
            session: SessionId::from_slice(session)?,
            identity: Identity::from_slice(identity)?,
            distinctive: flags & DISTINCTIVE == DISTINCTIVE,
            fence: FencingToken(number(fence)?),
            held: Duration::from_millis(number(held)?),
        };
        Some((lease, rest))
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

impl Step {
    /// Begins with keys that have no companions.
    pub(super) fn of_keys(keys: &[&[u8]]) -> Step {
        let no_locks: [&[u8]; 0] = [];
        Step::new(&no_locks, b"", keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_as_it_was_written_whatever_its_lock_is_called() {
        for lock in ["lock:a", "1:2:3:4", "", ":", "k0:\0\u{fffd}"] {
            let entry = IndexEntry {
                offered: false,
                ttl_ms: TtlMs(30_000),
                keep_alive_ms: KeepAliveMs(u64::MAX),
                outlive_ms: OutliveMs(600_000),
                lock: DbKey::new(15, lock.as_bytes()),
            };
            assert_eq!(IndexEntry::parse(&entry.encoded()), Some(entry.clone()));
            let offer = entry.clone().offer();
            assert_ne!(offer.encoded(), entry.encoded());
            assert_eq!(IndexEntry::parse(&offer.encoded()), Some(offer));
        }
        for word in ["", "k", "k1:2:3:", "k1:2:3:x:lock", "x1:2:3:4:lock", "k-1:2:3:4:l"] {
            let word = Bytes::from_static(word.as_bytes());
            assert_eq!(IndexEntry::parse(&word), None);
        }
    }
}
