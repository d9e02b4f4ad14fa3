//! Commands that compare the digest of a lock's value. The proxy's scripts cannot compute that digest.

use bytes::Bytes;
use lockwarden_control::ruleset::Active;
use lockwarden_control::telemetry::vocabulary::UnjudgedWhy;
use lockwarden_lock::op::{Command, LockCommand, Test};
use lockwarden_lock::own_request::OwnRequest;
use lockwarden_resp::parse_reply;

use crate::session::Session;
use crate::session::judge::unjudged::is_only_watched;
use crate::session::step::awaited::Look;
use crate::session::transport::request_buffer::RequestBuffer;
use crate::session::transport::{End, Muted};

impl Session {
    /// No script can compute the digest that Redis 8.4 compares. So the value is read here, and the step compares
    /// that very value again. Only for a command for which [`compares_digest`] is true.
    pub(crate) async fn compare_digest(
        &mut self,
        inbox: &mut RequestBuffer,
        command: &mut LockCommand,
    ) -> Result<Compared, End> {
        let test = command.op.comparison().map(|comparison| comparison.test);
        if self.client.connection.block.is_some() || !matches!(test, Some(Test::Digest(_))) {
            return Ok(Compared::Never);
        }
        self.transport.inquire(&OwnRequest::Value(&command.op.target().key), Look::Answer);
        let answer = self.answer(inbox).await?;
        let value = parse_reply(&answer, self.client.connection.protocol)
            .map_err(|_| End::OutOfStep("an answer to GET is no reply".to_owned()))?;
        match value.as_error() {
            // The step finds the other type again, and gives the command's own error for it.
            Some(error) if !error.starts_with(b"WRONGTYPE") => Ok(Compared::Unreadable(error.clone())),
            Some(_) | None => {
                command.op.resolve_digest(value.as_bytes());
                Ok(Compared::Judged)
            }
        }
    }

    pub(crate) fn digest_unjudged(&mut self, command: Command, active: &Active, muted: Muted) -> Result<(), End> {
        if is_only_watched(command.target(), active) {
            return self.forward_unjudged(command, UnjudgedWhy::Digest, active, muted);
        }
        let limit = "IFDNE, and IFDEQ inside MULTI, cannot be judged in one step; use IFEQ or IFNE";
        self.limit(limit, &command, muted);
        Ok(())
    }

    pub(crate) fn digest_unreadable(
        &mut self,
        command: Command,
        error: &Bytes,
        active: &Active,
        muted: Muted,
    ) -> Result<(), End> {
        if error.starts_with(b"NOPERM") && is_only_watched(command.target(), active) {
            return self.forward_unjudged(command, UnjudgedWhy::NoRights, active, muted);
        }
        self.policy_error(&String::from_utf8_lossy(error), muted);
        Ok(())
    }
}

/// Whether a command compares a digest.
pub(crate) fn compares_digest(command: &LockCommand) -> bool {
    match command.op.comparison().map(|comparison| comparison.test) {
        Some(Test::OtherDigest | Test::Digest(_)) => true,
        Some(Test::Equal | Test::Differs | Test::Failed) | None => false,
    }
}

/// The result of a condition on a digest.
pub(crate) enum Compared {
    /// It was compared.
    Judged,
    /// It cannot be judged.
    Never,
    /// Redis's error, if it would not show the value.
    Unreadable(Bytes),
}
