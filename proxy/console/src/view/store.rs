//! The seen events of locks, folded from the entries of the event log: by lock (`lock_history.rs`), by namespace and by
//! application. Pure: the time comes with the entries. Everything is bounded; the items without an event for longest are
//! forgotten first.

use std::collections::VecDeque;
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockwarden_control::clock::Moment;
use lockwarden_control::telemetry::events::{Caller, EventKind, LockEvent};
use lockwarden_control::telemetry::vocabulary::DecisionKind;
use lockwarden_discovery::PatternId;
use lockwarden_lock::db_key::{DbKey, DbSet, Hashed};
use lockwarden_lock::decision::Operation;
use lockwarden_lock::reason::Reason;
use lockwarden_lock::rules::Mode;

use super::advice::Finding;
use super::aftermath::{Aftermath, Extent, Harmed};
use super::api::Since;
use super::by_namespace::ByNamespace;
use super::hold_times::Holds;
use super::hot_locks::HotLocks;
use super::key_patterns::KeyPatterns;
use super::leases::End;
use super::lock_history::{LockSeen, Turn};
use super::lock_time;
use super::lock_time::{Cost, Costs, Spent};
use super::periods::Periods;
use super::recent_events::Recent;
use super::rolling_count::Lately;
use super::tally::{Counts, Noted};
use super::wait_cycles::{Circle, Edge, MAX_EDGES, circles};

/// Locks that are remembered.
const MAX_LOCKS: usize = 8_192;
/// Events of all locks together, at some 350 bytes each.
const MAX_TOLD: usize = 65_536;
/// The last refusals, also those that enforce mode would have made.
const MAX_DECISIONS: usize = 4_096;
/// The last leases that failovers have lost.
const MAX_LOST: usize = 1_024;
/// Leases of a namespace whose durations are remembered.
const MAX_HOLDS: usize = 1_000;
/// Longer keys are cut to this length, in bytes. No lock has such a key; it belongs to an operation that was refused or
/// forwarded for its length.
const MAX_KEY: usize = 1_024;
/// Pause between two checks for changes that come with time alone.
const LOOK: Duration = Duration::from_secs(1);

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// See the module.
pub(super) struct Seen {
    pub(super) locks: Recent<DbKey, LockSeen, BuildHasherDefault<Hashed>>,
    pub(super) namespaces: ByNamespace<NamespaceSeen>,
    /// Counts by time, and since the start, or since an operator reset them.
    pub(super) periods: Periods,
    pub(super) marks: Marks,
    pub(super) aftermath: Aftermath,
    /// The time of the last entry.
    latest: Option<Moment>,
    pub(super) hot: HotLocks,
    pub(super) patterns: KeyPatterns,
    /// The newest last.
    pub(super) decisions: VecDeque<Decided>,
    /// Leases that failovers have lost, the newest last.
    pub(super) lost: VecDeque<Decided>,
    pub(super) lost_lately: Lately,
    pub(super) refused: Lately,
    pub(super) would_refuse: Lately,
    pub(super) overlaps: Lately,
    /// Circles of waiters, as of the last check.
    pub(super) circles: Vec<Circle>,
    /// Locks with recent refusals.
    polled: DbSet,
    /// The upper bound of the events in all time lines.
    told: usize,
    looked: Option<Instant>,
}

/// Moments at which a report may begin to count.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Marks {
    /// A mode was switched, or a reload changed what is in force.
    pub(super) change: Option<Moment>,
    /// The configuration was loaded again.
    pub(super) reload: Option<Moment>,
}

impl Marks {
    /// The moment at which a report begins to count; `None` is the start. A change that never happened counts as the start.
    pub(super) fn begin(&self, since: Since, now: Moment) -> Option<Moment> {
        match since {
            // A moment before the clock began is before the start.
            Since::Ago(span) => now.at.checked_sub(span).map(|_| now.ago(span)),
            Since::Time(unix_ms) => {
                let span = Duration::from_millis(now.unix_ms.saturating_sub(unix_ms));
                now.at.checked_sub(span).map(|_| now.ago(span))
            }
            Since::LastChange => self.change,
            Since::Reload => self.reload,
        }
    }
}

