//! TOML files of an author: an error names its place.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::cli::api_client::ApiError;

/// The longest file, bytes.
const MAX_FILE: u64 = 1 << 20;

/// Reads a file; also returns its text.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<(T, String), ApiError> {
    let shown = path.display();
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_string(&mut text));
    read.map_err(|error| ApiError::Usage(format!("{shown}: {error}")))?;
    if text.len() as u64 > MAX_FILE {
        return Err(ApiError::Usage(format!("{shown}: at most 1 MiB is read")));
    }
    match toml::from_str(&text) {
        Ok(file) => Ok((file, text)),
        Err(error) => {
            let (line, column) = place(&text, error.span().map_or(0, |span| span.start));
            Err(ApiError::Usage(format!("{shown}:{line}:{column} error: {}", error.message())))
        }
    }
}

/// Line and column of a place in a text, from 1.
pub(super) fn place(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count() + 1, line.chars().count() + 1)
}
