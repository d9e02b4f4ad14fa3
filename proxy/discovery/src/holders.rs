//! Which connection holds which keys that were taken like locks, derived from sightings. Bounded: for each connection
//! only the last few keys of each shape are kept. So a program that takes a marker for each item of its work still
//! counts as holding the lock that it works under.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use smallvec::SmallVec;

use crate::key_hash::KeyHash;
use crate::shape::Shape;
use crate::sighting::{Compares, Did, Sighting};

/// Held keys of all connections. Beyond this limit the oldest are forgotten.
const MAX_HELD: usize = 32_768;
/// Held keys of one connection.
const MAX_OWN: usize = 16;
/// Held keys of one shape and one connection.
const MAX_ALIKE: usize = 4;
/// A key longer than this is no lock, bytes.
const MAX_KEY: usize = 256;

/// A key that a connection holds.
#[derive(Debug)]
struct Own {
    hash: KeyHash,
    db: u32,
    key: Bytes,
    shape: Shape,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    session: u64,
    /// When its TTL ends, Unix time, ms; `None` for none.
    until_ms: Option<u64>,
    /// Unique number of this entry. It shows whether an entry of the queue belongs to it.
    number: u64,
}

impl Held {
    fn is_over(&self, now_ms: u64) -> bool {
        self.until_ms.is_some_and(|until| until <= now_ms)
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    held: HashMap<KeyHash, Held>,
    own: HashMap<u64, SmallVec<[Own; 1]>>,
    /// The held keys in the order of their grants.
    order: VecDeque<(KeyHash, u64)>,
    taken: u64,
}

impl Holders {
    /// Records one sighting.
    pub(crate) fn see(&mut self, sighting: &Sighting) {
        let hash = KeyHash::of(sighting.db, &sighting.key);
        let now_ms = sighting.at_ms;
        let until = |ttl_ms: Option<u64>| ttl_ms.map(|ms| now_ms.saturating_add(ms));
        let held = self.held.get_mut(&hash).filter(|held| !held.is_over(now_ms));
        // If the reply was not seen, the result follows from the earlier sightings.
        let is_free = held.is_none();
        let is_own = held.as_ref().is_some_and(|held| held.session == sighting.session);
        match sighting.did {
            Did::Acquire { ttl_ms, granted, .. } if granted.unwrap_or(is_free) => {
                self.take(sighting, hash, until(ttl_ms))
            }
            Did::Counted(to) if to.map_or(is_free, |to| to == 1) => self.take(sighting, hash, None),
            Did::Store { ttl_ms, .. } | Did::Extend { ttl_ms, .. } if is_own => {
                if let Some(held) = held {
                    held.until_ms = until(ttl_ms);
                }
            }
            Did::Extend { ttl_ms, done, .. } => {
                if let (Some(held), true) = (held, done.unwrap_or(true)) {
                    held.until_ms = until(ttl_ms);
                }
            }
            // Another client overwrote the value: the key is that client's now.
            Did::Store { ttl_ms, .. } if !is_free => self.take(sighting, hash, until(ttl_ms)),
            Did::Release { compares, done }
                if done.unwrap_or(is_own || matches!(compares, Compares::No | Compares::Before)) =>
            {
                self.forget(hash);
            }
            Did::Acquire { .. } | Did::Counted(_) | Did::Store { .. } | Did::Release { .. } | Did::Read => {}
            Did::Unclear => self.forget(hash),
        }
    }

    /// The keys in this database that a connection holds.
    pub(crate) fn of(&self, session: u64, db: u32, now_ms: u64) -> impl Iterator<Item = &Bytes> {
        let own = self.own.get(&session).into_iter().flatten();
        let is_held = move |own: &&Own| {
            let held = self.held.get(&own.hash);
            own.db == db && held.is_some_and(|held| !held.is_over(now_ms))
        };
        own.filter(is_held).map(|own| &own.key)
    }

    /// Forgets what has expired.
    pub(crate) fn expire(&mut self, now_ms: u64) {
        let over = self.held.iter().filter(|(_, held)| held.is_over(now_ms));
        let over: Vec<KeyHash> = over.map(|(hash, _)| *hash).collect();
        for hash in over {
            self.forget(hash);
        }
    }

