//! Words for one task, a bit each, and how they wake it. Saying a word twice is saying it once. `tests/wakeups`
//! compiles this file with the types of loom and tries its steps in every order.

use std::task::{Context, Waker};

use crate::sync::{AtomicU8, OnceLock, Ordering, fence};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Bits {
    /// The task, which is the same from its beginning to its end.
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

    /// What was said since the last look, if anything was; otherwise the task is woken when something is.
    pub(crate) fn look(&self, cx: &Context<'_>) -> Option<u8> {
        if self.sleeper.get().is_none() {
            self.sleeper.get_or_init(|| cx.waker().clone());
            // Whoever spoke and found nobody to wake has said it before the look below.
            fence(Ordering::SeqCst);
        }
        if self.said.load(Ordering::Acquire) == 0 {
            return None;
        }
        Some(self.said.swap(0, Ordering::Acquire))
    }
}
