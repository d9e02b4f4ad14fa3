//! What an outcome means for everything that is remembered or reported: evidence, keep-alive, mirror, counters, event
//! log, discovery. Nothing here changes a reply.

pub(super) mod emit_events;
pub(super) mod observed_reads;
pub(super) mod record_outcome;
pub(super) mod sightings;
pub(super) mod unwitnessed;
