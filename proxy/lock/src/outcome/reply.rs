//! The reply that a command always had, for each outcome: a function for the special cases of each operation, and
//! [`usual`] for the rest, which has no wildcard that could hide a new outcome.

use bytes::Bytes;
use lockwarden_lua::Reply;
use lockwarden_resp::Value;

use crate::op::{
    AcquireReply, ComparedBy, Comparison, ExtendSpelling, LockOp, ReleaseSpelling, ScriptedAcquire, ScriptedTake,
};
use crate::reason::Reason;
use crate::rules::OnViolation;
use crate::settle::Allowed;
use crate::table::parse_integer;

use super::unconfirmed;
use super::{
    Answer, Answers, Barred, Beside, NotAnAnswer, Outcome, RaisedAt, Refused, ScriptEnd, StandsFor, Unconfirmed,
};

/// What the client gets.
#[derive(Clone, Debug, PartialEq)]
pub enum Answered {
    /// This reply.
    Reply(Value),
    /// An error line about the lock with this place in the command.
    Refusal(usize, Refused),
    /// The return value of the application's script, as Redis wrote it: the fourth element of the answer, nil if it is
    /// missing.
    AsReturned,
    /// The application's script raised this error, at a line of its source.
    Raised(Bytes, RaisedAt),
    /// An error line: too few replicas confirmed it, and no native reply expresses that.
    Unconfirmed(Unconfirmed),
    /// An error line about what the guard refused to the application's script.
    Barred(Barred),
}

/// The reply to a command whose step was carried out.
pub fn answer(op: &LockOp, answers: &Answers, allowed: &[Allowed], enforced: bool) -> Result<Answered, NotAnAnswer> {
    if let Some(what) = answers.unconfirmed() {
        return Ok(match unconfirmed::native(op) {
            Some(no) => Answered::Reply(no),
            None => Answered::Unconfirmed(what),
        });
    }
    match answers {
        Answers::Error(text) => Ok(Answered::Reply(Value::Error(text.clone()))),
        // Redis was out of memory, and inside a block the step could not be sent again.
        Answers::Lacking(_) => Ok(Answered::Reply(Value::Error(Bytes::from_static(OUT_OF_MEMORY)))),
        // In monitor mode Redis ran the application's own command.
        Answers::One(one) if !enforced && !is_script(op) => native(one).map(Answered::Reply),
        Answers::One(one) => single(op, one, allowed.first()),
        Answers::Many(total, each) => many(op, *total, each, allowed),
        Answers::Script(_, _, Beside { barred: Some(barred), .. }) if barred.ended => {
            Ok(Answered::Barred(barred.clone()))
        }
        Answers::Script(end, each, _) => Ok(script(op, end, each, allowed)),
    }
}

fn script(op: &LockOp, end: &ScriptEnd, each: &[Answer], allowed: &[Allowed]) -> Answered {
    let native = allowed.iter().all(|allowed| allowed.rules.on_violation == OnViolation::Native);
    match end {
        // A script that sets TTLs without checking whose the locks are replies like EXPIRE: 1 if it set one, 0 if it
        // set none.
        ScriptEnd::Undone { set_ttls: Some(1), .. } if native => Answered::Reply(Value::Integer(0)),
        ScriptEnd::Returned => Answered::AsReturned,
        ScriptEnd::Raised { text, at } => Answered::Raised(text.clone(), at.clone()),
        ScriptEnd::Undone { .. } => each
            .iter()
            .enumerate()
            .find_map(|(at, answer)| match &answer.outcome {
                Outcome::Refused(refused) => Some(Answered::Refusal(at, refused.clone())),
                _ => None,
            })
            .unwrap_or_else(|| Answered::Reply(native_nothing(op))),
    }
}

fn many(op: &LockOp, total: i64, each: &[Answer], allowed: &[Allowed]) -> Result<Answered, NotAnAnswer> {
    if let LockOp::AcquireAll { .. } = op {
        return Ok(Answered::Reply(Value::Integer(1)));
    }
    let strict = allowed.iter().any(|allowed| allowed.rules.on_violation == OnViolation::Error);
    let refused = each.iter().enumerate().find_map(|(at, answer)| match &answer.outcome {
        Outcome::Refused(refused) if refused.stands_for != StandsFor::Debt => Some((at, refused)),
        _ => None,
    });
    match refused {
        Some((at, refused)) if strict => Ok(Answered::Refusal(at, refused.clone())),
        Some(_) | None => Ok(Answered::Reply(Value::Integer(total))),
    }
}

