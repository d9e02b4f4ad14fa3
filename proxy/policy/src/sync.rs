//! What threads share, for the file whose steps are tried in every order: `tests/wakeups` compiles it with types of
//! its own in place of these.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
