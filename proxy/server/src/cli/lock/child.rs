//! The command that runs under the lock, and the signals for it.

use std::ffi::OsString;
use std::io;
use std::process::ExitStatus;

use lockwarden_control::config;
use lockwarden_control::config::Backend;
use tokio::process::Command;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::app::child_processes;

/// The variable in which the command finds the fencing token of its lease.
const FENCE: &str = "LOCKWARDEN_FENCE";

/// Our own credentials.
const SECRETS: [&str; 3] = ["LOCKWARDEN_ADMIN_TOKEN", "LOCKWARDEN_BACKEND_PASSWORD", "REDISCLI_AUTH"];
/// May contain a password.
const BACKEND: &str = "LOCKWARDEN_BACKEND";

/// Whether the command gets our credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Secrets {
    Withheld,
    HandedOn,
}

/// The signals that people and service managers send.
const FORWARDED: [libc::c_int; 6] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2];

/// A running command.
pub(super) struct Child {
    process: tokio::process::Child,
    id: libc::pid_t,
    /// It runs in its own process group, so that a signal also reaches its children. Not if it shares a terminal with us: the
    /// terminal sends signals to both, and only its own group may read from it.
    own_group: bool,
}

impl Child {
    /// Starts the command. Without a known fencing token the variable is absent, even if we were started with one. Our
    /// credentials are passed on only on request.
    pub(super) fn start(words: &[OsString], fence: Option<u64>, secrets: Secrets) -> io::Result<Child> {
        let (program, arguments) = words.split_first().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let own_group = !shares_terminal();
        let mut command = Command::new(program);
        command.args(arguments);
        match fence {
            Some(fence) => command.env(FENCE, fence.to_string()),
            None => command.env_remove(FENCE),
        };
        if secrets == Secrets::Withheld {
            for name in SECRETS {
                command.env_remove(name);
            }
            if std::env::var(BACKEND).is_ok_and(|url| has_password(&url)) {
                command.env_remove(BACKEND);
            }
        }
        if own_group {
            command.process_group(0);
        }
        // The lease is not extended any more when we are gone.
        child_processes::end_with_us(command.as_std_mut());
        let process = command.spawn()?;
        let id = process
            .id()
            .and_then(|id| libc::pid_t::try_from(id).ok())
            .ok_or_else(|| io::Error::other("it has no process id"))?;
        Ok(Child { process, id, own_group })
    }

    /// Its exit status. May be called again.
    pub(super) async fn ended(&mut self) -> io::Result<ExitStatus> {
        self.process.wait().await
    }

    /// Passes on a signal that we received.
    pub(super) fn forward(&self, number: libc::c_int) {
        let from_terminal = matches!(number, libc::SIGINT | libc::SIGQUIT);
        if self.own_group || !from_terminal {
            self.signal(number);
        }
    }

    /// Sends a signal to it and its children.
    pub(super) fn signal(&self, number: libc::c_int) {
        let target = if self.own_group { -self.id } else { self.id };
        // SAFETY: no pointers; `id` is a child that was not waited for, so it is still its own.
        unsafe { libc::kill(target, number) };
    }
}

/// A URL that cannot be parsed may contain one, too.
fn has_password(url: &str) -> bool {
    match config::parse_backend(url) {
        Ok(Backend::Redis(url)) => url.password.is_some(),
        Ok(Backend::Private) => false,
        Err(_) => true,
    }
}

/// Whether we are the foreground group of the terminal.
fn shares_terminal() -> bool {
    // SAFETY: no pointers; a standard input that is no terminal answers -1, which is no group.
    unsafe { libc::tcgetpgrp(libc::STDIN_FILENO) == libc::getpgrp() }
}

/// The signals for the command.
pub(super) struct Signals(Vec<(libc::c_int, Signal)>);

impl Signals {
    /// From now on these signals have no other effect.
    pub(super) fn listen() -> io::Result<Signals> {
        let listening = FORWARDED
            .into_iter()
            .map(|number| Ok((number, signal(SignalKind::from_raw(number))?)))
            .collect::<io::Result<_>>()?;
        Ok(Signals(listening))
    }

    /// The next one.
    pub(super) async fn next(&mut self) -> libc::c_int {
        std::future::poll_fn(|context| {
            for (number, signal) in &mut self.0 {
                if signal.poll_recv(context).is_ready() {
                    return std::task::Poll::Ready(*number);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }
}
