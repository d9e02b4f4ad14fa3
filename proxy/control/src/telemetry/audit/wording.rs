//! Explains one record to a person: what was sent, by which client, what was in the way, what the policies answered,
//! and what to do about it. `lockwarden why`, the API and the board all use these words.

use std::fmt::Write as _;

use lockwarden_lock::reason::Reason;

use crate::text::numbers::utc;

use super::record::{Answer, Client, Question, Record};
use crate::text::durations::duration;

/// A record in words.
pub struct Told {
    pub headline: String,
    /// The topic of each line (`who`, `sent`, `do`), and its text.
    pub lines: Vec<(&'static str, String)>,
}

impl Told {
    /// The text for a terminal, with the requested id as its title.
    pub fn text(&self, id: &str) -> String {
        let mut text = format!("{id}: {}\n\n", self.headline);
        for (name, words) in &self.lines {
            let _ = writeln!(text, "  {name:<8} {words}");
        }
        text.push('\n');
        text
    }
}

/// Explains the record that has this id or stands for it. `holder` was granted the lease that it is about.
pub fn told(record: &Record, holder: Option<&Client>, id: &str) -> Told {
    let mut lines = Vec::new();
    let mut say = |name: &'static str, words: String| {
        // A policy's own words come from others.
        let plain: String =
            words.chars().map(|character| if character.is_control() { '?' } else { character }).collect();
        lines.push((name, plain));
    };
    say("when", utc(record.at).replace('T', " ").replace('Z', " UTC"));
    if let Some(client) = &record.client {
        say("who", who(client));
    }
    say("sent", sent(record));
    if let Some(stood) = stood(record, holder) {
        say("lease", stood);
    }
    if record.ran_out {
        say("before", "a lease ran out unreleased, which was noticed now".to_owned());
    }
    if record.overlap {
        say("overlap", "this client's own lease had run out, and it worked on: two did at the same time".to_owned());
    }
    if let Some(said) = said(record) {
        say("said", said);
    }
    for question in &record.questions {
        say("asked", asked(question));
    }
    if let Some(took) = record.took_us {
        say("took", took_words(took, record.redis_us));
    }
    if let Some(came) = came_of_it(record) {
        say("result", came.to_owned());
    }
    if let Some(repeated) = record.repeated {
        say("again", folded(record, repeated, id));
    }
    if let Some(advice) = advice(record) {
        say("do", advice.to_owned());
    }
    Told { headline: headline(record), lines }
}

fn headline(record: &Record) -> String {
    let what = match &record.command {
        Some(command) if let Some(wrote) = &record.wrote => format!("{command} {wrote}"),
        Some(command) if record.key.is_empty() => command.clone(),
        Some(command) => format!("{command} {}", record.key),
        None => record.key.clone(),
    };
    let became = match (record.decision.as_deref(), record.event.as_str()) {
        (Some("deny"), _) => "was refused",
        (Some("would-deny"), _) => "would have been refused",
        (Some("modify"), _) => "was carried out with another TTL",
        (Some("would-modify"), _) => "was carried out as asked; enforce mode gives another TTL",
        (_, "broken") => "was ended by an operator",
        (_, "unconfirmed") => "was carried out and taken back",
        (_, "holder-lost") => "was shortened, because its holder is gone",
        (_, "lease-lost") => "was lost in a failover",
        (_, "ran-out") => "ran out before it was given back",
        (_, "forwarded") => "was let through",
        (Some(_) | None, _) => "was carried out",
    };
    match &record.reason {
        Some(reason) => format!("{what} {became}: {reason}"),
        None => format!("{what} {became}"),
    }
}

fn who(client: &Client) -> String {
    let Client { application, address, name, user, library, certificate, .. } = client;
    let host = client.host();
    let is_said = |name: &&String| name.is_empty() || **name == host || Some(*name) == user.as_ref();
    let called = Some(application).filter(|name| !is_said(name)).or(name.as_ref());
    let mut words = called.map_or_else(|| address.clone(), |called| format!("{called} at {address}"));
    let others = [
        ("name ", name.as_ref().filter(|name| Some(*name) != called)),
        ("user ", user.as_ref()),
        ("", library.as_ref()),
        ("certificate ", certificate.as_ref()),
    ];
    for (what, said) in others {
        if let Some(said) = said {
            let _ = write!(words, ", {what}{said}");
        }
    }
    words
}

