//! A policy that is named on the command line.

use std::path::Path;

use lockwarden_policy::{Limits, ModuleSource, PolicySource, builtin};

/// The file of this name, or the policy that ships with lockwarden, with the limits of one that names none.
pub(super) fn source(module: &Path) -> PolicySource {
    let shipped = module.to_str().and_then(builtin);
    let name = module.file_stem().map(|name| name.to_string_lossy().into_owned());
    match shipped {
        Some(shipped) => PolicySource::built_in(shipped),
        None => PolicySource {
            name: name.unwrap_or_default(),
            module: ModuleSource::File(module.to_owned()),
            sha256: None,
            limits: Limits::default(),
        },
    }
}