/// Redis's reply to the application's own command.
fn native(one: &Answer) -> Result<Value, NotAnAnswer> {
    one.native.clone().ok_or(NotAnAnswer)
}

/// Whether the application's command compares, or is a script, which Redis never ran: then its replies follow from the
/// outcome in monitor mode too.
fn is_script(op: &LockOp) -> bool {
    match op {
        LockOp::Acquire { reply, .. } => matches!(reply, AcquireReply::Scripted(_)),
        LockOp::Take { .. } => true,
        LockOp::AcquireAll { .. }
        | LockOp::Store { .. }
        | LockOp::Extend { .. }
        | LockOp::Release { .. }
        | LockOp::ReleaseMany { .. }
        | LockOp::Wrapped { .. } => op.comparison().is_some(),
    }
}

fn single(op: &LockOp, one: &Answer, allowed: Option<&Allowed>) -> Result<Answered, NotAnAnswer> {
    if let Outcome::Refused(refused) = &one.outcome {
        return Ok(refusal(op, refused, allowed));
    }
    let reply = match op {
        LockOp::Acquire { reply, .. } => acquire(reply, one),
        LockOp::AcquireAll { .. } => acquire(&AcquireReply::Integer, one),
        LockOp::Take { script, .. } => take(script, one),
        LockOp::Store { wants_old, comparison, .. } => store(*wants_old, comparison.as_deref(), one),
        LockOp::Extend { spelling, comparison, .. } => extend(*spelling, comparison.as_deref(), one),
        LockOp::Release { spelling, comparison, .. } => release(*spelling, comparison.as_deref(), one),
        LockOp::ReleaseMany { .. } | LockOp::Wrapped { .. } => usual(None, one),
    };
    reply.map(Answered::Reply)
}

fn acquire(reply: &AcquireReply, one: &Answer) -> Result<Value, NotAnAnswer> {
    Ok(match (&one.outcome, reply) {
        (Outcome::Granted(_) | Outcome::Unrecorded, AcquireReply::Integer | AcquireReply::Counter) => Value::Integer(1),
        (Outcome::Granted(_) | Outcome::Unrecorded, AcquireReply::OkOrNil) => ok(),
        (Outcome::Granted(_) | Outcome::Unrecorded, AcquireReply::OldValue) => Value::Null,
        (Outcome::Granted(_) | Outcome::Unrecorded, AcquireReply::Scripted(script)) => {
            scripted(&script.replies.granted, one)
        }
        (Outcome::Busy { .. }, AcquireReply::Integer) => Value::Integer(0),
        (Outcome::Busy { .. }, AcquireReply::OldValue) => native(one)?,
        (Outcome::Busy { .. }, AcquireReply::Counter) => counted(native(one)?),
        (Outcome::Busy { .. }, AcquireReply::OkOrNil) => Value::Null,
        (Outcome::Busy { .. }, AcquireReply::Scripted(script)) => held(script, one),
        _ => return usual(None, one),
    })
}

fn take(script: &ScriptedTake, one: &Answer) -> Result<Value, NotAnAnswer> {
    let replies = &script.replies;
    Ok(match &one.outcome {
        Outcome::Granted(_) | Outcome::Unrecorded => scripted(&replies.granted, one),
        Outcome::Busy { .. } => scripted(&replies.different, one),
        Outcome::Extended { .. } => scripted(&replies.extended, one),
        Outcome::Ungoverned => match native(one)? {
            error if error.is_error() => error,
            _ => scripted(&replies.extended, one),
        },
        Outcome::Absent { .. } => other_type(replies.other_type.as_ref(), native(one)?),
        _ => return usual(None, one),
    })
}

fn store(wants_old: bool, comparison: Option<&Comparison>, one: &Answer) -> Result<Value, NotAnAnswer> {
    Ok(match (&one.outcome, &one.native) {
        (Outcome::Granted(granted), _) => stored(wants_old, comparison, granted.old.as_ref()),
        (Outcome::Extended { old, .. }, _) => stored(wants_old, comparison, old.as_ref()),
        (Outcome::Absent { .. }, _) if comparison.is_none() => Value::Null,
        // The stored value differs: with GET it is the reply.
        (Outcome::Different { .. }, Some(current)) if wants_old && comparison.is_some() => current.clone(),
        _ => return usual(comparison, one),
    })
}

fn extend(spelling: ExtendSpelling, comparison: Option<&Comparison>, one: &Answer) -> Result<Value, NotAnAnswer> {
    Ok(match &one.outcome {
        Outcome::Extended { old, .. } | Outcome::Released { value: old, .. } => match spelling.answers_value() {
            true => value(old.as_ref()),
            false => done(comparison, Value::Integer(1)),
        },
        _ => return usual(comparison, one),
    })
}

