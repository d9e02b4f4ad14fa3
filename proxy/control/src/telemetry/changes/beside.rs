//! Compares the answers of a `next` chain with those of the chain in force.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use lockwarden_lock::decision::{Decision, Question, Verdict, WhoAsks};

use super::effect::Effect;
use super::list::{Change, Changes, Example};
use crate::clock::now_ms;
use crate::telemetry::audit::{Answer, shown_command};
use crate::telemetry::vocabulary::NextAnswer;
use crate::text::escape::spell;

/// The most different changes that are tracked in a namespace.
const MAX_CHANGES: usize = 128;

/// The comparison of a namespace's two chains, since both were loaded in their present form.
#[derive(Debug)]
pub struct Beside {
    since: u64,
    same: AtomicU64,
    changes: Mutex<Changes>,
}

/// The results so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compared {
    /// Unix ms.
    pub since: u64,
    pub same: u64,
    pub changes: Vec<Change>,
}

impl Beside {
    /// Starts counting now.
    pub(crate) fn new() -> Beside {
        Beside { since: now_ms(), same: AtomicU64::new(0), changes: Mutex::new(Changes::at_most(MAX_CHANGES)) }
    }

    /// Counts the answers of the chain in force and the other one to the same question. Returns how they differ.
    pub fn compare(
        &self,
        (is, next): (&Decision, &Decision),
        question: &Question<'_>,
        (namespace, command): (&str, &str),
        who: &dyn WhoAsks,
    ) -> NextAnswer {
        let effect = |decision: &Decision| {
            let ttl_ms = question.ttl_ms.map(|asked| asked.0);
            Effect::of(&Answer::of(decision), ttl_ms, question.operation)
        };
        let same = || {
            self.same.fetch_add(1, Ordering::Relaxed);
            NextAnswer::Same
        };
        if is == next {
            return same();
        }
        let (was, will_be) = (effect(is), effect(next));
        if was == will_be {
            return same();
        }
        let application = who.describe(question.client).map(|client| client.application).unwrap_or_default();
        let example = || Example {
            at: question.now.0,
            seq: 0,
            namespace: namespace.to_owned(),
            command: shown_command(command).unwrap_or_default(),
            key: spell(question.key),
        };
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        changes.add(&was.change(&will_be), &application, example);
        difference(is, next)
    }

    /// The results so far.
    pub fn found(&self) -> Compared {
        let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        Compared { since: self.since, same: self.same.load(Ordering::Relaxed), changes: changes.listed() }
    }
}

fn difference(is: &Decision, next: &Decision) -> NextAnswer {
    match (&is.verdict, &next.verdict) {
        _ if is.fault.is_some() || next.fault.is_some() => NextAnswer::Fault,
        (Verdict::Permit, Verdict::Permit) => NextAnswer::Obligations,
        (Verdict::Permit, Verdict::Deny(_)) => NextAnswer::PermitToDeny,
        (Verdict::Deny(_), Verdict::Permit) => NextAnswer::DenyToPermit,
        (Verdict::Deny(_), Verdict::Deny(_)) => NextAnswer::Reason,
    }
}
