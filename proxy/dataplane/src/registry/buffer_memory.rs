//! The memory that the buffers of all clients may take together: replies that a client has not read, and incomplete
//! requests. A session accounts for what it holds when it goes to sleep with much of it, which few do, so that usual
//! commands cost nothing. If the total becomes large, replies are left with the backend; if that is not enough, the
//! session that holds most is closed.

mod machine;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

pub(crate) use machine::usual_limit;

use lockwarden_control::net::wakeup::Wakeup;
use lockwarden_control::telemetry::events::SessionNumber;
use lockwarden_control::telemetry::logging::Pace;
use lockwarden_control::telemetry::metrics::Metrics;

/// A session that holds fewer bytes is not counted. An idle client costs about as much.
const FLOOR: usize = 16 * 1024;

/// See the module.
pub(crate) struct Memory {
    limit: usize,
    metrics: Arc<Metrics>,
    ledger: Mutex<Ledger>,
    /// More than half of the limit is in use.
    short: AtomicBool,
}

#[derive(Default)]
struct Ledger {
    total: usize,
    sessions: HashMap<SessionNumber, Held>,
    evicted: Pace,
}

struct Held {
    bytes: usize,
    wakeup: Arc<Wakeup>,
}

impl Memory {
    pub(crate) fn new(limit: usize, metrics: Arc<Metrics>) -> Memory {
        let shown = i64::try_from(limit).unwrap_or(i64::MAX);
        metrics.client_buffers_max.set(shown);
        Memory { limit, metrics, ledger: Mutex::default(), short: AtomicBool::new(false) }
    }

    /// The account of a session. Its wake-up tells the session when it has to end.
    pub(crate) fn account(self: &Arc<Self>, session: SessionNumber, wakeup: Arc<Wakeup>) -> Account {
        Account { memory: self.clone(), session, wakeup, counted: 0 }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    fn count(&self, session: SessionNumber, wakeup: &Arc<Wakeup>, bytes: usize) {
        let mut ledger = self.ledger();
        ledger.put(session, wakeup, bytes);
        while ledger.total > self.limit
            && let Some(bytes) = ledger.evict_greediest()
        {
            self.metrics.clients_evicted.inc();
            if let Some(closed) = ledger.evicted.line(Instant::now()) {
                tracing::warn!(
                    closed,
                    bytes,
                    max_memory = self.limit,
                    "a client was closed: unread replies and unfinished requests took more than max_memory, and its own most"
                );
            }
        }
        let total = ledger.total;
        self.short.store(total > self.limit / 2, Ordering::Relaxed);
        self.metrics.client_buffers.set(i64::try_from(total).unwrap_or(i64::MAX));
    }
}

impl Ledger {
    fn put(&mut self, session: SessionNumber, wakeup: &Arc<Wakeup>, bytes: usize) {
        let before = match bytes {
            0 => self.sessions.remove(&session),
            _ => self.sessions.insert(session, Held { bytes, wakeup: wakeup.clone() }),
        };
        let before = before.map_or(0, |held| held.bytes);
        self.total = self.total - before + bytes;
    }

    /// Closes the session that holds most, whose bytes do not count any more; returns how many they were.
    fn evict_greediest(&mut self) -> Option<usize> {
        let sessions = self.sessions.iter();
        let (&session, _) = sessions.max_by_key(|(_, held)| held.bytes)?;
        let held = self.sessions.remove(&session)?;
        self.total -= held.bytes;
        held.wakeup.evict();
        Some(held.bytes)
    }
}

/// One session's part. When it is dropped, the session holds nothing any more.
pub struct Account {
    memory: Arc<Memory>,
    session: SessionNumber,
    wakeup: Arc<Wakeup>,
    counted: usize,
}

impl Account {
    /// The session holds this many bytes now.
    pub(crate) fn holds(&mut self, bytes: usize) {
        let bytes = if bytes < FLOOR { 0 } else { bytes };
        if bytes == self.counted || (bytes > 0 && bytes.abs_diff(self.counted) < FLOOR) {
            return;
        }
        self.counted = bytes;
        self.memory.count(self.session, &self.wakeup, bytes);
    }

    /// Whether replies should be left with the backend.
    pub(crate) fn is_short(&self) -> bool {
        self.memory.short.load(Ordering::Relaxed)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.holds(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(limit: usize) -> Arc<Memory> {
        let metrics = Metrics::new(lockwarden_control::telemetry::metrics::BUILD, &[], 1).unwrap();
        Arc::new(Memory::new(limit, metrics))
    }

    fn is_evicted(account: &Account) -> bool {
        account.wakeup.is_evicted()
    }

    #[test]
    fn whoever_holds_most_is_closed_first_and_no_more_than_needed() {
        let memory = memory(100 * FLOOR);
        let mut accounts: Vec<Account> =
            (0..4).map(|session| memory.account(SessionNumber(session), Arc::default())).collect();
        for (account, floors) in accounts.iter_mut().zip([10, 50, 30, 1]) {
            account.holds(floors * FLOOR);
        }
        assert!(memory.short.load(Ordering::Relaxed));
        assert!(!accounts.iter().any(is_evicted));
        // One that grows may be another than the one that has to go.
        accounts[3].holds(20 * FLOOR);
        let evicted: Vec<bool> = accounts.iter().map(is_evicted).collect();
        assert_eq!(evicted, [false, true, false, false]);
        assert_eq!(memory.ledger().total, 60 * FLOOR);
        drop(accounts);
        assert_eq!(memory.ledger().total, 0);
        assert!(memory.ledger().sessions.is_empty());
        assert!(!memory.short.load(Ordering::Relaxed));
    }

    #[test]
    fn one_alone_that_wants_more_than_there_is_closes_itself() {
        let memory = memory(100 * FLOOR);
        let mut account = memory.account(SessionNumber(1), Arc::default());
        account.holds(101 * FLOOR);
        assert!(is_evicted(&account));
    }

    #[test]
    fn little_is_not_counted_and_small_changes_are_not_told() {
        let memory = memory(100 * FLOOR);
        let mut account = memory.account(SessionNumber(1), Arc::default());
        for (bytes, total) in [
            (FLOOR - 1, 0),
            (FLOOR, FLOOR),
            (FLOOR + 5, FLOOR),
            (3 * FLOOR, 3 * FLOOR),
            (2 * FLOOR + 1, 3 * FLOOR),
            (7, 0),
        ] {
            account.holds(bytes);
            assert_eq!(memory.ledger().total, total, "{bytes}");
        }
    }
}
