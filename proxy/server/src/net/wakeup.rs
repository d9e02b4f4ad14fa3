//! How others get a session to look up from its sockets: the upkeep connection, whoever finds out a
//! process, a proxy that is about to stop. A session sleeps on its sockets and on one of these; what
//! is said meanwhile waits until it looks.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering, fence};
use std::task::{Context, Waker};

/// There is something to do over the session's own connection.
const WORK: u8 = 1;
/// The proxy is about to stop.
const DRAIN: u8 = 2;
/// The session has to end at once: it holds too much memory.
const EVICT: u8 = 4;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Wakeup {
    /// The session's task, which is the same from its beginning to its end.
    sleeper: OnceLock<Waker>,
    said: AtomicU8,
}

/// What was said since the session looked last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) work: bool,
    pub(crate) drain: bool,
    pub(crate) evict: bool,
}

impl Wakeup {
    /// Leases want to be renewed, or records to be completed, over the session's own connection.
    pub(crate) fn work(&self) {
        self.say(WORK);
    }

    /// The proxy is about to stop.
    pub(crate) fn drain(&self) {
        self.say(DRAIN);
    }

    /// The session has to end at once: it holds too much memory.
    pub(crate) fn evict(&self) {
        self.say(EVICT);
    }

    #[cfg(test)]
    pub(crate) fn is_evicted(&self) -> bool {
        self.said.load(Ordering::Relaxed) & EVICT != 0
    }

    fn say(&self, what: u8) {
        self.said.fetch_or(what, Ordering::Release);
        fence(Ordering::SeqCst);
        if let Some(sleeper) = self.sleeper.get() {
            sleeper.wake_by_ref();
        }
    }

    /// What was said, if anything was; otherwise the task is woken when something is. It is always the
    /// same task that looks.
    pub(crate) fn look(&self, cx: &Context<'_>) -> Option<Said> {
        if self.sleeper.get().is_none() {
            self.sleeper.get_or_init(|| cx.waker().clone());
            // Whoever spoke and found nobody to wake has said it before the look below.
            fence(Ordering::SeqCst);
        }
        if self.said.load(Ordering::Acquire) == 0 {
            return None;
        }
        let said = self.said.swap(0, Ordering::Acquire);
        Some(Said {
            work: said & WORK != 0,
            drain: said & DRAIN != 0,
            evict: said & EVICT != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::task::Poll;

    use super::*;

    async fn heard(wakeup: &Wakeup) -> Said {
        poll_fn(|cx| wakeup.look(cx).map_or(Poll::Pending, Poll::Ready)).await
    }

    #[tokio::test]
    async fn what_is_said_before_the_look_or_during_the_sleep_is_heard_once() {
        let wakeup = Arc::new(Wakeup::default());
        wakeup.work();
        wakeup.drain();
        let sleeper = wakeup.clone();
        let sleeping = tokio::spawn(async move { [heard(&sleeper).await, heard(&sleeper).await] });
        tokio::task::yield_now().await;
        wakeup.drain();
        let [both, one] = sleeping.await.unwrap();
        assert!(both.work && both.drain);
        assert!(one.drain && !one.work);
    }
}
