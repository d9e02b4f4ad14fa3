//! The folder of a policy: its `policy.toml` sets what is built and describes the policy.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use lockwarden_control::config::{policy_deadline, policy_memory, policy_name};
use lockwarden_policy::{Metadata, NeededLimits, SettingInfo};
use serde::Deserialize;

use super::toml_file;
use crate::cli::api_client::ApiError;

/// The file that marks a folder as a policy's.
pub(super) const FILE: &str = "policy.toml";

/// A language that policies are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(super) enum Language {
    Rust,
    Go,
    C,
    Javascript,
    Python,
}

/// `policy.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Project {
    pub(super) name: Name,
    version: String,
    summary: Option<String>,
    author: Option<String>,
    pub(super) language: Language,
    #[serde(default)]
    limits: Limits,
    /// Its settings, for `check` and `inspect`.
    #[serde(default, rename = "setting")]
    settings: Vec<Said>,
    /// Keys that it permits.
    #[serde(default)]
    samples: Vec<String>,
}

/// The description of a setting, without contradictions.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "SettingInfo")]
struct Said(SettingInfo);

impl TryFrom<SettingInfo> for Said {
    type Error = String;

    fn try_from(info: SettingInfo) -> Result<Said, String> {
        match info.contradiction() {
            Some(contradiction) => Err(format!("setting {}: {contradiction}", info.name)),
            None => Ok(Said(info)),
        }
    }
}

/// A name that is valid in a chain.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Name(pub(super) String);

impl TryFrom<String> for Name {
    type Error = String;

    fn try_from(text: String) -> Result<Name, String> {
        policy_name(&text).map(Name).map_err(|error| error.to_string())
    }
}

/// As in `[[policy]]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Limits {
    memory: Option<Memory>,
    fuel: Option<std::num::NonZeroU64>,
    deadline: Option<Deadline>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
struct Memory(usize);

impl TryFrom<String> for Memory {
    type Error = String;

    fn try_from(text: String) -> Result<Memory, String> {
        policy_memory(&text).map(Memory).map_err(|error| error.to_string())
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
struct Deadline(Duration);

impl TryFrom<String> for Deadline {
    type Error = String;

    fn try_from(text: String) -> Result<Deadline, String> {
        policy_deadline(&text).map(Deadline).map_err(|error| error.to_string())
    }
}

impl Project {
    /// Reads the one in this folder.
    pub(super) fn read(folder: &Path) -> Result<Project, ApiError> {
        Ok(toml_file::read(&folder.join(FILE))?.0)
    }

    /// The path of its built module.
    pub(super) fn module(&self, folder: &Path) -> PathBuf {
        let file = format!("{}.wasm", self.name.0);
        if folder == Path::new(".") { file.into() } else { folder.join(file) }
    }

    /// Its description.
    pub(super) fn metadata(&self) -> Metadata {
        let Limits { memory, fuel, deadline } = &self.limits;
        Metadata {
            name: self.name.0.clone(),
            version: self.version.clone(),
            summary: self.summary.clone(),
            author: self.author.clone(),
            limits: NeededLimits {
                memory_bytes: memory.map(|memory| memory.0),
                fuel: fuel.map(std::num::NonZeroU64::get),
                deadline_ms: deadline.map(|deadline| u64::try_from(deadline.0.as_millis()).unwrap_or(u64::MAX)),
            },
            settings: self.settings.iter().map(|said| said.0.clone()).collect(),
            samples: self.samples.clone(),
        }
    }
}

/// The lines of `[[policy]]` for these limits.
pub(super) fn limits_in_toml(limits: &NeededLimits) -> Vec<(&'static str, String)> {
    let NeededLimits { memory_bytes, fuel, deadline_ms } = limits;
    let memory = memory_bytes.map(|bytes| match bytes % (1 << 20) {
        0 => format!("\"{}MiB\"", bytes >> 20),
        _ => format!("\"{bytes}B\""),
    });
    let lines = [
        ("memory", memory),
        ("fuel", fuel.map(|fuel| fuel.to_string())),
        ("deadline", deadline_ms.map(|ms| format!("\"{ms}ms\""))),
    ];
    lines.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
}
