//! Collects sightings: which patterns of keys exist, which keys are held now, and how leases end. It does no I/O and
//! reads no clock.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use lockwarden_lock::script_facts::ScriptSha;

use crate::guards::GuardCandidate;
use crate::holders::Holders;
use crate::key_hash::KeyHash;
use crate::patterns::{PatternId, Patterns};
use crate::sighting::{Compares, Did, Sighting, Spelling, Stored};
use crate::unknown_scripts::{UnknownScript, UnknownScripts};
use crate::usage::Usage;
use crate::verdict::{Verdict, is_lock_word};
use crate::writes::{Writes, Wrote};

/// Held keys that are tracked. Beyond this limit the oldest are forgotten.
const MAX_LEASES: usize = 32_768;
/// A lease counts as expired only this many milliseconds after its end: clocks differ, and its release may be under
/// way.
const GRACE_MS: u64 = 500;

/// Connections remembered per lease that are known not to hold it.
const MAX_STRANGERS: usize = 4;

/// Sightings of different connections arrive in the order of their replies, give or take this many milliseconds.
const OUT_OF_ORDER_MS: u64 = 50;

/// A lease whose release was not seen before the next grant.
#[derive(Clone, Copy, Debug)]
struct Displaced {
    session: u64,
    since_ms: u64,
    had_ttl: bool,
}

/// Whether the value of a held key was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looked {
    No,
    /// Read by one connection only, which may want to delete the key if the value is its own.
    By(u64),
    Yes,
}

/// A key that was taken.
#[derive(Debug)]
struct Lease {
    displaced: Option<Displaced>,
    /// The digest of its value, where known.
    value: Option<u64>,
    /// See [`Stored::names_holder`].
    names_holder: bool,
    looked: Looked,
    pattern: PatternId,
    session: u64,
    application: Arc<str>,
    process: Option<u64>,
    since_ms: u64,
    /// When its TTL ends, Unix time, ms; `None` for none.
    until_ms: Option<u64>,
    /// Connections whose earlier lease of the key expired, or that were refused the key during this lease: they release
    /// nothing.
    strangers: [Option<u64>; MAX_STRANGERS],
    /// Unique number of this lease. It shows whether an entry of the queue belongs to it.
    number: u64,
}

impl Lease {
    fn is_over(&self, now_ms: u64) -> bool {
        self.until_ms.is_some_and(|until| until <= now_ms)
    }

    /// A connection reads the value. A connection that was refused the key only checks whether the holder is late.
    fn read(&mut self, session: u64) {
        let all_known = self.strangers.contains(&None);
        let was_refused = self.strangers.contains(&Some(session)) || !all_known;
        if was_refused || (session == self.session && self.names_holder) {
            return;
        }
        self.looked = match (self.looked, self.names_holder) {
            (Looked::No, true) => Looked::By(session),
            (Looked::By(before), true) if before == session => Looked::By(session),
            _ => Looked::Yes,
        };
    }

    /// Whether a connection other than the one that ends the lease read the value.
    fn was_looked_up(&self, ended_by: Option<u64>) -> bool {
        match self.looked {
            Looked::No => false,
            Looked::By(session) => ended_by != Some(session),
            Looked::Yes => true,
        }
    }

    /// A connection was refused because the key is held. Only the last [`MAX_STRANGERS`] such connections are
    /// remembered.
    fn refused(&mut self, session: u64) {
        if session != self.session && !self.strangers.contains(&Some(session)) {
            self.strangers.rotate_right(1);
            self.strangers[0] = Some(session);
        }
    }
}

/// What is reported about one pattern.
pub struct Pattern<'a> {
    /// A Redis glob.
    pub glob: Vec<u8>,
    /// Whether the glob contains a word that distinguishes its keys from others.
    pub is_named: bool,
    /// The words of its keys, lower case.
    pub words: Vec<String>,
    /// What was seen of its keys.
    pub usage: &'a Usage,
    /// Keys that are held now and have no TTL.
    pub held_without_ttl: u64,
    /// What the keys are, as far as known.
    pub verdict: Verdict,
}

