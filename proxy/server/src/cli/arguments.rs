//! Parsers for arguments that several commands share.

use std::time::Duration;

use lockwarden_control::config;

/// The longest time of a flag: more is probably a typing error.
const MAX_TIME: Duration = Duration::from_secs(366 * 86_400);

/// A text on the command line that is not a time.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("write a whole number and ms, s, m, h or d, as in 30s; a year at most")]
pub(super) struct DurationError;

/// A time on the command line, spelled as in the configuration.
pub(super) fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    config::milliseconds(text).map(Duration::from_millis).filter(|time| *time <= MAX_TIME).ok_or(DurationError)
}
