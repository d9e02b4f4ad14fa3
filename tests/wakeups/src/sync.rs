//! Loom's types, which the tried files import as `crate::sync`: at each use of one another thread may go on, and each
//! read may return any value that the memory model allows. A wait never times out, so a lost wake-up is a deadlock,
//! which loom finds.

use std::cell::RefCell;
use std::fmt;
use std::time::Duration;

use loom::sync::Arc;
use loom::thread::{self, JoinHandle};

pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
pub(crate) use loom::sync::{Mutex, MutexGuard};
pub(crate) use std::sync::{LockResult, PoisonError};

/// Loom's cannot wait while something holds.
#[derive(Default)]
pub(crate) struct Condvar(loom::sync::Condvar);

impl Condvar {
    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    pub(crate) fn wait_timeout_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        _patience: Duration,
        mut holds: impl FnMut(&mut T) -> bool,
    ) -> LockResult<(MutexGuard<'a, T>, ())> {
        while holds(&mut guard) {
            guard = self.0.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        Ok((guard, ()))
    }
}

/// A thread that can be woken. Loom has this too, but forgets that it was woken where it then waits for a mutex.
#[derive(Clone, Default)]
pub(crate) struct Thread(Arc<Token>);

#[derive(Default)]
struct Token {
    is_there: Mutex<bool>,
    given: loom::sync::Condvar,
}

impl Thread {
    pub(crate) fn unpark(&self) {
        *self.0.is_there.lock().unwrap() = true;
        self.0.given.notify_one();
    }
}

loom::thread_local! {
    static CURRENT: RefCell<Thread> = RefCell::default();
}

/// Starts a thread, and returns the handle that wakes it.
pub(crate) fn spawn<T: 'static>(run: impl FnOnce() -> T + 'static) -> (Thread, JoinHandle<T>) {
    let thread = Thread::default();
    let current = thread.clone();
    let handle = thread::spawn(move || {
        CURRENT.with(|thread| thread.replace(current));
        run()
    });
    (thread, handle)
}

pub(crate) fn park() {
    let Thread(token) = CURRENT.with(|thread| thread.borrow().clone());
    let mut is_there = token.is_there.lock().unwrap();
    while !*is_there {
        is_there = token.given.wait(is_there).unwrap();
    }
    *is_there = false;
}

pub(crate) fn park_timeout(_patience: Duration) {
    park();
}

pub(crate) fn sleep(_time: Duration) {
    thread::yield_now();
}

/// Loom has none. A thread that reads that it is set sees its value; a thread may read late that it is set.
pub(crate) struct OnceLock<T> {
    is_set: AtomicBool,
    value: std::sync::OnceLock<T>,
}

impl<T> OnceLock<T> {
    pub(crate) fn new() -> OnceLock<T> {
        OnceLock { is_set: AtomicBool::new(false), value: std::sync::OnceLock::new() }
    }

    pub(crate) fn get(&self) -> Option<&T> {
        match self.is_set.load(Ordering::Acquire) {
            true => self.value.get(),
            false => None,
        }
    }

    pub(crate) fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        let value = self.value.get_or_init(make);
        self.is_set.store(true, Ordering::Release);
        value
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> OnceLock<T> {
        OnceLock::new()
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}
