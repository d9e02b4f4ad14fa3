//! The way of a command: from a client's socket to Redis and back, and what is known of leases, clients and servers
//! on the way. It begins in `session::intercept`. Nothing in this crate can use `lockwarden-console`, which produces
//! what people see.

#![warn(clippy::print_stderr, clippy::print_stdout)]
#![allow(
    missing_docs,
    reason = "what these crates show each other is the inside of one program: described is what its name does not say"
)]

pub mod backend;
pub mod front;

pub mod registry;

pub mod state;

pub mod holders;

pub mod maintenance;
pub mod presented;
pub mod session;
