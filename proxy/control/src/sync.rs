//! What threads share and wait on, for the files whose steps are tried in every order: `tests/wakeups` compiles them
//! with types of its own in place of these.

pub use std::sync::atomic::{AtomicBool, AtomicU8, Ordering, fence};
pub use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
pub use std::thread::{Thread, park_timeout, sleep};
