//! Steps of several clients in one script. Most of what a step costs Redis is the script itself, its words and its look at the clock and at two
//! keys; together they have that once. Only what is usual goes so, by what stands in the step's own words (their order is on top of
//! each `.lua` file). For anything that turns out to be unusual on Redis the script does nothing and says so.

use bytes::BytesMut;
use memchr::memchr;
use smallvec::SmallVec;

use super::Plan;
use super::step::Step;
use super::{Form, Text};
use crate::record::MAX_STORED_TOKEN;
use crate::scripts::{self, Script};

/// Steps in one group: as many keep Redis busy for some 150 µs.
const MOST_IN_GROUP: usize = 32;

/// What the answer to a group has in place of one that is to be sent by itself: nothing was done for it.
pub const SENT_ALONE: &[u8] = b"$1\r\n-\r\n";

/// The kinds of steps, in the order in which they stand in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Acquire,
    Release,
    Extend,
}

type Words<'a> = SmallVec<[&'a [u8]; 12]>;

/// A step that may be one of a group.
struct Member<'a> {
    kind: Kind,
    lock: &'a [u8],
    record: &'a [u8],
    /// Those of the step behind its keys.
    words: Words<'a>,
}

impl<'a> Member<'a> {
    fn of(plan: &'a Plan) -> Option<Member<'a>> {
        let (lock, record) = plan.one_lock()?;
        let Text::Own(script) = &plan.text else {
            return None;
        };
        if plan.checked.is_some() {
            return None;
        }
        let is = |one: &'static Script| std::ptr::eq(*script, one);
        let [_, _, keys] = plan.one_lock?;
        let words = words(plan.tail.get(keys..)?);
        let kind = if is(&scripts::ACQUIRE) && is_usual_acquire(&words) {
            Kind::Acquire
        } else if is(&scripts::RELEASE) && is_usual_release(&words) {
            Kind::Release
        } else if is(&scripts::EXTEND) && is_usual_extension(&words) {
            Kind::Extend
        } else {
            return None;
        };
        Some(Member { kind, lock, record, words })
    }

    /// TTL, what was asked for, and the TTL of the record.
    fn terms(&self) -> &[&'a [u8]] {
        match self.kind {
            Kind::Acquire => &self.words[2..5],
            Kind::Release => &[],
            Kind::Extend => &self.words[4..7],
        }
    }

    /// What the group is told of it; `terms` says which are its own.
    fn put(&self, terms: u8, step: &mut Step) {
        let mut part: SmallVec<[u8; 96]> = SmallVec::new();
        match (self.kind, &self.words[..]) {
            (Kind::Acquire, [value, front, ..]) => {
                part.extend_from_slice(front);
                part.push(terms);
                step.bytes(&part);
                step.bytes(value);
            }
            (Kind::Release | Kind::Extend, [flags, grant, claim, ..]) => {
                part.extend_from_slice(grant);
                part.push(if flags.contains(&b'A') { b'A' } else { b'-' });
                part.push(terms);
                if flags.contains(&b'c') {
                    part.extend_from_slice(claim);
                }
                step.bytes(&part);
            }
            _ => {}
        }
    }
}

/// A free lock is taken with a TTL in ms and a token by the clock; in any other case nothing but its being held is told.
fn is_usual_acquire(words: &Words<'_>) -> bool {
    let [value, _, ttl, _, _, fence, flags, ..] = words[..] else {
        return false;
    };
    value.len() <= MAX_STORED_TOKEN && !matches!(ttl, b"@" | b"0") && fence == b"h" && matches!(flags, b"" | b"u")
}

/// The session has a lease of its own to give back, and nothing but that is asked.
fn is_usual_release(words: &Words<'_>) -> bool {
    let [flags, grant, claim, _, command] = words[..] else {
        return false;
    };
    let ends_key = command.eq_ignore_ascii_case(b"DEL") || command.eq_ignore_ascii_case(b"UNLINK");
    is_by_session(flags, grant, claim) && ends_key
}

/// The session gives its lease a TTL in ms, without a condition.
fn is_usual_extension(words: &Words<'_>) -> bool {
    let [flags, grant, claim, _, ttl, asked, _, ..] = words[..] else {
        return false;
    };
    is_by_session(flags, grant, claim) && !asked.is_empty() && ttl != b"0"
}

/// As release.lua and extend.lua look at their flags.
fn is_by_session(flags: &[u8], grant: &[u8], claim: &[u8]) -> bool {
    let is_compared = flags.contains(&b'c');
    flags.starts_with(b"rs")
        && !flags.iter().any(|flag| b"guzB".contains(flag))
        && grant.len() == 16
        && !(is_compared && claim.is_empty())
}

impl Plan {
    /// A step of these words, in the order on top of its script.
    pub fn of_words(script: &'static Script, lock: &[u8], record: &[u8], words: &[Vec<u8>]) -> Plan {
        let mut step = Step::around(lock, record);
        words.iter().for_each(|word| step.bytes(word));
        step.done(script)
    }

    /// Whether it may be one of a group.
    pub fn is_usual(&self) -> bool {
        Member::of(self).is_some()
    }
}

/// Picks those of these steps that go together: usual ones, each about another lock, at most [`MOST_IN_GROUP`]. Writes their script, and returns
/// their places among the steps in the order of its answers; where there are fewer than `least`, none.
pub fn put_group<'a>(
    plans: impl Iterator<Item = &'a Plan>,
    least: usize,
    form: Form,
    out: &mut BytesMut,
) -> SmallVec<[usize; MOST_IN_GROUP]> {
    let mut members: SmallVec<[(usize, Member<'_>); MOST_IN_GROUP]> = SmallVec::new();
    for (place, plan) in plans.enumerate() {
        if members.len() < MOST_IN_GROUP
            && let Some(member) = Member::of(plan)
            && members.iter().all(|(_, other)| other.lock != member.lock)
        {
            members.push((place, member));
        }
    }
    if members.len() < least {
        return SmallVec::new();
    }
    members.sort_by_key(|(_, member)| member.kind);
    let mut terms: SmallVec<[&[&[u8]]; MOST_IN_GROUP]> = SmallVec::new();
    for (_, member) in &members {
        if !member.terms().is_empty() && !terms.contains(&member.terms()) {
            terms.push(member.terms());
        }
    }
    let mut step = Step::empty();
    step.number(members.len() as u64 * 2);
    for (_, member) in &members {
        step.bytes(member.lock);
        step.bytes(member.record);
    }
    let count = |kind| members.iter().filter(|(_, member)| member.kind == kind).count();
    step.number(count(Kind::Acquire) as u64);
    step.number(count(Kind::Release) as u64);
    step.number(terms.len() as u64);
    terms.iter().copied().flatten().for_each(|word| step.bytes(word));
    for (_, member) in &members {
        let at = terms.iter().position(|terms| *terms == member.terms());
        let which = at.and_then(|at| u8::try_from(at + 1).ok());
        member.put(which.unwrap_or(0), &mut step);
    }
    step.done(&scripts::GROUP).put(out, form);
    members.iter().map(|(place, _)| *place).collect()
}

/// The bulk strings that these bytes are.
fn words(mut bytes: &[u8]) -> Words<'_> {
    let mut words = Words::new();
    while let Some(end) = memchr(b'\n', bytes) {
        let length = bytes.get(1..end.saturating_sub(1)).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
        let Some(length) = length else { break };
        let (Some(word), Some(rest)) = (bytes.get(end + 1..).and_then(|rest| rest.get(..length)), bytes.get(end + length + 3..)) else {
            break;
        };
        words.push(word);
        bytes = rest;
    }
    words
}
