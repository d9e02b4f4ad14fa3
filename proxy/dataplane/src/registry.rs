//! State that outlives one command: leases to renew, the lease mirror, clients and their processes, owner tokens,
//! texts of scripts, undelivered grants, watched keys. A registry awaits only look-ups, and decides about no lock.

pub mod buffer_memory;
pub mod clients;
pub(crate) mod handed_over;
pub(crate) mod holdings;
pub(crate) mod jobs;
pub(crate) mod later_records;
pub(crate) mod lease_mirror;
pub(crate) mod lost_holders;
pub(crate) mod owner_tokens;
pub mod prefix_mark;
pub mod processes;
pub mod renewals;
pub(crate) mod script_cache;
pub mod undelivered;
pub mod ungoverned;
pub(crate) mod watched_keys;
