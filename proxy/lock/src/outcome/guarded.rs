//! The answer of a guarded script that declares no lock: its return value, unchanged, unless it ended with an error or
//! something was refused.

use bytes::Bytes;
use lockwarden_resp::{Elements, Protocol, Value, parse_reply};

use super::array::Fields;
use super::{Barred, NotAnAnswer, RaisedAt};
use crate::scripts::guard::MARK;

/// The answer of a guarded script.
#[derive(Clone, Debug, PartialEq)]
pub enum Guarded {
    /// The return value, as Redis wrote it, and what the guard refused meanwhile.
    Returned(Bytes, Option<Barred>),
    /// It returned nil, and the guard refused this meanwhile.
    ReturnedNothing(Barred),
    /// It raised this error, and the guard refused this meanwhile.
    Raised(Bytes, RaisedAt, Option<Barred>),
    /// The refusal ended it. Its earlier changes remain, or are undone except for some keys.
    Refused(Barred, Left),
}

/// What a refused script has left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Whether its changes remain.
    pub stands: bool,
    /// Keys that Redis was unable to restore.
    pub lost: u64,
}

/// Parses an answer that is no error of Redis about the step itself.
pub fn read_guarded(answer: &Bytes, protocol: Protocol) -> Result<Guarded, NotAnAnswer> {
    if !is_ours(answer) {
        return Ok(Guarded::Returned(answer.clone(), None));
    }
    let places: Vec<_> = Elements::of(answer).ok_or(NotAnAnswer)?.take(7).collect();
    let word = |place: usize| -> Result<Bytes, NotAnAnswer> {
        let place = places.get(place).ok_or(NotAnAnswer)?.clone();
        let value = parse_reply(&answer.slice(place), protocol).map_err(|_| NotAnAnswer)?;
        value.as_bytes().cloned().ok_or(NotAnAnswer)
    };
    let number = |place: usize| -> Result<u64, NotAnAnswer> {
        let place = places.get(place).ok_or(NotAnAnswer)?.clone();
        let value = parse_reply(&answer.slice(place), protocol).map_err(|_| NotAnAnswer)?;
        let number = value.as_integer().ok_or(NotAnAnswer)?;
        u64::try_from(number).map_err(|_| NotAnAnswer)
    };
    let how = word(1)?;
    let (is_noted, key, command) = (number(2)? == 1, word(3)?, word(4)?);
    let barred = (!command.is_empty()).then(|| Barred { key, command, ended: &how[..] == b"n", is_noted });
    match (&how[..], barred) {
        (b"r", Some(barred)) => Ok(match places.get(5) {
            Some(place) => Guarded::Returned(answer.slice(place.clone()), Some(barred)),
            None => Guarded::ReturnedNothing(barred),
        }),
        (b"n", Some(barred)) => Ok(Guarded::Refused(barred, Left { stands: number(5)? == 1, lost: number(6)? })),
        (b"e", barred) => {
            let value = parse_reply(answer, protocol).map_err(|_| NotAnAnswer)?;
            let (text, at) = raised(value.as_items().ok_or(NotAnAnswer)?, 5)?;
            Ok(Guarded::Raised(text, at, barred))
        }
        _ => Err(NotAnAnswer),
    }
}

fn is_ours(answer: &[u8]) -> bool {
    let Some(end) = answer.iter().take(16).position(|byte| *byte == b'\n') else {
        return false;
    };
    let first = answer[end + 1..].strip_prefix(format!("${}\r\n", MARK.len()).as_bytes());
    answer.first() == Some(&b'*') && first.is_some_and(|rest| rest.starts_with(MARK.as_bytes()))
}

/// An error raised by an application's script: its text, its source and its line, starting at a place in the array.
pub(super) fn raised(items: &[Value], at: usize) -> Result<(Bytes, RaisedAt), NotAnAnswer> {
    let fields = Fields(items);
    let source = fields.bytes(at + 1).ok_or(NotAnAnswer)?;
    let raised_at = match fields.number(at + 2)? {
        0 if &source[..] == b"text" => RaisedAt::InText,
        0 => RaisedAt::Nowhere,
        line => RaisedAt::Line(source, line),
    };
    Ok((fields.bytes(at).ok_or(NotAnAnswer)?, raised_at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(answer: &'static [u8]) -> Result<Guarded, NotAnAnswer> {
        read_guarded(&Bytes::from_static(answer), Protocol::Resp2)
    }

    #[test]
    fn what_a_script_returned_is_taken_as_it_is() {
        for answer in [
            &b"+OK\r\n"[..],
            b":1\r\n",
            b"$-1\r\n",
            b"*0\r\n",
            b"*1\r\n$16\r\nlockwarden:other\r\n",
            b"%1\r\n$16\r\nlockwarden:guard\r\n:1\r\n",
        ] {
            let returned = Guarded::Returned(Bytes::from_static(answer), None);
            assert_eq!(read(answer), Ok(returned));
        }
    }

    #[test]
    fn a_refusal_that_the_script_caught_leaves_its_answer_as_it_is() {
        let barred = Barred { key: "lock:a".into(), command: "del".into(), ended: false, is_noted: false };
        assert_eq!(
            read(b"*6\r\n$16\r\nlockwarden:guard\r\n$1\r\nr\r\n:0\r\n$6\r\nlock:a\r\n$3\r\ndel\r\n*1\r\n:7\r\n"),
            Ok(Guarded::Returned("*1\r\n:7\r\n".into(), Some(barred.clone())))
        );
        assert_eq!(
            read(b"*5\r\n$16\r\nlockwarden:guard\r\n$1\r\nr\r\n:0\r\n$6\r\nlock:a\r\n$3\r\ndel\r\n"),
            Ok(Guarded::ReturnedNothing(barred))
        );
    }

    #[test]
    fn errors_have_a_place_where_the_script_knows_it() {
        assert_eq!(
            read(b"*8\r\n$16\r\nlockwarden:guard\r\n$1\r\ne\r\n:1\r\n$0\r\n\r\n$0\r\n\r\n$5\r\nERR x\r\n$12\r\n@user_script\r\n:3\r\n"),
            Ok(Guarded::Raised(
                "ERR x".into(),
                RaisedAt::Line("@user_script".into(), 3),
                None
            ))
        );
        assert_eq!(read(b"*2\r\n$16\r\nlockwarden:guard\r\n$1\r\ne\r\n"), Err(NotAnAnswer));
    }
}
