//! The recent refusals, grouped by who did what to whom, in a sentence each: the first thing on the board, after the leases
//! that failovers have lost (`losses.rs`).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use lockwarden_control::telemetry::events::LockEvent;
use lockwarden_control::telemetry::vocabulary::DecisionKind;
use lockwarden_control::text::escape::spell;
use lockwarden_control::text::numbers::{counted, number};
use lockwarden_lock::decision::Operation;
use lockwarden_lock::reason::Reason;

use super::api;
use super::api::DecisionsQuery;
use super::decisions::{lost_of, narrowed};
use super::losses;
use super::service::ViewService;
use super::store::Decided;

/// Sentences in a reply without a limit in the request.
const USUAL_INCIDENTS: usize = 100;

/// The holder of the lock, in relation to the refused client.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Holder {
    /// Not seen, or the same connection.
    Unsaid,
    /// Another connection of the same application.
    Sibling,
    Other(String),
}

/// The common part of the refusals of one incident.
#[derive(PartialEq, Eq, Hash)]
struct Common {
    application: Option<String>,
    holder: Holder,
    namespace: Arc<str>,
    reason: Reason,
    operation: Option<Operation>,
    command: &'static str,
    policy: String,
    rule: Option<String>,
    watched: bool,
    overlap: bool,
}

/// An incident under construction.
struct Group {
    count: u64,
    keys: HashSet<(u32, String)>,
    /// The newest.
    example: Arc<LockEvent>,
}

/// `GET /api/v1/incidents`: lost leases first, then those where a former holder acted, then the most frequent.
pub(super) fn incidents(service: &ViewService, query: &DecisionsQuery) -> Vec<api::Incident> {
    let limit = query.limit.unwrap_or(USUAL_INCIDENTS);
    let mut groups: HashMap<Common, Group> = HashMap::new();
    let seen = service.view.seen();
    let lost = losses::incidents(&seen, &lost_of(&seen, query, usize::MAX));
    let refused = narrowed(&seen, query, usize::MAX);
    // Putting them into words needs no mutex.
    drop(seen);
    for Decided { entry, holder } in refused {
        let application = entry.caller.as_ref().map(|caller| caller.application());
        let other = holder.filter(|holder| {
            let by = entry.caller.as_ref();
            by.is_none_or(|by| by.session != holder.session)
        });
        let holder = match other.map(|holder| holder.application()) {
            None => Holder::Unsaid,
            Some(name) if application.as_ref() == Some(&name) => Holder::Sibling,
            Some(name) => Holder::Other(name),
        };
        let Some(said) = &entry.verdict else {
            continue;
        };
        let common = Common {
            application,
            holder,
            namespace: entry.namespace.clone(),
            reason: said.reason.unwrap_or(Reason::Other),
            operation: entry.operation,
            command: entry.command,
            policy: said.policy.to_string(),
            rule: said.rule.as_deref().map(str::to_owned),
            watched: said.kind == DecisionKind::WouldDeny,
            overlap: entry.overlap,
        };
        // The newest come first.
        let group =
            groups.entry(common).or_insert_with(|| Group { count: 0, keys: HashSet::new(), example: entry.clone() });
        group.count += 1;
        group.keys.insert((entry.key.db(), spell(entry.key.bytes())));
    }
    let refused = groups.into_iter();
    let refused = refused.map(|(common, group)| told(common, &group));
    let mut told: Vec<api::Incident> = lost.into_iter().chain(refused).collect();
    told.sort_by(|a, b| {
        let is_lost = |one: &api::Incident| one.reason == losses::LEASE_LOST;
        let rank = |one: &api::Incident| (is_lost(one), one.overlap, one.count, one.last);
        rank(b).cmp(&rank(a)).then_with(|| a.key.cmp(&b.key))
    });
    told.truncate(limit);
    told
}

fn told(common: Common, group: &Group) -> api::Incident {
    let example = &group.example;
    let key = spell(example.key.bytes());
    let did = did(&common);
    let more = (group.keys.len() as u64).saturating_sub(1);
    let mut then = match more {
        0 => String::new(),
        more => format!(" and {}", counted(more, "more lock", "more locks")),
    };
    then.push_str(&circumstance(&common));
    then.push_str(&match group.count {
        1 => ", once".to_owned(),
        2 => ", twice".to_owned(),
        count => format!(", {} times", number(count)),
    });
    let application = common.application;
    let who = application.as_deref().unwrap_or("a client");
    let what = if key.is_empty() { "locks" } else { &key };
    api::Incident {
        sentence: format!("{who} {did} {what}{then}"),
        application,
        did,
        key,
        db: example.key.db(),
        then,
        holder: match common.holder {
            Holder::Other(name) => Some(name),
            Holder::Unsaid | Holder::Sibling => None,
        },
        namespace: common.namespace.to_string(),
        reason: common.reason.word().to_owned(),
        decision: if common.watched { "would-deny" } else { "deny" }.to_owned(),
        overlap: common.overlap,
        keys: group.keys.len() as u64,
        count: group.count,
        last: example.at_ms,
        id: example.id.as_deref().map(str::to_owned),
    }
}

/// What the application did, or was kept from doing.
fn did(common: &Common) -> String {
    let (past, doing) = verb(common);
    match common.watched {
        true => past.to_owned(),
        false => format!("was kept from {doing}"),
    }
}

