//! Watches jobs of a shell whose client has left (`registry::jobs`): as long as the job lives, its lease is kept
//! alive; after that it is treated as at the end of any other client.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::token::Grant;
use tokio::runtime::Handle;

use super::handover;
use super::handover::Ended;
use crate::state::ProxyState;

/// After this time it has been decided which process the job is: subshells and wrappers have ended by then.
const SETTLED_AFTER: Duration = Duration::from_secs(1);
/// Between two checks whether the job lives, before that is decided and later.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const PAUSE: Duration = Duration::from_secs(1);

/// The client that took this lock is gone. Its job keeps the lease, if the client was started only for the lock.
pub(crate) fn client_left(shared: &Arc<ProxyState>, key: DbKey, grant: Grant, ended: Ended) {
    let in_order = matches!(ended, Ended::ByClient(_));
    if !shared.jobs.left(&key, grant, in_order) || !is_held(shared, &key, grant) {
        shared.jobs.remove(&key, grant);
    } else if let Ok(runtime) = Handle::try_current()
        && shared.jobs.of(&key, grant).is_some_and(|job| job.holder.is_some())
    {
        runtime.spawn(watch(Arc::downgrade(shared), key, grant, ended));
    }
}

fn is_held(shared: &ProxyState, key: &DbKey, grant: Grant) -> bool {
    let is_on = |shard: &ProxyState| {
        let current = shard.mirror.current(key);
        current.is_some_and(|(current, _)| current == grant) || shard.renewals.keeps(key, grant)
    };
    // In a cluster its slot may have moved since it was taken.
    is_on(shared) || shared.shards.of_key(key.bytes()).is_some_and(|home| is_on(&home))
}

/// Checks whether the job lives, until it does not or the lock no longer belongs to it.
async fn watch(shared: Weak<ProxyState>, key: DbKey, grant: Grant, ended: Ended) {
    let settles = Instant::now() + SETTLED_AFTER;
    let mut pause = FIRST_PAUSE;
    loop {
        tokio::time::sleep(pause).await;
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let Some(job) = shared.jobs.of(&key, grant) else {
            return;
        };
        let is_decided = Instant::now() >= settles;
        if !is_held(&shared, &key, grant) || !job.lives(is_decided) {
            shared.jobs.over(&key, &job);
            if let Some(holder) = job.holder {
                handover::end_session(&shared, holder.session, ended);
            }
            return;
        }
        if is_decided {
            pause = PAUSE;
            if let Some(leader) = job.leader() {
                shared.jobs.settle(&key, grant, leader);
            }
        }
    }
}
