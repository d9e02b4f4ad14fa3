//! Who goes on keeping a lease alive when the connection that took it ends: pools close idle
//! connections while their process works on. Another connection of the same process, or of an address
//! that is one process, adopts the lease; without one it goes by its TTL.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use lockwarden_lock::evidence::DbKey;
use lockwarden_lock::token::{Identity, Process};
use tokio::runtime::Handle;

use super::kept::{KeptLease, Kin, SessionNumber};
use crate::peers::Peer;
use crate::shared::Shared;

/// Clients that are the same by their connections and whose process is looked at, for one lease.
const MOST_NAMESAKES: usize = 64;
/// Between two looks for an heir: a pool may close its connection before it opens another.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A session is gone, and known to be: its leases go to their heirs.
pub(crate) fn end_session(shared: &Arc<Shared>, session: SessionNumber) {
    for (key, lease) in shared.kept.end_session(session) {
        match &lease.kin {
            Kin::Nobody => {}
            Kin::Address(client) => {
                if let Some(heir) = shared.peers.namesakes(*client, 1).pop() {
                    bequeath(shared, &heir, key, lease);
                }
            }
            Kin::Process(client, peer) => {
                let (client, process) = (*client, peer.process());
                // What was not looked up while the connection lasted cannot be any more.
                if let (Process::Known(_), Ok(runtime)) = (process, Handle::try_current()) {
                    runtime.spawn(search(Arc::downgrade(shared), client, process, key, lease));
                }
            }
        }
    }
}

/// Looks for another connection of the process for as long as the lease lasts without a renewal.
async fn search(
    shared: Weak<Shared>,
    client: Identity,
    process: Process,
    key: DbKey,
    lease: KeptLease,
) {
    let ttl = Duration::from_millis(lease.renewal.ttl_ms);
    let pause = (ttl / 10).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
    while let Some(shared) = shared.upgrade() {
        for peer in shared.peers.namesakes(client, MOST_NAMESAKES) {
            if shared.processes.of(&peer).await == process {
                bequeath(&shared, &peer, key, lease);
                return;
            }
        }
        drop(shared);
        if Instant::now() + pause >= lease.ends {
            return;
        }
        tokio::time::sleep(pause).await;
    }
}

fn bequeath(shared: &Arc<Shared>, heir: &Peer, key: DbKey, lease: KeptLease) {
    let now = Instant::now();
    shared.kept.adopt(&heir.holder, key, lease, now);
    // Where the heir went before it could know, nobody else would look after its leases.
    if shared.peers.of_session(heir.session).is_none() {
        end_session(shared, heir.holder.session);
    }
}
