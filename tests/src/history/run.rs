//! The settings of a run and its result: all that clients and proxies have written, and the verdict about it.
//! The verdict is the checker's, except that it forgives the effects of a failover that a proxy has reported.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::sentinels::Failover;

use super::aof::Committed;
use super::clock::At;
use super::faults::Fault;
use super::judge::{Claim, Judge, Violation};
use super::operation::{Action, History, Operation, Write};
use super::planted::Planted;
use super::transcript;
use super::worker::Worker;

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Everything that is chosen follows from it.
    pub seed: u64,
    /// How long clients work.
    pub lasts: Duration,
    /// The sessions of the proxies; `None`: there are no proxies, clients reach Redis itself.
    pub sessions: Option<&'static str>,
    /// How many clients there are.
    pub clients: usize,
    /// What goes wrong.
    pub faults: &'static [Fault],
    /// How the primary becomes another one, one after the other; with any, sentinels watch over it.
    pub failovers: Vec<Failover>,
    /// What the namespace of the locks has for `quarantine`.
    pub quarantine: &'static str,
    /// And for `durability`.
    pub durability: &'static str,
    /// A mistake in the proxies.
    pub planted: Option<Planted>,
    /// Whether clients make the mistakes of applications.
    pub misbehave: bool,
    /// What a client is.
    pub worker: Worker,
}

/// The result of a run.
pub struct Run {
    /// What clients have written.
    pub history: History,
    /// What Redis has.
    pub committed: Committed,
    /// Of the data that each lock guards: the fencing tokens of what was written, in that order.
    pub written: BTreeMap<String, Vec<u64>>,
    /// Grants on the trails of the proxies.
    pub trail: Option<BTreeMap<String, Vec<u64>>>,
    /// Before each kill of a proxy.
    pub unwritten: Vec<(At, At)>,
    /// How often each fault was made.
    pub faults: BTreeMap<Fault, usize>,
    /// Whether a refused extension may mean that no more time may be promised: too few replicas have it, or too few
    /// sentinels are heard.
    pub refuses_extensions: bool,
    /// Whether one server has everything that was carried out.
    pub one_server: bool,
    /// How many scripts had the planted mistake in them.
    pub planted: usize,
    /// When the last fault was over.
    pub calm_from: At,
    /// The failovers, and for how long no lock was granted then.
    pub failovers: Vec<(Failover, Duration)>,
    /// Leases of which a proxy has logged that they were lost.
    pub lost: BTreeSet<(String, u64)>,
    /// How many the proxies have counted.
    pub lost_counted: f64,
}

/// Of each failover the longest time without a grant, up to the next one.
pub(super) fn without_grants(history: &History, failovers: &[(Failover, At)]) -> Vec<(Failover, Duration)> {
    let grants = history.operations.iter();
    let grants = grants.filter(|one| one.is_acquire());
    let mut grants: Vec<At> = grants.filter_map(Operation::done).collect();
    grants.sort();
    let each = failovers.iter().enumerate().map(|(number, (kind, began))| {
        let next = failovers.get(number + 1).map_or(At(u64::MAX), |next| next.1);
        let pairs = grants.windows(2);
        let gaps = pairs.filter(|pair| pair[1] > *began && pair[0] < next);
        let longest = gaps.map(|pair| pair[1].since(pair[0])).max();
        (*kind, longest.unwrap_or_default())
    });
    each.collect()
}

impl Run {
    /// The violations as text for people; `None` where all is well. An effect of a failover is no violation where a
    /// proxy has reported it.
    pub fn verdict(&self) -> Option<String> {
        let mut judge = Judge::of(&self.history);
        if let Some(trail) = &self.trail {
            judge = judge.with_trail(trail, self.unwritten.clone());
        }
        if self.trail.is_some() && self.one_server {
            judge = judge.with_file_of_redis(&self.committed);
        }
        let violations = judge.violations();
        let told = |violation: &Violation| match violation {
            Violation::Overlap(one, other) => self.was_told(one) || self.was_told(other),
            Violation::Lost { operation, claim } => {
                let action = self.history.operations[*operation].action;
                self.was_told(claim) || (self.refuses_extensions && matches!(action, Action::Extend(_)))
            }
            Violation::Fence { .. } | Violation::ByStranger { .. } | Violation::Uncommitted { .. } => false,
        };
        let untold: Vec<_> = violations.into_iter().filter(|one| !told(one)).collect();
        let mut found = match untold.is_empty() {
            true => String::new(),
            false => transcript::of(&self.history, &untold),
        };
        // A failover may lose records, and what was written.
        if self.trail.is_some() && self.one_server {
            for (lock, late) in self.late_writes() {
                found.push_str(&format!(
                    "A LATE WRITE under lease {late} of {lock} stands behind one of a newer lease\n"
                ));
            }
        }
        (!found.is_empty()).then_some(found)
    }

