//! Formats bytes and numbers for people, and parses them.

pub mod durations;
pub mod escape;
pub mod numbers;
pub mod unknown_command;
