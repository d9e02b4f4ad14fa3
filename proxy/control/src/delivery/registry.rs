//! Pulls a module from an OCI registry: its manifest, and the layer with the module. The registry's length and digest
//! are compared with what was received.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use lockwarden_lock::token::hex;
use lockwarden_policy::MAX_MODULE_BYTES;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::files::{Delivered, read};
use super::http::{Got, Http, HttpError};
use crate::config::RegistryPlace;

const MAX_MANIFEST: u64 = 1 << 20;
const MAX_TOKEN: u64 = 64 << 10;
const MAX_AUTH_FILE: u64 = 1 << 20;
/// The manifest types that are understood.
const MANIFESTS: &str =
    "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json";
/// The media types of layers that are modules.
const MODULES: [&str; 3] = [
    "application/wasm",
    "application/vnd.wasm.content.layer.v1+wasm",
    "application/vnd.module.wasm.content.layer.v1+wasm",
];
/// The annotation, on the layer or on the manifest, that contains the module's signature.
const SIGNATURE: &str = "dev.lockwarden.minisig";

/// Why a pull failed.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("{what}: the registry answers {status}")]
    Status { what: &'static str, status: u16 },
    #[error("the registry wants a login, {why}")]
    Login { why: &'static str },
    #[error("cannot read {}: {source}", file.display())]
    AuthFile { file: PathBuf, source: io::Error },
    #[error("the registry's {what} is not what it should be: {source}")]
    Json { what: &'static str, source: serde_json::Error },
    #[error("it is an index of several images, and a policy is one module; name that one")]
    Index,
    #[error("of its {0} layers none, or more than one, is a module: push one file as application/wasm")]
    NoModule(usize),
    #[error("the digest {0:?} of its layer is no SHA-256")]
    Digest(String),
    #[error("the registry says that its module has {0} bytes, and {MAX_MODULE_BYTES} are the most")]
    TooLarge(u64),
    #[error("the {what} is not what its digest says: the registry, or somebody on the way, gives something else")]
    Other { what: &'static str },
}

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    layers: Vec<Layer>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    manifests: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Layer {
    #[serde(rename = "mediaType", default)]
    media_type: String,
    digest: String,
    size: u64,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// A registry, and the login for it.
struct Registry<'a> {
    http: &'a Http,
    place: &'a RegistryPlace,
    base: String,
    auth_file: Option<&'a Path>,
}

pub(super) fn pull(http: &Http, place: &RegistryPlace, auth_file: Option<&Path>) -> Result<Delivered, RegistryError> {
    let scheme = if is_on_this_machine(&place.host) { "http" } else { "https" };
    let base = format!("{scheme}://{}/v2/{}", place.host, place.repository);
    let registry = Registry { http, place, base, auth_file };
    let reference = place.manifest.as_ref().map_or(place.tag.clone(), |digest| format!("sha256:{digest}"));
    let mut login = None;
    let bytes = registry.get("manifest", &format!("manifests/{reference}"), &mut login, MAX_MANIFEST)?;
    if place.manifest.as_ref().is_some_and(|digest| digest_of(&bytes) != *digest) {
        return Err(RegistryError::Other { what: "manifest" });
    }
    let manifest: Manifest =
        serde_json::from_slice(&bytes).map_err(|source| RegistryError::Json { what: "manifest", source })?;
    if manifest.manifests.is_some() {
        return Err(RegistryError::Index);
    }
    let layer = module_of(&manifest.layers)?;
    let digest = layer.digest.strip_prefix("sha256:").filter(|digest| digest.len() == 64);
    let digest = digest.filter(|digest| digest.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let digest = digest.ok_or_else(|| RegistryError::Digest(layer.digest.chars().take(100).collect()))?;
    if layer.size > MAX_MODULE_BYTES {
        return Err(RegistryError::TooLarge(layer.size));
    }
    let module = registry.get("module", &format!("blobs/sha256:{digest}"), &mut login, layer.size)?;
    if module.len() as u64 != layer.size || digest_of(&module) != digest.to_ascii_lowercase() {
        return Err(RegistryError::Other { what: "module" });
    }
    let signature = layer.annotations.get(SIGNATURE).or_else(|| manifest.annotations.get(SIGNATURE));
    Ok(Delivered { bytes: module, signature: signature.cloned() })
}

/// The only layer that is a module, or the only layer.
fn module_of(layers: &[Layer]) -> Result<&Layer, RegistryError> {
    let mut modules = layers.iter().filter(|layer| MODULES.contains(&&*layer.media_type));
    match (modules.next(), modules.next(), layers) {
        (Some(module), None, _) | (None, _, [module]) => Ok(module),
        _ => Err(RegistryError::NoModule(layers.len())),
    }
}

/// A registry on the same machine is used without TLS, as Docker does.
fn is_on_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn digest_of(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

impl Registry<'_> {
    fn get(
        &self,
        what: &'static str,
        path: &str,
        login: &mut Option<String>,
        most: u64,
    ) -> Result<Vec<u8>, RegistryError> {
        let url = format!("{}/{path}", self.base);
        let ask = |login: Option<&str>| {
            let headers =
                [Some(("accept", MANIFESTS)).filter(|_| what == "manifest"), login.map(|by| ("authorization", by))];
            let headers: Vec<_> = headers.into_iter().flatten().collect();
            self.http.get(&url, &headers, most)
        };
        let mut got = ask(login.as_deref())?;
        if let (401, Some(challenge), None) = (got.status, &got.challenge, &*login) {
            *login = Some(self.login(challenge)?);
            got = ask(login.as_deref())?;
        }
        match got {
            Got { status: 200, body, .. } => Ok(body),
            Got { status: 401 | 403, .. } => Err(RegistryError::Login {
                why: match self.auth_file {
                    Some(_) => "and does not let in the one that registry_auth_file has for it",
                    None => "and there is no registry_auth_file",
                },
            }),
            Got { status, .. } => Err(RegistryError::Status { what, status }),
        }
    }

    /// Logs in to a registry that requires it.
    fn login(&self, challenge: &str) -> Result<String, RegistryError> {
        let (scheme, rest) = challenge.split_once(' ').unwrap_or((challenge, ""));
        let basic = self.basic()?;
        if scheme.eq_ignore_ascii_case("basic") {
            let none = RegistryError::Login { why: "and registry_auth_file has none for it" };
            return basic.ok_or(none);
        }
        let part = |name: &str| {
            let (_, value) = rest.split_once(&format!("{name}=\""))?;
            value.split_once('"').map(|(value, _)| value)
        };
        let unknown = RegistryError::Login { why: "of a kind that lockwarden does not know" };
        let Some(realm) = part("realm").filter(|_| scheme.eq_ignore_ascii_case("bearer")) else {
            return Err(unknown);
        };
        let is_safe =
            realm.starts_with("https://") || (self.base.starts_with("http://") && realm.starts_with("http://"));
        if !is_safe {
            return Err(RegistryError::Login { why: "at an address without TLS" });
        }
        let scope = format!("repository:{}:pull", self.place.repository);
        let encode =
            |text: &str| percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string();
        let mut url = format!("{realm}?scope={}", encode(&scope));
        if let Some(service) = part("service") {
            url.push_str(&format!("&service={}", encode(service)));
        }
        let headers: Vec<_> = basic.iter().map(|basic| ("authorization", &**basic)).collect();
        let token = match self.http.get(&url, &headers, MAX_TOKEN)? {
            Got { status: 200, body, .. } => body,
            Got { status, .. } => return Err(RegistryError::Status { what: "login", status }),
        };
        #[derive(Deserialize)]
        struct Token {
            #[serde(alias = "access_token")]
            token: String,
        }
        let token: Token =
            serde_json::from_slice(&token).map_err(|source| RegistryError::Json { what: "login", source })?;
        Ok(format!("Bearer {}", token.token))
    }

    /// The entry for this registry in the file of logins, which has Docker's format.
    fn basic(&self) -> Result<Option<String>, RegistryError> {
        #[derive(Deserialize)]
        struct File {
            #[serde(default)]
            auths: BTreeMap<String, Login>,
        }
        #[derive(Deserialize)]
        struct Login {
            auth: Option<String>,
        }
        let Some(path) = self.auth_file else {
            return Ok(None);
        };
        let text =
            read(path, MAX_AUTH_FILE).map_err(|source| RegistryError::AuthFile { file: path.to_owned(), source })?;
        let file: File = serde_json::from_slice(&text)
            .map_err(|source| RegistryError::Json { what: "login in registry_auth_file", source })?;
        let login =
            file.auths.get(&self.place.host).or_else(|| file.auths.get(&format!("https://{}", self.place.host)));
        Ok(login.and_then(|login| login.auth.as_ref()).map(|auth| format!("Basic {auth}")))
    }
}
