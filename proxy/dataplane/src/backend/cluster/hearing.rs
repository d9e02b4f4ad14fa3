//! Which primaries of a cluster have been heard naming which. A replica takes the place of its primary by the votes
//! of most primaries that have slots, and each of them votes only once it considers the old primary failed. So as
//! long as most of them name a primary, and do not say that it has failed, no other one was elected: for a shard they
//! are what sentinels are for a server.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use lockwarden_lock::promise::most_since;

use super::nodes::NodeLine;
use super::slots::{ShardId, Slots};
use crate::backend::heard::{HEARD_WITHIN, HeardMoments};
use crate::backend::sentinel::Named;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Hearing {
    shards: BTreeMap<ShardId, Heard>,
    /// For each shard whose primary has answered: when it was last asked.
    answered: BTreeMap<ShardId, Instant>,
    /// When all were asked last.
    asked: Option<Instant>,
}

/// What was heard of the primary of one shard.
#[derive(Debug, Default)]
struct Heard {
    primary: Option<Named>,
    /// For each shard whose primary has named this one: when it was last asked.
    naming: BTreeMap<ShardId, Instant>,
    moments: Arc<HeardMoments>,
}

impl Hearing {
    /// A node that was asked at this moment has reported this, and the map has taken it in.
    pub(super) fn told(&mut self, slots: &Slots, told: &[NodeLine], asked: Instant) {
        for (id, shard) in slots.shards() {
            let heard = self.shards.entry(id).or_default();
            if heard.primary.as_ref() != Some(&shard.primary) {
                heard.primary = Some(shard.primary.clone());
                heard.naming.clear();
                heard.moments.turn();
            }
        }
        let asked_node = told.iter().find(|node| node.is_asked);
        let Some((voter, _)) = asked_node.and_then(|node| slots.with_slots().find(|(_, shard)| shard.node == node.id))
        else {
            return;
        };
        self.answered.insert(voter, asked);
        let well = told.iter().filter(|node| node.is_primary && !node.has_failed && !node.slots.is_empty());
        let well: HashSet<&str> = well.map(|node| node.id.as_str()).collect();
        for (id, _) in slots.with_slots().filter(|(_, shard)| well.contains(shard.node.as_str())) {
            if let Some(heard) = self.shards.get_mut(&id) {
                heard.naming.insert(voter, asked);
            }
        }
    }

    /// All have been asked, beginning at this moment: draws the conclusion from their answers.
    pub(super) fn weigh(&mut self, slots: &Slots, asked: Instant) {
        self.asked = Some(asked);
        self.shards.retain(|id, _| slots.shards.contains_key(id));
        let most = |of: &BTreeMap<ShardId, Instant>| most_since(slots.with_slots().map(|(id, _)| of.get(&id).copied()));
        let until = most(&self.answered).map(|since| since + HEARD_WITHIN);
        for heard in self.shards.values() {
            heard.moments.set(most(&heard.naming), until);
        }
    }

    /// Whether all were asked since.
    pub(super) fn was_asked_since(&self, since: Instant) -> bool {
        self.asked.is_some_and(|asked| asked >= since)
    }

    /// How many primaries have answered lately, and how many there are.
    pub(super) fn heard(&self, slots: &Slots, now: Instant) -> (usize, usize) {
        let is_fresh = |at: &Instant| now.saturating_duration_since(*at) < HEARD_WITHIN;
        let heard = slots.with_slots().filter(|(id, _)| self.answered.get(id).is_some_and(is_fresh)).count();
        (heard, slots.with_slots().count())
    }

    /// Since when most have been heard naming the primary of this shard.
    pub(super) fn of(&mut self, shard: ShardId) -> Arc<HeardMoments> {
        self.shards.entry(shard).or_default().moments.clone()
    }
}
