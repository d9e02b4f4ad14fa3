//! Scripts that declare no lock, and may compute the name of one: they run behind a guard, and what they
//! answer is put back into the words that it would have without. Which scripts that are is said by the
//! lock crate; here they are sent, and refusals of the guard are told.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use lockwarden_lock::classify::{ComputedNames, ComputedScript, MAX_WRAPPED_BYTES, UnseenScript};
use lockwarden_lock::companion::lock_behind;
use lockwarden_lock::op::{Command, Target};
use lockwarden_lock::outcome::{self, Barred};
use lockwarden_lock::own_request::OwnRequest;
use lockwarden_lock::plan::{self, Form, Needs};
use lockwarden_lock::script_facts::{Envelope, ScriptFacts};
use lockwarden_lock::scripts::guard::Guard;
use lockwarden_lock::settle::Refused;
use lockwarden_resp::{Value, put_value};

use super::awaited::{Guarded, Look, Queued, QueuedStep};
use super::block::Place;
use super::client::Client;
use super::opaque_scripts::{Examined, put_back_sha};
use super::transport::request_buffer::RequestBuffer;
use super::transport::{End, Muted};
use super::{Session, error_frame};
use crate::ruleset::Active;
use crate::telemetry::vocabulary::{CommandClass, CommandResult, UnjudgedWhy};

impl Session {
    /// A script that may compute the name of a lock.
    pub(crate) async fn computed_script(
        &mut self,
        inbox: &mut RequestBuffer,
        script: Box<ComputedScript>,
        active: &Arc<Active>,
        muted: Muted,
    ) -> Result<(), End> {
        let Some(active) = &self
            .admit(inbox, script.name.as_bytes(), active, muted)
            .await?
        else {
            return Ok(());
        };
        let mode = active.rules(script.target.namespace).mode;
        let Some(pass) = script.forward(mode, &active.computed_names) else {
            if let ComputedNames::Watch(guard) = &active.computed_names {
                let guard = guard.clone();
                return self.guarded(inbox, *script, guard, active, muted).await;
            }
            let why = "this script computes names of keys, which may be those of locks";
            self.refuse(&refused(&script, why), None, active, muted);
            return Ok(());
        };
        let call = (&script.target, script.name);
        self.forward_call(pass, call, UnjudgedWhy::ComputedNames, active, muted);
        Ok(())
    }

    /// Runs it behind the guard.
    async fn guarded(
        &mut self,
        inbox: &mut RequestBuffer,
        script: ComputedScript,
        guard: Arc<Guard>,
        active: &Active,
        muted: Muted,
    ) -> Result<(), End> {
        let cannot = if script.script.calls_others {
            Some("this script names another one, around the guard that it needs")
        } else if script.script.text.len() > MAX_WRAPPED_BYTES {
            Some("this script computes names of keys, and is too long to be guarded")
        } else {
            None
        };
        if let Some(why) = cannot {
            self.refuse(&refused(&script, why), None, active, muted);
            return Ok(());
        }
        if !script.script.compiles() {
            match self.examine_anyhow(inbox, &script.script).await? {
                Examined::Sound => {}
                Examined::Unsound(_) if let Some(pass) = script.forward_unsound() => {
                    self.forward(CommandClass::PassThrough, pass, muted);
                    return Ok(());
                }
                Examined::Unsound(text) | Examined::Unknown(text) => {
                    self.policy_error(&text, muted);
                    return Ok(());
                }
                Examined::TurnedAway(_) => {
                    let why = "lockwarden may run no scripts of its own, and cannot guard this one";
                    self.refuse(&refused(&script, why), None, active, muted);
                    return Ok(());
                }
            }
        }
        let words = script.argv.get(2..).unwrap_or_default();
        let step = plan::guarded(script.script.clone(), guard.clone(), words);
        let look = Look::Queued(Box::new(QueuedStep {
            what: Queued::Step,
            command: script.name,
            namespace: script.target.namespace,
            needs: Needs::of_opaque(script.name),
        }));
        let script = Guarded {
            script,
            envelope: Envelope {
                judged: false,
                guard: Some(guard),
            },
        };
        if let Some(block) = &mut self.client.connection.block {
            let place = Place::Guarded(Box::new(script));
            block.hold(place);
            self.transport.execute_queued(&step, look, muted);
            return Ok(());
        }
        let mut answer = self.execute(inbox, &step).await?;
        if answer.starts_with(b"-NOPERM") && script.script.name == "evalsha" {
            // Its user may run scripts that are known, so the proxy makes this one known.
            let text = script.envelope.around(&script.script.script.text);
            if self.client.make_known(&text).await {
                self.transport
                    .execute(&step, Form::Sha, Look::Answer, Muted::Yes);
                answer = self.answer(inbox).await?;
            }
        }
        let reply = self.conclude_guarded(&script, &answer, active)?;
        if muted == Muted::No {
            self.transport.reply(&reply);
        }
        Ok(())
    }

