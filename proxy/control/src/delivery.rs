//! How a proxy gets modules that are not files beside its configuration: from a web server or a registry, into a cache,
//! and through a check of their signature. It runs where a configuration is loaded, and no client waits for it.

mod cache;
mod files;
mod http;
mod registry;
mod signature;

use std::io;
use std::path::{Path, PathBuf};

use lockwarden_policy::{MAX_MODULE_BYTES, ModuleSource};
use sha2::{Digest as _, Sha256};

use crate::config::{DeliveryConfig, ModulePlace, PolicyModule};
use cache::Cache;
use files::{Delivered, MAX_SIGNATURE, read_beside};
use http::{Http, HttpError};
use registry::RegistryError;
use signature::SignatureError;

/// Why a module could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    #[error("{place}: {source}")]
    Web { place: String, source: HttpError },
    #[error("{place}: {source}")]
    Registry { place: String, source: RegistryError },
    #[error("cannot read {}: {source}", file.display())]
    Read { file: PathBuf, source: io::Error },
    #[error("{place}: {source}")]
    Signature { place: String, source: SignatureError },
}

/// The module of a policy, fetched if it is not a local file. Its pin is left to the loader, which compares it in any
/// case.
///
/// # Errors
/// It is not there, or is not signed as its `[[policy]]` says.
pub(crate) fn deliver(module: &PolicyModule, settings: &DeliveryConfig) -> Result<ModuleSource, DeliveryError> {
    let wants_signature = !module.keys.is_empty();
    let is_local = matches!(module.place, ModulePlace::File(_));
    if let (ModulePlace::File(path), false, None) = (&module.place, wants_signature, &module.min_version) {
        return Ok(ModuleSource::File(path.clone()));
    }
    let cache = Cache::of(settings).filter(|_| !is_local);
    let kept = module.sha256.and_then(|pin| cache.as_ref()?.find(&pin));
    let place = module.place.to_string();
    let is_signed = |it: &Delivered| {
        let checked = signature::check(module, &it.bytes, it.signature.as_deref());
        checked.map_err(|source| DeliveryError::Signature { place: place.clone(), source })
    };
    // A cached module with the wrong signature may have the right one at its source: its key was replaced.
    let delivered = match kept.filter(|kept| is_signed(kept).is_ok()) {
        Some(kept) => kept,
        None => {
            let got = get(&module.place, settings.registry_auth_file.as_deref(), wants_signature)?;
            is_signed(&got)?;
            got
        }
    };
    if let Some(cache) = cache {
        let sha256: [u8; 32] = Sha256::digest(&delivered.bytes).into();
        if module.sha256.is_none_or(|pin| pin == sha256) {
            cache.keep(&sha256, &delivered);
        }
    }
    Ok(ModuleSource::Fetched { from: place, bytes: delivered.bytes })
}

/// A module at any place, with no further checks.
///
/// # Errors
/// It is not there.
pub fn fetch(place: &ModulePlace, registry_auth_file: Option<&Path>) -> Result<ModuleSource, DeliveryError> {
    let bytes = get(place, registry_auth_file, false)?.bytes;
    Ok(ModuleSource::Fetched { from: place.to_string(), bytes })
}

fn get(
    place: &ModulePlace,
    registry_auth_file: Option<&Path>,
    wants_signature: bool,
) -> Result<Delivered, DeliveryError> {
    let at = place.to_string();
    match place {
        ModulePlace::File(path) => read_beside(path).map_err(|(file, source)| DeliveryError::Read { file, source }),
        ModulePlace::Registry(registry) => registry::pull(&Http::new(), registry, registry_auth_file)
            .map_err(|source| DeliveryError::Registry { place: at, source }),
        ModulePlace::Web(url) => {
            let http = Http::new();
            let file = |url: &str, most| http.file(url, most);
            let got = file(url, MAX_MODULE_BYTES).and_then(|bytes| {
                let signature = match wants_signature {
                    true => Some(file(&signature_of(url), MAX_SIGNATURE)?),
                    false => None,
                };
                Ok(Delivered::new(bytes, signature))
            });
            got.map_err(|source| DeliveryError::Web { place: at, source })
        }
    }
}

/// The URL of a file's signature: its path with `.minisig` appended.
fn signature_of(url: &str) -> String {
    match url.split_once('?') {
        Some((path, query)) => format!("{path}.minisig?{query}"),
        None => format!("{url}.minisig"),
    }
}
