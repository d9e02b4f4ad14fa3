//! Finds the leases that other proxies have left: those whose entries in the index are overdue. It says what is to be
//! asked and what follows from the replies; `renewals` asks, `holders::handover` looks for their clients.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use lockwarden_lock::companion::Home;
use lockwarden_lock::plan::{self, IndexEntry, Orphan};
use lockwarden_resp::Value;
use tokio::task::JoinHandle;

use super::renewal_failures::Failures;
use crate::backend::rights::lacks_rights;
use crate::backend::server_info::is_of_slot;
use crate::holders::handover;
use crate::holders::handover::Found;
use crate::registry::renewals::IndexWork;
use crate::state::ProxyState;

/// Leases renewed, and overdue entries of the index read, in one call. It takes Redis 0.3 to 0.6 ms, for which every
/// other command waits.
pub(super) const MAX_BATCH: usize = 128;
/// Between two looks at the index, unless an entry is overdue before.
const MAX_PAUSE: Duration = Duration::from_secs(1);
const MIN_PAUSE: Duration = Duration::from_millis(50);
/// Between two pages of overdue entries.
const PAGE_PAUSE: Duration = Duration::from_millis(20);

/// The state of the search.
pub(super) struct Orphans {
    /// When the index is next looked at; `None` if this user may not.
    due: Option<Instant>,
    /// After a failure nothing is asked until then.
    paused_until: Option<Instant>,
    /// A look is under way.
    is_asked: bool,
    /// Overdue entries that were returned before, if there is more than one page.
    skip: usize,
    /// Looks for the clients of the leases that were found.
    search: Option<JoinHandle<()>>,
    failures: Failures,
}

impl Orphans {
    pub(super) fn new() -> Orphans {
        Orphans {
            due: Some(Instant::now()),
            paused_until: None,
            is_asked: false,
            skip: 0,
            search: None,
            failures: Failures::new(
                "leases that are kept alive cannot be found by other proxies, nor theirs by this one",
                "leases that are kept alive are found by other proxies again",
            ),
        }
    }

    /// When the index is to be looked at.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether the index is written now.
    pub(super) fn writes(&self, now: Instant) -> bool {
        self.due.is_some() && self.paused_until.is_none_or(|until| now >= until)
    }

    pub(super) fn skip(&self) -> usize {
        self.skip
    }

    /// The entries to write, and then to look, if it is time for either. A node without slots has no index.
    pub(super) fn next_question(&mut self, shared: &ProxyState, now: Instant) -> Option<(IndexWork, Home)> {
        let due = self.due.filter(|_| !self.is_asked && self.writes(now))?;
        if now < due && !shared.renewals.has_listing(now) {
            return None;
        }
        let Some(home) = shared.backend.server.home() else {
            let again = now + MIN_PAUSE;
            (self.due, self.paused_until) = (Some(again), Some(again));
            return None;
        };
        self.is_asked = true;
        Some((shared.renewals.take_listing(now, MAX_BATCH), home))
    }

    /// The index could not be written or read.
    pub(super) fn failed(&mut self, error: &[u8], in_cluster: bool) {
        self.is_asked = false;
        self.skip = 0;
        let again = Instant::now() + MAX_PAUSE;
        self.paused_until = Some(again);
        // Its slot is being moved, and the next look asks where it is.
        if !(in_cluster && is_of_slot(error)) {
            self.failures.count(error);
            self.failures.log(false);
        }
        let error = String::from_utf8_lossy(error);
        // Inside a script Redis words it otherwise. If a cluster is hidden behind one address, the index may be on
        // another node; on a node, the slot has moved, and the next index is in another slot.
        let is_for_good = lacks_rights(&error) || error.starts_with("MOVED ") && !in_cluster;
        self.due = (!is_for_good).then_some(again);
    }

    /// Entries were written to the index.
    pub(super) fn were_written(&mut self) {
        self.failures.log(true);
    }

