//! What an outcome means for what is remembered: the connection's evidence, keep-alive, the mirror,
//! the counters and the log. It changes no reply.

mod findings;
mod lease;
mod tell;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use bytes::Bytes;
use lockwarden_control::clock;
use lockwarden_control::clock::Moment;
use lockwarden_control::ruleset::{Active, mode_label};
use lockwarden_control::telemetry::events::{Asked, Took, Verdict, asked_about};
use lockwarden_control::telemetry::vocabulary::{
    AcquireOutcome, DecisionKind, KeepAliveOutcome, Observation, ReleaseOutcome,
};
use lockwarden_control::text::escape::spell;
use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::decision::Operation;
use lockwarden_lock::lease::LeaseEvent;
use lockwarden_lock::op::{KeyPlace, LockCommand, LockOp, Target};
use lockwarden_lock::outcome::{
    self, Answer, Answers, Ended, Granted, NotAnAnswer, Outcome, Refused as StepRefused, ScriptEnd, StandsFor,
    Unconfirmed,
};
use lockwarden_lock::plan::EnforcedTerms;
use lockwarden_lock::reason::Reason;
use lockwarden_lock::record_version;
use lockwarden_lock::rules::{Durability, Released};
use lockwarden_lock::settle::Allowed;
use lockwarden_lock::time::{AskedMs, ProxyTime, RedisTime};
use lockwarden_lock::token::{FencingToken, Grant, Process};

use crate::session::client::Client;
use crate::session::judge::refusals::policy_of;
use crate::session::step::awaited::{Confirmation, InFlight};
use crate::state::effects;

/// One lock of a step, with its outcome.
struct Settled<'a> {
    name: &'static str,
    operation: Operation,
    target: &'a Target,
    key: &'a DbKey,
    allowed: &'a Allowed,
    answer: &'a Answer,
    /// The lease before is gone with its record.
    vanished: bool,
    grant: Option<Grant>,
    stored: Option<&'a Bytes>,
    /// The owner token that the command names.
    named: Option<&'a Bytes>,
    /// The command names no owner token.
    tokenless: bool,
    /// It is a script that takes locks.
    takes: bool,
    enforced: bool,
    /// Where it is not enforced: the terms that the lease would have got instead.
    would_give: Option<EnforcedTerms>,
    /// If it is refused: whether the changes that the script made to keys that are no locks remain.
    others_stand: bool,
    /// What the policies were asked about it, where questions are kept.
    asked: Box<[Asked]>,
    /// How long the whole step took.
    took: Took,
    /// The holder's process that Redis was told for the record.
    told: Process,
    /// The durability that was wanted, if too few replicas confirmed the step.
    unconfirmed: Option<Durability>,
    /// How many bytes of its replies the client had taken when its answer came.
    spoken_after: u64,
    /// When its answer came.
    now: Moment,
}

/// Which lock it is.
struct Lock<'a> {
    target: &'a Target,
    key: &'a DbKey,
    grant: Option<Grant>,
}

/// Whether a lock of a step stands for the locks that its script may touch without declaring them.
fn stands_for_others(op: &LockOp, index: usize) -> bool {
    let LockOp::Wrapped { locks, .. } = op else {
        return false;
    };
    locks.get(index).is_some_and(|(_, place)| *place == KeyPlace::ANY)
}

impl Settled<'_> {
    /// Whether it asked for the lock.
    fn acquires(&self) -> bool {
        matches!(self.operation, Operation::Acquire | Operation::TakeOver)
    }

    /// Why its client was told that the step failed, if it was told so although the step did something.
    fn doubt(&self) -> Option<String> {
        let wanted = self.unconfirmed?;
        let what = match self.answer.outcome {
            Outcome::Unconfirmed(what) => what,
            Outcome::Extended { .. } => Unconfirmed::Extension,
            _ => return None,
        };
        Some(outcome::unconfirmed_words(what, wanted))
    }

    /// When the step whose reply has just come was sent: no TTL that it set ends sooner than that long after it. In a
    /// block that is not known, and the time of the reply is used.
    fn sent(&self, now: Instant) -> Instant {
        let waited = self.took.redis.unwrap_or_default();
        now.checked_sub(waited).unwrap_or(now)
    }

    /// What is left of a TTL that the step set, when its reply is read: that may be long after Redis set it.
    fn left(&self, ttl: Option<Duration>) -> Option<Duration> {
        let waited = self.took.redis.unwrap_or_default();
        ttl.map(|ttl| ttl.saturating_sub(waited))
    }
}

