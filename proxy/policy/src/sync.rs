//! Types shared between threads, for the file whose steps are tried in every order: `tests/wakeups` compiles it with
//! its own types in place of these.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
