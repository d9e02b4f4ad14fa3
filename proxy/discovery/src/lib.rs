//! Finds the locks among keys that no namespace covers, from what applications do with them. A [`Collector`] gets
//! [`Sighting`]s, folds keys into patterns and decides for each pattern what its keys are. [`propose`] writes the
//! configuration that would govern those that are locks. It also finds data that is written under a lock: [`guards`]
//! writes the configuration that would keep other clients from writing it. Pure: no I/O, no clock. It never decides
//! about a lock.

pub mod sighting;

pub mod collector;

pub mod usage;

pub mod unknown_scripts;

pub mod verdict;

pub mod propose;

pub mod guards;

pub mod recognise;

pub mod monitor;

pub mod survey;

pub mod toml_text;

mod first_writes;
mod holders;
mod key_hash;
mod libraries;
mod patterns;
mod shape;
mod writes;

pub use collector::{Collector, Pattern};
pub use first_writes::FirstWrites;
pub use key_hash::KeyHash;
pub use patterns::{MAX_PATTERNS, Merged, PatternId, Patterns};
pub use sighting::{Compares, Did, Sighting, Spelling, Stored};
pub use unknown_scripts::UnknownScript;
pub use usage::{ByApplication, Usage};
pub use verdict::{Confidence, Kind, Verdict};
pub use writes::Wrote;

#[cfg(test)]
mod tests;

#[cfg(test)]
mod guard_tests;
