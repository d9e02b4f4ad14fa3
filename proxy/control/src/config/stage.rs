//! `stage`: whom the next version of something answers while it is asked beside what is in force.

use std::fmt;

use super::suggest::quoted;

/// The next version of a policy is called as that with this behind it.
pub const NEXT: &str = ".next";

/// Whom a chain answers that is asked beside the one in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stage {
    /// How many in a hundred of the applications.
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

/// A text that is no stage.
#[derive(Debug, thiserror::Error)]
#[error("{} is no stage; write \"shadow\", which answers nobody, \"10%\" of the applications, or \"all\"", quoted(.0))]
pub struct StageError(String);

/// The stage that a text names.
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
