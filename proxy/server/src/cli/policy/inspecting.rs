//! `lockwarden policy inspect`: describes a module without running it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use lockwarden_control::text::numbers::number;
use lockwarden_policy::{Metadata, SettingInfo};
use serde::Serialize;

use super::project::limits_in_toml;
use super::source::source_at;
use super::wording::calls_in_words;
use crate::cli::api_client::{ApiError, policy_host};
use crate::cli::output::{Output, Screen, Table, plain};

#[derive(Args, Debug)]
pub(super) struct InspectArgs {
    /// A WebAssembly module, also https://… or oci://…, or the name of a policy that ships with lockwarden
    module: PathBuf,
    /// Logins of registries, in Docker's form
    #[arg(long, value_name = "FILE")]
    registry_auth_file: Option<PathBuf>,
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
    for_debugging: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Metadata>,
    /// Why the author's metadata cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata_error: Option<String>,
}

pub(super) fn inspect(args: &InspectArgs) -> Result<ExitCode, ApiError> {
    let source = source_at(&args.module, args.registry_auth_file.as_deref())?;
    let found = policy_host()?.inspect(&source).map_err(|error| ApiError::Usage(error.to_string()))?;
    let (metadata, metadata_error) = match found.metadata {
        Ok(metadata) => (metadata, None),
        Err(why) => (None, Some(why)),
    };
    let inspected = Inspected {
        module: args.module.display().to_string(),
        sha256: found.sha256,
        bytes: found.bytes,
        component: found.is_component,
        contract: found.contract,
        calls: found.calls,
        for_debugging: found.is_for_debugging,
        metadata,
        metadata_error,
    };
    args.output.print(&inspected, |_| in_words(&inspected))?;
    Ok(ExitCode::SUCCESS)
}

fn in_words(inspected: &Inspected) -> String {
    let Inspected { module, sha256, bytes, component, contract, calls, .. } = inspected;
    let kind = if *component { "a component" } else { "a module, which is made a component when it is loaded" };
    let contract = contract.as_deref().unwrap_or("of any version");
    let calls = calls_in_words(calls);
    let mut text = format!(
        "{}: {} bytes, {kind}\nsha256    {sha256}\ncontract  lockwarden:policy {contract}\ncalls     {calls}\n",
        plain(module),
        number(*bytes as u64),
    );
    if inspected.for_debugging {
        text.push_str("debugging it says to test and run what it prints; no proxy loads it\n");
    }
    if let Some(why) = &inspected.metadata_error {
        text.push_str(&format!("author    what its author says of it cannot be read: {}\n", plain(why)));
    }
    if let Some(Metadata { name, version, summary, author, limits, settings, samples: _ }) = &inspected.metadata {
        text.push_str(&format!("policy    {} {}\n", plain(name), plain(version)));
        for (what, said) in [("summary", summary), ("author", author)] {
            if let Some(said) = said {
                text.push_str(&format!("{what:9} {}\n", plain(said)));
            }
        }
        let limits: Vec<String> = limits_in_toml(limits).into_iter().map(|(key, of)| format!("{key} = {of}")).collect();
        if !limits.is_empty() {
            text.push_str(&format!("needs     {}\n", limits.join(", ")));
        }
        if !settings.is_empty() {
            text.push_str(&format!("\n{}", settings_in_words(settings)));
        }
    }
    text
}

fn settings_in_words(settings: &[SettingInfo]) -> String {
    let default = |setting: &SettingInfo| match (&setting.default, setting.required) {
        (Some(default), _) => plain(default).into_owned(),
        (None, true) => "required".to_owned(),
        (None, false) => String::new(),
    };
    let kind = |setting: &SettingInfo| match (setting.choices.is_empty(), &setting.min, &setting.max) {
        (false, ..) => plain(&setting.choices.join(" or ")).into_owned(),
        (true, None, None) => setting.kind.word().to_owned(),
        (true, min, max) => {
            let bound = |bound: &Option<String>| plain(bound.as_deref().unwrap_or_default()).into_owned();
            format!("{} {}..{}", setting.kind.word(), bound(min), bound(max))
        }
    };
    Table::of(settings)
        .left("SETTING", |setting| plain(&setting.name).into_owned())
        .left("TYPE", kind)
        .left("DEFAULT", default)
        .cut("MEANING", |setting| plain(setting.text.as_deref().unwrap_or_default()).into_owned())
        .show(Screen::there_is())
}
