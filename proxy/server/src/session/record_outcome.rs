//! What an outcome means for what is remembered: the connection's evidence, keep-alive, the mirror,
//! the counters and the log. It changes no reply.

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use bytes::Bytes;
use lockwarden_lock::decision::{Denial, Operation};
use lockwarden_lock::evidence::{DbKey, Own};
use lockwarden_lock::lease::LeaseEvent;
use lockwarden_lock::op::{AskedTtl, LockOp, Target};
use lockwarden_lock::outcome::{
    Answer, Answers, Ended, Granted, NotAnAnswer, OTHERS_STAND, Outcome, Refused as StepRefused,
    ScriptEnd,
};
use lockwarden_lock::plan::{Renewal, Who, outlive_ms};
use lockwarden_lock::reason::Reason;
use lockwarden_lock::rules::{KeepAliveBy, Mode, TrustAddress};
use lockwarden_lock::settle::Allowed;
use lockwarden_lock::token::{Grant, Process, stored_form};

use super::InFlight;
use super::client::Client;
use super::emit_events::{Lease, told};
use super::refusals::policy_of;
use crate::clock::Moment;
use crate::holders::identify;
use crate::random::refusal_id;
use crate::registry::renewals::SameClient;
use crate::registry::undelivered::Undelivered;
use crate::ruleset::{Active, mode_label};
use crate::state::effects;
use crate::telemetry::events::{Asked, EventKind, Took, Verdict, asked_about};
use crate::telemetry::logging::Example;
use crate::telemetry::vocabulary::{
    AcquireOutcome, DecisionKind, KeepAliveOutcome, Observation, ReleaseOutcome, UnjudgedWhy,
};

/// What a record holds as the owner in a lock whose type has none: the type, which is nobody's value.
const TYPES: [&[u8]; 5] = [b"hash", b"zset", b"list", b"set", b"stream"];

/// One lock of a step, with its outcome.
struct Settled<'a> {
    name: &'static str,
    operation: Operation,
    target: &'a Target,
    key: &'a DbKey,
    allowed: &'a Allowed,
    answer: &'a Answer,
    grant: Option<Grant>,
    stored: Option<&'a Bytes>,
    /// The owner token that the command names.
    named: Option<&'a Bytes>,
    /// The command names no owner token.
    tokenless: bool,
    /// It is a script that takes locks.
    takes: bool,
    enforced: bool,
    /// Where it is refused: what the script did to keys that are no locks stands.
    others_stand: bool,
    /// What the policies were asked about it, where somebody keeps that.
    asked: Box<[Asked]>,
    /// How long the whole step took.
    took: Took,
    /// How far the client had taken its replies when its answer came.
    spoken_after: u64,
    /// When its answer came.
    now: Moment,
}

impl Settled<'_> {
    /// When the step was sent, which was answered just now: no TTL that it set ends sooner than that
    /// long after it. In a block that is not known, and the answer's time has to do.
    fn sent(&self, now: Instant) -> Instant {
        let waited = self.took.redis.unwrap_or_default();
        now.checked_sub(waited).unwrap_or(now)
    }
}

/// What a script did to a lock, in the word of a command that would have done the same.
fn deed(op: &LockOp, answer: &Answer) -> Option<Operation> {
    let LockOp::Wrapped { .. } = op else {
        return None;
    };
    match &answer.outcome {
        Outcome::Granted(_) => Some(Operation::Acquire),
        Outcome::Extended { .. } => Some(Operation::Extend),
        Outcome::Released { .. } => Some(Operation::Release),
        _ => answer.deed,
    }
}

