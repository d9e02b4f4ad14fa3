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

use lockwarden_control::text::escape::readable_lines;

#[expect(clippy::print_stderr, reason = "what is odd was spelled")]
pub(crate) fn to_stderr(words: fmt::Arguments<'_>) {
    eprintln!("{}", readable_lines(&words.to_string()));
}

#[expect(clippy::print_stdout, reason = "what is odd was spelled")]
pub(crate) fn to_stdout(words: fmt::Arguments<'_>) {
    println!("{}", readable_lines(&words.to_string()));
}
