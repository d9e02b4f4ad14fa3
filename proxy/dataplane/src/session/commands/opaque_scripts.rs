//! Scripts whose meaning is not known: whether their text may be wrapped, and the reply of a wrapped one, which is
//! given the form that it would have without the wrap.

use bytes::{Bytes, BytesMut};
use lockwarden_lock::op::{LockCommand, LockOp};
use lockwarden_lock::outcome::{self, Answers, NothingRun, RaisedAt, StandsFor};
use lockwarden_lock::own_request::OwnRequest;
use lockwarden_lock::reason::Reason;
use lockwarden_lock::rules::OnViolation;
use lockwarden_lock::script_facts::{Envelope, ScriptFacts};
use lockwarden_resp::{Value, parse_reply};

use crate::backend::server_info::NamesScripts;
use crate::session::Session;
use crate::session::client::Client;
use crate::session::step::awaited::{InFlight, Look};
use crate::session::transport::End;
use crate::session::transport::request_buffer::RequestBuffer;

impl Session {
    /// A script that is to be wrapped must be a chunk of its own, or it could end the function that it is wrapped
    /// into. The server's own Lua is asked that, once for each text.
    pub(crate) async fn examine(&mut self, inbox: &mut RequestBuffer, script: &ScriptFacts) -> Result<Examined, End> {
        // A question on this connection would be queued, or would end a CLIENT CACHING.
        if self.client.connection.block.is_some() || self.client.connection.reads_are_noted() {
            return self.client.examine_aside(script).await;
        }
        let [raises, compiles] = self.client.questions(script);
        let names = self.client.shared.backend.server.names_scripts() == NamesScripts::Unknown;
        if names {
            self.transport.inquire(&raises, Look::Answer);
        }
        self.transport.inquire(&compiles, Look::Answer);
        // As Redis does itself with the text of an EVAL.
        self.transport.inquire(&OwnRequest::Load(&script.text), Look::Answer);
        if names {
            let error = self.answer(inbox).await?;
            if let Ok(error) = parse_reply(&error, self.client.connection.protocol) {
                self.client.learn_how_errors_look(&error);
            }
        }
        let answer = self.answer(inbox).await?;
        let loaded = self.answer(inbox).await?;
        let is_about_the_text = !loaded.starts_with(b"-NOPERM") && !loaded.starts_with(b"-ERR unknown");
        if loaded.starts_with(b"-") && is_about_the_text {
            let words = String::from_utf8_lossy(&loaded[1..]).trim_end().to_owned();
            // An error of another kind, such as while Redis is busy, says nothing about the text.
            return Ok(match words.starts_with(COMPILING) {
                true => Examined::Unsound(words),
                false => Examined::Unknown(words),
            });
        }
        let value = parse_reply(&answer, self.client.connection.protocol)
            .map_err(|_| End::OutOfStep("a script's answer is no reply".to_owned()))?;
        Ok(examined(script, value))
    }
}

impl Client {
    /// The same over a connection of the proxy's own.
    pub(crate) async fn examine_aside(&self, script: &ScriptFacts) -> Result<Examined, End> {
        let [raises, compiles] = self.questions(script);
        let asked = async {
            let mut aside = self.shared.backend.address.converse().await?;
            if self.shared.backend.server.names_scripts() == NamesScripts::Unknown {
                let error = aside.ask(&raises.words()).await?;
                self.learn_how_errors_look(&error);
            }
            aside.ask(&compiles.words()).await
        };
        Ok(match asked.await {
            Ok(value) => examined(script, value),
            Err(error) => Examined::Unknown(format!("ERR {error}")),
        })
    }

