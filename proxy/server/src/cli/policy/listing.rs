//! `lockwarden policy list`: the built-in policies.

use std::process::ExitCode;

use clap::Args;
use lockwarden_lock::namespace::NamespaceId;
use lockwarden_policy::{BUILT_IN_NAMES, ChainSpec, DEFAULT_CHAIN, builtins};
use serde::Serialize;

use crate::cli::api_client::{ApiError, policy_host};
use crate::cli::output::{Output, Table};

#[derive(Args, Debug)]
pub(super) struct ListArgs {
    #[command(flatten)]
    output: Output,
}

/// A built-in policy.
#[derive(Serialize)]
struct Listed {
    policy: &'static str,
    version: &'static str,
    sha256: String,
    /// Used by a namespace that names no policies.
    by_default: bool,
    judges: Vec<&'static str>,
}

pub(super) fn list(args: &ListArgs) -> Result<ExitCode, ApiError> {
    let usage = |words: String| ApiError::Usage(words);
    let policies = BUILT_IN_NAMES.map(|name| (name.to_owned(), Vec::new())).to_vec();
    let chain = ChainSpec { namespace: "list".to_owned(), policies };
    let generation = policy_host()?.load(&[], &[chain]).map_err(|errors| {
        let words: Vec<String> = errors.iter().map(ToString::to_string).collect();
        usage(words.join("; "))
    })?;
    let judges = |name: &str| {
        let mut tried = generation.tried(NamespaceId(0));
        let found = tried.find(|tried| *tried.name == *name);
        found.map_or_else(Vec::new, |tried| tried.judges.iter().map(|operation| operation.word()).collect())
    };
    let listed: Vec<Listed> = (builtins().iter())
        .map(|policy| Listed {
            policy: policy.name,
            version: policy.version,
            sha256: policy.sha256(),
            by_default: DEFAULT_CHAIN.contains(&policy.name),
            judges: judges(policy.name),
        })
        .collect();
    args.output.print(&listed, |screen| {
        Table::of(&listed)
            .left("POLICY", |one| one.policy)
            .left("VERSION", |one| one.version)
            .left("SHA256", |one| one.sha256.get(..12).unwrap_or_default())
            .left("BY DEFAULT", |one| if one.by_default { "yes" } else { "no" })
            .left("JUDGES", |one| match one.judges.is_empty() {
                true => "what its rules say".to_owned(),
                false => one.judges.join(", "),
            })
            .show(screen)
    })?;
    Ok(ExitCode::SUCCESS)
}
