//! Turns the answer of a step into what is remembered and into the reply to the client.

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};
use lockwarden_control::clock::Moment;
use lockwarden_control::ruleset::Active;
use lockwarden_control::telemetry::vocabulary::{CommandClass, CommandResult};
use lockwarden_lock::op::LockOp;
use lockwarden_lock::outcome::{self, Answers, Left, NotAnAnswer, NothingRun};
use lockwarden_lock::plan::Needs;
use lockwarden_resp::{Elements, Value, put_value};

use crate::backend::server_info::is_of_replica;
use crate::session::commands::opaque_scripts::{own_no, under_its_own_name};
use crate::session::step::answers::SCRIPT_REPLY;
use crate::session::step::awaited::{Confirmation, InFlight};
use crate::session::transport::End;
use crate::session::{Session, error_frame};

impl Session {
    /// Remembers what follows from a step's answer, and words the reply.
    pub(crate) fn conclude(
        &mut self,
        flight: &mut InFlight,
        answer: &Bytes,
        answers: &Answers,
        active: &Active,
        now: Moment,
    ) -> Result<Concluded, End> {
        self.client.learn_of_check(flight, answers, active, now.at);
        let permitted = &flight.permitted;
        let op = &permitted.command().op;
        // Before Redis 7 a script's error begins with other words than the error that it contains.
        if let Answers::Error(text) = answers
            && is_of_replica(text)
        {
            self.client.suspect_replica();
        }
        if let Some(proof) = answers.nothing_run() {
            let namespace = &active.namespace(op.target().namespace).name;
            let needs = Needs::of(permitted.command());
            let user = self.client.connection.user().clone();
            self.client.learn_of_lack(&user, namespace, needs, &proof, active);
            // In monitor mode the client must not notice that there was a script.
            if !permitted.enforces() {
                return Ok(Concluded::NothingRun(proof));
            }
            self.client.count(CommandClass::Policy, CommandResult::Error);
            let error = self.client.rights_error(&proof, permitted.command(), active);
            return Ok(Concluded::Reply(error));
        }
        if let Some(barred) = answers.barred().filter(|barred| !barred.ended) {
            let command = Box::new(permitted.command().clone());
            self.caught_by_guard(
                (command.into(), op.script().map(|(script, _)| &script.sha)),
                barred,
                op.target(),
                active,
            );
        }
        let at = (self.transport.spoken_after(), now);
        let (told, replied) = flight.as_confirmed(answers);
        let accounted = self.client.account(flight, &told, active, at);
        let name = permitted.command().name;
        if let Some(line) = self.client.told_of_data(op, name, answers, active) {
            accounted.map_err(not_its_answer)?;
            self.client.count(CommandClass::Policy, CommandResult::Denied);
            return Ok(Concluded::error(&line));
        }
        let answered = accounted
            .and_then(|()| outcome::answer(op, &replied, permitted.locks(), permitted.enforces()))
            .map_err(not_its_answer)?;
        let mut reply = BytesMut::new();
        match answered {
            outcome::Answered::AsReturned => {
                self.client.count(CommandClass::Policy, CommandResult::Ok);
                let place = Elements::of(answer).and_then(|mut all| all.nth(SCRIPT_REPLY));
                match place {
                    Some(place) => reply.extend_from_slice(&answer[place]),
                    None => put_value(&mut reply, &Value::Null, self.client.connection.protocol),
                }
            }
            outcome::Answered::Raised(text, at) => {
                self.client.count(CommandClass::Policy, CommandResult::Error);
                if let LockOp::Wrapped { script, .. } = op {
                    reply = self.client.raised(script, &text, &at);
                }
            }
            outcome::Answered::Barred(barred) => {
                let command = Box::new(permitted.command().clone());
                let left = Left { stands: answers.others_stand(), lost: 0 };
                let line = self.barred_line(
                    (command.into(), op.script().map(|(script, _)| &script.sha)),
                    (&barred, left),
                    op.target(),
                    active,
                );
                return Ok(Concluded::error(&line));
            }
            outcome::Answered::Unconfirmed(what) => {
                self.client.count(CommandClass::Policy, CommandResult::Error);
                let is_script = matches!(op, LockOp::Wrapped { .. });
                let line = permitted.durability().map(|wanted| outcome::unconfirmed_line(what, wanted, is_script));
                return Ok(Concluded::error(&line.unwrap_or_default()));
            }
            outcome::Answered::Reply(value) => {
                let value = under_its_own_name(value, op);
                let failed = matches!(value, Value::Error(_));
                let result = if failed { CommandResult::Error } else { CommandResult::Ok };
                self.client.count(CommandClass::Policy, result);
                put_value(&mut reply, &value, self.client.connection.protocol);
            }
            outcome::Answered::Refusal(at, refused) => {
                self.client.count(CommandClass::Policy, CommandResult::Denied);
                // A native negative reply would hide that what the script did to other keys stands.
                let others_stand = answers.others_stand();
                if !others_stand && let Some(value) = own_no(flight.permitted.command(), flight, &refused) {
                    put_value(&mut reply, &value, self.client.connection.protocol);
                    return Ok(Concluded::Reply(reply));
                }
                let line = self.client.refusal_of_step(flight, (at, &refused), others_stand, active);
                return Ok(Concluded::error(&line));
            }
        }
        Ok(Concluded::Reply(reply))
    }
}

fn not_its_answer(_: NotAnAnswer) -> End {
    End::OutOfStep("a script's answer does not fit its command".into())
}

impl InFlight {
    /// What the step's answer counts as if too few replicas confirmed it: for what is remembered, and for the reply.
    fn as_confirmed<'a>(&self, answers: &'a Answers) -> (Cow<'a, Answers>, Cow<'a, Answers>) {
        match &self.confirmation {
            Some(Confirmation::TooFew { gave_back, .. }) => {
                let told = answers.clone().without_grants(gave_back);
                let replied = told.clone().without_extensions();
                (Cow::Owned(told), Cow::Owned(replied))
            }
            Some(Confirmation::Enough) | None => (Cow::Borrowed(answers), Cow::Borrowed(answers)),
        }
    }
}

/// The result of a step.
pub(crate) enum Concluded {
    /// The reply, encoded.
    Reply(BytesMut),
    /// The step has run nothing, and refusals are not carried out: the client's own command may be sent.
    NothingRun(NothingRun),
}

impl Concluded {
    fn error(line: &str) -> Concluded {
        Concluded::Reply(error_frame(line))
    }
}
