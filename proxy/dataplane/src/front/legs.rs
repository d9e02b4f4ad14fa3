//! Which leg leads to a shard, and how one is opened: when the client first needs it, and then told what the client has said of its
//! connection.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use lockwarden_control::net::pipe::Pipe;
use lockwarden_control::net::stream::Stream;
use lockwarden_control::random;

use super::leg::Leg;
use super::{Front, LOOK_EVERY, NOT_SERVED, Over};
use crate::backend::BackendError;
use crate::backend::cluster::{ClusterMap, ShardId};
use crate::session::Session;
use crate::session::client::entry::Entry;
use crate::session::enter::enter;
use crate::state::ProxyState;

impl Front {
    /// The leg to the shard that has this slot, where there is one.
    pub(super) fn leg_of(&self, slot: u16) -> Option<usize> {
        self.leg_to(self.shared.shards.map()?.home(slot)?)
    }

    fn leg_to(&self, shard: ShardId) -> Option<usize> {
        let is_it = |leg: &Option<Leg>| leg.as_ref().is_some_and(|leg| leg.shard.backend.shard == shard && !leg.ended);
        self.legs.iter().position(is_it)
    }

    /// The leg to the shard that has this slot, waiting for it if need be. An error is for the client.
    pub(super) async fn reach(&mut self, slot: u16) -> Result<Result<usize, &'static str>, Over> {
        let at = self.wait_for_leg(|map| map.home(slot)).await?;
        Ok(at.ok_or(NOT_SERVED))
    }

    /// The leg to this shard, waiting for it if need be; `None` if the shard is not served.
    pub(super) async fn wait_for_leg(
        &mut self,
        shard: impl Fn(&ClusterMap) -> Option<ShardId>,
    ) -> Result<Option<usize>, Over> {
        let since = tokio::time::Instant::now();
        loop {
            let id = self.shared.shards.map().and_then(|map| shard(map));
            if let Some(shard) = id.and_then(|id| self.shared.shards.get(id))
                && let Some(at) = self.leg_for(&shard).await?
            {
                return Ok(Some(at));
            }
            if since.elapsed() >= self.shared.moving_patience {
                return Ok(None);
            }
            self.want_map();
            self.rest(LOOK_EVERY).await?;
        }
    }

    /// The leg to a shard, opened if need be; `None` while the shard is not served.
    pub(super) async fn leg_for(&mut self, shard: &Arc<ProxyState>) -> Result<Option<usize>, Over> {
        if let Some(at) = self.leg_to(shard.backend.shard) {
            return Ok(Some(at));
        }
        if !shard.is_served() {
            return Ok(None);
        }
        match self.open_leg(shard).await {
            Ok(at) => self.introduce(at).await.map(|()| Some(at)),
            Err(error) => {
                tracing::debug!(peer = %self.peer, %error, "a leg to a shard could not be opened");
                Ok(None)
            }
        }
    }

    /// The leg for requests that name no key.
    pub(super) async fn home(&mut self) -> Result<usize, Over> {
        let is_open = |at: &usize| self.legs[*at].as_ref().is_some_and(|leg| !leg.ended);
        if let Some(at) = self.home.filter(is_open).or_else(|| (0..self.legs.len()).find(is_open)) {
            self.home = Some(at);
            return Ok(at);
        }
        let at = self.open_home().await.map_err(|_| Over::Backend)?;
        self.introduce(at).await?;
        Ok(at)
    }

    /// Repeats to a session that was just opened what the client has said of itself. Nothing else is sent there
    /// before all of it was accepted.
    async fn introduce(&mut self, at: usize) -> Result<(), Over> {
        let said: Vec<Bytes> = self.said.frames().cloned().collect();
        for frame in said {
            if self.ask_aside(at, &frame).await?.starts_with(b"-") {
                return Err(self.is_unlike(at));
            }
        }
        Ok(())
    }

    /// Opens a leg to a shard that is served and has slots; different clients get different shards.
    pub(super) async fn open_home(&mut self) -> Result<usize, BackendError> {
        let map = self.shared.shards.map().map(|map| map.slots()).unwrap_or_default();
        let mut served = self.shared.shards.each();
        served.retain(|shard| shard.is_served() && map.has_slots(shard.backend.shard));
        if served.is_empty() {
            return Err(BackendError::NoNode("no primary of the cluster is served".to_owned()));
        }
        let [first, ..] = random::sixteen();
        let mut last = BackendError::NoNode("no primary of the cluster is served".to_owned());
        for step in 0..served.len() {
            let shard = served[(usize::from(first) + step) % served.len()].clone();
            match self.open_leg(&shard).await {
                Ok(at) => {
                    self.home = Some(at);
                    return Ok(at);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Opens a leg. Its session must still be told what the client has said of itself.
    async fn open_leg(&mut self, shard: &Arc<ProxyState>) -> Result<usize, BackendError> {
        let (link, entry) = enter(shard, &self.arrival).await?;
        if self.legs.iter().all(Option::is_none) && self.left.is_empty() {
            let has_user = matches!(entry, Entry::User { .. });
            self.said.must_log_in = !has_user && (entry.is_strict() || shard.backend.server.wants_password());
        }
        let (near, far) = Pipe::pair(&self.socket);
        let pipe = Stream::Pipe(Box::new(far));
        let session = Box::new(Session::new(shard.clone(), pipe, link, self.arrival.clone(), entry, self.id));
        let leg = Leg::new(shard.clone(), session.client.connection.peer().holder.clone(), near);
        tokio::task::spawn_local(session.serve_to_end(BytesMut::new()));
        let at = self.legs.iter().position(Option::is_none).unwrap_or(self.legs.len());
        match self.legs.get_mut(at) {
            Some(place) => *place = Some(leg),
            None => self.legs.push(Some(leg)),
        }
        Ok(at)
    }
}
