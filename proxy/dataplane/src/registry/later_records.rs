//! Records of locks that a later version of lockwarden has written, in a layout that this one may not judge.

use std::sync::atomic::{AtomicU8, Ordering};

/// The highest version of a record that is in use, if it is higher than this proxy's own.
#[derive(Default)]
pub(crate) struct LaterRecords(AtomicU8);

impl LaterRecords {
    /// A record of this version was met, or a proxy that writes such records. Returns whether that is news.
    pub(crate) fn met(&self, version: u8) -> bool {
        self.0.fetch_max(version, Ordering::Relaxed) < version
    }

    /// Whether there are any.
    pub(crate) fn are_about(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}
