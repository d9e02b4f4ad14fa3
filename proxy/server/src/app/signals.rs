//! The signals of an operator, as one stream for the main loop. This module installs the handlers and returns the signals; the
//! main loop acts on them.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// A request of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// SIGTERM: finish what is under way and end.
    Terminate,
    /// SIGINT, Ctrl-C: the same, from the terminal.
    Interrupt,
    /// SIGHUP: reload the configuration.
    Reload,
}

/// The stream of signals. From its creation on, none of the three ends the process by itself.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    /// Installs the handlers. To be called inside the runtime.
    pub(crate) fn new() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// The next signal. Several signals of one kind that arrive between two calls count as one. Dropping the future loses
    /// nothing.
    pub(crate) async fn next(&mut self) -> Ask {
        // In this order, so that a reload cannot delay a stop.
        tokio::select! {
            biased;
            _ = self.terminate.recv() => Ask::Terminate,
            _ = self.interrupt.recv() => Ask::Interrupt,
            _ = self.hang_up.recv() => Ask::Reload,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send(signal: libc::c_int) {
        // SAFETY: raise has no memory preconditions, and handlers for the signals are installed.
        assert_eq!(unsafe { libc::raise(signal) }, 0);
    }

    // One test for all three: signals belong to the process, and tests run side by side.
    #[tokio::test]
    async fn each_signal_is_told_by_its_name() {
        let mut signals = Signals::new().unwrap();
        send(libc::SIGHUP);
        assert_eq!(signals.next().await, Ask::Reload);
        send(libc::SIGINT);
        assert_eq!(signals.next().await, Ask::Interrupt);
        send(libc::SIGTERM);
        assert_eq!(signals.next().await, Ask::Terminate);
    }
}
