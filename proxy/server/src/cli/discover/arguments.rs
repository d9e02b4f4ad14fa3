//! The arguments of `lockwarden discover`.

use clap::{Args, ValueEnum};

use super::super::fleet::FleetArgs;

#[derive(Args, Debug)]
pub(crate) struct DiscoverArgs {
    /// Watch a Redis by MONITOR for so many seconds; no proxy is needed
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3_600), conflicts_with = "from_keys")]
    pub(super) from_monitor: Option<u64>,
    /// Look at the keys that are there now, by SCAN; no proxy is needed
    #[arg(long)]
    pub(super) from_keys: bool,
    /// With --from-monitor: give up where the server does more commands a second than this
    #[arg(long, value_name = "RATE", default_value_t = 20_000)]
    pub(super) max_rate: u64,
    /// With --from-keys: look at so many keys at most
    #[arg(long, value_name = "COUNT", default_value_t = 100_000)]
    pub(super) max_keys: u64,
    /// The server, where it is not that of the configuration
    #[arg(long, value_name = "URL")]
    pub(super) backend_url: Option<String>,
    /// The form of the answer
    #[arg(short, long, value_enum, default_value_t = Form::Text)]
    pub(super) output: Form,
    #[command(flatten)]
    pub(super) fleet: FleetArgs,
}

/// What is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    /// For people
    Text,
    /// Namespaces, to be pasted into the configuration
    Toml,
    /// For programs: what the admin address answers
    Json,
}
