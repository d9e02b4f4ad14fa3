//! The history of one lock: its holder, former holders that ran out of time, the clients that poll it, and its last events.
//! Pure: the time comes with the entries.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockwarden_control::clock::ms;
use lockwarden_control::telemetry::events::{Caller, EventKind, LockEvent, SessionNumber};
use lockwarden_control::telemetry::vocabulary::Observation;
use lockwarden_discovery::PatternId;
use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::decision::Operation;
use lockwarden_lock::evidence::SURELY_BEFORE_END;
use lockwarden_lock::rules::Mode;

use super::advice::Finding;
use super::hold_times::Holds;
use super::leases::{End, Ended, Former, Holding, Late, Otherwise};
use super::lock_time::{self, GrantRate, Spent, Unheld};

/// The last events of a lock.
const MAX_MOMENTS: usize = 32;
/// Events kept per lock when there are too many over all locks.
const FEW_MOMENTS: usize = 4;
/// Leases of a lock whose durations are remembered.
const MAX_HOLDS: usize = 100;
/// Ended leases of which a late event may still come.
const MAX_FORMER: usize = 4;
/// Connections that poll one lock; beyond that the one silent for longest is forgotten.
const MAX_WAITS: usize = 128;
/// A connection counts as waiting after this many refusals.
const POLLS: u64 = 2;
/// A connection that does nothing but wait has asked at least this often, with average pauses no longer than `MAX_POLL`: lock
/// libraries poll ten times a second or more, scripts every second.
const POLLS_OF_A_WAIT: u64 = 3;
const MAX_POLL: Duration = Duration::from_secs(2);
/// A waiter counts as gone after this many of its usual pauses without a try, within the limits below.
const PAUSES: u32 = 4;
const MIN_PATIENCE: Duration = Duration::from_secs(2);
const MAX_PATIENCE: Duration = Duration::from_secs(60);

/// See the module.
pub(super) struct LockSeen {
    pub(super) key: DbKey,
    pub(super) namespace: Arc<str>,
    /// The holder, where its grant was seen.
    pub(super) holding: Option<Holding>,
    /// The newest last.
    pub(super) timeline: VecDeque<Arc<LockEvent>>,
    pub(super) holds: Holds,
    /// The newest last.
    pub(super) former: VecDeque<Former>,
    /// The lock was changed without any proxy.
    pub(super) bypassed: bool,
    waits: Vec<Wait>,
    /// A connection that was found to release the locks that another one takes: jobs are handed over this way.
    handed_over_by: Option<SessionNumber>,
    /// The release of a lease whose grant was not reported yet.
    early: Option<Arc<LockEvent>>,
    /// The pattern of its key.
    pub(super) pattern: Option<PatternId>,
    /// Set when its holder has released it and it stays locked, or would in enforce mode.
    unheld: Option<Unheld>,
    grants: GrantRate,
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

/// What follows from an entry besides its own content.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// Leases that are over. A lease may be reported twice: its end may become known later.
    pub(super) ended: Vec<Ended>,
    /// The holder of an earlier lease turned out to have worked until now.
    pub(super) late: Option<Late>,
    /// A lease ran out, as far as no earlier end of it is known.
    pub(super) ran_out: bool,
    /// How long the client that got the lock had waited.
    pub(super) waited: Option<Duration>,
    /// The share of its TTL that was left at the release, between 0 and 1.
    pub(super) left: Option<f64>,
    /// The lease with this fencing token was changed or ended without any proxy.
    pub(super) bypassed: Option<u64>,
    /// The lease with this fencing token ended before its time; another part may know why.
    pub(super) gone: Option<u64>,
    /// It was released by another connection than the one that took it.
    pub(super) pooled: bool,
    /// What enforce mode would have changed in the ended lease, with its client and its first entry.
    pub(super) otherwise: Vec<(Finding, Arc<Caller>, Arc<LockEvent>)>,
    /// Lock time that has passed.
    pub(super) spent: Vec<Spent>,
    /// In monitor mode: how long the holder of the released lease worked after enforce mode would have cut it.
    pub(super) would_cut_ms: u64,
}