/// The terms that enforce mode would have given the lease that a step began or continued.
fn would_give(op: &LockOp, allowed: &Allowed, outcome: &Outcome) -> Option<EnforcedTerms> {
    let asked = match outcome {
        Outcome::Granted(granted) if granted.again.is_none() => granted.asked_ms,
        Outcome::Extended { asked_ms, .. } => (*asked_ms)?,
        Outcome::Granted(_)
        | Outcome::Busy { .. }
        | Outcome::Released { .. }
        | Outcome::Absent { .. }
        | Outcome::Refused(_)
        | Outcome::Ungoverned
        | Outcome::Unrecorded
        | Outcome::Different { .. }
        | Outcome::ConditionUnmet
        | Outcome::Untouched { .. }
        | Outcome::Unconfirmed(_)
        | Outcome::Failed => return None,
    };
    EnforcedTerms::instead_of(asked, op, allowed)
}

/// What a script did to a lock, as the operation of a command that would have done the same.
fn deed(op: &LockOp, answer: &Answer) -> Option<Operation> {
    let LockOp::Wrapped { .. } = op else {
        return None;
    };
    match &answer.outcome {
        Outcome::Granted(_) | Outcome::Unconfirmed(_) => Some(Operation::Acquire),
        Outcome::Extended { .. } => Some(Operation::Extend),
        Outcome::Released { .. } => Some(Operation::Release),
        Outcome::Busy { .. }
        | Outcome::Absent { .. }
        | Outcome::Refused(_)
        | Outcome::Ungoverned
        | Outcome::Unrecorded
        | Outcome::Different { .. }
        | Outcome::ConditionUnmet
        | Outcome::Untouched { .. }
        | Outcome::Failed => answer.deed,
    }
}

/// The value that a command, or what a script did, stores in a lock.
fn stored<'a>(op: &'a LockOp, index: usize, answer: &'a Answer) -> Option<&'a Bytes> {
    match op {
        LockOp::Acquire { value, .. } | LockOp::Take { value, .. } | LockOp::Store { value, .. } => Some(value),
        LockOp::AcquireAll { locks, .. } => locks.get(index).map(|(_, value)| value),
        LockOp::Extend { .. } | LockOp::Release { .. } | LockOp::ReleaseMany { .. } => None,
        LockOp::Wrapped { .. } => match &answer.outcome {
            Outcome::Granted(granted) => granted.old.as_ref(),
            _ => None,
        },
    }
}

/// Whether a command gives locks back, or extends them, without naming an owner token.
fn is_tokenless(command: &LockCommand) -> bool {
    match &command.op {
        LockOp::Release { comparison, .. } | LockOp::Extend { comparison, .. } => comparison.is_none(),
        LockOp::ReleaseMany { .. } => true,
        LockOp::Acquire { .. } | LockOp::Take { .. } | LockOp::AcquireAll { .. } | LockOp::Store { .. } => false,
        LockOp::Wrapped { .. } => command.script_tokens().next().is_none(),
    }
}

/// A TTL that was cut is counted, and makes another decision; so does one that enforce mode would have given or cut.
fn clamped_or(is_clamped: bool, otherwise: DecisionKind, active: &Active, one: &Settled<'_>) -> DecisionKind {
    if one.would_give.is_some() {
        return DecisionKind::WouldModify;
    }
    if !is_clamped {
        return otherwise;
    }
    let metrics = &active.namespace(one.target.namespace).metrics;
    metrics.ttl_clamped.inc();
    DecisionKind::Modify
}

/// When the TTL that was asked for ends, if one was. A time beyond the clock's range means never.
fn asked_end(asked: AskedMs, now: Instant) -> Option<Instant> {
    now.checked_add(asked.span()?)
}

