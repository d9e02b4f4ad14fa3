//! What a session leaves in the event log. It changes no reply and decides nothing.

use std::sync::Arc;

use lockwarden_control::clock::{Moment, proxy_time};
use lockwarden_control::ruleset::Active;
use lockwarden_control::telemetry::events::{Caller, EventKind, LockEvent, Took, Verdict};
use lockwarden_control::telemetry::vocabulary::UnjudgedWhy;
use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::decision::{Denial, Operation};
use lockwarden_lock::op::{Command, Target};
use lockwarden_lock::outcome::{Ended, Outcome};
use lockwarden_lock::time::{ProxyTime, RedisTime};

use crate::session::client::Client;

impl Client {
    /// An entry about a lock, without a verdict and without a lease.
    pub fn entry(
        &self,
        happened: EventKind,
        target: &Target,
        command: &'static str,
        operation: Option<Operation>,
        active: &Active,
    ) -> LockEvent {
        let key = DbKey::new(self.connection.db(), &target.key);
        let what = (command, operation);
        self.entry_at(Moment::now(), happened, target, key, what, active)
    }

    /// The same, at a given moment, about a key that was hashed already.
    pub(crate) fn entry_at(
        &self,
        now: Moment,
        happened: EventKind,
        target: &Target,
        key: DbKey,
        (command, operation): (&'static str, Option<Operation>),
        active: &Active,
    ) -> LockEvent {
        let details = active.namespace(target.namespace);
        let mut entry = details.event_at(now, happened, key);
        entry.command = command;
        entry.operation = operation;
        entry.caller = Some(self.caller());
        entry
    }

    /// This client, as it presents itself now. An event about it is about to be written, so its process is looked up
    /// first if that adds to the description.
    pub fn caller(&self) -> Arc<Caller> {
        if self.caller.wants_program() {
            self.shared.processes.identify(self.connection.peer());
        }
        self.caller.clone()
    }

    /// A command that was not judged goes to Redis as it came.
    pub(crate) fn count_unjudged(
        &self,
        target: &Target,
        command: &'static str,
        operation: Option<Operation>,
        why: UnjudgedWhy,
        active: &Active,
    ) {
        let metrics = &active.namespace(target.namespace).metrics;
        metrics.unjudged.at(why).inc();
        let kind = EventKind::Unjudged(why);
        let entry = self.entry(kind, target, command, operation, active);
        self.shared.events.leave(entry);
    }

    /// A script or function was sent to Redis unchanged, and only its run shows whether it touches a lock. `target`
    /// stands for the locks that it may touch.
    pub(crate) fn count_computed(&self, target: &Target, command: &'static str, active: &Active) {
        let why = UnjudgedWhy::ComputedNames;
        let details = active.namespace(target.namespace);
        details.metrics.unjudged.at(why).inc();
        let mut entry = self.entry(EventKind::Unjudged(why), target, command, None, active);
        entry.namespace = Arc::default();
        self.shared.events.leave(entry);
    }

    /// Counts a command that was not judged, and puts it into the event log.
    pub(crate) fn tell_unjudged(&self, command: &Command, why: UnjudgedWhy, active: &Active) {
        let namespace = active.namespace(command.target().namespace);
        namespace.metrics.unjudged.at(why).inc();
        for target in command.targets() {
            let happened = EventKind::Unjudged(why);
            let operation = Some(command.operation(proxy_time()));
            let entry = self.entry(happened, target, command.name(), operation, active);
            self.shared.events.leave(entry);
        }
    }

    /// A command that enforce mode would have refused went to Redis as it came.
    pub(crate) fn tell_forwarded(
        &mut self,
        target: &Target,
        command: &'static str,
        operation: Operation,
        (id, would): (String, &Denial),
        took: Took,
        active: &Active,
    ) {
        let mut entry = self.entry(EventKind::Forwarded, target, command, Some(operation), active);
        entry.id = Some(id.into());
        entry.verdict = Some(Verdict::would_refuse(would));
        entry.took = Some(took);
        entry.asked = std::mem::take(&mut self.asked).into();
        self.shared.events.leave(entry);
    }
}

/// What is known of a lease after a step.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Lease {
    pub(crate) fence: Option<u64>,
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) asked_ms: Option<u64>,
    pub(crate) held_ms: Option<u64>,
}

/// An outcome in the terms of the event log.
pub(crate) fn told(outcome: &Outcome, now: ProxyTime) -> (EventKind, Lease) {
    let nothing = Lease::default();
    match outcome {
        Outcome::Granted(granted) => {
            let lease = Lease {
                fence: Some(granted.fence.0),
                ttl_ms: Some(granted.ttl_ms.0),
                asked_ms: Some(granted.asked_ms.0),
                held_ms: None,
            };
            let happened = EventKind::Acquired {
                again: granted.again.is_some(),
                replaced: matches!(granted.ended, Ended::TakenOver(_) | Ended::Overwritten(_)),
                ran_out: matches!(granted.ended, Ended::RanOut(_)),
                kept: granted.kept,
            };
            (happened, lease)
        }
        Outcome::Busy { own, .. } => (EventKind::Contended { own: *own }, nothing),
        Outcome::Extended { ttl_ms, fence, since, now, kept, asked_ms, .. } => {
            let lease = Lease {
                fence: Some(fence.0),
                ttl_ms: Some(ttl_ms.0),
                asked_ms: asked_ms.map(|asked| asked.0),
                held_ms: Some(now.ms_since(*since)),
            };
            (EventKind::Extended { kept: *kept }, lease)
        }
        Outcome::Released { fence, since, taken_over, .. } => {
            let taken_over = *taken_over;
            // The script of a release does not return Redis's time: the proxy's clock stands in for it.
            let now = RedisTime(now.0);
            let lease = Lease { fence: Some(fence.0), held_ms: Some(now.ms_since(*since)), ..nothing };
            (EventKind::Released { taken_over }, lease)
        }
        Outcome::Absent { ran_out, .. } => (EventKind::Absent { ran_out: *ran_out }, nothing),
        Outcome::Refused(refused) => {
            let lease = Lease { fence: Some(refused.fence.0), held_ms: refused.held_ms(), ..nothing };
            (EventKind::Refused, lease)
        }
        Outcome::Different { .. } => (EventKind::Different, nothing),
        Outcome::ConditionUnmet | Outcome::Untouched { .. } => (EventKind::Unchanged, nothing),
        Outcome::Ungoverned | Outcome::Unrecorded => (EventKind::Ungoverned, nothing),
        Outcome::Unconfirmed(_) => (EventKind::Unconfirmed, nothing),
        Outcome::Failed => (EventKind::Failed, nothing),
    }
}
