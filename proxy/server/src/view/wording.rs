//! What happened, in the words of the API.

use super::api::{Client, Moment};
use crate::telemetry::events::{Caller, DEFAULT_USER, EventKind, LockEvent};
use crate::telemetry::vocabulary::Label;
use crate::text::escape::spell;

pub(super) fn client(caller: &Caller) -> Client {
    let spelled = |bytes: &[u8]| (!bytes.is_empty()).then(|| spell(bytes));
    let user = (caller.user != DEFAULT_USER).then_some(&caller.user[..]);
    Client {
        application: caller.application(),
        address: caller.address.to_string(),
        name: spelled(&caller.name),
        user: user.and_then(spelled),
        library: caller.library.as_ref().map(ToString::to_string),
        certificate: caller.known_by.certificate().map(|name| spell(name.as_bytes())),
    }
}

/// The kind of what has kinds.
fn kind(happened: EventKind) -> Option<&'static str> {
    match happened {
        EventKind::Observed(observation) => Some(observation.word()),
        EventKind::Unjudged(why) => Some(why.word()),
        EventKind::Acquired { again: true, .. } => Some("again"),
        EventKind::Acquired { ran_out: true, .. } => Some("after-one-that-ran-out"),
        EventKind::Absent { ran_out: true } => Some("ran-out"),
        EventKind::Acquired { replaced: true, .. } | EventKind::Released { taken_over: true } => Some("taken-over"),
        EventKind::Acquired { .. }
        | EventKind::Contended { .. }
        | EventKind::Extended { .. }
        | EventKind::Released { .. }
        | EventKind::Absent { .. }
        | EventKind::RanOut
        | EventKind::Lost
        | EventKind::Refused
        | EventKind::Different
        | EventKind::Unchanged
        | EventKind::Ungoverned
        | EventKind::Forwarded
        | EventKind::Unconfirmed
        | EventKind::Failed
        | EventKind::HolderLost
        | EventKind::Broken => None,
    }
}

pub(super) fn moment(entry: &LockEvent) -> Moment {
    let verdict = entry.verdict.as_ref();
    let guarded = entry.guarded.as_deref();
    let told = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Moment {
        at: entry.at_ms,
        id: entry.id.as_deref().map(str::to_owned),
        event: entry.happened.word().to_owned(),
        kind: kind(entry.happened).map(str::to_owned),
        overlap: entry.overlap,
        namespace: entry.namespace.to_string(),
        mode: entry.mode.word().to_owned(),
        key: spell(&entry.key.key),
        db: entry.key.db,
        command: told(&entry.command.to_ascii_uppercase()),
        operation: entry.operation.map(|operation| operation.word().to_owned()),
        client: entry.caller.as_deref().map(client),
        decision: verdict.map(|verdict| verdict.kind.word().to_owned()),
        reason: verdict.and_then(|verdict| Some(verdict.reason?.word().to_owned())),
        policy: verdict.and_then(|verdict| told(&verdict.policy)),
        detail: verdict.and_then(|verdict| Some(spell(verdict.detail.as_deref()?.as_bytes()))),
        token: entry.token.map(|token| token.to_string()),
        fence: entry.fence,
        ttl_ms: entry.ttl_ms,
        asked_ms: entry.asked_ms,
        would_ttl_ms: entry.would_give.map(|terms| terms.ttl_ms.0),
        held_ms: entry.held_ms,
        wrote: guarded.map(|guarded| spell(&guarded.key)),
        guard: guarded.map(|guarded| guarded.guard.to_string()),
        own_fence: guarded.and_then(|guarded| guarded.own_fence),
    }
}
