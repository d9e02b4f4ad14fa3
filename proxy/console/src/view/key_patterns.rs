//! Locks by key pattern: how long the locks of each pattern are held, and its last leases. Keys are grouped into patterns as in
//! discovery. Bounded: keys without room form one pattern, `*`.

use std::collections::VecDeque;
use std::sync::Arc;

use lockwarden_control::telemetry::events::{Caller, EventKind, LockEvent};
use lockwarden_control::text::escape::spell;
use lockwarden_discovery::{PatternId, Patterns};
use lockwarden_lock::db_key::{DbKey, NamedMap};

use super::api;
use super::by_namespace::ByNamespace;
use super::hold_times::Holds;
use super::leases::{End, Ended, Holding, Late};
use super::lock_history::Turn;

/// Patterns with counts of their own, over all namespaces.
const MAX_PATTERNS: usize = 256;
/// Leases of a pattern whose durations are remembered.
const MAX_HOLDS: usize = 1_000;
/// Leases of a pattern that are remembered in full.
const MAX_PAST: usize = 100;
/// Applications named per pattern.
const MAX_APPLICATIONS: usize = 16;
/// Stands for keys without room.
const REST: &[u8] = b"*";

/// See the module.
#[derive(Default)]
pub(super) struct KeyPatterns {
    shapes: Patterns,
    namespaces: ByNamespace<NamedMap<Option<PatternId>, PatternSeen>>,
    /// Patterns with counts of their own.
    count: usize,
}

/// The observations of one pattern.
pub(super) struct PatternSeen {
    example: DbKey,
    first_ms: u64,
    last_ms: u64,
    operations: u64,
    acquired: u64,
    contended: u64,
    /// The longest requested TTL, ms; 0 for none.
    longest_ttl_ms: u64,
    pub(super) holds: Holds,
    /// The oldest first.
    past: VecDeque<Past>,
}

/// A lease that is over.
struct Past {
    key: DbKey,
    caller: Option<Arc<Caller>>,
    fence: u64,
    since_ms: u64,
    until_ms: u64,
    ttl_ms: u64,
    end: End,
    held_ms: Option<u64>,
}

impl KeyPatterns {
    /// The pattern of this key; `None` if there is no room for another pattern.
    pub(super) fn find(&mut self, key: &[u8]) -> Option<PatternId> {
        let mut merged = Vec::new();
        let found = self.shapes.find(key, &mut merged);
        for merge in merged {
            let into = self.shapes.current(merge.into);
            for patterns in self.namespaces.values_mut() {
                let Some(from) = patterns.remove(&Some(merge.from)) else {
                    continue;
                };
                match patterns.get_mut(&Some(into)) {
                    Some(seen) => {
                        seen.merge(from);
                        self.count -= 1;
                    }
                    None => drop(patterns.insert(Some(into), from)),
                }
            }
        }
        found
    }

    /// Folds in an event of a lock with this key pattern.
    pub(super) fn fold(&mut self, pattern: Option<PatternId>, entry: &LockEvent, turn: &Turn) {
        let is_news = !turn.ended.is_empty() || turn.late.is_some();
        if entry.operation.is_none() && !is_news {
            return;
        }
        let seen = self.seen(pattern, entry);
        seen.last_ms = seen.last_ms.max(entry.at_ms);
        seen.operations += u64::from(entry.operation.is_some());
        let asked_ms = entry.asked_ms.unwrap_or(0);
        seen.longest_ttl_ms = seen.longest_ttl_ms.max(asked_ms);
        seen.acquired += u64::from(matches!(entry.happened, EventKind::Acquired { .. }));
        seen.contended += u64::from(matches!(entry.happened, EventKind::Contended { .. }));
        for ended in &turn.ended {
            seen.ended(&entry.key, ended);
        }
        if let Some(late) = &turn.late {
            seen.late(&entry.key, late);
        }
    }

    /// Resets the counts; the last leases are kept.
    pub(super) fn reset(&mut self) {
        let all = self.namespaces.values_mut();
        for seen in all.flat_map(|patterns| patterns.values_mut()) {
            (seen.operations, seen.acquired, seen.contended) = (0, 0, 0);
            seen.holds = Holds::new(MAX_HOLDS);
        }
    }

