//! Reading files of bounded length.

use std::fs::File;
use std::io;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use lockwarden_policy::MAX_MODULE_BYTES;

/// The longest signature: four lines.
pub(super) const MAX_SIGNATURE: u64 = 4 << 10;

/// A fetched module.
pub(super) struct Delivered {
    pub(super) bytes: Vec<u8>,
    /// Its signature, from the file beside it or from the registry.
    pub(super) signature: Option<String>,
}

impl Delivered {
    /// A signature that is not text is reported as malformed.
    pub(super) fn new(bytes: Vec<u8>, signature: Option<Vec<u8>>) -> Delivered {
        Delivered { bytes, signature: signature.map(|text| String::from_utf8_lossy(&text).into_owned()) }
    }
}

/// A module with the signature from the file beside it, if there is one.
pub(super) fn read_beside(path: &Path) -> Result<Delivered, (PathBuf, io::Error)> {
    let bytes = read(path, MAX_MODULE_BYTES).map_err(|error| (path.to_owned(), error))?;
    let mut beside = path.as_os_str().to_owned();
    beside.push(".minisig");
    let beside = PathBuf::from(beside);
    let signature = match read(&beside, MAX_SIGNATURE) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err((beside, error)),
    };
    Ok(Delivered::new(bytes, signature))
}

/// Reads a file of at most `most` bytes.
pub(super) fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most {
        true => Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {most} bytes"))),
        false => Ok(bytes),
    }
}
