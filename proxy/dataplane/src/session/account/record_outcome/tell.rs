//! Counts what was decided, and writes to the event log what became of each lock.

use bytes::Bytes;
use lockwarden_control::random::refusal_id;
use lockwarden_control::ruleset::{Active, mode_label};
use lockwarden_control::telemetry::events::{EventKind, Verdict};
use lockwarden_control::telemetry::vocabulary::{DecisionKind, UnjudgedWhy};
use lockwarden_lock::decision::Denial;
use lockwarden_lock::outcome::{OTHERS_STAND, Outcome, Refused as StepRefused};
use lockwarden_lock::rules::Mode;
use lockwarden_lock::time::ProxyTime;
use lockwarden_lock::token::stored_form;

use crate::session::account::emit_events::{Lease, told};
use crate::session::client::Client;
use crate::session::judge::refusals::By;

use super::Settled;

impl Client {
    /// What was done to a lock stands, but its record does not show it.
    pub(super) fn could_not_record(&mut self, one: &Settled<'_>, error: &Bytes, active: &Active) {
        let details = active.namespace(one.target.namespace);
        let (operation, why) = (Some(one.operation), UnjudgedWhy::NoRights);
        self.count_unjudged(one.target, one.name, operation, why, active);
        self.shared.rights.forget(self.connection.user());
        self.connection.rights.sufficient.clear();
        tracing::warn!(
            namespace = %details.name,
            key = %String::from_utf8_lossy(&one.target.key),
            cmd = %one.name.to_ascii_uppercase(),
            user = %String::from_utf8_lossy(self.connection.user()),
            error = %String::from_utf8_lossy(error),
            "a lock command was carried out and could not be recorded"
        );
    }

    /// Counts the decision, and in monitor mode what enforce would have refused.
    pub(super) fn decided(
        &mut self,
        one: &Settled<'_>,
        decision: DecisionKind,
        active: &Active,
    ) -> (Option<String>, Verdict) {
        let details = active.namespace(one.target.namespace);
        let mode = mode_label(one.allowed.rules.mode);
        if let Some(would) = &one.allowed.would {
            let id = self.would_refuse(one.target, one.name, (one.operation, mode), would, active);
            return (Some(id), Verdict::would_refuse(would));
        }
        if let Some(would) = one.answer.would.filter(|_| !one.enforced) {
            let reason = would.reason;
            let By { policy, rule, detail } = By::of(Some(one.allowed), one.target, reason, active);
            let detail = detail.map(str::to_owned);
            let would = Denial { reason, detail, policy: policy.into(), rule: rule.map(Into::into) };
            let id = self.would_refuse(one.target, one.name, (one.operation, mode), &would, active);
            return (Some(id), Verdict::would_refuse(&would));
        }
        details.metrics.decision(one.operation, decision, None, "", mode);
        (None, Verdict::permitted(decision))
    }

    /// Writes to the event log what became of one lock of a step.
    pub(super) fn tell_of(
        &self,
        one: &Settled<'_>,
        overlap: bool,
        id: Option<String>,
        verdict: Verdict,
        active: &Active,
    ) {
        let (happened, lease) = match &one.answer.outcome {
            // A script that takes locks and changed nothing met one that is held.
            Outcome::Untouched { own, .. } if one.takes => (EventKind::Contended { own: *own }, Lease::default()),
            outcome => told(outcome, ProxyTime(one.now.unix_ms)),
        };
        let token = one.stored.or(one.named);
        let (key, what) = (one.key.clone(), (one.name, Some(one.operation)));
        let mut entry = self.entry_at(one.now, happened, one.target, key, what, active);
        entry.overlap = overlap;
        entry.stands_for = one.answer.stands_for();
        entry.mode = one.allowed.rules.mode;
        entry.id = id.map(String::into_boxed_str);
        entry.would_give = one.would_give.filter(|_| verdict.kind == DecisionKind::WouldModify);
        entry.verdict = Some(verdict);
        entry.token = token.map(|token| self.shared.events.fingerprint(&stored_form(token)));
        let Lease { fence, ttl_ms, asked_ms, held_ms } = lease;
        (entry.fence, entry.ttl_ms) = (fence, ttl_ms);
        (entry.asked_ms, entry.held_ms) = (asked_ms, held_ms);
        entry.took = Some(one.took);
        entry.asked = one.asked.clone();
        self.shared.events.leave(entry);
    }

    /// Counts and logs a refusal that the script found. The error line, where there is one, is
    /// worded by `Client::refusal_of_step`.
    pub(super) fn refused_by_step(
        &mut self,
        one: &Settled<'_>,
        refused: &StepRefused,
        active: &Active,
    ) -> (String, Verdict) {
        let By { policy, rule, detail } = By::of(Some(one.allowed), one.target, refused.reason, active);
        let details = active.namespace(one.target.namespace);
        let mode = mode_label(one.allowed.rules.mode);
        details.metrics.decision(one.operation, DecisionKind::Deny, Some(refused.reason), policy, mode);
        details.metrics.refused_by(rule, DecisionKind::Deny);
        let id = refusal_id();
        self.log(&id, one.target, one.name, (refused.reason, refused.held_ms()), (policy, rule), Mode::Enforce, active);
        self.refused.push((one.target.key.clone(), id.clone()));
        let detail = one.others_stand.then_some(OTHERS_STAND).or(detail);
        if one.others_stand {
            details.metrics.script_effects_left.inc();
        }
        let verdict = Verdict::refused(DecisionKind::Deny, refused.reason, policy, detail).of_rule(rule);
        (id, verdict)
    }
}
