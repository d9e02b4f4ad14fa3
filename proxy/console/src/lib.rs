//! The interface of the proxy for people: the view of locks for each kind of query (`view`), and the admin listener with its
//! API, board and metrics (`admin`).

#![warn(clippy::print_stderr, clippy::print_stdout)]
#![allow(
    missing_docs,
    reason = "what these crates show each other is the inside of one program: described is what its name does not say"
)]

pub mod view;

pub mod admin;
