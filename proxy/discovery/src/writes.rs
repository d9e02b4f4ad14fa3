//! Which data is written under which locks. For each pair of patterns it counts the writes under such a lock and those
//! without, and finds which parts of the key occur in the lock's name. Pure, like the whole crate, and bounded.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::first_writes::Beginnings;
use crate::guards::{GuardCandidate, template};
use crate::key_hash::KeyHash;
use crate::patterns::{Merged, PatternId, Patterns};
use crate::shape::{Parts, Shape};

/// Patterns of locks that are tracked for the keys of one pattern.
const MAX_LOCKS: usize = 8;
/// Places that a key and its lock have in common.
const MAX_SAME: usize = 16;
/// Applications counted by name that write without the lock; the rest are counted together.
const MAX_APPLICATIONS: usize = 8;
/// Pairs of key and lock that a proposal is tested with.
const MAX_TRIED: usize = 8;

/// A write of data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrote {
    /// Unix time, ms.
    pub at_ms: u64,
    /// The logical database.
    pub db: u32,
    /// The key as sent.
    pub key: Bytes,
    /// The connection.
    pub session: u64,
    /// The name of the application.
    pub application: Arc<str>,
    /// Locks of namespaces that its client held.
    pub under: SmallVec<[Bytes; 1]>,
    /// A guard would refuse this write even from the lock's holder: the command waits, or also releases a lock.
    pub is_unfit: bool,
}

/// Data of one pattern.
#[derive(Debug, Default)]
struct Data {
    under: BTreeMap<PatternId, Pair>,
}

/// Counts for data of one pattern and locks of one pattern.
#[derive(Debug, Default)]
struct Pair {
    /// Writes under a lock that matches the key.
    under: u64,
    /// Other writes.
    without: u64,
    /// A set of locks, with one bit for each hash.
    ids: u64,
    /// Places in the lock's name and in the key with the same text, and how often that occurred.
    same: SmallVec<[(usize, usize, u64); 2]>,
    tried: SmallVec<[(Bytes, Bytes); 1]>,
    outsiders: BTreeMap<Arc<str>, u64>,
    /// Applications that write before they take the lock, and over how many connections.
    starters: BTreeMap<Arc<str>, u64>,
    /// Whether any write was of a kind that a guard refuses.
    is_unfit: bool,
    /// The last write without the lock: the key and the application.
    example: Option<(Bytes, Arc<str>)>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    keys: Patterns,
    locks: Patterns,
    data: HashMap<PatternId, Data>,
    beginnings: Beginnings,
}

impl Writes {
    /// A connection has taken its first lock. Before that, it had written these keys.
    pub(crate) fn began(&mut self, session: u64, keys: Vec<Bytes>) {
        self.beginnings.add(session, keys);
    }

