//! Refusals: their words, their counters and their line in the log. Whether to refuse is not decided here.

use std::time::Instant;

use bytes::BytesMut;
use lockwarden_control::clock::proxy_time;
use lockwarden_control::random::refusal_id;
use lockwarden_control::ruleset::{Active, mode_label};
use lockwarden_control::telemetry::events::{EventKind, Took, Verdict, asked_about};
use lockwarden_control::telemetry::logging::Refusal;
use lockwarden_control::telemetry::vocabulary::{
    AcquireOutcome, CommandClass, CommandResult, DecisionKind, ModeLabel, ReleaseOutcome,
};
use lockwarden_lock::decision::{Denial, Operation};
use lockwarden_lock::op::{AskedTtl, LockOp, Target};
use lockwarden_lock::outcome::{RefusalLine, Refused as StepRefused, native_nothing, refusal_line};
use lockwarden_lock::plan::{self, Form};
use lockwarden_lock::reason::Reason;
use lockwarden_lock::rules::Mode;
use lockwarden_lock::settle::{Allowed, Code, Refused};
use lockwarden_lock::time::AskedMs;
use lockwarden_lock::token::stored_form;
use lockwarden_resp::{Value, put_value};

use crate::session::Session;
use crate::session::client::Client;
use crate::session::client::block::MAX_AFTERWARDS;
use crate::session::step::awaited::{InFlight, Look};
use crate::session::transport::Muted;

impl Session {
    /// A refusal that needed nothing from Redis. `took` is `None` where no policy was asked.
    pub(crate) fn refuse(&mut self, refused: &Refused, took: Option<Took>, active: &Active, muted: Muted) {
        let line = self.refused(refused, took, active);
        // In a block the client expects QUEUED and would mistake a native reply for it; an error spoils the block.
        if refused.native && self.client.connection.block.is_none() {
            let mut reply = BytesMut::new();
            let nothing = refused.command.op().map_or(Value::Null, native_nothing);
            put_value(&mut reply, &nothing, self.client.connection.protocol);
            self.answer_locally(reply, muted);
            return;
        }
        self.error(&line, muted);
    }

    /// Counts and logs such a refusal; returns its error line.
    pub fn refused(&mut self, refused: &Refused, took: Option<Took>, active: &Active) -> String {
        let command = &refused.command;
        let operation = command.operation(proxy_time());
        let details = active.namespace(refused.target.namespace);
        let (reason, policy) = (refused.denial.reason, &refused.denial.policy);
        let rule = refused.denial.rule.as_deref();
        let mode = mode_label(details.rules.mode);
        details.metrics.decision(operation, DecisionKind::Deny, Some(reason), policy, mode);
        details.metrics.refused_by(rule, DecisionKind::Deny);
        match operation {
            Operation::Acquire => details.metrics.acquires.at(AcquireOutcome::Denied).inc(),
            Operation::Release => details.metrics.releases.at(ReleaseOutcome::Denied).inc(),
            Operation::Extend
            | Operation::TakeOver
            | Operation::Inspect
            | Operation::Write
            | Operation::GuardedWrite => {}
        }
        let result = match refused.code {
            Code::Denied => CommandResult::Denied,
            Code::Policy | Code::Limit => CommandResult::ProxyError,
        };
        self.client.count(CommandClass::Policy, result);
        let id = refusal_id();
        self.client.log(&id, &refused.target, command.name(), (reason, None), (policy, rule), Mode::Enforce, active);
        let mut entry = self.client.entry(EventKind::Refused, &refused.target, command.name(), Some(operation), active);
        entry.id = Some(id.as_str().into());
        let detail = refused.denial.detail.as_deref();
        entry.verdict = Some(Verdict::refused(DecisionKind::Deny, reason, policy, detail).of_rule(rule));
        let token = command.owner_token(0);
        entry.token = token.map(|token| self.client.shared.events.fingerprint(&stored_form(token)));
        let asked_ms = command.op().and_then(asked_ms);
        entry.asked_ms = asked_ms;
        entry.took = took;
        let locks = command.targets();
        let place = locks.iter().position(|target| **target == refused.target);
        entry.asked = asked_about(&std::mem::take(&mut self.client.asked), place.unwrap_or(0), locks.len());
        self.client.shared.events.leave(entry);
        if let Some(op) = command.op() {
            self.let_go(op, active);
        }
        refusal_line(&RefusalLine {
            code: refused.code,
            reason,
            key: &refused.target.key,
            command: command.name(),
            policy,
            rule,
            id: &id,
            fence: None,
            ttl_ms: asked_ms.filter(|_| reason == Reason::TtlTooLong).map(AskedMs),
            // Another policy has its own limit, and names it.
            max_ms: details
                .ceiling_ms()
                .filter(|_| &**policy == "ttl-ceiling" && matches!(reason, Reason::TtlTooLong | Reason::NoTtl)),
            held_ms: None,
            others_stand: false,
            detail: refused.denial.detail.as_deref(),
        })
    }

