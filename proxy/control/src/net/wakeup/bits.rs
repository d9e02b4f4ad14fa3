//! Messages to one task, one bit each, and how they wake it. Sending a message twice is the same as once.
//! `tests/wakeups` compiles this file with loom's types and tries its steps in every order.

use std::task::{Context, Waker};

use crate::sync::{AtomicU8, OnceLock, Ordering, fence};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Bits {
    /// The task, which stays the same.
    sleeper: OnceLock<Waker>,
    pub(super) said: AtomicU8,
}

impl Bits {
    pub(crate) fn say(&self, what: u8) {
        self.said.fetch_or(what, Ordering::Release);
        fence(Ordering::SeqCst);
        if let Some(sleeper) = self.sleeper.get() {
            sleeper.wake_by_ref();
        }
    }

    /// The messages since the last look, if any; otherwise the task is woken by the next one.
    pub(crate) fn look(&self, cx: &Context<'_>) -> Option<u8> {
        if self.sleeper.get().is_none() {
            self.sleeper.get_or_init(|| cx.waker().clone());
            // A sender that found no task to wake has set its bit before the look below.
            fence(Ordering::SeqCst);
        }
        if self.said.load(Ordering::Acquire) == 0 {
            return None;
        }
        Some(self.said.swap(0, Ordering::Acquire))
    }
}
