//! What the process's end means to a script: 0 all is well, 1 something was found, 2 usage or
//! configuration, 3 the backend cannot be reached.

use std::process::ExitCode;

/// Something was found, or refused.
pub(crate) fn findings() -> ExitCode {
    ExitCode::from(1)
}

/// The command line or the configuration is wrong.
pub(crate) fn configuration() -> ExitCode {
    ExitCode::from(2)
}

/// The backend cannot be reached.
pub(crate) fn unreachable() -> ExitCode {
    ExitCode::from(3)
}
