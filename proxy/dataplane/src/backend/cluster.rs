//! The map of a cluster: which server is the primary of which slots. It is put together from what nodes tell (`nodes`), as they
//! decide it among themselves: for a slot the claim with the highest config epoch counts. A primary and the replica that
//! takes its place are one shard, for as long as this process runs. Who asks the nodes is `maintenance::cluster_map`.

mod hearing;
pub(crate) mod nodes;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use lockwarden_control::config::HostAndPort;
use lockwarden_lock::companion::SLOTS;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::conversation::BackendError;
use super::heard::HeardMoments;
use super::sentinel::{Named, Place};
use hearing::Hearing;
use nodes::NodeLine;

/// How long the first connection to a shard waits for the nodes to name its primary.
const KNOWN_WITHIN: Duration = Duration::from_millis(500);

/// A primary and the replica that takes its place. Given once in a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardId(u32);

impl ShardId {
    /// The only one where there is no cluster, and the first that is met in one.
    pub const FIRST: ShardId = ShardId(0);
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One shard as it was told last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Its epoch is that in which it became the primary of this shard.
    pub primary: Named,
    /// The primary's id, and those of its replicas.
    node: String,
    /// What redirects may name the primary's host by.
    hosts: Vec<String>,
    replicas: Vec<String>,
    /// The primary's config epoch now.
    epoch: u64,
    /// How many slots it has.
    pub slots: u16,
}

/// Which shard has which slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots {
    homes: Box<[Option<ShardId>]>,
    shards: BTreeMap<ShardId, Shard>,
    /// Nodes that can be asked, primaries first.
    places: Vec<Place>,
    next: ShardId,
}

impl Default for Slots {
    fn default() -> Slots {
        let homes = vec![None; usize::from(SLOTS)].into();
        Slots { homes, shards: BTreeMap::new(), places: Vec::new(), next: ShardId::FIRST }
    }
}

/// Who has a slot, while a map is put together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// The node of this line.
    Told(usize),
    /// The shard that had it, of which the node that was asked knows less than is known here.
    Kept(ShardId),
}

impl Slots {
    /// The shard that has this slot; `None` where no primary does.
    pub fn home(&self, slot: u16) -> Option<ShardId> {
        self.homes.get(usize::from(slot)).copied().flatten()
    }

    /// Each slot that a shard has, in order.
    pub(crate) fn homes(&self) -> impl Iterator<Item = (u16, ShardId)> {
        (0..SLOTS).zip(self.homes.iter()).filter_map(|(slot, home)| Some((slot, (*home)?)))
    }

    /// All shards, those without slots as well.
    pub fn shards(&self) -> impl Iterator<Item = (ShardId, &Shard)> {
        self.shards.iter().map(|(id, shard)| (*id, shard))
    }

    /// Where the nodes are that have not failed, primaries first.
    pub(crate) fn places(&self) -> &[Place] {
        &self.places
    }

    /// Whether this shard has any.
    pub(crate) fn has_slots(&self, shard: ShardId) -> bool {
        self.shards.get(&shard).is_some_and(|shard| shard.slots > 0)
    }

    /// How many slots have a primary.
    pub fn served(&self) -> usize {
        self.homes.iter().flatten().count()
    }

