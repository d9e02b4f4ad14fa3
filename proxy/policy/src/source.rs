//! The sources of policies and their limits: those that ship with the proxy, and files of the operator. Nothing is read
//! or compiled here; the loader does that.

use std::path::PathBuf;
use std::time::Duration;

use crate::digest::{hex, sha256};

/// A policy to be loaded.
#[derive(Clone, Debug)]
pub struct PolicySource {
    /// The name that chains, metrics, records and error replies use.
    pub name: String,
    /// The module.
    pub module: ModuleSource,
    /// The SHA-256 that the module's bytes must have.
    pub sha256: Option<[u8; 32]>,
    /// Its limits.
    pub limits: Limits,
}

/// The location of a module's bytes: a component, or a core module with the `component-type` section of `wit-bindgen`.
#[derive(Clone, Debug)]
pub enum ModuleSource {
    /// In this binary.
    BuiltIn(&'static BuiltIn),
    /// In a file.
    File(PathBuf),
    /// In memory.
    Bytes(Vec<u8>),
    /// In memory, fetched from another place.
    Fetched {
        /// The place, for messages.
        from: String,
        /// The module.
        bytes: Vec<u8>,
    },
}

impl PolicySource {
    /// A built-in policy with its usual limits.
    #[must_use]
    pub fn built_in(policy: &'static BuiltIn) -> PolicySource {
        PolicySource {
            name: policy.name.to_owned(),
            module: ModuleSource::BuiltIn(policy),
            sha256: None,
            limits: Limits::default(),
        }
    }
}

/// The limits of one instance of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The CPU time of its thread for one decision, accurate to a millisecond or two: so a policy is not blamed for a
    /// busy machine.
    pub deadline: Duration,
    /// Linear memory, in bytes; at most 64 MiB.
    pub memory_bytes: usize,
    /// Roughly the instructions of one decision; the limit that stops a loop. Configuring may use ten times as much.
    pub fuel: u64,
    /// The text of an answer, in bytes.
    pub output_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { deadline: Duration::from_millis(2), memory_bytes: 8 << 20, fuel: 1_000_000, output_bytes: 4 << 10 }
    }
}

/// A policy that ships with the proxy.
#[derive(Debug)]
pub struct BuiltIn {
    /// Its name.
    pub name: &'static str,
    /// Its version: the proxy's.
    pub version: &'static str,
    /// It only gets the kind of a question, and is asked once about each kind.
    pub(crate) judges_kinds: bool,
    pub(crate) module: &'static [u8],
}

impl BuiltIn {
    /// The SHA-256 of its module, in hex.
    #[must_use]
    pub fn sha256(&self) -> String {
        hex(&sha256(self.module))
    }
}

/// The policies of a namespace that sets none, in their order.
pub const DEFAULT_CHAIN: [&str; 3] = ["owner-token", "fencing", "ttl-ceiling"];

/// The policy that evaluates `[[namespace.rule]]`.
pub const RULES: &str = "rules";

/// The names of the policies that ship with the proxy: those of the default chain, in its order, and `rules`.
pub const BUILT_IN_NAMES: [&str; 4] = [DEFAULT_CHAIN[0], DEFAULT_CHAIN[1], DEFAULT_CHAIN[2], RULES];

/// A policy that ships with the proxy, by the name of its module.
macro_rules! built_in {
    ($name:literal, judges_kinds: $judges_kinds:literal) => {
        BuiltIn {
            name: $name,
            version: env!("CARGO_PKG_VERSION"),
            judges_kinds: $judges_kinds,
            module: include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".wasm")),
        }
    };
}

static BUILT_IN: [BuiltIn; BUILT_IN_NAMES.len()] = [
    built_in!("owner-token", judges_kinds: true),
    built_in!("fencing", judges_kinds: true),
    built_in!("ttl-ceiling", judges_kinds: true),
    built_in!("rules", judges_kinds: false),
];

/// The policy of this name that ships with the proxy.
#[must_use]
pub fn builtin(name: &str) -> Option<&'static BuiltIn> {
    BUILT_IN.iter().find(|policy| policy.name == name)
}

/// The policies that ship with the proxy, in the order of [`BUILT_IN_NAMES`].
#[must_use]
pub fn builtins() -> &'static [BuiltIn] {
    &BUILT_IN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_its_module() {
        assert_eq!(BUILT_IN.each_ref().map(|policy| policy.name), BUILT_IN_NAMES);
    }
}
