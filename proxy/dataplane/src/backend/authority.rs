//! The authority on which server is the primary: the backend's name itself, sentinels, or the nodes of a cluster. All
//! code that reacts to a change asks here, and does not know which of these it is. Only code that shows or asks each
//! sentinel uses [`Authority::sentinels`], and only code that routes by slots uses [`Authority::map`].

use std::sync::Arc;
use std::time::Instant;

use lockwarden_lock::promise::Heard;

use super::cluster::{ClusterMap, ShardId};
use super::conversation::BackendError;
use super::heard::HeardMoments;
use super::sentinel::{Named, Sentinels};

/// See the module.
#[derive(Clone, Debug)]
pub enum Authority {
    /// The server behind the backend's name is the primary, unless it says otherwise.
    Address,
    /// Sentinels name it.
    Sentinels(Arc<Sentinels>),
    /// It is the primary of this shard of a cluster that most of the primaries name.
    Map(Arc<ClusterMap>, ShardId, Arc<HeardMoments>),
}

/// Whether most of the authority's members name the primary that is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// There are none to be asked.
    Needless,
    /// They do; with the epoch in which they named it, if all proxies hear the same one.
    Reached(Option<u64>),
    /// They do not, or too few are heard.
    Missing,
}

/// A change of the primary that is to be followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switch {
    /// What the authority calls the primary, whichever server it is.
    pub(crate) name: String,
    pub(crate) from: Named,
    pub(crate) to: Named,
}

impl Authority {
    /// The nodes of a cluster, of this shard.
    pub(super) fn of_shard(map: Arc<ClusterMap>, shard: ShardId) -> Authority {
        let moments = map.moments(shard);
        Authority::Map(map, shard, moments)
    }

    /// The sentinels, which are asked one by one, if there are any.
    pub fn sentinels(&self) -> Option<&Arc<Sentinels>> {
        match self {
            Authority::Address | Authority::Map(..) => None,
            Authority::Sentinels(sentinels) => Some(sentinels),
        }
    }

    /// The map of the cluster, and the shard in it, if there is one.
    pub fn map(&self) -> Option<(&Arc<ClusterMap>, ShardId)> {
        match self {
            Authority::Address | Authority::Sentinels(_) => None,
            Authority::Map(map, shard, _) => Some((map, *shard)),
        }
    }

    /// The primary that is to be followed; asks for it if that was not done yet. `None` if there is only the
    /// backend's name.
    pub(crate) async fn find(&self) -> Result<Option<Named>, BackendError> {
        Ok(Some(match self {
            Authority::Address => return Ok(None),
            Authority::Sentinels(sentinels) => match sentinels.named() {
                Some(named) => named,
                None => sentinels.find().await?,
            },
            Authority::Map(map, shard, _) => map.find(*shard).await?,
        }))
    }

    /// The primary that the proxy follows by now: all connections to the previous one were cut.
    pub(crate) fn turned_to(&self) -> Option<Named> {
        match self {
            Authority::Address => None,
            Authority::Sentinels(sentinels) => sentinels.turned_to(),
            Authority::Map(map, shard, _) => map.turned_to(*shard),
        }
    }

    /// The proxy follows this one from now on.
    pub(crate) fn turns_to(&self, named: &Named) {
        match self {
            Authority::Address => {}
            Authority::Sentinels(sentinels) => sentinels.turns_to(named),
            Authority::Map(map, shard, _) => map.turns_to(*shard, named),
        }
    }

    /// Waits until another primary than this is to be followed.
    pub(crate) async fn changes(&self, from: Option<&Named>) -> Switch {
        let (name, from, to) = match (self, from) {
            (Authority::Sentinels(sentinels), Some(from)) => {
                (sentinels.name().to_owned(), from, sentinels.changes(from).await)
            }
            (Authority::Map(map, shard, _), Some(from)) => {
                (format!("shard {shard} of the cluster"), from, map.changes(*shard, from).await)
            }
            (Authority::Address, _) | (_, None) => return std::future::pending().await,
        };
        Switch { name, from: from.clone(), to }
    }

    /// Whether a server is served only if it says itself that it is the primary.
    pub(crate) fn wants_proof(&self) -> bool {
        match self {
            Authority::Address => false,
            Authority::Sentinels(_) | Authority::Map(..) => true,
        }
    }

    /// This server said itself that it is the primary.
    pub(crate) fn is_primary(&self, named: &Named) {
        if let Authority::Sentinels(sentinels) = self {
            sentinels.is_primary(named);
        }
    }

    /// This server could not be reached, or did not say so.
    pub(crate) fn is_not_primary(&self, named: &Named, now: Instant) {
        match self {
            Authority::Address => {}
            Authority::Sentinels(sentinels) => sentinels.is_not_primary(named, now),
            Authority::Map(map, ..) => map.want(),
        }
    }

    /// When the authority was last heard naming the primary that is followed.
    pub fn heard(&self) -> Heard {
        match self {
            Authority::Address => Heard::Needless,
            Authority::Sentinels(sentinels) => Heard::ByMost(sentinels.heard_by_most()),
            Authority::Map(_, _, moments) => Heard::ByMost(moments.naming()),
        }
    }

    /// Until when most of its members named the previous primary: there was no other one until then. Returned once
    /// for each change.
    pub(crate) fn take_before(&self) -> Option<Instant> {
        match self {
            Authority::Address => None,
            Authority::Sentinels(sentinels) => sentinels.take_before(),
            Authority::Map(_, _, moments) => moments.take_before(),
        }
    }

    /// What its members are called in messages about asking for the primary.
    pub fn members(&self) -> &'static str {
        match self {
            Authority::Address | Authority::Sentinels(_) => "sentinels",
            Authority::Map(..) => "primaries of the cluster",
        }
    }

    /// Whether half of its members or fewer are heard: the others may have agreed on another primary.
    pub(crate) fn hears_too_few(&self, now: Instant) -> bool {
        match self {
            Authority::Address => false,
            Authority::Sentinels(sentinels) => sentinels.are_few(now),
            Authority::Map(_, _, moments) => moments.are_few(now),
        }
    }

    /// Whether most of its members name the primary that is followed.
    pub(crate) fn agreement(&self, now: Instant) -> Agreement {
        let epoch = match self {
            Authority::Address => return Agreement::Needless,
            Authority::Sentinels(sentinels) => {
                let most = sentinels.most_name(now).filter(|most| Some(most) == sentinels.named().as_ref());
                most.map(|named| Some(named.epoch))
            }
            // Each proxy has seen this primary in another epoch.
            Authority::Map(_, _, moments) => moments.are_naming(now).then_some(None),
        };
        epoch.map_or(Agreement::Missing, Agreement::Reached)
    }
}
