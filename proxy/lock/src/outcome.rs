//! What came of an atomic step: the script's answer read back, and the reply in the shape that the
//! command always had. It never invents: an answer that is not one of the script's own is an error
//! that says so, and an error of Redis goes to the client as Redis worded it.

mod flush;
mod guarded;
mod nothing_run;
mod packed;
mod refusal;
mod reply;

pub use flush::{FlushAnswer, Found, LiveLeases, Looked, read_flush};
pub use guarded::{Guarded, read_guarded};
pub use nothing_run::{Missing, NothingRun, Why};
pub use refusal::{
    BulkRefusal, OTHERS_STAND, RefusalLine, bulk_line, debug_line, limit_line, not_permitted_line,
    refusal_line,
};
pub use reply::{Answered, answer, native_nothing, plain};

use bytes::Bytes;
use lockwarden_resp::Value;
use smallvec::SmallVec;

use crate::decision::Operation;
use crate::reason::Reason;
use crate::time::{AskedMs, RedisTime, TtlMs};
use crate::token::{FencingToken, Grant, SessionId};

/// What a step did to one lock.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// A new lease.
    Granted(Granted),
    /// Somebody holds it.
    Busy {
        /// Whether the lease has a record; otherwise it came to be without the proxy.
        governed: bool,
        /// Whether it had no TTL and was given one.
        adopted: bool,
        /// It may be the client's own, granted in a reply that it did not read: the end of the
        /// connection that was granted it may be about to be noticed.
        perhaps_own: bool,
        /// It was granted to this very connection.
        own: bool,
    },
    /// The current lease has a new TTL or value.
    Extended {
        /// Its TTL now.
        ttl_ms: TtlMs,
        /// Its fencing token.
        fence: FencingToken,
        /// Since when it is held.
        since: RedisTime,
        /// When it was extended.
        now: RedisTime,
        /// Whether keep-alive renews it.
        kept: bool,
        /// The value before, where it is the reply.
        old: Option<Bytes>,
        /// It is the lease that this connection was granted itself.
        own: bool,
        /// The TTL that was asked for; `None` where it stays as it was.
        asked_ms: Option<AskedMs>,
    },
    /// The lock is free now.
    Released {
        /// The fencing token of the lease that ended.
        fence: FencingToken,
        /// Since when it was held.
        since: RedisTime,
        /// The value, where it is the reply.
        value: Option<Bytes>,
        /// Deleted because its deadline had passed, by somebody who had read it.
        taken_over: bool,
    },
    /// There was no lease.
    Absent {
        /// This session's own lease had run out, and nobody had noticed yet.
        ran_out: bool,
    },
    /// Nothing was done.
    Refused(Refused),
    /// The lease has no record; Redis did what the application asked.
    Ungoverned,
    /// The application's own comparison failed.
    Different {
        /// This session's own lease of the lock is over.
        late: bool,
    },
    /// The application's own condition did not hold.
    ConditionUnmet,
    /// A script left the lock as it was.
    Untouched {
        /// Whether its lease has a record.
        governed: bool,
        /// It was granted to this very connection.
        own: bool,
    },
    /// Redis answered the application's own command, or the first command of the step, with an error. Nothing was changed.
    Failed,
}

/// A new lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Its fencing token.
    pub fence: FencingToken,
    /// When it was granted.
    pub now: RedisTime,
    /// Its TTL.
    pub ttl_ms: TtlMs,
    /// What it ended.
    pub ended: Ended,
    /// Whether keep-alive renews it.
    pub kept: bool,
    /// The value before, where it is the reply.
    pub old: Option<Bytes>,
    /// It is no new lease but the one of this name, which the client had been granted before without
    /// hearing of it.
    pub again: Option<Grant>,
    /// Another client was granted the lease before with the same owner token, within the last hour.
    pub shared_token: bool,
    /// The TTL that was asked for.
    pub asked_ms: AskedMs,
}

/// What a new lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Nothing.
    Nothing,
    /// A lease had run out unreleased. Since when it was held.
    RanOut(RedisTime),
    /// A lease whose deadline had passed was taken over.
    TakenOver(RedisTime),
    /// A lease was overwritten; only where nothing is enforced.
    Overwritten(RedisTime),
}

/// A refusal, found by the script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub reason: Reason,
    /// Since when the lock is held.
    pub since: RedisTime,
    /// When it was refused.
    pub now: RedisTime,
    /// The newest fencing token of the lock.
    pub fence: FencingToken,
    /// This session's own lease of the lock is over.
    pub late: bool,
    /// The lease is no longer kept alive.
    pub keep_alive_ended: bool,
    /// It paid a debt: the release of an earlier lease of this identity that had ended unreleased.
    pub paid_debt: bool,
    /// The current value, where showing it tells the loser of a race that it lost.
    pub current: Option<Bytes>,
}

