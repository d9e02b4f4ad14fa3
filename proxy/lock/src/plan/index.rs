//! The index of the leases that are kept alive, by which one proxy finds those that another has to
//! leave: its entries, and the steps that write it and look at what is overdue.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use lockwarden_resp::Value;

use super::step::Digits;
use super::{Plan, Renewal, Step};
use crate::companion::Home;
use crate::record::{DISTINCTIVE, FENCE, MS};
use crate::rules::Rules;
use crate::scripts;
use crate::time::{KeepAliveMs, OutliveMs, TtlMs};
use crate::token::{FencingToken, Grant, Identity, SessionId};

/// One entry of the index: a lease by its lock, with the terms on which it is kept alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// The connection that took it has ended, at the time that the entry stands at; the proxy that keeps it
    /// alive from now on was there before. Otherwise a proxy answers for it until that time.
    pub offered: bool,
    /// The logical database of the lock.
    pub db: u32,
    /// The TTL that each renewal gives.
    pub ttl_ms: TtlMs,
    /// The age up to which an invented TTL is renewed, or any where the rules of its namespace say so.
    pub keep_alive_ms: KeepAliveMs,
    /// How much longer the companion lives.
    pub outlive_ms: OutliveMs,
    /// The lock key.
    pub lock: Bytes,
}

impl IndexEntry {
    /// The entry of a lease that a proxy keeps alive.
    pub fn of(renewal: &Renewal, db: u32) -> IndexEntry {
        IndexEntry {
            offered: false,
            db,
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

    /// What keeps this lease alive, under the rules of the proxy that does from now on.
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

    /// As it stands in the index.
    pub fn encoded(&self) -> Bytes {
        let mut word = BytesMut::with_capacity(self.lock.len() + 48);
        word.put_u8(if self.offered { b'o' } else { b'k' });
        let numbers = [u64::from(self.db), self.ttl_ms.0, self.keep_alive_ms.0, self.outlive_ms.0];
        for number in numbers {
            word.put_slice(Digits::new().of(number));
            word.put_u8(b':');
        }
        word.put_slice(&self.lock);
        word.freeze()
    }

    /// Reads it; `None` for what is no entry.
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
        Some(IndexEntry {
            offered,
            db: u32::try_from(next()?).ok()?,
            ttl_ms: TtlMs(next()?),
            keep_alive_ms: KeepAliveMs(next()?),
            outlive_ms: OutliveMs(next()?),
            lock: word.slice(at..),
        })
    }
}

/// Writes these entries, each overdue after so many ms, removes the others, and asks for at most
/// `most` of those that are overdue, after passing over `skip` of them. Is run in database 0.
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

/// What the index says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Indexed {
    /// In how long the next entry is overdue.
    pub next: Option<Duration>,
    /// Entries that are overdue, and for how long.
    pub overdue: Vec<(Bytes, Duration)>,
}

/// Reads the answer of [`index`]; `None` for one that is none of the script's own.
pub fn indexed(answer: &Value) -> Option<Indexed> {
    let (next, overdue) = answer.as_items()?.split_first()?;
    let ms = |value: &Value| -> Option<Duration> {
        let digits = std::str::from_utf8(value.as_bytes()?).ok()?.to_owned();
        Some(Duration::from_millis(digits.parse().ok()?))
    };
    let overdue = overdue.chunks_exact(2).map(|pair| Some((pair[0].as_bytes()?.clone(), ms(&pair[1])?)));
    Some(Indexed { next: ms(next), overdue: overdue.collect::<Option<_>>()? })
}

/// Looks at the leases of these entries, which are of one database.
pub fn orphans<'a>(entries: impl Iterator<Item = &'a IndexEntry> + Clone, companion_prefix: &[u8]) -> Plan {
    let locks: Vec<&[u8]> = entries.clone().map(|entry| &entry.lock[..]).collect();
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
    /// It is renewed; it is to be looked at again after this time.
    Renewed(Duration),
    /// It is not renewed, and this is left of its TTL.
    Left(RecordedLease, Duration),
}

/// A lease as its record tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedLease {
    /// Its name.
    pub grant: Grant,
    /// The connection that was granted it.
    pub session: SessionId,
    /// Who was granted it.
    pub identity: Identity,
    /// Whether that identity can be told from others even without its process.
    pub distinctive: bool,
    /// Its fencing token.
    pub fence: FencingToken,
    /// For how long it is held.
    pub held: Duration,
}

/// Reads the answer of [`orphans`], one entry a lease; `None` for one that is none of the script's own.
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
    /// Reads what a script tells of it: a part of its record, and for how many ms it is held. Returns what
    /// stands behind that.
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
                db: 15,
                ttl_ms: TtlMs(30_000),
                keep_alive_ms: KeepAliveMs(u64::MAX),
                outlive_ms: OutliveMs(600_000),
                lock: Bytes::copy_from_slice(lock.as_bytes()),
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