    /// The map after one node has told this: `None` where nothing is new, or it knows of no slots. `at` is where that node was
    /// asked; `by_name`: nodes are reached by the names that they announce, as their certificates have those.
    fn taken_in(&self, told: &[NodeLine], at: &Place, by_name: bool) -> Option<Slots> {
        if !told.iter().any(|node| node.is_primary && !node.slots.is_empty()) {
            return None;
        }
        let owners = self.owners(told);
        let mut next = Slots { shards: self.shards.clone(), next: self.next, ..Slots::default() };
        let mut ids: BTreeMap<usize, ShardId> = BTreeMap::new();
        for owner in owners.iter().flatten() {
            if let Owner::Told(line) = *owner
                && !ids.contains_key(&line)
            {
                let id = self.shard_of(&told[line], &owners, told).filter(|id| !ids.values().any(|taken| taken == id));
                let id = id.unwrap_or_else(|| next.new_id());
                ids.insert(line, id);
            }
        }
        for (&line, &id) in &ids {
            let node = &told[line];
            let place = place(node, at, by_name);
            let before = self.shards.get(&id).filter(|shard| shard.node == node.id && shard.primary.place == place);
            let primary = before.map_or_else(|| Named { place, epoch: node.epoch }, |shard| shard.primary.clone());
            let replicas = told.iter().filter(|other| other.follows.as_ref() == Some(&node.id));
            let mut replicas: Vec<String> = replicas.map(|replica| replica.id.clone()).collect();
            replicas.sort();
            let mut hosts = vec![primary.place.host.clone(), node.ip.clone()];
            hosts.extend(node.name.clone());
            let shard = Shard { primary, node: node.id.clone(), hosts, replicas, epoch: node.epoch, slots: 0 };
            next.shards.insert(id, shard);
        }
        for shard in next.shards.values_mut() {
            shard.slots = 0;
        }
        for (slot, owner) in owners.iter().enumerate() {
            let id = owner.and_then(|owner| match owner {
                Owner::Told(line) => ids.get(&line).copied(),
                Owner::Kept(id) => Some(id),
            });
            if let Some(shard) = id.and_then(|id| next.shards.get_mut(&id)) {
                shard.slots += 1;
                next.homes[slot] = id;
            }
        }
        // Each node has an order of its own.
        let alive = told.iter().filter(|node| !node.has_failed);
        let mut places: Vec<(bool, Place)> = alive.map(|node| (!node.is_primary, place(node, at, by_name))).collect();
        places.sort();
        next.places = places.into_iter().map(|(_, place)| place).collect();
        (next != *self).then_some(next)
    }

    fn owners(&self, told: &[NodeLine]) -> Vec<Option<Owner>> {
        let mut claims: Vec<Option<usize>> = vec![None; usize::from(SLOTS)];
        for (line, node) in told.iter().enumerate().filter(|(_, node)| node.is_primary) {
            for slot in node.slots.iter().cloned().flatten() {
                let claim = &mut claims[usize::from(slot)];
                if claim.is_none_or(|other| told[other].epoch < node.epoch) {
                    *claim = Some(line);
                }
            }
        }
        let of_id = |id: &str| told.iter().find(|node| node.id == id);
        let owner = |(claim, before): (Option<usize>, Option<ShardId>)| {
            let shard = before.and_then(|id| Some((id, self.shards.get(&id)?)));
            match (claim, shard) {
                (Some(line), Some((id, shard))) => {
                    // A node that is known no more has been taken out of the cluster.
                    let is_older = told[line].epoch < shard.epoch && of_id(&shard.node).is_some();
                    let is_another = told[line].id != shard.node;
                    Some(if is_another && is_older { Owner::Kept(id) } else { Owner::Told(line) })
                }
                (Some(line), None) => Some(Owner::Told(line)),
                // The node that had it says so no more; or the node that was asked has not met it.
                (None, Some((id, shard))) => of_id(&shard.node).is_none().then_some(Owner::Kept(id)),
                (None, None) => None,
            }
        };
        claims.into_iter().zip(self.homes.iter().copied()).map(owner).collect()
    }

    /// The shard whose primary this node is, or has taken the place of: it followed that one, or has all its slots.
    fn shard_of(&self, node: &NodeLine, owners: &[Option<Owner>], told: &[NodeLine]) -> Option<ShardId> {
        let own = self.shards.iter().find(|(_, shard)| shard.node == node.id);
        if let Some((id, _)) = own {
            return Some(*id);
        }
        let is_line =
            |owner: &Option<Owner>, id: &str| matches!(owner, Some(Owner::Told(line)) if told[*line].id == id);
        let left = |id: ShardId, shard: &Shard| {
            !owners.iter().any(|owner| *owner == Some(Owner::Kept(id)) || is_line(owner, &shard.node))
        };
        let ended = || self.shards.iter().filter(|(id, shard)| left(**id, shard));
        if let Some((id, _)) = ended().find(|(_, shard)| shard.replicas.contains(&node.id)) {
            return Some(*id);
        }
        let taken = |id: ShardId| {
            let both = owners.iter().zip(self.homes.iter());
            both.filter(|(owner, before)| **before == Some(id) && is_line(owner, &node.id)).count()
        };
        ended().map(|(id, _)| (taken(*id), *id)).filter(|(slots, _)| *slots > 0).max().map(|(_, id)| id)
    }

