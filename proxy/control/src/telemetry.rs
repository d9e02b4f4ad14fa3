//! What the proxy reports about itself: the vocabulary, the event log, metrics, log, audit trail and spans. Other code
//! calls it; it calls none.

pub mod applications;
pub mod audit;
pub mod changes;
pub mod discovery;
pub mod events;
mod fold;
pub mod logging;
pub mod metrics;
pub mod vocabulary;
