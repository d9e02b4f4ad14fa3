//! An operator's order to end a lease: from the admin address through the upkeep connection to one script and back,
//! and how the result is reported. The script compares the fencing token, so an order that comes late never hits the
//! next holder.

use std::time::{Duration, Instant};

use lockwarden_control::clock;
use lockwarden_control::random::refusal_id;
use lockwarden_control::telemetry::events::{EventKind, Verdict};
use lockwarden_control::telemetry::vocabulary::DecisionKind;
use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::lease::LeaseEvent;
use lockwarden_lock::plan::{self, Broke, Plan};
use lockwarden_lock::token::{FencingToken, Grant};
use lockwarden_resp::Value;
use tokio::sync::{mpsc, oneshot};

use crate::state::{ProxyState, effects};

/// Why a lease was not ended, or why it is not known whether it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BreakError {
    /// Nothing was sent.
    #[error("the backend is not there, so nothing was broken")]
    Down,
    /// Nothing was sent.
    #[error(
        "the proxy's own connection may not log in, so nothing was broken: \
         name a user in the backend URL"
    )]
    NoLogin,
    /// Redis gave this error; nothing was done.
    #[error("the backend refused: {0}")]
    Refused(String),
    /// The order was sent and not answered.
    #[error("whether the lease was broken is not known: {0}")]
    Unknown(String),
}

/// The result of an order that was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The lease is over; `id` names the record in the audit trail.
    Done { id: String },
    /// The lock is free.
    Absent,
    /// Another lease, with this fencing token, holds it by now.
    Newer(FencingToken),
    /// The lock has no record, so there is no lease to name.
    Ungoverned,
}

/// The result that the caller gets.
type Told = Result<Broken, BreakError>;

/// An order that is under way.
pub struct BreakOrder {
    key: DbKey,
    fence: FencingToken,
    /// For the audit trail.
    reason: Box<str>,
    done: oneshot::Sender<Told>,
}

/// Gives the order and waits for its result. Not for a thread that serves others.
pub fn order(orders: &mpsc::Sender<BreakOrder>, key: DbKey, fence: FencingToken, reason: &str) -> Told {
    let (done, told) = oneshot::channel();
    let order = BreakOrder { key, fence, reason: reason.into(), done };
    orders.blocking_send(order).map_err(|_| BreakError::Down)?;
    told.blocking_recv().unwrap_or_else(|_| Err(BreakError::Unknown("the proxy is stopping".to_owned())))
}

impl BreakOrder {
    pub(crate) fn key(&self) -> &DbKey {
        &self.key
    }

    /// The step.
    pub(crate) fn plan(&self, companion_prefix: &[u8]) -> Plan {
        plan::break_lease(self.key.bytes(), self.fence, companion_prefix)
    }

    /// Reports that it was not carried out.
    pub(crate) fn refuse(self, why: BreakError) {
        // The caller may have stopped waiting.
        let _ = self.done.send(Err(why));
    }

    /// Reports the step's answer to the caller, the logs and the registers.
    pub fn settle(self, shared: &ProxyState, answer: &Value) {
        if let Some(error) = answer.as_error() {
            let text = String::from_utf8_lossy(error).into_owned();
            return self.refuse(BreakError::Refused(text));
        }
        let told = match plan::broke(answer) {
            Some(Broke::Done { grant, held }) => Ok(Broken::Done { id: self.done(shared, grant, held) }),
            Some(Broke::Other(fence)) => Ok(Broken::Newer(fence)),
            Some(Broke::Absent) => Ok(Broken::Absent),
            Some(Broke::Ungoverned) => Ok(Broken::Ungoverned),
            None => Err(BreakError::Unknown("the backend answered nothing that the step answers".to_owned())),
        };
        let _ = self.done.send(told);
    }

    /// The lease is over. Its keep-alive ends at the next renewal, which finds another state.
    fn done(&self, shared: &ProxyState, grant: Grant, held: Duration) -> String {
        let active = shared.active.load();
        let current = shared.mirror.current(&self.key);
        // The mirror may show the next lease already, which stays.
        if current.is_some_and(|(current, _)| current == grant) {
            let event = LeaseEvent::Released;
            let ended = shared.mirror.apply(&self.key, event, Instant::now());
            if let (Some(ended), Some(details)) = (ended, active.of_lock(self.key.bytes())) {
                effects::count_hold(details, &ended);
            }
        }
        let id = refusal_id();
        let Some(details) = active.of_lock(self.key.bytes()) else {
            return id;
        };
        let held_ms = clock::ms(held);
        tracing::warn!(
            id,
            namespace = %details.name,
            key = %String::from_utf8_lossy(self.key.bytes()),
            db = self.key.db(),
            fence = self.fence.0,
            held_ms,
            reason = %self.reason,
            "lease broken by an operator"
        );
        let mut verdict = Verdict::permitted(DecisionKind::Allow);
        verdict.detail = Some(self.reason.clone());
        let mut entry = details.event(EventKind::Broken, self.key.clone());
        entry.id = Some(id.as_str().into());
        entry.verdict = Some(verdict);
        entry.fence = Some(self.fence.0);
        entry.held_ms = Some(held_ms);
        shared.events.leave(entry);
        id
    }
}