    /// The reply to a script that ran behind a guard, and what follows from it.
    pub(crate) fn conclude_guarded(
        &mut self,
        guarded: &Guarded,
        answer: &Bytes,
        active: &Active,
    ) -> Result<Bytes, End> {
        let (script, facts) = (&guarded.script, &guarded.script.script);
        if answer.starts_with(b"-ERR Error compiling script") {
            // Its own text was compiled before, and Lua has limits for a function.
            let why = "this script computes names of keys, and has too many local variables to be guarded";
            let line = self.refused(&refused(script, why), None, active);
            return Ok(error_frame(&line).freeze());
        }
        if answer.starts_with(b"-") {
            self.client
                .count(CommandClass::Policy, CommandResult::Error);
            return Ok(put_back_sha(answer, facts, &guarded.envelope));
        }
        let read = outcome::read_guarded(answer, self.client.connection.protocol)
            .map_err(|_| End::OutOfStep("a script's answer is not its own".to_owned()))?;
        let (reply, result) = match read {
            outcome::Guarded::Returned(reply, barred) => {
                self.caught(script, barred, active);
                (reply, CommandResult::Ok)
            }
            outcome::Guarded::ReturnedNothing(barred) => {
                self.caught(script, Some(barred), active);
                let mut reply = BytesMut::new();
                put_value(&mut reply, &Value::Null, self.client.connection.protocol);
                (reply.freeze(), CommandResult::Ok)
            }
            outcome::Guarded::Raised(text, at, barred) => {
                self.caught(script, barred, active);
                (
                    self.client.raised(facts, &text, &at).freeze(),
                    CommandResult::Error,
                )
            }
            outcome::Guarded::Refused(barred) => {
                let line =
                    self.barred_line(script.opaque().into(), &barred, &script.target, active);
                return Ok(error_frame(&line).freeze());
            }
        };
        self.client.count(CommandClass::Policy, result);
        Ok(reply)
    }

    /// A refusal of the guard that the script caught: it is told all the same.
    fn caught(&mut self, script: &ComputedScript, barred: Option<Barred>, active: &Active) {
        if let Some(barred) = barred {
            self.barred_line(script.opaque().into(), &barred, &script.target, active);
        }
    }

    /// Counts and logs what the guard refused; answers the error line. `otherwise` is the lock that is named
    /// where the command names none.
    pub(crate) fn barred_line(
        &mut self,
        command: Command,
        barred: &Barred,
        otherwise: &Target,
        active: &Active,
    ) -> String {
        let name = String::from_utf8_lossy(&barred.command).to_ascii_uppercase();
        let lock_of = |key: &[u8]| {
            let own = lock_behind(key).and_then(|lock| active.namespaces.find(lock));
            active.namespaces.find(key).or(own)
        };
        let target = Target {
            namespace: lock_of(&barred.key).unwrap_or(otherwise.namespace),
            key: barred.key.clone(),
        };
        let why = match barred.key.is_empty() {
            true => format!("a script that computes names of keys may not call {name}"),
            false => {
                format!("{name} of a lock that this script does not declare; hand it over in KEYS")
            }
        };
        let refused = Refused::computes_names(command, target, why);
        self.refused(&refused, None, active)
    }

    /// `EVALSHA` of a text that this proxy has not seen, and without a lock among its keys: it may compute
    /// the name of one. Redis is asked for a script that nobody has, and says in its own words that there is
    /// none; every client answers that with the text. Inside a block there is no such answer, so it is
    /// refused there, unless Redis does not know the text either.
    pub(crate) async fn unseen_script(
        &mut self,
        inbox: &mut RequestBuffer,
        script: UnseenScript,
        active: &Arc<Active>,
        muted: Muted,
    ) -> Result<(), End> {
        let Some(active) = &self.admit(inbox, b"evalsha", active, muted).await? else {
            return Ok(());
        };
        let computed = &active.computed_names;
        if *computed != ComputedNames::Forward
            && self.client.connection.block.is_some()
            && !self.client.is_absent(script.sha()).await
        {
            let line = "LOCKDENIED unsafe-script cmd=EVALSHA policy=scripts hint=\"lockwarden has not seen \
                        this script, and it may name locks; load it with SCRIPT LOAD before the block\"";
            self.policy_error(line, muted);
            return Ok(());
        }
        let kept = script.forward(computed);
        self.forward(CommandClass::PassThrough, kept.pass(), muted);
        Ok(())
    }

    /// Whether a text is a chunk of its own; a user who may not find out does not have to.
    async fn examine_anyhow(
        &mut self,
        inbox: &mut RequestBuffer,
        script: &ScriptFacts,
    ) -> Result<Examined, End> {
        match self.examine(inbox, script).await? {
            Examined::TurnedAway(_) if self.client.connection.block.is_none() => {
                self.client.examine_aside(script).await
            }
            examined => Ok(examined),
        }
    }
}

impl Client {
    /// Whether a server now has a text, over a connection of the proxy's own.
    async fn make_known(&self, text: &[u8]) -> bool {
        let Ok(mut aside) = self.shared.backend.address.converse().await else {
            return false;
        };
        let answer = aside.ask(&OwnRequest::Load(text).words()).await;
        answer.is_ok_and(|answer| !matches!(answer, Value::Error(_)))
    }

    /// Whether Redis says, over a connection of the proxy's own, that it knows no script by this name.
    async fn is_absent(&self, sha: &[u8]) -> bool {
        let asked = async {
            let mut aside = self.shared.backend.address.converse().await?;
            aside.ask(&[b"SCRIPT".as_slice(), b"EXISTS", sha]).await
        };
        matches!(asked.await, Ok(Value::Array(known)) if known == [Value::Integer(0)])
    }
}

fn refused(script: &ComputedScript, why: &str) -> Refused {
    Refused::computes_names(
        script.opaque().into(),
        script.target.clone(),
        why.to_owned(),
    )
}
