//! Commands on locks that are not judged: Redis accepts none from this client now, it has no scripts or the user no
//! rights for them, or the effect of the command cannot be known. In enforce mode the client is told; in monitor mode
//! Redis gets the command unchanged.

use std::sync::Arc;

use bytes::Bytes;
use lockwarden_control::clock::{Moment, proxy_time};
use lockwarden_control::ruleset::Active;
use lockwarden_control::telemetry::events::Took;
use lockwarden_control::telemetry::vocabulary::{CommandClass, CommandResult, ModeLabel, UnjudgedWhy};
use lockwarden_lock::classify::TooLong;
use lockwarden_lock::decision::Denial;
use lockwarden_lock::op::{Command, OpaqueCommand, Target};
use lockwarden_lock::outcome::{NothingRun, Why};
use lockwarden_lock::pass_through::PassThrough;
use lockwarden_lock::plan::Needs;
use lockwarden_lock::rules::Mode;
use lockwarden_lock::settle::{self, Forwarded};
use lockwarden_lock::time::ProxyTime;

use crate::backend::rights::Known;
use crate::session::Session;
use crate::session::client::Client;
use crate::session::judge::looked::Looked;
use crate::session::step::awaited::Look;
use crate::session::transport::request_buffer::RequestBuffer;
use crate::session::transport::{End, Muted};

/// The error for a command that was under way when another mode came into force.
pub(crate) const SWITCHED: &str = "ERR the mode of this lock's namespace was switched meanwhile; try again";

impl Session {
    /// `EVALSHA` of a text that this proxy has not seen. Outside a block every client answers NOSCRIPT by sending the
    /// text; inside one it cannot.
    pub(crate) async fn unknown_script(
        &mut self,
        inbox: &mut RequestBuffer,
        command: Box<OpaqueCommand>,
        active: &Arc<Active>,
        muted: Muted,
    ) -> Result<(), End> {
        let Some(active) = &self.admit(inbox, command.name.as_bytes(), active, muted).await? else {
            return Ok(());
        };
        let in_block = self.client.connection.block.is_some();
        if is_only_watched(&command.target, active) {
            let command = Command::from(command);
            return self.forward_unknown(command, UnjudgedWhy::UnknownScript, active, muted);
        }
        if in_block {
            return self.govern(inbox, command.into(), active, muted).await;
        }
        self.policy_error("NOSCRIPT No matching script. Please use EVAL.", muted);
        Ok(())
    }

    /// In monitor mode: a command or script of which only Redis knows whether it has it. If it has not, nothing is
    /// run, and the client tries another way. So outside a block it is counted only when the reply is there.
    pub(crate) fn forward_unknown(
        &mut self,
        command: Command,
        why: UnjudgedWhy,
        active: &Arc<Active>,
        muted: Muted,
    ) -> Result<(), End> {
        if self.client.connection.block.is_some() {
            return self.forward_unjudged(command, why, active, muted);
        }
        self.client.count(CommandClass::Policy, CommandResult::Ok);
        let rules = active.rules(command.target().namespace);
        let Some(pass) = settle::forward_unjudged(&command, rules) else {
            self.error(SWITCHED, muted);
            return Ok(());
        };
        self.mark_unwitnessed(&pass, active);
        let look = Look::Unknown(Box::new((command.clone(), why, active.clone())));
        self.transport.forward_and_look(pass, look, muted);
        Ok(())
    }

    /// The reply to a command or script that was not known here.
    pub(crate) fn answered_unknown(
        &mut self,
        (command, why, active): (&Command, UnjudgedWhy, &Active),
        frame: &Bytes,
        muted: Muted,
    ) {
        // A script may have written before it failed.
        let was_run = match why {
            UnjudgedWhy::UnknownScript => !frame.starts_with(b"-NOSCRIPT"),
            _ => !frame.starts_with(b"-"),
        };
        if was_run {
            self.client.tell_unjudged(command, why, active);
        }
        if muted == Muted::No {
            self.transport.reply(frame);
        }
    }

    pub(crate) async fn too_long(
        &mut self,
        inbox: &mut RequestBuffer,
        command: Command,
        what: TooLong,
        active: &Arc<Active>,
        muted: Muted,
    ) -> Result<(), End> {
        let Some(active) = &self.admit(inbox, command.name().as_bytes(), active, muted).await? else {
            return Ok(());
        };
        if is_only_watched(command.target(), active) {
            // Its value is gone: when its length was announced, the command was to be refused.
            if inbox.is_cut() {
                self.proxy_error(SWITCHED, muted);
                return Ok(());
            }
            return self.forward_unjudged(command, UnjudgedWhy::TooLong, active, muted);
        }
        let limit = match what {
            TooLong::Key => "a lock key has at most 1024 bytes",
            TooLong::Value => "the value of a lock has at most 16384 bytes",
        };
        self.limit(limit, &command, muted);
        Ok(())
    }

