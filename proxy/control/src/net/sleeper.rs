//! A place where one task sleeps until another wakes it.

use std::task::{Context, Waker};

/// The task of `cx` is woken by the next [`wake`].
pub fn register(sleeper: &mut Option<Waker>, cx: &Context<'_>) {
    match sleeper {
        Some(waker) if waker.will_wake(cx.waker()) => {}
        _ => *sleeper = Some(cx.waker().clone()),
    }
}

/// Wakes the task that sleeps here, if any.
pub fn wake(sleeper: &mut Option<Waker>) {
    if let Some(waker) = sleeper.take() {
        waker.wake();
    }
}
