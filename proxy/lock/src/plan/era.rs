//! The steps for a server that has become the primary: the entry of its era, and the check which leases still exist.

use std::time::Duration;

use lockwarden_resp::Value;

use super::{Plan, Step};
use crate::companion::Home;
use crate::scripts;
use crate::token::Grant;

/// The entry is written at each connection, so it is missing only if no proxy connected for this long.
const ENTRY_LIVES: Duration = Duration::from_secs(30 * 86_400);

/// Writes an era, if the entry is unchanged since it was read. Runs in database 0.
pub fn enter_era(before: &str, entry: &str, (companion_prefix, home): (&[u8], Home)) -> Plan {
    let mut step = Step::of_keys(&[&home.era_key(companion_prefix)]);
    step.bytes(before.as_bytes());
    step.bytes(entry.as_bytes());
    step.number(ENTRY_LIVES.as_millis().try_into().unwrap_or(u64::MAX));
    step.done(&scripts::ERA)
}

/// The state of a lease that another server had granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surveyed {
    /// It is held, with this TTL, if any.
    Held(Option<Duration>),
    /// It was released, or ended otherwise.
    Ended,
    /// It was not released, and is over.
    RanOut,
    /// It does not exist.
    Lost,
    /// Another lease exists, or existed, that was granted this long ago.
    Another(Duration),
}

/// Checks leases in one database.
pub fn survey<'a>(leases: impl Iterator<Item = (&'a [u8], Grant)> + Clone, companion_prefix: &[u8]) -> Plan {
    let locks: Vec<&[u8]> = leases.clone().map(|(lock, _)| lock).collect();
    let mut step = Step::new(&locks, companion_prefix, &[]);
    for (_, grant) in leases {
        step.bytes(&grant.0);
    }
    step.done(&scripts::SURVEY)
}

/// Parses the answer of [`survey`], one entry per lease. `None` if it has not the script's form.
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
