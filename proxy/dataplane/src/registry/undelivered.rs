//! Grants whose replies the client may not have read. A session remembers those after which the client has not sent
//! anything yet. When its connection ends in a way that shows that a reply was not read, the lease is marked as
//! undelivered, so that the client may have it when it asks again. A reset that comes long after the reply says
//! nothing: a client that waited for the reply has read it by then, and a network device on the way may reset idle
//! connections. Nothing is ever undone: the client may have read the reply nevertheless.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::plan::{self, Plan};
use lockwarden_lock::token::{Grant, SessionId};
use tokio::sync::Notify;

/// Grants of one session after whose replies the client has sent nothing; beyond this limit the oldest grants count
/// as delivered.
const MAX_UNHEARD: usize = 64;
/// A client that still waits for a reply reads it within this time.
const READ_WITHIN: Duration = Duration::from_secs(1);
/// Reports of a kind that wait for the proxy's own connection; beyond this limit the oldest are given up.
const MAX_REPORTS: usize = 4096;

/// A lease of whose grant the client may not have heard.
#[derive(Clone, Debug)]
pub(crate) struct Undelivered {
    pub(crate) key: DbKey,
    /// The session of the lease: once a repetition has taken the lease over, this session must not mark it.
    pub(crate) session: SessionId,
    /// The name of the grant; `None` if a repetition under way may have taken over a lease with another name.
    pub(crate) grant: Option<Grant>,
}

impl Undelivered {
    /// The step that marks it, if it is still the current lease.
    pub(crate) fn plan(&self, companion_prefix: &[u8]) -> Plan {
        plan::undelivered(self.key.bytes(), self.session, self.grant, companion_prefix)
    }
}

/// How far a client had taken its replies when the end of its connection was noticed. Positions are counted in bytes
/// of all that is sent to the client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery {
    /// After everything before this position the client has sent something.
    pub(crate) heard: u64,
    /// Everything before this position was acknowledged by the client's machine.
    pub(crate) acknowledged: u64,
    pub(crate) noticed: Instant,
}

/// The reply to a grant.
#[derive(Clone, Copy, Debug)]
struct Told {
    /// The position at which it ends.
    end: u64,
    at: Instant,
}

impl Delivery {
    /// Whether the client may not have read a reply; `None`: the reply was not even written.
    fn leaves_unread(&self, told: Option<Told>) -> bool {
        told.is_none_or(|told| {
            let waited = self.noticed.saturating_duration_since(told.at);
            told.end > self.heard && (told.end > self.acknowledged || waited < READ_WITHIN)
        })
    }
}

/// The grants of one session that its client may not have heard of.
#[derive(Debug, Default)]
pub(crate) struct PendingGrants {
    /// Steps that were sent and not answered yet: the lease that each may grant is known only by its name.
    under_way: Vec<Undelivered>,
    /// Grants with their replies; `None` until the reply is written.
    said: VecDeque<(Undelivered, Option<Told>)>,
    /// The connection is ending, and the grants that the client has read of were removed.
    ending: bool,
}

impl PendingGrants {
    /// A step that may grant is about to be sent.
    pub(crate) fn sent(&mut self, lease: Undelivered) {
        self.under_way.push(lease);
    }

    /// What was sent is answered; [`PendingGrants::granted`] reports the outcome.
    pub(crate) fn answered(&mut self) {
        self.under_way.clear();
    }

    /// A lease was granted, and its reply is about to be written. The client has sent something after everything
    /// before `heard` in the reply stream.
    pub(crate) fn granted(&mut self, lease: Undelivered, heard: u64) {
        while let Some((_, Some(told))) = self.said.front()
            && told.end <= heard
        {
            self.said.pop_front();
        }
        if self.said.len() == MAX_UNHEARD {
            self.said.pop_front();
        }
        self.said.push_back((lease, None));
    }

    /// The replies to the last grants end at this position of the reply stream; `None`: the client wanted no reply.
    pub(crate) fn replied(&mut self, end: Option<u64>, at: Instant) {
        if end.is_none() {
            self.said.retain(|(_, told)| told.is_some());
        }
        // One reply may be for several grants: of a command on several locks, or of a block.
        for (_, told) in self.said.iter_mut().rev() {
            if told.is_some() {
                break;
            }
            *told = end.map(|end| Told { end, at });
        }
    }

    /// The end of the connection was noticed. Returns whether a reply may not have been read. A second call changes
    /// nothing.
    pub(crate) fn ends(&mut self, delivery: Delivery) -> bool {
        if !self.ending {
            self.ending = true;
            self.said.retain(|(_, told)| delivery.leaves_unread(*told));
        }
        !self.said.is_empty()
    }

    /// The client has read everything.
    pub(crate) fn heard(&mut self) {
        self.said.clear();
        self.ending = false;
    }