fn sent(record: &Record) -> String {
    if let (Some(command), Some(wrote), Some(guard)) = (&record.command, &record.wrote, &record.guard) {
        return format!(
            "{command} {wrote} in database {}: guard {guard} keeps that for who holds {}",
            record.db, record.key
        );
    }
    let mut words = match &record.command {
        Some(command) => format!("{command} {} in database {}", record.key, record.db),
        None => format!("no command; the lock is {} in database {}", record.key, record.db),
    };
    if let Some(operation) = &record.operation {
        let _ = write!(words, ", to a lock: {operation}");
    }
    match (&record.token, record.token_length) {
        (Some(token), Some(length)) => {
            let _ = write!(words, ", with an owner token of {length} bytes (fingerprint {token})");
        }
        (Some(token), None) => {
            let _ = write!(words, ", with an owner token (fingerprint {token})");
        }
        (None, _) if record.operation.is_some() => words.push_str(", without an owner token"),
        (None, _) => {}
    }
    if let Some(asked) = record.asked_ms.filter(|asked| *asked > 0) {
        let _ = write!(words, ", for {}", duration(asked));
    }
    words
}

/// The lease that was in the way.
fn stood(record: &Record, holder: Option<&Client>) -> Option<String> {
    let fence = record.fence.map(|fence| format!("fencing token {fence}"));
    let own = record.own_fence.map(|own| format!("this client's own had fencing token {own}"));
    let held = record.held_ms.map(|held| format!("held for {}", duration(held)));
    let left = record.ttl_ms.map(|ttl| match ttl {
        0 => "without a TTL from now on".to_owned(),
        ttl => format!("TTL from now on {}", duration(ttl)),
    });
    let would = record.would_ttl_ms.map(|ttl| format!("in enforce mode {}", duration(ttl)));
    let holder = holder.map(|holder| format!("granted to {}", who(holder)));
    let parts = [holder, fence, held, left, would, own].into_iter().flatten();
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn said(record: &Record) -> Option<String> {
    let decision = record.decision.as_deref()?;
    let mut words = match (&record.policy, &record.rule) {
        (Some(policy), Some(rule)) => format!("{policy}, rule {rule}: "),
        (Some(policy), None) => format!("{policy}: "),
        (None, _) => String::new(),
    };
    match &record.reason {
        Some(reason) => {
            let _ = write!(words, "{reason}");
            if let Some(meaning) = reason_of(record).map(Reason::meaning) {
                let _ = write!(words, " ({meaning})");
            }
        }
        None => words.push_str(decision),
    }
    if let Some(detail) = &record.detail {
        let _ = write!(words, "; {detail}");
    }
    let _ = write!(words, "; namespace {}, mode {}", record.namespace, record.mode);
    Some(words)
}

fn asked(question: &Question) -> String {
    let mut words = format!(
        "{} with proofs [{}] and traits [{}], attempt {}",
        question.operation,
        question.proofs.join(" "),
        question.traits.join(" "),
        question.attempts,
    );
    if let Some(ttl) = question.ttl_ms {
        let _ = write!(words, ", TTL {}", duration(ttl));
    }
    let _ = write!(words, " → {}", answer(&question.answer));
    words
}

fn answer(answer: &Answer) -> String {
    let mut words = answer.verdict.clone();
    let spans = [
        ("TTL if none", answer.ttl_default_ms),
        ("TTL at most", answer.ttl_cap_ms),
        ("renewed up to", answer.keep_alive_ms),
        ("held at most", answer.max_hold_ms),
    ];
    for (name, ms) in spans {
        if let Some(ms) = ms {
            let _ = write!(words, ", {name} {}", duration(ms));
        }
    }
    if let Some(require) = &answer.require {
        let _ = write!(words, ", needs a proof of [{}]", require.join(" "));
    }
    if let Some(fault) = &answer.fault {
        let _ = write!(words, ", a policy failed ({fault})");
    }
    words
}

fn came_of_it(record: &Record) -> Option<&'static str> {
    match (record.decision.as_deref(), record.event.as_str()) {
        (Some("deny"), _) => Some("nothing was changed"),
        (Some("would-deny"), _) => Some("Redis carried it out, because this namespace only watches this client"),
        (_, "broken") => Some("the lock is free; its former holder may not know yet"),
        (_, "unconfirmed") => Some("the client was told that it has not got the lock"),
        (_, "holder-lost") => Some("the lock is free when that TTL is over"),
        (_, "lease-lost") => Some(
            "the server that became the primary does not have the lease: its holder was not told, and works on without the lock",
        ),
        (_, "unjudged") => Some("Redis carried it out; no policy was asked"),
        (Some(_) | None, _) => None,
    }
}