/// Events at which a report may begin to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// An operator reset the counts.
    Reset,
    /// A mode was switched.
    Switched,
    /// The configuration was loaded again; with whether that changed what is in force.
    Reloaded {
        /// See the variant.
        changed: bool,
    },
}

/// A refusal, also one that enforce mode would have made, or a lease that a failover has lost.
#[derive(Clone)]
pub(super) struct Decided {
    pub(super) entry: Arc<LockEvent>,
    /// The holder of the lock at that time, where it was seen.
    pub(super) holder: Option<Arc<Caller>>,
}

/// The observations of one namespace, since the start.
pub(super) struct NamespaceSeen {
    pub(super) holds: Holds,
    /// Connections that poll a held lock, as of the last check.
    pub(super) waiting: u64,
}

/// A value for the metrics.
#[derive(Debug, PartialEq)]
pub enum Measure {
    /// A client got a lock after waiting for it.
    Waited(Duration),
    /// A lock was released with this share of its TTL left.
    TtlLeft(f64),
    /// The lease with this fencing token was changed or ended without any proxy, if the mirror agrees.
    Bypassed(DbKey, u64),
    /// The lease with this fencing token is over.
    Gone(DbKey, u64),
}

impl Default for Seen {
    fn default() -> Seen {
        Seen {
            locks: Recent::new(MAX_LOCKS, |lock| lock.holding.is_some()),
            namespaces: ByNamespace::default(),
            periods: Periods::default(),
            marks: Marks::default(),
            aftermath: Aftermath::default(),
            latest: None,
            hot: HotLocks::default(),
            patterns: KeyPatterns::default(),
            decisions: VecDeque::new(),
            lost: VecDeque::new(),
            lost_lately: Lately::new(DAY),
            refused: Lately::new(HOUR),
            would_refuse: Lately::new(HOUR),
            overlaps: Lately::new(DAY),
            circles: Vec::new(),
            polled: DbSet::default(),
            told: 0,
            looked: None,
        }
    }
}

impl Default for NamespaceSeen {
    fn default() -> NamespaceSeen {
        NamespaceSeen { holds: Holds::new(MAX_HOLDS), waiting: 0 }
    }
}

impl Seen {
    /// Folds in an event; the measured values go to `measures`.
    pub(super) fn fold(&mut self, entry: &LockEvent, measures: &mut Vec<(Arc<str>, Measure)>) {
        let at = entry.key.cut(MAX_KEY);
        self.latest = Some(moment_of(entry));
        if entry.namespace.is_empty() {
            return self.blame_for_no_lock(entry, at);
        }
        let patterns = &mut self.patterns;
        let new = |key: &DbKey| LockSeen::new(key.clone(), patterns.find(key.bytes()));
        let lock = self.locks.used(&at, new);
        if !Arc::ptr_eq(&lock.namespace, &entry.namespace) {
            lock.namespace = entry.namespace.clone();
        }
        let told = Arc::new(entry.in_short(lock.key.clone()));
        // Before the fold: in monitor mode a release that would be refused ends the lease.
        let holder = is_refusal(entry).then(|| lock.granted_to(entry.fence).cloned());
        let turn = lock.fold(&told);
        let pattern = lock.pattern;
        // A copy that is kept already: the key of the entry would keep a whole request in memory.
        let key = lock.key.clone();

        let contended = matches!(entry.happened, EventKind::Contended { .. });
        if contended && !self.polled.contains(&key) && self.polled.len() < MAX_LOCKS {
            self.polled.insert(key.clone());
        }
        if contended || matches!(entry.happened, EventKind::Acquired { .. }) {
            self.hot.tried(&key, &entry.namespace, contended, entry.at);
        }
        if erases_others(entry) {
            self.locks.iter_mut().for_each(|(_, lock)| lock.is_unsure());
        }
        // Only upwards: forgotten locks are not subtracted, so `shorten` counts anew.
        self.told += 1;
        if self.told > MAX_TOLD {
            self.shorten();
        }
        self.measure(&key, &turn, entry, measures);
        self.patterns.fold(pattern, &told, &turn);
        let own = self.spend(&told, &turn, pattern);
        self.count((&told, pattern), &turn, own);
        self.blame(&told, &turn, pattern);
        self.remember(&told, holder.flatten());
    }

