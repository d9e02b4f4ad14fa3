//! What sentinels name, and why they do not.

use std::fmt;
use std::time::Duration;

use lockwarden_control::config::HostAndPort;

/// How long one sentinel may take to be reached and to answer.
pub(crate) const PATIENCE: Duration = Duration::from_millis(500);

/// Where a sentinel or a server is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        HostAndPort(&self.host, self.port).fmt(f)
    }
}

/// A primary as sentinels name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    pub place: Place,
    /// Counts the failovers: of two answers the one with the higher epoch is the newer.
    pub epoch: u64,
}

/// Why no sentinel says where the primary is.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum SentinelError {
    #[error("cannot connect: {0}")]
    Connect(String),
    #[error("it did not answer within {PATIENCE:?}")]
    Late,
    #[error("it knows no primary of the name {0}")]
    UnknownName(String),
    #[error("it refused the login: {0}; set [sentinel] user and password_file")]
    Login(String),
    #[error("it answered what no sentinel answers: {0}")]
    Answer(String),
}

/// No sentinel says where the primary is.
#[derive(Debug)]
pub struct SentinelsError {
    pub(super) name: String,
    pub(super) each: Vec<(Place, SentinelError)>,
}

impl fmt::Display for SentinelsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no sentinel says where the primary of {} is", self.name)?;
        for (index, (place, error)) in self.each.iter().enumerate() {
            let before = if index == 0 { ": " } else { "; " };
            write!(f, "{before}{place}: {error}")?;
        }
        Ok(())
    }
}
