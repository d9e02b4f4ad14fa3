//! Turns entries of the event log into lines.

use std::net::SocketAddr;
use std::time::Duration;

use lockwarden_lock::decision::{Decision, Verdict};

use super::{Answer, Client, Question, Record, VERSION, shown_command};
use crate::telemetry::events::{Asked, Caller, DEFAULT_USER, EventKind, LockEvent};
use crate::telemetry::vocabulary::Label;
use crate::text::escape::spell;
use crate::text::numbers::utc;

impl Record {
    /// An entry as a line of the trail. `seq` is set when the line is written.
    pub fn line(entry: &LockEvent) -> Record {
        let mut line = Record {
            v: VERSION,
            time: utc(entry.at_ms),
            token_length: entry.token.map(|token| token.length),
            took_us: entry.took.map(|took| micros(took.whole())),
            redis_us: entry.took.and_then(|took| took.redis).map(micros),
            questions: entry.asked.iter().map(Question::of).collect(),
            ..Record::of(entry)
        };
        if let (Some(client), Some(caller)) = (&mut line.client, &entry.caller) {
            client.session = Some(caller.session.0);
            client.application = caller.told_by_others().unwrap_or_default();
            client.process = caller.program().is_some();
            client.user = text(&caller.user);
        }
        line
    }

    /// An entry as the API reports it.
    pub fn of(entry: &LockEvent) -> Record {
        let said = entry.verdict.as_ref();
        let marks = Marks::of(entry.happened);
        let guarded = entry.guarded.as_deref();
        Record {
            at: entry.at_ms,
            event: entry.happened.word().to_owned(),
            kind: marks.kind.map(str::to_owned),
            id: entry.id.as_deref().map(str::to_owned),
            namespace: entry.namespace.to_string(),
            mode: entry.mode.word().to_owned(),
            db: entry.key.db(),
            key: spell(entry.key.bytes()),
            command: shown_command(entry.command),
            operation: entry.operation.map(|operation| operation.word().to_owned()),
            client: entry.caller.as_deref().map(Client::of),
            decision: said.map(|said| said.kind.word().to_owned()),
            reason: said.and_then(|said| said.reason).map(|reason| reason.word().to_owned()),
            policy: said.map(|said| said.policy.to_string()).filter(|policy| !policy.is_empty()),
            rule: said.and_then(|said| said.rule.as_deref().map(str::to_owned)),
            detail: said.and_then(|said| Some(spell(said.detail.as_deref()?.as_bytes()))),
            token: entry.token.map(|token| token.to_string()),
            fence: entry.fence,
            ttl_ms: entry.ttl_ms,
            asked_ms: entry.asked_ms,
            would_ttl_ms: entry.would_give.map(|terms| terms.ttl_ms.0),
            held_ms: entry.held_ms,
            wrote: guarded.map(|guarded| spell(&guarded.key)),
            guard: guarded.map(|guarded| guarded.guard.to_string()),
            own_fence: guarded.and_then(|guarded| guarded.own_fence),
            overlap: entry.overlap,
            ran_out: marks.ran_out,
            taken_over: marks.taken_over,
            again: marks.again,
            kept_alive: marks.kept_alive,
            own: marks.own,
            ..Record::default()
        }
    }
}

/// The flags of a line that describe the event further.
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
                let kinds = [(again, "again"), (ran_out, "after-one-that-ran-out"), (replaced, "taken-over")];
                let kind = kinds.into_iter().find_map(|(is_so, word)| is_so.then_some(word));
                Marks { kind, again, taken_over: replaced, ran_out, kept_alive: kept, ..none }
            }
            EventKind::Contended { own } => Marks { own, ..none },
            EventKind::Extended { kept } => Marks { kept_alive: kept, ..none },
            EventKind::Released { taken_over } => {
                Marks { kind: taken_over.then_some("taken-over"), taken_over, ..none }
            }
            EventKind::Absent { ran_out } => Marks { kind: ran_out.then_some("ran-out"), ran_out, ..none },
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
    /// Its address without the port, as in `PeerAddress::host`.
    pub fn host(&self) -> String {
        match self.address.parse::<SocketAddr>() {
            Ok(address) => address.ip().to_canonical().to_string(),
            // A unix socket is followed by a process number, as in unix:4242.
            Err(_) => self.address.split(':').next().unwrap_or_default().to_owned(),
        }
    }

    /// A client of the proxy, as the API reports it.
    pub fn of(caller: &Caller) -> Client {
        let user = (caller.user != DEFAULT_USER).then_some(&caller.user[..]);
        Client {
            session: None,
            process: false,
            application: caller.application(),
            address: caller.address.to_string(),
            name: text(&caller.name),
            user: user.and_then(text),
            library: caller.library.as_deref().map(str::to_owned),
            certificate: caller.known_by.certificate().map(|name| spell(name.as_bytes())),
        }
    }
}

