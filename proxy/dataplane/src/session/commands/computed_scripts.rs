//! Scripts that declare no lock, but may compute the name of one: they run behind a guard, and their replies are
//! given the form that they would have without it. The lock crate says which scripts these are; here they are sent,
//! and refusals of the guard are reported.

use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use lockwarden_control::clock::proxy_time;
use lockwarden_control::ruleset::Active;
use lockwarden_control::telemetry::events::Took;
use lockwarden_control::telemetry::vocabulary::{CommandClass, CommandResult, ModeLabel, UnjudgedWhy};
use lockwarden_lock::classify::{ComputedNames, ComputedScript, MAX_WRAPPED_BYTES, UnseenScript};
use lockwarden_lock::companion::lock_behind;
use lockwarden_lock::decision::Operation;
use lockwarden_lock::job_scripts;
use lockwarden_lock::op::{Command, Target};
use lockwarden_lock::outcome::{self, Barred, Left};
use lockwarden_lock::own_request::OwnRequest;
use lockwarden_lock::plan::{self, Form, Needs};
use lockwarden_lock::rules::Mode;
use lockwarden_lock::script_facts::{Envelope, ScriptFacts, ScriptSha};
use lockwarden_lock::scripts::guard::Guard;
use lockwarden_lock::settle::{self, Refused};
use lockwarden_resp::{Value, put_value};

use crate::session::client::Client;
use crate::session::client::block::Place;
use crate::session::commands::opaque_scripts::{Examined, put_back_sha};
use crate::session::step::awaited::{Guarded, Look, Queued, QueuedStep};
use crate::session::transport::request_buffer::RequestBuffer;
use crate::session::transport::{End, Muted};
use crate::session::{Session, error_frame};

impl Session {
    /// A script that may compute the name of a lock.
    pub(crate) async fn computed_script(
        &mut self,
        inbox: &mut RequestBuffer,
        script: Box<ComputedScript>,
        active: &Arc<Active>,
        muted: Muted,
    ) -> Result<(), End> {
        let Some(active) = &self.admit(inbox, script.name.as_bytes(), active, muted).await? else {
            return Ok(());
        };
        let facts = &script.script;
        let cannot = match &active.computed_names {
            ComputedNames::Forward => {
                self.run_unjudged(&script, active, muted);
                return Ok(());
            }
            ComputedNames::Deny { .. } => "this script computes names of keys, which may be those of locks".to_owned(),
            ComputedNames::Watch(_) if facts.calls_others => {
                "this script names another one, around the guard that it needs".to_owned()
            }
            ComputedNames::Watch(_) if facts.text.len() > MAX_WRAPPED_BYTES => {
                "this script computes names of keys, and is too long to be guarded".to_owned()
            }
            // Refused before it writes anything: every name that it computes is a lock.
            ComputedNames::Watch(_) if script.is_certain => writes_locks(facts),
            ComputedNames::Watch(guard) => {
                let guard = guard.clone();
                return self.guarded(inbox, *script, guard, active, muted).await;
            }
        };
        self.refuse_or_foresee(&script, &cannot, active, muted);
        Ok(())
    }

    /// Forwards the script if nothing is refused, or if the operator lets such scripts run. Returns whether it did.
    fn run_unjudged(&mut self, script: &ComputedScript, active: &Active, muted: Muted) -> bool {
        let mode = active.rules(script.target.namespace).mode;
        let Some(pass) = script.forward(mode, &active.computed_names) else {
            return false;
        };
        let call = (&script.target, script.name);
        self.forward_call(pass, call, UnjudgedWhy::ComputedNames, active, muted);
        true
    }

    /// Refuses the script if its namespace enforces. Otherwise reports that it would be refused, and forwards it
    /// unchanged.
    fn refuse_or_foresee(&mut self, script: &ComputedScript, why: &str, active: &Active, muted: Muted) {
        let mode = active.rules(script.target.namespace).mode;
        match script.forward(mode, &active.computed_names) {
            Some(pass) => {
                let call = (&script.target, script.name);
                self.foresee(call, Operation::Write, why.to_owned(), active);
                self.forward(CommandClass::Policy, pass, muted);
            }
            None => self.refuse(&refused(script, why), None, active, muted),
        }
    }

