//! Checks the files of certificates every few seconds. Watching them instead would miss links that are replaced, as
//! Kubernetes does, and files on another machine.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;

use crate::state::ProxyState;

/// Between two checks. A new certificate is mostly there days before the old one expires.
const LOOK: Duration = Duration::from_secs(10);

/// Runs until the process ends.
pub async fn run(shared: Arc<ProxyState>) {
    if !shared.certificates.are_there(&shared.backend.address) {
        return;
    }
    loop {
        tokio::time::sleep(LOOK).await;
        let shared = shared.clone();
        // A file on another machine may keep its reader waiting.
        let look = move || shared.certificates.look(&shared.backend.address, &shared.metrics);
        if spawn_blocking(look).await.is_err() {
            return;
        }
    }
}