    fn take(&mut self, sighting: &Sighting, hash: KeyHash, until_ms: Option<u64>) {
        self.forget(hash);
        if sighting.key.len() > MAX_KEY {
            return;
        }
        let shape = Shape::of(&sighting.key);
        let own = self.own.entry(sighting.session).or_default();
        let alike = own.iter().filter(|one| one.shape == shape).count();
        let first = own.iter().position(|one| one.shape == shape);
        let given_up = match first {
            Some(first) if alike >= MAX_ALIKE => Some(own.remove(first)),
            _ if own.len() >= MAX_OWN => Some(own.remove(0)),
            _ => None,
        };
        own.push(Own { hash, db: sighting.db, key: Bytes::copy_from_slice(&sighting.key), shape });
        if let Some(given_up) = given_up {
            self.held.remove(&given_up.hash);
        }
        self.taken += 1;
        let held = Held { session: sighting.session, until_ms, number: self.taken };
        self.held.insert(hash, held);
        self.order.push_back((hash, held.number));
        while self.held.len() > MAX_HELD || self.order.len() > 2 * MAX_HELD {
            let Some((hash, number)) = self.order.pop_front() else {
                return;
            };
            if self.held.get(&hash).is_some_and(|held| held.number == number) {
                self.forget(hash);
            }
        }
    }

    fn forget(&mut self, hash: KeyHash) {
        let Some(held) = self.held.remove(&hash) else {
            return;
        };
        if let Some(own) = self.own.get_mut(&held.session) {
            own.retain(|one| one.hash != hash);
            if own.is_empty() {
                self.own.remove(&held.session);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::sighting::{Compares, Spelling, Stored};

    fn saw(holders: &mut Holders, at_ms: u64, session: u64, key: &str, did: Did) {
        holders.see(&Sighting {
            at_ms,
            db: 0,
            key: Bytes::copy_from_slice(key.as_bytes()),
            session,
            application: Arc::from("application"),
            process: None,
            did,
        });
    }

    fn take(ttl_ms: Option<u64>, granted: Option<bool>) -> Did {
        Did::Acquire { spelling: Spelling::SetNx, value: Stored::of(b"1"), ttl_ms, granted }
    }

    fn held(holders: &Holders, session: u64, now_ms: u64) -> String {
        let all: Vec<&str> =
            holders.of(session, 0, now_ms).map(|key| std::str::from_utf8(key).expect("it is text")).collect();
        all.join(" ")
    }

    #[test]
    fn a_lock_is_held_from_its_grant_to_its_release_or_its_end() {
        let mut holders = Holders::default();
        let release =
            |compares| Did::Release { compares: if compares { Compares::Unseen } else { Compares::No }, done: None };
        saw(&mut holders, 0, 1, "a", take(Some(100), None));
        saw(&mut holders, 1, 2, "a", take(Some(100), None));
        assert_eq!((held(&holders, 1, 50), held(&holders, 2, 50)), ("a".into(), "".into()));
        assert_eq!(held(&holders, 1, 100), "");
        saw(&mut holders, 60, 1, "a", Did::Extend { ttl_ms: Some(100), done: None });
        assert_eq!(held(&holders, 1, 159), "a");
        saw(&mut holders, 70, 2, "a", release(true));
        assert_eq!(held(&holders, 1, 70), "a", "it compares with another value");
        saw(&mut holders, 71, 1, "a", release(true));
        assert_eq!(held(&holders, 1, 71), "");
        assert!(holders.held.is_empty() && holders.own.is_empty());

        saw(&mut holders, 200, 1, "a", take(Some(100), Some(true)));
        saw(&mut holders, 300, 2, "a", take(None, None));
        assert_eq!((held(&holders, 1, 301), held(&holders, 2, 301)), ("".into(), "a".into()));
        assert_eq!(holders.of(2, 1, 301).count(), 0, "it is another database");
        saw(&mut holders, 302, 3, "a", release(false));
        assert_eq!(held(&holders, 2, 303), "");
    }

    #[test]
    fn markers_do_not_push_out_the_lock_and_there_is_a_bound() {
        let mut holders = Holders::default();
        saw(&mut holders, 0, 1, "import:lock", take(None, Some(true)));
        for number in 10..1_000 {
            saw(&mut holders, 1, 1, &format!("done:{number}"), take(Some(50), Some(true)));
        }
        assert_eq!(held(&holders, 1, 2), "import:lock done:996 done:997 done:998 done:999");
        holders.expire(51);
        assert_eq!((holders.held.len(), holders.own.len()), (1, 1));
        for number in 0..100 {
            let name = format!("{}:x", char::from(b'a' + number % 26).to_string().repeat(4 + usize::from(number)));
            saw(&mut holders, 60, 1, &name, take(None, Some(true)));
        }
        assert_eq!((holders.held.len(), holders.own[&1].len()), (MAX_OWN, MAX_OWN));
        for session in 2..100_000 {
            saw(&mut holders, 60, session, &format!("lock:{session}"), take(None, Some(true)));
        }
        assert_eq!((holders.held.len(), holders.own.len()), (MAX_HELD, MAX_HELD));
        assert!(holders.order.len() <= 2 * MAX_HELD);
        assert_eq!(held(&holders, 99_999, 61), "lock:99999");
    }
}
