//! The answers of few calls, each as an array: a letter, Redis's reply, a reason, then fields that may be missing at
//! the end, as in the scripts' contracts. The usual ones are strings, which `packed` reads.

use bytes::Bytes;
use lockwarden_resp::Value;

use super::guarded::raised;
use super::{
    Adopted, Answer, Answers, AskedBack, Barred, Beside, DataSaid, Ended, Granted, Missing, NotAnAnswer, Outcome,
    Refused, ScriptEnd, StandsFor, Would,
};
use crate::data_guard::Verdict;
use crate::decision::Operation;
use crate::reason::Reason;
use crate::time::{AskedMs, RedisTime, TtlMs};
use crate::token::{FencingToken, Grant, SessionId};

/// Whether a script asked back, instead of giving a result.
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

/// Parses an array, or the error in its place.
pub(super) fn read(value: &Value) -> Result<Answers, NotAnAnswer> {
    if let Some(error) = value.as_error() {
        return Ok(Answers::Error(error.clone()));
    }
    let items = value.as_items().ok_or(NotAnAnswer)?;
    match code(items)? {
        b'M' => {
            let total = items.get(1).and_then(Value::as_integer).ok_or(NotAnAnswer)?;
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
            is_noted: last.says(6),
        });
        about = locks;
    }
    let is_data = |one: &&Value| one.as_items().map(code) == Some(Ok(b'#'));
    let data = about.iter().find(is_data).map(read_data).transpose()?;
    let is_adopted = |one: &Value| one.as_items().map(code) == Some(Ok(b'+'));
    let (adopted, locks): (Vec<_>, Vec<_>) = about.iter().filter(|one| !is_data(one)).partition(|one| is_adopted(one));
    let adopted = adopted.into_iter().map(read_adopted).collect::<Result<_, _>>()?;
    let locks = locks.into_iter().map(read_item).collect::<Result<_, _>>()?;
    let end = match fields.letter(1).ok_or(NotAnAnswer)? {
        b'r' => ScriptEnd::Returned,
        b'e' => {
            let (text, at) = raised(items, 3)?;
            ScriptEnd::Raised { text, at }
        }
        b'n' => ScriptEnd::Undone {
            others_stand: fields.says(6),
            lost: fields.number(8)?,
            set_ttls: items.get(3).and_then(Value::as_integer).filter(|_| fields.number(7) == Ok(1)),
        },
        _ => return Err(NotAnAnswer),
    };
    let beside = Beside { barred, adopted, data: data.unwrap_or_default() };
    Ok(Answers::Script(end, locks, beside))
}

fn read_data(item: &Value) -> Result<DataSaid, NotAnAnswer> {
    let fields = Fields(item.as_items().ok_or(NotAnAnswer)?);
    let letters = fields.bytes(3).ok_or(NotAnAnswer)?;
    let verdicts = letters.iter().map(|letter| match letter {
        b'-' => Ok(None),
        letter => Verdict::of_letter(*letter).map(Some).ok_or(NotAnAnswer),
    });
    let place = usize::try_from(fields.number(4)?).map_err(|_| NotAnAnswer)?;
    Ok(DataSaid { verdicts: verdicts.collect::<Result<_, _>>()?, refused: place.checked_sub(1) })
}

fn read_adopted(item: &Value) -> Result<Adopted, NotAnAnswer> {
    let items = item.as_items().ok_or(NotAnAnswer)?;
    let fields = Fields(items);
    Ok(Adopted {
        key: fields.bytes(3).ok_or(NotAnAnswer)?,
        place: usize::try_from(fields.number(4)?).map_err(|_| NotAnAnswer)?,
        count: u16::try_from(fields.number(5)?).map_err(|_| NotAnAnswer)?,
        answer: read_item(items.get(6).ok_or(NotAnAnswer)?)?,
    })
}

fn read_item(item: &Value) -> Result<Answer, NotAnAnswer> {
    read_one(item.as_items().ok_or(NotAnAnswer)?)
}

/// One answer for each lock.
fn each(items: Option<&[Value]>) -> Result<Vec<Answer>, NotAnAnswer> {
    items.ok_or(NotAnAnswer)?.iter().map(read_item).collect()
}

pub(super) fn read_one(items: &[Value]) -> Result<Answer, NotAnAnswer> {
    let (code, fields) = (code(items)?, Fields(items));
    let outcome = outcome(code, &fields)?;
    // In monitor mode the reason is given beside an outcome that was executed; in a refusal it is the refusal's own.
    let is_refused = matches!(outcome, Outcome::Refused(_));
    let reason = fields.reason(2).filter(|_| !is_refused);
    let deed = match fields.letter(10) {
        Some(b'a') => Some(Operation::Acquire),
        Some(b'e') => Some(Operation::Extend),
        Some(b'r') => Some(Operation::Release),
        _ => None,
    };
    Ok(Answer {
        outcome,
        native: items.get(1).cloned().map(in_redis_words),
        would: reason.map(|reason| would(code, reason, &fields)),
        deed: deed.filter(|_| is_refused),
        unrecorded: items.get(2).and_then(Value::as_error).cloned(),
        later: fields.later(2),
    })
}