    /// As a Redis glob, its bytes.
    pub(super) fn glob_bytes(&self, pattern: PatternId) -> Vec<u8> {
        self.shapes.glob(self.shapes.current(pattern))
    }

    /// As a Redis glob, spelled.
    pub(super) fn glob(&self, pattern: Option<PatternId>) -> String {
        let glob = pattern.map(|id| self.glob_bytes(id));
        spell(glob.as_deref().unwrap_or(REST))
    }

    /// The pattern under which its keys are counted.
    pub(super) fn known(&self, namespace: &str, pattern: Option<PatternId>) -> Option<PatternId> {
        let pattern = self.current(pattern);
        let patterns = self.namespaces.get(namespace);
        pattern.filter(|_| patterns.is_some_and(|patterns| patterns.contains_key(&pattern)))
    }

    /// The observations of one pattern.
    pub(super) fn get(&self, namespace: &str, pattern: Option<PatternId>) -> Option<&PatternSeen> {
        self.namespaces.get(namespace)?.get(&pattern)
    }

    /// The pattern that this one is part of by now.
    fn current(&self, pattern: Option<PatternId>) -> Option<PatternId> {
        pattern.map(|id| self.shapes.current(id))
    }

    /// The patterns of a namespace.
    pub(super) fn of(&self, namespace: &str) -> impl Iterator<Item = (Option<PatternId>, &PatternSeen)> {
        let patterns = self.namespaces.get(namespace).into_iter().flatten();
        patterns.map(|(pattern, seen)| (*pattern, seen))
    }

    /// The namespaces with observations.
    pub(super) fn namespaces(&self) -> impl Iterator<Item = &Arc<str>> {
        self.namespaces.iter().map(|(name, _)| name)
    }

    fn seen(&mut self, pattern: Option<PatternId>, entry: &LockEvent) -> &mut PatternSeen {
        let pattern = self.current(pattern);
        let patterns = self.namespaces.of(&entry.namespace);
        let has_room = self.count < MAX_PATTERNS || patterns.contains_key(&pattern);
        let pattern = pattern.filter(|_| has_room);
        patterns.entry(pattern).or_insert_with(|| {
            self.count += usize::from(pattern.is_some());
            PatternSeen::new(entry)
        })
    }
}

impl PatternSeen {
    fn new(entry: &LockEvent) -> PatternSeen {
        PatternSeen {
            example: entry.key.clone(),
            first_ms: entry.at_ms,
            last_ms: entry.at_ms,
            operations: 0,
            acquired: 0,
            contended: 0,
            longest_ttl_ms: 0,
            holds: Holds::new(MAX_HOLDS),
            past: VecDeque::new(),
        }
    }

    /// The TTL to ask for, in words.
    pub(super) fn advice(&self, namespace: &str) -> Option<String> {
        self.advice_by(&self.holds, namespace)
    }

    /// `None` where holders cannot be told apart: then many releases are refused or missed, and leases seem to last too long.
    fn advice_by(&self, holds: &Holds, namespace: &str) -> Option<String> {
        let mut callers = self.past.iter().filter_map(|past| past.caller.as_ref());
        let advice = || holds.advice(namespace, &spell(self.example.bytes()));
        let is_hidden = callers.any(|caller| caller.is_hidden());
        if is_hidden { None } else { advice() }
    }

    /// One of its keys.
    pub(super) fn example(&self) -> &[u8] {
        self.example.bytes()
    }

    pub(super) fn operations(&self) -> u64 {
        self.operations
    }

    /// The longest requested TTL, ms.
    pub(super) fn longest_ttl_ms(&self) -> Option<u64> {
        (self.longest_ttl_ms > 0).then_some(self.longest_ttl_ms)
    }

    fn ended(&mut self, key: &DbKey, ended: &Ended) {
        if let Some(hold) = ended.hold {
            self.holds.add(hold);
        }
        let past = Past {
            key: key.clone(),
            caller: ended.caller.clone(),
            fence: ended.fence,
            since_ms: ended.since_ms,
            until_ms: ended.until_ms,
            ttl_ms: ended.ttl_ms,
            end: ended.end,
            // A lease that ran out was not released.
            held_ms: ended.hold.filter(|hold| !hold.ran_out).map(|_| ended.held_ms()),
        };
        if ended.again
            && let Some(known) = self.known(key, ended.fence)
        {
            *known = past;
            return;
        }
        if self.past.len() >= MAX_PAST {
            self.past.pop_front();
        }
        self.past.push_back(past);
    }

