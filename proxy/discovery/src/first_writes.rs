//! What connections wrote before they took their first lock. A guard of such data would refuse them that: a program that
//! begins so, and is refused, never comes to take the lock.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use smallvec::SmallVec;

use crate::patterns::PatternId;

/// Keys of one connection.
const MAX_KEYS: usize = 16;
/// Writes of one connection that are looked at.
const MAX_LOOKED_AT: u8 = 64;
/// Connections that wrote before they took a lock; beyond this limit the oldest are forgotten.
const MAX_BEGUN: usize = 1_024;
/// Writes under a lock at which it is looked whether the first ones were of that lock's data, too.
const LOOKS: u8 = 64;

/// Of one connection, from its beginning.
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

    /// It wrote this key.
    pub fn note(&mut self, db: u32, key: &[u8]) {
        self.looked_at = self.looked_at.saturating_add(1);
        let is_known = self.keys.iter().any(|known| (known.0, &*known.1) == (db, key));
        if !is_known && self.keys.len() < MAX_KEYS {
            self.keys.push((db, Bytes::copy_from_slice(key)));
        }
    }

    /// It tries to take a lock: what it writes from now on may be under it.
    pub fn end(&mut self) {
        self.is_over = true;
    }

    /// It has taken a lock of this database. Returns what it had written there before; once.
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
    /// Data and locks of which it was said.
    pub(crate) said: SmallVec<[(PatternId, PatternId); 2]>,
}

/// Those connections.
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

    /// What a connection that writes under a lock wrote before its first, as long as that is looked at.
    pub(crate) fn look(&mut self, session: u64) -> Option<&mut Begun> {
        let begun = self.all.get_mut(&session)?;
        begun.looks = begun.looks.checked_sub(1)?;
        Some(begun)
    }
}