fn verb(common: &Common) -> (&'static str, &'static str) {
    match common.reason {
        Reason::Overwrite => return ("wrote over", "writing over"),
        Reason::OpaqueWrite => return ("changed", "changing"),
        Reason::UnsafeScript => return ("ran a script on", "running a script on"),
        Reason::BulkDelete => return ("erased", "erasing"),
        Reason::NotOwner
        | Reason::Expired
        | Reason::TakeOver
        | Reason::NoTtl
        | Reason::TtlTooLong
        | Reason::SharedToken
        | Reason::StaleFence
        | Reason::Quarantine
        | Reason::Limited
        | Reason::Other => {}
    }
    match common.operation {
        Some(Operation::Acquire) => ("took", "taking"),
        Some(Operation::Extend) => ("extended", "extending"),
        Some(Operation::Release) if matches!(common.command, "del" | "unlink") => ("deleted", "deleting"),
        Some(Operation::Release) => ("released", "releasing"),
        Some(Operation::TakeOver) => ("took over", "taking over"),
        Some(Operation::Inspect) => ("read", "reading"),
        Some(Operation::GuardedWrite) => ("wrote to what is guarded by", "writing to what is guarded by"),
        Some(Operation::Write) | None => ("changed", "changing"),
    }
}

/// Why it is wrong.
fn circumstance(common: &Common) -> String {
    let held = match &common.holder {
        Holder::Other(name) => format!(", which {name} held"),
        Holder::Sibling => ", which another connection of it held".to_owned(),
        Holder::Unsaid => String::new(),
    };
    let command = common.command.to_ascii_uppercase();
    let and = if held.is_empty() { "" } else { "," };
    if let Some(rule) = &common.rule {
        return format!(" against the rule {rule}");
    }
    match common.reason {
        Reason::NotOwner if held.is_empty() => ", which it did not hold".to_owned(),
        Reason::NotOwner | Reason::Overwrite => held,
        Reason::Expired => match &common.holder {
            Holder::Other(name) => {
                format!(" after its own lease had run out, while {name} held it")
            }
            Holder::Sibling | Holder::Unsaid => " after its own lease had run out".to_owned(),
        },
        Reason::TakeOver => format!("{held}{and} before its deadline had passed"),
        Reason::OpaqueWrite => format!("{held}{and} by {command}, which means nothing to a lock"),
        Reason::NoTtl => " without a TTL".to_owned(),
        Reason::TtlTooLong => " with a TTL above the ceiling".to_owned(),
        Reason::SharedToken => " with a value that other clients use, too".to_owned(),
        Reason::StaleFence => format!("{held}{and} with an old fencing token"),
        Reason::UnsafeScript => format!("{held}{and} and the script cannot be judged"),
        Reason::BulkDelete => format!(" by {command} while locks were held"),
        Reason::Quarantine => " in the quarantine of the namespace".to_owned(),
        Reason::Limited => format!(" against a limit of the policy {}", common.policy),
        Reason::Other => format!(" against the policy {}", common.policy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn common(reason: Reason, operation: Operation, command: &'static str) -> Common {
        Common {
            application: Some("payments-worker".to_owned()),
            holder: Holder::Other("billing".to_owned()),
            namespace: "orders".into(),
            reason,
            operation: Some(operation),
            command,
            policy: "owner-token".to_owned(),
            rule: None,
            watched: true,
            overlap: false,
        }
    }

    fn sentence(common: &Common) -> String {
        format!("{} K{}", did(common), circumstance(common))
    }

    #[test]
    fn each_reason_makes_a_sentence_that_names_the_holder_where_that_matters() {
        for (reason, operation, command, words) in [
            (Reason::NotOwner, Operation::Release, "del", "deleted K, which billing held"),
            (Reason::NotOwner, Operation::Extend, "pexpire", "extended K, which billing held"),
            (
                Reason::Expired,
                Operation::Release,
                "eval",
                "released K after its own lease had run out, while billing held it",
            ),
            (Reason::Overwrite, Operation::Write, "set", "wrote over K, which billing held"),
            (
                Reason::TakeOver,
                Operation::TakeOver,
                "getset",
                "took over K, which billing held, before its deadline had passed",
            ),
            (Reason::NoTtl, Operation::Acquire, "setnx", "took K without a TTL"),
            (
                Reason::OpaqueWrite,
                Operation::Write,
                "append",
                "changed K, which billing held, by APPEND, which means nothing to a lock",
            ),
            (Reason::BulkDelete, Operation::Write, "flushall", "erased K by FLUSHALL while locks were held"),
        ] {
            assert_eq!(sentence(&common(reason, operation, command)), words);
        }
    }

    #[test]
    fn what_was_refused_is_told_as_not_done_and_an_unknown_holder_is_not_named() {
        let mut refused = common(Reason::NotOwner, Operation::Release, "del");
        refused.watched = false;
        refused.holder = Holder::Unsaid;
        assert_eq!(sentence(&refused), "was kept from deleting K, which it did not hold");
        refused.holder = Holder::Sibling;
        assert_eq!(sentence(&refused), "was kept from deleting K, which another connection of it held");
    }
}
