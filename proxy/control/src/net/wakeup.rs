//! How other code wakes a session from waiting for its sockets: the upkeep connection, the look-up of processes, a
//! proxy that is about to stop. A session waits for its sockets and for one of these; messages are kept until it looks.

mod bits;

use std::task::Context;

use crate::sync::Ordering;
use bits::Bits;

/// There is work to do over the session's own connection.
const WORK: u8 = 1;
/// The proxy is about to stop.
const DRAIN: u8 = 2;
/// The session must end at once: it uses too much memory.
const EVICT: u8 = 4;
/// The connection has reached its longest age.
const AGED: u8 = 8;

/// See the module.
#[derive(Debug, Default)]
pub struct Wakeup(Bits);

/// The messages since the session's last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Said {
    pub work: bool,
    pub drain: bool,
    pub evict: bool,
    pub aged: bool,
}

impl Wakeup {
    /// Leases must be renewed, or records completed, over the session's own connection.
    pub fn work(&self) {
        self.0.say(WORK);
    }

    /// The proxy is about to stop.
    pub fn drain(&self) {
        self.0.say(DRAIN);
    }

    /// The session must end at once: it uses too much memory.
    pub fn evict(&self) {
        self.0.say(EVICT);
    }

    /// The connection has reached its longest age.
    pub fn aged(&self) {
        self.0.say(AGED);
    }

    /// Whether it must end, for tests of code that orders so.
    pub fn is_evicted(&self) -> bool {
        self.0.said.load(Ordering::Relaxed) & EVICT != 0
    }

    /// The messages, if there are any; otherwise the task is woken by the next one. Always called by the same task.
    pub fn look(&self, cx: &Context<'_>) -> Option<Said> {
        let said = self.0.look(cx)?;
        Some(Said {
            work: said & WORK != 0,
            drain: said & DRAIN != 0,
            evict: said & EVICT != 0,
            aged: said & AGED != 0,
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
