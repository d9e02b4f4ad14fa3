//! Signs in replies that this connection, or the client itself, is led to a server that is not the primary.

pub(super) mod replica;
pub(super) mod replicas;
