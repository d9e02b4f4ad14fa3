//! How bytes and numbers are written for people and read again.

pub(crate) mod durations;
pub(crate) mod escape;
pub(crate) mod numbers;
pub(crate) mod terminal;
pub(crate) mod unknown_command;