    /// Counts and reports what enforce mode would have refused of a script or function that computes names.
    pub(crate) fn foresee(
        &mut self,
        (target, name): (&Target, &'static str),
        operation: Operation,
        why: String,
        active: &Active,
    ) {
        let would = settle::computes_names(why);
        let id = self.client.would_refuse(target, name, (operation, ModeLabel::Monitor), &would, active);
        let told = (id, &would);
        let took = Took::default();
        self.client.tell_forwarded(target, name, operation, told, took, active);
    }

    /// Runs it behind the guard.
    async fn guarded(
        &mut self,
        inbox: &mut RequestBuffer,
        script: ComputedScript,
        guard: Arc<Guard>,
        active: &Arc<Active>,
        muted: Muted,
    ) -> Result<(), End> {
        // In monitor mode the client must not notice the guard.
        let is_watched = active.rules(script.target.namespace).mode == Mode::Monitor;
        let connection = &self.client.connection;
        if is_watched
            && (script.script.minds_guard
                || connection.block.is_some()
                || connection.may_not_run_guards(Instant::now()))
        {
            self.run_unjudged(&script, active, muted);
            return Ok(());
        }
        if !script.script.compiles() {
            match self.examine_anyhow(inbox, &script.script).await? {
                Examined::Sound => {}
                examined if is_watched => {
                    // A user who may not run the proxy's scripts is not tried at each call.
                    if let Examined::TurnedAway(_) = examined {
                        self.client.connection.cannot_run_guards();
                    }
                    self.run_unjudged(&script, active, muted);
                    return Ok(());
                }
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
            namespace: active.namespace(script.target.namespace).name.clone(),
            needs: Needs::of_opaque(script.name),
        }));
        let script = Guarded { script, envelope: Envelope { judged: false, guard: Some(guard), adopts: false } };
        if let Some(block) = &mut self.client.connection.block {
            let place = Place::Guarded(Box::new(script), active.clone());
            block.hold(place);
            self.transport.execute_queued(&step, look, muted);
            return Ok(());
        }
        let mut answer = self.execute(inbox, &step).await?;
        if answer.starts_with(b"-NOPERM") && script.script.name == "evalsha" {
            // Its user may run scripts that Redis knows, so the proxy makes this one known to Redis.
            let text = script.envelope.around(&script.script.script.text);
            if self.client.make_known(&text).await {
                self.transport.execute(&step, Form::Sha, Look::Answer, Muted::Yes);
                answer = self.answer(inbox).await?;
            }
        }
        // Nothing was run.
        if is_watched && (answer.starts_with(b"-NOPERM") || answer.starts_with(TOO_MANY_LOCALS)) {
            if answer.starts_with(b"-NOPERM") {
                self.client.connection.cannot_run_guards();
            }
            self.run_unjudged(&script.script, active, muted);
            return Ok(());
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
        if answer.starts_with(TOO_MANY_LOCALS) {
            // The script's own text compiled before, but Lua has limits for a function.
            let why = "this script computes names of keys, and has too many local variables to be guarded";
            let line = self.refused(&refused(script, why), None, active);
            return Ok(error_frame(&line).freeze());
        }
        if answer.starts_with(b"-") {
            self.client.count(CommandClass::Policy, CommandResult::Error);
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
                (self.client.raised(facts, &text, &at).freeze(), CommandResult::Error)
            }
            outcome::Guarded::Refused(barred, left) => {
                let line = self.barred_line(
                    (script.opaque().into(), Some(&facts.sha)),
                    (&barred, left),
                    &script.target,
                    active,
                );
                return Ok(error_frame(&line).freeze());
            }
        };
        self.client.count(CommandClass::Policy, result);
        Ok(reply)
    }

    /// A refusal of the guard that the script caught: it is reported nevertheless.
    fn caught(&mut self, script: &ComputedScript, barred: Option<Barred>, active: &Active) {
        if let Some(barred) = barred {
            let call = (script.opaque().into(), Some(&script.script.sha));
            self.caught_by_guard(call, &barred, &script.target, active);
        }
    }

