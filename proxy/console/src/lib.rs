//! What people see of the proxy and tell it: what is known of locks in the order in which it is asked for (`view`), and the
//! admin listener with its API, board and metrics (`admin`).

#![warn(clippy::print_stderr, clippy::print_stdout)]
#![allow(
    missing_docs,
    reason = "what these crates show each other is the inside of one program: described is what its name does not say"
)]

pub mod view;

pub mod admin;
