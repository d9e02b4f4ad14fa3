//! Whether Redis accepts a command from this client now, and the errors that are given once it does.

use std::sync::Arc;

use bytes::BytesMut;
use lockwarden_control::random::refusal_id;
use lockwarden_control::ruleset::Active;
use lockwarden_control::telemetry::vocabulary::{CommandClass, CommandResult};
use lockwarden_control::text::unknown_command::{unknown_command, unknown_subcommand};
use lockwarden_lock::op::Command;
use lockwarden_lock::outcome::limit_line;
use lockwarden_lock::own_request::OwnRequest;
use lockwarden_lock::table::{Lookup, lookup};
use lockwarden_resp::put_error;

use crate::session::Session;
use crate::session::step::awaited::Look;
use crate::session::transport::request_buffer::RequestBuffer;
use crate::session::transport::{End, Muted};

impl Session {
    /// For states in which Redis accepts hardly any command: before a login, while subscribed under RESP2, while
    /// monitoring. There Redis is asked with a short command that none of these states allows, and its reply is the
    /// client's reply; so no command is judged that Redis would not look at.
    pub(crate) async fn barred(&mut self, inbox: &mut RequestBuffer, name: &[u8]) -> Result<Option<BytesMut>, End> {
        self.settled(inbox).await?;
        if self.client.connection.block.is_some()
            || !(self.client.may_lack_login() || self.transport.pushes.takes_no_commands())
        {
            return Ok(None);
        }
        self.transport.inquire(&OwnRequest::Knock, Look::Answer);
        let answer = self.answer(inbox).await?;
        if answer.starts_with(b"-NOAUTH") || answer.starts_with(b"-ERR Replica can't") {
            return Ok(Some(BytesMut::from(&answer[..])));
        }
        if let Some(rest) = answer.strip_prefix(b"-ERR Can't execute 'exists'") {
            let name = name.to_ascii_lowercase();
            let text = [b"-ERR Can't execute '", &name[..], b"'", rest].concat();
            return Ok(Some(BytesMut::from(&text[..])));
        }
        self.client.connection.login.is_not_needed();
        Ok(None)
    }

    /// Waits until a command can be judged. Returns the configuration as this client sees it then; `None` if Redis
    /// accepts no such command from it now, which the client was told.
    pub async fn admit(
        &mut self,
        inbox: &mut RequestBuffer,
        name: &[u8],
        active: &Arc<Active>,
        muted: Muted,
    ) -> Result<Option<Arc<Active>>, End> {
        if let Some(error) = self.barred(inbox, name).await? {
            self.reply(&error, muted);
            return Ok(None);
        }
        Ok(Some(self.client.seen(active.clone())))
    }

    /// Gives an error that Redis would give, unless Redis accepts no such command now: then Redis's own reply is
    /// given.
    pub(crate) async fn tell_error(
        &mut self,
        inbox: &mut RequestBuffer,
        text: String,
        muted: Muted,
    ) -> Result<(), End> {
        if self.may_err(inbox, muted).await? {
            self.redis_error(text, muted);
        }
        Ok(())
    }

    /// Whether an error of the proxy's may be given. Otherwise Redis's own reply was given.
    async fn may_err(&mut self, inbox: &mut RequestBuffer, muted: Muted) -> Result<bool, End> {
        self.client.count(CommandClass::Admin, CommandResult::Error);
        let name = inbox.request().name().to_owned();
        let barred = self.barred(inbox, &name).await?;
        if let Some(error) = &barred {
            self.reply(error, muted);
        }
        Ok(barred.is_none())
    }

    /// Gives the server's reply to a command that it does not know. Inside a block that spoils the block.
    pub(crate) async fn tell_unknown(&mut self, inbox: &mut RequestBuffer, muted: Muted) -> Result<(), End> {
        if !self.may_err(inbox, muted).await? {
            return Ok(());
        }
        let is_modern = self.client.shared.backend.server.reads_script_flags();
        let request = inbox.request();
        let text = match lookup(&request) {
            Lookup::UnknownSubcommand => unknown_subcommand(request, is_modern),
            Lookup::Known(_) | Lookup::Unknown => unknown_command(request, is_modern),
        };
        // The reply to the block later is the server's own, too.
        if let Some(block) = &mut self.client.connection.block {
            block.spoil("");
        }
        let mut frame = BytesMut::new();
        put_error(&mut frame, text);
        self.answer_locally(frame, muted);
        Ok(())
    }

    /// An error of the proxy's own.
    pub(crate) fn proxy_error(&mut self, text: &str, muted: Muted) {
        self.counted_error(CommandResult::ProxyError, text, muted);
    }

    /// An error about a lock command, in Redis's words.
    pub(crate) fn policy_error(&mut self, text: &str, muted: Muted) {
        self.counted_error(CommandResult::Error, text, muted);
    }

    fn counted_error(&mut self, result: CommandResult, text: &str, muted: Muted) {
        self.client.count(CommandClass::Policy, result);
        self.error(text, muted);
    }

    /// Replies that the proxy cannot do this.
    pub fn limit(&mut self, limit: &str, command: &Command, muted: Muted) {
        let (target, name) = (command.target(), command.name());
        let line = limit_line(limit, &target.key, name, &refusal_id());
        self.proxy_error(&line, muted);
    }
}