    fn new_id(&mut self) -> ShardId {
        let id = self.next;
        self.next = ShardId(id.0 + 1);
        id
    }
}

/// Where a node is reached. One that does not know its own address is where it was asked.
fn place(node: &NodeLine, at: &Place, by_name: bool) -> Place {
    let name = node.name.as_ref().filter(|_| by_name);
    let host = match name {
        Some(name) => name.clone(),
        None if node.ip.is_empty() => at.host.clone(),
        None => node.ip.clone(),
    };
    Place { host, port: node.port }
}

/// The map as it is known now.
pub struct ClusterMap {
    seeds: Vec<Place>,
    by_name: bool,
    slots: ArcSwap<Slots>,
    hearing: Mutex<Hearing>,
    news: watch::Sender<()>,
    wanted: Notify,
    /// Why the nodes do not tell it, as long as none has.
    silence: Mutex<String>,
    /// The primary that the proxy has turned to, of each shard.
    turned_to: Mutex<BTreeMap<ShardId, Named>>,
}

impl fmt::Debug for ClusterMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClusterMap").field(&self.seeds).finish()
    }
}

impl ClusterMap {
    /// Of which nothing is known yet.
    pub(super) fn new(seeds: &[(String, u16)], by_name: bool) -> ClusterMap {
        let seeds = seeds.iter().map(|(host, port)| Place { host: host.clone(), port: *port });
        ClusterMap {
            seeds: seeds.collect(),
            by_name,
            slots: ArcSwap::default(),
            hearing: Mutex::default(),
            news: watch::Sender::new(()),
            wanted: Notify::new(),
            silence: Mutex::new("no node was asked yet".to_owned()),
            turned_to: Mutex::default(),
        }
    }

    /// What is known.
    pub fn slots(&self) -> Arc<Slots> {
        self.slots.load_full()
    }

    /// The shard that has this slot.
    pub fn home(&self, slot: u16) -> Option<ShardId> {
        self.slots.load().home(slot)
    }

    /// The shard whose primary a redirect of this one names, if that is told from all others. Nodes name the host by what
    /// `cluster-preferred-endpoint-type` says: its address, its name or a `?` for want of one, or not at all.
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

    /// The same; waits for it a moment.
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

    /// The primary of this shard that the proxy has turned to: whatever leads to the one before was cut.
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

    /// Hears of each change.
    pub(crate) fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    /// The map is not right any more: it is asked for anew.
    pub(crate) fn want(&self) {
        self.wanted.notify_one();
    }

    /// Waits until it is.
    pub(crate) async fn is_wanted(&self) {
        self.wanted.notified().await;
    }

    /// The primaries that have slots.
    pub(crate) fn primaries(&self) -> Vec<Place> {
        let slots = self.slots.load();
        let with_slots = slots.shards().filter(|(_, shard)| shard.slots > 0);
        with_slots.map(|(_, shard)| shard.primary.place.clone()).collect()
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

    /// A node that was asked there, at this moment, has told this. Returns whether the map is another one now.
    pub(crate) fn told(&self, told: &[NodeLine], at: &Place, asked: Instant) -> bool {
        let next = self.slots.load().taken_in(told, at, self.by_name);
        let is_news = next.is_some();
        if let Some(next) = next {
            self.slots.store(Arc::new(next));
        }
        self.hearing().told(&self.slots.load(), told, asked);
        if is_news {
            self.news.send_replace(());
        }
        is_news
    }

    /// All primaries were asked, from this moment on.
    pub(crate) fn were_asked(&self, asked: Instant) {
        self.hearing().weigh(&self.slots.load(), asked);
    }

    /// Whether they were since then.
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

    /// A shard without slots is over.
    pub(crate) fn forget(&self, shard: ShardId) {
        let mut slots = Slots::clone(&self.slots.load());
        if slots.shards.get(&shard).is_some_and(|shard| shard.slots == 0) {
            slots.shards.remove(&shard);
            self.slots.store(Arc::new(slots));
        }
    }

    /// Why no node tells anything.
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
