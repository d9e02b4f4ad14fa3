//! Compares the answers of two chains to the same questions: which of them differ, and how. `lockwarden policy replay`
//! feeds it from an audit trail, a running proxy from a `next` chain that is asked beside the one in force
//! ([`Beside`]). Memory stays bounded, however many answers differ.

mod beside;
mod effect;
mod list;

pub use beside::{Beside, Compared};
pub use effect::Effect;
pub use list::{Change, Changes, Example, count};