/// See the module.
#[derive(Default)]
pub struct Collector {
    patterns: Patterns,
    usage: HashMap<PatternId, Usage>,
    leases: HashMap<KeyHash, Lease>,
    /// The leases in the order of their grants.
    order: VecDeque<(KeyHash, u64)>,
    taken: u64,
    beyond: u64,
    holders: Holders,
    writes: Writes,
    unknown: UnknownScripts,
    /// The latest time passed in, Unix time, ms.
    now_ms: u64,
}

impl Collector {
    /// Records one sighting.
    pub fn see(&mut self, sighting: &Sighting) {
        self.holders.see(sighting);
        let hash = KeyHash::of(sighting.db, &sighting.key);
        match sighting.did {
            Did::Acquire { spelling, value, ttl_ms, granted } => {
                self.acquire(sighting, hash, spelling, Some(&value), ttl_ms, granted)
            }
            Did::Counted(to) => {
                let granted = to.map(|to| to == 1);
                self.acquire(sighting, hash, Spelling::Incr, None, None, granted);
                if let (Some(to), Some(usage)) = (to, self.usage_of(sighting)) {
                    usage.counted_to = usage.counted_to.max(to);
                }
            }
            Did::Store { value, ttl_ms, takes_over } => self.store(sighting, hash, &value, ttl_ms, takes_over),
            Did::Extend { ttl_ms, done } => self.extend(sighting, hash, ttl_ms, done),
            Did::Release { compares, done } => self.release(sighting, hash, compares, done),
            // The lease may be over by now, and how it ended is unknown.
            Did::Unclear => {
                self.leases.remove(&hash);
                if let Some(usage) = self.usage_of(sighting) {
                    usage.unclear += 1;
                }
            }
            Did::Read => {
                let held = self.leases.get_mut(&hash);
                let held = held.filter(|lease| !lease.is_over(sighting.at_ms));
                let Some(lease) = held else {
                    return;
                };
                lease.read(sighting.session);
                let is_other = lease.session != sighting.session;
                if let (true, Some(usage)) = (is_other, self.usage_of(sighting)) {
                    usage.read += 1;
                }
            }
        }
    }

    /// Records a sighting of a lock that belongs to a namespace: only its holder is remembered.
    pub fn see_governed(&mut self, sighting: &Sighting) {
        self.holders.see(sighting);
    }

    /// Whether a connection holds a key that was taken like a lock.
    pub fn holds(&self, session: u64, db: u32, key: &[u8], now_ms: u64) -> bool {
        let mut held = self.holders.of(session, db, now_ms);
        held.any(|one| one == key)
    }

    /// Whether a key that was taken like a lock is known to be held.
    pub fn is_held(&self, db: u32, key: &[u8], now_ms: u64) -> bool {
        let lease = self.leases.get(&KeyHash::of(db, key));
        lease.is_some_and(|lease| !lease.is_over(now_ms))
    }

    /// Records a write of data.
    pub fn wrote(&mut self, wrote: &Wrote) {
        let mut held: Vec<Bytes> = wrote.under.to_vec();
        let own = self.holders.of(wrote.session, wrote.db, wrote.at_ms);
        held.extend(own.cloned());
        // The key may be a lock itself, being released.
        held.retain(|lock| *lock != wrote.key);
        self.writes.see(wrote, &held);
    }

    /// A connection has taken its first lock. Before that, it had written these keys.
    pub fn began(&mut self, session: u64, keys: Vec<Bytes>) {
        if !keys.is_empty() {
            self.writes.began(session, keys);
        }
    }

    /// A script whose text is unknown was called with this key as its first.
    pub fn called_unknown(&mut self, sha: ScriptSha, key: &Bytes) {
        match self.pattern_of(key) {
            Some(pattern) => self.unknown.called(pattern, sha, key),
            None => self.beyond += 1,
        }
    }

