//! Refusals, also those that enforce mode would have made, and leases that failovers have lost, filtered by the query.

use std::collections::VecDeque;

use lockwarden_control::clock::Moment;
use lockwarden_control::text::escape::unspell;
use lockwarden_lock::reason::Reason;
use memchr::memmem;

use super::api;
use super::api::DecisionsQuery;
use super::service::ViewService;
use super::store::{Decided, Seen};

/// Decisions in a reply without a limit in the request; there are never more than are remembered.
const USUAL_DECISIONS: usize = 100;

/// `GET /api/v1/decisions`: the newest first.
pub(super) fn decisions(service: &ViewService, query: &DecisionsQuery) -> Vec<api::Moment> {
    let limit = query.limit.unwrap_or(USUAL_DECISIONS);
    let found = narrowed(&service.view.seen(), query, limit);
    found.iter().map(|decided| api::Moment::of(&decided.entry)).collect()
}

/// `GET /api/v1/lost`: leases that failovers have lost, the newest first.
pub(super) fn lost(service: &ViewService, query: &DecisionsQuery) -> Vec<api::Moment> {
    let limit = query.limit.unwrap_or(USUAL_DECISIONS);
    let found = lost_of(&service.view.seen(), query, limit);
    found.iter().map(|lost| api::Moment::of(&lost.entry)).collect()
}

/// The requested refusals, at most `limit`, the newest first. Putting them into words needs no mutex.
pub(super) fn narrowed(seen: &Seen, query: &DecisionsQuery, limit: usize) -> Vec<Decided> {
    those_of(&seen.decisions, seen, query, limit)
}

/// The same for leases that failovers have lost, which have no reason.
pub(super) fn lost_of(seen: &Seen, query: &DecisionsQuery, limit: usize) -> Vec<Decided> {
    match query.reason {
        Some(_) => Vec::new(),
        None => those_of(&seen.lost, seen, query, limit),
    }
}

fn those_of(all: &VecDeque<Decided>, seen: &Seen, query: &DecisionsQuery, limit: usize) -> Vec<Decided> {
    let contains = query.contains.as_deref().unwrap_or_default();
    let contains = unspell(contains).unwrap_or_else(|| contains.into());
    let contains = memmem::Finder::new(&contains);
    let since = query.since.and_then(|since| {
        let begin = seen.marks.begin(since.0, Moment::now());
        begin.map(|begin| begin.unix_ms)
    });
    let is_asked_for = |decided: &&Decided| {
        let entry = &decided.entry;
        let reason = entry.verdict.as_ref().and_then(|said| said.reason);
        let by = |name: &str| {
            let caller = entry.caller.as_ref();
            caller.is_some_and(|caller| caller.application() == name)
        };
        let pattern = query.pattern.as_ref();
        since.is_none_or(|since| entry.at_ms > since)
            && (query.id.as_deref()).is_none_or(|id| entry.id.as_deref() == Some(id))
            && (query.namespace.as_deref()).is_none_or(|name| *name == *entry.namespace)
            && (query.reason).is_none_or(|wanted| reason.unwrap_or(Reason::Other) == wanted.0)
            && pattern.is_none_or(|pattern| pattern.0.matches(entry.key.bytes()))
            && contains.find(entry.key.bytes()).is_some()
            && query.application.as_deref().is_none_or(by)
    };
    let newest_first = all.iter().rev();
    newest_first.filter(is_asked_for).take(limit).cloned().collect()
}
