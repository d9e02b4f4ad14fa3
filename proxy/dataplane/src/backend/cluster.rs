//! The map of a cluster: which server is the primary of which slots (`slots`), from what nodes report (`nodes`), and
//! whether most of them have been heard naming it (`hearing`). A primary and the replica that takes its place are one
//! shard, for as long as this process runs. `maintenance::cluster_map` asks the nodes.

mod hearing;
pub(crate) mod nodes;
mod slots;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use lockwarden_control::config::HostAndPort;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::conversation::BackendError;
use super::heard::HeardMoments;
use super::sentinel::{Named, Place};
use hearing::Hearing;
use nodes::NodeLine;
pub use slots::{Shard, ShardId, Slots};

/// How long the first connection to a shard waits for the nodes to name its primary.
const KNOWN_WITHIN: Duration = Duration::from_millis(500);

/// The map as it is known now.
pub struct ClusterMap {
    seeds: Vec<Place>,
    by_name: bool,
    slots: ArcSwap<Slots>,
    hearing: Mutex<Hearing>,
    /// A hash of the last report of each node whose report brought nothing new for this map: building a map goes over
    /// all slots.
    known: Mutex<HashMap<Place, u64>>,
    hasher: RandomState,
    news: watch::Sender<()>,
    wanted: Notify,
    /// Why the nodes do not report it, as long as none has.
    silence: Mutex<String>,
    /// The primary of each shard that the proxy follows by now.
    turned_to: Mutex<BTreeMap<ShardId, Named>>,
}

impl fmt::Debug for ClusterMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClusterMap").field(&self.seeds).finish()
    }
}

impl ClusterMap {
    /// A map of which nothing is known yet.
    pub(super) fn new(seeds: &[(String, u16)], by_name: bool) -> ClusterMap {
        let seeds = seeds.iter().map(|(host, port)| Place { host: host.clone(), port: *port });
        ClusterMap {
            seeds: seeds.collect(),
            by_name,
            slots: ArcSwap::default(),
            hearing: Mutex::default(),
            known: Mutex::default(),
            hasher: RandomState::new(),
            news: watch::Sender::new(()),
            wanted: Notify::new(),
            silence: Mutex::new("no node was asked yet".to_owned()),
            turned_to: Mutex::default(),
        }
    }

    /// The map as it is known now.
    pub fn slots(&self) -> Arc<Slots> {
        self.slots.load_full()
    }

    /// The shard that has this slot.
    pub fn home(&self, slot: u16) -> Option<ShardId> {
        self.slots.load().home(slot)
    }

    /// The shard whose primary a redirect of `sender` names, if only one fits. Nodes name the host as
    /// `cluster-preferred-endpoint-type` says: by its address, by its name (or `?` if it has none), or not at all.
    pub(crate) fn at(&self, host: &[u8], port: u16, sender: ShardId) -> Option<ShardId> {
        let slots = self.slots.load();
        let is_named = |id: ShardId, shard: &Shard| match host {
            b"" | b"?" => id != sender,
            host => shard.hosts.iter().any(|known| known.as_bytes() == host),
        };
        let mut fitting = slots.shards().filter(|(id, shard)| shard.primary.place.port == port && is_named(*id, shard));
        let (id, _) = fitting.next()?;
        fitting.next().is_none().then_some(id)
    }

    /// The primary of this shard, once it is known.
    pub(crate) fn primary(&self, shard: ShardId) -> Option<Named> {
        self.slots.load().shards.get(&shard).map(|shard| shard.primary.clone())
    }

    /// The same; waits for it up to `KNOWN_WITHIN`.
    pub(super) async fn find(&self, shard: ShardId) -> Result<Named, BackendError> {
        let mut news = self.news.subscribe();
        let known = async {
            loop {
                if let Some(named) = self.primary(shard) {
                    return named;
                }
                self.want();
                // The sender lives as long as this.
                let _ = news.changed().await;
            }
        };
        let found = timeout(KNOWN_WITHIN, known).await;
        found.map_err(|_| BackendError::NoNode(self.silence()))
    }

