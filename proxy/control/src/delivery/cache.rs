//! Fetched modules, by their digest: a pinned module need not be fetched again, and is available while its registry is
//! not. Cached files are hashed again each time, so the folder need not be trusted.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use lockwarden_lock::token::hex;
use lockwarden_policy::MAX_MODULE_BYTES;
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

use super::files::{Delivered, MAX_SIGNATURE, read};
use crate::config::DeliveryConfig;

/// The most modules that are kept; beyond that the oldest are removed.
const MAX_KEPT: usize = 64;

/// The operator's cache folder.
pub(super) struct Cache<'a>(&'a Path);

impl Cache<'_> {
    pub(super) fn of(settings: &DeliveryConfig) -> Option<Cache<'_>> {
        settings.policy_cache.as_deref().map(Cache)
    }

    fn path(&self, sha256: &[u8; 32], end: &str) -> PathBuf {
        self.0.join(format!("{}.{end}", hex(sha256)))
    }

    /// The module with this digest, if it is there and still has it.
    pub(super) fn find(&self, sha256: &[u8; 32]) -> Option<Delivered> {
        let bytes = read(&self.path(sha256, "wasm"), MAX_MODULE_BYTES).ok()?;
        let signature = read(&self.path(sha256, "minisig"), MAX_SIGNATURE).ok();
        let is: [u8; 32] = Sha256::digest(&bytes).into();
        (is == *sha256).then(|| Delivered::new(bytes, signature))
    }

    /// Stores a module. If that fails, the module is only fetched again.
    pub(super) fn keep(&self, sha256: &[u8; 32], module: &Delivered) {
        if self.find(sha256).is_some_and(|kept| kept.signature == module.signature) {
            return;
        }
        let put = |end, bytes: &[u8]| {
            // Readable to its owner only, and complete or not there at all.
            let mut file = NamedTempFile::new_in(self.0)?;
            file.write_all(bytes)?;
            file.persist(self.path(sha256, end)).map_err(|error| error.error)
        };
        let keep_all = || {
            fs::create_dir_all(self.0)?;
            if let Some(signature) = &module.signature {
                put("minisig", signature.as_bytes())?;
            }
            put("wasm", &module.bytes)
        };
        match keep_all() {
            Ok(_) => self.make_room(),
            Err(why) => {
                tracing::warn!(folder = %self.0.display(), %why, "a policy's module cannot be kept in policy_cache")
            }
        }
    }

    fn make_room(&self) {
        let entries = fs::read_dir(self.0).into_iter().flatten().flatten();
        let modules =
            entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "wasm"));
        let age =
            |path: &PathBuf| fs::metadata(path).and_then(|found| found.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        let mut modules: Vec<(SystemTime, PathBuf)> = modules.map(|path| (age(&path), path)).collect();
        modules.sort();
        for (_, path) in modules.iter().rev().skip(MAX_KEPT) {
            // A file that cannot be removed does no harm.
            let _ = fs::remove_file(path);
            let _ = fs::remove_file(path.with_extension("minisig"));
        }
    }
}
