//! A permitted step on its way: sent, awaited, read, and what its reply changes in what is known of the client.

pub(super) mod answers;
pub(super) mod awaited;
pub(super) mod conclude;
pub(super) mod execute;
pub(super) mod learn;
mod moving;
pub(super) mod replication;
mod together;
pub(super) mod transaction;
