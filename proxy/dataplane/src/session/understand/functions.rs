//! `FCALL` without a lock among its keys: the effect of its function is known from the text of its library. If that
//! text computes names of keys, the call is refused in enforce mode.

use std::sync::Arc;
use std::time::Instant;

use lockwarden_control::ruleset::Active;
use lockwarden_control::telemetry::vocabulary::{CommandClass, UnjudgedWhy};
use lockwarden_lock::classify::{ComputedNames, FunctionCall};
use lockwarden_lock::decision::Operation;
use lockwarden_lock::own_request::OwnRequest;
use lockwarden_lock::settle::Refused;
use lockwarden_resp::parse_reply;

use crate::backend::functions::Listed;
use crate::session::Session;
use crate::session::client::block::Place;
use crate::session::client::connection_state::ConnectionState;
use crate::session::step::awaited::{Look, StateChange};
use crate::session::transport::request_buffer::RequestBuffer;
use crate::session::transport::{End, Muted};

/// The error for a function that the operator may list as trusted.
const COMPUTES: &str = "this function's library computes names of keys, which may be those of locks; \
                        trusted_functions may list it";

impl ConnectionState {
    /// Whether what is known of functions holds for the next command: no change of them is under way ahead of it.
    pub(crate) fn functions_stand(&self) -> bool {
        self.is_settled() && !self.changes_functions()
    }

    /// Whether the block that is being queued changes functions.
    fn changes_functions(&self) -> bool {
        let changes = |(_, place): &(usize, Place)| matches!(place, Place::Change(StateChange::Functions));
        let block = self.block.as_ref();
        block.is_some_and(|block| block.places.iter().any(changes))
    }
}

impl Session {
    /// A function is called that is not known. If locks are enforced, the server is asked; returns why that did not
    /// help.
    pub(crate) async fn learn_functions(&mut self, inbox: &mut RequestBuffer) -> Result<Option<String>, End> {
        let shared = self.client.shared.clone();
        if !self.client.active().computed_names.refuses() {
            shared.functions.learn_some_time(&shared.backend);
            return Ok(None);
        }
        // The server does not answer a client that has not logged in.
        if self.client.may_lack_login() || self.transport.pushes.takes_no_commands() {
            return Ok(None);
        }
        if self.client.connection.changes_functions() {
            return Ok(Some("functions are changed in the same block".to_owned()));
        }
        let Err(why) = shared.functions.learn(&shared.backend).await else {
            return Ok(None);
        };
        // A question on this connection would be queued, or would end a CLIENT CACHING.
        if self.client.connection.block.is_some() || self.client.connection.reads_are_noted() {
            return Ok(Some(why.to_string()));
        }
        let (changes, asked) = (shared.functions.changes(), Instant::now());
        self.transport.inquire(&OwnRequest::Functions, Look::Answer);
        let answer = self.answer(inbox).await?;
        let answer = parse_reply(&answer, self.client.connection.protocol)
            .map_err(|_| End::OutOfStep("a list of functions is no reply".to_owned()))?;
        let learnt = shared.functions.take_in(&answer, changes, asked, &shared.backend);
        Ok(match learnt {
            Ok(Listed::Current) => None,
            Ok(Listed::Outdated) | Err(_) => Some(why.to_string()),
        })
    }

    /// A function that may compute the name of a lock.
    pub(crate) async fn computed_function(
        &mut self,
        inbox: &mut RequestBuffer,
        call: FunctionCall,
        active: &Arc<Active>,
        muted: Muted,
    ) -> Result<(), End> {
        self.perhaps_a_lock(inbox, call, COMPUTES.to_owned(), active, muted).await
    }

    /// A function that is not known, and the reason for that. Without a reason, the server does not know it, or
    /// nothing is refused.
    pub(crate) async fn unknown_function(
        &mut self,
        inbox: &mut RequestBuffer,
        call: FunctionCall,
        why: Option<String>,
        active: &Arc<Active>,
        muted: Muted,
    ) -> Result<(), End> {
        if let Some(why) = why {
            let why = format!(
                "whether this function computes names of locks is not known ({why}); let lockwarden's user call \
                 FUNCTION LIST, or list it in trusted_functions"
            );
            return self.perhaps_a_lock(inbox, call, why, active, muted).await;
        }
        self.forward(CommandClass::PassThrough, call.forward_unlisted(), muted);
        Ok(())
    }

    /// Refuses a call, or lets it run unjudged.
    async fn perhaps_a_lock(
        &mut self,
        inbox: &mut RequestBuffer,
        call: FunctionCall,
        why: String,
        active: &Arc<Active>,
        muted: Muted,
    ) -> Result<(), End> {
        let Some(active) = &self.admit(inbox, call.command().name.as_bytes(), active, muted).await? else {
            return Ok(());
        };
        let (name, target) = (call.command().name, &call.command().target);
        let mode = active.rules(target.namespace).mode;
        let Some(pass) = call.forward(mode, &active.computed_names) else {
            let target = target.clone();
            let refused = Refused::computes_names(call.into_command().into(), target, why);
            self.refuse(&refused, None, active, muted);
            return Ok(());
        };
        let call = (target, name);
        if active.computed_names == ComputedNames::Forward {
            let why = UnjudgedWhy::ComputedNames;
            self.forward_call(pass, call, why, active, muted);
        } else {
            self.foresee(call, Operation::Write, why, active);
            self.forward(CommandClass::Policy, pass, muted);
        }
        Ok(())
    }
}
