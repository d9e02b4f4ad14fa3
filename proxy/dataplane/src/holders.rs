//! What follows the holder of a lease beyond one connection: which connection keeps a lease alive when the one that
//! took it ends, jobs of a shell, and which process a holder is. Tasks and rules only; what is remembered of leases,
//! clients and jobs is in the registers.

pub(crate) mod handover;
pub(crate) mod identify;
pub(crate) mod jobs;
pub(crate) mod lost;
