//! Looks up the process of a client that was granted a lease before its process was known, and has it added to the
//! record. It never delays a command.

use std::sync::Arc;
use std::time::Duration;

use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::token::{Grant, Process};

use crate::registry::clients::{ClientConnection, Identified};
use crate::state::ProxyState;

/// A lease that is held this long is worth a look-up of its holder.
const WORTH_A_LOOK: Duration = Duration::from_millis(50);

/// This client was granted a lease, and its process is not known yet: if the lease is held for a while, the process
/// is looked up.
pub(crate) fn identify_later(shared: &Arc<ProxyState>, peer: &Arc<ClientConnection>, key: DbKey, grant: Grant) {
    if peer.awaits_process(key, grant) {
        tokio::spawn(identify(shared.clone(), peer.clone()));
    }
}

async fn identify(shared: Arc<ProxyState>, peer: Arc<ClientConnection>) {
    tokio::time::sleep(WORTH_A_LOOK).await;
    let is_held = |(key, grant): &(DbKey, Grant)| {
        let current = shared.mirror.current(key);
        current.is_some_and(|(current, _)| current == *grant)
    };
    if peer.retain_unidentified(is_held) {
        let process = shared.processes.of(&peer).await;
        peer.was_looked_up();
        if process != Process::Pending {
            add_to_records(&shared, &peer, process);
        }
    }
}

/// Over a connection of the proxy's own, so that the client is not delayed; over the client's connection if the
/// proxy's own may not log in.
fn add_to_records(shared: &ProxyState, peer: &ClientConnection, process: Process) {
    if !shared.backend.server.may_ask() {
        peer.holder.wakeup.work();
        return;
    }
    for (key, grant) in peer.take_unidentified() {
        let one = Identified { key, grant, process };
        // The record of a report that is given up stays without the process.
        let _ = shared.identified.add(one);
    }
}
