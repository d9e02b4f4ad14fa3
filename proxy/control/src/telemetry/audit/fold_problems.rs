//! Selects the entries that are problems, and folds repeated ones: a client that is refused in a loop gets one line at
//! once and then one per second, with the number of problems that it stands for, and their ids.

use std::mem::Discriminant;
use std::time::{Duration, Instant};

use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::reason::Reason;

use crate::net::peer::PeerAddress;
use crate::telemetry::events::{EventKind, LockEvent};
use crate::telemetry::fold::{Folder, Turn};
use crate::telemetry::vocabulary::{DecisionKind, Observation, UnjudgedWhy};

/// Lines about the same thing are at least this far apart.
const WINDOW: Duration = Duration::from_secs(1);

/// The most different problems that are tracked at one time; beyond that each gets its own line.
const MAX_PLACES: usize = 4096;

/// The most ids in one line; beyond that the line only counts them.
const MAX_IDS: usize = 64;

/// Whether an entry is more than a lock's normal work: something was changed or refused, would have been, or failed.
pub(super) fn is_problem(entry: &LockEvent) -> bool {
    let judged = entry.verdict.as_ref().is_some_and(|said| match said.kind {
        DecisionKind::Modify | DecisionKind::WouldModify | DecisionKind::Deny | DecisionKind::WouldDeny => true,
        // With a detail: too few replicas confirmed the grant.
        DecisionKind::Allow => said.detail.is_some(),
    });
    judged
        || entry.overlap
        || match entry.happened {
            EventKind::RanOut
            | EventKind::Lost
            | EventKind::Refused
            | EventKind::Ungoverned
            | EventKind::Unjudged(_)
            | EventKind::Forwarded
            | EventKind::Observed(_)
            | EventKind::Unconfirmed
            | EventKind::HolderLost
            | EventKind::Broken => true,
            EventKind::Acquired { ran_out, .. } | EventKind::Absent { ran_out } => ran_out,
            EventKind::Different
            | EventKind::Contended { .. }
            | EventKind::Extended { .. }
            | EventKind::Released { .. }
            | EventKind::Unchanged
            | EventKind::Failed => false,
        }
}

/// Two problems with the same value are folded.
#[derive(PartialEq, Eq, Hash)]
struct Same {
    client: Option<PeerAddress>,
    key: DbKey,
    happened: Discriminant<EventKind>,
    reason: Option<Reason>,
    rule: Option<Box<str>>,
    observation: Option<Observation>,
    unjudged: Option<UnjudgedWhy>,
}

impl Same {
    fn of(entry: &LockEvent) -> Same {
        let (observation, unjudged) = match entry.happened {
            EventKind::Observed(kind) => (Some(kind), None),
            EventKind::Unjudged(why) => (None, Some(why)),
            _ => (None, None),
        };
        Same {
            client: entry.caller.as_ref().map(|caller| caller.address),
            key: entry.key.clone(),
            happened: std::mem::discriminant(&entry.happened),
            reason: entry.verdict.as_ref().and_then(|said| said.reason),
            rule: entry.verdict.as_ref().and_then(|said| said.rule.clone()),
            observation,
            unjudged,
        }
    }
}

/// Equal problems that share one line.
#[derive(Debug)]
pub(super) struct Folded {
    /// The last of them.
    pub(super) last: LockEvent,
    /// Their number.
    pub(super) repeated: u64,
    /// The ids of the others.
    pub(super) ids: Vec<String>,
}

/// Decides which problems get a line.
pub(super) struct ProblemFolder(Folder<Same, Folded>);

impl ProblemFolder {
    /// A folder that has seen nothing.
    pub(super) fn new() -> ProblemFolder {
        ProblemFolder(Folder::new(WINDOW))
    }

    /// Whether this problem gets a line now. Otherwise a line of [`ProblemFolder::drain`] includes it.
    pub(super) fn admit(&mut self, entry: &LockEvent, now: Instant) -> bool {
        let same = Same::of(entry);
        // Too many lines are better than a missing problem.
        if !self.0.has_room(&same, MAX_PLACES) {
            return true;
        }
        match self.0.turn(same, now) {
            Turn::Line(_) => true,
            Turn::Fold(folded) => {
                Folded::add(folded, entry);
                false
            }
        }
    }

