//! Which steps go together with those of other clients. On a shared connection all may. A session with a connection of its own lends its
//! steps to the shared one of its kind while many wait for theirs: nothing else of it is under way then, and nothing that only its own connection
//! knows matters to a step.

use std::cell::Cell;
use std::time::{Duration, Instant};

use bytes::Bytes;
use lockwarden_lock::plan::{Plan, SENT_ALONE};

use crate::backend::profile::Traffic;
use crate::backend::shared_connection::Attachment;
use crate::session::Session;
use crate::session::client::login::Acting;
use crate::session::step::awaited::Look;
use crate::session::transport::End;
use crate::session::transport::request_buffer::RequestBuffer;

/// Steps that are under way on a thread, this one included, from which on it pays to send them together.
const MANY: usize = 4;
/// Redis is not to take a session's own connection for one that is not in use (`timeout`).
const ALONE_EVERY: Duration = Duration::from_secs(1);

thread_local! {
    static UNDER_WAY: Cell<usize> = const { Cell::new(0) };
}

/// One step more is under way.
pub(super) struct UnderWay(());

impl UnderWay {
    pub(super) fn one() -> UnderWay {
        UNDER_WAY.set(UNDER_WAY.get() + 1);
        UnderWay(())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        UNDER_WAY.set(UNDER_WAY.get() - 1);
    }
}

impl Session {
    /// The answer to a step that was sent together with others; `None` where it is to be sent by itself: nothing was done for it.
    pub(super) async fn answered_together(
        &mut self,
        inbox: &mut RequestBuffer,
        step: &Plan,
    ) -> Result<Option<Bytes>, End> {
        let is_lent = !self.transport.is_shared();
        if is_lent && !self.lends() {
            return Ok(None);
        }
        let mut answer = Bytes::from_static(SENT_ALONE);
        if self.transport.execute_together(step, || Look::Answer) {
            answer = self.answer(inbox).await?;
            self.transport.backend_link().was_in_group(answer != SENT_ALONE);
        }
        if is_lent {
            self.transport.own_again();
        }
        Ok((answer != SENT_ALONE).then_some(answer))
    }

    /// Goes by the shared connection of its kind, where that is open and makes no difference.
    fn lends(&mut self) -> bool {
        if UNDER_WAY.get() < MANY || self.is_bound() || !self.transport.may_change_uplink() {
            return false;
        }
        let is_as_itself = self.client.connection.login.acting() == Acting::Own && !self.client.has_twin();
        // With a quarantine it is known of each connection which server it leads to.
        if !is_as_itself || self.client.active().quarantines || self.client.shared.backend.server.in_cluster() {
            return false;
        }
        let now = Instant::now();
        if now.saturating_duration_since(self.alone_at) > ALONE_EVERY {
            self.alone_at = now;
            return false;
        }
        let profile = self.client.profile();
        let is_same = self.transport.backend_link().port().is_some_and(|port| *port.profile() == profile);
        let backend = &self.client.shared.backend;
        let port = if is_same { None } else { Attachment::new(&profile, Traffic::Writes, backend) };
        let is_lent = (is_same || port.is_some()) && self.transport.backend_link().lend(port);
        self.client.connection.has_shared |= is_lent;
        is_lent
    }
}
