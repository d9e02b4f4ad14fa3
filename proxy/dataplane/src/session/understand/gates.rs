//! The gates that a command passes before its meaning is final. At each of them something may have to be done first:
//! another connection, a login, a question. That takes time, and its result may change the meaning of the command. So
//! after a gate that had to be opened, the command is classified again.

use lockwarden_lock::classify::Class;
use lockwarden_lock::pass_through::Kept;
use lockwarden_lock::settle::Refused;
use lockwarden_resp::Request;

use crate::session::Session;
use crate::session::guarded_writes::kept::GuardedWrite;
use crate::session::judge::unjudged::SWITCHED;
use crate::session::transport::request_buffer::RequestBuffer;
use crate::session::transport::{End, Muted};
use crate::session::understand::multiplexing::Way;

/// A gate. `docs/life-of-a-command.md` has the same list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// The connection that may carry the command, where connections are shared.
    Connection,
    /// The twin of the client's user, where the command touches a lock.
    Twin,
    /// What the proxy knows of the script, the function or the name in the command.
    Knowledge,
    /// The value, which has not been kept if it was to be refused when its length was announced.
    Value,
    /// Guarded data that the command writes.
    Data,
}

impl Gate {
    /// In the order in which a command comes to them.
    pub(crate) const ORDER: [Gate; 5] = [Gate::Connection, Gate::Twin, Gate::Knowledge, Gate::Value, Gate::Data];
}

/// Why a gate is closed, and thus what has to be done.
pub enum Closed {
    /// The command must use another connection.
    Way(Way),
    /// The connection must be logged in as the twin.
    Twin,
    /// What it names may become known by a look.
    Unknown,
    /// Its value was replaced by zeros.
    Cut,
    /// It would delete another client's lock together with guarded data.
    Theft(Box<Refused>),
    /// The locks of the data that it writes must be looked at; the command is kept if its refusal is carried out.
    Write(Box<GuardedWrite>, Option<Kept>),
}

/// The result of opening a gate.
pub enum Opened {
    /// The command goes on.
    Through,
    /// The same, and why it could not be found out what the command names.
    StillUnknown(String),
    /// The client was answered, or will be.
    Answered,
}

impl Session {
    /// The next closed gate of those that the command has not passed. A guarded write that the command's own step
    /// judges is added to that step.
    #[inline]
    pub(crate) fn next_closed(
        &mut self,
        gates: &mut impl Iterator<Item = Gate>,
        class: &mut Class<'_>,
        request: &Request<'_>,
        inbox: &RequestBuffer,
    ) -> Option<Closed> {
        let may_become_twin = self.client.may_become_twin();
        for gate in gates {
            match gate {
                // A connection that is logged in as another user is not shared.
                Gate::Connection if may_become_twin && self.wants_twin(class, request) => {}
                Gate::Connection => match self.way(class, request, !inbox.is_empty()) {
                    Way::InUse => {}
                    way => return Some(Closed::Way(way)),
                },
                Gate::Twin => {
                    if may_become_twin && self.wants_twin(class, request) {
                        return Some(Closed::Twin);
                    }
                }
                Gate::Knowledge => {
                    if self.may_learn_more(class) {
                        return Some(Closed::Unknown);
                    }
                }
                // The mode was different when its length was announced.
                Gate::Value => {
                    if inbox.is_cut() && !matches!(class, Class::TooLong(..) | Class::Error(_)) {
                        return Some(Closed::Cut);
                    }
                }
                Gate::Data => {
                    if self.client.has_guards() {
                        return self.closed_by_guard(class, request);
                    }
                }
            }
        }
        None
    }

    fn closed_by_guard(&mut self, class: &mut Class<'_>, request: &Request<'_>) -> Option<Closed> {
        self.client.count_computed_data(class, request);
        let write = self.client.guarded_by(class, request)?;
        if let (Class::Judge(command), None) = (&mut *class, write.unchecked) {
            self.client.judge_in_step(command, *write);
            return None;
        }
        Some(match self.client.theft(class, &write) {
            Some(refused) => Closed::Theft(Box::new(refused)),
            None => {
                let kept = self.client.kept_for(&write, class);
                Closed::Write(write, kept)
            }
        })
    }

    /// Does what a closed gate asks for.
    pub async fn open(&mut self, closed: Closed, inbox: &mut RequestBuffer, muted: Muted) -> Result<Opened, End> {
        let goes_on = match closed {
            Closed::Way(way) => self.go_by(way, inbox, muted).await?,
            Closed::Twin => self.become_twin(inbox, muted).await?,
            Closed::Unknown => {
                let why = self.learn_what_is_unknown(inbox).await?;
                return Ok(why.map_or(Opened::Through, Opened::StillUnknown));
            }
            Closed::Cut => {
                self.proxy_error(SWITCHED, muted);
                false
            }
            Closed::Theft(refused) => {
                let active = self.client.active();
                self.refuse(&refused, None, &active, muted);
                false
            }
            Closed::Write(write, kept) => !self.guarded_write(inbox, write, kept, muted).await?,
        };
        Ok(match goes_on {
            true => Opened::Through,
            false => Opened::Answered,
        })
    }

    /// Whether a command is for the twin of the client's user: it touches a lock, or data that one guards.
    fn wants_twin(&mut self, class: &Class<'_>, request: &Request<'_>) -> bool {
        let touches_lock = !self.transport.pushes.takes_no_commands() && self.client.wants_twin(class, request);
        touches_lock || self.client.guarded_by(class, request).is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn the_page_about_a_commands_life_has_the_gates_in_their_order() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/life-of-a-command.md");
        let page = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let table = page.lines().skip_while(|line| !line.starts_with("| gate |")).skip(2);
        let rows = table.map_while(|line| line.strip_prefix("| `")?.split('`').next());
        let gates = Gate::ORDER.map(|gate| format!("{gate:?}"));
        assert_eq!(rows.collect::<Vec<_>>(), gates);
    }
}
