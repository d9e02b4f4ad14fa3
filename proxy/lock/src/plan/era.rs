//! The steps of a server that has become the primary: what is entered of its era, and which leases are still there.

use std::time::Duration;

use lockwarden_resp::Value;

use super::{Plan, Step};
use crate::companion::Home;
use crate::scripts;
use crate::token::Grant;

/// The entry is written at each connection, so that it is missing only where no proxy came for so long.
const ENTRY_LIVES: Duration = Duration::from_secs(30 * 86_400);

/// Enters an era, if the entry is what it was when it was read. Is run in database 0.
pub fn enter_era(before: &str, entry: &str, (companion_prefix, home): (&[u8], Home)) -> Plan {
    let mut step = Step::of_keys(&[&home.era_key(companion_prefix)]);
    step.bytes(before.as_bytes());
    step.bytes(entry.as_bytes());
    step.number(ENTRY_LIVES.as_millis().try_into().unwrap_or(u64::MAX));
    step.done(&scripts::ERA)
}

/// What became of a lease that another server had granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surveyed {
    /// It is held, with this TTL, if it has one.
    Held(Option<Duration>),
    /// It was given back, or ended otherwise.
    Ended,
    /// It was not given back, and is over.
    RanOut,
    /// It is not there.
    Lost,
    /// Another is there, or was, that was granted so long ago.
    Another(Duration),
}

/// Looks for leases of one database.
pub fn survey<'a>(leases: impl Iterator<Item = (&'a [u8], Grant)> + Clone, companion_prefix: &[u8]) -> Plan {
    let locks: Vec<&[u8]> = leases.clone().map(|(lock, _)| lock).collect();
    let mut step = Step::new(&locks, companion_prefix, &[]);
    for (_, grant) in leases {
        step.bytes(&grant.0);
    }
    step.done(&scripts::SURVEY)
}

/// Reads the answer of [`survey`], one entry a lease. `None` for an answer that is none of the script's own.
pub fn surveyed(answer: &Value) -> Option<Vec<Surveyed>> {
    let one = |value: &Value| match value.as_integer()? {
        -4 => Some(Surveyed::Lost),
        -3 => Some(Surveyed::RanOut),
        -2 => Some(Surveyed::Ended),
        -1 => Some(Surveyed::Held(None)),
        ..-4 => {
            let age = u64::try_from(-5 - value.as_integer()?).ok()?;
            Some(Surveyed::Another(Duration::from_millis(age)))
        }
        left => {
            let left = u64::try_from(left).ok()?;
            Some(Surveyed::Held(Some(Duration::from_millis(left))))
        }
    };
    answer.as_items()?.iter().map(one).collect()
}
