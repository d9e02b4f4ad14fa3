//! Answers of two chains to the same questions: which differ, and in what. `lockwarden policy replay` fills it from an audit trail,
//! and a running proxy from a chain that is asked beside the one in force ([`Beside`]). However many differ, what is kept of
//! them has a bound.

mod beside;
mod effect;
mod list;

pub use beside::{Beside, Compared};
pub use effect::Effect;
pub use list::{Change, Changes, Example, count};
