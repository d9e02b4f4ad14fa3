//! `stage`: for which share of applications a `next` version answers while it is asked beside the one in force.

use std::fmt;

use super::suggest::quoted;

/// The suffix of a policy's name for its next version.
pub const NEXT: &str = ".next";

/// The share of applications that a `next` chain answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stage {
    /// The percentage of applications.
    pub(crate) percent: u8,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.percent {
            0 => f.write_str("shadow"),
            100 => f.write_str("all"),
            percent => write!(f, "{percent}%"),
        }
    }
}

/// Why a text is no stage.
#[derive(Debug, thiserror::Error)]
#[error("{} is no stage; write \"shadow\", which answers nobody, \"10%\" of the applications, or \"all\"", quoted(.0))]
pub struct StageError(String);

/// Parses a stage.
pub fn stage(text: &str) -> Result<Stage, StageError> {
    let percent = match text {
        "shadow" => Some(0),
        "all" => Some(100),
        _ => {
            text.strip_suffix('%').and_then(|number| number.parse().ok()).filter(|percent| (1..=100).contains(percent))
        }
    };
    percent.map(|percent| Stage { percent }).ok_or_else(|| StageError(text.to_owned()))
}
