//! What was seen of one lock: who holds it, who held it and ran out of time, who polls it, and the last
//! of what happened. Pure: the time comes with the entries.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockwarden_lock::decision::Operation;
use lockwarden_lock::evidence::{DbKey, SURELY_BEFORE_END};
use lockwarden_lock::plan::EnforcedTerms;

use super::advice::Finding;
use super::hold_times::{Hold, Holds};
use crate::telemetry::events::{Caller, EventKind, Fingerprint, LockEvent};

/// The last of what happened to a lock.
const MAX_MOMENTS: usize = 32;
/// What is left of them when there are too many of all locks together.
const FEW_MOMENTS: usize = 4;
/// Leases of a lock whose lengths are remembered.
const MAX_HOLDS: usize = 100;
/// Holders whose time ran out that are remembered.
const MAX_FORMER: usize = 4;
/// Connections that poll one lock; of more the longest silent is forgotten.
const MAX_WAITS: usize = 128;
/// A connection that waits is refused at least so often.
const POLLS: u64 = 2;
/// Whoever polls is gone after so many of its usual pauses without a try, within these limits.
const PAUSES: u32 = 4;
const MIN_PATIENCE: Duration = Duration::from_secs(2);
const MAX_PATIENCE: Duration = Duration::from_secs(60);
/// An EXPIRE so soon after the SETNX belongs to the same idiom.
const TTL_FOLLOWS_WITHIN: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct LockSeen {
    pub(super) key: DbKey,
    pub(super) namespace: Arc<str>,
    /// Who holds it, where that was seen.
    pub(super) holding: Option<Holding>,
    /// The newest last.
    pub(super) timeline: VecDeque<Arc<LockEvent>>,
    pub(super) holds: Holds,
    /// The newest last.
    pub(super) former: VecDeque<Former>,
    /// It was changed around all proxies.
    pub(super) bypassed: bool,
    waits: Vec<Wait>,
}

/// A lease whose beginning was seen.
#[derive(Clone, Debug)]
pub(super) struct Holding {
    pub(super) caller: Option<Arc<Caller>>,
    pub(super) token: Option<Fingerprint>,
    pub(super) fence: u64,
    pub(super) since: Instant,
    pub(super) since_ms: u64,
    /// The TTL that it was given last, ms; 0 for none.
    pub(super) ttl_ms: u64,
    /// When that is over, renewals left aside.
    pub(super) ends: Option<Instant>,
    /// Keep-alive renews it.
    pub(super) kept: bool,
    /// A former holder acted during it.
    pub(super) overlapped: bool,
    /// Something went to Redis unjudged, which may have changed it.
    unsure: bool,
    /// It has been counted as one that lives on keep-alive.
    pub(super) outlives_its_ttl: bool,
    /// Where nothing is enforced: how it would go in enforce mode, where that is another way.
    pub(super) otherwise: Option<Otherwise>,
}

/// A lease with the terms that its application asked for, which enforce mode would have given others.
#[derive(Clone, Debug)]
pub(super) struct Otherwise {
    /// How it began, or came to these terms.
    began: Arc<LockEvent>,
    terms: EnforcedTerms,
    /// It has no TTL, and that has not been told yet.
    wants_ttl: bool,
    /// It lasted longer than those terms, and that has been told.
    outlived: bool,
}

/// A holder whose time ran out.
#[derive(Clone, Debug)]
pub(super) struct Former {
    pub(super) caller: Arc<Caller>,
    since: Instant,
    pub(super) ttl_ms: u64,
    held_ms: u64,
    /// How long it was at work, once it was heard of again.
    pub(super) worked_ms: Option<u64>,
}

/// A connection that was refused the lock.
#[derive(Clone, Debug)]
pub(super) struct Wait {
    pub(super) caller: Arc<Caller>,
    pub(super) since: Instant,
    pub(super) since_ms: u64,
    pub(super) tries: u64,
    last: Instant,
}