    /// Writes of guarded data under an older lease that stand behind one of a newer.
    pub fn late_writes(&self) -> Vec<(&str, u64)> {
        let late = self.written.iter().flat_map(|(lock, fences)| {
            let mut newest = 0;
            fences.iter().filter_map(move |&fence| {
                let is_late = fence < newest;
                newest = newest.max(fence);
                is_late.then_some((lock.as_str(), fence))
            })
        });
        late.collect()
    }

    /// Writes of guarded data that were sent after the reply to a write under a newer lease, on any server. Returns the lock,
    /// and the tokens of the newer and the older lease.
    pub fn stale_writes(&self) -> Vec<(&str, u64, u64)> {
        let mut writes: Vec<&Write> = self.history.writes.iter().collect();
        writes.sort_by_key(|write| write.done);
        let mut stale = Vec::new();
        for (at, late) in writes.iter().enumerate() {
            let before = writes[..at].iter().filter(|one| one.lock == late.lock && one.done < late.sent);
            if let Some(newest) = before.map(|one| one.fence).max().filter(|newest| *newest > late.fence) {
                stale.push((late.lock.as_str(), newest, late.fence));
            }
        }
        stale
    }

    /// Whether a proxy has logged that this lease was lost. Where the connection was cut before the client had asked for its
    /// fencing token, a logged token that belongs to no other client counts.
    fn was_told(&self, claim: &Claim) -> bool {
        let operations = &self.history.operations;
        let grant = &operations[claim.grant];
        let is_known = |lost: u64| {
            let of_lock = operations.iter().filter(|one| one.lock == grant.lock);
            of_lock.filter_map(|one| one.fence).any(|fence| fence == lost)
        };
        self.lost
            .iter()
            .any(|(lock, lost)| *lock == grant.lock && grant.fence.map_or(!is_known(*lost), |fence| fence == *lost))
    }

    /// Locks that two clients held at the same time, for this long or longer, and that no proxy has reported;
    /// as text for people.
    pub fn untold_overlaps(&self, shortest: Duration) -> Vec<String> {
        let violations = Judge::of(&self.history).violations().into_iter();
        let untold = violations.filter(|violation| match violation {
            Violation::Overlap(one, other) => {
                let lasted = one.until.min(other.until).since(one.from.max(other.from));
                lasted >= shortest && !self.was_told(one) && !self.was_told(other)
            }
            _ => false,
        });
        untold.map(|one| transcript::of(&self.history, &[one])).collect()
    }

    /// How often two clients held one lock, reported or not.
    pub fn overlaps(&self) -> usize {
        let violations = Judge::of(&self.history).violations();
        let is_overlap = |one: &&Violation| matches!(one, Violation::Overlap(..));
        violations.iter().filter(is_overlap).count()
    }

    /// What was done, in one line.
    pub fn summary(&self) -> String {
        let history = &self.history;
        let faults: usize = self.faults.values().sum();
        let errors: Vec<String> = history.errors.iter().map(|(word, times)| format!("{times} {word}")).collect();
        format!(
            "{} operations, {} grants, {} with a fencing token, {} without an answer, {faults} faults of {} kinds; errors: {}",
            history.operations.len(),
            history.grants(),
            history.operations.iter().filter(|one| one.fence.is_some()).count(),
            history.unknown(),
            self.faults.len(),
            if errors.is_empty() { "none".to_owned() } else { errors.join(", ") },
        )
    }
}