fn release(spelling: ReleaseSpelling, comparison: Option<&Comparison>, one: &Answer) -> Result<Value, NotAnAnswer> {
    Ok(match &one.outcome {
        Outcome::Released { value: gone, .. } => match spelling {
            ReleaseSpelling::GetDel => value(gone.as_ref()),
            ReleaseSpelling::Del | ReleaseSpelling::Unlink => done(comparison, Value::Integer(1)),
        },
        _ => return usual(comparison, one),
    })
}

/// The outcomes to which every command replies in the same way. An outcome that an operation cannot have is no answer
/// to it.
fn usual(comparison: Option<&Comparison>, one: &Answer) -> Result<Value, NotAnAnswer> {
    match &one.outcome {
        Outcome::Failed => native(one),
        Outcome::Ungoverned => Ok(done(comparison, native(one)?)),
        Outcome::Absent { .. } => match comparison {
            Some(comparison) => Ok(absent(comparison, one, native(one)?)),
            None => native(one),
        },
        Outcome::Different { .. } => {
            let comparison = comparison.ok_or(NotAnAnswer)?;
            Ok(scripted(&comparison.replies.different, one))
        }
        Outcome::ConditionUnmet => {
            let no_ttl = comparison.and_then(|own| own.replies.no_ttl.as_ref());
            Ok(no_ttl.map_or(Value::Integer(0), |reply| scripted(reply, one)))
        }
        Outcome::Granted(_)
        | Outcome::Unrecorded
        | Outcome::Busy { .. }
        | Outcome::Extended { .. }
        | Outcome::Released { .. }
        | Outcome::Refused(_)
        | Outcome::Unconfirmed(_)
        | Outcome::Untouched { .. } => Err(NotAnAnswer),
    }
}

fn refusal(op: &LockOp, refused: &Refused, allowed: Option<&Allowed>) -> Answered {
    let native = allowed.is_none_or(|allowed| allowed.rules.on_violation == OnViolation::Native);
    let quiet = match op {
        LockOp::ReleaseMany { .. } => true,
        LockOp::Release { comparison, .. } => comparison.as_deref().is_none_or(Comparison::has_plain_no),
        LockOp::Extend { spelling, comparison, .. } => {
            *spelling == ExtendSpelling::Expire && comparison.as_deref().is_none_or(Comparison::has_plain_no)
        }
        LockOp::Take { script, .. } => script.has_plain_no(),
        LockOp::Store { only_if_exists, wants_old, .. } => {
            (*only_if_exists && !wants_old) || (*wants_old && refused.current.is_some())
        }
        // For a client, a lock that is not granted because of a failover is a lock that another client holds.
        LockOp::Acquire { .. } | LockOp::AcquireAll { .. } => {
            refused.reason == Reason::Quarantine && busy(op).is_some()
        }
        LockOp::Wrapped { .. } => false,
    };
    // A debt is paid silently: its release is honest, only late.
    if !(quiet && (native || refused.stands_for == StandsFor::Debt)) {
        return Answered::Refusal(0, refused.clone());
    }
    Answered::Reply(match &refused.current {
        Some(current) => Value::Bulk(current.clone()),
        None => native_nothing(op),
    })
}

/// The reply to an acquire of a held lock; `None` if that depends on the stored value.
fn busy(op: &LockOp) -> Option<Value> {
    match op {
        LockOp::Acquire { reply, .. } => match reply {
            AcquireReply::Integer => Some(Value::Integer(0)),
            AcquireReply::OkOrNil => Some(Value::Null),
            AcquireReply::Scripted(script) => plain(&script.replies.held),
            AcquireReply::OldValue | AcquireReply::Counter => None,
        },
        LockOp::AcquireAll { .. } => Some(Value::Integer(0)),
        LockOp::Take { .. }
        | LockOp::Store { .. }
        | LockOp::Extend { .. }
        | LockOp::Release { .. }
        | LockOp::ReleaseMany { .. }
        | LockOp::Wrapped { .. } => None,
    }
}