impl LockSeen {
    pub(super) fn new(key: DbKey, pattern: Option<PatternId>) -> LockSeen {
        LockSeen {
            key,
            namespace: Arc::default(),
            holding: None,
            timeline: VecDeque::new(),
            holds: Holds::new(MAX_HOLDS),
            former: VecDeque::new(),
            bypassed: false,
            waits: Vec::new(),
            handed_over_by: None,
            early: None,
            pattern,
            unheld: None,
            grants: GrantRate::default(),
        }
    }

    pub(super) fn fold(&mut self, entry: &Arc<LockEvent>) -> Turn {
        let mut turn = Turn::default();
        let over: Vec<u64> = self.former.iter().map(|former| former.lease.fence).collect();
        self.unheld_before(entry, &mut turn);
        let was_refused = |session| self.wait_of(session).is_some();
        let unheld = Unheld::of(entry, self.holding.as_ref(), was_refused);
        let mut told = true;
        // The server knows only that the last lease was not released. Where this view saw another end, the view is right.
        let is_first = self.timeline.is_empty();
        turn.ran_out = is_first && says_ran_out(entry);
        // Whether it is about the current lease, by a client that may act for it.
        let mut of_now = false;
        match entry.happened {
            EventKind::Acquired { again, .. } => {
                let same = self.holding.as_ref().is_some_and(|holding| again && Some(holding.fence) == entry.fence);
                if !same {
                    self.acquired(entry, &mut turn);
                }
            }
            EventKind::Contended { .. } => told = self.refused(entry),
            EventKind::Extended { kept } => of_now = self.extended(entry, kept, &mut turn),
            EventKind::Released { taken_over } => {
                of_now = match self.compared(entry) {
                    // The grant of the lease that this ends is not reported yet.
                    Ordering::Greater => {
                        self.early = Some(entry.clone());
                        true
                    }
                    Ordering::Less | Ordering::Equal => self.released(entry, taken_over, &mut turn),
                }
            }
            EventKind::RanOut => self.ran_out(entry, &mut turn),
            EventKind::Absent { ran_out } => self.absent(entry, ran_out, &mut turn),
            EventKind::Ungoverned => {
                turn.bypassed = self.believed_alive(entry.at);
                if turn.bypassed.is_some() {
                    self.over(entry, End::Unseen, &mut turn);
                }
            }
            EventKind::Broken => self.over(entry, End::Broken, &mut turn),
            EventKind::HolderLost => self.shortened(entry),
            EventKind::Lost => self.over(entry, End::Lost, &mut turn),
            EventKind::Unjudged(_) | EventKind::Forwarded | EventKind::Failed => self.is_unsure(),
            EventKind::Observed(Observation::HandedOver) => {
                self.handed_over_by = entry.caller.as_ref().map(|caller| caller.session);
            }
            EventKind::Refused
            | EventKind::Unconfirmed
            | EventKind::Different
            | EventKind::Unchanged
            | EventKind::Observed(_) => {}
        }
        // An entry without a client comes from the sweeper.
        let found = entry.happened == EventKind::Ungoverned && entry.caller.is_none();
        self.bypassed |= found || turn.bypassed.is_some();
        if !of_now {
            self.heard_of_again(entry, &mut turn);
        }
        self.unheld_since(entry, unheld, &mut turn);
        if let (true, Some(holding)) = (entry.overlap, &mut self.holding) {
            holding.overlapped = true;
        }
        for ended in &mut turn.ended {
            ended.again |= over.contains(&ended.fence);
        }
        if told {
            self.tell(entry);
        }
        turn
    }

    /// Lock time that has passed while the lock was locked but not used.
    pub(super) fn unheld_until(&mut self, now: Instant) -> Vec<Spent> {
        let mut turn = Turn::default();
        self.unheld_passes(now, &mut turn);
        turn.spent
    }

    fn unheld_passes(&mut self, now: Instant, turn: &mut Turn) {
        let (waiting, ends) = match &self.unheld {
            Some(unheld) if !unheld.is_foretold() => {
                // Renewals are not reported here.
                let holding = self.holding.as_ref().filter(|holding| !holding.kept);
                let ends = holding.and_then(|holding| holding.ends);
                (self.waiting(now).count(), ends)
            }
            Some(_) | None => (0, None),
        };
        let Some(unheld) = &mut self.unheld else {
            return;
        };
        turn.spent.extend(unheld.passes((now, ends), waiting, self.grants.usual()));
        if unheld.is_over(now) {
            self.unheld = None;
        }
    }