/// What would have been refused where nothing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Would {
    /// Why.
    pub reason: Reason,
    /// This session's own lease of the lock was over.
    pub late: bool,
    /// It paid a debt, as a refused release does.
    pub paid_debt: bool,
}

/// A script's answer about one lock.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// What was done.
    pub outcome: Outcome,
    /// What Redis answered to the application's own command, where that was run.
    pub native: Option<Value>,
    /// In monitor mode, what would have been refused.
    pub would: Option<Would>,
    /// Of a refused script: what it had done to this lock.
    pub deed: Option<Operation>,
    /// Redis's error, where what was done could not be recorded. Of the outcome only the reply is true then.
    pub unrecorded: Option<Bytes>,
}

/// A whole answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Answers {
    /// About one lock.
    One(Answer),
    /// About several, in the order of the command; how many keys were deleted in all.
    Many(i64, Vec<Answer>),
    /// Of a script whose meaning is not known: how it ended, about each of its locks, and what the guard
    /// refused.
    Script(ScriptEnd, Vec<Answer>, Option<Barred>),
    /// An error of Redis about the step itself, from its code on.
    Error(Bytes),
    /// The check in front of the step found rights missing, and nothing was run; or found none missing, and wants
    /// the step to be sent without it.
    Lacking(Missing),
}

/// Where an error was raised, as far as the server says.
#[derive(Clone, Debug, PartialEq)]
pub enum RaisedAt {
    /// At this line of this source.
    Line(Bytes, u64),
    /// Not known.
    Nowhere,
    /// The text says so itself: servers before Redis 7.
    InText,
}

/// How a script of the application ended.
#[derive(Clone, Debug, PartialEq)]
pub enum ScriptEnd {
    /// It returned; what, is the last element of the answer.
    Returned,
    /// It raised an error.
    Raised {
        /// What it said.
        text: Bytes,
        /// Where.
        at: RaisedAt,
    },
    /// Its locks were put back.
    Undone {
        /// What it did to other keys stands.
        others_stand: bool,
        /// Keys that Redis would not have put back.
        lost: u64,
        /// The number that it returned, where all that it did was to set TTLs of locks.
        set_ttls: Option<i64>,
    },
}

/// What the guard refused a script that computes names of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Barred {
    /// The lock that it would have written, or the record; empty for a command that names no key.
    pub key: Bytes,
    /// The command, in lower case.
    pub command: Bytes,
    /// Whether the refusal ended the script; else it caught it.
    pub ended: bool,
}

impl Answers {
    /// What the guard refused.
    pub fn barred(&self) -> Option<&Barred> {
        match self {
            Answers::Script(_, _, barred) => barred.as_ref(),
            Answers::One(_) | Answers::Many(..) | Answers::Error(_) | Answers::Lacking(_) => None,
        }
    }

    /// The locks of a command, each with what is said of it. One answer counts for all, as where MSETNX takes none.
    /// Nothing where the whole step failed.
    pub fn of_each<'a, L>(
        &'a self,
        locks: &'a [L],
    ) -> Result<SmallVec<[(&'a L, &'a Answer); 1]>, NotAnAnswer> {
        let each: &[Answer] = match self {
            Answers::One(one) => return Ok(locks.iter().map(|lock| (lock, one)).collect()),
            Answers::Many(_, each) | Answers::Script(_, each, _) => each,
            Answers::Error(_) | Answers::Lacking(_) => return Ok(SmallVec::new()),
        };
        match each.len() == locks.len() {
            true => Ok(locks.iter().zip(each).collect()),
            false => Err(NotAnAnswer),
        }
    }

    /// Whether a script was refused, and what it did to keys that are no locks stands.
    pub fn others_stand(&self) -> bool {
        matches!(
            self,
            Answers::Script(
                ScriptEnd::Undone {
                    others_stand: true,
                    ..
                },
                ..
            )
        )
    }

    /// Whether the step found a lease that may be the client's own, so that trying once more, a
    /// moment later, is worthwhile. It has changed nothing then.
    pub fn perhaps_own(&self) -> bool {
        match self {
            Answers::One(one) => matches!(
                one.outcome,
                Outcome::Busy {
                    perhaps_own: true,
                    ..
                }
            ),
            Answers::Many(..) | Answers::Script(..) | Answers::Error(_) | Answers::Lacking(_) => {
                false
            }
        }
    }
}

