//! The `lockwarden` binary. The folders are layers, the lowest first; each imports only from those above it in this list, and
//! those of one paragraph do not import one another (`tests/tests/all/layers.rs`). The path of a command begins in
//! `app::accept` and is described in `session::intercept`.

#![warn(clippy::print_stderr, clippy::print_stdout)]

mod terminal;

mod app;

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
