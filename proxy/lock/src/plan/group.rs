//! Steps of several clients in one script. Most of a step's cost for Redis is the script itself, its arguments, reading
//! the clock and reading two keys; a group has these costs once. Only usual steps are grouped, recognised by their
//! arguments (their order is at the top of each `.lua` file). For a step that turns out to be unusual on Redis, the
//! script does nothing and reports that.

use bytes::BytesMut;
use smallvec::SmallVec;

use super::step::Step;
use super::{Form, Plan, Text};
use crate::record::{KEPT, MAX_STORED_TOKEN, NO_FLAGS, RECORD};
use crate::scripts::{self, Script};
use crate::token::Grant;

/// The most steps in one group: this many keep Redis busy for about 150 µs.
const MOST_IN_GROUP: usize = 32;

/// The position of a record's flags, behind version and state.
const FLAGS_AT: usize = RECORD[0].1 + RECORD[1].1;

/// The group's answer for a step that must be sent alone: nothing was done for it.
pub const SENT_ALONE: &[u8] = b"$1\r\n-\r\n";

/// The kinds of steps, in their order within a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Acquire,
    Release,
    Extend,
}

type Words<'a> = SmallVec<[&'a [u8]; 12]>;

/// What steps have in common that the group is told of once; in their order within a group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Run<'a> {
    kind: Kind,
    /// Fencing tokens are remembered without a record: when the lock is taken, or because the record goes with it.
    forgets: bool,
    /// TTL, requested TTL and the TTL of the record; then the record's flags, or the flag that a new TTL adds. Nothing for
    /// a release.
    terms: [&'a [u8]; 4],
}

/// What no other step has: the beginning of the record and the value; or the grant and the value that the command
/// compares, if it does.
type Own<'a> = [&'a [u8]; 2];

/// A step that may be part of a group.
struct Member<'a> {
    lock: &'a [u8],
    record: &'a [u8],
    run: Run<'a>,
    own: Own<'a>,
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
        let (run, own) = if is(&scripts::ACQUIRE) {
            usual_acquire(&words)?
        } else if is(&scripts::RELEASE) {
            usual_release(&words)?
        } else if is(&scripts::EXTEND) {
            usual_extension(&words)?
        } else {
            return None;
        };
        Some(Member { lock, record, run, own })
    }
}

/// A free lock is taken with a TTL in ms and a token from the clock; in any other case, the answer only says that it is
/// held.
fn usual_acquire<'a>(words: &Words<'a>) -> Option<(Run<'a>, Own<'a>)> {
    let [value, front, ttl, asked, record_ttl, fence, flags, ..] = words[..] else {
        return None;
    };
    let is_usual = value.len() <= MAX_STORED_TOKEN
        && !matches!(ttl, b"@" | b"0")
        && matches!(fence, b"h" | b"hf")
        && matches!(flags, b"" | b"u");
    let record_flags = front.get(FLAGS_AT..=FLAGS_AT).filter(|_| is_usual)?;
    let terms = [ttl, asked, record_ttl, record_flags];
    Some((Run { kind: Kind::Acquire, forgets: fence == b"hf", terms }, [front, value]))
}

/// The session has a lease of its own to release, and nothing else is needed.
fn usual_release<'a>(words: &Words<'a>) -> Option<(Run<'a>, Own<'a>)> {
    let [flags, grant, claim, _, command, ref forgets @ ..] = words[..] else {
        return None;
    };
    let ends_key = command.eq_ignore_ascii_case(b"DEL") || command.eq_ignore_ascii_case(b"UNLINK");
    let is_usual = ends_key && matches!(forgets, [] | [b"f"]);
    let compared = compared(flags, grant, claim).filter(|_| is_usual)?;
    Some((Run { kind: Kind::Release, forgets: !forgets.is_empty(), terms: [b""; 4] }, [grant, compared]))
}

/// The session gives its lease a TTL in ms, without a condition.
fn usual_extension<'a>(words: &Words<'a>) -> Option<(Run<'a>, Own<'a>)> {
    let [flags, grant, claim, _, ttl, asked, record_ttl, ..] = words[..] else {
        return None;
    };
    let compared = compared(flags, grant, claim).filter(|_| !asked.is_empty() && ttl != b"0")?;
    let kept: &[u8] = if flags.contains(&b'A') { &[NO_FLAGS + KEPT] } else { &[NO_FLAGS] };
    let terms = [ttl, asked, record_ttl, kept];
    Some((Run { kind: Kind::Extend, forgets: false, terms }, [grant, compared]))
}

