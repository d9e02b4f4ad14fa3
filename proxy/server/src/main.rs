//! The `lockwarden` binary. The way of a command begins in `serve`, goes through `session` and is
//! told in `intercept`; what changes what is in force is in `control`, what the proxy does of its
//! own accord in `upkeep`.

mod cli;

mod run;

mod serve;
mod session;

mod intercept;

mod buffers;
mod inbox;
mod nudge;
mod pushes;
mod wires;
mod worker;

mod clock;
mod cohort;
mod shared;

mod ask_rights;
mod effects;
mod holders;
mod ruleset;
mod ungoverned;

mod facts;
mod functions;
mod handed_over;
mod jobs;
mod keep_alive;
mod memory;
mod mirror;
mod owner_tokens;
mod peers;
mod processes;
mod proxy_protocol;
mod rights;
mod texts;
mod trail;
mod unheard;
mod view;
mod watches;
mod words;

mod backend;
mod breaking;
mod trunk;
mod upkeep;

mod config;
mod control;
mod policies;

mod admin;
mod audit;
mod metrics;
#[cfg(feature = "otel")]
mod otel;

mod check;
mod chores;
mod demo;

mod descriptors;
mod doors;
mod exit;
mod logging;
mod offspring;
mod prefix_mark;
mod private_redis;
mod random;
mod service;
mod sockets;
mod stop;
mod sweep;
mod token_file;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
