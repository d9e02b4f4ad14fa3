//! The proxy's input and output apart from commands: its configuration and the rules made from it, metrics, events,
//! audit and log; and below them sockets and other small parts. Nothing in here knows of a session or of the backend.

#![warn(clippy::print_stderr, clippy::print_stdout)]
#![allow(
    missing_docs,
    reason = "what these crates show each other is the inside of one program: described is what its name does not say"
)]

pub mod clock;
pub mod net;
pub mod random;
pub mod sync;
pub mod text;

pub mod config;
pub mod delivery;

pub mod telemetry;

pub mod ruleset;
