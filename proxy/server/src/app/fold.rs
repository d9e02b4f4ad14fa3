//! The follower of the event log that fills the view. It also applies what the view finds but may not write itself: durations
//! to the metrics, and the end of a lease to the mirror.

use std::sync::Arc;
use std::time::Instant;

use lockwarden_console::view::{Measure, ViewService};
use lockwarden_control::telemetry::events::{Follower, LockEvent};
use lockwarden_control::telemetry::metrics::NamespaceMetrics;
use lockwarden_dataplane::state::ProxyState;
use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::lease::LeaseEvent;

/// See the module.
pub(super) struct Fold {
    pub(super) views: ViewService,
    pub(super) shared: Arc<ProxyState>,
}

impl Follower for Fold {
    fn follow(&mut self, entries: &[LockEvent], now: Instant) {
        let active = self.shared.active.load();
        self.views.fold(entries, now, |namespace, measure| {
            if let Some(details) = active.named(namespace) {
                self.measure(&details.metrics, measure, now);
            }
        });
    }
}

impl Fold {
    fn measure(&self, metrics: &NamespaceMetrics, measure: Measure, now: Instant) {
        match measure {
            Measure::Waited(waited) => metrics.wait_duration.observe(waited.as_secs_f64()),
            Measure::TtlLeft(left) => metrics.remaining_ttl.observe(left),
            // After a FLUSH through this proxy the mirror has forgotten the lease.
            Measure::Bypassed(key, fence) if self.end(&key, fence, now) => {
                metrics.bypass.inc();
            }
            Measure::Bypassed(_, _) => {}
            Measure::Gone(key, fence) => {
                self.end(&key, fence, now);
            }
        }
    }

    /// Removes a lease from the mirror, and returns whether it was there.
    fn end(&self, key: &DbKey, fence: u64, now: Instant) -> bool {
        let Some(shard) = self.shared.shards.of_key(key.bytes()) else {
            return false;
        };
        let is_there = shard.mirror.lease(key).is_some_and(|lease| lease.fence.0 == fence);
        if is_there {
            shard.mirror.apply(key, LeaseEvent::Released, now);
        }
        is_there
    }
}
