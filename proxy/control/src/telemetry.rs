//! What the proxy says about itself: the vocabulary, the event log, metrics, log, audit trail and spans. It is told and
//! never asks.

pub mod applications;
pub mod audit;
pub mod changes;
pub mod discovery;
pub mod events;
mod fold;
pub mod logging;
pub mod metrics;
pub mod vocabulary;
