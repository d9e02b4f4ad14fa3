//! The answer to a request, and how values and refusals are put into Redis's words.

use bytes::Bytes;
use lockwarden_resp::Value;

/// The answer to a request.
pub(super) enum Answer {
    Value(Value),
    /// One reply for each name.
    Several(Vec<Value>),
    /// A null array.
    NoArray,
    /// The error line, from its code on.
    Error(Vec<u8>),
    /// The client wants its connection closed.
    Goodbye,
}

impl From<&str> for Answer {
    fn from(error: &str) -> Answer {
        Answer::Error(error.as_bytes().to_vec())
    }
}

impl From<Value> for Answer {
    fn from(value: Value) -> Answer {
        Answer::Value(value)
    }
}

pub(super) fn wrong_number(name: &str) -> Answer {
    format!("ERR wrong number of arguments for '{name}' command").as_str().into()
}

pub(super) fn simple(text: &str) -> Value {
    Value::Simple(Bytes::copy_from_slice(text.as_bytes()))
}

pub(super) fn bulk(bytes: &[u8]) -> Value {
    Value::Bulk(Bytes::copy_from_slice(bytes))
}

/// A string as a reply has it.
pub(super) fn text(text: impl Into<String>) -> Value {
    Value::Bulk(Bytes::from(text.into()))
}