/// A step that did nothing because it must know a process first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedBack {
    /// Who was granted the lease.
    pub holder: SessionId,
    /// The lease.
    pub grant: Grant,
    /// Its place among the locks of the command.
    pub at: usize,
}

/// Whether a script asked back, instead of answering.
pub fn asked_back(value: &Value) -> Option<AskedBack> {
    let items = value.as_items()?;
    if code(items) != Ok(b'I') {
        return None;
    }
    let fields = Fields(items);
    Some(AskedBack {
        holder: SessionId::from_slice(&fields.bytes(1)?)?,
        grant: Grant::from_slice(&fields.bytes(2)?)?,
        at: usize::try_from(fields.number(3).ok()?).ok()?,
    })
}

/// The script's answer has a shape that our scripts do not give.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the script's answer is not one of its own")]
pub struct NotAnAnswer;

/// Reads what a script answered.
pub fn read(value: &Value) -> Result<Answers, NotAnAnswer> {
    if let Some(error) = value.as_error() {
        return Ok(Answers::Error(error.clone()));
    }
    if let Value::Bulk(usual) = value {
        return packed::read(usual);
    }
    let items = value.as_items().ok_or(NotAnAnswer)?;
    match code(items)? {
        b'M' => {
            let total = items
                .get(1)
                .and_then(Value::as_integer)
                .ok_or(NotAnAnswer)?;
            Ok(Answers::Many(total, each(items.get(3..))?))
        }
        b'S' => Ok(Answers::Many(1, each(items.get(3..))?)),
        b'Q' => Missing::read(items).map(Answers::Lacking),
        b'W' => script(items),
        _ => read_one(items).map(Answers::One),
    }
}

fn script(items: &[Value]) -> Result<Answers, NotAnAnswer> {
    let fields = Fields(items);
    let mut about = items.get(2).and_then(Value::as_items).ok_or(NotAnAnswer)?;
    let mut barred = None;
    if let [locks @ .., last] = about
        && let Some(last) = last.as_items()
        && code(last) == Ok(b'!')
    {
        let last = Fields(last);
        barred = Some(Barred {
            key: last.bytes(3).ok_or(NotAnAnswer)?,
            command: last.bytes(4).ok_or(NotAnAnswer)?,
            ended: last.says(5),
        });
        about = locks;
    }
    let locks = each(Some(about))?;
    let end = match fields.letter(1).ok_or(NotAnAnswer)? {
        b'r' => ScriptEnd::Returned,
        b'e' => {
            let (text, at) = guarded::raised(items, 3)?;
            ScriptEnd::Raised { text, at }
        }
        b'n' => ScriptEnd::Undone {
            others_stand: fields.says(6),
            lost: fields.number(8)?,
            set_ttls: items
                .get(3)
                .and_then(Value::as_integer)
                .filter(|_| fields.number(7) == Ok(1)),
        },
        _ => return Err(NotAnAnswer),
    };
    Ok(Answers::Script(end, locks, barred))
}

/// One answer a lock.
fn each(items: Option<&[Value]>) -> Result<Vec<Answer>, NotAnAnswer> {
    items
        .ok_or(NotAnAnswer)?
        .iter()
        .map(|item| read_one(item.as_items().ok_or(NotAnAnswer)?))
        .collect()
}

