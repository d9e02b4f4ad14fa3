//! What the proxy tells a service manager that started it (`sd_notify(3)`): that it serves, that it
//! reads its configuration again, that it stops, and, where a watchdog is set, that it lives. Without
//! a service manager nothing happens; a message that cannot be sent is a line in the log and stops
//! nothing.

use sd_notify::NotifyState;

/// It serves, or does so again after a reload.
pub(crate) fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// It reads its configuration again; [`ready`] ends that.
pub(crate) fn reloading() {
    let now = NotifyState::monotonic_usec_now();
    match now {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::debug!(%error, "the service manager is not told of the reload"),
    }
}

/// It takes no new clients.
pub(crate) fn stopping(status: &str) {
    tell(&[NotifyState::Stopping, NotifyState::Status(status)]);
}

/// Shows signs of life, twice in the time that the service manager allows. They come from the runtime
/// that serves the clients, so one that is stuck shows none.
pub(crate) async fn watchdog() {
    let Some(allowed) = sd_notify::watchdog_enabled() else {
        return;
    };
    let mut ticks = tokio::time::interval(allowed / 2);
    loop {
        ticks.tick().await;
        tell(&[NotifyState::Watchdog]);
    }
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager cannot be told");
    }
}