    /// The primary of this shard that the proxy follows by now: all connections to the previous one were cut.
    pub(crate) fn turned_to(&self, shard: ShardId) -> Option<Named> {
        self.turned_to.lock().unwrap_or_else(PoisonError::into_inner).get(&shard).cloned()
    }

    pub(crate) fn turns_to(&self, shard: ShardId, named: &Named) {
        self.turned_to.lock().unwrap_or_else(PoisonError::into_inner).insert(shard, named.clone());
    }

    /// Waits until another primary than this is to be followed.
    pub(crate) async fn changes(&self, shard: ShardId, from: &Named) -> Named {
        let mut news = self.news.subscribe();
        loop {
            match self.primary(shard) {
                Some(now) if now != *from => return now,
                Some(_) | None => {}
            }
            if news.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// A receiver that is notified of each change.
    pub(crate) fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    /// The map is out of date: asks for it again.
    pub(crate) fn want(&self) {
        self.wanted.notify_one();
    }

    /// Waits until the map is asked for.
    pub(crate) async fn is_wanted(&self) {
        self.wanted.notified().await;
    }

    /// The primaries that have slots.
    pub(crate) fn primaries(&self) -> Vec<Place> {
        let slots = self.slots.load();
        slots.with_slots().map(|(_, shard)| shard.primary.place.clone()).collect()
    }

    /// Nodes that can be asked: those that the map has, and those of the configuration.
    pub(crate) fn places(&self) -> Vec<Place> {
        let mut places = self.slots.load().places.clone();
        for seed in &self.seeds {
            if !places.contains(seed) {
                places.push(seed.clone());
            }
        }
        places
    }

    /// Takes in the report of a node that was asked at this place and time. Returns whether the map has changed.
    pub(crate) fn told(&self, told: &[NodeLine], at: &Place, asked: Instant) -> bool {
        let hash = self.hasher.hash_one(told);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let next = match known.get(at) == Some(&hash) {
            true => None,
            false => self.slots.load().taken_in(told, at, self.by_name),
        };
        let is_news = next.is_some();
        match next {
            Some(next) => {
                self.slots.store(Arc::new(next));
                known.clear();
            }
            None => {
                known.insert(at.clone(), hash);
            }
        }
        drop(known);
        self.hearing().told(&self.slots.load(), told, asked);
        if is_news {
            self.news.send_replace(());
        }
        is_news
    }

    /// All primaries were asked, beginning at this moment.
    pub(crate) fn were_asked(&self, asked: Instant) {
        self.hearing().weigh(&self.slots.load(), asked);
    }

    /// Whether all were asked since then.
    pub(crate) fn was_asked_since(&self, since: Instant) -> bool {
        self.hearing().was_asked_since(since)
    }

    /// How many primaries with slots have answered lately, and how many there are.
    pub(crate) fn heard(&self, now: Instant) -> (usize, usize) {
        self.hearing().heard(&self.slots.load(), now)
    }

    /// Since when most primaries have been heard naming that of this shard.
    pub(super) fn moments(&self, shard: ShardId) -> Arc<HeardMoments> {
        self.hearing().of(shard)
    }

    fn hearing(&self) -> MutexGuard<'_, Hearing> {
        self.hearing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes a shard, if it has no slots.
    pub(crate) fn forget(&self, shard: ShardId) {
        let mut slots = Slots::clone(&self.slots.load());
        if slots.shards.get(&shard).is_some_and(|shard| shard.slots == 0) {
            slots.shards.remove(&shard);
            self.slots.store(Arc::new(slots));
            self.known.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }

    /// Notes why no node reports anything.
    pub(crate) fn is_silent(&self, why: String) {
        *self.silence.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// Why the primary of a shard is not known.
    pub(crate) fn silence(&self) -> String {
        let seeds: Vec<String> = self.seeds.iter().map(|seed| HostAndPort(&seed.host, seed.port).to_string()).collect();
        let why = self.silence.lock().unwrap_or_else(PoisonError::into_inner);
        format!("no node of the cluster tells who has which slots (asked: {}): {why}", seeds.join(", "))
    }
}