/// What an entry meant beyond itself.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// A lease is over.
    pub(super) ended: Option<Ended>,
    /// The holder of a lease that ran out after the first time was at work for the second, ms.
    pub(super) worked: Option<(u64, u64)>,
    /// The client that got the lock had waited for so long.
    pub(super) waited: Option<Duration>,
    /// So much of its TTL was left when it was given back, between 0 and 1.
    pub(super) left: Option<f64>,
    /// The lease with this fencing token was changed or ended around all proxies.
    pub(super) bypassed: Option<u64>,
    /// The lease with this fencing token is over before its time, and somebody may know why.
    pub(super) gone: Option<u64>,
    /// It was given back by another connection than the one that took it.
    pub(super) pooled: bool,
    /// What enforce mode would have changed in the lease that is over, by whom, with its beginning.
    pub(super) otherwise: Vec<(Finding, Arc<Caller>, Arc<LockEvent>)>,
}

/// How a lease ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) hold: Hold,
    pub(super) caller: Option<Arc<Caller>>,
}

impl LockSeen {
    pub(super) fn new(key: DbKey) -> LockSeen {
        LockSeen {
            key,
            namespace: Arc::default(),
            holding: None,
            timeline: VecDeque::new(),
            holds: Holds::new(MAX_HOLDS),
            former: VecDeque::new(),
            bypassed: false,
            waits: Vec::new(),
        }
    }

    pub(super) fn fold(&mut self, entry: &Arc<LockEvent>) -> Turn {
        let mut turn = Turn::default();
        let mut told = true;
        match entry.happened {
            EventKind::Acquired {
                again,
                replaced,
                ran_out,
                kept,
            } => {
                let same = self
                    .holding
                    .as_ref()
                    .is_some_and(|holding| again && Some(holding.fence) == entry.fence);
                if !same {
                    if ran_out {
                        self.end(entry.at, true, &mut turn);
                    } else if replaced {
                        self.end(entry.at, false, &mut turn);
                    } else if let Some(mut holding) = self.holding.take() {
                        turn.otherwise = holding.would_go_otherwise(entry.at, true);
                    }
                    turn.waited = self.got_it(entry);
                    self.holding = Some(Holding::new(entry, kept));
                }
            }
            EventKind::Contended { .. } => told = self.refused(entry),
            EventKind::Extended { kept } => {
                let holding = self
                    .holding
                    .get_or_insert_with(|| Holding::new(entry, kept));
                holding.kept = kept;
                holding.give(entry.ttl_ms.unwrap_or(0), entry.at);
                holding.otherwise = Otherwise::of(entry);
            }
            EventKind::Released { .. } => self.released(entry, &mut turn),
            EventKind::RanOut => {
                // One that was told late is not about the lease that began since.
                let held = Duration::from_millis(entry.held_ms.unwrap_or(0));
                let is_over = |holding: &Holding| holding.since + held <= entry.at;
                if self.holding.as_ref().is_some_and(is_over) {
                    self.end(entry.at, true, &mut turn);
                } else if self.holding.is_none() {
                    self.holds.add(hold_of(entry));
                    turn.ended = Some(Ended {
                        hold: hold_of(entry),
                        caller: None,
                    });
                }
            }
            EventKind::Absent { ran_out } => self.absent(entry, ran_out, &mut turn),
            EventKind::Ungoverned => {
                turn.bypassed = self.believed_alive(entry.at);
                if turn.bypassed.is_some() {
                    self.holding = None;
                }
            }
            EventKind::Broken => self.holding = None,
            EventKind::Unjudged(_) | EventKind::Forwarded | EventKind::Failed => self.is_unsure(),
            EventKind::Refused
            | EventKind::Different
            | EventKind::Unchanged
            | EventKind::Observed(_) => {}
        }
        // What no client did was found by the sweeper.
        let found = entry.happened == EventKind::Ungoverned && entry.caller.is_none();
        self.bypassed |= found || turn.bypassed.is_some();
        self.heard_of_again(entry, &mut turn);
        if let (true, Some(holding)) = (entry.overlap, &mut self.holding) {
            holding.overlapped = true;
        }
        if told {
            self.tell(entry);
        }
        turn
    }