    /// Applies the changes that come with time alone.
    pub(super) fn tick(&mut self, now: Instant) {
        let due = self.looked.is_none_or(|looked| now.saturating_duration_since(looked) >= LOOK);
        if due {
            self.looked = Some(now);
            self.look_for_waiters(now);
            self.look_for_kept_alive(now);
            self.look_for_unheld(now);
        }
    }

    /// A report may begin to count at this moment.
    pub(super) fn mark(&mut self, mark: Mark, now: Moment) {
        match mark {
            Mark::Reset => {
                self.patterns.reset();
                for namespace in self.namespaces.values_mut() {
                    namespace.holds = Holds::new(MAX_HOLDS);
                }
                return self.periods.reset(now);
            }
            Mark::Switched => self.marks.change = Some(now),
            Mark::Reloaded { changed } => {
                self.marks.reload = Some(now);
                if changed {
                    self.marks.change = Some(now);
                }
            }
        }
        self.periods.begin(now, true);
    }

    /// These namespaces are in force from now on; at the start of the process, without a moment.
    pub(super) fn follow(&mut self, in_force: &[(Arc<str>, Extent)], at: Option<Moment>) {
        self.aftermath.follow(in_force, at, &self.periods);
    }

    /// Looks for namespaces that enforcing harms, and returns the new ones.
    pub(super) fn look_for_harm(&mut self, now: Moment) -> Vec<Harmed> {
        let locks = &self.locks;
        let held_ms = |namespace: &Arc<str>, since: Instant| {
            let here = locks.iter().filter(|(_, lock)| lock.namespace == *namespace);
            here.map(|(_, lock)| lock.held_ms(since, now.at)).sum()
        };
        self.aftermath.look(now, &self.periods, held_ms)
    }

    /// The history of a lock.
    pub(super) fn lock(&self, key: &DbKey) -> Option<&LockSeen> {
        self.locks.get(key)
    }

    fn measure(&self, key: &DbKey, turn: &Turn, entry: &LockEvent, measures: &mut Vec<(Arc<str>, Measure)>) {
        let mut measure = |what| measures.push((entry.namespace.clone(), what));
        if let Some(waited) = turn.waited {
            measure(Measure::Waited(waited));
        }
        if let Some(left) = turn.left {
            measure(Measure::TtlLeft(left));
        }
        if let Some(fence) = turn.bypassed {
            measure(Measure::Bypassed(key.clone(), fence));
        }
        if let Some(fence) = turn.gone {
            measure(Measure::Gone(key.clone(), fence));
        }
    }

    /// Counts an event, with the lock time that its own client spent.
    fn count(&mut self, (entry, pattern): (&Arc<LockEvent>, Option<PatternId>), turn: &Turn, costs: Costs) {
        // The verdict of a guard on data is no operation on the lock and says nothing about its namespace.
        let of_lock = entry.guarded.is_none();
        let decided = entry.verdict.as_ref().filter(|_| of_lock);
        let decided = decided.map(|verdict| verdict.kind);
        let counts = Counts {
            operations: u64::from(of_lock && entry.operation.is_some()),
            tries: u64::from(of_lock && is_try(entry)),
            broken: turn.ended.iter().map(|ended| u64::from(ended.end.is_by_another())).sum(),
            refused: u64::from(decided == Some(DecisionKind::Deny)),
            would_refuse: u64::from(decided == Some(DecisionKind::WouldDeny)),
            would_modify: u64::from(decided == Some(DecisionKind::WouldModify)),
            overlaps: u64::from(entry.overlap),
            ran_out: u64::from(turn.ran_out),
            kept_alive: 0,
            ungoverned: u64::from(entry.happened == EventKind::Ungoverned),
            tokenless_releases: u64::from(is_tokenless_release(entry)),
            costs,
        };
        let noted = match &entry.caller {
            Some(caller) => Noted::Did(caller, entry, pattern, &counts),
            None => Noted::Counts(&entry.namespace, &counts),
        };
        self.periods.note(moment_of(entry), &noted);
        let namespace = self.namespaces.of(&entry.namespace);
        for hold in turn.ended.iter().filter_map(|ended| ended.hold) {
            namespace.holds.add(hold);
        }
        if let Some(late) = &turn.late {
            match late.hold {
                Some(hold) => namespace.holds.add(hold),
                None => namespace.holds.worked(late.was_ms, late.worked_ms),
            }
        }
    }

