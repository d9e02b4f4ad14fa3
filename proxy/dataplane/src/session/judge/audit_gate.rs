//! For operators who want no decision without its record (`audit_required`): the commands that are refused while
//! records cannot be written.

use lockwarden_control::random::refusal_id;
use lockwarden_control::ruleset::Active;
use lockwarden_control::telemetry::vocabulary::{CommandClass, CommandResult};
use lockwarden_lock::decision::Denial;
use lockwarden_lock::op::{Command, Target};
use lockwarden_lock::reason::Reason;
use lockwarden_lock::rules::Mode;
use lockwarden_lock::settle::{Code, Refused};

use crate::session::client::Client;

/// The policy name of such a refusal.
const AUDIT: &str = "audit";

const HINT: &str = "the audit record of this command could not be written; try again later";

impl Client {
    /// The refusal of a lock command for which no record can be written. In monitor mode nothing is refused for this
    /// either.
    pub(crate) fn unrecordable(&self, command: &Command, active: &Active) -> Option<Refused> {
        if self.shared.audit.may_go_on(&self.shared.events) {
            return None;
        }
        let enforces = |target: &&Target| active.rules(target.namespace).mode == Mode::Enforce;
        let target = command.targets().into_iter().find(enforces)?.clone();
        Some(Refused {
            command: command.clone(),
            target,
            code: Code::Policy,
            denial: Denial { reason: Reason::Other, detail: Some(HINT.to_owned()), policy: AUDIT.into(), rule: None },
            native: false,
        })
    }

    /// The error line for a FLUSH for which no record can be written.
    pub(crate) fn unrecordable_flush(&mut self, command: &str, active: &Active) -> Option<String> {
        if self.shared.audit.may_go_on(&self.shared.events) || active.enforces_nothing() {
            return None;
        }
        self.count(CommandClass::Policy, CommandResult::ProxyError);
        let (id, command) = (refusal_id(), command.to_ascii_uppercase());
        tracing::info!(id, cmd = command, policy = AUDIT, client = %self.peer, "refused");
        let reason = Reason::Other;
        Some(format!("LOCKPOLICY {reason} cmd={command} policy={AUDIT} id={id} hint=\"{HINT}\""))
    }
}
