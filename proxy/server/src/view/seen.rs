//! What was seen of locks, folded from the entries of the trail. Pure: the time comes with the entry.
//! Everything is bounded, and what is forgotten first is what nothing happened to for longest.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use lockwarden_lock::evidence::DbKey;

use super::lately::Lately;
use super::recent::Recent;
use crate::metrics::DecisionKind;
use crate::trail::{Caller, Entry, Fingerprint, Happened};

/// Locks that something is remembered of.
const MOST_LOCKS: usize = 16_384;
/// The last of what happened to a lock.
const MOST_MOMENTS: usize = 32;
/// The last refusals, and what would have been refused.
const MOST_DECISIONS: usize = 4_096;
/// Of a longer key the rest is not kept. No lock has one; it is an operation that was refused or
/// forwarded for that.
const LONGEST_KEY: usize = 1_024;

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// See the module.
pub(super) struct Seen {
    pub(super) locks: Recent<DbKey, LockSeen>,
    /// The newest last.
    pub(super) decisions: VecDeque<Arc<Entry>>,
    pub(super) refused: Lately,
    pub(super) would_refuse: Lately,
    pub(super) overlaps: Lately,
}

/// What was seen of one lock.
#[derive(Default)]
pub(super) struct LockSeen {
    pub(super) namespace: Arc<str>,
    /// Who holds it, where that was seen.
    pub(super) holding: Option<Holding>,
    /// The newest last.
    pub(super) timeline: VecDeque<Arc<Entry>>,
}

/// A lease whose beginning was seen.
pub(super) struct Holding {
    pub(super) caller: Option<Arc<Caller>>,
    pub(super) token: Option<Fingerprint>,
    pub(super) fence: u64,
    /// The TTL that it was given last, ms; 0 for none.
    pub(super) ttl_ms: u64,
    /// Keep-alive renews it.
    pub(super) kept: bool,
    /// A former holder acted during it.
    pub(super) overlapped: bool,
}

impl Default for Seen {
    fn default() -> Seen {
        Seen {
            locks: Recent::new(MOST_LOCKS, |lock| lock.holding.is_some()),
            decisions: VecDeque::new(),
            refused: Lately::new(HOUR),
            would_refuse: Lately::new(HOUR),
            overlaps: Lately::new(DAY),
        }
    }
}

impl Seen {
    /// Folds in what happened.
    pub(super) fn fold(&mut self, entry: &Entry) {
        let at = DbKey {
            db: entry.db,
            key: entry.key.slice(..entry.key.len().min(LONGEST_KEY)),
        };
        // A slice would keep the whole buffer that the client's bytes came in.
        let own = |at: &DbKey| DbKey {
            db: at.db,
            key: Bytes::copy_from_slice(&at.key),
        };
        let lock = self.locks.used(&at, own, LockSeen::default);
        lock.namespace = entry.namespace.clone();
        let told = Arc::new(entry.clone());
        lock.fold(&told);
        if entry.overlap {
            self.overlaps.add(entry.at);
        }
        let lately = match entry.verdict.as_ref().map(|verdict| verdict.kind) {
            Some(DecisionKind::Deny) => &mut self.refused,
            Some(DecisionKind::WouldDeny) => &mut self.would_refuse,
            Some(DecisionKind::Allow | DecisionKind::Modify) | None => return,
        };
        lately.add(entry.at);
        if self.decisions.len() >= MOST_DECISIONS {
            self.decisions.pop_front();
        }
        self.decisions.push_back(told);
    }

    /// What only the time brings.
    pub(super) fn tick(&mut self, _now: Instant) {}

    /// What is known of a lock.
    pub(super) fn lock(&self, key: &DbKey) -> Option<&LockSeen> {
        self.locks.get(key)
    }
}

impl LockSeen {
    fn fold(&mut self, entry: &Arc<Entry>) {
        match entry.happened {
            Happened::Acquired { again, kept, .. } => {
                if !again || self.holding.is_none() {
                    self.holding = Some(Holding {
                        caller: entry.caller.clone(),
                        token: entry.token,
                        fence: entry.fence.unwrap_or(0),
                        ttl_ms: entry.ttl_ms.unwrap_or(0),
                        kept,
                        overlapped: false,
                    });
                }
            }
            Happened::Extended { kept } => {
                if let Some(holding) = &mut self.holding {
                    holding.ttl_ms = entry.ttl_ms.unwrap_or(holding.ttl_ms);
                    holding.kept = kept;
                }
            }
            Happened::Released { .. }
            | Happened::RanOut
            | Happened::Absent { .. }
            | Happened::Broken => self.holding = None,
            Happened::Contended { .. }
            | Happened::Refused { .. }
            | Happened::Different { .. }
            | Happened::Unchanged
            | Happened::Ungoverned
            | Happened::Unjudged(_)
            | Happened::Forwarded
            | Happened::Failed
            | Happened::Observed(_) => {}
        }
        if let (true, Some(holding)) = (entry.overlap, &mut self.holding) {
            holding.overlapped = true;
        }
        if self.timeline.len() >= MOST_MOMENTS {
            self.timeline.pop_front();
        }
        self.timeline.push_back(entry.clone());
    }
}
