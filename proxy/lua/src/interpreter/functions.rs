//! Calls of functions: those of Lua that lock scripts use, and those of `redis`.

use bytes::Bytes;

use super::{Followed, Run, Stop};
use crate::trace::Effect;
use crate::value::{Function, Value, canonical_integer, error_reply, line};

impl Run<'_> {
    pub(super) fn called(&mut self, function: &Value, arguments: &[Value]) -> Followed<Value> {
        let Value::Function(function) = function else {
            return Err(Stop::NotUnderstood);
        };
        let result = match (function, arguments) {
            (Function::Command { catches }, [Value::Text(name), rest @ ..]) => {
                return self.command_called(*catches, name, rest);
            }
            (Function::StatusReply, [Value::Text(text)]) => line(text.clone()).map(Value::Status),
            (Function::ErrorReply, [Value::Text(text)]) => error_reply(text).map(Value::Error),
            (Function::ToString, [value]) => to_string(value),
            (Function::ToNumber, [value]) => to_number(value),
            (Function::Sub, [Value::Text(text), from, to]) => {
                from.number().zip(to.number()).and_then(|(from, to)| part(text, from, to)).map(Value::Text)
            }
            (Function::Sub, [Value::Stored, Value::Number(1), Value::Number(to @ 1..)]) => {
                usize::try_from(*to).ok().map(Value::StoredPrefix)
            }
            (Function::Sub, [Value::Stored | Value::Unknown, ..]) => Some(Value::Unknown),
            (Function::Length, [Value::Text(text)]) => Some(Value::Number(text.len() as i64)),
            (Function::Length, [Value::Stored | Value::Unknown]) => Some(Value::Unknown),
            _ => None,
        };
        result.ok_or(Stop::NotUnderstood)
    }

    /// `redis.call`, or `redis.pcall`, which catches errors.
    fn command_called(&mut self, catches: bool, name: &[u8], arguments: &[Value]) -> Followed<Value> {
        match self.command(name, arguments) {
            Err(Stop::WrongType) if catches => Ok(Value::Caught),
            // Redis may refuse the write (out of memory), and that would go unheard.
            Ok(_) if catches && matches!(self.effect, Some(Effect::Put(..))) => Err(Stop::NotUnderstood),
            answer => answer,
        }
    }
}

fn to_string(value: &Value) -> Option<Value> {
    match value {
        Value::Text(_) | Value::Stored | Value::StoredPrefix(_) => Some(value.clone()),
        Value::Bool(true) => Some(Value::Text(Bytes::from_static(b"true"))),
        Value::Bool(false) => Some(Value::Text(Bytes::from_static(b"false"))),
        Value::Nil => Some(Value::Text(Bytes::from_static(b"nil"))),
        Value::Number(_) | Value::Done => value.word().map(Value::Text),
        Value::Unknown | Value::Left(_) | Value::LeftAnd(_) => Some(Value::Unknown),
        _ => None,
    }
}

fn to_number(value: &Value) -> Option<Value> {
    match value {
        Value::Text(text) => canonical_integer(text).map(Value::Number),
        Value::Number(_) | Value::Done | Value::Left(_) | Value::LeftAnd(_) => Some(value.clone()),
        Value::Nil | Value::Bool(_) => Some(Value::Nil),
        Value::Stored | Value::StoredPrefix(_) | Value::Unknown => Some(Value::Unknown),
        _ => None,
    }
}

/// `string.sub(text, from, to)`, for places that count from the left.
fn part(text: &Bytes, from: i64, to: i64) -> Option<Bytes> {
    let from = usize::try_from(from).ok()?.checked_sub(1)?;
    let to = usize::try_from(to).ok()?.min(text.len());
    Some(if from < to { text.slice(from..to) } else { Bytes::new() })
}