/// The value that a command compares, empty if it compares none. `None` if not only the session proves that the lease is
/// its own: checks the flags as release.lua and extend.lua do.
fn compared<'a>(flags: &[u8], grant: &[u8], claim: &'a [u8]) -> Option<&'a [u8]> {
    let is_usual = flags.starts_with(b"rs")
        && !flags.iter().any(|flag| b"guzB".contains(flag))
        && grant.len() == size_of::<Grant>();
    match flags.contains(&b'c') {
        true => Some(claim).filter(|claim| is_usual && !claim.is_empty()),
        false => is_usual.then_some(b""),
    }
}

impl Plan {
    /// A step about one lock with these arguments, in the order at the top of its script.
    pub fn of_words(script: &'static Script, lock: &[u8], companion_prefix: &[u8], words: &[Vec<u8>]) -> Plan {
        let mut step = Step::new(&[lock], companion_prefix, &[]);
        words.iter().for_each(|word| step.bytes(word));
        step.done(script)
    }

    /// Whether it may be part of a group.
    pub fn is_usual(&self) -> bool {
        Member::of(self).is_some()
    }
}

/// How steps were sent; each is identified by its place among them.
#[derive(Debug, PartialEq, Eq)]
pub enum Sent<'a> {
    /// These in one script, in the order of its answers.
    Together(&'a [usize]),
    /// This one alone, by its script's digest.
    Alone(usize),
}

