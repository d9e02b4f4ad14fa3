//! What is known of a value in a script before the script runs: constants as they are, KEYS and
//! ARGV as symbols, Redis's answers as the state of the lock makes them. A question that the symbol
//! does not answer is `None`, never a likely answer. `meaning` asks the questions.

use bytes::Bytes;

use super::TtlSource;

/// Highest KEYS or ARGV index of a lock script; Lua counts from 1.
const MAX_INDEX: i64 = 64;

/// A value as far as the state of the lock decides it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Nil,
    Bool(bool),
    Number(i64),
    Text(Bytes),
    /// The text in the lock key.
    Stored,
    /// `tostring(false)`.
    FalseText,
    /// `KEYS[n]`, n from 0.
    Key(usize),
    /// `ARGV[n]`, n from 0: a text that differs from call to call.
    Argument(usize),
    /// `tonumber(ARGV[n])`: good for nothing but a TTL.
    ArgumentNumber(usize),
    /// The 1 with which the effect answers.
    Done,
    /// `{ok = …}`
    Status(Bytes),
    /// `{err = …}`, in the words that reach the client.
    Error(Bytes),
    Keys,
    Arguments,
    Redis,
    Function(Function),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    /// `redis.call` or `redis.pcall`: they differ only in who sees an error of Redis.
    Command,
    StatusReply,
    ErrorReply,
    ToString,
    ToNumber,
}

impl Value {
    /// `self[index]`.
    pub(super) fn at(&self, index: &Value) -> Option<Value> {
        match (self, index) {
            (Value::Keys, Value::Number(number)) => from_one(*number).map(Value::Key),
            (Value::Arguments, Value::Number(number)) => from_one(*number).map(Value::Argument),
            (Value::Redis, Value::Text(field)) => match &field[..] {
                b"call" | b"pcall" => Some(Value::Function(Function::Command)),
                b"status_reply" => Some(Value::Function(Function::StatusReply)),
                b"error_reply" => Some(Value::Function(Function::ErrorReply)),
                _ => None,
            },
            _ => None,
        }
    }

    /// What Lua's `if` makes of it. An argument may be missing in a call, so its truth is open.
    pub(super) fn truth(&self) -> Option<bool> {
        match self {
            Value::Nil | Value::Bool(false) => Some(false),
            Value::Bool(true) | Value::Number(_) | Value::Text(_) | Value::Stored => Some(true),
            Value::FalseText | Value::Done | Value::Status(_) | Value::Error(_) => Some(true),
            Value::Key(_) | Value::Argument(_) | Value::ArgumentNumber(_) => None,
            Value::Keys | Value::Arguments | Value::Redis | Value::Function(_) => None,
        }
    }

    /// The number it is, where that is known.
    pub(super) fn number(&self) -> Option<i64> {
        match self {
            Value::Number(value) => Some(*value),
            Value::Done => Some(1),
            _ => None,
        }
    }

    /// What it is as the TTL of EXPIRE or PEXPIRE.
    pub(super) fn as_ttl(&self) -> Option<TtlSource> {
        match self {
            Value::Argument(index) | Value::ArgumentNumber(index) => {
                Some(TtlSource::Argument(*index))
            }
            Value::Number(value) => Some(TtlSource::Literal(*value)),
            Value::Text(text) => super::canonical_integer(text).map(TtlSource::Literal),
            _ => None,
        }
    }
}

fn from_one(number: i64) -> Option<usize> {
    if !(1..=MAX_INDEX).contains(&number) {
        return None;
    }
    usize::try_from(number - 1).ok()
}

/// A text that fits on a status or error line unchanged.
pub(super) fn line(text: Bytes) -> Option<Bytes> {
    let plain = text.iter().all(|byte| matches!(byte, b' '..=b'~'));
    (plain && !text.is_empty()).then_some(text)
}

/// What `redis.error_reply` makes of its text: Redis 7 puts ERR before one without a code.
pub(super) fn error_reply(text: &Bytes) -> Option<Bytes> {
    let text = line(text.clone())?;
    let text = text.strip_prefix(b"-").unwrap_or(&text);
    if text.contains(&b' ') {
        return Some(Bytes::copy_from_slice(text));
    }
    Some(Bytes::from([b"ERR ", text].concat()))
}
