//! Which primary of a cluster has which slots: put together from the nodes' reports, by the rule that the nodes use
//! themselves. For each slot the claim with the highest config epoch counts.

use std::collections::BTreeMap;
use std::fmt;

use lockwarden_lock::companion::SLOTS;

use super::nodes::NodeLine;
use crate::backend::sentinel::{Named, Place};

/// A primary and the replica that takes its place. The number is assigned by this process, and never twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardId(pub(super) u32);

impl ShardId {
    /// The only shard without a cluster, and the first one that is met in a cluster.
    pub const FIRST: ShardId = ShardId(0);
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One shard as it was last reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Its epoch is the one in which it became the primary of this shard.
    pub primary: Named,
    /// The primary's id, and those of its replicas.
    pub(super) node: String,
    /// The names and addresses by which redirects may name the primary's host.
    pub(super) hosts: Vec<String>,
    pub(super) replicas: Vec<String>,
    /// The primary's config epoch now.
    pub(super) epoch: u64,
    /// How many slots it has.
    pub slots: u16,
}

/// Which shard has which slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots {
    homes: Box<[Option<ShardId>]>,
    pub(super) shards: BTreeMap<ShardId, Shard>,
    /// Nodes that can be asked, primaries first.
    pub(super) places: Vec<Place>,
    next: ShardId,
}

impl Default for Slots {
    fn default() -> Slots {
        let homes = vec![None; usize::from(SLOTS)].into();
        Slots { homes, shards: BTreeMap::new(), places: Vec::new(), next: ShardId::FIRST }
    }
}

/// The owner of a slot, while a map is put together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// The node of this line.
    Told(usize),
    /// The shard that had it: the node that was asked knows less about it than this process.
    Kept(ShardId),
}

impl Slots {
    /// The shard that has this slot; `None` if no primary has it.
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

    /// The shards that have slots: their primaries elect the replacement of a failed one.
    pub(crate) fn with_slots(&self) -> impl Iterator<Item = (ShardId, &Shard)> {
        self.shards().filter(|(_, shard)| shard.slots > 0)
    }

    /// Where the nodes are that have not failed, primaries first.
    pub(crate) fn places(&self) -> &[Place] {
        &self.places
    }

    /// Whether this shard has any slots.
    pub(crate) fn has_slots(&self, shard: ShardId) -> bool {
        self.shards.get(&shard).is_some_and(|shard| shard.slots > 0)
    }

    /// How many slots have a primary.
    pub fn served(&self) -> usize {
        self.homes.iter().flatten().count()
    }

    /// The map after this report of one node: `None` if nothing is new, or the report names no slots. `at` is where
    /// that node was asked; `by_name`: nodes are reached by the names that they announce, which are the names in
    /// their certificates.
    pub(super) fn taken_in(&self, told: &[NodeLine], at: &Place, by_name: bool) -> Option<Slots> {
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
        // Each node reports in an order of its own.
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
                    // A node that is not in the report has been taken out of the cluster.
                    let is_older = told[line].epoch < shard.epoch && of_id(&shard.node).is_some();
                    let is_another = told[line].id != shard.node;
                    Some(if is_another && is_older { Owner::Kept(id) } else { Owner::Told(line) })
                }
                (Some(line), None) => Some(Owner::Told(line)),
                // Either the node that had it claims it no more, or the node that was asked has not met that node.
                (None, Some((id, shard))) => of_id(&shard.node).is_none().then_some(Owner::Kept(id)),
                (None, None) => None,
            }
        };
        claims.into_iter().zip(self.homes.iter().copied()).map(owner).collect()
    }

    /// The shard that this node is the primary of, or has become the primary of: it was a replica of the old primary,
    /// or has all its slots.
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

/// Where a node is reached. A node that does not know its own address is where it was asked.
fn place(node: &NodeLine, at: &Place, by_name: bool) -> Place {
    let name = node.name.as_ref().filter(|_| by_name);
    let host = match name {
        Some(name) => name.clone(),
        None if node.ip.is_empty() => at.host.clone(),
        None => node.ip.clone(),
    };
    Place { host, port: node.port }
}
