//! Keeps Redis from closing the connections of clients that hold a lease that is kept alive: a client that works
//! sends nothing meanwhile.

use std::time::{Duration, Instant};

use crate::backend::{BackendError, Conversation, server_info};
use crate::state::ProxyState;

/// Between two checks of the server's setting.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// How often the connections of holders are used if it is unknown after which time the server closes idle ones.
/// Services that do not report the setting allow values from 20 s up.
const USED_EVERY: Duration = Duration::from_secs(15);

/// See the module.
pub(super) struct Holders {
    /// See [`server_info::Report::timeout`].
    timeout: Option<u64>,
    /// When they are used next.
    due: Instant,
    /// When the server is asked again.
    asked_again: Instant,
}

impl Holders {
    pub(super) fn new(report: &server_info::Report) -> Holders {
        let now = Instant::now();
        Holders { timeout: report.timeout, due: now, asked_again: now + LOOK_AGAIN }
    }

    pub(super) async fn keep_connected(
        &mut self,
        shared: &ProxyState,
        own: &mut Conversation,
        now: Instant,
    ) -> Result<(), BackendError> {
        if self.timeout.is_some() && now >= self.asked_again {
            self.timeout = server_info::ask_timeout(own).await?;
            self.asked_again = now + LOOK_AGAIN;
        }
        let pause = match self.timeout {
            Some(0) => return Ok(()),
            // A third, so that a use that comes late is still in time.
            Some(seconds) => Duration::from_secs(seconds) / 3,
            None => USED_EVERY,
        };
        if now >= self.due {
            self.due = now + pause;
            shared.renewals.wake_holders();
        }
        Ok(())
    }
}
