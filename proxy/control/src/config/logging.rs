//! The configurable part of how the log is written.

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Text at a terminal, JSON elsewhere.
    #[default]
    Auto,
    /// One JSON object a line.
    Json,
    /// For people, even without a terminal.
    Text,
    /// `ts=… level=… msg=…` and the fields, as some log collectors expect it.
    Logfmt,
}

pub(super) const LOG_FORMATS: [(&str, LogFormat); 4] =
    [("auto", LogFormat::Auto), ("json", LogFormat::Json), ("text", LogFormat::Text), ("logfmt", LogFormat::Logfmt)];
