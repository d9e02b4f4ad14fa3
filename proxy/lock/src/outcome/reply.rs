//! The reply that a command always had, for each outcome. One match over commands and outcomes,
//! without a wildcard on either that could swallow a new one.

use bytes::Bytes;
use lockwarden_resp::Value;

use crate::op::{
    AcquireReply, ComparedBy, Comparison, ExtendSpelling, LockOp, ReleaseSpelling, ScriptedAcquire,
};
use crate::recipe::Reply;
use crate::settle::{Allowed, OnViolation};
use crate::table::parse_integer;

use super::{Answer, Answers, Barred, NotAnAnswer, Outcome, RaisedAt, Refused, ScriptEnd};

/// What the client gets.
#[derive(Clone, Debug, PartialEq)]
pub enum Answered {
    /// This reply.
    Reply(Value),
    /// An error line about the lock with this place in the command.
    Refusal(usize, Refused),
    /// What the application's script returned, as Redis wrote it: the fourth element of the answer,
    /// nil where there is none.
    AsReturned,
    /// The application's script raised this error, at a line of what it came from.
    Raised(Bytes, RaisedAt),
    /// An error line about what the guard refused the application's script.
    Barred(Barred),
}

/// The reply to a command whose step was carried out.
pub fn answer(
    op: &LockOp,
    answers: &Answers,
    allowed: &[Allowed],
    enforced: bool,
) -> Result<Answered, NotAnAnswer> {
    match answers {
        Answers::Error(text) => Ok(Answered::Reply(Value::Error(text.clone()))),
        // Memory was out, and in a block the step could not be sent again.
        Answers::Lacking(_) => Ok(Answered::Reply(Value::Error(Bytes::from_static(
            OUT_OF_MEMORY,
        )))),
        Answers::One(one) if !enforced && !is_script(op) => native(one),
        Answers::One(one) => single(op, one, allowed.first()),
        Answers::Many(total, each) => many(op, *total, each, allowed),
        Answers::Script(_, _, Some(barred)) if barred.ended => Ok(Answered::Barred(barred.clone())),
        Answers::Script(end, each, _) => Ok(script(op, end, each, allowed)),
    }
}

