//! The view of locks for people: it feeds the board and the command line. It follows the event log on the event log's own
//! thread and folds the events into bounded memory (`store`); for each request the functions of `queries` join that with the
//! mirror. The view decides nothing, and no session ever waits for it.

mod advice;
mod aftermath;
pub mod api;
mod applications;
mod by_namespace;
mod connections;
mod decisions;
pub mod discovery;
mod families;
mod hold_times;
mod hot_locks;
mod incidents;
mod key_patterns;
mod leases;
mod lock_history;
mod lock_list;
mod lock_time;
mod losses;
mod mending;
mod pattern_list;
mod periods;
mod queries;
mod recent_events;
mod remarks;
mod report;
mod rolling_count;
mod service;
mod store;
mod tally;
#[cfg(test)]
mod tests;
mod topology;
mod wait_cycles;
pub mod what_if;
pub mod why;

pub use aftermath::Harmed;
pub use api::{ConnectionsQuery, DecisionsQuery, Format, LocksQuery, PatternsQuery, ReportQuery};
pub use queries::gauges;
pub use service::{ViewService, Views};
pub use store::{Mark, Measure};
