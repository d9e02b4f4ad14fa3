//! The keys at the top of the file about modules that are not local files.

use std::path::PathBuf;

use super::reader::{Reader, Section};

/// How such modules are fetched, and which are accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeliveryConfig {
    /// A module has to be pinned or signed.
    pub(crate) require_signed: bool,
    /// The folder in which fetched modules are kept.
    pub(crate) policy_cache: Option<PathBuf>,
    /// The file with the logins for registries, in Docker's format.
    pub(crate) registry_auth_file: Option<PathBuf>,
}

pub(super) fn read(reader: &mut Reader<'_>, top: &Section<'_, '_>) -> DeliveryConfig {
    DeliveryConfig {
        require_signed: reader.boolean(top, "require_signed").is_some_and(|found| found.value),
        policy_cache: reader.file(top, "policy_cache").map(|found| found.value),
        registry_auth_file: reader.file(top, "registry_auth_file").map(|found| found.value),
    }
}
