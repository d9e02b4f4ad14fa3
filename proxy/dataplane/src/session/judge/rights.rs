//! Whether a user's rights suffice for a step: what is known of them, what is learnt from a reply, and the line that
//! says what is missing. What is remembered is kept in `crate::backend::rights`.

use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use lockwarden_control::ruleset::Active;
use lockwarden_lock::op::{Command, LockCommand};
use lockwarden_lock::outcome::{Answers, Missing, NothingRun, Why};
use lockwarden_lock::plan::{Form, Guard, Needs};
use lockwarden_lock::rules::Mode;
use lockwarden_lock::script_facts::ScriptSha;

use crate::backend::rights::Known;
use crate::backend::server_info::Scripts;
use crate::session::client::Client;
use crate::session::client::block::Place;
use crate::session::commands::administration::flush_rights_line;
use crate::session::step::awaited::{InFlight, Look, Queued, QueuedStep, RightsQuestion};
use crate::session::transport::Muted;
use crate::session::{Session, error_frame};

/// The most steps that one session remembers of its user.
const MAX_REMEMBERED: usize = 16;

impl Session {
    /// Asks, after a block, for rights that were not known in it. No request of the client waits for the answers:
    /// they come after an EXEC that writes, which has to wait for whatever writes wait for.
    pub(crate) fn ask_for_rights(&mut self, questions: Vec<RightsQuestion>) {
        let prefix = self.client.active().companion_prefix.clone();
        let flags = self.client.shared.backend.server.reads_script_flags();
        for question in questions {
            let step = question.needs.question(&question.key, &prefix);
            let look = Look::Rights(Box::new(question));
            self.transport.execute(&step.flagged(flags), Form::Text, look, Muted::Yes);
        }
    }

    /// Redis's reply to what was queued in place of the client's command. The client gets one reply.
    pub(crate) fn learn_of_queued(&mut self, step: &QueuedStep, frame: &Bytes, muted: Muted) {
        let refused = frame.starts_with(b"-");
        let reply = match step.what {
            Queued::Guard if refused => {
                self.client.connection.guard_refused = true;
                self.client.refused_when_queued(step, frame)
            }
            Queued::Guard => return,
            // The client sent one command and has its reply.
            Queued::Step if std::mem::take(&mut self.client.connection.guard_refused) => return,
            Queued::Step if refused => self.client.refused_when_queued(step, frame),
            Queued::Step => BytesMut::from(&frame[..]),
        };
        self.reply(&reply, muted);
    }

    /// Queues a guard, which takes a place in the block that the client does not know of.
    pub(crate) fn queue_guard(&mut self, command: &LockCommand, active: &Active, muted: Muted) {
        let script = self.client.script_text(command);
        let Some(guard) = Guard::of(command, script.as_deref()) else {
            return;
        };
        let Some(block) = &mut self.client.connection.block else {
            return;
        };
        block.hold(Place::Guard);
        let look = QueuedStep::look(Queued::Guard, command, active);
        let key = &command.op.target().key;
        self.transport.guard(guard, key, &active.companion_prefix, look, muted);
    }
}

impl Client {
    /// What is known of this user's rights for a step.
    pub(crate) fn rights(&mut self, namespace: &Arc<str>, needs: Needs, now: Instant) -> Known {
        // The session's own list first: the register of all users costs a hash and a lock.
        let remembered = &mut self.connection.rights.sufficient;
        let is_it = |known: &(Arc<str>, Needs, Instant)| Arc::ptr_eq(&known.0, namespace) && known.1 == needs;
        if let Some(at) = remembered.iter().position(is_it) {
            if now < remembered[at].2 {
                return Known::Good;
            }
            remembered.swap_remove(at);
        }
        let rights = &self.shared.rights;
        let (known, until) = rights.known(self.connection.user(), namespace, needs, now);
        if known == Known::Good {
            let remembered = &mut self.connection.rights.sufficient;
            if remembered.len() >= MAX_REMEMBERED {
                remembered.clear();
            }
            remembered.push((namespace.clone(), needs, until));
        }
        known
    }

    /// A step that checked its rights first has found them sufficient, unless it was not run.
    pub(crate) fn learn_of_check(&mut self, flight: &mut InFlight, answers: &Answers, active: &Active, now: Instant) {
        let Some(needs) = flight.unchecked.take() else {
            return;
        };
        if matches!(answers, Answers::Error(_) | Answers::Lacking(_)) {
            return;
        }
        let target = flight.permitted.command().op.target();
        let namespace = &active.namespace(target.namespace).name;
        let rights = &self.shared.rights;
        rights.suffice(self.connection.user(), namespace, needs, now);
    }

    /// The line for a user whose step was not run: what is missing, and all the rights that the step takes.
    pub(crate) fn rights_line(&self, why: &Why, command: &str, needs: Needs, active: &Active) -> String {
        let command = command.to_ascii_uppercase();
        let prefix = &active.companion_prefix;
        let mut line = format!("NOPERM lockwarden runs {command} on a lock as a script: ");
        match why {
            Why::NoScripts => line.push_str("the server has no EVAL or no EVALSHA"),
            Why::NoRights(missing) => {
                let (absent, missing) = self.shared.backend.server.without_absent(missing.clone());
                for name in absent {
                    line.push_str(&format!("the server has no {}; ", name.to_ascii_uppercase()));
                }
                if !missing.is_empty() {
                    line.push_str(&format!("this user lacks {}; ", missing.rules(prefix)));
                }
                line.push_str("it needs +eval +evalsha");
                for command in needs.commands() {
                    line.push_str(" +");
                    line.push_str(command);
                }
                line.push_str(&format!(" and the keys ~{}* beside its locks", String::from_utf8_lossy(prefix)));
            }
        }
        line
    }