    /// Calls of such scripts by pattern, the most called first. `is_known` says which scripts have become known since.
    pub fn unknown_scripts(&self, is_known: &dyn Fn(&ScriptSha) -> bool) -> Vec<UnknownScript> {
        self.unknown.by_pattern(&self.patterns, is_known)
    }

    /// Data that is written under locks.
    pub fn guards(&self) -> Vec<GuardCandidate> {
        self.writes.candidates()
    }

    /// Ends the leases whose TTL has passed.
    pub fn expire(&mut self, now_ms: u64) {
        self.holders.expire(now_ms);
        self.now_ms = self.now_ms.max(now_ms);
        let is_over = |lease: &Lease| lease.until_ms.is_some_and(|until| until + GRACE_MS < now_ms);
        let over: Vec<KeyHash> =
            self.leases.iter().filter(|(_, lease)| is_over(lease)).map(|(hash, _)| *hash).collect();
        for hash in over {
            self.run_out(hash);
        }
    }

    /// The keys that are tracked.
    pub fn followed(&self) -> impl Iterator<Item = KeyHash> + '_ {
        self.leases.keys().copied()
    }

    /// Sightings of keys whose pattern found no room.
    pub fn beyond(&self) -> u64 {
        self.beyond + self.unknown.beyond()
    }

    /// Every pattern with at least one try to take a key, the busiest first.
    pub fn patterns(&self) -> Vec<Pattern<'_>> {
        let mut held: HashMap<PatternId, u64> = HashMap::new();
        // Younger leases are left out: their EXPIRE may be under way.
        let for_long = |lease: &&Lease| lease.since_ms + GRACE_MS < self.now_ms;
        let all = self.leases.values().filter(for_long);
        for lease in all.filter(|lease| lease.until_ms.is_none()) {
            *held.entry(self.patterns.current(lease.pattern)).or_default() += 1;
        }
        let mut all: Vec<Pattern<'_>> = self
            .usage
            .iter()
            .map(|(id, usage)| {
                let shape = self.patterns.shape(*id);
                let words: Vec<String> = shape.names().collect();
                (id, usage, shape, words)
            })
            .filter(|(_, usage, _, words)| {
                let is_named = words.iter().any(|word| is_lock_word(word));
                usage.tried() + usage.unwitnessed > 0 || (usage.unclear > 0 && is_named)
            })
            .map(|(id, usage, shape, words)| {
                let held_without_ttl = held.get(id).copied().unwrap_or(0);
                Pattern {
                    glob: shape.glob(),
                    is_named: shape.is_named(),
                    verdict: Verdict::of(usage, &words),
                    words,
                    usage,
                    held_without_ttl,
                }
            })
            .collect();
        all.sort_by(|a, b| {
            let busiest = b.usage.tried().cmp(&a.usage.tried());
            busiest.then_with(|| a.glob.cmp(&b.glob))
        });
        all
    }

    fn acquire(
        &mut self,
        sighting: &Sighting,
        hash: KeyHash,
        spelling: Spelling,
        value: Option<&Stored>,
        ttl_ms: Option<u64>,
        granted: Option<bool>,
    ) {
        let now_ms = sighting.at_ms;
        let is_over = |lease: &Lease| lease.is_over(now_ms);
        // If the reply was not seen, the result follows from the earlier sightings.
        let held = self.leases.get(&hash);
        let granted = granted.unwrap_or_else(|| held.is_none_or(is_over));
        let mut strangers = [None; MAX_STRANGERS];
        let displaced = held.filter(|lease| granted && !is_over(lease));
        let displaced = displaced.map(|lease| Displaced {
            session: lease.session,
            since_ms: lease.since_ms,
            had_ttl: lease.until_ms.is_some(),
        });
        if granted && held.is_some_and(is_over) {
            strangers[0] = held.map(|lease| lease.session);
            self.run_out(hash);
        }
        if !granted && let Some(lease) = self.leases.get_mut(&hash) {
            lease.refused(sighting.session);
        }
        let Some((pattern, usage)) = self.usage_or_new(sighting) else {
            return;
        };
        *usage.tries.entry(spelling).or_default() += 1;
        usage.by(&sighting.application).tries += 1;
        usage.taker(sighting.session);
        if !granted {
            usage.contended += 1;
            return;
        }
        usage.granted += 1;
        usage.by(&sighting.application).granted += 1;
        usage.key(hash.get());
        if let Some(value) = value {
            usage.stored(value);
        }
        if let Some(ms) = ttl_ms {
            usage.ttl(ms);
        }
        self.taken += 1;
        let lease = Lease {
            displaced,
            value: value.map(|value| value.digest),
            names_holder: value.is_some_and(|value| value.names_holder),
            looked: Looked::No,
            pattern,
            session: sighting.session,
            application: sighting.application.clone(),
            process: sighting.process,
            since_ms: now_ms,
            until_ms: ttl_ms.map(|ms| now_ms.saturating_add(ms)),
            strangers,
            number: self.taken,
        };
        self.order.push_back((hash, lease.number));
        self.leases.insert(hash, lease);
        self.forget_the_oldest();
    }

    fn store(&mut self, sighting: &Sighting, hash: KeyHash, value: &Stored, ttl_ms: Option<u64>, takes_over: bool) {
        let Some(lease) = self.leases.get_mut(&hash) else {
            return;
        };
        let is_own = lease.session == sighting.session;
        lease.until_ms = ttl_ms.map(|ms| sighting.at_ms.saturating_add(ms));
        lease.value = Some(value.digest);
        lease.names_holder = value.names_holder;
        if !is_own {
            lease.session = sighting.session;
            lease.application = sighting.application.clone();
            lease.process = sighting.process;
            lease.since_ms = sighting.at_ms;
        }
        let Some(usage) = self.usage_of(sighting) else {
            return;
        };
        usage.stored(value);
        if let Some(ms) = ttl_ms {
            usage.ttl(ms);
        }
        match (is_own, takes_over) {
            (true, _) => usage.extended += 1,
            (false, true) => usage.taken_over += 1,
            (false, false) => usage.overwritten += 1,
        }
    }

    fn extend(&mut self, sighting: &Sighting, hash: KeyHash, ttl_ms: Option<u64>, done: Option<bool>) {
        if done == Some(false) {
            return;
        }
        let Some(lease) = self.leases.get_mut(&hash) else {
            return;
        };
        let first = lease.until_ms.is_none() && ttl_ms.is_some();
        lease.until_ms = ttl_ms.map(|ms| sighting.at_ms.saturating_add(ms));
        if let Some(usage) = self.usage_of(sighting) {
            usage.ttl_later += u64::from(first);
            usage.extended += u64::from(!first);
            if let Some(ms) = ttl_ms {
                usage.ttl(ms);
            }
        }
    }

    fn release(&mut self, sighting: &Sighting, hash: KeyHash, compares: Compares, done: Option<bool>) {
        let held = self.leases.get(&hash);
        let held = held.filter(|lease| !lease.is_over(sighting.at_ms));
        // If the reply was not seen, the result follows from the earlier sightings.
        let would = held.is_some_and(|lease| match (compares, lease.value) {
            (Compares::No | Compares::Before, _) => true,
            (Compares::With(value), Some(stored)) => value == stored,
            (Compares::With(_) | Compares::Unseen, _) => lease.session == sighting.session,
        });
        let compares = compares != Compares::No;
        if !done.unwrap_or(would) {
            if let Some(usage) = self.usage_of(sighting) {
                usage.late += 1;
            }
            return;
        }
        if let Some(late) = self.release_of_displaced(sighting, hash) {
            if let Some(usage) = self.usage_of(sighting) {
                usage.by(&sighting.application).deleted += 1;
                usage.released += 1;
                usage.compared += u64::from(compares);
                usage.without_ttl += u64::from(!late.had_ttl);
                usage.held(sighting.at_ms.saturating_sub(late.since_ms));
            }
            return;
        }
        let Some(lease) = self.leases.remove(&hash) else {
            // Only locks are deleted in this way, whichever command took them.
            if let (true, Some(usage)) = (compares, self.usage_of(sighting)) {
                usage.by(&sighting.application).deleted += 1;
                usage.unwitnessed += 1;
                usage.key(hash.get());
            }
            return;
        };
        let Some(usage) = self.usage_of(sighting) else {
            return;
        };
        usage.looked_up += u64::from(lease.was_looked_up(Some(sighting.session)));
        usage.by(&sighting.application).deleted += 1;
        usage.without_ttl += u64::from(lease.until_ms.is_none());
        usage.compared += u64::from(compares);
        let held_ms = sighting.at_ms.saturating_sub(lease.since_ms);
        let is_stranger = lease.strangers.contains(&Some(sighting.session));
        if lease.session == sighting.session || compares {
            usage.released += 1;
            usage.held(held_ms);
        } else if !usage.may_take(sighting.session) {
            usage.sweeper(sighting.session);
            usage.held(held_ms);
        } else if lease.application == sighting.application && !is_stranger {
            // Any connection of a process's pool may release a lock: that is no hand-over.
            match lease.process == sighting.process {
                true => usage.released += 1,
                false => usage.handed_over += 1,
            }
            usage.held(held_ms);
        } else {
            usage.foreign += 1;
        }
    }

    /// The lease that this release ends, if the release is seen only after the next grant.
    fn release_of_displaced(&mut self, sighting: &Sighting, hash: KeyHash) -> Option<Displaced> {
        let lease = self.leases.get_mut(&hash)?;
        let is_it = |displaced: &mut Displaced| {
            displaced.session == sighting.session
                && lease.session != sighting.session
                && sighting.at_ms <= lease.since_ms + OUT_OF_ORDER_MS
        };
        lease.displaced.take_if(is_it)
    }

    fn run_out(&mut self, hash: KeyHash) {
        let Some(lease) = self.leases.remove(&hash) else {
            return;
        };
        let pattern = self.patterns.current(lease.pattern);
        if let Some(usage) = self.usage.get_mut(&pattern) {
            usage.ran_out += 1;
            usage.looked_up += u64::from(lease.was_looked_up(None));
        }
    }

    /// What was seen of the key's pattern, if anything.
    fn usage_of(&mut self, sighting: &Sighting) -> Option<&mut Usage> {
        let (_, usage) = self.usage_or_new(sighting)?;
        Some(usage)
    }

    /// The pattern of a key. If patterns were merged, their counts are merged too.
    fn pattern_of(&mut self, key: &[u8]) -> Option<PatternId> {
        let mut merged = Vec::new();
        let found = self.patterns.find(key, &mut merged);
        for merge in merged {
            let into = self.patterns.current(merge.into);
            if let Some(from) = self.usage.remove(&merge.from) {
                match self.usage.get_mut(&into) {
                    Some(usage) => usage.add(&from),
                    None => drop(self.usage.insert(into, from)),
                }
            }
        }
        found
    }

    fn usage_or_new(&mut self, sighting: &Sighting) -> Option<(PatternId, &mut Usage)> {
        let Some(pattern) = self.pattern_of(&sighting.key) else {
            self.beyond += 1;
            return None;
        };
        let new = || Usage::new(&sighting.key, sighting.at_ms);
        let usage = self.usage.entry(pattern).or_insert_with(new);
        usage.last_ms = usage.last_ms.max(sighting.at_ms);
        Some((pattern, usage))
    }

    fn forget_the_oldest(&mut self) {
        while self.leases.len() > MAX_LEASES || self.order.len() > 2 * MAX_LEASES {
            let Some((hash, number)) = self.order.pop_front() else {
                return;
            };
            let is_it = self.leases.get(&hash);
            if is_it.is_some_and(|lease| lease.number == number) {
                self.leases.remove(&hash);
            }
        }
    }
}