fn read_one(items: &[Value]) -> Result<Answer, NotAnAnswer> {
    let fields = Fields(items);
    let reason = fields.reason(2);
    let code = code(items)?;
    let outcome = match code {
        b'G' => Outcome::Granted(Granted {
            fence: FencingToken(fields.number(3)?),
            now: fields.time(4)?,
            ttl_ms: fields.number(5).map(TtlMs)?,
            ended: match (fields.letter(6), fields.time(7)?) {
                (Some(b'L'), since) => Ended::RanOut(since),
                (Some(b'T'), since) => Ended::TakenOver(since),
                (Some(b'O'), since) => Ended::Overwritten(since),
                (_, _) => Ended::Nothing,
            },
            kept: fields.number(8)? == 1,
            old: fields.bytes(9),
            again: fields.bytes(10).and_then(|name| Grant::from_slice(&name)),
            shared_token: fields.says(11),
            asked_ms: AskedMs(fields.number(12).unwrap_or(0)),
        }),
        b'B' => Outcome::Busy {
            governed: fields.number(3)? == 1,
            adopted: fields.number(4)? == 1,
            perhaps_own: fields
                .0
                .get(5)
                .is_some_and(|soon| *soon == Value::Integer(1)),
            own: fields.says(6),
        },
        b'X' => Outcome::Extended {
            ttl_ms: fields.number(3).map(TtlMs)?,
            fence: FencingToken(fields.number(4)?),
            since: fields.time(5)?,
            now: fields.time(6)?,
            kept: fields.number(7)? == 1,
            old: fields.bytes(8),
            own: fields.letter(9) == Some(b's'),
            asked_ms: fields.number(10).map(AskedMs).ok(),
        },
        b'R' => Outcome::Released {
            fence: FencingToken(fields.number(3)?),
            since: fields.time(4)?,
            value: fields.bytes(6),
            taken_over: fields.letter(7) == Some(b'T'),
        },
        b'A' => Outcome::Absent {
            ran_out: fields.letter(3) == Some(b'E'),
        },
        b'N' => Outcome::Refused(Refused {
            reason: reason.ok_or(NotAnAnswer)?,
            since: fields.time(3)?,
            now: fields.time(4)?,
            fence: FencingToken(fields.number(5)?),
            late: fields.number(6)? == 1,
            keep_alive_ended: fields.number(7)? == 1,
            current: fields.bytes(8),
            paid_debt: fields.says(9),
        }),
        b'U' => Outcome::Ungoverned,
        b'D' => Outcome::Different {
            late: fields.number(3)? == 1,
        },
        b'C' => Outcome::ConditionUnmet,
        b'H' => Outcome::Untouched {
            governed: fields.number(3)? == 1,
            own: fields.says(4),
        },
        b'?' => Outcome::Failed,
        _ => return Err(NotAnAnswer),
    };
    let would = |reason| {
        let (late, paid_debt) = match code {
            b'G' => (fields.says(13), false),
            b'R' => (fields.says(8), fields.says(9)),
            _ => (reason == Reason::Expired, false),
        };
        Would {
            reason,
            late,
            paid_debt,
        }
    };
    let is_refused = matches!(outcome, Outcome::Refused(_));
    let deed = match fields.letter(10) {
        Some(b'a') => Some(Operation::Acquire),
        Some(b'e') => Some(Operation::Extend),
        Some(b'r') => Some(Operation::Release),
        _ => None,
    };
    Ok(Answer {
        outcome,
        native: items.get(1).cloned().map(in_redis_words),
        would: reason.filter(|_| !is_refused).map(would),
        deed: deed.filter(|_| is_refused),
        unrecorded: items.get(2).and_then(Value::as_error).cloned(),
    })
}

fn code(items: &[Value]) -> Result<u8, NotAnAnswer> {
    match items
        .first()
        .and_then(Value::as_bytes)
        .map(|bytes| &bytes[..])
    {
        Some([code]) => Ok(*code),
        _ => Err(NotAnAnswer),
    }
}

/// The fields of one answer; numbers come as integers or, out of a record, as digits.
struct Fields<'a>(&'a [Value]);

impl Fields<'_> {
    fn number(&self, at: usize) -> Result<u64, NotAnAnswer> {
        let value = self.0.get(at).ok_or(NotAnAnswer)?;
        if let Some(number) = value.as_integer() {
            return Ok(u64::try_from(number).unwrap_or(0));
        }
        let digits = value.as_bytes().ok_or(NotAnAnswer)?;
        let text = std::str::from_utf8(digits).map_err(|_| NotAnAnswer)?;
        text.parse().map_err(|_| NotAnAnswer)
    }

    fn time(&self, at: usize) -> Result<RedisTime, NotAnAnswer> {
        self.number(at).map(RedisTime)
    }

    /// Whether there is a 1.
    fn says(&self, at: usize) -> bool {
        self.number(at) == Ok(1)
    }

    fn letter(&self, at: usize) -> Option<u8> {
        self.0.get(at)?.as_bytes()?.first().copied()
    }

    fn bytes(&self, at: usize) -> Option<Bytes> {
        self.0.get(at)?.as_bytes().cloned()
    }

    fn reason(&self, at: usize) -> Option<Reason> {
        Reason::from_word(self.0.get(at)?.as_bytes()?)
    }
}

/// Before 7.0 an error with which Redis refuses a command that a script calls looks like the script's
/// own, `@user_script: 71: -OOM command not allowed …`; clients wait for its first word.
fn in_redis_words(value: Value) -> Value {
    let Value::Error(text) = &value else {
        return value;
    };
    let Some(rest) = text.strip_prefix(b"@user_script: ") else {
        return value;
    };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    match rest[digits..].strip_prefix(b": ") {
        Some([b'-', own @ ..]) => Value::Error(Bytes::copy_from_slice(own.trim_ascii_end())),
        // Words that only scripts hear have no first word of that kind.
        Some(own) => Value::Error([b"ERR ", own.trim_ascii_end()].concat().into()),
        None => value,
    }
}

#[cfg(test)]
mod tests;