    /// The connections that poll the lock while it is held.
    pub(super) fn waiting(&self, now: Instant) -> impl Iterator<Item = &Wait> {
        let held = self.holding.is_some();
        self.waits
            .iter()
            .filter(move |wait| held && wait.tries >= POLLS && wait.goes_on(now))
    }

    /// Who was granted the lease with this fencing token, or the one that is held where none is named; `None` where
    /// that was not seen.
    pub(super) fn granted_to(&self, fence: Option<u64>) -> Option<&Arc<Caller>> {
        let named = fence.filter(|fence| *fence > 0);
        let held = self.holding.as_ref();
        let is_meant = |holding: &&Holding| named.is_none_or(|fence| fence == holding.fence);
        if let Some(holding) = held.filter(is_meant) {
            return holding.caller.as_ref();
        }
        let granted = |entry: &&Arc<LockEvent>| {
            matches!(entry.happened, EventKind::Acquired { .. }) && entry.fence == named
        };
        let grant = self.timeline.iter().rev().find(granted);
        named.and(grant)?.caller.as_ref()
    }

    /// Forgets those that have given up; answers whether anybody is left.
    pub(super) fn forget_waits(&mut self, now: Instant) -> bool {
        self.waits.retain(|wait| wait.goes_on(now));
        !self.waits.is_empty()
    }

    /// Keeps the last few moments only.
    pub(super) fn shorten(&mut self) {
        let more = self.timeline.len().saturating_sub(FEW_MOMENTS);
        self.timeline.drain(..more);
        self.timeline.shrink_to_fit();
    }

    /// What went to Redis unjudged may have changed it.
    pub(super) fn is_unsure(&mut self) {
        if let Some(holding) = &mut self.holding {
            holding.unsure = true;
        }
    }

    /// Answers the fencing token of a lease that surely was not over by itself.
    fn believed_alive(&self, at: Instant) -> Option<u64> {
        let holding = self.holding.as_ref()?;
        let lives = holding
            .ends
            .is_none_or(|ends| ends > at + SURELY_BEFORE_END);
        (lives && !holding.unsure && holding.fence > 0).then_some(holding.fence)
    }

    fn end(&mut self, at: Instant, ran_out: bool, turn: &mut Turn) {
        let Some(mut holding) = self.holding.take() else {
            return;
        };
        turn.otherwise = holding.would_go_otherwise(at, true);
        let over = match holding.ends {
            // Noticed late, it was held no longer than its TTL; what was renewed is not known so well.
            Some(ends) if ran_out && !holding.kept => ends.min(at),
            Some(_) | None => at,
        };
        let held_ms = ms(over.saturating_duration_since(holding.since));
        let hold = Hold::new(held_ms, holding.ttl_ms, ran_out, holding.kept);
        self.holds.add(hold);
        if let (true, Some(caller)) = (ran_out, &holding.caller) {
            if self.former.len() >= MAX_FORMER {
                self.former.pop_front();
            }
            // Kept to find out how long the holder really worked, if it is heard of again.
            self.former.push_back(Former {
                caller: caller.clone(),
                since: holding.since,
                ttl_ms: holding.ttl_ms,
                held_ms,
                worked_ms: None,
            });
        }
        turn.ended = Some(Ended {
            hold,
            caller: holding.caller,
        });
    }

