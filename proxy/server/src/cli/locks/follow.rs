//! `lockwarden locks list --follow`: a line for every change of the list. Locks that begin and end between two queries are not
//! seen; the audit trail has all.

use std::collections::HashMap;
use std::process::ExitCode;
use std::time::Duration;

use lockwarden_console::view::api::{Lock, Locks};
use lockwarden_control::text::numbers::time_of_day;
use serde::Serialize;

use super::list::{ListArgs, client, fence, fetch, state};
use crate::cli::api_client::{ApiClient, ApiError};
use crate::cli::output;
use crate::cli::output::{Format, plain};
use crate::terminal::complain;

/// The shortest pause between two queries.
const SHORTEST: Duration = Duration::from_millis(100);

/// How far apart two estimates of the same beginning may be, ms.
const RECKONED_TO: u64 = 2_000;

/// A difference between two successive queries.
#[derive(Debug, PartialEq, Serialize)]
struct Change<'a> {
    /// The time of the query, Unix ms of the proxy's clock.
    at: u64,
    what: What,
    lock: &'a Lock,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum What {
    /// It is held.
    Held,
    /// It is now held by another lease.
    Taken,
    /// Its state has changed.
    Changed,
    /// It is no longer held, or no longer listed.
    Gone,
}

pub(super) fn follow(args: &ListArgs) -> Result<ExitCode, ApiError> {
    let client = ApiClient::new(args.fleet.api())?;
    let interval = args.interval.max(SHORTEST);
    // A wrong address or namespace is reported at once; a later outage is waited out.
    let mut locks = fetch(&client, &args.query)?;
    let mut before = HashMap::new();
    let mut is_up = true;
    loop {
        let told = changes(&before, &locks);
        let text: String = told.iter().map(|change| spoken(change, args.output.output)).collect();
        if !output::print(&text)? {
            return Ok(ExitCode::SUCCESS);
        }
        before = remembered(locks);
        locks = loop {
            std::thread::sleep(interval);
            match fetch(&client, &args.query) {
                Ok(locks) => {
                    is_up = true;
                    break locks;
                }
                Err(error) if is_up => {
                    complain!("lockwarden: {error}; trying on");
                    is_up = false;
                }
                Err(_) => {}
            }
        };
    }
}

type Known = HashMap<(u32, String), Lock>;

fn remembered(locks: Locks) -> Known {
    let named = |lock: Lock| ((lock.db, lock.key.clone()), lock);
    locks.locks.into_iter().map(named).collect()
}

fn changes<'a>(before: &'a Known, locks: &'a Locks) -> Vec<Change<'a>> {
    let at = locks.now;
    let mut changes = Vec::new();
    let mut gone: HashMap<_, _> = before.iter().map(|((db, key), lock)| ((*db, key.as_str()), lock)).collect();
    for lock in &locks.locks {
        let what = match gone.remove(&(lock.db, lock.key.as_str())) {
            None => What::Held,
            Some(old) if is_another(old, lock) => What::Taken,
            Some(old) if old.state != lock.state => What::Changed,
            Some(_) => continue,
        };
        changes.push(Change { at, what, lock });
    }
    let mut gone: Vec<_> = gone.into_values().collect();
    // They come out of a map, which has no order.
    gone.sort_by(|a, b| (a.db, &a.key).cmp(&(b.db, &b.key)));
    changes.extend(gone.into_iter().map(|lock| Change { at, what: What::Gone, lock }));
    changes
}

/// A lease without a record has no fencing token, only a beginning, which is estimated anew at every query.
fn is_another(old: &Lock, new: &Lock) -> bool {
    match (old.fence, new.fence) {
        (0, 0) => old.since.abs_diff(new.since) > RECKONED_TO,
        (before, now) => before != now,
    }
}

fn spoken(change: &Change<'_>, format: Format) -> String {
    let Change { at, what, lock } = change;
    if format == Format::Json {
        // All keys are text, so it can always be written.
        let mut line = serde_json::to_string(change).unwrap_or_default();
        line.push('\n');
        return line;
    }
    let who = lock.holder.as_ref().map_or("?".to_owned(), client);
    let rest = match what {
        What::Held | What::Taken => format!("by {who}, fence {}", fence(lock.fence)),
        What::Changed => state(lock.state).0.to_owned(),
        What::Gone => format!("by {who}, fence {}", fence(lock.fence)),
    };
    let word = match what {
        What::Held => "held",
        What::Taken => "taken",
        What::Changed => "state",
        What::Gone => "gone",
    };
    format!("{} {word:<5} {} {}\n", time_of_day(*at), plain(&lock.key), plain(&rest))
}

#[cfg(test)]
mod tests {
    use lockwarden_console::view::api::LockState;

    use super::*;

    fn lock(key: &str, fence: u64) -> Lock {
        Lock {
            key: key.to_owned(),
            db: 0,
            namespace: "orders".to_owned(),
            state: LockState::Held,
            holder: None,
            token: None,
            fence,
            since: 1000 + fence,
            age_ms: 5,
            ttl_left_ms: Some(100),
            ttl_ms: Some(200),
            kept_alive: false,
            waiters: 0,
            seen: "acquire".to_owned(),
        }
    }

    fn look(locks: Vec<Lock>) -> Locks {
        Locks { now: 50_000, matching: locks.len() as u64, locks, notices: Vec::new() }
    }

    #[test]
    fn two_looks_are_told_apart_lock_by_lock() {
        let mut worse = lock("lock:b", 2);
        worse.state = LockState::Overlap;
        let before =
            remembered(look(vec![lock("lock:a", 1), lock("lock:b", 2), lock("lock:c", 3), lock("lock:same", 4)]));
        let now = look(vec![lock("lock:a", 9), worse, lock("lock:d", 5), lock("lock:same", 4)]);
        let told: Vec<_> = changes(&before, &now).iter().map(|change| spoken(change, Format::Text)).collect();
        assert_eq!(
            told,
            [
                "00:00:50.000 taken lock:a by ?, fence 9\n",
                "00:00:50.000 state lock:b overlap\n",
                "00:00:50.000 held  lock:d by ?, fence 5\n",
                "00:00:50.000 gone  lock:c by ?, fence 3\n",
            ]
        );
        assert_eq!(changes(&remembered(now.clone()), &now), []);
    }
}