    fn late(&mut self, key: &DbKey, late: &Late) {
        match late.hold {
            Some(hold) => self.holds.add(hold),
            None => self.holds.worked(late.was_ms, late.worked_ms),
        }
        if let Some(known) = self.known(key, late.fence) {
            known.held_ms = Some(late.worked_ms);
        }
    }

    /// The lease with this fencing token, if it is remembered.
    fn known(&mut self, key: &DbKey, fence: u64) -> Option<&mut Past> {
        let is_it = |past: &&mut Past| fence > 0 && past.fence == fence && past.key == *key;
        self.past.iter_mut().rev().find(is_it)
    }

    fn merge(&mut self, other: PatternSeen) {
        self.first_ms = self.first_ms.min(other.first_ms);
        self.last_ms = self.last_ms.max(other.last_ms);
        self.operations += other.operations;
        self.longest_ttl_ms = self.longest_ttl_ms.max(other.longest_ttl_ms);
        self.acquired += other.acquired;
        self.contended += other.contended;
        self.holds.merge(&other.holds);
        self.past.extend(other.past);
        self.past.make_contiguous().sort_by_key(|past| past.until_ms);
        let more = self.past.len().saturating_sub(MAX_PAST);
        self.past.drain(..more);
    }

    /// In the types of the API, from this Unix time on, ms. `held` are the leases that are held now.
    pub(super) fn told(
        &self,
        (namespace, pattern): (&str, String),
        from_ms: u64,
        held: &[(&DbKey, &Holding)],
        with_history: bool,
    ) -> api::LockPattern {
        let holds = self.holds.since(from_ms);
        let past = || self.past.iter().filter(|past| past.until_ms >= from_ms);
        let mut applications: Vec<api::LeaseUser> = Vec::new();
        for caller in past().filter_map(|past| past.caller.as_ref()) {
            let name = caller.application();
            match applications.iter_mut().find(|one| one.application == name) {
                Some(known) => known.leases += 1,
                None => applications.push(api::LeaseUser { application: name, leases: 1 }),
            }
        }
        applications.sort_by(|a, b| {
            let most = b.leases.cmp(&a.leases);
            most.then_with(|| a.application.cmp(&b.application))
        });
        applications.truncate(MAX_APPLICATIONS);
        let history = past().map(Past::told).chain(held.iter().take(MAX_PAST).map(|(key, lease)| going_on(key, lease)));
        api::LockPattern {
            namespace: namespace.to_owned(),
            pattern,
            example: spell(self.example.bytes()),
            db: self.example.db(),
            first_seen: self.first_ms,
            last_seen: self.last_ms,
            operations: self.operations,
            acquired: self.acquired,
            contended: self.contended,
            held: held.len() as u64,
            ttl_ms: holds.usual_ttl_ms(),
            kept_alive: holds.kept(),
            advice: self.advice_by(&holds, namespace),
            holds: holds.summary(),
            applications,
            history: match with_history {
                true => history.collect(),
                false => Vec::new(),
            },
        }
    }
}

impl Past {
    fn told(&self) -> api::PastLease {
        api::PastLease {
            key: spell(self.key.bytes()),
            db: self.key.db(),
            fence: self.fence,
            client: self.caller.as_deref().map(api::Client::of),
            since: self.since_ms,
            until: Some(self.until_ms),
            end: self.end.word().to_owned(),
            held_ms: self.held_ms,
            ttl_ms: Some(self.ttl_ms).filter(|ttl| *ttl > 0),
        }
    }
}

fn going_on(key: &DbKey, lease: &Holding) -> api::PastLease {
    api::PastLease {
        key: spell(key.bytes()),
        db: key.db(),
        fence: lease.fence,
        client: lease.caller.as_deref().map(api::Client::of),
        since: lease.since_ms,
        until: None,
        end: "held".to_owned(),
        held_ms: None,
        ttl_ms: Some(lease.ttl_ms).filter(|ttl| *ttl > 0),
    }
}