    /// The problems that were folded for a second, or all of them at the end. Call this before admitting entries.
    pub(super) fn drain(&mut self, now: Instant, end: bool) -> Vec<Folded> {
        let mut told = Vec::new();
        let now = if end { now + WINDOW } else { now };
        self.0.drain(now, |_, folded| told.push(folded));
        told.sort_by_key(|folded| folded.last.at);
        told
    }
}

impl Folded {
    fn add(folded: &mut Option<Folded>, entry: &LockEvent) {
        let Some(folded) = folded else {
            *folded = Some(Folded { last: entry.clone(), repeated: 1, ids: Vec::new() });
            return;
        };
        let before = std::mem::replace(&mut folded.last, entry.clone());
        folded.repeated += 1;
        if let Some(id) = before.id.filter(|_| folded.ids.len() < MAX_IDS) {
            folded.ids.push(id.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::events::{Verdict, example};

    fn refused(key: &'static str, id: &str) -> LockEvent {
        LockEvent {
            id: Some(id.into()),
            happened: EventKind::Refused,
            verdict: Some(Verdict::refused(DecisionKind::Deny, Reason::NotOwner, "owner-token", None)),
            ..example(key)
        }
    }

    #[test]
    fn a_client_in_a_loop_gets_one_line_at_once_and_one_a_second_with_count_and_ids() {
        let (mut folder, start) = (ProblemFolder::new(), Instant::now());
        assert!(folder.admit(&refused("lock:a", "A"), start));
        for id in ["B", "C", "D"] {
            assert!(!folder.admit(&refused("lock:a", id), start));
        }
        assert!(folder.drain(start, false).is_empty());
        let [told] = &folder.drain(start + WINDOW, false)[..] else {
            panic!("one line");
        };
        assert_eq!((told.repeated, told.last.id.as_deref()), (3, Some("D")));
        assert_eq!(told.ids, ["B", "C"]);
        // The loop continues, so this one is still folded; after a quiet time it starts anew.
        assert!(!folder.admit(&refused("lock:a", "E"), start + WINDOW));
        assert_eq!(folder.drain(start + 2 * WINDOW, false).len(), 1);
        assert!(folder.drain(start + 3 * WINDOW, false).is_empty());
        assert!(folder.admit(&refused("lock:a", "F"), start + 3 * WINDOW));
    }

    #[test]
    fn another_lock_or_reason_is_another_line_and_nothing_is_kept_at_the_end() {
        let (mut folder, now) = (ProblemFolder::new(), Instant::now());
        let mut expired = refused("lock:a", "B");
        if let Some(said) = &mut expired.verdict {
            said.reason = Some(Reason::Expired);
        }
        assert!(folder.admit(&refused("lock:a", "A"), now));
        assert!(folder.admit(&refused("lock:b", "A"), now));
        assert!(folder.admit(&expired, now));
        assert!(!folder.admit(&expired, now));
        assert_eq!(folder.drain(now, true).len(), 1);
    }

    #[test]
    fn ids_and_places_have_a_bound_and_problems_beyond_it_get_their_lines() {
        let (mut folder, now) = (ProblemFolder::new(), Instant::now());
        for _ in 0..MAX_IDS + 10 {
            folder.admit(&refused("lock:a", "A"), now);
        }
        let lines = (0..MAX_PLACES + 10).filter(|n| {
            let mut entry = refused("", "A");
            entry.key = DbKey::new(0, n.to_string().as_bytes());
            folder.admit(&entry, now)
        });
        assert_eq!(lines.count(), MAX_PLACES + 10);
        let told = folder.drain(now, true);
        assert_eq!(told[0].ids.len(), MAX_IDS);
    }

    #[test]
    fn a_lock_that_does_its_work_is_no_problem() {
        let entry = |happened| LockEvent { happened, ..example("lock:a") };
        assert!(!is_problem(&entry(EventKind::Contended { own: false })));
        assert!(!is_problem(&entry(EventKind::Released { taken_over: false })));
        assert!(!is_problem(&entry(EventKind::Absent { ran_out: false })));
        assert!(is_problem(&entry(EventKind::Absent { ran_out: true })));
        assert!(is_problem(&entry(EventKind::Ungoverned)));
        assert!(!is_problem(&entry(EventKind::Different)));
        let late = LockEvent { overlap: true, ..entry(EventKind::Different) };
        assert!(is_problem(&late));
        let modified = LockEvent {
            verdict: Some(Verdict::permitted(DecisionKind::Modify)),
            ..entry(EventKind::Extended { kept: true })
        };
        assert!(is_problem(&modified));
    }
}