fn took_words(took_us: u64, redis_us: Option<u64>) -> String {
    match redis_us {
        Some(redis_us) => format!("{took_us} µs, {redis_us} µs of it until Redis had answered"),
        None => format!("{took_us} µs to judge it"),
    }
}

fn folded(record: &Record, repeated: u64, id: &str) -> String {
    let mut words = format!("this stands for {repeated} equal ones within a second");
    if let Some(last) = record.id.as_deref().filter(|last| *last != id) {
        let _ = write!(words, "; the details are those of the last, {last}");
    }
    words
}

fn reason_of(record: &Record) -> Option<Reason> {
    Reason::from_word(record.reason.as_deref()?.as_bytes())
}

fn advice(record: &Record) -> Option<&str> {
    if record.policy.as_deref() == Some("audit") {
        return Some(
            "audit_required is set and the audit trail cannot be written: look at the disk and the log of \
             the proxy",
        );
    }
    if record.event == "lease-lost" {
        return Some(
            "stop what the holder does, or see to it that nobody else does the same; quarantine = \"auto\" of the namespace \
             keeps free locks from being granted as long as leases of the primary before may go on",
        );
    }
    if record.event == "unjudged" || record.event == "ungoverned" {
        return None;
    }
    if record.wrote.is_some() {
        return Some(match reason_of(record)? {
            Reason::StaleFence => "stop: what it read is old; take the lock again, read again, then write",
            _ => "take the lock on the connection that writes, before it reads what it will write",
        });
    }
    // Only the other policy's own words say what it wants.
    let policy = record.policy.as_deref();
    if policy.is_some_and(|policy| !SHIPPED.contains(&policy)) {
        return record.detail.as_deref();
    }
    reason_of(record)?.advice()
}

/// The policies for whose refusals reasons and advice are given here.
const SHIPPED: [&str; 5] = ["owner-token", "ttl-ceiling", "fencing", "scripts", "lockwarden"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_from_the_command_to_the_advice() {
        let record = Record {
            at: 1_795_261_959_232,
            event: "refused".to_owned(),
            id: Some("DAXTD3".to_owned()),
            namespace: "orders".to_owned(),
            mode: "enforce".to_owned(),
            key: "lock:a".to_owned(),
            command: Some("DEL".to_owned()),
            operation: Some("release".to_owned()),
            client: Some(Client {
                address: "127.0.0.2:43355".to_owned(),
                name: Some("billing-7".to_owned()),
                user: Some("default".to_owned()),
                ..Client::default()
            }),
            decision: Some("deny".to_owned()),
            reason: Some("not-owner".to_owned()),
            policy: Some("owner-token".to_owned()),
            fence: Some(43),
            held_ms: Some(5812),
            repeated: Some(3),
            ..Record::default()
        };
        let holder =
            Client { address: "127.0.0.3:50110".to_owned(), name: Some("stock-5".to_owned()), ..Client::default() };
        assert_eq!(
            told(&record, Some(&holder), "AAAAAA").text("AAAAAA"),
            "AAAAAA: DEL lock:a was refused: not-owner\n\
             \n  when     2026-11-21 11:52:39.232 UTC\
             \n  who      billing-7 at 127.0.0.2:43355, user default\
             \n  sent     DEL lock:a in database 0, to a lock: release, without an owner token\
             \n  lease    granted to stock-5 at 127.0.0.3:50110; fencing token 43; held for 5.8 s\
             \n  said     owner-token: not-owner (no proof that this client holds the lock); namespace orders, mode enforce\
             \n  result   nothing was changed\
             \n  again    this stands for 3 equal ones within a second; the details are those of the last, DAXTD3\
             \n  do       release and extend only after a successful acquire, by compare-and-delete with the value that was stored; over a pool, name its connections (CLIENT SETNAME)\
             \n\n"
        );
    }
}