fn outcome(code: u8, fields: &Fields<'_>) -> Result<Outcome, NotAnAnswer> {
    Ok(match code {
        b'G' => granted(fields)?,
        b'B' => Outcome::Busy {
            governed: fields.number(3)? == 1,
            adopted: fields.number(4)? == 1,
            perhaps_own: fields.0.get(5).is_some_and(|soon| *soon == Value::Integer(1)),
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
        b'A' => Outcome::Absent { ran_out: fields.letter(3) == Some(b'E'), unrecorded: fields.letter(3) == Some(b'-') },
        b'N' => Outcome::Refused(Refused {
            reason: fields.reason(2).ok_or(NotAnAnswer)?,
            since: fields.time(3)?,
            now: fields.time(4)?,
            fence: FencingToken(fields.number(5)?),
            late: fields.number(6)? == 1,
            keep_alive_ended: fields.number(7)? == 1,
            current: fields.bytes(8),
            stands_for: fields.stands_for(9),
        }),
        b'U' => Outcome::Ungoverned,
        b'V' => Outcome::Unrecorded,
        b'D' => Outcome::Different { late: fields.number(3)? == 1 },
        b'C' => Outcome::ConditionUnmet,
        b'H' => Outcome::Untouched { governed: fields.number(3)? == 1, own: fields.says(4) },
        b'?' => Outcome::Failed,
        _ => return Err(NotAnAnswer),
    })
}

fn granted(fields: &Fields<'_>) -> Result<Outcome, NotAnAnswer> {
    Ok(Outcome::Granted(Granted {
        fence: FencingToken(fields.number(3)?),
        now: fields.time(4)?,
        ttl_ms: fields.number(5).map(TtlMs)?,
        ended: match (fields.letter(6), fields.time(7)?) {
            (Some(b'L'), since) => Ended::RanOut(since),
            (Some(b'T'), since) => Ended::TakenOver(since),
            (Some(b'O'), since) => Ended::Overwritten(since),
            (Some(b'-'), _) => Ended::Unrecorded,
            (_, _) => Ended::Nothing,
        },
        kept: fields.number(8)? == 1,
        old: fields.bytes(9),
        again: fields.bytes(10).and_then(|name| Grant::from_slice(&name)),
        shared_token: fields.says(11),
        asked_ms: AskedMs(fields.number(12).unwrap_or(0)),
    }))
}

/// What would have been refused, where nothing is refused.
fn would(code: u8, reason: Reason, fields: &Fields<'_>) -> Would {
    let (late, stands_for) = match code {
        b'G' => (fields.says(13), StandsFor::Nothing),
        b'R' => (fields.says(8), fields.stands_for(9)),
        _ => (reason == Reason::Expired, StandsFor::Nothing),
    };
    Would { reason, late, stands_for }
}

pub(super) fn code(items: &[Value]) -> Result<u8, NotAnAnswer> {
    match items.first().and_then(Value::as_bytes).map(|bytes| &bytes[..]) {
        Some([code]) => Ok(*code),
        _ => Err(NotAnAnswer),
    }
}

/// The fields of one answer. Numbers are integers or, from a record, digits.
pub(super) struct Fields<'a>(pub(super) &'a [Value]);

impl Fields<'_> {
    pub(super) fn number(&self, at: usize) -> Result<u64, NotAnAnswer> {
        let value = self.0.get(at).ok_or(NotAnAnswer)?;
        if let Some(number) = value.as_integer() {
            return Ok(u64::try_from(number).unwrap_or(0));
        }
        let digits = value.as_bytes().ok_or(NotAnAnswer)?;
        let text = std::str::from_utf8(digits).map_err(|_| NotAnAnswer)?;
        text.parse().map_err(|_| NotAnAnswer)
    }

    pub(super) fn time(&self, at: usize) -> Result<RedisTime, NotAnAnswer> {
        self.number(at).map(RedisTime)
    }

    /// Whether the field is 1.
    pub(super) fn says(&self, at: usize) -> bool {
        self.number(at) == Ok(1)
    }

    fn stands_for(&self, at: usize) -> StandsFor {
        match self.number(at) {
            Ok(1) => StandsFor::Debt,
            Ok(2) => StandsFor::RefusedTry,
            Ok(4) => StandsFor::OneOfMany,
            _ => StandsFor::Nothing,
        }
    }

    pub(super) fn letter(&self, at: usize) -> Option<u8> {
        self.0.get(at)?.as_bytes()?.first().copied()
    }

    pub(super) fn bytes(&self, at: usize) -> Option<Bytes> {
        self.0.get(at)?.as_bytes().cloned()
    }

    /// The version of a later record, given in place of a reason.
    fn later(&self, at: usize) -> Option<u8> {
        match self.0.get(at)?.as_bytes()?[..] {
            [b'v', version] => Some(version),
            _ => None,
        }
    }

    pub(super) fn reason(&self, at: usize) -> Option<Reason> {
        Reason::from_word(self.0.get(at)?.as_bytes()?)
    }
}

/// Before 7.0, an error with which Redis refuses a command of a script looks like the script's own, `@user_script: 71:
/// -OOM command not allowed …`; clients check for its first word.
pub(super) fn in_redis_words(value: Value) -> Value {
    let Value::Error(text) = &value else {
        return value;
    };
    let Some(rest) = text.strip_prefix(b"@user_script: ") else {
        return value;
    };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    match rest[digits..].strip_prefix(b": ") {
        Some([b'-', own @ ..]) => Value::Error(Bytes::copy_from_slice(own.trim_ascii_end())),
        // Errors that only scripts see have no first word of that kind.
        Some(own) => Value::Error([b"ERR ", own.trim_ascii_end()].concat().into()),
        None => value,
    }
}
