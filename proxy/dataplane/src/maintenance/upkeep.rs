//! The work for each server behind the process, from when it is met until it is gone: its own connection, its chores,
//! its renewals. In a cluster, servers come and go with the map.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lockwarden_lock::companion::slot;
use lockwarden_lock::db_key::DbKey;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::break_lease::BreakOrder;
use super::renewals::RenewAll;
use super::{Judgement, chores, renewals};
use crate::backend::cluster::{ShardId, Slots};
use crate::registry::clients::Holder;
use crate::state::ProxyState;

/// A shard that has had no slots for this long is over. Until then its clients' leases there are still kept.
const WITHOUT_SLOTS: Duration = Duration::from_secs(60);
/// Between two checks whether a shard is over, and for changes of the map that were missed.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// For this long after the map has changed, leases are checked again.
const REHOMED_WITHIN: Duration = Duration::from_secs(5);
/// How long all leases may take to be renewed before the process ends.
const RENEWED_WITHIN: Duration = Duration::from_secs(2);
/// Only few orders come at once, and their callers wait for the result.
const MAX_ORDERS: usize = 4;

/// See the module.
pub struct Upkeep {
    judgement: Judgement,
    servers: Mutex<BTreeMap<ShardId, Kept>>,
}

/// One server and the work for it.
struct Kept {
    /// Ends that work when dropped.
    _tasks: JoinSet<()>,
    breaking: mpsc::Sender<BreakOrder>,
    renewing: mpsc::Sender<RenewAll>,
    /// Since when it has no slots.
    idle: Option<Instant>,
}

impl Upkeep {
    /// Upkeep that serves clients as this judgement says.
    pub fn new(judgement: Judgement) -> Arc<Upkeep> {
        Arc::new(Upkeep { judgement, servers: Mutex::default() })
    }

    /// Starts the work for this server, until it is over. Must be called in a runtime.
    pub fn begin(&self, shared: &Arc<ProxyState>) {
        let (breaking, inbox) = mpsc::channel(MAX_ORDERS);
        let (renewing, orders) = mpsc::channel(1);
        let mut tasks = JoinSet::new();
        tasks.spawn(super::run(shared.clone(), self.judgement.clone()));
        tasks.spawn(chores::run(shared.clone(), inbox));
        tasks.spawn(renewals::run(shared.clone(), orders));
        // The password is the same for all of them.
        if shared.backend.shard == ShardId::FIRST {
            let refreshing = shared.clone();
            tasks.spawn(async move {
                let address = &refreshing.backend.address;
                address.keep_login_fresh(&refreshing.metrics).await;
            });
        }
        let kept = Kept { _tasks: tasks, breaking, renewing, idle: None };
        self.servers().insert(shared.backend.shard, kept);
    }

    /// The channel for orders to break a lease on this shard's server.
    pub fn breaks(&self, shard: ShardId) -> Option<mpsc::Sender<BreakOrder>> {
        self.servers().get(&shard).map(|server| server.breaking.clone())
    }

    /// Renews every lease to its full TTL: within that time holders can come back through another proxy.
    pub async fn renew_all(&self) {
        let orders: Vec<_> = self.servers().values().map(|server| server.renewing.clone()).collect();
        let mut renewing = JoinSet::new();
        for orders in orders {
            renewing.spawn(async move {
                let (done, renewed) = oneshot::channel();
                orders.send(done).await.is_err() || renewed.await.is_ok()
            });
        }
        if timeout(RENEWED_WITHIN, renewing.join_all()).await.is_err() {
            tracing::warn!("the leases that are kept alive could not be renewed before stopping");
        }
    }

    /// Starts and ends the work for the servers of a cluster as they come and go. Runs until the process ends;
    /// returns at once if there is no cluster.
    pub async fn follow_map(&self, first: Arc<ProxyState>) {
        let Some(map) = first.shards.map().cloned() else {
            return;
        };
        let mut news = map.news();
        let mut changed = Instant::now();
        let mut before = map.slots();
        loop {
            let slots = map.slots();
            if !Arc::ptr_eq(&slots, &before) {
                (before, changed) = (slots.clone(), Instant::now());
            }
            // A lease that was granted before the change is accounted a little later.
            if changed.elapsed() <= REHOMED_WITHIN {
                rehome(&first, &slots);
            }
            for (id, shard) in slots.shards() {
                if first.shards.get(id).is_none() {
                    tracing::info!(shard = %id, primary = %shard.primary.place, slots = shard.slots, "a shard of the cluster was met");
                    self.begin(&first.of_shard(id));
                }
                self.look_at_slots(id, shard.slots);
            }
            for id in self.over() {
                tracing::info!(shard = %id, "a shard of the cluster has had no slots for a while, and is left");
                self.servers().remove(&id);
                first.shards.leave(id);
                map.forget(id);
            }
            first.shows_served_slots();
            tokio::select! {
                _ = news.changed() => {}
                () = sleep(LOOK_EVERY) => {}
            }
        }
    }

    fn look_at_slots(&self, id: ShardId, slots: u16) {
        if let Some(server) = self.servers().get_mut(&id) {
            match slots {
                0 => drop(server.idle.get_or_insert_with(Instant::now)),
                _ => server.idle = None,
            }
        }
    }

    /// The shards that have had no slots for long. Work that belongs to no single server is done for the first one,
    /// so that one stays.
    fn over(&self) -> Vec<ShardId> {
        let servers = self.servers();
        let is_over = |server: &Kept| server.idle.is_some_and(|since| since.elapsed() >= WITHOUT_SLOTS);
        let over = servers.iter().filter(|(id, server)| **id != ShardId::FIRST && is_over(server));
        over.map(|(id, _)| *id).collect()
    }

    fn servers(&self) -> MutexGuard<'_, BTreeMap<ShardId, Kept>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Moves leases whose slots have moved to the shards that have the slots now.
fn rehome(first: &ProxyState, slots: &Slots) {
    for shard in first.shards.each() {
        let id = shard.backend.shard;
        let new_home = |key: &DbKey| slots.home(slot(key.bytes())).filter(|home| *home != id);
        let has_left = |key: &DbKey| new_home(key).is_some_and(|home| first.shards.get(home).is_some());
        let home_of = |key: &DbKey| new_home(key).and_then(|home| first.shards.get(home));
        for (key, lease) in shard.mirror.take_away(has_left) {
            if let Some(home) = home_of(&key) {
                home.mirror.take_in(&key, lease);
            }
        }
        for lease in shard.renewals.take_away(has_left) {
            if let Some(home) = home_of(lease.lock()) {
                first.metrics.cluster_leases_rehomed.inc();
                let holder = Holder { session: lease.session, wakeup: lease.wakeup.clone() };
                home.renewals.adopt(&holder, lease, Instant::now());
            }
        }
    }
}
