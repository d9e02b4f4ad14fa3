//! Refusals that another configuration would spare, judged from the remembered refusals. Only what they show is reported:
//! further refusals by a change, and cases that need more than is remembered, are reported as open.

use std::collections::BTreeMap;
use std::sync::Arc;

use lockwarden_control::config::Listed;
use lockwarden_control::telemetry::events::{Caller, DEFAULT_USER, LockEvent};
use lockwarden_lock::decision::Operation;
use lockwarden_lock::namespace::Namespaces;
use lockwarden_lock::reason::Reason;
use lockwarden_lock::rules::Mode;
use lockwarden_lock::token::Process;

use super::api;
use super::service::ViewService;
use super::store::{Decided, Seen};

/// Rows of a reply; further ones are summed.
const MAX_ROWS: usize = 40;
/// The name that stands for those.
const REST: &str = "__other__";

/// A change, as far as it affects refusals.
#[derive(Clone, Debug)]
pub enum Change {
    /// It refuses as much as before.
    Nothing,
    /// A namespace is switched to monitor mode.
    Watched(String),
    /// The proof of an owner in a namespace: whether an identity counts, also over a connection that was refused the lock.
    Identity { namespace: String, counts: bool },
    /// One process of an application may release locks that another one took.
    HandOver(String),
    /// `INCR` is an acquire.
    Counters(String),
    /// A value that others use is only reported.
    SharedTokens(String),
    /// No quarantine.
    NoQuarantine(String),
    /// Other keys belong to namespaces.
    Keys(Arc<Namespaces>, Vec<String>),
    /// These clients may erase databases.
    Administrators(Vec<String>),
    /// Only a run with it shows the effect.
    Open {
        /// The namespace that it is limited to, if any.
        namespace: Option<String>,
    },
}

/// The outcome for a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Stays,
    Open,
    Spared,
}

impl Change {
    /// Whether it may refuse what was let through: that is not remembered.
    fn may_refuse_more(&self) -> bool {
        match self {
            Change::Nothing
            | Change::Watched(_)
            | Change::Identity { counts: true, .. }
            | Change::HandOver(_)
            | Change::SharedTokens(_)
            | Change::NoQuarantine(_) => false,
            Change::Identity { counts: false, .. }
            | Change::Counters(_)
            | Change::Keys(..)
            | Change::Administrators(_)
            | Change::Open { .. } => true,
        }
    }

    /// `loses`: refusing releases of its own costs this application lock time, on keys of this pattern. If its refused releases
    /// turned out to be of locks held by its other threads, it may release too often and be refused for that.
    fn fate(&self, decided: &Decided, loses: impl Fn() -> bool) -> Fate {
        let entry = &*decided.entry;
        let reason = entry.verdict.as_ref().and_then(|verdict| verdict.reason);
        let here = |name: &String| **name == *entry.namespace;
        let spared_if = |is: bool| if is { Fate::Spared } else { Fate::Stays };
        match self {
            Change::Nothing => Fate::Stays,
            Change::Watched(name) => spared_if(here(name)),
            Change::Identity { namespace, counts } if here(namespace) => {
                told_apart(by_identity(decided, reason, *counts), loses)
            }
            Change::HandOver(name) if here(name) => told_apart(handed_over(decided, reason), loses),
            Change::Counters(name) if here(name) => {
                let counts = entry.command.starts_with("incr");
                spared_if(reason == Some(Reason::OpaqueWrite) && counts)
            }
            Change::SharedTokens(name) if here(name) => spared_if(reason == Some(Reason::SharedToken)),
            Change::NoQuarantine(name) if here(name) => spared_if(reason == Some(Reason::Quarantine)),
            Change::Identity { .. }
            | Change::HandOver(_)
            | Change::Counters(_)
            | Change::SharedTokens(_)
            | Change::NoQuarantine(_) => Fate::Stays,
            Change::Keys(namespaces, names) => {
                let found = namespaces.find(entry.key.bytes());
                match found.and_then(|id| names.get(usize::from(id.0))) {
                    None => Fate::Spared,
                    Some(name) if here(name) => Fate::Stays,
                    Some(_) => Fate::Open,
                }
            }
            Change::Administrators(names) => {
                let listed = Listed::of(names);
                let is_named =
                    |caller: &Arc<Caller>| listed.has(&caller.user, &caller.name, caller.known_by.certificate());
                let erases = reason == Some(Reason::BulkDelete);
                spared_if(erases && entry.caller.as_ref().is_some_and(is_named))
            }
            Change::Open { namespace } => match namespace {
                Some(name) if !here(name) => Fate::Stays,
                Some(_) | None => Fate::Open,
            },
        }
    }
}

fn told_apart(fate: Fate, loses: impl Fn() -> bool) -> Fate {
    match fate {
        Fate::Spared if !loses() => Fate::Open,
        fate => fate,
    }
}

