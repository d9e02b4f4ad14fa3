//! Finds the locks among keys of which nobody has said that they are locks, by what applications do with them. Told of
//! [`Sighting`]s, a [`Collector`] folds keys into patterns and says of each what its keys are, and [`propose`] writes the
//! configuration that would govern those that are locks. Pure: no I/O, no clock. It never decides about a lock.

pub mod sighting;

pub mod collector;

pub mod usage;

pub mod verdict;

pub mod propose;

pub mod recognise;

pub mod monitor;

pub mod survey;

mod patterns;
mod shape;

pub use collector::{Collector, KeyHash, Pattern};
pub use patterns::{MAX_PATTERNS, Merged, PatternId, Patterns};
pub use sighting::{Did, Sighting, Spelling, Stored};
pub use usage::{ByApplication, Usage};
pub use verdict::{Confidence, Kind, Verdict};

#[cfg(test)]
mod tests;
