//! `lockwarden_decisions_total` of one namespace: what was allowed is one addition, what was refused
//! is found in a short list that cannot grow without end. It never decides anything; the reader
//! comes from `namespaces.rs`.

use std::sync::{OnceLock, PoisonError, RwLock};

use lockwarden_lock::reason::Reason;
use prometheus::{IntCounter, IntCounterVec, Result};

use super::declaration::Handle;
use crate::telemetry::vocabulary::{DecisionKind, Label, ModeLabel, OperationLabel};

/// Series of refusals a namespace may have, in addition to 4 that stand for all further ones.
/// 18 in each mode are there from the start, so one that has been in one mode only has room for 18 of its own
/// policies. Allowed operations are at most 19 more, of which 9 got or would have got another TTL, and 31 namespaces at this size stay under 6,000 series.
const REFUSAL_SERIES: usize = 36;

/// Refusals that the built-in policies can make, there at 0 from the start: an alert on any of them
/// must see the first one. A policy's `shared-token` and the like are here although no built-in
/// setting may ask for them, because settings change with a reload and dashboards do not.
const REFUSALS: [(OperationLabel, Reason, &str); 19] = [
    (OperationLabel::Release, Reason::NotOwner, OWNER_TOKEN),
    (OperationLabel::Release, Reason::Expired, OWNER_TOKEN),
    (OperationLabel::Release, Reason::StaleFence, FENCING),
    (OperationLabel::Extend, Reason::NotOwner, OWNER_TOKEN),
    (OperationLabel::Extend, Reason::Expired, OWNER_TOKEN),
    (OperationLabel::Extend, Reason::StaleFence, FENCING),
    (OperationLabel::Extend, Reason::NoTtl, TTL_CEILING),
    (OperationLabel::Extend, Reason::TtlTooLong, TTL_CEILING),
    (OperationLabel::Extend, Reason::Limited, TTL_CEILING),
    (OperationLabel::Acquire, Reason::NoTtl, TTL_CEILING),
    (OperationLabel::Acquire, Reason::TtlTooLong, TTL_CEILING),
    (OperationLabel::Acquire, Reason::SharedToken, OWNER_TOKEN),
    (OperationLabel::Acquire, Reason::Quarantine, LOCKWARDEN),
    (OperationLabel::Write, Reason::Overwrite, OWNER_TOKEN),
    (OperationLabel::Write, Reason::OpaqueWrite, OWNER_TOKEN),
    (OperationLabel::Write, Reason::BulkDelete, LOCKWARDEN),
    (OperationLabel::Write, Reason::UnsafeScript, "scripts"),
    (OperationLabel::Write, Reason::StaleFence, FENCING),
    (OperationLabel::Other, Reason::TakeOver, OWNER_TOKEN),
];
const OWNER_TOKEN: &str = "owner-token";
const FENCING: &str = "fencing";
/// Whatever the chain of a namespace is: a FLUSH is about all of them.
const LOCKWARDEN: &str = "lockwarden";
const TTL_CEILING: &str = "ttl-ceiling";

/// What stands for a policy or a reason that has no series of its own.
pub(super) const FOLDED: &str = "__other__";

pub(super) struct Decisions {
    vec: IntCounterVec,
    /// By mode, operation, and [`Permit`].
    permitted: [[[OnceLock<IntCounter>; 3]; 5]; 2],
    refused: RwLock<Vec<Refused>>,
}

struct Refused {
    operation: OperationLabel,
    refusal: Refusal,
    reason: Option<Reason>,
    policy: Box<str>,
    mode: ModeLabel,
    counter: IntCounter,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Refusal {
    Deny,
    WouldDeny,
}

impl Refusal {
    fn word(self) -> &'static str {
        match self {
            Refusal::Deny => DecisionKind::Deny.word(),
            Refusal::WouldDeny => DecisionKind::WouldDeny.word(),
        }
    }
}

impl Handle for Decisions {
    type Family = IntCounterVec;

