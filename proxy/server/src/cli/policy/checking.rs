//! `lockwarden policy check`: the policies of a configuration, tested with sample requests. Needs neither Redis nor a proxy.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use lockwarden_control::ruleset::load_policies::chain_names;
use serde::Serialize;

use super::asking::near_the_limit;
use crate::cli::api_client::{ApiError, load_policies_of};
use crate::cli::output::{Output, Table};

#[derive(Args, Debug)]
pub(super) struct CheckArgs {
    /// The configuration
    #[arg(short, long, value_name = "FILE", env = "LOCKWARDEN_CONFIG")]
    config: PathBuf,
    #[command(flatten)]
    output: Output,
}

/// A policy of a namespace.
#[derive(Serialize)]
struct Checked {
    namespace: String,
    policy: String,
    version: String,
    sha256: String,
    judges: Vec<&'static str>,
    /// The most fuel that a sample request burnt, and the limit.
    most_fuel: u64,
    fuel_limit: u64,
}

pub(super) fn check(args: &CheckArgs) -> Result<ExitCode, ApiError> {
    let (_host, config, generation) = load_policies_of(&args.config)?;
    let mut all = Vec::new();
    for (id, namespace) in chain_names(&config) {
        for tried in generation.tried(id) {
            let info = generation.policies().iter().find(|info| info.name == tried.name);
            all.push(Checked {
                namespace: namespace.clone(),
                policy: tried.name.to_string(),
                version: info.and_then(|info| info.version.as_deref()).unwrap_or_default().to_owned(),
                sha256: info.map(|info| info.sha256.clone()).unwrap_or_default(),
                judges: tried.judges.iter().map(|operation| operation.word()).collect(),
                most_fuel: tried.most_fuel,
                fuel_limit: tried.fuel_limit,
            });
        }
    }
    args.output.print(&all, |screen| {
        Table::of(&all)
            .left("NAMESPACE", |one| one.namespace.as_str())
            .left("POLICY", |one| one.policy.as_str())
            .left("VERSION", |one| one.version.as_str())
            .left("SHA256", |one| one.sha256.get(..12).unwrap_or_default())
            .right("MOST FUEL", |one| near_the_limit(one.most_fuel, Some(one.fuel_limit)))
            .left("JUDGES", |one| one.judges.join(", "))
            .show(screen)
    })?;
    Ok(ExitCode::SUCCESS)
}