    /// The same as the reply to a command whose step has run nothing.
    pub(crate) fn rights_error(&self, proof: &NothingRun, command: &LockCommand, active: &Active) -> BytesMut {
        let needs = Needs::of(command);
        error_frame(&self.rights_line(proof.why(), command.name, needs, active))
    }

    /// A step was not run for lack of rights: remembers that, and logs it once.
    pub(crate) fn learn_of_lack(
        &mut self,
        user: &Bytes,
        namespace: &Arc<str>,
        needs: Needs,
        proof: &NothingRun,
        active: &Active,
    ) {
        let missing = match proof.why() {
            Why::NoRights(missing) => missing.clone(),
            Why::NoScripts => return self.shared.backend.server.set_scripts(Scripts::Unknown),
        };
        self.lacks(user, namespace, needs, missing, active);
    }

    fn lacks(&mut self, user: &Bytes, namespace: &Arc<str>, needs: Needs, missing: Missing, active: &Active) {
        self.connection.rights.sufficient.clear();
        let rights = &self.shared.rights;
        // The check finds what is missing the next time.
        if missing.is_empty() {
            return rights.forget(user);
        }
        let (absent, lacking) = self.shared.backend.server.without_absent(missing.clone());
        let told = lacking.rules(&active.companion_prefix);
        if !rights.lack(user, namespace, needs, missing, Instant::now()) {
            return;
        }
        let Some(details) = active.named(namespace) else {
            return;
        };
        let what = match details.rules.mode {
            Mode::Monitor => "its lock commands are forwarded unjudged",
            Mode::Enforce => "its lock commands are refused",
        };
        let why = match lacking.is_empty() {
            true => "the server lacks commands that steps take",
            false => "a user lacks rights",
        };
        tracing::warn!(
            user = %String::from_utf8_lossy(user),
            namespace = %details.name,
            step = needs.step(),
            lacks = (!lacking.is_empty()).then_some(told),
            absent = (!absent.is_empty()).then(|| absent.join(" ").to_ascii_uppercase()),
            "{why}: {what}"
        );
    }

    /// The answer to such a question.
    pub(crate) fn learn_of_rights(&mut self, asked: &RightsQuestion, answer: &Bytes) {
        let Ok(answers) = self.read_answers(answer) else {
            return;
        };
        let active = self.active();
        let namespace = &asked.namespace;
        match (answers.nothing_run(), answers) {
            (None, Answers::Lacking(_)) => {
                let rights = &self.shared.rights;
                rights.suffice(&asked.user, namespace, asked.needs, Instant::now());
            }
            (Some(proof), _) => {
                self.learn_of_lack(&asked.user, namespace, asked.needs, &proof, &active);
            }
            (None, _) => {}
        }
    }

    /// Redis's own words, unless they are about a command that the client did not send.
    fn refused_when_queued(&mut self, step: &QueuedStep, frame: &Bytes) -> BytesMut {
        let words = BytesMut::from(&frame[..]);
        if step.needs.step() == "flush" {
            let error = frame.slice_ref(frame[1..].trim_ascii_end());
            return flush_rights_line(&error, step.command).map_or(words, |line| error_frame(&line));
        }
        let proof = match self.read_answers(frame) {
            Ok(answers) => answers.nothing_run(),
            Err(_) => None,
        };
        let Some(proof) = proof else {
            return words;
        };
        let active = self.active();
        if let Why::NoRights(missing) = proof.why() {
            let user = self.connection.user().clone();
            self.lacks(&user, &step.namespace, step.needs, missing.clone(), &active);
        }
        let line = self.rights_line(proof.why(), step.command, step.needs, &active);
        error_frame(&line)
    }

    /// For a block in monitor mode: a step is queued only for a user who is known to have the rights that it takes,
    /// since a step that Redis refuses would spoil the block. Otherwise the client's own command is queued, and the
    /// rights are asked for afterwards.
    pub(crate) fn wonders_in_block(&mut self, command: &Command, known: &Known, active: &Active) -> bool {
        if *known == Known::Good {
            return false;
        }
        let user = self.connection.user().clone();
        let Some(block) = &mut self.connection.block else {
            return false;
        };
        block.wonder(RightsQuestion {
            user,
            namespace: active.namespace(command.target().namespace).name.clone(),
            key: command.target().key.clone(),
            needs: Needs::of_any(command),
        });
        *known == Known::Nothing
    }

    /// The text of the script that an application sent, or named.
    fn script_text(&self, command: &LockCommand) -> Option<Bytes> {
        let word = command.argv.get(1)?;
        match command.name {
            "eval" => Some(word.clone()),
            "evalsha" => {
                let facts = self.shared.script_cache.get(&ScriptSha::from_hex(word)?)?;
                Some(facts.text.clone())
            }
            _ => None,
        }
    }
}
