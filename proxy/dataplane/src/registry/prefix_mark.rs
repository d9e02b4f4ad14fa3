//! The `companion_prefix` under which the proxies in front of the server keep their records, as far as this proxy
//! knows. `state::prefix_mark` looks at the server.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;

/// The mark is not known to be there.
const UNSETTLED: u8 = 0;
/// It is this proxy's prefix, or unknown.
const SETTLED: u8 = 1;
/// Another prefix is in use.
const OTHER: u8 = 2;

/// What this proxy knows of the mark.
#[derive(Default)]
pub(crate) struct PrefixMark {
    standing: AtomicU8,
    /// The prefix that is in use, if it is another one.
    other: Mutex<Option<Bytes>>,
    /// Only one task looks at a time.
    pub(crate) known: tokio::sync::Mutex<Known>,
}

/// The same, for the task that looks.
#[derive(Default)]
pub(crate) struct Known {
    /// The prefix that this proxy has seen there or written, which was its own.
    pub(crate) own: Option<Bytes>,
    /// The proxy's user may not write it.
    pub(crate) is_forbidden: bool,
    /// It was logged that it cannot be read or written.
    pub(crate) is_reported: bool,
    /// The id of this run of the proxy.
    pub(crate) run: String,
    /// Its last entry about itself, and when it was written.
    pub(crate) noted: Option<(String, Instant)>,
    /// What was logged of other proxies.
    pub(crate) told: HashSet<(String, u8, String)>,
}

impl PrefixMark {
    /// Another server is looked at from now on.
    pub(crate) async fn another_server(&self) {
        self.standing.store(UNSETTLED, Ordering::Release);
        let mut known = self.known.lock().await;
        (known.is_forbidden, known.noted) = (false, None);
    }

    /// A client's command has emptied the server, or one of its databases.
    pub(crate) fn flushed(&self) {
        // If another prefix is in use, that stays so.
        let _ = self.standing.compare_exchange(SETTLED, UNSETTLED, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// It is unknown which prefix is in use, so this one counts.
    pub(crate) fn cannot_be_known(&self) {
        self.standing.store(SETTLED, Ordering::Release);
    }

    /// Whether the mark is known to be this proxy's.
    pub(crate) fn is_settled(&self) -> bool {
        self.standing.load(Ordering::Acquire) == SETTLED
    }

    /// Whether it was not looked at yet, or the mark was erased since.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.standing.load(Ordering::Acquire) == UNSETTLED
    }

    /// Which other prefix is in use.
    pub(crate) fn other(&self) -> Option<Bytes> {
        self.other.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The mark is this proxy's.
    pub(crate) fn is_own(&self) {
        *self.other.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.standing.store(SETTLED, Ordering::Release);
    }

    /// The mark is another prefix's.
    pub(crate) fn is_other(&self, other: &Bytes) {
        *self.other.lock().unwrap_or_else(PoisonError::into_inner) = Some(other.clone());
        self.standing.store(OTHER, Ordering::Release);
    }
}
