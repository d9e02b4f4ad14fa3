//! The values with which clients were granted locks lately, and the clients: a value that two clients were granted
//! cannot tell one from the other. It keeps keyed hashes, never a value; it finds such values, and refuses nothing.
//! What follows from that is described in `docs/ownership.md`.

use std::array;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lockwarden_lock::db_key::Hashed;
use lockwarden_lock::token::{Identity, looks_like_deadline};

/// A value is shared if two clients were granted it within this time. The scripts use the same time.
const WITHIN: Duration = Duration::from_secs(3600);
/// Values that are remembered; beyond this limit those that were not met for the longest time are forgotten. Each
/// takes less than 100 bytes.
const MAX_VALUES: usize = 32_768;
/// So that sessions rarely wait for each other.
const SHARDS: usize = 16;
/// Each shard has two generations, so that the older one can be dropped as a whole.
const GENERATION: usize = MAX_VALUES / SHARDS / 2;

/// See the module.
pub(crate) struct OwnerTokens {
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
}

/// Identifies a value without revealing it: a keyed hash, long enough that no two remembered values are equal by
/// chance.
type Name = u64;
type Uses = HashMap<Name, Use, BuildHasherDefault<Hashed>>;

#[derive(Default)]
struct Shard {
    young: Uses,
    old: Uses,
}

#[derive(Clone, Copy)]
struct Use {
    /// The client that was granted it last.
    last: Identity,
    /// When.
    at: Instant,
    /// When another client was granted it last.
    other: Option<Instant>,
}

impl OwnerTokens {
    /// Nothing was granted yet.
    pub(crate) fn new() -> OwnerTokens {
        OwnerTokens { hasher: RandomState::new(), shards: array::from_fn(|_| Mutex::default()) }
    }

    /// Whether another client was granted a lock of this namespace with this value.
    pub(crate) fn is_shared(&self, namespace: &str, value: &[u8], who: Identity, now: Instant) -> bool {
        let Some(name) = self.name(namespace, value) else {
            return false;
        };
        let mut shard = self.shard(name);
        shard.find(name).is_some_and(|used| used.is_shared(who, now))
    }

    /// A client was granted a lock with this value. `by_another`: according to Redis's record another client was
    /// granted it before, through any proxy. Returns whether the value is shared.
    pub(crate) fn granted(&self, namespace: &str, value: &[u8], who: Identity, by_another: bool, now: Instant) -> bool {
        let Some(name) = self.name(namespace, value) else {
            return false;
        };
        let mut shard = self.shard(name);
        let mut used = match shard.find(name) {
            Some(used) => used.granted(who, now),
            None => Use { last: who, at: now, other: None },
        };
        if by_another {
            used.other = Some(now);
        }
        shard.put(name, used);
        used.is_shared(who, now)
    }

    /// A deadline names a time, not a client: clients whose clocks agree write the same value.
    fn name(&self, namespace: &str, value: &[u8]) -> Option<Name> {
        let is_token = !looks_like_deadline(value);
        is_token.then(|| self.hasher.hash_one((namespace, value)))
    }

    fn shard(&self, name: Name) -> MutexGuard<'_, Shard> {
        // From other bits than those that the shard's own maps use.
        let place = (name >> 32) as usize % SHARDS;
        self.shards[place].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shard {
    /// What is known of a value. A value that is looked up is kept.
    fn find(&mut self, name: Name) -> Option<Use> {
        if let Some(used) = self.young.get(&name) {
            return Some(*used);
        }
        let used = self.old.remove(&name)?;
        self.put(name, used);
        Some(used)
    }

    fn put(&mut self, name: Name, used: Use) {
        if self.young.len() >= GENERATION && !self.young.contains_key(&name) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(name, used);
    }
}

impl Use {
    fn granted(self, who: Identity, now: Instant) -> Use {
        if !self.last.may_be(who) {
            return Use { last: who, at: now, other: Some(self.at) };
        }
        Use { last: self.last.or_known(who), at: now, ..self }
    }

