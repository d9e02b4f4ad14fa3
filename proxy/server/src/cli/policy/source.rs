//! A policy named on the command line.

use std::path::{Path, PathBuf};

use lockwarden_control::config::module_place;
use lockwarden_control::delivery::fetch;
use lockwarden_policy::{Limits, ModuleSource, PolicySource, builtin};

use super::project::{FILE, Project};
use crate::cli::api_client::ApiError;

/// The built-in policy with this name; otherwise the file, with the limits that its author says it needs, which its
/// `[[policy]]` will give it.
pub(super) fn source(module: &Path) -> PolicySource {
    of(module, ModuleSource::File(module.to_owned()))
}

/// The same, for a module that may also be on a web server or in a registry.
///
/// # Errors
///
/// If it does not exist.
pub(super) fn source_at(place: &Path, registry_auth_file: Option<&Path>) -> Result<PolicySource, ApiError> {
    let text = place.to_string_lossy();
    if !text.contains("://") {
        return Ok(source(place));
    }
    let usage = |error: &dyn std::fmt::Display| ApiError::Usage(format!("{text}: {error}"));
    let there = module_place(&text, |path| PathBuf::from(path)).map_err(|error| usage(&error))?;
    let module = fetch(&there, registry_auth_file).map_err(|error| ApiError::Usage(error.to_string()))?;
    Ok(of(place, module))
}

fn of(module: &Path, is: ModuleSource) -> PolicySource {
    if let Some(shipped) = module.to_str().and_then(builtin) {
        return PolicySource::built_in(shipped);
    }
    let name = module.file_stem().map(|name| name.to_string_lossy().into_owned());
    let source = PolicySource { name: name.unwrap_or_default(), module: is, sha256: None, limits: Limits::default() };
    source.with_needed_limits()
}

/// The module that was built in this folder.
pub(super) fn built_here() -> Result<PathBuf, ApiError> {
    let here = Path::new("");
    if !here.join(FILE).exists() {
        let why = format!("say --module or --config; or go to the folder of a policy, where {FILE} is");
        return Err(ApiError::Usage(why));
    }
    let module = Project::read(here)?.module(here);
    match module.exists() {
        true => Ok(module),
        false => Err(ApiError::Usage(format!("{} is not there: lockwarden policy build", module.display()))),
    }
}