    /// Applies an entry to the unheld time before it.
    fn unheld_before(&mut self, entry: &LockEvent, turn: &mut Turn) {
        self.unheld_passes(entry.at, turn);
        if let EventKind::Acquired { again: false, .. } = entry.happened {
            self.grants.granted(entry.at);
        }
        let Some(unheld) = self.unheld.as_mut().filter(|unheld| unheld.is_foretold()) else {
            return;
        };
        if unheld.is_disproven_by(entry) {
            turn.spent.push(unheld.undo());
            self.unheld = None;
        } else if entry.mode == Mode::Enforce {
            // From here on unheld time is seen, not foretold.
            self.unheld = None;
        } else if let EventKind::Acquired { again: false, .. } = entry.happened {
            turn.spent.push(unheld.granted(entry.caller.as_ref()));
        }
    }

    /// Applies an entry to the unheld time after it.
    fn unheld_since(&mut self, entry: &LockEvent, begins: Option<Unheld>, turn: &mut Turn) {
        let released = |ended: &&Ended| ended.end == End::Released;
        let given_back = turn.ended.iter().find(released);
        match &mut self.unheld {
            Some(unheld) if unheld.is_foretold() => {
                let held = |ended: &Ended| lock_time::held(ended.end, ended.held_ms()).held_ms;
                let held_ms = turn.ended.iter().map(held).sum();
                turn.spent.push(unheld.would_not_be_held(held_ms));
            }
            Some(unheld) if !unheld.is_of(self.holding.as_ref()) => {
                match given_back {
                    // Its holder worked until now.
                    Some(_) => turn.spent.push(unheld.undo()),
                    None => {
                        turn.spent.push(unheld.was_not_held());
                        self.grants.was_unheld(unheld.lasted());
                    }
                }
                self.unheld = None;
            }
            Some(_) | None => {}
        }
        // While the lock is unheld already, one more refused release changes nothing.
        let Some(begins) = begins.filter(|_| self.unheld.is_none()) else {
            return;
        };
        // A release by its own connection was counted already.
        if begins.is_foretold() && given_back.is_none() {
            turn.spent.push(begins.was_held(entry));
        }
        self.unheld = Some(begins);
    }

    /// For how long it has been held since a moment; 0 where its holder has finished or the lock is free.
    pub(super) fn held_ms(&self, since: Instant, now: Instant) -> u64 {
        let holding = self.holding.as_ref().filter(|_| self.unheld.is_none());
        holding.map_or(0, |holding| ms(now.saturating_duration_since(holding.since.max(since))))
    }

    /// The connections that poll the lock while it is held.
    pub(super) fn waiting(&self, now: Instant) -> impl Iterator<Item = &Wait> {
        let held = self.holding.is_some();
        self.waits.iter().filter(move |wait| held && wait.tries >= POLLS && wait.goes_on(now))
    }

    /// The client that was granted the lease with this fencing token, or the current lease if none is named; `None` where that
    /// grant was not seen.
    pub(super) fn granted_to(&self, fence: Option<u64>) -> Option<&Arc<Caller>> {
        let named = fence.filter(|fence| *fence > 0);
        let held = self.holding.as_ref();
        let is_meant = |holding: &&Holding| named.is_none_or(|fence| fence == holding.fence);
        if let Some(holding) = held.filter(is_meant) {
            return holding.caller.as_ref();
        }
        let granted =
            |entry: &&Arc<LockEvent>| matches!(entry.happened, EventKind::Acquired { .. }) && entry.fence == named;
        let grant = self.timeline.iter().rev().find(granted);
        named.and(grant)?.caller.as_ref()
    }

    /// The wait of a connection that was refused the lock since it last had it.
    fn wait_of(&self, session: SessionNumber) -> Option<&Wait> {
        self.waits.iter().find(|wait| wait.caller.session == session)
    }

    /// Forgets the waiters that have given up; returns whether any are left.
    pub(super) fn forget_waits(&mut self, now: Instant) -> bool {
        self.waits.retain(|wait| wait.goes_on(now));
        !self.waits.is_empty()
    }