    /// The same for any script: it continued after the refusal.
    pub(crate) fn caught_by_guard(
        &mut self,
        (command, sha): (Command, Option<&ScriptSha>),
        barred: &Barred,
        otherwise: &Target,
        active: &Active,
    ) {
        if !barred.is_noted {
            self.barred_line((command, sha), (barred, PUT_BACK), otherwise, active);
            return;
        }
        let (target, why) = told_of(sha, barred, otherwise, active);
        let call = (&target, command.name());
        self.foresee(call, command.operation(proxy_time()), why, active);
        self.mark_noted(&target, active);
    }

    /// Counts and logs what the guard refused; returns the error line. `otherwise` is the lock that is named if the
    /// command names none.
    pub(crate) fn barred_line(
        &mut self,
        (command, sha): (Command, Option<&ScriptSha>),
        (barred, left): (&Barred, Left),
        otherwise: &Target,
        active: &Active,
    ) -> String {
        let (target, mut why) = told_of(sha, barred, otherwise, active);
        let stands = left.stands || left.lost > 0;
        if stands {
            why.push_str("; what the script had done before stands");
            let metrics = &active.namespace(target.namespace).metrics;
            metrics.script_effects_left.inc();
        }
        let refused = Refused::computes_names(command, target, why);
        self.refused(&refused, None, active)
    }

    /// `EVALSHA` of a text that this proxy has not seen, without a lock among its keys: the script may compute the
    /// name of one. Redis is asked for a script that does not exist, so that the error is in Redis's own words; every
    /// client answers that error by sending the text. Inside a block such an error does not work, so the call is
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
        if computed.refuses() && self.client.connection.block.is_some() && !self.client.is_absent(script.sha()).await {
            let line = "LOCKDENIED unsafe-script cmd=EVALSHA policy=scripts hint=\"lockwarden has not seen \
                        this script, and it may name locks; load it with SCRIPT LOAD before the block\"";
            self.policy_error(line, muted);
            return Ok(());
        }
        let kept = script.forward(computed);
        self.forward(CommandClass::PassThrough, kept.pass(), muted);
        Ok(())
    }

    /// Whether a text is a chunk of its own. If the user may not ask that, the proxy asks over its own connection.
    async fn examine_anyhow(&mut self, inbox: &mut RequestBuffer, script: &ScriptFacts) -> Result<Examined, End> {
        match self.examine(inbox, script).await? {
            Examined::TurnedAway(_) if self.client.connection.block.is_none() => {
                self.client.examine_aside(script).await
            }
            examined => Ok(examined),
        }
    }
}

impl Client {
    /// Makes a text known to the server, over a connection of the proxy's own. Returns whether the server has it now.
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

/// What the guard barred, in words, and the lock that it is about.
fn told_of(sha: Option<&ScriptSha>, barred: &Barred, otherwise: &Target, active: &Active) -> (Target, String) {
    let name = String::from_utf8_lossy(&barred.command).to_ascii_uppercase();
    let lock_of = |key: &[u8]| {
        let own = lock_behind(key).and_then(|lock| active.namespaces.find(lock));
        active.namespaces.find(key).or(own)
    };
    let target = Target { namespace: lock_of(&barred.key).unwrap_or(otherwise.namespace), key: barred.key.clone() };
    let why = match barred.key.is_empty() {
        true => format!("a script that computes names of keys may not call {name}"),
        false => {
            let trust = may_trust(sha);
            format!("{name} of a lock that this script does not declare; hand it over in KEYS{trust}")
        }
    };
    (target, why)
}

/// A script's changes do not remain if it did not go on.
pub(crate) const PUT_BACK: Left = Left { stands: false, lost: 0 };

/// The reason for refusing a script all of whose computed names are locks.
fn writes_locks(script: &ScriptFacts) -> String {
    let trust = may_trust(Some(&script.sha));
    format!("this script writes locks that it does not declare; hand them over in KEYS{trust}")
}

/// What an operator can do about a script that touches locks that it does not declare.
fn may_trust(sha: Option<&ScriptSha>) -> String {
    sha.map(job_scripts::may_be_trusted).unwrap_or_default()
}

/// How Redis's error begins for a text that compiled before but does not compile behind the guard.
const TOO_MANY_LOCALS: &[u8] = b"-ERR Error compiling script";

fn refused(script: &ComputedScript, why: &str) -> Refused {
    Refused::computes_names(script.opaque().into(), script.target.clone(), why.to_owned())
}
