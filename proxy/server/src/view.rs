//! The view of locks for people: what the board and the command line show.

pub(crate) mod api;
