//! A stopping proxy sends its idle clients away one after the other; otherwise they would all connect elsewhere at the same
//! moment.

use std::sync::Arc;
use std::time::Duration;

use lockwarden_dataplane::state::ProxyState;

/// The longest time over which the clients are told.
const SPREAD: Duration = Duration::from_secs(1);
/// Pause between two groups of clients.
const PACE: Duration = Duration::from_millis(10);

/// Tells all connected clients that the proxy is about to stop, over at most a second, and over no more than `most`.
pub(super) async fn one_by_one(shared: Arc<ProxyState>, most: Duration) {
    let clients = shared.clients.connections();
    let at_once = at_once(clients.len(), most);
    for some in clients.chunks(at_once) {
        for client in some {
            client.holder.wakeup.drain();
        }
        tokio::time::sleep(PACE).await;
    }
}

/// The number of clients that are told at the same moment.
fn at_once(clients: usize, most: Duration) -> usize {
    let steps = SPREAD.min(most).as_millis() / PACE.as_millis();
    let steps = usize::try_from(steps).unwrap_or(usize::MAX).max(1);
    clients.div_ceil(steps).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_go_quickly_and_many_over_a_second_but_never_longer_than_the_proxy_waits() {
        let (second, tenth) = (Duration::from_secs(1), Duration::from_millis(100));
        for (clients, most, expected) in [
            (0, second, 1),
            (1, second, 1),
            (100, second, 1),
            (101, second, 2),
            (10_000, Duration::from_secs(60), 100),
            (10_000, tenth, 1_000),
            (7, Duration::ZERO, 7),
        ] {
            assert_eq!(at_once(clients, most), expected, "{clients} {most:?}");
        }
    }
}
