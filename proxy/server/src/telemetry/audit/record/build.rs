//! Entries of the event log become lines.

use std::time::Duration;

use lockwarden_lock::decision::{Decision, Fence, TakeOverRule, Verdict};

use super::{Answer, Client, Question, Record, VERSION};
use crate::telemetry::events::{Asked, Caller, EventKind, LockEvent};
use crate::telemetry::vocabulary::Label;
use crate::text::escape::spell;
use crate::text::numbers::utc;

impl Record {
    /// An entry as a line. `seq` is given where it is written.
    pub(crate) fn of(entry: &LockEvent) -> Record {
        let said = entry.verdict.as_ref();
        let marks = Marks::of(entry.happened);
        let guarded = entry.guarded.as_deref();
        Record {
            v: VERSION,
            seq: 0,
            time: utc(entry.at_ms),
            at: entry.at_ms,
            event: entry.happened.word().to_owned(),
            kind: marks.kind.map(str::to_owned),
            id: entry.id.as_deref().map(str::to_owned),
            namespace: entry.namespace.to_string(),
            mode: entry.mode.word().to_owned(),
            db: entry.key.db,
            key: spell(&entry.key.key),
            command: shown_command(entry.command),
            operation: entry.operation.map(|operation| operation.word().to_owned()),
            client: entry.caller.as_deref().map(Client::of),
            decision: said.map(|said| said.kind.word().to_owned()),
            reason: said.and_then(|said| said.reason).map(|reason| reason.word().to_owned()),
            policy: said.map(|said| said.policy.to_string()).filter(|policy| !policy.is_empty()),
            detail: said.and_then(|said| said.detail.as_deref().map(str::to_owned)),
            token: entry.token.map(|token| token.to_string()),
            token_length: entry.token.map(|token| token.length),
            fence: entry.fence,
            ttl_ms: entry.ttl_ms,
            asked_ms: entry.asked_ms,
            would_ttl_ms: entry.would_give.map(|terms| terms.ttl_ms.0),
            held_ms: entry.held_ms,
            wrote: guarded.map(|guarded| spell(&guarded.key)),
            guard: guarded.map(|guarded| guarded.guard.to_string()),
            own_fence: guarded.and_then(|guarded| guarded.own_fence),
            took_us: entry.took.map(|took| micros(took.whole())),
            redis_us: entry.took.and_then(|took| took.redis).map(micros),
            overlap: entry.overlap,
            ran_out: marks.ran_out,
            taken_over: marks.taken_over,
            again: marks.again,
            kept_alive: marks.kept_alive,
            own: marks.own,
            repeated: None,
            ids: Vec::new(),
            questions: entry.asked.iter().map(Question::of).collect(),
        }
    }
}

/// The marks of a line that say more about what happened.
#[derive(Default)]
struct Marks {
    kind: Option<&'static str>,
    ran_out: bool,
    taken_over: bool,
    again: bool,
    kept_alive: bool,
    own: bool,
}

impl Marks {
    fn of(happened: EventKind) -> Marks {
        let none = Marks::default();
        match happened {
            EventKind::Acquired { again, replaced, ran_out, kept } => {
                Marks { again, taken_over: replaced, ran_out, kept_alive: kept, ..none }
            }
            EventKind::Contended { own } => Marks { own, ..none },
            EventKind::Extended { kept } => Marks { kept_alive: kept, ..none },
            EventKind::Released { taken_over } => Marks { taken_over, ..none },
            EventKind::Absent { ran_out } => Marks { ran_out, ..none },
            EventKind::Unjudged(why) => Marks { kind: Some(why.word()), ..none },
            EventKind::Observed(kind) => Marks { kind: Some(kind.word()), ..none },
            EventKind::RanOut
            | EventKind::Lost
            | EventKind::Refused
            | EventKind::Different
            | EventKind::Unchanged
            | EventKind::Ungoverned
            | EventKind::Forwarded
            | EventKind::Unconfirmed
            | EventKind::Failed
            | EventKind::Broken
            | EventKind::HolderLost => none,
        }
    }
}

impl Client {
    /// A client of the proxy.
    pub(crate) fn of(caller: &Caller) -> Client {
        let text = |bytes: &[u8]| (!bytes.is_empty()).then(|| spell(bytes));
        Client {
            session: Some(caller.session.0),
            address: caller.address.to_string(),
            application: caller.told_by_others(),
            name: text(&caller.name),
            user: text(&caller.user),
            library: caller.library.as_deref().map(str::to_owned),
            certificate: caller.known_by.certificate().map(|name| spell(name.as_bytes())),
        }
    }
}

impl Question {
    fn of(asked: &Asked) -> Question {
        Question {
            operation: asked.operation.word().to_owned(),
            token: asked.owner_token.map(|token| token.to_string()),
            token_length: asked.owner_token.map(|token| token.length),
            ttl_ms: asked.ttl_ms,
            proofs: asked.proofs.words().map(str::to_owned).collect(),
            traits: asked.traits.words().map(str::to_owned).collect(),
            fencing_token: asked.fencing_token,
            remaining_ms: asked.remaining_ms,
            attempts: asked.attempts,
            now_ms: asked.now_ms,
            answer: Answer::of(&asked.answer),
        }
    }
}

impl Answer {
    fn of(decision: &Decision) -> Answer {
        let wants = &decision.obligations;
        let fault = decision.fault.as_ref();
        let answer = Answer {
            fault: fault.map(|fault| format!("{}: {}", fault.policy, fault.kind.word())),
            ttl_default_ms: wants.ttl_default_ms,
            ttl_cap_ms: wants.ttl_cap_ms,
            keep_alive_ms: wants.keep_alive_ms,
            max_hold_ms: wants.max_hold_ms,
            require: wants.require.map(|proofs| proofs.words().map(str::to_owned).collect()),
            fence: match wants.fence {
                Fence::None => None,
                Fence::Hybrid => Some("hybrid".to_owned()),
                Fence::Sequential => Some("sequential".to_owned()),
            },
            current_fence_only: wants.current_fence_only,
            take_over: wants.take_over.map(|rule| match rule {
                TakeOverRule::Never => "never".to_owned(),
                TakeOverRule::AfterDeadline => "after-deadline".to_owned(),
            }),
            ..Answer::default()
        };
        match &decision.verdict {
            Verdict::Permit => Answer { verdict: "permit".to_owned(), ..answer },
            Verdict::Deny(denial) => Answer {
                verdict: "deny".to_owned(),
                reason: Some(denial.reason.word().to_owned()),
                policy: Some(denial.policy.to_string()),
                detail: denial.detail.clone(),
                ..answer
            },
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// A command as people know it.
fn shown_command(command: &str) -> Option<String> {
    (!command.is_empty()).then(|| command.replace('|', " ").to_ascii_uppercase())
}