    /// A release was refused without a look at Redis. The client may be the holder and wanted to release the lock, so
    /// keep-alive ends and the lock expires by its TTL.
    fn let_go(&mut self, op: &LockOp, active: &Active) {
        if !op.may_release(proxy_time()) {
            return;
        }
        let who = self.client.connection.who();
        for target in op.targets() {
            let rules = active.rules(target.namespace);
            let step = plan::let_go(&target.key, &who, &rules, &active.companion_prefix);
            // Inside the block it would have an element of its own in the answer to EXEC.
            match &mut self.client.connection.block {
                Some(block) if block.afterwards.len() < MAX_AFTERWARDS => {
                    block.afterwards.push(step);
                }
                Some(_) => {}
                None => self.transport.execute(&step, Form::Text, Look::Own, Muted::Yes),
            }
        }
    }
}

impl Client {
    /// The error line of a refusal that the script found.
    pub(crate) fn refusal_of_step(
        &mut self,
        flight: &InFlight,
        (at, refused): (usize, &StepRefused),
        others_stand: bool,
        active: &Active,
    ) -> String {
        let op = &flight.permitted.command().op;
        let targets = op.targets();
        let target = targets.get(at).copied().unwrap_or_else(|| op.target());
        let mut names = std::mem::take(&mut self.refused).into_iter();
        let named = names.find(|(key, _)| *key == target.key);
        let id = named.map_or_else(refusal_id, |(_, id)| id);
        let by = By::of(flight.permitted.locks().get(at), target, refused.reason, active);
        refusal_line(&RefusalLine {
            code: Code::Denied,
            reason: refused.reason,
            key: &target.key,
            command: flight.permitted.command().name,
            policy: by.policy,
            rule: by.rule,
            id: &id,
            fence: (refused.reason == Reason::StaleFence).then_some(refused.fence),
            ttl_ms: None,
            max_ms: None,
            held_ms: refused.held_ms(),
            others_stand,
            detail: by.detail,
        })
    }

    /// Reports what enforce mode would have refused, or a rule that only reports; returns the refusal's name.
    pub fn would_refuse(
        &mut self,
        target: &Target,
        command: &str,
        (operation, mode): (Operation, ModeLabel),
        would: &Denial,
        active: &Active,
    ) -> String {
        let details = active.namespace(target.namespace);
        details.metrics.decision(operation, DecisionKind::WouldDeny, Some(would.reason), &would.policy, mode);
        let rule = would.rule.as_deref();
        details.metrics.refused_by(rule, DecisionKind::WouldDeny);
        let id = refusal_id();
        self.log(&id, target, command, (would.reason, None), (&would.policy, rule), Mode::Monitor, active);
        id
    }

    /// `held_ms`: how long its holder has had the lock, if the step returned it.
    #[expect(clippy::too_many_arguments, reason = "each is one field of the line")]
    pub fn log(
        &self,
        id: &str,
        target: &Target,
        command: &str,
        (reason, held_ms): (Reason, Option<u64>),
        (policy, rule): (&str, Option<&str>),
        mode: Mode,
        active: &Active,
    ) {
        let client = self.peer.to_string();
        let namespace = &*active.namespace(target.namespace).name;
        let refusal = Refusal { client: &client, namespace: Some(namespace), key: &target.key, command, reason, mode };
        let Some(repeated) = self.shared.refusals.admit(refusal, Instant::now()) else {
            return;
        };
        tracing::info!(
            id,
            namespace,
            key = %String::from_utf8_lossy(&target.key),
            cmd = %command.to_ascii_uppercase(),
            reason = reason.word(),
            policy,
            rule,
            held_ms,
            client,
            name = %String::from_utf8_lossy(self.connection.name()),
            certificate = self.certificate(),
            repeated,
            "{}",
            match mode {
                Mode::Enforce => "refused",
                Mode::Monitor => "would have been refused",
            }
        );
    }
}

/// The policy that a refusal found by a script comes from, and its words.
pub(crate) struct By<'a> {
    pub(crate) policy: &'a str,
    pub(crate) rule: Option<&'a str>,
    pub(crate) detail: Option<&'a str>,
}

impl<'a> By<'a> {
    /// For a script, the policies were asked beforehand about all that it may do; what was found only in the step has
    /// no words.
    pub(crate) fn of(allowed: Option<&'a Allowed>, target: &Target, reason: Reason, active: &Active) -> By<'a> {
        let denial = allowed.and_then(|allowed| allowed.refused_by(reason));
        match denial.filter(|denial| denial.rule.is_some()) {
            Some(denial) => {
                By { policy: &denial.policy, rule: denial.rule.as_deref(), detail: denial.detail.as_deref() }
            }
            None => By { policy: policy_of(reason, target, active), rule: None, detail: None },
        }
    }
}

/// The TTL that a command names, ms.
fn asked_ms(op: &LockOp) -> Option<u64> {
    match op.asked_ttl() {
        AskedTtl::For(ms) => u64::try_from(ms).ok(),
        AskedTtl::None | AskedTtl::Until(_) | AskedTtl::Keep | AskedTtl::Further(_) => None,
    }
}

/// The policy whose rule leads to a refusal found by a script: the built-in one that asks for it, if the namespace
/// has it.
pub(crate) fn policy_of(reason: Reason, target: &Target, active: &Active) -> &'static str {
    let built_in = reason.asked_by();
    let present = active.generation.chain(target.namespace).any(|name| &**name == built_in);
    if present || built_in == "scripts" { built_in } else { "lockwarden" }
}