/// Writes these steps. Usual steps about different locks are grouped, `least` or more, at most 32, by a script in this
/// form; all others are sent alone. `sent` is called for each request.
pub fn put_together<'a>(
    steps: impl Iterator<Item = &'a Plan>,
    (least, form): (usize, Form),
    out: &mut BytesMut,
    mut sent: impl FnMut(Sent<'_>),
) {
    let mut alone: SmallVec<[(usize, &Plan); MOST_IN_GROUP]> = SmallVec::new();
    let mut waiting = Vec::new();
    for (place, step) in steps.enumerate() {
        match Member::of(step) {
            Some(member) => waiting.push(Some((place, step, member))),
            None => alone.push((place, step)),
        }
    }
    while !waiting.is_empty() {
        let mut group: Vec<(usize, &Plan, Member<'_>)> = Vec::with_capacity(waiting.len().min(MOST_IN_GROUP));
        waiting.retain_mut(|one: &mut Option<_>| {
            let is_new = |member: &Member<'_>| group.iter().all(|other| other.2.lock != member.lock);
            if group.len() < MOST_IN_GROUP && one.as_ref().is_some_and(|(_, _, member)| is_new(member)) {
                group.extend(one.take());
            }
            one.is_some()
        });
        if group.len() < least {
            let rest = group.into_iter().chain(waiting.into_iter().flatten());
            alone.extend(rest.map(|(place, step, _)| (place, step)));
            break;
        }
        group.sort_by_key(|(.., member)| member.run);
        script(&group).put(out, form);
        let places: SmallVec<[usize; MOST_IN_GROUP]> = group.iter().map(|(place, ..)| *place).collect();
        sent(Sent::Together(&places));
    }
    for (place, step) in alone {
        step.put(out, Form::Sha);
        sent(Sent::Alone(place));
    }
}

/// The step for these members, which come in the order of their runs.
fn script(members: &[(usize, &Plan, Member<'_>)]) -> Plan {
    let mut step = Step::empty();
    step.number(members.len() as u64 * 2);
    for (_, _, member) in members {
        step.bytes(member.lock);
        step.bytes(member.record);
    }
    let of = |kind| {
        let runs = members.chunk_by(|(.., one), (.., next)| one.run == next.run);
        runs.filter(move |run| run[0].2.run.kind == kind)
    };
    let released = |forgets| {
        let runs = of(Kind::Release).filter(|run| run[0].2.run.forgets == forgets);
        runs.map(<[_]>::len).sum::<usize>() as u64
    };
    step.number(of(Kind::Acquire).count() as u64);
    step.number(released(false));
    step.number(released(true));
    step.number(of(Kind::Extend).count() as u64);
    step.bytes(if members.iter().any(|(.., one)| one.run.forgets) { b"f" } else { b"" });
    for run in of(Kind::Acquire).chain(of(Kind::Extend)) {
        step.number(run.len() as u64);
        run[0].2.run.terms.iter().for_each(|word| step.bytes(word));
    }
    members.iter().flat_map(|(.., member)| member.own).for_each(|word| step.bytes(word));
    step.done(&scripts::GROUP)
}

/// Splits these bytes into bulk strings, as a step writes them.
fn words(bytes: &[u8]) -> Words<'_> {
    let mut rest = bytes;
    std::iter::from_fn(|| {
        let (word, behind) = first_word(rest)?;
        rest = behind;
        Some(word)
    })
    .collect()
}

/// The text of the first bulk string, and the bytes behind it.
fn first_word(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let head = bytes.strip_prefix(b"$")?;
    let digits = head.iter().position(|byte| *byte == b'\r')?;
    let digit = |byte: &u8| usize::from(byte.wrapping_sub(b'0'));
    let length =
        head[..digits].iter().fold(0, |length: usize, byte| length.saturating_mul(10).saturating_add(digit(byte)));
    let (word, behind) = head.get(digits + 2..)?.split_at_checked(length)?;
    Some((word, behind.get(2..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acquire(lock: &str, ttl: &str, flags: &str) -> Plan {
        let front = [b"1L@".as_slice(), &[7; 48]].concat();
        let words = [b"v", &front[..], ttl.as_bytes(), b"0000000009000", b"609000", b"h", flags.as_bytes(), b""];
        Plan::of_words(&scripts::ACQUIRE, lock.as_bytes(), b"lw:", &words.map(<[u8]>::to_vec))
    }

    fn sent(steps: &[Plan], least: usize) -> Vec<String> {
        let mut told = Vec::new();
        let mut out = BytesMut::new();
        put_together(steps.iter(), (least, Form::Sha), &mut out, |sent| told.push(format!("{sent:?}")));
        told
    }

    #[test]
    fn usual_steps_about_different_locks_go_together_where_they_are_enough() {
        let [a, b, c] = ["lock:a", "lock:b", "lock:c"].map(|lock| acquire(lock, "9000", ""));
        let all = [a.clone(), b.clone(), c.clone()];
        assert_eq!(sent(&all, 3), ["Together([0, 1, 2])"]);
        assert_eq!(sent(&all[..2], 3), ["Alone(0)", "Alone(1)"]);
        // Of several steps about one lock, the others may or may not be enough for another group.
        assert_eq!(sent(&[a.clone(), a.clone(), b.clone(), a], 2), ["Together([0, 2])", "Alone(1)", "Alone(3)"]);
        let unusual = acquire("lock:d", "@", "");
        let counter = acquire("lock:e", "9000", "gi");
        assert_eq!(sent(&[b, unusual, c, counter], 2), ["Together([0, 2])", "Alone(1)", "Alone(3)"]);
    }

    #[test]
    fn a_group_has_a_most_and_terms_that_are_alike_once() {
        let many: Vec<Plan> = (0..70).map(|at| acquire(&format!("lock:{at}"), ["9000", "8000"][at % 2], "u")).collect();
        let mut counts = Vec::new();
        let mut out = BytesMut::new();
        put_together(many.iter(), (3, Form::Sha), &mut out, |sent| match sent {
            Sent::Together(places) => counts.push(places.len()),
            Sent::Alone(place) => panic!("{place}"),
        });
        assert_eq!(counts, [32, 32, 6]);
        let text = out.escape_ascii().to_string();
        assert_eq!(text.matches("$13\\r\\n0000000009000").count(), 2 * 3, "{text}");
    }

    #[test]
    fn words_are_read_back_as_they_were_written() {
        let mut step = Step::empty();
        for word in [&b""[..], b"\r\n$1\r\n", b"x"] {
            step.bytes(word);
        }
        let plan = step.done(&scripts::GROUP);
        assert_eq!(words(&plan.tail)[..], [&b""[..], b"\r\n$1\r\n", b"x"]);
        for cut in
            [&b"$3\r\nab"[..], b"$3\r\nabc\r", b"$3", b"$", b":1\r\n", b"$99999999999999999999\r\nab\r\n", b"$-1\r\n"]
        {
            assert_eq!(words(cut), Words::new());
        }
    }
}