    /// Counts each finding for the application responsible for it.
    fn blame(&mut self, entry: &Arc<LockEvent>, turn: &Turn, pattern: Option<PatternId>) {
        let at = moment_of(entry);
        for ended in turn.ended.iter().filter(|ended| ended.end == End::RanOut) {
            if let Some(holder) = &ended.caller {
                self.periods.note(at, &Noted::Found(Finding::RanOut, holder, entry, pattern));
            }
        }
        if let (EventKind::Lost, Some(holder)) = (entry.happened, &entry.caller) {
            let found = Noted::Found(Finding::LeaseLost, holder, entry, pattern);
            self.periods.note(at, &found);
        }
        for (finding, holder, began) in &turn.otherwise {
            self.periods.note(at, &Noted::Found(*finding, holder, began, pattern));
        }
        let Some(caller) = &entry.caller else {
            return;
        };
        let mut found = |finding| self.periods.note(at, &Noted::Found(finding, caller, entry, pattern));
        if let EventKind::Observed(observation) = entry.happened {
            found(Finding::Observed(observation));
        } else if let EventKind::Unjudged(why) = entry.happened {
            found(Finding::of_unjudged(why));
        } else if entry.happened == EventKind::Ungoverned {
            found(Finding::Ungoverned);
        }
        if is_tokenless_release(entry) {
            found(Finding::TokenlessRelease);
        }
        if turn.pooled {
            found(Finding::Pooled);
        }
        let asks_for_some = entry.asked_ms.is_some_and(|asked| asked > 0);
        if entry.would_give.is_some() && asks_for_some {
            found(Finding::TtlCut);
        }
        if takes_over(entry) {
            found(Finding::TakesOver);
        }
    }

    /// Counts lock time: of ended leases, and of locks that were locked but not used. Returns the lock time of the client of
    /// the entry, to be counted with the entry.
    fn spend(&mut self, entry: &Arc<LockEvent>, turn: &Turn, pattern: Option<PatternId>) -> Costs {
        let (at, mode) = (moment_of(entry), entry.mode);
        let mut own = Costs::default();
        let mut spend = |caller: Option<&Arc<Caller>>, cost| {
            let costs = Costs::of(mode, cost);
            if caller.map(Arc::as_ptr) == entry.caller.as_ref().map(Arc::as_ptr) {
                own.add(&costs);
                return;
            }
            let spent = Spent { at, caller: caller.cloned(), costs };
            self.periods.note(at, &Noted::Spent(&entry.namespace, &spent, pattern));
        };
        if let EventKind::Acquired { again: false, .. } = entry.happened {
            let grants = Cost { grants: 1, ..Cost::default() };
            spend(entry.caller.as_ref(), grants);
        }
        for ended in &turn.ended {
            let mut cost = lock_time::held(ended.end, ended.held_ms());
            if ended.end == End::Released {
                cost.cut_ms = i64::try_from(turn.would_cut_ms).unwrap_or(i64::MAX);
            }
            if cost != Cost::default() {
                spend(ended.caller.as_ref(), cost);
            }
        }
        if let (Some(late), Some(caller)) = (&turn.late, &entry.caller)
            && late.cut_ms > 0
        {
            let cut = Cost { cut_ms: i64::try_from(late.cut_ms).unwrap_or(i64::MAX), ..Cost::default() };
            spend(Some(caller), cut);
        }
        for spent in &turn.spent {
            self.periods.note(spent.at, &Noted::Spent(&entry.namespace, spent, pattern));
        }
        own
    }