    /// Keeps only the last few events.
    pub(super) fn shorten(&mut self) {
        let more = self.timeline.len().saturating_sub(FEW_MOMENTS);
        self.timeline.drain(..more);
        self.timeline.shrink_to_fit();
    }

    /// An unjudged command went to Redis and may have changed the lease.
    pub(super) fn is_unsure(&mut self) {
        if let Some(holding) = &mut self.holding {
            holding.unsure = true;
        }
    }

    /// Returns the fencing token of the current lease if it surely has not run out.
    fn believed_alive(&self, at: Instant) -> Option<u64> {
        let holding = self.holding.as_ref()?;
        let lives = holding.ends.is_none_or(|ends| ends > at + SURELY_BEFORE_END);
        (lives && !holding.unsure && holding.fence > 0).then_some(holding.fence)
    }

    fn acquired(&mut self, entry: &Arc<LockEvent>, turn: &mut Turn) {
        let EventKind::Acquired { replaced, ran_out, kept, .. } = entry.happened else {
            return;
        };
        let alive = self.believed_alive(entry.at).filter(|_| ran_out);
        (turn.bypassed, turn.ran_out) = (alive, turn.ran_out || alive.is_some());
        let end = match (ran_out, replaced) {
            // It was not released, and its time was not over.
            (true, _) if alive.is_some() => End::Unseen,
            (true, _) => End::RanOut,
            (false, true) if entry.is_refused() => End::Replaced,
            (false, true) => End::TakenOver,
            // Its release may still be reported.
            (false, false) => End::Unseen,
        };
        self.over(entry, end, turn);
        if let Some(caller) = &entry.caller {
            // Its next actions are about this lease.
            let own = self.former.iter_mut();
            own.filter(|former| former.is_open_for(caller.session)).for_each(|former| former.closed = true);
        }
        turn.waited = self.got_it(entry);
        self.holding = Some(Holding::new(entry, kept));
        self.ends_at_once(entry, turn);
    }

    /// Applies a release that was reported before its grant; this happens with two connections.
    fn ends_at_once(&mut self, grant: &LockEvent, turn: &mut Turn) {
        let early = self.early.take();
        let Some(release) = early.filter(|release| release.fence == grant.fence) else {
            return;
        };
        let taken_over = release.happened == EventKind::Released { taken_over: true };
        if !self.released(&release, taken_over, turn) {
            self.heard_of_again(&release, turn);
        }
        // Otherwise it would be attributed to the client that was granted the lock.
        turn.pooled = false;
    }

    /// Its holder is gone, so its end comes sooner.
    fn shortened(&mut self, entry: &LockEvent) {
        if self.compared(entry) == Ordering::Equal
            && let Some(holding) = &mut self.holding
        {
            let ttl = Duration::from_millis(entry.ttl_ms.unwrap_or(0));
            (holding.ends, holding.kept) = (entry.at.checked_add(ttl), false);
        }
    }

    /// Returns whether it is the current lease.
    fn extended(&mut self, entry: &Arc<LockEvent>, kept: bool, turn: &mut Turn) -> bool {
        match self.compared(entry) {
            // Reported late: that lease is over already.
            Ordering::Less => return false,
            Ordering::Equal => {}
            Ordering::Greater => self.over(entry, End::Unseen, turn),
        }
        let holding = self.holding.get_or_insert_with(|| Holding::new(entry, kept));
        holding.kept = kept;
        holding.give(entry);
        holding.otherwise = Otherwise::of(entry);
        !entry.is_refused()
    }

