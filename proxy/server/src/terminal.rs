//! The only output for people on standard output and standard error: no control character reaches a terminal. Tables and JSON
//! of the commands go through `cli::output`, the log through `telemetry::logging`.

/// Says something over standard error, as `eprintln` does.
macro_rules! complain {
    ($($words:tt)+) => {
        $crate::terminal::to_stderr(format_args!($($words)+))
    };
}

/// Says something over standard output, as `println` does.
macro_rules! say {
    ($($words:tt)+) => {
        $crate::terminal::to_stdout(format_args!($($words)+))
    };
}

pub(crate) use {complain, say};

use std::fmt;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use lockwarden_control::text::escape::readable_lines;

/// Something could not be written to standard output.
static LOST: AtomicBool = AtomicBool::new(false);

pub(crate) fn to_stderr(words: fmt::Arguments<'_>) {
    // If this fails, there is nowhere to say so.
    let _ = writeln!(io::stderr(), "{}", readable_lines(&words.to_string()));
}

pub(crate) fn to_stdout(words: fmt::Arguments<'_>) {
    match writeln!(io::stdout(), "{}", readable_lines(&words.to_string())) {
        Ok(()) => {}
        // The reader has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        Err(error) => {
            if !LOST.swap(true, Ordering::Relaxed) {
                complain!("lockwarden: cannot write the answer: {error}");
            }
        }
    }
}

/// Whether a part of the output was lost.
pub(crate) fn has_lost() -> bool {
    LOST.load(Ordering::Relaxed)
}