    /// A finding that belongs to no lock of a namespace.
    fn blame_for_no_lock(&mut self, entry: &LockEvent, key: DbKey) {
        if let (EventKind::Unjudged(why), Some(caller)) = (entry.happened, &entry.caller) {
            let told = Arc::new(entry.in_short(key));
            let found = Noted::Found(Finding::of_unjudged(why), caller, &told, None);
            self.periods.note(moment_of(entry), &found);
        }
    }

    fn remember(&mut self, entry: &Arc<LockEvent>, holder: Option<Arc<Caller>>) {
        if entry.overlap {
            self.overlaps.add(entry.at);
        }
        if entry.happened == EventKind::Lost {
            self.lost_lately.add(entry.at);
            if self.lost.len() >= MAX_LOST {
                self.lost.pop_front();
            }
            let entry = entry.clone();
            self.lost.push_back(Decided { entry, holder });
            return;
        }
        let lately = match entry.verdict.as_ref().map(|verdict| verdict.kind) {
            Some(DecisionKind::Deny) => &mut self.refused,
            Some(DecisionKind::WouldDeny) => &mut self.would_refuse,
            Some(DecisionKind::Allow | DecisionKind::Modify | DecisionKind::WouldModify) | None => {
                return;
            }
        };
        lately.add(entry.at);
        if self.decisions.len() >= MAX_DECISIONS {
            self.decisions.pop_front();
        }
        self.decisions.push_back(Decided { entry: entry.clone(), holder });
    }

    /// Counts the time-line entries anew, because forgotten locks took theirs along, and shortens all time lines if there are
    /// too many.
    fn shorten(&mut self) {
        let moments = |seen: &Seen| seen.locks.iter().map(|(_, lock)| lock.timeline.len()).sum();
        self.told = moments(self);
        if self.told > MAX_TOLD / 2 {
            self.locks.iter_mut().for_each(|(_, lock)| lock.shorten());
            self.told = moments(self);
        }
    }

    fn look_for_waiters(&mut self, now: Instant) {
        for namespace in self.namespaces.values_mut() {
            namespace.waiting = 0;
        }
        let mut edges = Vec::new();
        let (locks, namespaces) = (&mut self.locks, &mut self.namespaces);
        self.polled.retain(|key| {
            let Some(lock) = locks.get_mut(key) else {
                return false;
            };
            let any = lock.forget_waits(now);
            namespaces.of(&lock.namespace).waiting += lock.waiting(now).count() as u64;
            let holder = lock.holding.as_ref().and_then(|holding| {
                let caller = holding.caller.clone()?;
                Some((caller, holding.since_ms))
            });
            if let Some((holder, held_since_ms)) = holder {
                let room = MAX_EDGES.saturating_sub(edges.len());
                // A client that polls a lock it holds itself, over any connection of its pool, waits for its own work to end:
                // the activity of one connection does not show what each of its threads does.
                let waits = lock.waiting(now).filter(|wait| wait.is_at_it() && !wait.caller.may_be(&holder));
                edges.extend(waits.take(room).map(|wait| Edge {
                    waiter: wait.caller.clone(),
                    key: key.clone(),
                    holder: holder.session,
                    // The wait began no earlier than this holder's lease.
                    since_ms: wait.since_ms.max(held_since_ms),
                }));
            }
            any
        });
        self.circles = circles(&edges);
    }

    /// Counts the time of locks that stay locked after their holders finished, or would in enforce mode.
    fn look_for_unheld(&mut self, now: Instant) {
        let mut spent = Vec::new();
        for (_, lock) in self.locks.iter_mut() {
            let here = lock.unheld_until(now).into_iter();
            spent.extend(here.map(|spent| (lock.namespace.clone(), spent, lock.pattern)));
        }
        for (namespace, spent, pattern) in &spent {
            self.periods.note(spent.at, &Noted::Spent(namespace, spent, *pattern));
        }
    }