fn script(op: &LockOp, end: &ScriptEnd, each: &[Answer], allowed: &[Allowed]) -> Answered {
    let native = allowed
        .iter()
        .all(|allowed| allowed.rules.on_violation == OnViolation::Native);
    match end {
        // A script that sets TTLs without asking whose the locks are answers as EXPIRE does: 1 where
        // it set one, 0 where it set none.
        ScriptEnd::Undone {
            set_ttls: Some(1), ..
        } if native => Answered::Reply(Value::Integer(0)),
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

fn many(
    op: &LockOp,
    total: i64,
    each: &[Answer],
    allowed: &[Allowed],
) -> Result<Answered, NotAnAnswer> {
    if let LockOp::AcquireAll { .. } = op {
        return Ok(Answered::Reply(Value::Integer(1)));
    }
    let strict = allowed
        .iter()
        .any(|allowed| allowed.rules.on_violation == OnViolation::Error);
    let refused = each
        .iter()
        .enumerate()
        .find_map(|(at, answer)| match &answer.outcome {
            Outcome::Refused(refused) if !refused.paid_debt => Some((at, refused)),
            _ => None,
        });
    match refused {
        Some((at, refused)) if strict => Ok(Answered::Refusal(at, refused.clone())),
        Some(_) | None => Ok(Answered::Reply(Value::Integer(total))),
    }
}

/// In monitor mode Redis ran the application's own command: what it said is the reply.
fn native(one: &Answer) -> Result<Answered, NotAnAnswer> {
    let native = one.native.clone().ok_or(NotAnAnswer)?;
    Ok(Answered::Reply(native))
}

/// Whether the application's own words compare or are a script, which Redis never ran: its replies
/// follow from the outcome in monitor mode too.
fn is_script(op: &LockOp) -> bool {
    match op {
        LockOp::Acquire { reply, .. } => matches!(reply, AcquireReply::Scripted(_)),
        LockOp::Take { .. } => true,
        _ => op.comparison().is_some(),
    }
}

fn single(op: &LockOp, one: &Answer, allowed: Option<&Allowed>) -> Result<Answered, NotAnAnswer> {
    let native = || one.native.clone().ok_or(NotAnAnswer);
    let reply = match &one.outcome {
        Outcome::Failed => native()?,
        Outcome::Ungoverned => match (native()?, op) {
            (error, _) if error.is_error() => error,
            (_, LockOp::Take { script, .. }) => scripted(&script.replies.extended, one),
            (native, op) => match op.comparison() {
                Some(comparison) => done(comparison, native),
                None => native,
            },
        },
        Outcome::Granted(granted) => match op {
            LockOp::Acquire {
                reply: AcquireReply::Integer | AcquireReply::Counter,
                ..
            }
            | LockOp::AcquireAll { .. } => Value::Integer(1),
            LockOp::Acquire {
                reply: AcquireReply::OkOrNil,
                ..
            } => ok(),
            LockOp::Acquire {
                reply: AcquireReply::OldValue,
                ..
            } => Value::Null,
            LockOp::Acquire {
                reply: AcquireReply::Scripted(script),
                ..
            } => scripted(&script.replies.granted, one),
            LockOp::Take { script, .. } => scripted(&script.replies.granted, one),
            LockOp::Store {
                wants_old,
                comparison,
                ..
            } => stored(*wants_old, comparison.as_ref(), granted.old.as_ref()),
            LockOp::Extend { .. }
            | LockOp::Release { .. }
            | LockOp::ReleaseMany { .. }
            | LockOp::Wrapped { .. }
            | LockOp::Opaque { .. } => return Err(NotAnAnswer),
        },
        Outcome::Busy { .. } => match op {
            LockOp::Acquire {
                reply: AcquireReply::Integer,
                ..
            }
            | LockOp::AcquireAll { .. } => Value::Integer(0),
            LockOp::Acquire {
                reply: AcquireReply::OldValue,
                ..
            } => native()?,
            LockOp::Acquire {
                reply: AcquireReply::Counter,
                ..
            } => counted(native()?),
            LockOp::Acquire {
                reply: AcquireReply::OkOrNil,
                ..
            } => Value::Null,
            LockOp::Acquire {
                reply: AcquireReply::Scripted(script),
                ..
            } => held(script, one),
            LockOp::Take { script, .. } => scripted(&script.replies.different, one),
            LockOp::Store { .. }
            | LockOp::Extend { .. }
            | LockOp::Release { .. }
            | LockOp::ReleaseMany { .. }
            | LockOp::Wrapped { .. }
            | LockOp::Opaque { .. } => return Err(NotAnAnswer),
        },
        Outcome::Extended { old, .. } => match op {
            LockOp::Store {
                wants_old,
                comparison,
                ..
            } => stored(*wants_old, comparison.as_ref(), old.as_ref()),
            LockOp::Extend { spelling, .. } if spelling.answers_value() => value(old.as_ref()),
            LockOp::Extend {
                comparison: Some(comparison),
                ..
            } => done(comparison, Value::Integer(1)),
            LockOp::Extend { .. } => Value::Integer(1),
            LockOp::Take { script, .. } => scripted(&script.replies.extended, one),
            LockOp::Acquire { .. }
            | LockOp::AcquireAll { .. }
            | LockOp::Release { .. }
            | LockOp::ReleaseMany { .. }
            | LockOp::Wrapped { .. }
            | LockOp::Opaque { .. } => return Err(NotAnAnswer),
        },
        Outcome::Released { value: gone, .. } => match op {
            LockOp::Release {
                spelling: ReleaseSpelling::GetDel,
                ..
            } => value(gone.as_ref()),
            LockOp::Extend { spelling, .. } if spelling.answers_value() => value(gone.as_ref()),
            LockOp::Release {
                comparison: Some(comparison),
                ..
            }
            | LockOp::Extend {
                comparison: Some(comparison),
                ..
            } => done(comparison, Value::Integer(1)),
            LockOp::Release { .. } | LockOp::Extend { .. } => Value::Integer(1),
            LockOp::Acquire { .. }
            | LockOp::Take { .. }
            | LockOp::AcquireAll { .. }
            | LockOp::Store { .. }
            | LockOp::ReleaseMany { .. }
            | LockOp::Wrapped { .. }
            | LockOp::Opaque { .. } => return Err(NotAnAnswer),
        },
        Outcome::Absent { .. } => match (op.comparison(), op) {
            (Some(comparison), _) => absent(comparison, one, native()?),
            (None, LockOp::Take { script, .. }) => {
                other_type(script.replies.other_type.as_ref(), native()?)
            }
            (None, LockOp::Store { .. }) => Value::Null,
            (None, _) => native()?,
        },
        Outcome::Different { .. } => match op.comparison() {
            Some(comparison) => different(op, comparison, one),
            None => return Err(NotAnAnswer),
        },
        Outcome::Untouched { .. } => return Err(NotAnAnswer),
        Outcome::ConditionUnmet => {
            let no_ttl = op.comparison().and_then(|own| own.replies.no_ttl.as_ref());
            match no_ttl {
                Some(reply) => scripted(reply, one),
                None => Value::Integer(0),
            }
        }
        Outcome::Refused(refused) => return Ok(refusal(op, refused, allowed)),
    };
    Ok(Answered::Reply(reply))
}

fn refusal(op: &LockOp, refused: &Refused, allowed: Option<&Allowed>) -> Answered {
    let native = allowed.is_none_or(|allowed| allowed.rules.on_violation == OnViolation::Native);
    let quiet = match op {
        LockOp::ReleaseMany { .. } => true,
        LockOp::Release { comparison, .. } => {
            comparison.as_ref().is_none_or(Comparison::has_plain_no)
        }
        LockOp::Extend {
            spelling,
            comparison,
            ..
        } => {
            *spelling == ExtendSpelling::Expire
                && comparison.as_ref().is_none_or(Comparison::has_plain_no)
        }
        LockOp::Take { script, .. } => script.has_plain_no(),
        LockOp::Store {
            only_if_exists,
            wants_old,
            ..
        } => (*only_if_exists && !wants_old) || (*wants_old && refused.current.is_some()),
        LockOp::Acquire { .. }
        | LockOp::AcquireAll { .. }
        | LockOp::Wrapped { .. }
        | LockOp::Opaque { .. } => false,
    };
    // A debt is paid in silence: its release is honest, only late.
    if !(quiet && (native || refused.paid_debt)) {
        return Answered::Refusal(0, refused.clone());
    }
    Answered::Reply(match &refused.current {
        Some(current) => Value::Bulk(current.clone()),
        None => native_nothing(op),
    })
}

/// What Redis answers to this command when nothing happened.
pub fn native_nothing(op: &LockOp) -> Value {
    match op {
        LockOp::Store {
            comparison: Some(comparison),
            ..
        }
        | LockOp::Release {
            comparison: Some(comparison),
            ..
        }
        | LockOp::Extend {
            comparison: Some(comparison),
            ..
        } => constant(&comparison.replies.different, Value::Null),
        LockOp::Take { script, .. } => constant(&script.replies.different, Value::Null),
        LockOp::Release {
            spelling: ReleaseSpelling::GetDel,
            ..
        }
        | LockOp::Store { .. } => Value::Null,
        LockOp::Release { .. }
        | LockOp::ReleaseMany { .. }
        | LockOp::Extend { .. }
        | LockOp::Acquire { .. }
        | LockOp::AcquireAll { .. }
        | LockOp::Wrapped { .. }
        | LockOp::Opaque { .. } => Value::Integer(0),
    }
}

/// The reply where the comparison held and Redis ran what follows.
fn done(comparison: &Comparison, native: Value) -> Value {
    if native.is_error() {
        return native;
    }
    constant(&comparison.replies.done, native)
}

/// The reply where the stored value is another. With GET it is that value.
fn different(op: &LockOp, comparison: &Comparison, one: &Answer) -> Value {
    match (op, &one.native) {
        (
            LockOp::Store {
                wants_old: true, ..
            },
            Some(current),
        ) => current.clone(),
        _ => scripted(&comparison.replies.different, one),
    }
}

/// The reply where there is no string to compare with; `native` is what Redis said when it was read.
fn absent(comparison: &Comparison, one: &Answer, native: Value) -> Value {
    match (native.is_error(), comparison.by) {
        (false, _) => scripted(&comparison.replies.absent, one),
        (true, ComparedBy::Script) => other_type(comparison.replies.other_type.as_ref(), native),
        (true, ComparedBy::DelEx) if is_wrong_type(&native) => {
            Value::Error(Bytes::from_static(DELEX_WRONG_TYPE))
        }
        (true, ComparedBy::DelEx | ComparedBy::Command) => native,
    }
}

fn is_wrong_type(error: &Value) -> bool {
    error
        .as_error()
        .is_some_and(|text| text.starts_with(b"WRONGTYPE"))
}

/// What Redis says where a command needs memory and there is none.
const OUT_OF_MEMORY: &[u8] = b"OOM command not allowed when used memory > 'maxmemory'.";

/// What Redis 8.4 says in place of WRONGTYPE.
const DELEX_WRONG_TYPE: &[u8] = b"ERR Key should be of string type if conditions are specified";

/// The reply to a value that was stored.
fn stored(wants_old: bool, comparison: Option<&Comparison>, old: Option<&Bytes>) -> Value {
    let plain = if wants_old { value(old) } else { ok() };
    match comparison {
        Some(comparison) => constant(&comparison.replies.done, plain),
        None => plain,
    }
}

/// What INCR answers where somebody holds the lock: what the counter would have become, and never
/// 1, which means "mine".
fn counted(held: Value) -> Value {
    let Some(current) = held.as_bytes() else {
        return held;
    };
    match parse_integer(current).map(|count| count.checked_add(1)) {
        Ok(Some(next)) => Value::Integer(next.max(2)),
        Ok(None) => Value::Error(Bytes::from_static(
            b"ERR increment or decrement would overflow",
        )),
        Err(error) => Value::Error(Bytes::from(error.to_string())),
    }
}

/// What the application's script answers, with what Redis answered to its command or read for it.
fn scripted(reply: &Reply, one: &Answer) -> Value {
    constant(reply, one.native.clone().unwrap_or(Value::Null))
}

/// What a script says of a lock that is taken. Redis's complaint about its type goes first.
fn held(script: &ScriptedAcquire, one: &Answer) -> Value {
    match &one.native {
        Some(error) if error.is_error() => error.clone(),
        Some(_) | None => scripted(&script.replies.held, one),
    }
}

/// What a script says of a key that holds no string; nothing where Redis's complaint is the answer.
fn other_type(reply: Option<&Reply>, complaint: Value) -> Value {
    reply.map_or(complaint.clone(), |reply| constant(reply, complaint))
}

/// A script's reply that says nothing of what it read; `None` for one that does.
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