    /// The questions: how errors look, and whether a text compiles.
    fn questions<'a>(&self, script: &'a ScriptFacts) -> [OwnRequest<'a>; 2] {
        let flagged = self.shared.backend.server.reads_script_flags();
        let chunk = script.chunk();
        [OwnRequest::Raises { flagged }, OwnRequest::Compiles { flagged, chunk }]
    }

    fn learn_how_errors_look(&self, error: &Value) {
        if let Some(text) = error.as_error() {
            let nameless = memchr::memmem::find(text, b"script: on ").is_some();
            self.shared.backend.server.set_names_scripts(!nameless);
        }
    }

    /// The error that the application's script raised, as Redis words it for this script.
    pub(crate) fn raised(&self, script: &ScriptFacts, text: &Bytes, at: &RaisedAt) -> BytesMut {
        let mut line = BytesMut::from(&text[..]);
        match at {
            RaisedAt::Line(source, number) => {
                let sha = match self.shared.backend.server.names_scripts() {
                    NamesScripts::No => String::new(),
                    NamesScripts::Yes | NamesScripts::Unknown => format!("{},", script.sha),
                };
                let blank = if sha.is_empty() { "" } else { " " };
                let source = String::from_utf8_lossy(source);
                let tail = format!(" script: {sha}{blank}on {source}:{number}.");
                line.extend_from_slice(tail.as_bytes());
            }
            RaisedAt::Nowhere => {}
            RaisedAt::InText => {
                let head = format!("ERR Error running script (call to f_{}): ", script.sha);
                line = BytesMut::from(head.as_bytes());
                line.extend_from_slice(text);
            }
        }
        let mut frame = BytesMut::new();
        lockwarden_resp::put_error(&mut frame, &line);
        frame
    }
}

/// What the reply to [`OwnRequest::Compiles`] says of a text.
fn examined(script: &ScriptFacts, answer: Value) -> Examined {
    match answer {
        Value::Integer(1) => {
            script.found_to_compile();
            Examined::Sound
        }
        Value::Error(text) => match Answers::Error(text.clone()).nothing_run() {
            Some(proof) => Examined::TurnedAway(proof),
            None => Examined::Unknown(String::from_utf8_lossy(&text).into_owned()),
        },
        other => {
            let text = other.as_bytes().cloned().unwrap_or_default();
            let text = String::from_utf8_lossy(&text).into_owned();
            Examined::Unsound(format!("{COMPILING} (new function): {text}"))
        }
    }
}

/// How Redis's error begins for a text that is no chunk of Lua.
const COMPILING: &str = "ERR Error compiling script";

/// What the server's Lua says of a text.
pub(crate) enum Examined {
    /// It is a chunk of its own.
    Sound,
    /// It is not; Redis's error for it.
    Unsound(String),
    /// It could not be found out; the error.
    Unknown(String),
    /// Redis does not let this user find out, nor run what would follow.
    TurnedAway(NothingRun),
}

/// The reply of a wrapped script to a client that does not hold the lock, if the right reply is known and refusals of
/// releases and extensions are native.
pub(crate) fn own_no(command: &LockCommand, flight: &InFlight, refused: &outcome::Refused) -> Option<Value> {
    let LockOp::Wrapped { script, keys, .. } = &command.op else {
        return None;
    };
    let mut allowed = flight.permitted.locks().iter();
    // A release that is still owed (a debt) gets no error.
    let native = (refused.stands_for == StandsFor::Debt)
        || allowed.all(|allowed| allowed.rules.on_violation == OnViolation::Native);
    let unproven = matches!(refused.reason, Reason::NotOwner | Reason::Expired);
    if !native || !unproven {
        return None;
    }
    let (keys, arguments) = command.argv.get(3..)?.split_at_checked(*keys)?;
    let targets = command.op.targets();
    let is_lock = |key: &[u8]| targets.iter().any(|target| target.key == key);
    outcome::plain(&script.analysis.refusal_reply(keys, arguments, &is_lock)?)
}

/// Replaces the name of the script that Redis ran by the name that the client knows.
pub(crate) fn under_its_own_name(value: Value, op: &LockOp) -> Value {
    let (Value::Error(text), LockOp::Wrapped { script, reach, .. }) = (&value, op) else {
        return value;
    };
    let envelope = Envelope::judged(reach);
    Value::Error(put_back_sha(text, script, &envelope))
}

/// An error of Redis about a script in an envelope, about the script itself.
pub(crate) fn put_back_sha(text: &Bytes, script: &ScriptFacts, envelope: &Envelope) -> Bytes {
    let sent = script.sha_in(envelope);
    match memchr::memmem::find(text, sent.as_bytes()) {
        Some(at) => {
            let mut named = text.to_vec();
            named[at..at + sent.len()].copy_from_slice(script.sha.to_string().as_bytes());
            named.into()
        }
        None => text.clone(),
    }
}