    /// Looks for leases that continue only because they are renewed, that is, held for longer than the TTL that they got; also
    /// those that would, were they enforced.
    fn look_for_kept_alive(&mut self, now: Instant) {
        let Some(at) = self.latest.map(|latest| latest.then(now)) else {
            return;
        };
        let mut found = Vec::new();
        let mut kept_alive = Vec::new();
        for (_, lock) in self.locks.iter_mut() {
            let Some(holding) = &mut lock.holding else {
                continue;
            };
            let otherwise = holding.would_go_otherwise(now, false).into_iter();
            let of_lock = |(finding, caller, example)| (finding, caller, example, lock.pattern);
            found.extend(otherwise.map(of_lock));
            let is_news = holding.kept && !holding.outlives_its_ttl;
            if !is_news || holding.age_ms(now) <= holding.ttl_ms {
                continue;
            }
            holding.outlives_its_ttl = true;
            kept_alive.push(lock.namespace.clone());
            let began = |entry: &&Arc<LockEvent>| matches!(entry.happened, EventKind::Acquired { .. });
            let example = lock.timeline.iter().rev().find(began);
            if let (Some(caller), Some(example)) = (&holding.caller, example) {
                let example = example.clone();
                found.push((Finding::KeptAlive, caller.clone(), example, lock.pattern));
            }
        }
        let one = Counts { kept_alive: 1, ..Counts::default() };
        for namespace in &kept_alive {
            self.periods.note(at, &Noted::Counts(namespace, &one));
        }
        for (finding, holder, example, pattern) in &found {
            self.periods.note(at, &Noted::Found(*finding, holder, example, *pattern));
        }
    }
}

fn moment_of(entry: &LockEvent) -> Moment {
    Moment { at: entry.at, unix_ms: entry.at_ms }
}

/// Whether a command about the whole server went through: the lock that it names is only an example.
fn erases_others(entry: &LockEvent) -> bool {
    let reason = entry.verdict.as_ref().map(|verdict| verdict.reason);
    entry.happened == EventKind::Forwarded && matches!(reason, None | Some(Some(Reason::BulkDelete)))
}

/// Whether a client wanted the lock, or may have wanted it, by a script that was refused. Failures on Redis do not count: they
/// say nothing about enforcing.
fn is_try(entry: &LockEvent) -> bool {
    let is_answered =
        matches!(entry.happened, EventKind::Acquired { .. } | EventKind::Contended { .. } | EventKind::Unconfirmed);
    let may_take = matches!(entry.operation, Some(Operation::Acquire | Operation::TakeOver | Operation::Write));
    is_answered || (entry.happened == EventKind::Refused && may_take)
}

fn is_refusal(entry: &LockEvent) -> bool {
    entry.verdict.as_ref().is_some_and(|said| match said.kind {
        DecisionKind::Deny | DecisionKind::WouldDeny => true,
        DecisionKind::Allow | DecisionKind::Modify | DecisionKind::WouldModify => false,
    })
}

/// Whether, in monitor mode, a lock was taken over because the deadline in its value had passed by the client's clock.
fn takes_over(entry: &LockEvent) -> bool {
    let permitted = entry.verdict.as_ref().is_some_and(|said| match said.kind {
        DecisionKind::Allow | DecisionKind::Modify | DecisionKind::WouldModify => true,
        DecisionKind::Deny | DecisionKind::WouldDeny => false,
    });
    let replaced =
        matches!(entry.happened, EventKind::Acquired { replaced: true, .. } | EventKind::Released { taken_over: true });
    permitted && replaced && entry.mode == Mode::Monitor
}

/// Whether a release went through without an owner token: only the connection or its identity proved it, or, in monitor mode,
/// nothing at all.
fn is_tokenless_release(entry: &LockEvent) -> bool {
    entry.happened == (EventKind::Released { taken_over: false })
        && entry.operation == Some(Operation::Release)
        && entry.token.is_none()
}
