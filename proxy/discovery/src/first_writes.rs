//! What connections wrote before they took their first lock. A guard of such data would refuse these writes: a program
//! that starts with them would be refused, and would never get as far as taking the lock.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use smallvec::SmallVec;

use crate::patterns::PatternId;

/// Remembered keys of one connection.
const MAX_KEYS: usize = 16;
/// Writes of one connection that are examined.
const MAX_LOOKED_AT: u8 = 64;
/// Connections that wrote before they took a lock. Beyond this limit the oldest are forgotten.
const MAX_BEGUN: usize = 1_024;
/// Writes under a lock for which the first writes are compared with that lock's data.
const LOOKS: u8 = 64;

/// The first writes of one connection.
#[derive(Debug, Default)]
pub struct FirstWrites {
    keys: Vec<(u32, Bytes)>,
    looked_at: u8,
    is_over: bool,
}

impl FirstWrites {
    /// Whether further writes are wanted.
    #[inline]
    pub fn wants_more(&self) -> bool {
        !self.is_over && self.looked_at < MAX_LOOKED_AT
    }

    /// The connection wrote this key.
    pub fn note(&mut self, db: u32, key: &[u8]) {
        self.looked_at = self.looked_at.saturating_add(1);
        let is_known = self.keys.iter().any(|known| (known.0, &*known.1) == (db, key));
        if !is_known && self.keys.len() < MAX_KEYS {
            self.keys.push((db, Bytes::copy_from_slice(key)));
        }
    }

    /// The connection tries to take a lock: from now on its writes may be under that lock.
    pub fn end(&mut self) {
        self.is_over = true;
    }

    /// The connection has taken a lock in this database. Returns the keys that it had written there before; only once.
    pub fn take(&mut self, db: u32) -> Vec<Bytes> {
        self.end();
        let keys = std::mem::take(&mut self.keys);
        let here = keys.into_iter().filter(|(of, _)| *of == db);
        here.map(|(_, key)| key).collect()
    }
}

/// A connection that has taken its first lock, and what it wrote before.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) keys: Vec<Bytes>,
    looks: u8,
    /// Pairs of data and lock that were already counted.
    pub(crate) said: SmallVec<[(PatternId, PatternId); 2]>,
}

/// Those connections, by their number.
#[derive(Debug, Default)]
pub(crate) struct Beginnings {
    all: HashMap<u64, Begun>,
    order: VecDeque<u64>,
}

impl Beginnings {
    pub(crate) fn add(&mut self, session: u64, keys: Vec<Bytes>) {
        if self.order.len() >= MAX_BEGUN
            && let Some(oldest) = self.order.pop_front()
        {
            self.all.remove(&oldest);
        }
        self.order.push_back(session);
        let begun = Begun { keys, looks: LOOKS, said: SmallVec::new() };
        self.all.insert(session, begun);
    }

    /// What a connection that writes under a lock wrote before its first lock, for its first [`LOOKS`] such writes.
    pub(crate) fn look(&mut self, session: u64) -> Option<&mut Begun> {
        let begun = self.all.get_mut(&session)?;
        begun.looks = begun.looks.checked_sub(1)?;
        Some(begun)
    }
}