    /// The leases to look at according to the index, by database, and since when each is overdue. Counted from when
    /// the index was asked: rather too early than too late.
    pub(super) fn overdue(
        &mut self,
        shared: &ProxyState,
        answer: &Value,
        asked: Instant,
    ) -> Vec<Vec<(IndexEntry, Instant)>> {
        let now = Instant::now();
        self.is_asked = false;
        let indexed = plan::indexed(answer).unwrap_or_default();
        let is_searching = self.search.as_ref().is_some_and(|search| !search.is_finished());
        if is_searching && !indexed.overdue.is_empty() {
            // These are not looked at now, and their leases may end soon.
            self.due = Some(now + MIN_PAUSE);
            return Vec::new();
        }
        if indexed.overdue.len() < MAX_BATCH {
            self.skip = 0;
            let next = indexed.next.unwrap_or(MAX_PAUSE);
            self.due = Some(now + next.clamp(MIN_PAUSE, MAX_PAUSE));
        } else {
            // The previous page stays overdue until a proxy answers for its leases, so the next look begins after it.
            self.skip += MAX_BATCH;
            self.due = Some(now + PAGE_PAUSE);
        }
        let mut by_db: Vec<Vec<(IndexEntry, Instant)>> = Vec::new();
        for (word, age) in indexed.overdue {
            let Some(entry) = left_by_others(shared, word) else {
                continue;
            };
            let since = asked.checked_sub(age).unwrap_or(asked);
            let same = by_db.iter_mut().find(|of_db| of_db[0].0.lock.db() == entry.lock.db());
            match same {
                Some(of_db) => of_db.push((entry, since)),
                None => by_db.push(vec![(entry, since)]),
            }
        }
        by_db
    }

    /// Handles what became of these leases.
    pub(super) fn found(
        &mut self,
        shared: &Arc<ProxyState>,
        entries: &[(IndexEntry, Instant)],
        answer: &Value,
        asked: Instant,
    ) {
        let now = Instant::now();
        let orphans = plan::read_orphans(answer).unwrap_or_default();
        let mut left = Vec::new();
        for ((entry, overdue), orphan) in entries.iter().zip(orphans) {
            match orphan {
                Orphan::Over => shared.renewals.is_stale(entry.encoded()),
                Orphan::Renewed(time) => shared.renewals.is_answered_for(entry.encoded(), now + time),
                Orphan::Left(lease, ttl) => {
                    left.push(Found { entry: entry.clone(), asked, overdue: *overdue, lease, ttl })
                }
            }
        }
        if !left.is_empty() {
            // Looking for clients takes time, and no renewal may wait for it.
            let shared = shared.clone();
            self.search = Some(tokio::spawn(async move {
                for found in left {
                    handover::take_over(&shared, &found).await;
                }
            }));
        }
    }
}

/// The entry, unless this proxy keeps that lease alive itself, or it cannot be read.
fn left_by_others(shared: &ProxyState, word: Bytes) -> Option<IndexEntry> {
    let Some(entry) = IndexEntry::parse(&word) else {
        shared.renewals.is_stale(word);
        return None;
    };
    match shared.renewals.entry(&entry.lock) {
        None => Some(entry),
        Some(own) => {
            // This lease's own entry is late; a different one has terms that are not in force any more.
            if own != entry {
                shared.renewals.is_stale(word);
            }
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_that_this_server_never_gives_is_not_asked_for_again() {
        for (error, in_cluster, expected) in [
            ("MOVED 14999 127.0.0.1:7001", false, false),
            ("MOVED 14999 127.0.0.1:7001", true, true),
            ("NOPERM this user has no permissions to access one of the keys", true, false),
            ("OOM command not allowed when used memory > 'maxmemory'.", false, true),
        ] {
            let mut orphans = Orphans::new();
            orphans.failed(error.as_bytes(), in_cluster);
            assert_eq!(orphans.due().is_some(), expected, "{error}");
            let later = Instant::now() + 2 * MAX_PAUSE;
            assert_eq!(orphans.writes(later), expected, "{error}");
        }
    }
}
