//! Messages of the proxy to the service manager that started it (`sd_notify(3)`): it serves, it reloads its configuration, it
//! stops, and, where a watchdog is set, it is alive. Without a service manager nothing is sent; a failed message is a line in
//! the log and stops nothing.

use sd_notify::NotifyState;

/// The proxy serves, also again after a reload.
pub(crate) fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// The proxy reloads its configuration; [`ready`] ends that state.
pub(crate) fn reloading() {
    let now = NotifyState::monotonic_usec_now();
    match now {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::debug!(%error, "the service manager is not told of the reload"),
    }
}

/// The proxy accepts no new clients.
pub(crate) fn stopping(status: &str) {
    tell(&[NotifyState::Stopping, NotifyState::Status(status)]);
}

/// Sends signs of life, twice within the time that the service manager allows. They come from the runtime that serves the
/// clients, so a stuck runtime sends none.
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
