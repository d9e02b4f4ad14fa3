//! `LOCKWARDEN LOCKS`, `WHY`, `MODE`, `CLIENTS` and `HELP`: an operator's questions to the proxy itself. Whether the
//! client may ask is decided here; the reply comes from `crate::state::operator`.

use bytes::BytesMut;
use lockwarden_control::telemetry::vocabulary::{CommandClass, CommandResult};
use lockwarden_lock::operator_command::OperatorCommand;
use lockwarden_resp::put_value;

use crate::session::Session;
use crate::session::transport::request_buffer::RequestBuffer;
use crate::session::transport::{End, Muted};

impl Session {
    /// Answers only `admin_identities`; the list of possible questions is no secret.
    pub(crate) async fn ask_proxy(
        &mut self,
        inbox: &mut RequestBuffer,
        command: OperatorCommand,
        muted: Muted,
    ) -> Result<(), End> {
        if let Some(error) = self.barred(inbox, b"lockwarden").await? {
            self.reply(&error, muted);
            return Ok(());
        }
        let (active, word) = (self.client.active(), command.word());
        if !command.is_for_everybody() && !self.client.is_listed(&active) {
            self.client.count(CommandClass::Admin, CommandResult::Denied);
            let text =
                format!("NOPERM LOCKWARDEN {word} is for admin_identities only, and this client is none of them");
            self.error(&text, muted);
            return Ok(());
        }
        if self.client.connection.block.is_some() {
            let text = format!("ERR LOCKWARDEN {word} is not possible inside a transaction");
            self.error(&text, muted);
            return Ok(());
        }
        // Requests that were sent before get their replies first, however long this takes.
        self.all_answered(inbox).await?;
        let operator = &self.client.shared.operator;
        let answer = operator.ask(command, self.client.caller.clone()).await;
        let result = match answer.is_error() {
            true => CommandResult::Error,
            false => CommandResult::Ok,
        };
        self.client.count(CommandClass::Admin, result);
        let mut reply = BytesMut::new();
        put_value(&mut reply, &answer, self.client.connection.protocol);
        self.answer_locally(reply, muted);
        Ok(())
    }
}
