//! What is known of a value before the script runs: constants, KEYS and ARGV as they are, and replies of Redis as far as
//! the state of the lock decides them. All else is [`Value::Unknown`], never a likely value.

use bytes::Bytes;

use super::recipe::TtlUnit;

/// Largest whole number that is exact in Lua, which holds numbers as doubles: 2^53.
pub(super) const MAX_EXACT: i64 = 1 << 53;

/// Longest text that a script puts together, in bytes.
const MAX_CONCATENATED: usize = 16 * 1024;

/// A value as far as the call and the state of the lock decide it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Nil,
    Bool(bool),
    Number(i64),
    Text(Bytes),
    /// `KEYS[1]`, the lock key, in a run that stands for every call: a text that nothing may look at.
    Lock,
    /// The argument at this place, from 0, in such a run.
    Argument(usize),
    /// The text in the lock key.
    Stored,
    /// The first bytes of the text in the lock key, at most this many.
    StoredPrefix(usize),
    /// The result of TTL or PTTL for the lock key.
    Left(TtlUnit),
    /// The lock key's PTTL plus this many milliseconds. Only if it has a TTL.
    LeftAnd(i64),
    /// The 1 that the changing command returns.
    Done,
    /// `{ok = …}`
    Status(Bytes),
    /// `{err = …}`, as the client gets it.
    Error(Bytes),
    /// The error of Redis that `redis.pcall` caught.
    Caught,
    /// A value that the call and the state do not decide.
    Unknown,
    Keys,
    Arguments,
    Redis,
    String,
    Function(Function),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    /// `redis.call`, or `redis.pcall`, which catches errors.
    Command {
        catches: bool,
    },
    StatusReply,
    ErrorReply,
    ToString,
    ToNumber,
    Sub,
    Length,
}

impl Value {
    /// Whether Lua's `if` takes it for true; `None` if that is not known.
    pub(super) fn truth(&self) -> Option<bool> {
        match self {
            Value::Nil | Value::Bool(false) => Some(false),
            Value::Unknown => None,
            Value::Bool(true) | Value::Number(_) | Value::Text(_) | Value::Stored => Some(true),
            Value::Lock | Value::Argument(_) => Some(true),
            Value::StoredPrefix(_) | Value::Left(_) | Value::LeftAnd(_) | Value::Done => Some(true),
            Value::Status(_) | Value::Error(_) | Value::Caught => Some(true),
            Value::Keys | Value::Arguments | Value::Redis | Value::String => Some(true),
            Value::Function(_) => Some(true),
        }
    }

    /// Nil or a boolean, with which nothing can be computed.
    pub(super) fn is_nothing(&self) -> bool {
        matches!(self, Value::Nil | Value::Bool(_))
    }

    /// The number that it is, if that is known. A text is no number; only arithmetic turns it into one.
    pub(super) fn number(&self) -> Option<i64> {
        match self {
            Value::Number(value) => Some(*value),
            Value::Done => Some(1),
            _ => None,
        }
    }

    /// The number that arithmetic and `tonumber` turn it into.
    pub(super) fn to_number(&self) -> Option<i64> {
        match self {
            Value::Text(text) => canonical_integer(text),
            other => other.number(),
        }
    }

    /// `-value`
    pub(super) fn negated(&self) -> Option<Value> {
        match self {
            // Lua's -0 is written "-0", which Redis takes for no integer.
            Value::Number(value) if *value != 0 => Some(Value::Number(-value)),
            Value::Unknown => Some(Value::Unknown),
            _ => None,
        }
    }

    /// The text that it is as an argument of a command and in `..`.
    pub(super) fn word(&self) -> Option<Bytes> {
        match self {
            Value::Text(text) => Some(text.clone()),
            other => Some(Bytes::from(other.number()?.to_string())),
        }
    }

    /// Whether it is a text.
    pub(super) fn is_text(&self) -> bool {
        self.kind() == Some(3)
    }

    /// A number for its type in Lua, to tell types apart; `None` if the type is not known.
    fn kind(&self) -> Option<u8> {
        match self {
            Value::Nil => Some(0),
            Value::Bool(_) => Some(1),
            Value::Number(_) | Value::Left(_) | Value::LeftAnd(_) | Value::Done => Some(2),
            Value::Text(_) | Value::Stored | Value::StoredPrefix(_) => Some(3),
            Value::Lock | Value::Argument(_) => Some(3),
            Value::Status(_) | Value::Error(_) | Value::Caught => Some(4),
            Value::Keys | Value::Arguments | Value::Redis | Value::String => Some(4),
            Value::Function(_) => Some(5),
            Value::Unknown => None,
        }
    }

    /// Whether Lua's `==` is false because the types differ.
    pub(super) fn differs_in_type(&self, other: &Value) -> bool {
        matches!((self.kind(), other.kind()), (Some(a), Some(b)) if a != b)
    }
}

/// The integer that a text spells, if Redis and Lua's `tonumber` read the spelling alike; else `None`.
pub(super) fn canonical_integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let canonical = match digits {
        [b'0'] => text.len() == 1,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if !canonical {
        return None;
    }
    let value: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (-MAX_EXACT..=MAX_EXACT).contains(&value).then_some(value)
}

/// The number as a value, if a double holds it exactly.
pub(super) fn exact(number: Option<i64>) -> Option<Value> {
    number.filter(|number| (-MAX_EXACT..=MAX_EXACT).contains(number)).map(Value::Number)
}

/// The texts joined, unless that is longer than [`MAX_CONCATENATED`].
pub(super) fn concatenated(words: &[Bytes]) -> Option<Value> {
    let length: usize = words.iter().map(Bytes::len).sum();
    (length <= MAX_CONCATENATED).then(|| Value::Text(Bytes::from(words.concat())))
}

/// The text, if a status or error line holds it unchanged.
pub(super) fn line(text: Bytes) -> Option<Bytes> {
    let plain = text.iter().all(|byte| matches!(byte, b' '..=b'~'));
    (plain && !text.is_empty()).then_some(text)
}

/// The error that `redis.error_reply` makes of a text: Redis 7 puts `ERR` before a text without a code.
pub(super) fn error_reply(text: &Bytes) -> Option<Bytes> {
    let text = line(text.clone())?;
    let text = text.strip_prefix(b"-").unwrap_or(&text);
    if text.contains(&b' ') {
        return Some(Bytes::copy_from_slice(text));
    }
    Some(Bytes::from([b"ERR ", text].concat()))
}

/// Stands for the text of an argument in a run that stands for every call. It is never compared with another text.
pub(super) fn marker(index: usize) -> Bytes {
    Bytes::from(index.to_string())
}
