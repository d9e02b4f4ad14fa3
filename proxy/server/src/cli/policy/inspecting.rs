//! `lockwarden policy inspect`: what a module is, without running it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use super::source::source;
use crate::cli::api_client::{ApiError, policy_host};
use crate::cli::output;
use crate::cli::output::{Format, Output, plain};
use crate::text::numbers::number;

#[derive(Args, Debug)]
pub(super) struct InspectArgs {
    /// A WebAssembly module, or the name of a policy that ships with lockwarden
    module: PathBuf,
    #[command(flatten)]
    output: Output,
}

#[derive(Serialize)]
struct Inspected {
    module: String,
    sha256: String,
    bytes: usize,
    component: bool,
    contract: Option<String>,
    calls: Vec<String>,
}

pub(super) fn inspect(args: &InspectArgs) -> Result<ExitCode, ApiError> {
    let found = policy_host()?.inspect(&source(&args.module)).map_err(|error| ApiError::Usage(error.to_string()))?;
    let inspected = Inspected {
        module: args.module.display().to_string(),
        sha256: found.sha256,
        bytes: found.bytes,
        component: found.is_component,
        contract: found.contract,
        calls: found.calls,
    };
    output::print(&match args.output.output {
        Format::Json => output::json(&inspected),
        Format::Text => in_words(&inspected),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn in_words(inspected: &Inspected) -> String {
    let Inspected { module, sha256, bytes, component, contract, calls } = inspected;
    let kind = if *component { "a component" } else { "a module, which is made a component when it is loaded" };
    let contract = contract.as_deref().unwrap_or("of any version");
    let calls = if calls.is_empty() { "nothing".to_owned() } else { calls.join(", ") };
    format!(
        "{}: {} bytes, {kind}\nsha256    {sha256}\ncontract  lockwarden:policy {contract}\ncalls     {calls}\n",
        plain(module),
        number(*bytes as u64),
    )
}
