//! Which steps are sent together with those of other clients. On a shared connection all may be. A session with a
//! connection of its own lends its steps to the shared connection of its kind while many steps wait for their
//! answers: then nothing else of the session is under way, and no state that only its own connection has matters to
//! the step.

use std::cell::Cell;

use bytes::Bytes;
use lockwarden_lock::plan::{Plan, SENT_ALONE};

use crate::backend::profile::Traffic;
use crate::backend::shared_connection::Attachment;
use crate::session::Session;
use crate::session::client::login::Acting;
use crate::session::step::awaited::Look;

/// The number of steps under way on a thread, this one included, from which on it pays to send them together.
const MANY: usize = 6;

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
    /// Sends a step together with those of others. Returns false if it is to be sent by itself.
    pub(super) fn send_together(&mut self, step: &Plan) -> bool {
        if !self.transport.is_shared() && !self.lends(step) {
            return false;
        }
        let is_sent = self.transport.execute_together(step, Look::Answer);
        if !is_sent {
            self.is_itself_again();
        }
        is_sent
    }

    /// Whether a step that was sent together with others was done. If not, nothing was done for it, and it is to be
    /// sent by itself.
    pub(super) fn is_answered_together(&mut self, answer: &Bytes) -> bool {
        let is_done = answer != SENT_ALONE;
        self.transport.backend_link().was_in_group(is_done);
        self.is_itself_again();
        is_done
    }

    fn is_itself_again(&mut self) {
        if !self.multiplexed {
            self.transport.backend_link().use_own(None);
        }
    }

    /// Uses the shared connection of the session's kind for this step, if one is open and makes no difference.
    /// Returns whether it does.
    fn lends(&mut self, step: &Plan) -> bool {
        let are_many = UNDER_WAY.get() >= MANY && !self.multiplexed;
        if !are_many || self.is_bound() || !self.transport.may_change_uplink() {
            return false;
        }
        let is_as_itself = self.client.connection.login.acting() == Acting::Own && !self.client.has_twin();
        // With a quarantine, it must be known of each connection which server it leads to.
        if !is_as_itself || self.client.active().quarantines || self.client.shared.backend.server.in_cluster() {
            return false;
        }
        // Redis must not close the session's own connection as idle (`timeout`), so the first step in each second
        // uses that.
        let second = u32::try_from(self.client.shared.started.elapsed().as_secs()).unwrap_or_default();
        if std::mem::replace(&mut self.alone_in, second) != second {
            return false;
        }
        if !step.is_usual() {
            return false;
        }
        let profile = self.client.profile();
        let is_same = self.transport.backend_link().port().is_some_and(|port| *port.profile() == profile);
        let backend = &self.client.shared.backend;
        let port = if is_same { None } else { Attachment::new(&profile, Traffic::Writes, backend) };
        let is_lent = (is_same || port.is_some()) && self.transport.backend_link().lend(port);
        if is_lent {
            self.client.connection.sharing.shares();
        }
        is_lent
    }
}
