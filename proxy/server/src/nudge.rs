//! How others get a session to look up from its sockets: the upkeep connection, whoever finds out a
//! process, a proxy that is about to stop. A session sleeps on its sockets and on one of these; what
//! is said meanwhile waits until it looks.

use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Context;

use atomic_waker::AtomicWaker;

/// There is something to do over the session's own connection.
const WORK: u8 = 1;
/// The proxy is about to stop.
const DRAIN: u8 = 2;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Nudge {
    sleeper: AtomicWaker,
    said: AtomicU8,
}

/// What was said since the session looked last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) work: bool,
    pub(crate) drain: bool,
}

impl Nudge {
    /// Leases want to be renewed, or records to be completed, over the session's own connection.
    pub(crate) fn work(&self) {
        self.say(WORK);
    }

    /// The proxy is about to stop.
    pub(crate) fn drain(&self) {
        self.say(DRAIN);
    }

    fn say(&self, what: u8) {
        self.said.fetch_or(what, Ordering::Release);
        self.sleeper.wake();
    }

    /// What was said, if anything was; otherwise the task is woken when something is. One task
    /// sleeps on it.
    pub(crate) fn look(&self, cx: &Context<'_>) -> Option<Said> {
        // Before the look, so that whoever speaks after it wakes this task.
        self.sleeper.register(cx.waker());
        if self.said.load(Ordering::Acquire) == 0 {
            return None;
        }
        let said = self.said.swap(0, Ordering::Acquire);
        Some(Said {
            work: said & WORK != 0,
            drain: said & DRAIN != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::task::Poll;

    use super::*;

    async fn heard(nudge: &Nudge) -> Said {
        poll_fn(|cx| nudge.look(cx).map_or(Poll::Pending, Poll::Ready)).await
    }

    #[tokio::test]
    async fn what_is_said_before_the_look_or_during_the_sleep_is_heard_once() {
        let nudge = Arc::new(Nudge::default());
        nudge.work();
        nudge.drain();
        let both = heard(&nudge).await;
        assert!(both.work && both.drain);
        let sleeper = nudge.clone();
        let sleeping = tokio::spawn(async move { heard(&sleeper).await });
        tokio::task::yield_now().await;
        nudge.drain();
        let said = sleeping.await.unwrap();
        assert!(said.drain && !said.work);
    }
}