    fn released(&mut self, entry: &LockEvent, turn: &mut Turn) {
        let Some(holding) = &self.holding else {
            // Taken before the view began, or forgotten.
            if entry.held_ms.is_some() {
                self.holds.add(hold_of(entry));
                turn.ended = Some(Ended {
                    hold: hold_of(entry),
                    caller: None,
                });
            }
            return;
        };
        let by = entry.caller.as_ref().map(|caller| caller.session);
        let of = holding.caller.as_ref().map(|caller| caller.session);
        let refused = entry.verdict.as_ref().and_then(|verdict| verdict.reason);
        // Where the release was judged wrong, another connection is no sign of a pool.
        turn.pooled = of.is_some() && by.is_some() && by != of && refused.is_none();
        if let (Some(ends), false) = (holding.ends, holding.kept) {
            let left = ends.saturating_duration_since(entry.at).as_secs_f64();
            let given = Duration::from_millis(holding.ttl_ms).as_secs_f64();
            turn.left = Some((left / given).min(1.0));
        }
        self.end(entry.at, false, turn);
    }

    fn absent(&mut self, entry: &LockEvent, ran_out: bool, turn: &mut Turn) {
        if !ran_out {
            turn.gone = self.believed_alive(entry.at);
            if let Some(mut holding) = self.holding.take() {
                turn.otherwise = holding.would_go_otherwise(entry.at, true);
            }
            return;
        }
        // Nobody released the lease, says its record; and its time was not over.
        turn.bypassed = self.believed_alive(entry.at);
        if turn.bypassed.is_some() {
            self.holding = None;
            return;
        }
        self.end(entry.at, true, turn);
    }

    /// A former holder gives back or extends what it does not hold any more: so long was it at work.
    fn heard_of_again(&mut self, entry: &LockEvent, turn: &mut Turn) {
        let late = matches!(
            entry.operation,
            Some(Operation::Release | Operation::Extend)
        );
        let (true, Some(caller)) = (late, &entry.caller) else {
            return;
        };
        let is_it = |former: &&mut Former| {
            former.caller.session == caller.session && former.worked_ms.is_none()
        };
        if let Some(former) = self.former.iter_mut().rev().find(is_it) {
            let worked_ms = ms(entry.at.saturating_duration_since(former.since));
            former.worked_ms = Some(worked_ms);
            self.holds.worked(former.held_ms, worked_ms);
            turn.worked = Some((former.held_ms, worked_ms));
        }
    }

    /// Answers whether it is news that this connection wants the lock.
    fn refused(&mut self, entry: &LockEvent) -> bool {
        let Some(caller) = &entry.caller else {
            return true;
        };
        let known = self
            .waits
            .iter_mut()
            .find(|wait| wait.caller.session == caller.session);
        if let Some(wait) = known {
            if wait.goes_on(entry.at) {
                wait.tries += 1;
                wait.last = entry.at;
                return false;
            }
            *wait = Wait::new(caller, entry);
            return true;
        }
        if self.waits.len() >= MAX_WAITS {
            let silent = self.waits.iter().enumerate();
            if let Some((place, _)) = silent.min_by_key(|(_, wait)| wait.last) {
                self.waits.swap_remove(place);
            }
        }
        self.waits.push(Wait::new(caller, entry));
        true
    }

    /// How long the connection that got the lock had waited, if it had.
    fn got_it(&mut self, entry: &LockEvent) -> Option<Duration> {
        let session = entry.caller.as_ref()?.session;
        let place = self
            .waits
            .iter()
            .position(|wait| wait.caller.session == session)?;
        let wait = self.waits.swap_remove(place);
        wait.goes_on(entry.at)
            .then(|| entry.at.saturating_duration_since(wait.since))
    }

    /// Of a full time line goes first what says least.
    fn tell(&mut self, entry: &Arc<LockEvent>) {
        if self.timeline.len() >= MAX_MOMENTS {
            let says_little = |told: &Arc<LockEvent>| {
                matches!(
                    told.happened,
                    EventKind::Contended { .. } | EventKind::Unchanged
                )
            };
            let older = self.timeline.iter().take(MAX_MOMENTS / 2);
            let place = older.into_iter().position(says_little).unwrap_or(0);
            self.timeline.remove(place);
        }
        self.timeline.push_back(entry.clone());
    }
}

