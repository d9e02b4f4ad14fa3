//! How bytes and numbers are written for people and read again.

pub mod durations;
pub mod escape;
pub mod numbers;
pub mod unknown_command;
