//! What was seen of one lock: who holds it, who held it and ran out of time, who polls it, and the last
//! of what happened. Pure: the time comes with the entries.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockwarden_control::clock::ms;
use lockwarden_control::telemetry::events::{Caller, EventKind, LockEvent, SessionNumber};
use lockwarden_control::telemetry::vocabulary::Observation;
use lockwarden_discovery::PatternId;
use lockwarden_lock::decision::Operation;
use lockwarden_lock::evidence::{DbKey, SURELY_BEFORE_END};
use lockwarden_lock::rules::Mode;

use super::advice::Finding;
use super::hold_times::Holds;
use super::leases::{End, Ended, Former, Holding, Late, Otherwise};
use super::lock_time::{self, GrantRate, Spent, Unheld};

/// The last of what happened to a lock.
const MAX_MOMENTS: usize = 32;
/// What is left of them when there are too many of all locks together.
const FEW_MOMENTS: usize = 4;
/// Leases of a lock whose lengths are remembered.
const MAX_HOLDS: usize = 100;
/// Leases that are over of which more may be heard.
const MAX_FORMER: usize = 4;
/// Connections that poll one lock; of more the longest silent is forgotten.
const MAX_WAITS: usize = 128;
/// A connection that waits is refused at least so often.
const POLLS: u64 = 2;
/// One that does nothing else has asked at least so often, on average with no longer pauses: lock libraries poll ten times a second or
/// more, scripts every second.
const POLLS_OF_A_WAIT: u64 = 3;
const MAX_POLL: Duration = Duration::from_secs(2);
/// Whoever polls is gone after so many of its usual pauses without a try, within these limits.
const PAUSES: u32 = 4;
const MIN_PATIENCE: Duration = Duration::from_secs(2);
const MAX_PATIENCE: Duration = Duration::from_secs(60);

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
    /// A connection that gives back what another one takes, as was found: jobs are handed over so.
    handed_over_by: Option<SessionNumber>,
    /// A release of a lease whose grant was not told yet.
    early: Option<Arc<LockEvent>>,
    /// What its key is like.
    pub(super) pattern: Option<PatternId>,
    /// Its holder has given it back, and it stays locked, or would.
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