/// A release or an extension without an owner token and without proof: the identity of the sender may be a proof.
fn is_tokenless(entry: &LockEvent, reason: Option<Reason>) -> bool {
    let gives_back = matches!(entry.operation, Some(Operation::Release | Operation::Extend));
    let unproven = matches!(reason, Some(Reason::NotOwner | Reason::Expired));
    gives_back && unproven && entry.token.is_none()
}

fn by_identity(decided: &Decided, reason: Option<Reason>, counts: bool) -> Fate {
    let entry = &*decided.entry;
    if !is_tokenless(entry, reason) || !counts {
        return Fate::Stays;
    }
    let (Some(caller), Some(holder)) = (&entry.caller, &decided.holder) else {
        // The lease was granted before the view began, or through another proxy.
        return Fate::Open;
    };
    if !holder.may_be(caller) {
        return Fate::Stays;
    }
    // The earlier debts of an identity are not remembered, nor whether an address alone is an identity.
    let processes = (caller.known_by.process(), holder.known_by.process());
    match (reason, processes) {
        (Some(Reason::NotOwner), (Process::Known(_), Process::Known(_))) => Fate::Spared,
        (Some(Reason::NotOwner), (Process::None, Process::None)) if caller.is_distinctive() => Fate::Spared,
        _ => Fate::Open,
    }
}

fn handed_over(decided: &Decided, reason: Option<Reason>) -> Fate {
    let entry = &*decided.entry;
    if !is_tokenless(entry, reason) {
        return Fate::Stays;
    }
    let (Some(caller), Some(holder)) = (&entry.caller, &decided.holder) else {
        return Fate::Open;
    };
    let same = (&caller.name, &caller.user) == (&holder.name, &holder.user);
    let has_user = !caller.user.is_empty() && caller.user != DEFAULT_USER;
    let is_named = !caller.name.is_empty() || has_user;
    match (reason, same && is_named) {
        (_, false) => Fate::Stays,
        (Some(Reason::NotOwner), true) => Fate::Spared,
        (_, true) => Fate::Open,
    }
}

impl ViewService {
    /// The remembered refusals that these changes would spare.
    pub fn what_if(&self, said: Vec<String>, changes: &[Change]) -> api::WhatIf {
        told(&self.view.seen(), said, changes)
    }
}

fn told(seen: &Seen, said: Vec<String>, changes: &[Change]) -> api::WhatIf {
    let since = seen.periods.reset.map(|reset| reset.at);
    let total = seen.periods.total();
    let kept = seen.decisions.iter();
    let kept = kept.filter(|one| since.is_none_or(|since| one.entry.at >= since));
    let mut rows: BTreeMap<[String; 4], api::WhatIfRow> = BTreeMap::new();
    let mut number = 0;
    for decided in kept {
        number += 1;
        let mut place = place_of(seen, &decided.entry);
        let loses = || {
            let [namespace, pattern, _, application] = &place;
            let is_it = |own| seen.patterns.glob(seen.patterns.known(namespace, own)) == *pattern;
            total.applications.loses(application, namespace, is_it)
        };
        let fates = changes.iter().map(|change| change.fate(decided, loses));
        let fate = fates.max();
        if rows.len() >= MAX_ROWS && !rows.contains_key(&place) {
            place = [(); 4].map(|()| REST.to_owned());
        }
        let [namespace, pattern, reason, application] = place.clone();
        let row = rows.entry(place).or_insert_with(|| api::WhatIfRow {
            namespace,
            pattern,
            reason,
            application,
            ..api::WhatIfRow::default()
        });
        match fate.unwrap_or(Fate::Stays) {
            Fate::Stays => row.stays += 1,
            Fate::Open => row.open += 1,
            Fate::Spared => row.spared += 1,
        }
    }
    let counts = total.namespaces.values();
    let refused: u64 = counts.map(|one| one.refused + one.would_refuse).sum();
    let mut rows: Vec<api::WhatIfRow> = rows.into_values().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.spared + row.open + row.stays));
    api::WhatIf {
        changes: said,
        kept: number,
        refused,
        may_refuse_more: changes.iter().any(Change::may_refuse_more),
        rows,
    }
}

fn place_of(seen: &Seen, entry: &LockEvent) -> [String; 4] {
    let pattern = seen.lock(&entry.key).and_then(|lock| lock.pattern);
    let known = seen.patterns.known(&entry.namespace, pattern);
    let reason = entry.verdict.as_ref().and_then(|verdict| verdict.reason);
    [
        entry.namespace.to_string(),
        seen.patterns.glob(known),
        reason.unwrap_or(Reason::Other).word().to_owned(),
        entry.caller.as_ref().map_or_else(String::new, |caller| caller.application()),
    ]
}

/// A mode, as a change.
pub fn of_mode(namespace: String, mode: Mode) -> Change {
    match mode {
        Mode::Monitor => Change::Watched(namespace),
        // The refusals in enforce mode are those that are counted.
        Mode::Enforce => Change::Nothing,
    }
}