    /// A call that may reach a lock and is forwarded unjudged.
    pub(crate) fn forward_call(
        &mut self,
        pass: PassThrough<'_>,
        (target, name): (&Target, &'static str),
        why: UnjudgedWhy,
        active: &Active,
        muted: Muted,
    ) {
        match why {
            // The target stands for any lock that the computed names may be, and is no lock of a namespace.
            UnjudgedWhy::ComputedNames => self.client.count_computed(target, name, active),
            _ => self.client.count_unjudged(target, name, None, why, active),
        }
        self.mark_unwitnessed(&pass, active);
        self.forward(CommandClass::Policy, pass, muted);
    }

    /// A script all of whose locks are in namespaces that forward it unjudged.
    pub(crate) fn forward_script_unjudged(&mut self, forwarded: &Forwarded, active: &Active, muted: Muted) {
        let command = forwarded.command();
        if self.data_goes_unjudged(command, active, muted) {
            return;
        }
        let (operation, why) = (command.operation(proxy_time()), UnjudgedWhy::ForwardedScript);
        for target in command.targets() {
            self.client.count_unjudged(target, command.name(), Some(operation), why, active);
        }
        self.mark_unwitnessed(&forwarded.pass(), active);
        self.forward(CommandClass::Policy, forwarded.pass(), muted);
    }

    /// A command that enforce mode would refuse, in monitor mode.
    pub(crate) fn forward_watched(
        &mut self,
        forwarded: &Forwarded,
        would: &Denial,
        (begun, took): (Moment, Took),
        active: &Active,
        muted: Muted,
    ) {
        let command = forwarded.command();
        if self.data_goes_unjudged(command, active, muted) {
            return;
        }
        let (target, name) = (command.target(), command.name());
        let operation = command.operation(ProxyTime(begun.unix_ms));
        let id = self.client.would_refuse(target, name, (operation, ModeLabel::Monitor), would, active);
        let told = (id, would);
        self.client.tell_forwarded(target, name, operation, told, took, active);
        self.mark_unwitnessed(&forwarded.pass(), active);
        self.forward(CommandClass::Policy, forwarded.pass(), muted);
    }

    /// In monitor mode, a command that cannot be judged is left to Redis alone.
    pub(crate) fn forward_unjudged(
        &mut self,
        command: Command,
        why: UnjudgedWhy,
        active: &Active,
        muted: Muted,
    ) -> Result<(), End> {
        if self.data_goes_unjudged(&command, active, muted) {
            return Ok(());
        }
        self.client.tell_unjudged(&command, why, active);
        self.client.count(CommandClass::Policy, CommandResult::Ok);
        let rules = active.rules(command.target().namespace);
        let Some(pass) = settle::forward_unjudged(&command, rules) else {
            self.error(SWITCHED, muted);
            return Ok(());
        };
        // A user who may not run the proxy's scripts may not mark anything either.
        if !matches!(why, UnjudgedWhy::NoRights | UnjudgedWhy::NoScripts) {
            self.mark_unwitnessed(&pass, active);
        }
        self.transport.forward(pass, muted);
        self.client.queued();
        Ok(())
    }

    /// A step was not sent, or has run nothing, because Redis refuses the proxy's scripts for this user.
    pub(crate) fn turned_away(
        &mut self,
        command: Command,
        proof: &NothingRun,
        active: &Active,
        muted: Muted,
    ) -> Result<(), End> {
        let namespace = &active.namespace(command.target().namespace).name;
        let needs = Needs::of_any(&command);
        let user = self.client.connection.user().clone();
        self.client.learn_of_lack(&user, namespace, needs, proof, active);
        if is_only_watched(command.target(), active) {
            return self.forward_unjudged(command, unjudged_for(proof), active, muted);
        }
        let line = self.client.rights_line(proof.why(), command.name(), needs, active);
        self.policy_error(&line, muted);
        Ok(())
    }

    /// What is done with a command before its step is sent, if the rights are not known to suffice for that; `None`
    /// if the step is sent nevertheless.
    pub(crate) fn lacks_already(
        &mut self,
        command: &Command,
        known: &Known,
        active: &Active,
        muted: Muted,
    ) -> Option<Looked> {
        let watched = is_only_watched(command.target(), active);
        match known {
            Known::Lacking(_) if watched => Some(Looked::Forward(UnjudgedWhy::NoRights)),
            // The rest of the block would be carried out without it.
            Known::Lacking(missing) if self.client.connection.block.is_some() => {
                let why = Why::NoRights(missing.as_ref().clone());
                let needs = Needs::of_any(command);
                let line = self.client.rights_line(&why, command.name(), needs, active);
                self.policy_error(&line, muted);
                Some(Looked::Told)
            }
            known if watched && self.client.wonders_in_block(command, known, active) => {
                Some(Looked::Forward(UnjudgedWhy::NoRights))
            }
            Known::Good | Known::Stale | Known::Nothing | Known::Lacking(_) => None,
        }
    }
}

impl Client {
    /// In monitor mode: the reason why only the server can handle a command, if there is one.
    pub(crate) fn is_servers_affair(&self, command: &Command, active: &Active) -> Option<UnjudgedWhy> {
        // This comes first, so that enforce mode pays for nothing else.
        if !is_only_watched(command.target(), active) {
            return None;
        }
        let server = &self.shared.backend.server;
        if server.lacks_scripts() {
            Some(UnjudgedWhy::NoScripts)
        } else if command.may_be_unknown_to(|| server.commands()) {
            Some(UnjudgedWhy::UnknownCommand)
        } else {
            None
        }
    }
}

/// The label of a command that is forwarded because its step has run nothing.
pub(crate) fn unjudged_for(proof: &NothingRun) -> UnjudgedWhy {
    match proof.why() {
        Why::NoRights(_) => UnjudgedWhy::NoRights,
        Why::NoScripts => UnjudgedWhy::NoScripts,
    }
}

/// Whether nothing is refused in the namespace of a command.
pub(crate) fn is_only_watched(target: &Target, active: &Active) -> bool {
    active.rules(target.namespace).mode == Mode::Monitor
}