    /// The session is over. Returns what was under way, which no client was told, and, unless the client has read
    /// everything, the grants whose replies it may not have read.
    pub(crate) fn end(&mut self, unread: bool) -> Vec<Undelivered> {
        let mut lost = std::mem::take(&mut self.under_way);
        let said = self.said.drain(..);
        if unread {
            lost.extend(said.map(|(lease, _)| lease));
        }
        lost
    }
}

/// What is to be written into records over the proxy's own connection: undelivered grants, because the session's own
/// connection is gone; processes of holders, because the client's commands must not be delayed.
pub(crate) struct Reports<T> {
    waiting: Mutex<VecDeque<T>>,
    changed: Notify,
}

impl<T> Default for Reports<T> {
    fn default() -> Reports<T> {
        Reports { waiting: Mutex::default(), changed: Notify::new() }
    }
}

impl<T> Reports<T> {
    /// Adds one; returns the oldest if there is no room.
    pub(crate) fn add(&self, report: T) -> Option<T> {
        let mut waiting = self.lock();
        let oldest = if waiting.len() == MAX_REPORTS { waiting.pop_front() } else { None };
        waiting.push_back(report);
        drop(waiting);
        self.changed.notify_one();
        oldest
    }

    /// Takes out at most `most`.
    pub(crate) fn take(&self, most: usize) -> Vec<T> {
        let mut waiting = self.lock();
        let most = most.min(waiting.len());
        waiting.drain(..most).collect()
    }

    /// Waits until one was added.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    fn lease(grant: u8) -> Undelivered {
        Undelivered { key: DbKey::new(0, b"lock:a"), session: SessionId([0; 16]), grant: Some(Grant([grant; 16])) }
    }

    fn names(lost: &[Undelivered]) -> Vec<u8> {
        let name = |lease: &Undelivered| lease.grant.map_or(0, |grant| grant.0[0]);
        lost.iter().map(name).collect()
    }

    /// The end is noticed so long after the reply, which ended at 4.
    fn noticed(after: Duration, heard: u64, acknowledged: u64) -> Vec<u8> {
        let (mut pending_grants, start) = (PendingGrants::default(), Instant::now());
        pending_grants.granted(lease(1), 0);
        pending_grants.replied(Some(4), start);
        let delivery = Delivery { heard, acknowledged, noticed: start + after };
        let any = pending_grants.ends(delivery);
        let lost = names(&pending_grants.end(true));
        assert_eq!(any, !lost.is_empty());
        lost
    }

    #[test]
    fn an_end_says_nothing_of_a_reply_that_was_read() {
        let (soon, late) = (Duration::from_millis(999), READ_WITHIN);
        // It may still lie in the client's buffer, or it was not even taken by its machine.
        assert_eq!(noticed(soon, 0, 4), [1]);
        assert_eq!(noticed(late, 0, 3), [1]);
        // The client spoke, or would have read it long ago.
        assert!(noticed(soon, 4, 4).is_empty());
        assert!(noticed(late, 0, 4).is_empty());
    }

    #[test]
    fn the_end_is_noticed_once() {
        let (mut pending_grants, start) = (PendingGrants::default(), Instant::now());
        pending_grants.granted(lease(1), 0);
        pending_grants.replied(Some(4), start);
        let at = |noticed| Delivery { heard: 0, acknowledged: 4, noticed };
        assert!(pending_grants.ends(at(start)));
        assert!(pending_grants.ends(at(start + READ_WITHIN)));
        pending_grants.heard();
        pending_grants.granted(lease(2), 0);
        pending_grants.replied(Some(8), start);
        let delivery = Delivery { acknowledged: 8, ..at(start + READ_WITHIN) };
        assert!(!pending_grants.ends(delivery));
    }

    #[test]
    fn what_was_under_way_was_read_by_nobody() {
        let mut pending_grants = PendingGrants::default();
        pending_grants.granted(lease(1), 0);
        pending_grants.replied(Some(4), Instant::now());
        pending_grants.sent(lease(2));
        assert_eq!(names(&pending_grants.end(false)), [2]);
    }

    #[test]
    fn a_client_that_wanted_no_reply_misses_none() {
        let mut pending_grants = PendingGrants::default();
        pending_grants.sent(lease(1));
        pending_grants.answered();
        pending_grants.granted(lease(1), 0);
        pending_grants.replied(None, Instant::now());
        assert!(pending_grants.end(true).is_empty());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut pending_grants = PendingGrants::default();
        for grant in 0..=MAX_UNHEARD {
            pending_grants.granted(lease(grant as u8), 0);
        }
        pending_grants.replied(Some(4), Instant::now());
        let lost = pending_grants.end(true);
        assert_eq!((lost.len(), names(&lost)[0]), (MAX_UNHEARD, 1));

        let reports = Reports::default();
        for _ in 0..MAX_REPORTS {
            assert!(reports.add(lease(7)).is_none());
        }
        let given_up = reports.add(lease(8)).expect("the queue is full");
        assert_eq!(names(&[given_up]), [7]);
        assert_eq!(reports.take(usize::MAX).len(), MAX_REPORTS);
    }
}
