//! Checks a module's minisign signature. The trusted comment must be the name and the version in the module itself, so
//! that a signed module cannot replace another one, nor an old one a new one.

use lockwarden_policy::Metadata;
use minisign_verify::{PublicKey, Signature};
use semver::Version;

use crate::config::{NEXT, PolicyModule};

/// Why a module is refused.
#[derive(Debug, thiserror::Error)]
pub enum SignatureError {
    #[error("it is not signed, and keys asks for it: minisign -Sm FILE -t 'NAME VERSION', beside it as FILE.minisig")]
    None,
    #[error("its signature is none of minisign: {0}")]
    Form(String),
    #[error("it is not what was signed, or none of keys has signed it")]
    NotByThese,
    #[error("what its author says of it cannot be read: {0}")]
    Metadata(String),
    #[error("it says no name and version itself; lockwarden policy build writes them into it")]
    Nameless,
    #[error("it is signed as {signed:?} and says of itself that it is {own:?}")]
    OtherName { signed: String, own: String },
    #[error("it is {0:?}, which is another policy: a signature counts for the policy of its name")]
    OtherPolicy(String),
    #[error("it is version {is}, and min_version is {least}")]
    TooOld { is: String, least: Version },
}

/// Checks a module against the requirements of its `[[policy]]`.
pub(super) fn check(module: &PolicyModule, bytes: &[u8], signature: Option<&str>) -> Result<(), SignatureError> {
    if module.keys.is_empty() && module.min_version.is_none() {
        return Ok(());
    }
    let signed = match module.keys.is_empty() {
        true => None,
        false => Some(signed_as(module, bytes, signature.ok_or(SignatureError::None)?)?),
    };
    let metadata = Metadata::read(bytes).map_err(SignatureError::Metadata)?.ok_or(SignatureError::Nameless)?;
    if let Some(signed) = signed {
        let own = format!("{} {}", metadata.name, metadata.version);
        if signed != own {
            return Err(SignatureError::OtherName { signed, own });
        }
        if metadata.name != module.name.strip_suffix(NEXT).unwrap_or(&module.name) {
            return Err(SignatureError::OtherPolicy(metadata.name));
        }
    }
    let is_old = |least: &&Version| Version::parse(&metadata.version).map_or(true, |is| is < **least);
    match module.min_version.as_ref().filter(is_old) {
        Some(least) => Err(SignatureError::TooOld { is: metadata.version, least: least.clone() }),
        None => Ok(()),
    }
}

/// The name and version in the trusted comment of a module's signature, if one of the keys made it.
fn signed_as(module: &PolicyModule, bytes: &[u8], signature: &str) -> Result<String, SignatureError> {
    let signature = Signature::decode(signature).map_err(|error| SignatureError::Form(error.to_string()))?;
    let keys = module.keys.iter().filter_map(|key| PublicKey::from_base64(key).ok());
    let mut signs = keys.map(|key| key.verify(bytes, &signature, false).is_ok());
    match signs.any(|signs| signs) {
        true => Ok(signature.trusted_comment().to_owned()),
        false => Err(SignatureError::NotByThese),
    }
}