/// What an entry meant beyond itself.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// Leases that are over. One may be told of twice: its end becomes known later.
    pub(super) ended: Vec<Ended>,
    /// The holder of a lease that was over before was at work until now.
    pub(super) late: Option<Late>,
    /// A lease ran out, as far as nothing is known that ended it before.
    pub(super) ran_out: bool,
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
    /// Lock time that has passed.
    pub(super) spent: Vec<Spent>,
    /// Where nothing is enforced: for so long the holder of the lease that was given back worked after it would have
    /// been cut.
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
        self.unheld_before(entry, &mut turn);
        let was_refused = |session| self.wait_of(session).is_some();
        let unheld = Unheld::of(entry, self.holding.as_ref(), was_refused);
        let mut told = true;
        // The server knows only that nobody gave the last lease back. Where this view saw another end, that is right.
        let is_first = self.timeline.is_empty();
        turn.ran_out = is_first && says_ran_out(entry);
        // Whether it is about the lease that is held now, by a client that may speak for it.
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
                    // The grant of the lease that this ends is told yet.
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
        // What no client did was found by the sweeper.
        let found = entry.happened == EventKind::Ungoverned && entry.caller.is_none();
        self.bypassed |= found || turn.bypassed.is_some();
        if !of_now {
            self.heard_of_again(entry, &mut turn);
        }
        self.unheld_since(entry, unheld, &mut turn);
        if let (true, Some(holding)) = (entry.overlap, &mut self.holding) {
            holding.overlapped = true;
        }
        if told {
            self.tell(entry);
        }
        turn
    }

    /// Lock time that has passed while nobody worked under the lock.
    pub(super) fn unheld_until(&mut self, now: Instant) -> Vec<Spent> {
        let mut turn = Turn::default();
        self.unheld_passes(now, &mut turn);
        turn.spent
    }

    fn unheld_passes(&mut self, now: Instant, turn: &mut Turn) {
        let (waiting, ends) = match &self.unheld {
            Some(unheld) if !unheld.is_foretold() => {
                // Renewals are not told here.
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

    /// What an entry says of the time before it.
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
            // From here on it is seen.
            self.unheld = None;
        } else if let EventKind::Acquired { again: false, .. } = entry.happened {
            turn.spent.push(unheld.granted(entry.caller.as_ref()));
        }
    }

    /// What it says of the time from then on.
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
                    // Its holder was at work until now.
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
        // Where it is locked already, or would be, one more that is refused changes nothing.
        let Some(begins) = begins.filter(|_| self.unheld.is_none()) else {
            return;
        };
        // What its own connection gave back has been counted.
        if begins.is_foretold() && given_back.is_none() {
            turn.spent.push(begins.was_held(entry));
        }
        self.unheld = Some(begins);
    }

    /// For how long it has been held since a moment; nothing where its holder is done, or it is free.
    pub(super) fn held_ms(&self, since: Instant, now: Instant) -> u64 {
        let holding = self.holding.as_ref().filter(|_| self.unheld.is_none());
        holding.map_or(0, |holding| ms(now.saturating_duration_since(holding.since.max(since))))
    }

    /// The connections that poll the lock while it is held.
    pub(super) fn waiting(&self, now: Instant) -> impl Iterator<Item = &Wait> {
        let held = self.holding.is_some();
        self.waits.iter().filter(move |wait| held && wait.tries >= POLLS && wait.goes_on(now))
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
        let granted =
            |entry: &&Arc<LockEvent>| matches!(entry.happened, EventKind::Acquired { .. }) && entry.fence == named;
        let grant = self.timeline.iter().rev().find(granted);
        named.and(grant)?.caller.as_ref()
    }

    /// What is known of a connection that was refused the lock since it had it.
    fn wait_of(&self, session: SessionNumber) -> Option<&Wait> {
        self.waits.iter().find(|wait| wait.caller.session == session)
    }

    /// Forgets those that have given up; returns whether anybody is left.
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

    /// Returns the fencing token of a lease that surely was not over by itself.
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
            // Nobody gave it back, and its time was not over.
            (true, _) if alive.is_some() => End::Unseen,
            (true, _) => End::RanOut,
            (false, true) if entry.is_refused() => End::Replaced,
            (false, true) => End::TakenOver,
            // Its release may be told yet.
            (false, false) => End::Unseen,
        };
        self.over(entry, end, turn);
        if let Some(caller) = &entry.caller {
            // What it does from now on is about this lease.
            let own = self.former.iter_mut();
            own.filter(|former| former.is_open_for(caller.session)).for_each(|former| former.closed = true);
        }
        turn.waited = self.got_it(entry);
        self.holding = Some(Holding::new(entry, kept));
        self.ends_at_once(entry, turn);
    }

    /// The release of a lease may be told before its grant, where two connections did that.
    fn ends_at_once(&mut self, grant: &LockEvent, turn: &mut Turn) {
        let early = self.early.take();
        let Some(release) = early.filter(|release| release.fence == grant.fence) else {
            return;
        };
        let taken_over = release.happened == EventKind::Released { taken_over: true };
        if !self.released(&release, taken_over, turn) {
            self.heard_of_again(&release, turn);
        }
        // That would be said of the client that was granted the lock.
        turn.pooled = false;
    }

    /// Its holder is gone, and it ends sooner than it was to.
    fn shortened(&mut self, entry: &LockEvent) {
        if self.compared(entry) == Ordering::Equal
            && let Some(holding) = &mut self.holding
        {
            let ttl = Duration::from_millis(entry.ttl_ms.unwrap_or(0));
            (holding.ends, holding.kept) = (entry.at.checked_add(ttl), false);
        }
    }

    /// Returns whether it is the lease of now.
    fn extended(&mut self, entry: &Arc<LockEvent>, kept: bool, turn: &mut Turn) -> bool {
        match self.compared(entry) {
            // Told late: the lease is over by now.
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

    /// Returns whether a lease was given back by a client that may do that.
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
            // Taken before the view began, or forgotten.
            Some(_) | None => {
                if entry.is_refused() || taken_over || entry.held_ms.is_none() {
                    return false;
                }
                self.only_its_end(entry, End::Released, turn);
            }
        }
        true
    }

    /// The fencing token of what an entry is about, compared with that of the lease of now. Equal where there is none.
    fn compared(&self, entry: &LockEvent) -> Ordering {
        let now = self.holding.as_ref().map_or(0, |holding| holding.fence);
        match (entry.fence.unwrap_or(0), now) {
            (0, _) | (_, 0) => Ordering::Equal,
            (told, now) => told.cmp(&now),
        }
    }

    /// The lease that a release ended, where the next grant was told before it: only what one connection does is told
    /// in order.
    fn told_late(&mut self, entry: &LockEvent) -> Option<Former> {
        let fence = entry.fence.filter(|fence| *fence > 0)?;
        let is_it = |former: &Former| former.lease.fence == fence && former.end == End::Unseen;
        let place = self.former.iter().rposition(is_it)?;
        self.former.remove(place)
    }

    /// Whether a lease was ended by a client that does not act for its holder. Where nothing is enforced, such a release
    /// goes through.
    fn is_by_another(&self, entry: &LockEvent, lease: &Holding, handed_over: bool) -> bool {
        let by = entry.caller.as_ref().map(|caller| caller.session);
        let of = lease.caller.as_ref().map(|caller| caller.session);
        if handed_over || (by.is_some() && by == of) {
            return false;
        }
        // One that was the holder before means its own lease, unless it names the owner token of this one.
        let is_late = |former: &Former| by.is_some_and(|by| former.is_open_for(by));
        let means_its_own = entry.token.is_none() && self.former.iter().any(is_late);
        entry.is_refused() || entry.overlap || means_its_own
    }

    /// The lease is over, by its end or by another client's doing. Its holder may be at work still.
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

    /// The lease was given back, by its holder or by a client that acts for it.
    fn given_back(&mut self, mut lease: Holding, entry: &LockEvent, turn: &mut Turn) {
        turn.otherwise.extend(lease.would_go_otherwise(entry.at, true));
        let by = entry.caller.as_ref().map(|caller| caller.session);
        let of = lease.caller.as_ref().map(|caller| caller.session);
        // Where the release was judged wrong, another connection is no sign of a pool.
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
        // One that was told late is not about the lease that began since.
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
        // Nobody released the lease, says its record; and its time was not over.
        turn.bypassed = alive;
        match alive {
            Some(_) => {
                turn.ran_out = true;
                self.over(entry, End::Unseen, turn);
            }
            None => self.over(entry, End::RanOut, turn),
        }
    }

    /// A former holder gives back or extends what it does not hold any more: so long was it at work.
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

    /// Returns whether it is news that this connection wants the lock.
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

    /// How long the connection that got the lock had waited, if it had.
    fn got_it(&mut self, entry: &LockEvent) -> Option<Duration> {
        let session = entry.caller.as_ref()?.session;
        let place = self.waits.iter().position(|wait| wait.caller.session == session)?;
        let wait = self.waits.swap_remove(place);
        wait.goes_on(entry.at).then(|| entry.at.saturating_duration_since(wait.since))
    }

    /// Of a full time line goes first what says least.
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

/// Whether it tells of a lease that was not given back in time.
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

    /// Whether it does nothing else than wait: one that tries now and then goes on with other work in between.
    pub(super) fn is_at_it(&self) -> bool {
        let pauses = u32::try_from(self.tries - 1).unwrap_or(u32::MAX);
        let asked = self.last.saturating_duration_since(self.since);
        self.tries >= POLLS_OF_A_WAIT && asked / pauses.max(1) <= MAX_POLL
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
