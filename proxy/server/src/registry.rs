//! What outlives one command: leases to renew, the lease mirror, clients and their processes, owner tokens, texts of
//! scripts, undelivered grants, watched keys. A registry awaits nothing but look-ups and decides about no lock.

pub(crate) mod buffer_memory;
pub(crate) mod clients;
pub(crate) mod handed_over;
pub(crate) mod holdings;
pub(crate) mod jobs;
pub(crate) mod later_records;
pub(crate) mod lease_mirror;
pub(crate) mod lost_holders;
pub(crate) mod owner_tokens;
pub(crate) mod prefix_mark;
pub(crate) mod processes;
pub(crate) mod renewals;
pub(crate) mod script_cache;
pub(crate) mod undelivered;
pub(crate) mod ungoverned;
pub(crate) mod watched_keys;