    /// Returns whether a lease was released by a client that may release it.
    fn released(&mut self, entry: &LockEvent, taken_over: bool, turn: &mut Turn) -> bool {
        let by = entry.caller.as_ref().map(|caller| caller.session);
        let handed_over = by.is_some() && self.handed_over_by.take() == by;
        if let Some(mut former) = self.told_late(entry) {
            let by_another = self.is_by_another(entry, &former.lease, handed_over);
            if by_another {
                former.end = End::Deleted;
                turn.ended.push(former.ended());
                self.former.push_back(former);
            } else {
                self.given_back(former.lease, entry, turn);
            }
            return !by_another;
        }
        match &self.holding {
            Some(holding) if self.compared(entry) == Ordering::Equal => {
                if taken_over {
                    self.over(entry, End::TakenOver, turn);
                    return false;
                }
                if self.is_by_another(entry, holding, handed_over) {
                    self.over(entry, End::Deleted, turn);
                    return false;
                }
                if let Some(lease) = self.holding.take() {
                    self.given_back(lease, entry, turn);
                }
            }
            // The lease was taken before the view began, or was forgotten.
            Some(_) | None => {
                if entry.is_refused() || taken_over || entry.held_ms.is_none() {
                    return false;
                }
                self.only_its_end(entry, End::Released, turn);
            }
        }
        true
    }

    /// Compares the fencing token of an entry with that of the current lease. Equal where one is missing.
    fn compared(&self, entry: &LockEvent) -> Ordering {
        let now = self.holding.as_ref().map_or(0, |holding| holding.fence);
        match (entry.fence.unwrap_or(0), now) {
            (0, _) | (_, 0) => Ordering::Equal,
            (told, now) => told.cmp(&now),
        }
    }

    /// The lease that a release ended, where the next grant was reported before that release: only the events of one connection
    /// are in order.
    fn told_late(&mut self, entry: &LockEvent) -> Option<Former> {
        let fence = entry.fence.filter(|fence| *fence > 0)?;
        let is_it = |former: &Former| former.lease.fence == fence && former.end == End::Unseen;
        let place = self.former.iter().rposition(is_it)?;
        self.former.remove(place)
    }

    /// Whether a lease was ended by a client that does not act for its holder. In monitor mode such a release goes through.
    fn is_by_another(&self, entry: &LockEvent, lease: &Holding, handed_over: bool) -> bool {
        let by = entry.caller.as_ref().map(|caller| caller.session);
        let of = lease.caller.as_ref().map(|caller| caller.session);
        if handed_over || (by.is_some() && by == of) {
            return false;
        }
        // A former holder means its own lease, unless it names the owner token of the current one.
        let is_late = |former: &Former| by.is_some_and(|by| former.is_open_for(by));
        let means_its_own = entry.token.is_none() && self.former.iter().any(is_late);
        entry.is_refused() || entry.overlap || means_its_own
    }

    /// The lease has run out or was ended by another client. Its holder may still be at work.
    fn over(&mut self, entry: &LockEvent, end: End, turn: &mut Turn) {
        let Some(mut lease) = self.holding.take() else {
            return;
        };
        turn.otherwise.extend(lease.would_go_otherwise(entry.at, true));
        turn.ran_out |= end == End::RanOut;
        let former = Former::new(lease, end, entry.at);
        let ended = former.ended();
        if let Some(hold) = ended.hold {
            self.holds.add(hold);
        }
        turn.ended.push(ended);
        if self.former.len() >= MAX_FORMER {
            self.former.pop_front();
        }
        self.former.push_back(former);
    }

    /// The lease was released by its holder or by a client that acts for it.
    fn given_back(&mut self, mut lease: Holding, entry: &LockEvent, turn: &mut Turn) {
        turn.otherwise.extend(lease.would_go_otherwise(entry.at, true));
        let by = entry.caller.as_ref().map(|caller| caller.session);
        let of = lease.caller.as_ref().map(|caller| caller.session);
        // Where the release was judged wrong, another connection does not point to a pool.
        turn.pooled = of.is_some() && by.is_some() && by != of && !entry.is_refused();
        if !lease.kept {
            turn.left = lease.part_left(entry.at);
        }
        turn.would_cut_ms = lease.would_be_cut_ms(entry.at);
        let ended = lease.ended(End::Released, lease.age_ms(entry.at));
        if let Some(hold) = ended.hold {
            self.holds.add(hold);
        }
        turn.ended.push(ended);
    }

    /// A lease of which only the end was seen.
    fn only_its_end(&mut self, entry: &LockEvent, end: End, turn: &mut Turn) {
        let ended = Ended::without_beginning(entry, end);
        if let Some(hold) = ended.hold {
            self.holds.add(hold);
        }
        turn.ended.push(ended);
    }

