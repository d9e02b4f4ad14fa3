//! Waiting for a condition instead of a fixed time. Every wait of the harness ends here or in a socket's read
//! timeout, so no test can hang.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Ends the threads that look at this, also where the test fails while they run.
pub struct Stops<'a>(pub &'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How long a condition may take to come true before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The time between two looks at a condition, at first.
const POLL: Duration = Duration::from_millis(5);
/// The same after a while: a look may cost a request, or many.
const LONGEST_POLL: Duration = Duration::from_millis(50);

/// Waits until the condition holds; false when it does not within [`PATIENCE`].
pub fn comes_true(mut condition: impl FnMut() -> bool) -> bool {
    attempts(|| condition().then_some(())).is_some()
}

/// Waits until the condition holds; panics with `what` when it does not within [`PATIENCE`].
#[track_caller]
pub fn wait_for(what: &str, condition: impl FnMut() -> bool) {
    assert!(comes_true(condition), "waited {PATIENCE:?} in vain for: {what}");
}

/// Waits until there is a value and returns it; panics with `what` when there is none within
/// [`PATIENCE`].
#[track_caller]
pub fn wait_for_value<T>(what: &str, attempt: impl FnMut() -> Option<T>) -> T {
    match attempts(attempt) {
        Some(value) => value,
        None => panic!("waited {PATIENCE:?} in vain for: {what}"),
    }
}

/// Watches for this long that the condition never stops to hold.
#[track_caller]
pub fn holds_for(time: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while start.elapsed() < time {
        assert!(condition(), "after {:?}, not any more: {what}", start.elapsed());
        sleep(POLL);
    }
}

fn attempts<T>(mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + PATIENCE;
    let mut pause = POLL;
    loop {
        if let Some(value) = attempt() {
            return Some(value);
        }
        if Instant::now() >= end {
            return None;
        }
        sleep(pause);
        pause = LONGEST_POLL.min(pause * 5 / 4);
    }
}
