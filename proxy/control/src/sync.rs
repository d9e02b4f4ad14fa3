//! Types for sharing and waiting between threads, for the files whose steps are tried in every order: `tests/wakeups`
//! compiles those files with its own types in place of these.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, Ordering, fence};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
pub(crate) use std::thread::{Thread, park_timeout, sleep};