impl Client {
    /// Remembers what a step did.
    pub(crate) fn account(
        &mut self,
        flight: &InFlight,
        answers: &Answers,
        active: &Active,
        (spoken_after, now): (u64, Moment),
    ) -> Result<(), NotAnAnswer> {
        self.refused.clear();
        let op = &flight.permitted.command().op;
        let operation = op.operation(ProxyTime(now.unix_ms));
        let others_stand = answers.others_stand();
        match answers {
            Answers::Script(ScriptEnd::Undone { lost, .. }, ..) if *lost > 0 => tracing::error!(
                keys = lost,
                key = %String::from_utf8_lossy(&op.target().key),
                client = %self.peer,
                "Redis would not have all keys put back that a refused script had changed"
            ),
            Answers::Error(_) | Answers::Lacking(_) if operation == Operation::Acquire => {
                let metrics = &active.namespace(op.target().namespace).metrics;
                metrics.acquires.at(AcquireOutcome::Error).inc();
            }
            Answers::One(_) | Answers::Many(..) | Answers::Script(..) | Answers::Error(_) | Answers::Lacking(_) => {}
        }
        let locks = flight.permitted.locks();
        let account = |this: &mut Client, index: usize, answer: &Answer, lock: Lock<'_>| {
            let vanished = match locks[index].rules.released {
                Released::Record => this.vanished(lock.key, answer, now),
                Released::Forget => None,
            };
            let is_vanished = vanished.is_some();
            let otherwise = vanished.or_else(|| this.deleted_around(lock.key, answer, active, now.at));
            let answer = otherwise.as_ref().unwrap_or(answer);
            let allowed = &locks[index];
            let enforced = flight.permitted.enforces();
            let settled = Settled {
                name: flight.permitted.command().name,
                operation: deed(op, answer).unwrap_or(operation),
                target: lock.target,
                key: lock.key,
                allowed,
                answer,
                vanished: is_vanished,
                grant: lock.grant,
                stored: stored(op, index, answer),
                named: op.owner_token(index),
                tokenless: is_tokenless(flight.permitted.command()),
                takes: matches!(op, LockOp::Wrapped { script, .. } if script.takes_locks()),
                enforced,
                would_give: match enforced {
                    true => None,
                    false => would_give(op, allowed, &answer.outcome),
                },
                others_stand,
                asked: asked_about(&flight.asked, index, locks.len()),
                took: flight.took,
                told: flight.told,
                unconfirmed: match flight.confirmation {
                    Some(Confirmation::TooFew { wanted, .. }) => Some(wanted),
                    Some(Confirmation::Enough) | None => None,
                },
                spoken_after,
                now,
            };
            if active.namespace(lock.target.namespace).is_implied {
                this.sight_judged(flight.permitted.command(), lock.key, answer);
            }
            this.account_one(op, &settled, active, now.at);
        };
        for (index, (allowed, answer)) in answers.of_each(locks)?.into_iter().enumerate() {
            if stands_for_others(op, index) {
                continue;
            }
            let lock = Lock { target: &allowed.lock.target, key: &allowed.lock.key, grant: allowed.lock.grant() };
            account(self, index, answer, lock);
        }
        for adopted in answers.adopted() {
            let allowed = locks.get(adopted.place).ok_or(NotAnAnswer)?;
            let target = Target { namespace: allowed.lock.target.namespace, key: adopted.key.clone() };
            let lock = Lock {
                target: &target,
                key: &DbKey::new(allowed.lock.key.db(), &adopted.key),
                grant: allowed.lock.grant().map(|grant| grant.further(adopted.count)),
            };
            account(self, adopted.place, &adopted.answer, lock);
        }
        Ok(())
    }

    /// What an answer means if a lock that this proxy granted has no record any more and was not released through
    /// this proxy: the lease was evicted or deleted on the server itself, and counts as one that ran out.
    fn vanished(&self, key: &DbKey, answer: &Answer, now: Moment) -> Option<Answer> {
        let (Outcome::Granted(Granted { ended: Ended::Unrecorded, .. }) | Outcome::Absent { unrecorded: true, .. }) =
            answer.outcome
        else {
            return None;
        };
        let lease = self.shared.mirror.is_unrecorded(key, now.at)?;
        let mut answer = answer.clone();
        let held = now.at.saturating_duration_since(lease.since.instant());
        let held_ms = clock::ms(held);
        match &mut answer.outcome {
            Outcome::Granted(granted) => {
                granted.ended = Ended::RanOut(RedisTime(granted.now.0.saturating_sub(held_ms)));
            }
            Outcome::Absent { ran_out, .. } => *ran_out = true,
            _ => {}
        }
        tracing::warn!(
            key = %spell(key.bytes()),
            fence = lease.fence.0,
            held_ms,
            "a lease and its record are gone: they were evicted or deleted on Redis itself"
        );
        Some(answer)
    }

    fn account_one(&mut self, op: &LockOp, one: &Settled<'_>, active: &Active, now: Instant) {
        if let Some(error) = &one.answer.unrecorded {
            self.could_not_record(one, error, active);
            return;
        }
        if let Some(version) = one.answer.later {
            self.met_later_record(one.key.bytes(), version);
        }
        // Before what the session remembers of its lapsed lease is replaced.
        let mut overlap = self.would_be_refused(one, active, now);
        let metrics = &active.namespace(one.target.namespace).metrics;
        let decision = match &one.answer.outcome {
            Outcome::Granted(granted) => self.account_granted(op, one, granted, active, now),
            Outcome::Extended { ttl_ms, kept, own, asked_ms, .. } => {
                let is_clamped = self.clamped(op, *ttl_ms, one);
                self.touched_the_lease(one, active);
                self.extended(one, (*ttl_ms, *asked_ms), *kept, *own, now);
                if let (true, Some(asked_ms)) = (*own, asked_ms) {
                    self.evidence.asked(one.key, asked_end(*asked_ms, now));
                }
                clamped_or(is_clamped, DecisionKind::Allow, active, one)
            }
            Outcome::Busy { governed, own, .. } => {
                self.account_contended(one, *governed, *own, active, now);
                DecisionKind::Allow
            }
            Outcome::Released { fence, taken_over, .. } => {
                self.account_released(one, *fence, *taken_over, active, now);
                DecisionKind::Allow
            }
            Outcome::Absent { ran_out, .. } => {
                self.account_absent(one, *ran_out, active, now);
                DecisionKind::Allow
            }
            Outcome::Refused(refused) => return self.account_refused(one, refused, active, now),
            Outcome::Different { late } => {
                if *late {
                    self.comes_back_late(one, false, active);
                }
                overlap = self.acted_late(one, *late, now);
                if self.account_different(one, overlap, active) {
                    return;
                }
                DecisionKind::Allow
            }
            Outcome::Untouched { governed, own } => {
                let LockOp::Wrapped { script, .. } = op else {
                    return;
                };
                // A script that takes locks and changed nothing met one that is held.
                if script.takes_locks() {
                    self.account_contended(one, *governed, *own, active, now);
                } else if !governed {
                    metrics.ungoverned.inc();
                }
                DecisionKind::Allow
            }
            Outcome::Unconfirmed(_) => {
                metrics.acquires.at(AcquireOutcome::Contended).inc();
                self.refused_the_lock(one, false, active, now);
                DecisionKind::Allow
            }
            Outcome::Ungoverned | Outcome::Unrecorded => {
                metrics.ungoverned.inc();
                DecisionKind::Allow
            }
            Outcome::ConditionUnmet => DecisionKind::Allow,
            Outcome::Failed => {
                if one.acquires() {
                    metrics.acquires.at(AcquireOutcome::Error).inc();
                }
                DecisionKind::Allow
            }
        };
        let (id, mut verdict) = self.decided(one, decision, active);
        if let Some(doubt) = one.doubt() {
            verdict.detail = Some(doubt.into());
        }
        self.tell_of(one, overlap, id, verdict, active);
    }

    /// The lock's record was written by a later version: that is logged once.
    fn met_later_record(&self, key: &[u8], version: u8) {
        if self.shared.later_records.met(version) {
            tracing::warn!(
                key = %spell(key),
                record = %char::from(version),
                known = %char::from(record_version::VERSION),
                "records of a later version of lockwarden are on this Redis: their locks are governed by the proxies of \
                 that version only, and here Redis's own answers count until those records are gone"
            );
        }
    }

    /// Where refusals are not carried out: counts what else would have been refused. Returns whether a former holder
    /// acted while another client held the lock.
    fn would_be_refused(&mut self, one: &Settled<'_>, active: &Active, now: Instant) -> bool {
        let is_different = matches!(one.answer.outcome, Outcome::Different { .. });
        let Some(would) = one.answer.would.filter(|_| !one.enforced && !is_different) else {
            return false;
        };
        if would.late {
            self.comes_back_late(one, false, active);
        }
        let overlap = self.acted_late(one, would.late, now);
        if overlap {
            let metrics = &active.namespace(one.target.namespace).metrics;
            metrics.overlaps.inc();
        }
        if would.stands_for == StandsFor::Debt {
            self.observed(Observation::Debt, one.target, active);
        }
        overlap
    }

    fn account_granted(
        &mut self,
        op: &LockOp,
        one: &Settled<'_>,
        granted: &Granted,
        active: &Active,
        now: Instant,
    ) -> DecisionKind {
        let metrics = &active.namespace(one.target.namespace).metrics;
        let outcome = match granted.again {
            Some(_) => AcquireOutcome::Repeated,
            None => AcquireOutcome::Acquired,
        };
        metrics.acquires.at(outcome).inc();
        let is_clamped = self.clamped(op, granted.ttl_ms, one);
        if let LockOp::Wrapped { script, .. } = op {
            script.took_a_lock();
        }
        let ran_out = self.ran_out_before(one, granted, active, now);
        self.granted(one, granted, ran_out, active, now);
        let otherwise = match granted.kept {
            true => DecisionKind::Modify,
            false => DecisionKind::Allow,
        };
        clamped_or(is_clamped, otherwise, active, one)
    }

    fn account_contended(&mut self, one: &Settled<'_>, governed: bool, own: bool, active: &Active, now: Instant) {
        let metrics = &active.namespace(one.target.namespace).metrics;
        metrics.acquires.at(AcquireOutcome::Contended).inc();
        if !governed {
            metrics.ungoverned.inc();
        }
        self.refused_the_lock(one, own, active, now);
    }

    fn account_released(
        &mut self,
        one: &Settled<'_>,
        fence: FencingToken,
        taken_over: bool,
        active: &Active,
        now: Instant,
    ) {
        let details = active.namespace(one.target.namespace);
        details.metrics.releases.at(ReleaseOutcome::Released).inc();
        if taken_over {
            tracing::info!(
                namespace = %details.name,
                key = %String::from_utf8_lossy(&one.target.key),
                client = %self.peer,
                certificate = self.certificate(),
                "a lock whose deadline had passed was taken over"
            );
        }
        self.touched_the_lease(one, active);
        if let Some(would) = one.answer.would {
            self.handed_over(one, would.reason, active, now);
        }
        self.evidence.released(one.key);
        // Another session may have heard of its grant before this one heard of its release. Then what is remembered
        // of the lock belongs to the newer lease.
        let current = self.shared.mirror.lease(one.key);
        if fence.0 > 0 && current.is_some_and(|current| current.fence > fence) {
            return;
        }
        self.shared.jobs.released(one.key, self.connection.client());
        self.shared.renewals.remove(one.key, None);
        let ended = self.shared.mirror.apply(one.key, LeaseEvent::Released, now);
        if let Some(ended) = ended {
            effects::count_hold(details, &ended);
        }
    }

    fn account_absent(&mut self, one: &Settled<'_>, ran_out: bool, active: &Active, now: Instant) {
        self.comes_back_late(one, ran_out, active);
        let metrics = &active.namespace(one.target.namespace).metrics;
        if one.operation == Operation::Release {
            metrics.releases.at(ReleaseOutcome::Absent).inc();
            self.shared.jobs.released(one.key, self.connection.client());
        }
        if ran_out {
            metrics.expired_while_held.inc();
            self.ran_out_unnoticed(one, active);
            self.evidence.lapsed(one.key, now);
            self.shared.renewals.remove(one.key, Some(self.number));
        }
    }

    fn account_refused(&mut self, one: &Settled<'_>, refused: &StepRefused, active: &Active, now: Instant) {
        let metrics = &active.namespace(one.target.namespace).metrics;
        if one.operation == Operation::Release {
            metrics.releases.at(ReleaseOutcome::NotOwner).inc();
        }
        if one.acquires() && refused.reason == Reason::Overwrite {
            metrics.acquires.at(AcquireOutcome::Denied).inc();
        }
        if refused.late {
            self.comes_back_late(one, false, active);
        }
        let overlap = self.acted_late(one, refused.late, now);
        if overlap {
            metrics.overlaps.inc();
        }
        self.touched_the_lease(one, active);
        self.handed_over(one, refused.reason, active, now);
        if refused.stands_for == StandsFor::Debt {
            self.observed(Observation::Debt, one.target, active);
        }
        if refused.keep_alive_ended {
            self.shared.renewals.remove(one.key, None);
            metrics.keep_alive.at(KeepAliveOutcome::Ended).inc();
        }
        let (id, verdict) = self.refused_by_step(one, refused, active);
        self.tell_of(one, overlap, Some(id), verdict, active);
    }

    /// The application's own comparison failed. Returns whether that was reported as an act of a former holder.
    fn account_different(&mut self, one: &Settled<'_>, overlap: bool, active: &Active) -> bool {
        let metrics = &active.namespace(one.target.namespace).metrics;
        if one.operation == Operation::Release {
            metrics.releases.at(ReleaseOutcome::NotOwner).inc();
        }
        if !overlap {
            return false;
        }
        metrics.overlaps.inc();
        let policy = policy_of(Reason::Expired, one.target, active);
        let kind = match one.enforced {
            true => DecisionKind::Deny,
            false => DecisionKind::WouldDeny,
        };
        let mode = mode_label(one.allowed.rules.mode);
        metrics.decision(one.operation, kind, Some(Reason::Expired), policy, mode);
        let verdict = Verdict::refused(kind, Reason::Expired, policy, None);
        self.tell_of(one, overlap, None, verdict, active);
        true
    }
}
