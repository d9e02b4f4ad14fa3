//! Asks the policies about every lock of a command: about which operations, and in which terms.

use smallvec::SmallVec;

use super::{Circumstances, Judged, Lock, Said};
use crate::decision::{Decide, Decision, Operation, Proofs, Question, TakeOverRule, Traits, Verdict, WhoAsks};
use crate::evidence::Facts;
use crate::namespace::NamespaceId;
use crate::op::{AskedTtl, Command, Comparison, LockOp, OpaqueKind, Target};
use crate::rules::{Mode, Rules};
use crate::time::AskedMs;
use crate::token::{FencingToken, looks_like_deadline, stored_form};

/// The things that a script may do to a lock, in the order in which its chain is asked.
const DEEDS: [Operation; 3] = [Operation::Acquire, Operation::Extend, Operation::Release];

/// Asks the chain about every lock of a command.
pub fn judge(
    decide: &mut dyn Decide,
    command: &Command,
    locks: SmallVec<[Lock; 1]>,
    rules: &dyn Fn(NamespaceId) -> Rules,
    circumstances: &Circumstances,
    who: &dyn WhoAsks,
) -> SmallVec<[Judged; 1]> {
    let judge_one = |(index, lock): (usize, Lock)| {
        let (target, facts) = (&lock.target, &lock.facts);
        let rules = rules(target.namespace);
        let mut ask = |operation| {
            let question = question(operation, command, index, target, facts, &rules, circumstances);
            decide.decide(target.namespace, &question, who)
        };
        let decision = match command.op() {
            None => ask(Operation::Write),
            Some(LockOp::Wrapped { .. }) => {
                // Only its run shows which of these it does, and a policy cannot be asked in the middle of a step.
                let said = Said::Script(Box::new(DEEDS.map(ask)));
                return Judged { lock, said };
            }
            // The value to be replaced may be a deadline that has passed: then this is a take-over.
            Some(LockOp::Store { comparison: Some(comparison), only_if_exists: true, .. })
                if may_take_over(comparison) =>
            {
                with_take_over(ask(Operation::Extend), ask(Operation::TakeOver))
            }
            // An acquire if the lock is free, an extension if it is the holder's.
            Some(LockOp::Store { only_if_exists: false, wants_old: false, .. } | LockOp::Take { .. }) => {
                either(ask(Operation::Acquire), ask(Operation::Extend))
            }
            Some(op) => ask(op.operation(circumstances.time)),
        };
        let said = Said::Command(decision);
        Judged { lock, said }
    };
    locks.into_iter().enumerate().map(judge_one).collect()
}

/// A command that may turn out as either: refused if an acquire is refused; if only an extension is refused, no proof
/// is sufficient.
fn either(acquire: Decision, extend: Decision) -> Decision {
    let mut obligations = acquire.obligations.merge(extend.obligations);
    if let Verdict::Deny(_) = extend.verdict {
        obligations.require = Some(Proofs::NONE);
    }
    Decision {
        verdict: acquire.verdict,
        obligations,
        fault: acquire.fault.or(extend.fault),
        reported: acquire.reported.or(extend.reported),
        by_next: acquire.by_next,
    }
}

/// A comparison with a deadline is how a waiting client takes over in one command: the compared deadline has passed,
/// and no other client was faster.
fn may_take_over(comparison: &Comparison) -> bool {
    let claim = comparison.names().map(|claim| claim.expose());
    claim.is_some_and(|claim| looks_like_deadline(claim))
}

/// An extension that may turn out as a take-over, if that is allowed too.
fn with_take_over(extend: Decision, take_over: Decision) -> Decision {
    let mut obligations = extend.obligations.clone();
    match take_over.verdict {
        Verdict::Permit => {
            obligations = obligations.merge(take_over.obligations);
            obligations.require = extend.obligations.require;
        }
        Verdict::Deny(_) => obligations.take_over = Some(TakeOverRule::Never),
    }
    Decision {
        obligations,
        fault: extend.fault.or(take_over.fault),
        reported: extend.reported.or(take_over.reported),
        ..extend
    }
}

fn question<'a>(
    operation: Operation,
    command: &'a Command,
    index: usize,
    target: &'a Target,
    facts: &Facts,
    rules: &Rules,
    circumstances: &Circumstances,
) -> Question<'a> {
    let token = command.owner_token(index);
    let (asked, conditional, scripted) = match command {
        Command::Lock(command) => (command.op.asked_ttl(), command.op.is_conditional(), command.op.is_scripted()),
        Command::Opaque(command) => (AskedTtl::None, false, command.kind == OpaqueKind::Script),
    };
    // For a policy, an extension with neither TTL nor value is PERSIST, with or without a comparison.
    let persists = matches!(command.op(), Some(LockOp::Extend { .. })) && asked == AskedTtl::None;
    let ttl_ms = match asked {
        AskedTtl::None => None,
        AskedTtl::For(ms) => Some(u64::try_from(ms).unwrap_or(0)),
        AskedTtl::Until(at) => {
            let at = u64::try_from(at).unwrap_or(0);
            Some(at.saturating_sub(circumstances.time.0))
        }
        // Only the script knows the remaining TTL; it was below the ceiling when it was set.
        AskedTtl::Keep => Some(1),
        AskedTtl::Further(ms) => Some(u64::try_from(ms).unwrap_or(0)),
    };
    let own = facts.own.as_ref().filter(|own| own.lapsed.is_none());
    let left = own.and_then(|own| own.ends);
    Question {
        operation,
        db: circumstances.db,
        key: &target.key,
        owner_token: token.filter(|_| !persists).map(|token| &token[..]),
        ttl_ms: ttl_ms.map(AskedMs),
        proofs: Proofs::NONE
            .with_if(own.is_some() || !facts.queued.is_empty(), Proofs::SESSION)
            .with_if(own.is_some_and(|own| token.is_some_and(|t| own.stored == stored_form(t))), Proofs::TOKEN)
            .with_if(facts.seen.is_some(), Proofs::OBSERVED)
            .with_if(facts.same_identity, Proofs::IDENTITY),
        traits: Traits::NONE
            .with_if(conditional, Traits::CONDITIONAL)
            .with_if(circumstances.transactional, Traits::TRANSACTIONAL)
            .with_if(scripted, Traits::SCRIPTED)
            .with_if(rules.mode == Mode::Monitor, Traits::MONITORED)
            // A lock may be released by another client than took it: that this client itself was refused shows nothing.
            .with_if(facts.refused_since && !rules.hand_over, Traits::REFUSED_SINCE)
            .with_if(facts.shared_token, Traits::SHARED_TOKEN),
        fencing_token: own.map_or(FencingToken(0), |own| own.fence),
        remaining_ms: left.map_or(0, |ends| {
            let left = ends.saturating_duration_since(circumstances.now);
            u64::try_from(left.as_millis()).unwrap_or(u64::MAX)
        }),
        attempts: facts.attempts,
        client: circumstances.client,
        now: circumstances.time,
    }
}
