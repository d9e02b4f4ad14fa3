//! The exit codes: 0 success, 1 something was found, refused or is missing, 2 usage or configuration, 3 the backend or the
//! proxy is unreachable, 124 a lock could not be taken in time. A command under a lock passes its own exit code on, as shells
//! do.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

/// Findings, or a refusal.
pub(crate) fn findings() -> ExitCode {
    ExitCode::from(1)
}

/// The command line or the configuration is wrong.
pub(crate) fn configuration() -> ExitCode {
    ExitCode::from(2)
}

/// The backend, or the proxy, cannot be reached.
pub(crate) fn unreachable() -> ExitCode {
    ExitCode::from(3)
}

/// Another client held the lock for the whole wait; `timeout` uses the same code.
pub(crate) fn wait_is_over() -> ExitCode {
    ExitCode::from(124)
}

/// The exit code of a command that was run.
pub(crate) fn after(status: ExitStatus) -> ExitCode {
    match (status.code(), status.signal()) {
        (Some(code), _) => ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)),
        (None, Some(signal)) => after_signal(signal),
        (None, None) => ExitCode::FAILURE,
    }
}

/// Ended by this signal.
pub(crate) fn after_signal(signal: i32) -> ExitCode {
    ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX))
}

/// The command could not be run.
pub(crate) fn not_started(error: &io::Error) -> ExitCode {
    match error.kind() {
        io::ErrorKind::NotFound => ExitCode::from(127),
        _ => ExitCode::from(126),
    }
}
