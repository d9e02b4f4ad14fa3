//! How the log is written, as far as it can be configured.

/// How lines are to look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Text at a terminal, JSON elsewhere.
    #[default]
    Auto,
    /// One JSON object a line.
    Json,
    /// For people, also where no terminal is.
    Text,
    /// `ts=… level=… msg=…` and the fields, as some collectors want it.
    Logfmt,
}

pub(super) const LOG_FORMATS: [(&str, LogFormat); 4] =
    [("auto", LogFormat::Auto), ("json", LogFormat::Json), ("text", LogFormat::Text), ("logfmt", LogFormat::Logfmt)];
