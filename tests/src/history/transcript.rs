//! Violations as text for people: which client, when, with which fencing token, and which faults there were at that
//! time. Times are seconds since the first request.

use std::fmt::Write as _;
use std::time::Duration;

use super::clock::At;
use super::judge::{Claim, End, LATE, Violation};
use super::operation::{Action, Answer, History, Operation};

/// What happened to the lock so long before and after is shown.
const AROUND: Duration = Duration::from_millis(400);
/// Of so many violations at most; the others are counted.
const MAX_SHOWN: usize = 3;
/// At most this many lines around a violation, the last ones.
const MAX_LINES: usize = 40;

struct Teller<'a> {
    history: &'a History,
    start: At,
}

pub(super) fn of(history: &History, violations: &[Violation]) -> String {
    let first = history.operations.first();
    let teller = Teller { history, start: first.map_or(At(0), |operation| operation.sent) };
    let mut text = String::new();
    for violation in violations.iter().take(MAX_SHOWN) {
        text.push_str(&teller.tells(violation));
        text.push('\n');
    }
    if violations.len() > MAX_SHOWN {
        let more = violations.len() - MAX_SHOWN;
        writeln!(text, "and {more} more").expect("a String takes all");
    }
    text
}

impl Teller<'_> {
    fn tells(&self, violation: &Violation) -> String {
        let (lock, from, to, lines) = match violation {
            Violation::Overlap(one, other) => {
                let lock = &self.operation(one.grant).lock;
                let to = one.until.min(other.until);
                let head = format!("TWO HOLDERS of {lock} for {:.1} ms", to.since(other.from).as_secs_f64() * 1e3);
                let lines = vec![head, self.claim(one), self.claim(other)];
                (lock, other.from, to, lines)
            }
            Violation::Fence { earlier, later } => {
                let (earlier, later) = (self.operation(*earlier), self.operation(*later));
                let lines =
                    vec![format!("FENCING TOKENS of {} do not rise", later.lock), self.line(earlier), self.line(later)];
                (&later.lock, later.sent, later.sent, lines)
            }
            Violation::ByStranger { operation, holder } => {
                let operation = self.operation(*operation);
                let why = match holder {
                    Some(holder) => {
                        format!("it was granted to another client since:\n{}", self.line(self.operation(*holder)))
                    }
                    None => "this client did not hold it".to_owned(),
                };
                let lines = vec![format!("NOT THE HOLDER of {} was obeyed", operation.lock), self.line(operation), why];
                (&operation.lock, operation.sent, operation.sent, lines)
            }
            Violation::Lost { operation, claim } => {
                let operation = self.operation(*operation);
                let lines = vec![
                    format!("A HOLDER of {} had lost it within its TTL", operation.lock),
                    self.claim(claim),
                    self.line(operation),
                ];
                (&operation.lock, operation.sent, operation.sent, lines)
            }
            Violation::Uncommitted { operation, missing } => {
                let operation = self.operation(*operation);
                let lines = vec![
                    format!("AN ANSWER about {} is not true: {missing} does not have it", operation.lock),
                    self.line(operation),
                ];
                (&operation.lock, operation.sent, operation.sent, lines)
            }
        };
        let mut text = lines.join("\n");
        text.push('\n');
        self.adds_surroundings(&mut text, lock, from, to);
        text
    }

    fn adds_surroundings(&self, text: &mut String, lock: &str, from: At, to: At) {
        let (from, to) = (from.minus(AROUND), to.plus(AROUND));
        let troubles = self.history.troubles.iter();
        let troubles: Vec<_> = troubles
            .filter(|one| one.began <= to && one.ended.is_none_or(|ended| ended >= from))
            .map(|one| {
                let ended = one
                    .ended
                    .map_or_else(|| "still going on".to_owned(), |ended| format!("over at {}", self.time(ended)));
                format!("  {}  {}, {ended}\n", self.time(one.began), one.words)
            })
            .collect();
        text.push_str(match troubles.is_empty() {
            true => "nothing else was going wrong then\n",
            false => "what was going wrong then:\n",
        });
        text.extend(troubles);
        writeln!(text, "what was said of {lock} around it:").expect("a String takes all");
        let near = self.history.operations.iter().filter(|operation| {
            // What was not answered may still be carried out.
            let end = operation.answered.map_or(operation.sent.plus(LATE), |(at, _)| at);
            operation.lock == lock && operation.sent <= to && end >= from
        });
        // Clients that do not hold the lock ask for it all the time, and are refused.
        let is_refusal =
            |operation: &&Operation| operation.refused().is_some() && (operation.is_acquire() || !operation.proves);
        let (refusals, others): (Vec<_>, Vec<_>) = near.partition(is_refusal);
        let left_out = others.len().saturating_sub(MAX_LINES);
        if left_out > 0 {
            writeln!(text, "  … {left_out} before").expect("a String takes all");
        }
        for operation in &others[left_out..] {
            writeln!(text, "{}", self.line(operation)).expect("a String takes all");
        }
        if !refusals.is_empty() {
            writeln!(text, "and {} refusals to others", refusals.len()).expect("a String takes all");
        }
    }

    fn operation(&self, number: usize) -> &Operation {
        &self.history.operations[number]
    }

    fn claim(&self, claim: &Claim) -> String {
        let grant = self.operation(claim.grant);
        let end = match claim.end {
            End::Ttl => "when the TTL that it asked for was over",
            End::Release => "when it sent its release",
            End::Told => "when it was told that it has it no more",
            End::Death => "when it was killed",
        };
        format!(
            "  client {} held it from {} until {}, {end}{}",
            grant.client,
            self.time(claim.from),
            self.time(claim.until),
            fence(grant)
        )
    }

    fn line(&self, operation: &Operation) -> String {
        let answer = match operation.answered {
            None => "no answer".to_owned(),
            Some((at, answer)) => {
                let word = match (operation.action, answer) {
                    (Action::Acquire(_), Answer::Yes) => "granted",
                    (Action::Acquire(_), Answer::No) => "held by another client",
                    (_, Answer::Yes) => "done",
                    (_, Answer::No) => "not the holder",
                };
                let took = at.since(operation.sent).as_secs_f64() * 1e3;
                format!("{word} after {took:.1} ms")
            }
        };
        let mut words = operation.words.as_str();
        if let Some((end, _)) = words.char_indices().nth(90) {
            words = &words[..end];
        }
        format!(
            "  {}  client {:<3} {words} -> {answer}{}",
            self.time(operation.sent),
            operation.client,
            fence(operation)
        )
    }

    fn time(&self, at: At) -> String {
        format!("{:9.4} s", at.since(self.start).as_secs_f64())
    }
}

fn fence(grant: &Operation) -> String {
    let number = grant.fence.map(|fence| format!(", fencing token {fence}"));
    number.unwrap_or_default()
}
