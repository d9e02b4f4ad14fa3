//! What the proxy says about itself: the vocabulary, the event log, metrics, log, audit trail and spans. It is told and
//! never asks.

pub(crate) mod applications;
pub(crate) mod audit;
pub(crate) mod changes;
pub(crate) mod discovery;
pub(crate) mod events;
mod fold;
pub(crate) mod logging;
pub(crate) mod metrics;
pub(crate) mod vocabulary;