    /// Records a write, with the locks that its connection held.
    pub(crate) fn see(&mut self, wrote: &Wrote, held: &[Bytes]) {
        let Some(key) = Parts::of(&wrote.key) else {
            return;
        };
        // Data that was never written under a lock is not stored.
        let found = match held.is_empty() {
            true => self.keys.known(&key.shape),
            false => self.found_key(&wrote.key),
        };
        let Some(found) = found else {
            return;
        };
        let locks: SmallVec<[(PatternId, Parts<'_>); 2]> =
            held.iter().filter_map(|lock| Some((self.found_lock(lock)?, Parts::of(lock)?))).collect();
        // A further lock may have merged patterns.
        let locks: SmallVec<[(PatternId, Parts<'_>); 2]> =
            locks.into_iter().map(|(id, parts)| (self.locks.current(id), parts)).collect();
        let data = self.data.entry(found).or_default();
        for (id, _) in &locks {
            if data.under.len() < MAX_LOCKS || data.under.contains_key(id) {
                data.under.entry(*id).or_default();
            }
        }
        let shape = self.keys.shape(found);
        for (id, pair) in &mut data.under {
            let pattern = self.locks.shape(*id);
            let fits = |lock: &&Parts<'_>| fits(pattern, lock, shape, &key);
            let mut own = locks.iter().filter(|(one, _)| one == id);
            pair.is_unfit |= wrote.is_unfit;
            match own.find_map(|(_, lock)| Some(lock).filter(fits)) {
                Some(lock) => pair.wrote_under(&key, lock),
                None => pair.wrote_without(wrote),
            }
        }
        if !locks.is_empty() {
            self.see_beginning(wrote, &locks);
        }
    }

    /// Counts whether the connection, before its first lock, wrote data of the locks that it holds now.
    fn see_beginning(&mut self, wrote: &Wrote, locks: &[(PatternId, Parts<'_>)]) {
        let Some(begun) = self.beginnings.look(wrote.session) else {
            return;
        };
        for key in begun.keys.iter().filter_map(|key| Parts::of(key)) {
            let Some(found) = self.keys.known(&key.shape) else {
                continue;
            };
            let Some(data) = self.data.get_mut(&found) else {
                continue;
            };
            let shape = self.keys.shape(found);
            for (id, lock) in locks {
                let is_of_it = fits(self.locks.shape(*id), lock, shape, &key);
                if let Some(pair) = data.under.get_mut(id).filter(|_| is_of_it)
                    && !begun.said.contains(&(found, *id))
                {
                    begun.said.push((found, *id));
                    count(&mut pair.starters, &wrote.application, 1);
                }
            }
        }
    }

    /// Data that is written under the same lock again and again.
    pub(crate) fn candidates(&self) -> Vec<GuardCandidate> {
        let all = self.data.iter();
        let mut all: Vec<GuardCandidate> = all
            .flat_map(|(id, data)| {
                let shape = self.keys.shape(*id);
                let pairs = data.under.iter();
                pairs.filter_map(|(lock, pair)| pair.candidate(shape, self.locks.shape(*lock)))
            })
            .collect();
        all.sort_by(|a, b| {
            let most = b.under.cmp(&a.under);
            most.then_with(|| (&a.keys, &a.lock).cmp(&(&b.keys, &b.lock)))
        });
        all
    }

    fn found_key(&mut self, key: &[u8]) -> Option<PatternId> {
        let mut merged = Vec::new();
        let found = self.keys.find(key, &mut merged);
        for Merged { from, into } in merged {
            let into = self.keys.current(into);
            if let Some(from) = self.data.remove(&from) {
                self.data.entry(into).or_default().add(from);
            }
        }
        found
    }

    fn found_lock(&mut self, lock: &[u8]) -> Option<PatternId> {
        let mut merged = Vec::new();
        let found = self.locks.find(lock, &mut merged);
        if !merged.is_empty() {
            for data in self.data.values_mut() {
                for (id, pair) in std::mem::take(&mut data.under) {
                    let id = self.locks.current(id);
                    data.under.entry(id).or_default().add(pair);
                }
            }
        }
        found
    }
}

/// Counts an application; beyond the bound, applications are counted together.
fn count(all: &mut BTreeMap<Arc<str>, u64>, application: &Arc<str>, times: u64) {
    let name = match all.contains_key(application) || all.len() < MAX_APPLICATIONS {
        true => application.clone(),
        false => "others".into(),
    };
    *all.entry(name).or_default() += times;
}

fn most_first(all: &BTreeMap<Arc<str>, u64>) -> Vec<(String, u64)> {
    let all = all.iter();
    let mut all: Vec<(String, u64)> = all.map(|(application, times)| (application.to_string(), *times)).collect();
    all.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
    all
}

/// Whether every varying part of the lock's name also occurs in the key.
fn fits(pattern: &Shape, lock: &Parts<'_>, data: &Shape, key: &Parts<'_>) -> bool {
    pattern.varying().all(|at| {
        let text = lock.text(at);
        text.is_some() && data.varying().any(|place| key.text(place) == text)
    })
}

impl Data {
    fn add(&mut self, other: Data) {
        for (id, pair) in other.under {
            self.under.entry(id).or_default().add(pair);
        }
    }
}

impl Pair {
    fn wrote_under(&mut self, key: &Parts<'_>, lock: &Parts<'_>) {
        self.under += 1;
        self.ids |= 1 << (KeyHash::of(0, lock.key()).get() % 64);
        for (in_lock, text) in lock.texts() {
            for (in_key, _) in key.texts().filter(|(_, other)| *other == text) {
                self.note_same(in_lock, in_key, 1);
            }
        }
        if self.tried.len() < MAX_TRIED {
            let copy = Bytes::copy_from_slice;
            self.tried.push((copy(key.key()), copy(lock.key())));
        }
    }

    fn note_same(&mut self, in_lock: usize, in_key: usize, times: u64) {
        let is_full = self.same.len() >= MAX_SAME;
        let mut all = self.same.iter_mut();
        match all.find(|(a, b, _)| (*a, *b) == (in_lock, in_key)) {
            Some((_, _, count)) => *count += times,
            None if is_full => {}
            None => self.same.push((in_lock, in_key, times)),
        }
    }

    fn wrote_without(&mut self, wrote: &Wrote) {
        self.without += 1;
        count(&mut self.outsiders, &wrote.application, 1);
        let key = Bytes::copy_from_slice(&wrote.key);
        self.example = Some((key, wrote.application.clone()));
    }

    fn add(&mut self, other: Pair) {
        self.under += other.under;
        self.without += other.without;
        self.ids |= other.ids;
        for (in_lock, in_key, times) in other.same {
            self.note_same(in_lock, in_key, times);
        }
        let room = MAX_TRIED.saturating_sub(self.tried.len());
        self.tried.extend(other.tried.into_iter().take(room));
        for (application, times) in &other.outsiders {
            count(&mut self.outsiders, application, *times);
        }
        for (application, times) in &other.starters {
            count(&mut self.starters, application, *times);
        }
        self.is_unfit |= other.is_unfit;
        self.example = self.example.take().or(other.example);
    }

    /// The guard for this pair; `None` where no guard can express it.
    fn candidate(&self, data: &Shape, lock: &Shape) -> Option<GuardCandidate> {
        let (example, example_lock) = self.tried.first()?;
        let mut names: Vec<(usize, usize)> = Vec::new();
        for in_lock in lock.varying() {
            let same = self.same.iter().filter(|(at, _, _)| *at == in_lock);
            let same = same.filter(|(_, at, _)| data.varying().any(|place| place == *at));
            let (_, in_key, _) = same.max_by_key(|(_, at, count)| (*count, usize::MAX - at))?;
            names.push((in_lock, *in_key));
        }
        let name = |at: usize| match at {
            0 => "id".to_owned(),
            more => format!("id{}", more + 1),
        };
        let of_key = |place: usize| names.iter().position(|(_, at)| *at == place).map(name);
        let of_lock = |place: usize| {
            let at = names.iter().find(|(at, _)| *at == place)?.1;
            of_key(at)
        };
        let is_fixed = names.is_empty();
        let candidate = GuardCandidate {
            keys: template(data, &of_key)?,
            lock: template(lock, &of_lock)?,
            words: data.names().collect(),
            under: self.under,
            without: self.without,
            locks: u64::from(self.ids.count_ones()),
            is_fixed,
            example: example.to_vec(),
            example_lock: example_lock.to_vec(),
            outsiders: most_first(&self.outsiders),
            starters: most_first(&self.starters),
            is_unfit: self.is_unfit,
            outside: self.example.as_ref().map(|(key, application)| (key.to_vec(), application.to_string())),
        };
        let tried = self.tried.iter();
        let mut pairs = tried.map(|(key, lock)| candidate.guards(key, lock));
        pairs.all(|guards| guards).then_some(candidate)
    }
}
