//! How long locks are held, by key pattern: the observations of each pattern, with the leases that are held now.

use std::collections::HashMap;

use lockwarden_control::clock::Moment;
use lockwarden_discovery::PatternId;
use lockwarden_lock::db_key::DbKey;

use super::api;
use super::api::PatternsQuery;
use super::leases::Holding;
use super::service::ViewService;
use super::store::Seen;

/// Pieces of advice on patterns in one sentence about a namespace.
const MAX_ADVICES: usize = 3;

/// A lease that is held now.
type Held<'a> = (&'a DbKey, &'a Holding);

/// `GET /api/v1/patterns`.
pub(super) fn patterns(service: &ViewService, query: &PatternsQuery) -> api::LockPatterns {
    let now = Moment::now();
    let start = service.started(now);
    let seen = service.view.seen();
    let since = match query.since {
        Some(since) => seen.marks.begin(since, now),
        None => seen.periods.reset,
    };
    let since = since.filter(|since| since.at > start.at).unwrap_or(start);
    let patterns = told(&seen, query, since.unix_ms);
    api::LockPatterns { since: since.unix_ms, now: now.unix_ms, patterns }
}

/// The requested patterns, the busiest first.
pub(super) fn told(seen: &Seen, query: &PatternsQuery, from_ms: u64) -> Vec<api::LockPattern> {
    let mut held: HashMap<(&str, Option<PatternId>), Vec<Held<'_>>> = HashMap::new();
    for (key, lock) in seen.locks.iter() {
        if let Some(holding) = &lock.holding {
            let pattern = seen.patterns.known(&lock.namespace, lock.pattern);
            let of = held.entry((&lock.namespace, pattern)).or_default();
            of.push((key, holding));
        }
    }
    let mut told = Vec::new();
    for namespace in seen.patterns.namespaces() {
        let asked_for = query.namespace.as_deref();
        if asked_for.is_some_and(|name| *name != **namespace) {
            continue;
        }
        for (id, pattern) in seen.patterns.of(namespace) {
            let glob = seen.patterns.glob(id);
            if query.pattern.as_ref().is_some_and(|asked| *asked != glob) {
                continue;
            }
            let held = held.get_mut(&(&**namespace, id));
            let held = held.map_or(&mut [][..], |held| &mut held[..]);
            held.sort_by_key(|(_, lease)| lease.since_ms);
            told.push(pattern.told((namespace, glob), from_ms, held, query.history));
        }
    }
    told.sort_by(|a, b| {
        let busiest = b.operations.cmp(&a.operations);
        busiest.then_with(|| (&a.namespace, &a.pattern).cmp(&(&b.namespace, &b.pattern)))
    });
    told
}

/// The TTLs to ask for, by pattern, that follow from how long a namespace's leases lasted.
pub(super) fn advice(seen: &Seen, namespace: &str) -> Option<String> {
    let mut advices: Vec<String> = seen
        .patterns
        .of(namespace)
        .filter_map(|(id, pattern)| {
            let advice = pattern.advice(namespace)?;
            Some(format!("{}: {advice}", seen.patterns.glob(id)))
        })
        .collect();
    advices.sort_unstable();
    advices.truncate(MAX_ADVICES);
    (!advices.is_empty()).then(|| advices.join("; "))
}
