//! Writes of guarded data that wait to be judged, and what was read for that. `guarded_writes` judges them.

use lockwarden_control::ruleset::Active;
use lockwarden_control::telemetry::vocabulary::GuardUnchecked;
use lockwarden_lock::data_guard::{Guarded, RecordHead};

/// A write of guarded data.
#[derive(Debug)]
pub struct GuardedWrite {
    /// The command's name.
    pub(crate) command: &'static str,
    pub(crate) keys: Vec<Guarded>,
    /// It cannot be judged.
    pub(crate) unchecked: Option<GuardUnchecked>,
    /// The database that the command itself names, if it does. Which one is selected is certain only when it is
    /// judged.
    pub(crate) into: Option<IntoDatabase>,
}

/// A database that a command names; `None` where it is no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IntoDatabase(pub(crate) Option<u32>);

/// The records of some locks.
pub(crate) type Heads = Vec<(Vec<u8>, Option<RecordHead>)>;

impl GuardedWrite {
    /// Whether a refusal of it is carried out.
    pub fn is_enforced(&self, active: &Active) -> bool {
        let details = &active.guards.details;
        self.keys.iter().any(|one| details[one.guard].enforces())
    }

    /// The names of its locks, each once.
    pub(crate) fn locks(&self) -> Vec<&[u8]> {
        distinct(self.keys.iter())
    }
}

fn distinct<'a>(keys: impl Iterator<Item = &'a Guarded>) -> Vec<&'a [u8]> {
    let mut locks: Vec<&[u8]> = keys.flat_map(|one| one.locks.iter().map(Vec::as_slice)).collect();
    locks.sort_unstable();
    locks.dedup();
    locks
}

/// The writes of a block that guards hold back, until the block is to be executed.
#[derive(Debug, Default)]
pub(crate) struct GuardedBlock {
    pub(crate) writes: Vec<GuardedWrite>,
}

impl GuardedBlock {
    /// Whether a refusal of some write is carried out.
    pub(crate) fn is_enforced(&self, active: &Active) -> bool {
        self.writes.iter().any(|write| write.is_enforced(active))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    pub(crate) fn locks(&self) -> Vec<&[u8]> {
        distinct(self.writes.iter().flat_map(|write| &write.keys))
    }
}
