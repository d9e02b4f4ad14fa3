//! Reads the answer of a step.

use bytes::{Bytes, BytesMut};
use lockwarden_lock::outcome::{self, Answers, AskedBack};
use lockwarden_resp::{Elements, ReplyError, Value, parse_reply, put_value};

use crate::session::client::Client;
use crate::session::transport::End;

/// Which element of a wrapped script's answer is what the application's script returned.
pub(crate) const SCRIPT_REPLY: usize = 3;

impl Client {
    /// What a step asks back, if it did that instead of returning an outcome.
    pub(super) fn asked_back(&self, answer: &Bytes) -> Option<AskedBack> {
        if !answer.starts_with(b"*4\r\n$1\r\nI\r\n") {
            return None;
        }
        let value = parse_reply(answer, self.connection.protocol).ok()?;
        outcome::asked_back(&value)
    }

    /// Reads a step's answer.
    pub(crate) fn read_answers(&self, answer: &Bytes) -> Result<Answers, End> {
        let value = match parse_reply(answer, self.connection.protocol) {
            // What an application's script returned is relayed unchanged, however deep it is nested.
            Err(ReplyError::TooDeep) => parse_reply(&self.without_script_reply(answer), self.connection.protocol),
            read => read,
        };
        let value = value.map_err(|_| End::OutOfStep("a script's answer is no reply".into()))?;
        outcome::read(&value).map_err(|_| End::OutOfStep("a script's answer is not its own".into()))
    }

    /// The same answer with null in place of what the application's script returned.
    fn without_script_reply(&self, answer: &Bytes) -> Bytes {
        let Some(place) = Elements::of(answer).and_then(|mut all| all.nth(SCRIPT_REPLY)) else {
            return answer.clone();
        };
        let mut shorter = BytesMut::from(&answer[..place.start]);
        put_value(&mut shorter, &Value::Null, self.connection.protocol);
        shorter.extend_from_slice(&answer[place.end..]);
        shorter.freeze()
    }
}
