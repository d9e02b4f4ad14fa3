//! What a request comes to, and how values and refusals are put into words, those of Redis.

use bytes::Bytes;
use lockwarden_resp::{Request, Value};

/// Bytes of a name, and of all arguments, that an error repeats, as in Redis.
pub(super) const MAX_REPEATED: usize = 128;

/// What a request comes to.
pub(super) enum Answer {
    Value(Value),
    /// One for each name.
    Several(Vec<Value>),
    /// An array that is not there.
    NoArray,
    /// From its code on.
    Error(Vec<u8>),
    /// The client wants no more.
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

pub(super) fn unknown_command(request: Request<'_>) -> Answer {
    let mut arguments = Vec::new();
    for at in 1..request.len() {
        if arguments.len() >= MAX_REPEATED {
            break;
        }
        let room = MAX_REPEATED - arguments.len();
        arguments.push(b'\'');
        arguments.extend_from_slice(cut(request.arg(at), room));
        arguments.extend_from_slice(b"' ");
    }
    let mut error = b"ERR unknown command '".to_vec();
    error.extend_from_slice(cut(request.name(), MAX_REPEATED));
    error.extend_from_slice(b"', with args beginning with: ");
    error.extend_from_slice(&arguments);
    Answer::Error(error)
}

pub(super) fn wrong_number(name: &str) -> Answer {
    format!("ERR wrong number of arguments for '{name}' command")
        .as_str()
        .into()
}

pub(super) fn cut(bytes: &[u8], most: usize) -> &[u8] {
    &bytes[..bytes.len().min(most)]
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
