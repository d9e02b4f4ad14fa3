//! The keys on top of the file that are about modules from elsewhere.

use std::path::PathBuf;

use super::reader::{Reader, Section};

/// How modules come from elsewhere, and which of them are taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeliveryConfig {
    /// A module has to be pinned or signed.
    pub(crate) require_signed: bool,
    /// The folder in which those are kept that came from elsewhere.
    pub(crate) policy_cache: Option<PathBuf>,
    /// Logins of registries, in Docker's form.
    pub(crate) registry_auth_file: Option<PathBuf>,
}

pub(super) fn read(reader: &mut Reader<'_>, top: &Section<'_, '_>) -> DeliveryConfig {
    DeliveryConfig {
        require_signed: reader.boolean(top, "require_signed").is_some_and(|found| found.value),
        policy_cache: reader.file(top, "policy_cache").map(|found| found.value),
        registry_auth_file: reader.file(top, "registry_auth_file").map(|found| found.value),
    }
}
