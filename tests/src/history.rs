//! Were locks exclusive, whatever went wrong? Clients write down their requests, the replies, and the times of both;
//! meanwhile faults hit them, the proxies and Redis; and a checker, which knows nothing of how the proxy works,
//! judges what was written. All times are of one clock, CLOCK_MONOTONIC, in every process.
//!
//! A history is made by a [`Rig`], or written by hand in a test; a [`Judge`] finds what must not be in it. A run
//! follows from a seed as far as processes allow it: the same faults at the same times, the same choices of each
//! client.

mod aof;
mod clock;
mod faults;
mod idioms;
mod judge;
mod line;
mod operation;
mod parted;
mod planted;
mod proxies_said;
mod rig;
mod run;
mod transcript;
mod worker;

pub use aof::Committed;
pub use clock::At;
pub use faults::Fault;
pub use judge::{GRAIN, Judge, Violation};
pub use operation::{Action, Answer, History, Operation, Trouble, Write};
pub use parted::{Parted, PartedPlan, Parting};
pub use planted::{Planted, Planter};
pub use rig::Rig;
pub use run::{Plan, Run};
pub use worker::{Worker, run as run_worker};
