//! `max_connection_age`: tells sessions whose connections are old that they may end, so that clients connect again to
//! whichever proxy has room. One task serves all of them: no connection has a timer, and a session only checks a bit
//! that it checks anyway. Each session decides itself whether it can end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockwarden_control::net::wakeup::Wakeup;
use lockwarden_lock::token::SessionId;

use crate::registry::clients::ClientConnection;
use crate::state::ProxyState;

/// The longest time between two looks at all connections; and the time between two checks whether the configuration
/// has an age by now.
const MAX_WINDOW: Duration = Duration::from_secs(5);
const OFF: Duration = Duration::from_secs(1);
/// The shortest: a fixed time would be too coarse for ages of seconds.
const MIN_WINDOW: Duration = Duration::from_millis(50);

/// Runs until the process ends.
pub async fn run(shared: Arc<ProxyState>) {
    loop {
        let Some(age) = shared.active.load().max_connection_age else {
            tokio::time::sleep(OFF).await;
            continue;
        };
        let (now, window) = (Instant::now(), (age / 20).clamp(MIN_WINDOW, MAX_WINDOW));
        let connections = shared.clients.connections();
        for (due, wakeup) in due(&connections, age, now, window) {
            tokio::time::sleep_until(due.into()).await;
            wakeup.aged();
        }
        tokio::time::sleep_until((now + window).into()).await;
    }
}

/// The connections that are told within this window, and when.
fn due(
    connections: &[Arc<ClientConnection>],
    age: Duration,
    now: Instant,
    window: Duration,
) -> Vec<(Instant, Arc<Wakeup>)> {
    let end = now + window;
    let mut due: Vec<_> = connections
        .iter()
        .filter_map(|connection| {
            let share = share(connection.session);
            let moment = moment(connection.opened, age, share);
            // Those that could not end before are told again, and not all at once either.
            let moment = match moment < now {
                true => now + window.mul_f64(share),
                false => moment,
            };
            (moment < end).then(|| (moment, connection.holder.wakeup.clone()))
        })
        .collect();
    due.sort_by_key(|(moment, _)| *moment);
    due
}

/// When a connection counts as old: up to a tenth earlier or later than the age, so that connections that were opened
/// together are not closed together.
fn moment(opened: Instant, age: Duration, share: f64) -> Instant {
    opened + age.mul_f64(0.9 + 0.2 * share)
}

/// The place of this session among all, 0 to 1. Its number is random.
fn share(SessionId(number): SessionId) -> f64 {
    let [high, low, ..] = number;
    f64::from(u16::from_be_bytes([high, low])) / 65_536.0
}

#[cfg(test)]
mod tests {
    use lockwarden_control::net::arrival::Arrival;

    use super::*;
    use crate::registry::clients::Holder;

    const AGE: Duration = Duration::from_secs(3_600);

    fn connection(number: u16) -> Arc<ClientConnection> {
        let mut id = [0; 16];
        id[..2].copy_from_slice(&number.to_be_bytes());
        let address: std::net::SocketAddr = "10.0.0.1:1".parse().unwrap();
        let arrival = Arrival::direct(address.into());
        let (id, holder) = (SessionId(id), Holder::new());
        Arc::new(ClientConnection::new(id, holder, arrival, None, Arc::default()))
    }

    #[test]
    fn ten_thousand_that_came_together_go_over_a_fifth_of_their_age() {
        let all: Vec<_> = (0..10_000).map(|number| connection(number * 6)).collect();
        let opened = all[0].opened;
        let told_from = |seconds: u64| {
            let now = opened + Duration::from_secs(seconds);
            due(&all, AGE, now, MAX_WINDOW).len()
        };
        assert_eq!(told_from(3_200), 0);
        for minute in 55..65 {
            let number = told_from(minute * 60 + 5) - told_from(minute * 60);
            assert!((50..100).contains(&number), "{number} in minute {minute}");
        }
        // Those that cannot end are told again in each window, one after the other.
        let now = opened + 2 * AGE;
        let again = due(&all, AGE, now, MAX_WINDOW);
        assert_eq!(again.len(), all.len());
        let half = now + MAX_WINDOW / 2;
        let first = again.iter().filter(|(moment, _)| *moment < half).count();
        assert!((4_000..6_000).contains(&first), "{first}");
    }
}