    fn is_shared(self, who: Identity, now: Instant) -> bool {
        let lately = |at: Instant| now.saturating_duration_since(at) < WITHIN;
        self.other.is_some_and(lately) || (lately(self.at) && !self.last.may_be(who))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwarden_lock::token::Process;

    fn client(name: &str) -> Identity {
        Identity::of(&[name.as_bytes()])
    }

    #[test]
    fn a_value_is_shared_once_two_clients_were_granted_it_and_for_an_hour() {
        let (tokens, start) = (OwnerTokens::new(), Instant::now());
        let (alice, bob) = (client("alice"), client("bob"));
        let at = |minutes: u64| start + Duration::from_secs(minutes * 60);
        let granted = |who, now| tokens.granted("orders", b"1", who, false, now);
        let shared = |who, now| tokens.is_shared("orders", b"1", who, now);

        assert!(!granted(alice, at(0)));
        assert!(!granted(alice, at(1)));
        assert!(!shared(alice, at(2)));
        assert!(shared(bob, at(2)), "alice has it");
        assert!(granted(bob, at(2)));
        assert!(shared(alice, at(2)) && shared(bob, at(2)));

        assert!(!granted(bob, at(61)), "alice was granted it an hour ago");
        assert!(shared(alice, at(62)));
        assert!(!shared(alice, at(122)), "and bob, too");
    }

    #[test]
    fn values_of_two_namespaces_do_not_meet_and_deadlines_are_nobodys() {
        let (tokens, now) = (OwnerTokens::new(), Instant::now());
        let (alice, bob) = (client("alice"), client("bob"));
        let granted = |namespace, value: &[u8], who| {
            let shared = tokens.granted(namespace, value, who, false, now);
            assert_eq!(shared, tokens.is_shared(namespace, value, who, now));
            shared
        };
        assert!(!granted("orders", b"1", alice));
        assert!(!granted("stock", b"1", bob));
        assert!(!granted("stock", b"1795261029", alice));
        assert!(!granted("stock", b"1795261029", bob));
        assert!(granted("orders", b"1", bob));
    }

    #[test]
    fn a_client_whose_process_is_not_known_yet_is_not_another() {
        let (tokens, now) = (OwnerTokens::new(), Instant::now());
        let (one, two) = (Process::of(&[b"1"]), Process::of(&[b"2"]));
        let granted = |process| {
            let who = client("worker").with_process(process);
            tokens.granted("orders", b"1", who, false, now)
        };
        assert!(!granted(Process::Pending));
        assert!(!granted(one));
        assert!(!granted(Process::Pending));
        assert!(!granted(one));
        assert!(granted(two));
    }

    #[test]
    fn what_redis_says_of_another_proxys_client_counts() {
        let (tokens, now) = (OwnerTokens::new(), Instant::now());
        assert!(tokens.granted("orders", b"1", client("alice"), true, now));
        assert!(tokens.is_shared("orders", b"1", client("alice"), now));
    }

    #[test]
    fn values_that_nobody_shares_push_each_other_out_and_a_constant_one_stays() {
        let (tokens, now) = (OwnerTokens::new(), Instant::now());
        let (alice, bob) = (client("alice"), client("bob"));
        for unique in 0..4 * MAX_VALUES {
            let value = unique.to_string();
            tokens.granted("orders", value.as_bytes(), alice, false, now);
            if unique % 1_000 == 0 {
                assert!(!tokens.granted("orders", b"constant", bob, false, now));
            }
        }
        assert!(tokens.granted("orders", b"constant", alice, false, now));
        let places: usize = tokens
            .shards
            .iter()
            .map(|shard| shard.lock().unwrap())
            .map(|shard| shard.young.len() + shard.old.len())
            .sum();
        assert!(places <= MAX_VALUES, "{places}");
        assert!(places >= MAX_VALUES / 2, "{places}");
    }
}
