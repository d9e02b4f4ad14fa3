//! A session whose connection leads to a server that was made a replica: if the backend's name leads to another
//! server now, old connections may stay open, and every write over them fails. So the session ends once its client
//! has read the error and nothing is under way; the client connects again, and reaches the primary. If the connection
//! is shared, the client keeps its own and moves to another shared one.

use bytes::Bytes;
use lockwarden_lock::own_request::OwnRequest;
use lockwarden_resp::parse_reply;

use crate::backend::server_info::{Role, RoleQuestion, is_of_replica};
use crate::session::Session;
use crate::session::client::{Client, Suspicion};
use crate::session::step::awaited::Look;
use crate::session::transport::End;

impl Session {
    /// When nothing is under way: asks a suspected server for its role, and leaves one that is a replica.
    pub(crate) fn look_for_replica(&mut self) -> Result<(), End> {
        if self.transport.take_replica_error() {
            self.client.suspect_replica();
        }
        if self.client.replica == Suspicion::None || !self.transport.is_idle() || !self.may_leave() {
            return Ok(());
        }
        match self.client.replica {
            Suspicion::None | Suspicion::Asked => Ok(()),
            Suspicion::Raised => {
                self.client.replica = Suspicion::Asked;
                // Every user may send it, and it changes nothing.
                self.transport.inquire(&OwnRequest::Hello, Look::Role);
                Ok(())
            }
            Suspicion::Confirmed => {
                tracing::info!(
                    client = %self.client.peer,
                    "closing a connection: it led to a server that has become a replica"
                );
                Err(End::Done)
            }
        }
    }

    /// A request that the proxy sent itself found that the server is a replica. That is no reason to close the
    /// connection of a client that has sent nothing.
    pub(crate) fn own_step_failed(&mut self, frame: &[u8]) {
        if frame.strip_prefix(b"-").is_some_and(is_of_replica) {
            self.transport.take_replica_error();
            self.client.shared.backend.server.doubt();
        }
    }

    fn may_leave(&self) -> bool {
        self.client.connection.block.is_none() && !self.transport.pushes.takes_no_commands()
    }

    /// The server has named its role. A server that does not know the question has already given an error that only a
    /// replica gives.
    pub(crate) fn learn_role(&mut self, frame: &Bytes) {
        let answer = parse_reply(frame, self.client.connection.protocol).ok();
        let role = answer.and_then(|answer| RoleQuestion::Hello.read(&answer));
        self.client.replica = match role {
            Some(Role::Primary | Role::Unknown) => Suspicion::None,
            Some(Role::Replica | Role::WritableReplica) | None => Suspicion::Confirmed,
        };
        if self.client.replica == Suspicion::None {
            return;
        }
        self.transport.tell_when_idle();
        self.client.shared.backend.server.doubt();
        let is_shared = self.transport.is_shared();
        if is_shared && let Some(port) = self.transport.backend_link().port() {
            port.leave_replica();
        }
        if is_shared && !self.transport.backend_link().has_own() {
            self.client.replica = Suspicion::None;
        }
    }
}

impl Client {
    /// An error was given that only a replica gives.
    pub(crate) fn suspect_replica(&mut self) {
        if self.replica == Suspicion::None {
            self.replica = Suspicion::Raised;
        }
    }
}