/// When the TTL that was asked for is over, if one was. A time beyond the clock is for ever.
fn asked_end(asked_ms: u64, now: Instant) -> Option<Instant> {
    let asked = (asked_ms > 0).then(|| Duration::from_millis(asked_ms))?;
    now.checked_add(asked)
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
        let op = &flight.permitted.command().op;
        let operation = op.operation(now.unix_ms);
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
            Answers::One(_)
            | Answers::Many(..)
            | Answers::Script(..)
            | Answers::Error(_)
            | Answers::Lacking(_) => {}
        }
        let locks = flight.permitted.locks();
        for (index, (allowed, answer)) in answers.of_each(locks)?.into_iter().enumerate() {
            let stored = match op {
                LockOp::Acquire { value, .. }
                | LockOp::Take { value, .. }
                | LockOp::Store { value, .. } => Some(value),
                LockOp::AcquireAll { locks } => locks.get(index).map(|(_, value)| value),
                LockOp::Extend { .. } | LockOp::Release { .. } | LockOp::ReleaseMany { .. } => None,
                LockOp::Wrapped { .. } => match &answer.outcome {
                    Outcome::Granted(granted) => granted.old.as_ref(),
                    _ => None,
                },
            };
            let tokenless = match op {
                LockOp::Release { comparison, .. } | LockOp::Extend { comparison, .. } => {
                    comparison.is_none()
                }
                LockOp::ReleaseMany { .. } => true,
                LockOp::Acquire { .. }
                | LockOp::Take { .. }
                | LockOp::AcquireAll { .. }
                | LockOp::Store { .. } => false,
                LockOp::Wrapped { .. } => {
                    flight.permitted.command().script_tokens().next().is_none()
                }
            };
            let enforced = flight.permitted.enforces();
            let settled = Settled {
                name: flight.permitted.command().name,
                operation: deed(op, answer).unwrap_or(operation),
                target: &allowed.lock.target,
                key: &allowed.lock.key,
                allowed,
                answer,
                grant: allowed.lock.grant(),
                stored,
                named: op.owner_token(index),
                tokenless,
                takes: matches!(op, LockOp::Wrapped { script, .. } if script.takes_locks()),
                enforced,
                others_stand,
                asked: asked_about(&flight.asked, index, locks.len()),
                took: flight.took,
                spoken_after,
                now,
            };
            self.account_one(op, &settled, active, now.at);
        }
        Ok(())
    }

    fn account_one(&mut self, op: &LockOp, one: &Settled<'_>, active: &Active, now: Instant) {
        if let Some(error) = &one.answer.unrecorded {
            self.could_not_record(one, error, active);
            return;
        }
        let metrics = &active.namespace(one.target.namespace).metrics;
        let acquires = one.operation == Operation::Acquire || one.operation == Operation::TakeOver;
        let mut decision = DecisionKind::Allow;
        let mut overlap = false;
        // Before what it remembers of its lapsed lease is replaced.
        if let Some(would) = one.answer.would.filter(|_| !one.enforced)
            && !matches!(one.answer.outcome, Outcome::Different { .. })
        {
            overlap = self.acted_late(one, would.late, now);
            if overlap {
                metrics.overlaps.inc();
            }
            if would.paid_debt {
                self.observed(Observation::Debt, one.target, active, now);
            }
        }
        match &one.answer.outcome {
            Outcome::Granted(granted) => {
                let outcome = match granted.again {
                    Some(_) => AcquireOutcome::Repeated,
                    None => AcquireOutcome::Acquired,
                };
                metrics.acquires.at(outcome).inc();
                if let Ended::RanOut(_) = granted.ended {
                    metrics.expired_while_held.inc();
                }
                if self.clamped(op, granted.ttl_ms, one) {
                    metrics.ttl_clamped.inc();
                    decision = DecisionKind::Modify;
                } else if granted.kept {
                    decision = DecisionKind::Modify;
                }
                if let LockOp::Wrapped { script, .. } = op {
                    script.took_a_lock();
                }
                self.granted(one, granted, active, now);
            }
            Outcome::Busy { governed, own, .. } => {
                metrics.acquires.at(AcquireOutcome::Contended).inc();
                if !governed {
                    metrics.ungoverned.inc();
                }
                self.refused_the_lock(one, *own, active, now);
            }
            Outcome::Extended {
                ttl_ms,
                kept,
                own,
                asked_ms,
                ..
            } => {
                if self.clamped(op, *ttl_ms, one) {
                    metrics.ttl_clamped.inc();
                    decision = DecisionKind::Modify;
                }
                self.touched_the_lease(one, active, now);
                self.extended(one, *ttl_ms, *kept, *own, now);
                if let (true, Some(asked_ms)) = (*own, asked_ms) {
                    self.evidence.asked(one.key, asked_end(*asked_ms, now));
                }
            }
            Outcome::Released { taken_over, .. } => {
                metrics.releases.at(ReleaseOutcome::Released).inc();
                if *taken_over {
                    tracing::info!(
                        namespace = %active.namespace(one.target.namespace).name,
                        key = %String::from_utf8_lossy(&one.target.key),
                        client = %self.peer,
                        "a lock whose deadline had passed was taken over"
                    );
                }
                self.touched_the_lease(one, active, now);
                if let Some(would) = one.answer.would {
                    self.handed_over(one, would.reason, active, now);
                }
                self.evidence.released(one.key);
                self.shared.jobs.released(one.key, self.connection.client());
                self.shared.renewals.remove(one.key, None);
                let ended = self.shared.mirror.apply(one.key, LeaseEvent::Released, now);
                if let Some(ended) = ended {
                    effects::count_hold(&ended, active);
                }
            }
            Outcome::Absent { ran_out } => {
                if one.operation == Operation::Release {
                    metrics.releases.at(ReleaseOutcome::Absent).inc();
                    self.shared.jobs.released(one.key, self.connection.client());
                }
                if *ran_out {
                    metrics.expired_while_held.inc();
                    self.evidence.lapsed(one.key, now);
                    self.shared.renewals.remove(one.key, Some(self.number));
                }
            }
            Outcome::Refused(refused) => {
                if one.operation == Operation::Release {
                    metrics.releases.at(ReleaseOutcome::NotOwner).inc();
                }
                if acquires && refused.reason == Reason::Overwrite {
                    metrics.acquires.at(AcquireOutcome::Denied).inc();
                }
                overlap = self.acted_late(one, refused.late, now);
                if overlap {
                    metrics.overlaps.inc();
                }
                self.touched_the_lease(one, active, now);
                self.handed_over(one, refused.reason, active, now);
                if refused.paid_debt {
                    self.observed(Observation::Debt, one.target, active, now);
                }
                if refused.keep_alive_ended {
                    self.shared.renewals.remove(one.key, None);
                    metrics.keep_alive.at(KeepAliveOutcome::Ended).inc();
                }
                let (id, verdict) = self.refused_by_step(one, refused, active);
                self.tell_of(one, overlap, Some(id), verdict, active);
                return;
            }
            Outcome::Different { late } => {
                if one.operation == Operation::Release {
                    metrics.releases.at(ReleaseOutcome::NotOwner).inc();
                }
                overlap = self.acted_late(one, *late, now);
                if overlap {
                    metrics.overlaps.inc();
                    let policy = policy_of(Reason::Expired, one.target, active);
                    let kind = if one.enforced {
                        DecisionKind::Deny
                    } else {
                        DecisionKind::WouldDeny
                    };
                    let mode = mode_label(one.allowed.rules.mode);
                    metrics.decision(one.operation, kind, Some(Reason::Expired), policy, mode);
                    let verdict = Verdict::refused(kind, Reason::Expired, policy, None);
                    self.tell_of(one, overlap, None, verdict, active);
                    return;
                }
            }
            Outcome::Untouched { governed, own } => {
                let LockOp::Wrapped { script, .. } = op else {
                    return;
                };
                if !governed {
                    metrics.ungoverned.inc();
                }
                // A script that takes locks and changed nothing met one that is held.
                if script.takes_locks() {
                    metrics.acquires.at(AcquireOutcome::Contended).inc();
                    self.refused_the_lock(one, *own, active, now);
                }
            }
            Outcome::Ungoverned => metrics.ungoverned.inc(),
            Outcome::ConditionUnmet => {}
            Outcome::Failed => {
                if acquires {
                    metrics.acquires.at(AcquireOutcome::Error).inc();
                }
            }
        }
        let (id, verdict) = self.decided(one, decision, active);
        self.tell_of(one, overlap, id, verdict, active);
    }

    /// What was done to a lock stands, and its record does not say so.
    fn could_not_record(&mut self, one: &Settled<'_>, error: &Bytes, active: &Active) {
        let details = active.namespace(one.target.namespace);
        let (operation, why) = (Some(one.operation), UnjudgedWhy::NoRights);
        self.count_unjudged(one.target, one.name, operation, why, active);
        self.shared.rights.forget(&self.connection.user);
        self.connection.sufficient.clear();
        tracing::warn!(
            namespace = %details.name,
            key = %String::from_utf8_lossy(&one.target.key),
            cmd = %one.name.to_ascii_uppercase(),
            user = %String::from_utf8_lossy(&self.connection.user),
            error = %String::from_utf8_lossy(error),
            "a lock command was carried out and could not be recorded"
        );
    }

    /// Counts the decision, and in monitor mode what enforce would have refused.
    fn decided(
        &mut self,
        one: &Settled<'_>,
        decision: DecisionKind,
        active: &Active,
    ) -> (Option<String>, Verdict) {
        let details = active.namespace(one.target.namespace);
        let mode = mode_label(one.allowed.rules.mode);
        if let Some(would) = &one.allowed.would {
            let id = self.would_refuse(one.target, one.name, one.operation, would, active);
            return (Some(id), Verdict::would_refuse(would));
        }
        if let Some(would) = one.answer.would.filter(|_| !one.enforced) {
            let reason = would.reason;
            let policy = policy_of(reason, one.target, active);
            let would = Denial {
                reason,
                detail: None,
                policy: policy.into(),
            };
            let id = self.would_refuse(one.target, one.name, one.operation, &would, active);
            return (Some(id), Verdict::would_refuse(&would));
        }
        details
            .metrics
            .decision(one.operation, decision, None, "", mode);
        (None, Verdict::permitted(decision))
    }

    fn granted(&mut self, one: &Settled<'_>, granted: &Granted, active: &Active, now: Instant) {
        let (Some(drawn), Some(value)) = (one.grant, one.stored) else {
            return;
        };
        let grant = granted.again.unwrap_or(drawn);
        let who = self.connection.who();
        let lease = Undelivered {
            namespace: one.target.namespace,
            key: one.key.clone(),
            session: who.session,
            grant: Some(grant),
        };
        self.pending_grants.granted(lease, one.spoken_after);
        let ttl = (granted.ttl_ms > 0).then(|| Duration::from_millis(granted.ttl_ms));
        let own = Own {
            grant,
            fence: granted.fence,
            stored: stored_form(value),
            ends: ttl.map(|ttl| one.sent(now) + ttl),
            asked_end: asked_end(granted.asked_ms, now),
            lapsed: None,
        };
        self.evidence.granted(one.key.clone(), own);
        let event = LeaseEvent::Granted {
            namespace: one.target.namespace,
            grant,
            fence: granted.fence,
            session: who.session,
            ttl,
        };
        let ended = self.shared.mirror.apply(one.key, event, now);
        if let (Some(ended), Ended::RanOut(_)) = (ended, granted.ended) {
            effects::count_hold(&ended, active);
        }
        self.keep(one, &who, grant, granted.ttl_ms, granted.kept, now);
        self.uses_a_token(one, &who, value, granted, active, now);
        if self.is_first && granted.again.is_none() {
            self.may_be_job(one, &who, grant, granted.asked_ms == 0, active);
        }
        let identity = who.identity(&one.allowed.rules);
        if who.process == Process::Pending && identity == who.client.with_process(Process::Pending)
        {
            let peer = self.connection.peer();
            identify::identify_later(&self.shared, peer, one.key.clone(), grant);
        }
        tracing::debug!(
            namespace = %active.namespace(one.target.namespace).name,
            key = %String::from_utf8_lossy(&one.target.key),
            fence = granted.fence.0,
            ttl_ms = granted.ttl_ms,
            again = granted.again.is_some(),
            client = %self.peer,
            "granted"
        );
    }

    /// A lock was granted to the first command of a connection: that may be all that its client is there for.
    fn may_be_job(
        &mut self,
        one: &Settled<'_>,
        who: &Who,
        grant: Grant,
        endless: bool,
        active: &Active,
    ) {
        let rules = &one.allowed.rules;
        let running = self.connection.peer().running();
        let is_elsewhere = !who.local && endless && who.is_distinctive(rules);
        if running.is_some() || is_elsewhere {
            let whose = (grant, who.identity(rules));
            let namespace = &active.namespace(one.target.namespace).name;
            if self.shared.jobs.took(one.key, whose, running, namespace) {
                self.first_lock = Some((one.key.clone(), grant));
            }
        }
    }

    fn extended(&mut self, one: &Settled<'_>, ttl_ms: u64, kept: bool, own: bool, now: Instant) {
        let ttl = (ttl_ms > 0).then(|| Duration::from_millis(ttl_ms));
        let ends = ttl.map(|ttl| one.sent(now) + ttl);
        if own {
            self.evidence
                .extended(one.key, ends, one.stored.map(stored_form));
        }
        self.shared
            .mirror
            .apply(one.key, LeaseEvent::Extended { ttl }, now);
        let grant = self.evidence.own(one.key, now).map(|own| own.grant);
        match grant.filter(|_| own) {
            Some(grant) => self.keep(one, &self.connection.who(), grant, ttl_ms, kept, now),
            // Somebody else's lease: its holder's session goes on keeping it alive.
            None if kept => {}
            None => self.shared.renewals.remove(one.key, None),
        }
    }

    /// Keep-alive begins or ends with the terms of the lease.
    fn keep(
        &self,
        one: &Settled<'_>,
        who: &Who,
        grant: Grant,
        ttl_ms: u64,
        kept: bool,
        now: Instant,
    ) {
        if !kept || ttl_ms == 0 {
            self.shared.renewals.remove(one.key, None);
            return;
        }
        let obligations = &one.allowed.obligations;
        // Every renewal gives what the policy would give again: the default, or the ceiling.
        let renewal = Renewal {
            lock: one.target.key.clone(),
            grant,
            ttl_ms,
            keep_alive_ms: obligations.keep_alive_ms.unwrap_or(0),
            outlive_ms: outlive_ms(one.allowed),
        };
        let rules = &one.allowed.rules;
        let distinctive = who.is_distinctive(rules);
        let same_client = match rules.trust_address {
            _ if rules.hand_over
                && let Some(application) = who.application =>
            {
                SameClient::Identity(application)
            }
            TrustAddress::Process => SameClient::Identity(who.client),
            TrustAddress::Auto | TrustAddress::No if who.local => {
                SameClient::Process(who.client, self.connection.peer().clone(), distinctive)
            }
            TrustAddress::Auto | TrustAddress::No
                if distinctive && rules.keep_alive_by == KeepAliveBy::Identity =>
            {
                SameClient::Identity(who.client)
            }
            TrustAddress::Auto | TrustAddress::No => SameClient::Nobody,
        };
        self.shared.renewals.add(
            &self.holder,
            same_client,
            one.target.namespace,
            one.key.clone(),
            renewal,
            now,
        );
    }

    /// Whether the TTL is shorter than the one that was asked for.
    fn clamped(&self, op: &LockOp, ttl_ms: u64, one: &Settled<'_>) -> bool {
        let asked = match op {
            LockOp::Acquire { ttl, .. }
            | LockOp::Take { ttl, .. }
            | LockOp::Store { ttl, .. }
            | LockOp::Extend { ttl, .. } => *ttl,
            LockOp::Wrapped { .. } => {
                // An invented TTL is the default, one that was cut the ceiling.
                let kept = match &one.answer.outcome {
                    Outcome::Granted(granted) => granted.kept,
                    Outcome::Extended { kept, .. } => *kept,
                    _ => false,
                };
                return kept && one.allowed.obligations.ttl_cap_ms == Some(ttl_ms);
            }
            LockOp::AcquireAll { .. } | LockOp::Release { .. } | LockOp::ReleaseMany { .. } => {
                AskedTtl::None
            }
        };
        match asked {
            AskedTtl::For(ms) => one.enforced && i64::try_from(ttl_ms).is_ok_and(|ttl| ttl < ms),
            AskedTtl::Until(_) | AskedTtl::Further(_) => {
                one.enforced && one.allowed.obligations.ttl_cap_ms == Some(ttl_ms)
            }
            AskedTtl::None | AskedTtl::Keep => false,
        }
    }

    /// A former holder acted while another holds the lock. A lease whose time is not over was given
    /// back by other means, for example with its owner token over another connection: that is no
    /// overlap. Answers whether it was one.
    fn acted_late(&mut self, one: &Settled<'_>, late: bool, now: Instant) -> bool {
        if !late {
            return false;
        }
        let own = self.evidence.own(one.key, now);
        let ends = own.and_then(|own| own.ends);
        let overlapped = ends.is_none_or(|ends| ends <= now);
        self.evidence.lapsed(one.key, now);
        self.shared.renewals.remove(one.key, Some(self.number));
        overlapped
    }

    /// An acquire was refused, because the lock is held. `own`: this very connection holds it, so
    /// several threads share it. A command on several locks is answered once for all of them, so what
    /// the connection knows of each is asked, too.
    fn refused_the_lock(&mut self, one: &Settled<'_>, own: bool, active: &Active, now: Instant) {
        if own && self.evidence.own(one.key, now).is_some() {
            self.observed(Observation::SharedSession, one.target, active, now);
        }
        self.evidence.refused(one.key, one.stored);
    }

    /// A release or extension that met a lease, whether it was refused or not: one without an owner
    /// token, by a connection that did not get the lock when it last tried, is found.
    fn touched_the_lease(&mut self, one: &Settled<'_>, active: &Active, now: Instant) {
        let gives_back = matches!(one.operation, Operation::Release | Operation::Extend);
        if gives_back && one.tokenless && self.evidence.was_refused(one.key) {
            self.observed(Observation::RefusedThenReleased, one.target, active, now);
        }
    }

    /// A release that proved nothing, by a connection that neither took the lock nor tried to: where that
    /// happens again and again, locks are taken by one process and given back by another.
    fn handed_over(&mut self, one: &Settled<'_>, reason: Reason, active: &Active, now: Instant) {
        let by_another = one.operation == Operation::Release
            && one.tokenless
            && reason == Reason::NotOwner
            && !self.evidence.was_refused(one.key)
            && self.evidence.own(one.key, now).is_none();
        let namespace = &active.namespace(one.target.namespace).name;
        if by_another
            && self
                .shared
                .hand_overs
                .given_back(namespace, &one.target.key, now)
        {
            self.observed(Observation::HandedOver, one.target, active, now);
        }
    }

    /// A lock was granted with a value: one that another client was granted lately is found.
    fn uses_a_token(
        &mut self,
        one: &Settled<'_>,
        who: &Who,
        value: &Bytes,
        granted: &Granted,
        active: &Active,
        now: Instant,
    ) {
        if granted.again.is_some() || TYPES.contains(&&value[..]) {
            return;
        }
        let shared = self.shared.owner_tokens.granted(
            &active.namespace(one.target.namespace).name,
            &stored_form(value),
            who.identity(&one.allowed.rules),
            granted.shared_token,
            now,
        );
        if shared {
            self.observed(Observation::SharedToken, one.target, active, now);
        }
    }

    /// Counts a finding, and logs it: one line a kind, namespace and minute.
    fn observed(&mut self, kind: Observation, target: &Target, active: &Active, now: Instant) {
        let details = active.namespace(target.namespace);
        details.metrics.observations.at(kind).inc();
        let example = Example {
            key: target.key.clone(),
            name: self.connection.name.clone(),
            client: self.peer,
        };
        let folder = &self.shared.observations;
        if let Some(line) = folder.observed(&details.name, kind, example, now) {
            line.log();
        }
        let entry = self.entry(EventKind::Observed(kind), target, "", None, active);
        self.shared.events.leave(entry);
    }

    /// The client closed its connection in order: leases that are meant to go on without it for
    /// longer than the ceiling are found.
    pub(crate) fn report_outlived(&mut self) {
        let (active, now) = (self.active(), Instant::now());
        let mut outlived = Vec::new();
        for (key, own) in self.evidence.held() {
            let Some(namespace) = active.namespaces.find(&key.key) else {
                continue;
            };
            let ceiling = active.namespace(namespace).ceiling_ms;
            let current = self.shared.mirror.current(key);
            let longer = ceiling.is_some_and(|ms| {
                let ceiling = Duration::from_millis(ms);
                own.asked_end.is_some_and(|end| end > now + ceiling)
            });
            if longer && current.is_some_and(|(grant, _)| grant == own.grant) {
                let key = key.key.clone();
                outlived.push(Target { namespace, key });
            }
        }
        for target in outlived {
            self.observed(Observation::Outlived, &target, &active, now);
        }
    }

    /// Leaves in the event log what came of one lock of a step.
    fn tell_of(
        &self,
        one: &Settled<'_>,
        overlap: bool,
        id: Option<String>,
        verdict: Verdict,
        active: &Active,
    ) {
        let (happened, lease) = match &one.answer.outcome {
            // A script that takes locks and changed nothing met one that is held.
            Outcome::Untouched { own, .. } if one.takes => {
                (EventKind::Contended { own: *own }, Lease::default())
            }
            outcome => told(outcome, one.now.unix_ms),
        };
        let token = one.stored.or(one.named);
        let (key, what) = (one.key.clone(), (one.name, Some(one.operation)));
        let mut entry = self.entry_at(one.now, happened, one.target, key, what, active);
        entry.overlap = overlap;
        entry.mode = one.allowed.rules.mode;
        entry.id = id.map(String::into_boxed_str);
        entry.verdict = Some(verdict);
        entry.token = token.map(|token| self.shared.events.fingerprint(&stored_form(token)));
        let Lease {
            fence,
            ttl_ms,
            asked_ms,
            held_ms,
        } = lease;
        (entry.fence, entry.ttl_ms) = (fence, ttl_ms);
        (entry.asked_ms, entry.held_ms) = (asked_ms, held_ms);
        entry.took = Some(one.took);
        entry.asked = one.asked.clone();
        self.shared.events.leave(entry);
    }

    /// Counts and logs a refusal that the script found. The error line, where there is one, is
    /// worded by [`Session::refusal_of_step`].
    fn refused_by_step(
        &mut self,
        one: &Settled<'_>,
        refused: &StepRefused,
        active: &Active,
    ) -> (String, Verdict) {
        let policy = policy_of(refused.reason, one.target, active);
        let details = active.namespace(one.target.namespace);
        let mode = mode_label(one.allowed.rules.mode);
        details.metrics.decision(
            one.operation,
            DecisionKind::Deny,
            Some(refused.reason),
            policy,
            mode,
        );
        let id = refusal_id();
        self.log(
            &id,
            one.target,
            one.name,
            refused.reason,
            policy,
            Mode::Enforce,
            active,
        );
        self.last_refusal = Some(id.clone());
        let detail = one.others_stand.then_some(OTHERS_STAND);
        if one.others_stand {
            details.metrics.script_effects_left.inc();
        }
        let verdict = Verdict::refused(DecisionKind::Deny, refused.reason, policy, detail);
        (id, verdict)
    }
}