    fn ran_out(&mut self, entry: &LockEvent, turn: &mut Turn) {
        // A late report is not about the lease that began since.
        let held = Duration::from_millis(entry.held_ms.unwrap_or(0));
        let is_over = |holding: &Holding| holding.since + held <= entry.at;
        if self.holding.as_ref().is_some_and(is_over) {
            self.over(entry, End::RanOut, turn);
        } else if self.holding.is_none() && !self.former.iter().any(|former| former.is_told(entry)) {
            turn.ran_out = true;
            self.only_its_end(entry, End::RanOut, turn);
        }
    }

    fn absent(&mut self, entry: &LockEvent, ran_out: bool, turn: &mut Turn) {
        let alive = self.believed_alive(entry.at);
        if !ran_out {
            turn.gone = alive;
            self.over(entry, End::Unseen, turn);
            return;
        }
        // By its record the lease was not released, and its time was not over.
        turn.bypassed = alive;
        match alive {
            Some(_) => {
                turn.ran_out = true;
                self.over(entry, End::Unseen, turn);
            }
            None => self.over(entry, End::RanOut, turn),
        }
    }

    /// A former holder releases or extends a lease that it no longer holds: it was at work until now.
    fn heard_of_again(&mut self, entry: &LockEvent, turn: &mut Turn) {
        let gives_back = match entry.operation {
            Some(Operation::Release) => true,
            Some(Operation::Extend) => false,
            Some(_) | None => return,
        };
        let Some(caller) = &entry.caller else {
            return;
        };
        let of_caller = |former: &&mut Former| former.is_open_for(caller.session);
        let Some(former) = self.former.iter_mut().rev().find(of_caller) else {
            return;
        };
        if let Some(late) = former.heard_of_again(entry.at, gives_back) {
            match late.hold {
                Some(hold) => self.holds.add(hold),
                None => self.holds.worked(late.was_ms, late.worked_ms),
            }
            turn.late = Some(late);
        }
    }

    /// Returns whether the wait of this connection is new.
    fn refused(&mut self, entry: &LockEvent) -> bool {
        let Some(caller) = &entry.caller else {
            return true;
        };
        let known = self.waits.iter_mut().find(|wait| wait.caller.session == caller.session);
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

    /// How long the connection that got the lock had waited, if at all.
    fn got_it(&mut self, entry: &LockEvent) -> Option<Duration> {
        let session = entry.caller.as_ref()?.session;
        let place = self.waits.iter().position(|wait| wait.caller.session == session)?;
        let wait = self.waits.swap_remove(place);
        wait.goes_on(entry.at).then(|| entry.at.saturating_duration_since(wait.since))
    }

    /// Adds an entry; from a full time line the least informative entry goes first.
    fn tell(&mut self, entry: &Arc<LockEvent>) {
        if self.timeline.len() >= MAX_MOMENTS {
            let says_little =
                |told: &Arc<LockEvent>| matches!(told.happened, EventKind::Contended { .. } | EventKind::Unchanged);
            let older = self.timeline.iter().take(MAX_MOMENTS / 2);
            let place = older.into_iter().position(says_little).unwrap_or(0);
            self.timeline.remove(place);
        }
        self.timeline.push_back(entry.clone());
    }
}

/// Whether it reports a lease that was not released in time.
fn says_ran_out(entry: &LockEvent) -> bool {
    matches!(
        entry.happened,
        EventKind::RanOut | EventKind::Acquired { ran_out: true, .. } | EventKind::Absent { ran_out: true }
    )
}

impl Wait {
    fn new(caller: &Arc<Caller>, entry: &LockEvent) -> Wait {
        Wait { caller: caller.clone(), since: entry.at, since_ms: entry.at_ms, tries: 1, last: entry.at }
    }

    /// Whether it does nothing but wait: a connection that tries only now and then does other work in between.
    pub(super) fn is_at_it(&self) -> bool {
        let pauses = u32::try_from(self.tries - 1).unwrap_or(u32::MAX);
        let asked = self.last.saturating_duration_since(self.since);
        self.tries >= POLLS_OF_A_WAIT && asked / pauses.max(1) <= MAX_POLL
    }

    /// Whether it still polls, judged by its usual pauses.
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