    fn of(family: &IntCounterVec, _values: &[&str]) -> Result<Decisions> {
        Ok(Decisions {
            vec: family.clone(),
            permitted: Default::default(),
            refused: RwLock::new(Vec::with_capacity(REFUSAL_SERIES)),
        })
    }
}

impl Decisions {
    /// Makes the series that a namespace in this mode can be expected to need; `overflow` counts what has no room.
    pub(super) fn expect_mode(&self, mode: ModeLabel, overflow: &IntCounter) {
        for operation in OperationLabel::ALL {
            self.permitted(*operation, Permit::Allow, mode);
        }
        for operation in [OperationLabel::Acquire, OperationLabel::Extend] {
            self.permitted(operation, Permit::Modify, mode);
            if mode == ModeLabel::Monitor {
                self.permitted(operation, Permit::WouldModify, mode);
            }
        }
        let refusal = match mode {
            ModeLabel::Enforce => Refusal::Deny,
            ModeLabel::Monitor => Refusal::WouldDeny,
        };
        for (operation, reason, policy) in REFUSALS {
            self.refused(operation, refusal, Some(reason), policy, mode, overflow);
        }
    }

    pub(super) fn count(
        &self,
        operation: OperationLabel,
        decision: DecisionKind,
        reason: Option<Reason>,
        policy: &str,
        mode: ModeLabel,
        overflow: &IntCounter,
    ) {
        match decision {
            DecisionKind::Allow => self.permitted(operation, Permit::Allow, mode).inc(),
            DecisionKind::Modify => self.permitted(operation, Permit::Modify, mode).inc(),
            DecisionKind::WouldModify => {
                self.permitted(operation, Permit::WouldModify, mode).inc();
            }
            DecisionKind::Deny => {
                self.refused(operation, Refusal::Deny, reason, policy, mode, overflow).inc();
            }
            DecisionKind::WouldDeny => {
                self.refused(operation, Refusal::WouldDeny, reason, policy, mode, overflow).inc();
            }
        }
    }

    fn permitted(&self, operation: OperationLabel, permit: Permit, mode: ModeLabel) -> &IntCounter {
        let cell = &self.permitted[mode.index()][operation.index()][permit as usize];
        cell.get_or_init(|| {
            let decision = match permit {
                Permit::Allow => DecisionKind::Allow,
                Permit::Modify => DecisionKind::Modify,
                Permit::WouldModify => DecisionKind::WouldModify,
            };
            self.series(operation.word(), decision.word(), "", "", mode)
        })
    }

    fn refused(
        &self,
        operation: OperationLabel,
        refusal: Refusal,
        reason: Option<Reason>,
        policy: &str,
        mode: ModeLabel,
        overflow: &IntCounter,
    ) -> IntCounter {
        let same = |known: &&Refused| {
            known.operation == operation
                && known.refusal == refusal
                && known.reason == reason
                && known.mode == mode
                && *known.policy == *policy
        };
        let known = self.refused.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.iter().find(same) {
            return found.counter.clone();
        }
        drop(known);

        let mut known = self.refused.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have been quicker between the two locks.
        if let Some(found) = known.iter().find(same) {
            return found.counter.clone();
        }
        if known.len() >= REFUSAL_SERIES {
            overflow.inc();
            return self.series(FOLDED, refusal.word(), FOLDED, FOLDED, mode);
        }
        let word = reason.map_or("", Reason::word);
        let counter = self.series(operation.word(), refusal.word(), word, policy, mode);
        known.push(Refused { operation, refusal, reason, policy: policy.into(), mode, counter: counter.clone() });
        counter
    }

    fn series(&self, operation: &str, decision: &str, reason: &str, policy: &str, mode: ModeLabel) -> IntCounter {
        self.vec.with_label_values(&[operation, decision, reason, policy, mode.word()])
    }
}

#[derive(Clone, Copy)]
enum Permit {
    Allow,
    Modify,
    WouldModify,
}
