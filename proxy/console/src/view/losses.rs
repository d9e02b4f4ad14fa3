//! Leases that failovers have lost, in sentences: which application lost which lock, whether it still works without the lock,
//! and the current holder. They come before all refusals, because two clients may be at work.

use std::collections::BTreeMap;

use lockwarden_control::text::escape::spell;
use lockwarden_control::text::numbers::counted;

use super::api;
use super::leases::End;
use super::lock_history::LockSeen;
use super::store::{Decided, Seen};

/// The word for such a lease in the place of a refusal's reason.
pub(super) const LEASE_LOST: &str = "lease-lost";

/// What happened to a lost lease afterwards.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Aftermath {
    /// Its holder was not seen to finish its work.
    pub(super) at_work: bool,
    /// The other application that holds the lock now.
    pub(super) now_held_by: Option<String>,
}

/// What happened afterwards to the lease with this fencing token, as far as this proxy has seen.
pub(super) fn aftermath(lock: Option<&LockSeen>, fence: u64) -> Aftermath {
    let former = lock.into_iter().flat_map(|lock| &lock.former);
    let mut former = former.filter(|one| one.end == End::Lost && one.lease.fence == fence);
    let holding = lock.and_then(|lock| lock.holding.as_ref());
    let other = holding.filter(|holding| holding.fence != fence);
    Aftermath {
        at_work: !former.any(|one| one.closed),
        now_held_by: other.and_then(|other| other.caller.as_ref()).map(|caller| caller.application()),
    }
}

impl Aftermath {
    /// The words after `… lost it in the failover`.
    pub(super) fn words(&self) -> String {
        match (self.at_work, &self.now_held_by) {
            (false, _) => ", and has given it back or taken it anew since".to_owned(),
            (true, None) => " and works on without it".to_owned(),
            (true, Some(name)) => format!(" and works on without it, while {name} holds it"),
        }
    }
}

/// The lost leases of one incident, each with what happened afterwards.
#[derive(Default)]
struct Lost<'a> {
    all: Vec<(&'a Decided, Aftermath)>,
}

/// Those lost leases as incidents; the sentence names the newest of each application and namespace.
pub(super) fn incidents(seen: &Seen, lost: &[Decided]) -> Vec<api::Incident> {
    let mut by_loser: BTreeMap<(Option<String>, &str), Lost<'_>> = BTreeMap::new();
    for one in lost {
        let caller = one.entry.caller.as_ref();
        let loser = (caller.map(|caller| caller.application()), &*one.entry.namespace);
        let became = aftermath(seen.lock(&one.entry.key), one.entry.fence.unwrap_or(0));
        by_loser.entry(loser).or_default().all.push((one, became));
    }
    let told = by_loser.into_iter().map(|((application, namespace), lost)| incident(application, namespace, &lost.all));
    told.collect()
}

fn incident(application: Option<String>, namespace: &str, lost: &[(&Decided, Aftermath)]) -> api::Incident {
    // If two clients may work under a lock that another one holds by now, that lock is named. Otherwise the newest.
    let is_worst = |(_, became): &&(&Decided, Aftermath)| became.is_shared();
    let newest = lost.iter().max_by_key(|(one, _)| one.entry.at_ms);
    let named = lost.iter().find(is_worst).or(newest);
    let more = (lost.len() as u64).saturating_sub(1);
    let then = match (named, more) {
        (Some((_, became)), 0) => format!(" in the failover{}", became.words()),
        (_, more) => format!(" and {} in the failover{}", counted(more, "more lock", "more locks"), words_of_all(lost)),
    };
    let entry = named.map(|(one, _)| &one.entry);
    let key = entry.map_or_else(String::new, |entry| spell(entry.key.bytes()));
    let who = application.as_deref().unwrap_or("a client");
    api::Incident {
        sentence: format!("{who} lost {key}{then}"),
        application,
        did: "lost".to_owned(),
        key,
        db: entry.map_or(0, |entry| entry.key.db()),
        then,
        holder: named.and_then(|(_, became)| became.now_held_by.clone()),
        namespace: namespace.to_owned(),
        reason: LEASE_LOST.to_owned(),
        decision: "lost".to_owned(),
        overlap: lost.iter().any(|(_, became)| became.is_shared()),
        keys: lost.len() as u64,
        count: lost.len() as u64,
        last: lost.iter().map(|(one, _)| one.entry.at_ms).max().unwrap_or(0),
        id: entry.and_then(|entry| entry.id.as_deref().map(str::to_owned)),
    }
}

impl Aftermath {
    /// Its holder still works, and another client holds the lock.
    fn is_shared(&self) -> bool {
        self.at_work && self.now_held_by.is_some()
    }
}

fn words_of_all(lost: &[(&Decided, Aftermath)]) -> &'static str {
    let mut all = lost.iter().map(|(_, became)| became);
    if lost.iter().any(|(_, became)| became.is_shared()) {
        ", and works on without them, while others hold some of them"
    } else if all.any(|became| became.at_work) {
        ", and works on without them"
    } else {
        ", and has given them back or taken them anew since"
    }
}
