//! Finds commands that the proxy needs and the server does not have at all, because a service has renamed them. Each is sent
//! without arguments, which changes nothing: a server that has it returns an error about the arguments, or a result.

use lockwarden_dataplane::backend::{BackendError, Conversation};
use lockwarden_dataplane::maintenance::ask_rights::{is_unknown, without};
use lockwarden_lock::scripts::Purpose;

/// The missing commands, and the consequences.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Lacking {
    /// Locks are governed all the same.
    pub(super) notes: Vec<String>,
    /// Locks are not governed.
    pub(super) doubts: Vec<String>,
    /// The names, as in ACLs.
    pub(super) names: Vec<&'static str>,
}

/// Tries every command that steps and the proxy's own connections need; and `WAIT`, where grants wait for replicas.
pub(super) async fn ask(own: &mut Conversation, waits: bool) -> Result<Lacking, BackendError> {
    let mut lacking = Lacking::default();
    let mut needed = Purpose::Locks.commands();
    needed.extend(Purpose::Own.commands());
    needed.extend(waits.then_some("wait"));
    needed.sort_unstable();
    needed.dedup();
    // A command that is complete without arguments runs, and may return more than is needed.
    for command in needed {
        let answer = match command {
            "command" => own.ask(&["COMMAND", "COUNT"]).await?,
            name => own.ask(&[name]).await?,
        };
        if is_unknown(&answer) {
            lacking.add(command);
        }
    }
    Ok(lacking)
}

impl Lacking {
    fn add(&mut self, command: &'static str) {
        self.names.push(command);
        let name = command.to_ascii_uppercase();
        if let Some(then) = without(command) {
            self.notes.push(format!("the server has no {name}: {then}"));
            return;
        }
        let is_in_steps = Purpose::Locks.commands().contains(&command);
        let then = match command {
            "eval" | "evalsha" => {
                "no lock can be governed: with a namespace in enforce mode no client is served, and in monitor mode lock \
                 commands are forwarded unjudged"
            }
            "wait" => "where grants wait for replicas (durability) lock commands are refused",
            _ if is_in_steps => "lock commands are refused in enforce mode, and forwarded unjudged in monitor mode",
            _ => "the proxy's own connection needs it to renew, find or break leases",
        };
        let advice = "have it allowed, or use another service";
        self.doubts.push(format!("the server has no {name}: {then}; {advice}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lacking_is_a_note_or_a_doubt() {
        let mut lacking = Lacking::default();
        for command in ["command", "evalsha", "time", "zadd"] {
            lacking.add(command);
        }
        assert_eq!(lacking.notes.len(), 1, "{lacking:?}");
        assert_eq!(lacking.doubts.len(), 3, "{lacking:?}");
        assert!(lacking.doubts[0].contains("no EVALSHA: no lock can be governed"));
    }
}