/// Bytes in their printable form; `None` if there are none.
fn text(bytes: &[u8]) -> Option<String> {
    (!bytes.is_empty()).then(|| spell(bytes))
}

impl Question {
    fn of(asked: &Asked) -> Question {
        Question {
            operation: asked.operation.word().to_owned(),
            token: asked.owner_token.map(|token| token.to_string()),
            token_length: asked.owner_token.map(|token| token.length),
            token_class: asked.owner_token.map(|_| asked.token_class.to_owned()),
            ttl_ms: asked.ttl_ms,
            proofs: asked.proofs.words().map(str::to_owned).collect(),
            traits: asked.traits.words().map(str::to_owned).collect(),
            fencing_token: asked.fencing_token,
            remaining_ms: asked.remaining_ms,
            attempts: asked.attempts,
            now_ms: asked.now_ms,
            holds: asked.holdings.iter().flat_map(|holdings| &holdings.connection).map(|key| spell(key)).collect(),
            held: asked.holdings.as_ref().map_or(0, |holdings| holdings.application),
            answer: Answer::of(&asked.answer),
        }
    }
}

impl Answer {
    pub fn of(decision: &Decision) -> Answer {
        let wants = &decision.obligations;
        let fault = decision.fault.as_ref();
        let answer = Answer {
            fault: fault.map(|fault| format!("{}: {}", fault.policy, fault.kind.word())),
            ttl_default_ms: wants.ttl_default_ms,
            ttl_cap_ms: wants.ttl_cap_ms,
            keep_alive_ms: wants.keep_alive_ms,
            max_hold_ms: wants.max_hold_ms,
            require: wants.require.map(|proofs| proofs.words().map(str::to_owned).collect()),
            fence: wants.fence.word().map(str::to_owned),
            current_fence_only: wants.current_fence_only,
            take_over: wants.take_over.map(|rule| rule.word().to_owned()),
            next: decision.by_next,
            ..Answer::default()
        };
        match &decision.verdict {
            Verdict::Permit => Answer { verdict: "permit".to_owned(), ..answer },
            Verdict::Deny(denial) => Answer {
                verdict: "deny".to_owned(),
                reason: Some(denial.reason.word().to_owned()),
                policy: Some(denial.policy.to_string()),
                rule: denial.rule.as_deref().map(str::to_owned),
                detail: denial.detail.clone(),
                ..answer
            },
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::telemetry::vocabulary::{Observation, UnjudgedWhy};

    #[test]
    fn the_schema_knows_every_kind() {
        let schema = include_str!("../../../../../../docs/audit-record.schema.json");
        let schema: serde_json::Value = serde_json::from_str(schema).expect("JSON");
        let kinds = schema["$defs"]["record"]["properties"]["kind"]["enum"].as_array().expect("a list");
        let kinds: BTreeSet<&str> = kinds.iter().filter_map(serde_json::Value::as_str).collect();
        let grant = |again, replaced, ran_out| EventKind::Acquired { again, replaced, ran_out, kept: false };
        let observed = Observation::ALL.iter().map(|kind| EventKind::Observed(*kind));
        let unjudged = UnjudgedWhy::ALL.iter().map(|why| EventKind::Unjudged(*why));
        let special = [
            grant(true, false, false),
            grant(false, true, false),
            grant(false, false, true),
            EventKind::Released { taken_over: true },
            EventKind::Absent { ran_out: true },
        ];
        let all = observed.chain(unjudged).chain(special);
        let told: BTreeSet<&str> = all.filter_map(|happened| Marks::of(happened).kind).collect();
        assert_eq!(told, kinds);
    }
}
