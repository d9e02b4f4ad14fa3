//! `lockwarden version`: the build and its policies; on request also those of a configuration. A bug report needs it. For
//! running proxies, `lockwarden check --fleet` shows it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use lockwarden_console::view::api::{PolicyDigest, Version};
use lockwarden_control::ruleset::activate;
use serde::Serialize;

use super::api_client::{ApiError, finish, load_policies_of};
use super::output::{Output, plain};

#[derive(Args, Debug)]
pub(super) struct VersionArgs {
    /// Also the policies of this configuration, as they would be loaded
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// The printed data; also the JSON.
#[derive(Serialize)]
struct Told {
    #[serde(flatten)]
    this: Version,
    /// The policies of the named configuration.
    #[serde(skip_serializing_if = "Option::is_none")]
    configured: Option<Vec<PolicyDigest>>,
    /// The meaning of the named configuration for locks, as a hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    configured_hash: Option<String>,
}

/// Prints the version.
pub(super) fn version(args: &VersionArgs) -> ExitCode {
    finish(told(args))
}

fn told(args: &VersionArgs) -> Result<ExitCode, ApiError> {
    let configured = args.config.as_deref().map(configured).transpose()?;
    let (configured, configured_hash) = configured.unzip();
    let told = Told { this: Version::of_this(), configured, configured_hash };
    args.output.print(&told, |_| told.words(args.config.as_deref()))?;
    Ok(ExitCode::SUCCESS)
}

/// The policies that a configuration names, loaded as the proxy would, and its hash.
fn configured(file: &Path) -> Result<(Vec<PolicyDigest>, String), ApiError> {
    let (_host, config, generation) = load_policies_of(file)?;
    let policies = generation.policies().iter().map(PolicyDigest::of);
    let meaning = activate::meaning(&config, &generation);
    Ok((policies.collect(), meaning.hash().to_owned()))
}

impl Told {
    fn words(&self, config: Option<&Path>) -> String {
        let mut text = built(&self.this);
        text.push_str(&policies("built-in policy", &self.this.built_in));
        if self.this.compiled_ahead {
            text.push_str("built-in policies are in this binary as machine code\n");
        }
        if let (Some(configured), Some(config)) = (&self.configured, config) {
            let config = config.display().to_string();
            // Writing to a String cannot fail, here and below.
            let _ = writeln!(text, "\n{}:", plain(&config));
            text.push_str(&policies("policy", configured));
            text.push_str(&config_hash(self.configured_hash.as_deref()));
        }
        text
    }
}

fn built(version: &Version) -> String {
    let text = [
        format!("lockwarden {}", version.version),
        format!("revision {}", version.revision),
        format!("policy interface lockwarden:policy {}, on Wasmtime {}", version.policy_interface, version.wasmtime),
        format!("{} {}", version.os, version.arch),
    ];
    text.iter().map(|line| format!("{}\n", plain(line))).collect()
}

fn config_hash(hash: Option<&str>) -> String {
    hash.map_or(String::new(), |hash| format!("config hash {}\n", plain(hash)))
}

fn policies(what: &str, policies: &[PolicyDigest]) -> String {
    let line = |policy: &PolicyDigest| {
        let line = format!("{what} {} sha256 {}", policy.name, policy.sha256);
        format!("{}\n", plain(&line))
    };
    policies.iter().map(line).collect()
}
