//! The command that runs under the lock, and the signals that are meant for it.

use std::ffi::OsString;
use std::io;
use std::process::ExitStatus;

use lockwarden_control::config;
use lockwarden_control::config::Backend;
use tokio::process::Command;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::app::child_processes;

/// What the command finds the fencing token of its lease in.
const FENCE: &str = "LOCKWARDEN_FENCE";

/// What we log in with.
const SECRETS: [&str; 3] = ["LOCKWARDEN_ADMIN_TOKEN", "LOCKWARDEN_BACKEND_PASSWORD", "REDISCLI_AUTH"];
/// May have a password in it.
const BACKEND: &str = "LOCKWARDEN_BACKEND";

/// Whether the command gets them.
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
    /// It is in a group of its own, so that a signal reaches what it has started as well. Not where it shares
    /// a terminal with us: there the terminal sends signals to both, and only its own group may read from it.
    own_group: bool,
}

impl Child {
    /// Starts the command. Where the fencing token is not known the variable is absent, even if we were
    /// started with one. What we were given to log in with is not handed on, unless that is asked for.
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
        // Nobody extends the lease when we are gone.
        child_processes::end_with_us(command.as_std_mut());
        let process = command.spawn()?;
        let id = process
            .id()
            .and_then(|id| libc::pid_t::try_from(id).ok())
            .ok_or_else(|| io::Error::other("it has no process id"))?;
        Ok(Child { process, id, own_group })
    }

    /// Its end. May be asked for again.
    pub(super) async fn ended(&mut self) -> io::Result<ExitStatus> {
        self.process.wait().await
    }

    /// Passes on a signal that we got.
    pub(super) fn forward(&self, number: libc::c_int) {
        let from_terminal = matches!(number, libc::SIGINT | libc::SIGQUIT);
        if self.own_group || !from_terminal {
            self.signal(number);
        }
    }

    /// Sends a signal to it and what it has started.
    pub(super) fn signal(&self, number: libc::c_int) {
        let target = if self.own_group { -self.id } else { self.id };
        // SAFETY: no pointers; `id` is a child that was not waited for, so it is still its own.
        unsafe { libc::kill(target, number) };
    }
}

/// A URL that cannot be read may have one, too.
fn has_password(url: &str) -> bool {
    match config::parse_backend(url) {
        Ok(Backend::Redis(url)) => url.password.is_some(),
        Ok(Backend::Private) => false,
        Err(_) => true,
    }
}

/// Whether we are what the terminal's user is typing to.
fn shares_terminal() -> bool {
    // SAFETY: no pointers; a standard input that is no terminal answers -1, which is no group.
    unsafe { libc::tcgetpgrp(libc::STDIN_FILENO) == libc::getpgrp() }
}

/// What comes in for the command.
pub(super) struct Signals(Vec<(libc::c_int, Signal)>);

impl Signals {
    /// From now on these signals do nothing else.
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
