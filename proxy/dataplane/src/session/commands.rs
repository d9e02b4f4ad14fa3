//! Commands that are no lock commands and do not simply pass through: commands about the connection, the server, keys
//! in general or the proxy itself, and scripts whose locks are not declared.

pub(super) mod administration;
pub(super) mod computed_scripts;
pub(super) mod connection;
pub(super) mod key_listings;
pub mod lease_questions;
pub(super) mod opaque_scripts;
pub(super) mod operator;
