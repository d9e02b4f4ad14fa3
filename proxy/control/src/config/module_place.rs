//! Where the module of a policy is: a file, a web server, or a registry.

use std::fmt;
use std::path::PathBuf;

use super::suggest::quoted;
use super::value;

/// Where a module is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModulePlace {
    /// The path; a relative one was already resolved against the configuration file's directory.
    File(PathBuf),
    /// The whole URL.
    Web(String),
    Registry(RegistryPlace),
}

/// A module in an OCI registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryPlace {
    /// The host, with its port where it has one.
    pub(crate) host: String,
    /// Such as `locks/team-rules`.
    pub(crate) repository: String,
    /// A tag.
    pub(crate) tag: String,
    /// The SHA-256 of the manifest, in hex, if it is pinned; the tag is then only informative.
    pub(crate) manifest: Option<String>,
}

impl fmt::Display for ModulePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModulePlace::File(path) => path.display().fmt(f),
            ModulePlace::Web(url) => f.write_str(url),
            ModulePlace::Registry(RegistryPlace { host, repository, tag, manifest }) => {
                write!(f, "oci://{host}/{repository}:{tag}")?;
                manifest.as_ref().map_or(Ok(()), |digest| write!(f, "@sha256:{digest}"))
            }
        }
    }
}

/// Why a text names no place of a module.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    #[error("is empty; write the path of a component, https://… or oci://…")]
    Empty,
    #[error("{} goes over an open connection; write https://", quoted(.0))]
    Open(String),
    #[error("{} holds a login; that of a registry belongs into registry_auth_file", quoted(.0))]
    Login(String),
    #[error("{} is no address of a file on a web server; write https://HOST/PATH", quoted(.0))]
    Web(String),
    #[error(
        "{} is no module in a registry; write oci://HOST/REPOSITORY:TAG, with @sha256:… of the manifest behind it to pin that",
        quoted(.0)
    )]
    Registry(String),
}

/// The place of a module that a text names. `beside` makes a path of a text that is none of the other kinds.
pub fn module_place(text: &str, beside: impl FnOnce(&str) -> PathBuf) -> Result<ModulePlace, PlaceError> {
    let Some((scheme, rest)) = text.split_once("://") else {
        return match text {
            "" => Err(PlaceError::Empty),
            path => Ok(ModulePlace::File(beside(path))),
        };
    };
    let said = || text.to_owned();
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\<>#".contains(&byte));
    match scheme {
        "http" => Err(PlaceError::Open(said())),
        "https" | "oci" if host.contains('@') => Err(PlaceError::Login(said())),
        "https" if host.is_empty() || path.is_empty() || !is_plain(rest) => Err(PlaceError::Web(said())),
        "https" => Ok(ModulePlace::Web(said())),
        "oci" => registry(host, path).map(ModulePlace::Registry).ok_or_else(|| PlaceError::Registry(said())),
        _ => Err(PlaceError::Web(said())),
    }
}

fn registry(host: &str, path: &str) -> Option<RegistryPlace> {
    let (path, manifest) = match path.split_once('@') {
        None => (path, None),
        Some((path, digest)) => {
            let digest = digest.strip_prefix("sha256:")?;
            value::sha256(digest).ok()?;
            (path, Some(digest.to_ascii_lowercase()))
        }
    };
    let (repository, tag) = path.split_once(':').unwrap_or((path, "latest"));
    // As the OCI distribution specification defines them.
    let is_word = |text: &str, most: usize| {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        !text.is_empty() && text.len() <= most && text.bytes().all(known) && !text.starts_with(['.', '-'])
    };
    let is_repository = repository.len() <= 255 && repository.split('/').all(|part| is_word(part, 255));
    let is_host = !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".:-[]".contains(&byte));
    (is_host && is_repository && is_word(tag, 128)).then(|| RegistryPlace {
        host: host.to_owned(),
        repository: repository.to_owned(),
        tag: tag.to_owned(),
        manifest,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(text: &str) -> Result<ModulePlace, PlaceError> {
        module_place(text, |path| PathBuf::from("/here").join(path))
    }

    #[test]
    fn a_place_is_a_path_a_url_or_a_module_in_a_registry() {
        assert_eq!(place("mine.wasm").unwrap(), ModulePlace::File(PathBuf::from("/here/mine.wasm")));
        for text in ["https://corp/p/mine.wasm?v=1", "oci://corp:5000/locks/mine:1.2", "oci://[::1]:5000/mine:1"] {
            assert_eq!(place(text).unwrap().to_string(), text);
        }
        assert_eq!(place("oci://corp/mine").unwrap().to_string(), "oci://corp/mine:latest");
        let pinned = format!("oci://corp/mine:1@sha256:{}", "0a".repeat(32));
        assert_eq!(place(&pinned).unwrap().to_string(), pinned);
    }

    #[test]
    fn what_is_no_place_is_told_with_a_form_that_is_one() {
        for (text, words) in [
            ("", "is empty"),
            ("http://corp/mine.wasm", "open connection"),
            ("https://me:pw@corp/mine.wasm", "registry_auth_file"),
            ("oci://me@corp/mine", "registry_auth_file"),
            ("https://corp", "https://HOST/PATH"),
            ("https://corp/a b", "https://HOST/PATH"),
            ("ftp://corp/a", "https://HOST/PATH"),
            ("oci://corp", "oci://HOST/REPOSITORY:TAG"),
            ("oci://corp/", "oci://HOST/REPOSITORY:TAG"),
            ("oci://corp/../x:1", "oci://HOST/REPOSITORY:TAG"),
            ("oci://corp/mine:1@sha256:12", "oci://HOST/REPOSITORY:TAG"),
            ("oci://corp/mine:1/2", "oci://HOST/REPOSITORY:TAG"),
        ] {
            let error = place(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
