//! The lease table of the whole process: a view for metrics and people, in shards so that sessions
//! seldom meet. It decides nothing.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lockwarden_lock::evidence::DbKey;
use lockwarden_lock::lease::{End, Held, LeaseEvent, LeaseTable, Transition};

use crate::metrics::{HoldEnd, NamespaceMirror};
use crate::shared::Active;

const SHARDS: usize = 16;

/// The view.
pub(crate) struct Mirror {
    shards: [Mutex<LeaseTable>; SHARDS],
    hasher: RandomState,
}

impl Default for Mirror {
    fn default() -> Mirror {
        Mirror { shards: Default::default(), hasher: RandomState::new() }
    }
}

impl Mirror {
    /// Folds in what happened, and counts the lease that it ended.
    pub(crate) fn apply(&self, key: DbKey, event: LeaseEvent, now: Instant, active: &Active) {
        let mut hasher = self.hasher.build_hasher();
        key.hash(&mut hasher);
        let shard = &self.shards[hasher.finish() as usize % SHARDS];
        let ended = lock(shard).apply(key, event, now);
        if let Some(ended) = ended {
            count(&ended, active);
        }
    }

    /// Notices the leases that ran out. Called about once a second.
    pub(crate) fn expire(&self, now: Instant, active: &Active) {
        for shard in &self.shards {
            let ended = lock(shard).expire(now);
            for ended in &ended {
                count(ended, active);
            }
        }
    }

    /// What each namespace holds, for the metrics page.
    pub(crate) fn held(&self, namespaces: usize) -> Vec<NamespaceMirror> {
        let now = Instant::now();
        let mut held = vec![Held::default(); namespaces];
        for shard in &self.shards {
            let table = {
                let mut table = lock(shard);
                drop(table.expire(now));
                table.held(namespaces)
            };
            for (sum, part) in held.iter_mut().zip(table) {
                sum.finite += part.finite;
                sum.endless += part.endless;
                sum.oldest = match (sum.oldest, part.oldest) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
            }
        }
        held.into_iter()
            .enumerate()
            .map(|(index, held)| NamespaceMirror {
                index,
                held_finite: held.finite,
                held_none: held.endless,
                oldest_unix_seconds: held.oldest.map(|at| unix_seconds(now - at)),
            })
            .collect()
    }
}

fn lock(shard: &Mutex<LeaseTable>) -> std::sync::MutexGuard<'_, LeaseTable> {
    // A table that a panic left behind is still a view that decides nothing.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

fn count(ended: &Transition, active: &Active) {
    let Some(details) = active.details.get(usize::from(ended.namespace.0)) else {
        return;
    };
    let end = match ended.end {
        End::Released => HoldEnd::Released,
        End::Expired => HoldEnd::Expired,
    };
    details.metrics.hold_duration.at(end).observe(ended.held.as_secs_f64());
}

fn unix_seconds(ago: Duration) -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(ago).as_secs_f64()
}
