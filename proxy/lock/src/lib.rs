//! The domain of lockwarden, pure: what a command means for a lock, what may be done about it, the
//! atomic step that does it, and what its answer means. Nothing here does I/O or reads a clock;
//! time and random bytes come in as arguments.

pub mod decision;
pub mod namespace;
pub mod reason;