impl Holding {
    /// Begins with this entry, or, where its beginning was not seen, as long before as that says.
    fn new(entry: &Arc<LockEvent>, kept: bool) -> Holding {
        let held = entry.held_ms.unwrap_or(0);
        let since = entry.at.checked_sub(Duration::from_millis(held));
        let mut holding = Holding {
            caller: entry.caller.clone(),
            token: entry.token,
            fence: entry.fence.unwrap_or(0),
            since: since.unwrap_or(entry.at),
            since_ms: entry.at_ms.saturating_sub(held),
            ttl_ms: 0,
            ends: None,
            kept,
            overlapped: false,
            unsure: false,
            outlives_its_ttl: false,
            otherwise: Otherwise::of(entry),
        };
        holding.give(entry.ttl_ms.unwrap_or(0), entry.at);
        holding
    }

    fn give(&mut self, ttl_ms: u64, at: Instant) {
        self.ttl_ms = ttl_ms;
        // A time beyond the clock is for ever.
        let ttl = (ttl_ms > 0).then(|| Duration::from_millis(ttl_ms));
        self.ends = ttl.and_then(|ttl| at.checked_add(ttl));
    }

    pub(super) fn age_ms(&self, now: Instant) -> u64 {
        ms(now.saturating_duration_since(self.since))
    }

    /// What is found out by now that enforce mode would change in it, each once. A TTL that follows at once, as
    /// in SETNX and EXPIRE, is one that was asked for; so a lease is given a moment for that, unless it `is_over`.
    pub(super) fn would_go_otherwise(
        &mut self,
        now: Instant,
        is_over: bool,
    ) -> Vec<(Finding, Arc<Caller>, Arc<LockEvent>)> {
        let (Some(otherwise), Some(caller)) = (&mut self.otherwise, &self.caller) else {
            return Vec::new();
        };
        let began = &otherwise.began;
        let age = now.saturating_duration_since(began.at);
        let mut found = Vec::new();
        if otherwise.wants_ttl && (is_over || age >= TTL_FOLLOWS_WITHIN) {
            otherwise.wants_ttl = false;
            found.push((Finding::NoTtl, caller.clone(), began.clone()));
        }
        if !otherwise.outlived && ms(age) > otherwise.terms.ttl_ms.0 {
            otherwise.outlived = true;
            let finding = match otherwise.terms.kept {
                true => Finding::NeedsKeepAlive,
                false => Finding::WouldRunOut,
            };
            found.push((finding, caller.clone(), began.clone()));
        }
        found
    }
}

impl Otherwise {
    fn of(entry: &Arc<LockEvent>) -> Option<Otherwise> {
        Some(Otherwise {
            began: entry.clone(),
            terms: entry.would_give?,
            wants_ttl: entry.asked_ms == Some(0),
            outlived: false,
        })
    }
}

impl Wait {
    fn new(caller: &Arc<Caller>, entry: &LockEvent) -> Wait {
        Wait {
            caller: caller.clone(),
            since: entry.at,
            since_ms: entry.at_ms,
            tries: 1,
            last: entry.at,
        }
    }

    /// Whether it still polls, by its own rhythm.
    fn goes_on(&self, now: Instant) -> bool {
        let pauses = u32::try_from(self.tries - 1).unwrap_or(u32::MAX);
        let patience = match pauses {
            0 => MAX_PATIENCE,
            pauses => {
                let usual = self.last.saturating_duration_since(self.since) / pauses;
                (usual * PAUSES).clamp(MIN_PATIENCE, MAX_PATIENCE)
            }
        };
        now.saturating_duration_since(self.last) <= patience
    }
}

/// A lease of which only the end was seen.
fn hold_of(entry: &LockEvent) -> Hold {
    let ran_out = entry.happened == EventKind::RanOut;
    Hold::new(entry.held_ms.unwrap_or(0), 0, ran_out, false)
}

pub(super) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