/// Redis's reply to this command when nothing happened.
pub fn native_nothing(op: &LockOp) -> Value {
    if let Some(busy) = busy(op) {
        return busy;
    }
    match op {
        LockOp::Store { comparison: Some(comparison), .. }
        | LockOp::Release { comparison: Some(comparison), .. }
        | LockOp::Extend { comparison: Some(comparison), .. } => constant(&comparison.replies.different, Value::Null),
        LockOp::Take { script, .. } => constant(&script.replies.different, Value::Null),
        LockOp::Release { spelling: ReleaseSpelling::GetDel, .. } | LockOp::Store { .. } => Value::Null,
        LockOp::Release { .. }
        | LockOp::ReleaseMany { .. }
        | LockOp::Extend { .. }
        | LockOp::Acquire { .. }
        | LockOp::AcquireAll { .. }
        | LockOp::Wrapped { .. } => Value::Integer(0),
    }
}

/// The reply if Redis ran the command, or what follows if its comparison holds.
fn done(comparison: Option<&Comparison>, native: Value) -> Value {
    match comparison {
        Some(comparison) if !native.is_error() => constant(&comparison.replies.done, native),
        Some(_) | None => native,
    }
}

/// The reply if there is no string to compare with; `native` is Redis's reply when the key was read.
fn absent(comparison: &Comparison, one: &Answer, native: Value) -> Value {
    match (native.is_error(), comparison.by) {
        (false, _) => scripted(&comparison.replies.absent, one),
        (true, ComparedBy::Script) => other_type(comparison.replies.other_type.as_ref(), native),
        (true, ComparedBy::DelEx) if is_wrong_type(&native) => Value::Error(Bytes::from_static(DELEX_WRONG_TYPE)),
        (true, ComparedBy::DelEx | ComparedBy::Command) => native,
    }
}

fn is_wrong_type(error: &Value) -> bool {
    error.as_error().is_some_and(|text| text.starts_with(b"WRONGTYPE"))
}

/// Redis's error if a command needs memory and there is none.
const OUT_OF_MEMORY: &[u8] = b"OOM command not allowed when used memory > 'maxmemory'.";

/// Redis 8.4's error in place of WRONGTYPE.
const DELEX_WRONG_TYPE: &[u8] = b"ERR Key should be of string type if conditions are specified";

/// The reply to a stored value.
fn stored(wants_old: bool, comparison: Option<&Comparison>, old: Option<&Bytes>) -> Value {
    done(comparison, if wants_old { value(old) } else { ok() })
}

/// The reply to INCR on a held lock: the value that the counter would have had, and never 1, which means "mine".
fn counted(held: Value) -> Value {
    let Some(current) = held.as_bytes() else {
        return held;
    };
    match parse_integer(current).map(|count| count.checked_add(1)) {
        Ok(Some(next)) => Value::Integer(next.max(2)),
        Ok(None) => Value::Error(Bytes::from_static(b"ERR increment or decrement would overflow")),
        Err(error) => Value::Error(Bytes::from(error.to_string())),
    }
}

/// The reply of the application's script, from what Redis replied to its command or read for it.
fn scripted(reply: &Reply, one: &Answer) -> Value {
    constant(reply, one.native.clone().unwrap_or(Value::Null))
}

/// The reply of a script about a lock that is taken. Redis's type error has precedence.
fn held(script: &ScriptedAcquire, one: &Answer) -> Value {
    match &one.native {
        Some(error) if error.is_error() => error.clone(),
        Some(_) | None => scripted(&script.replies.held, one),
    }
}

/// The reply of a script about a key that holds no string; none if Redis's error is the reply.
fn other_type(reply: Option<&Reply>, complaint: Value) -> Value {
    reply.map_or(complaint.clone(), |reply| constant(reply, complaint))
}

/// A script's reply that does not depend on what it read; `None` for one that does.
pub fn plain(reply: &Reply) -> Option<Value> {
    match reply {
        Reply::CommandResult | Reply::Stored | Reply::Left(_) => None,
        Reply::Integer(_) | Reply::Nil | Reply::Bulk(_) | Reply::Status(_) | Reply::Error(_) => {
            Some(constant(reply, Value::Null))
        }
    }
}

fn constant(reply: &Reply, read: Value) -> Value {
    match reply {
        Reply::Integer(number) => Value::Integer(*number),
        Reply::Nil => Value::Null,
        Reply::Bulk(bytes) => Value::Bulk(bytes.clone()),
        Reply::Status(text) => Value::Simple(text.clone()),
        Reply::Error(text) => Value::Error(text.clone()),
        Reply::CommandResult | Reply::Stored | Reply::Left(_) => read,
    }
}

fn ok() -> Value {
    Value::Simple(Bytes::from_static(b"OK"))
}

fn value(value: Option<&Bytes>) -> Value {
    value.map_or(Value::Null, |value| Value::Bulk(value.clone()))
}
