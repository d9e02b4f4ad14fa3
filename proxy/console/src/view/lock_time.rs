//! The cost of enforcing, in lock time: how long locks stay locked without work under them, because a release was refused that
//! may have been its holder's own. In monitor mode the cost is foretold, from releases that would have been refused; in enforce
//! mode it is seen. This module decides nothing anew: the scripts have decided what is refused or would be.
//!
//! The model, which docs/api.md explains: refusing a stranger costs nothing, because that is the purpose of the proxy. A
//! release by an identity that may be the holder's own says that the holder has finished; refused, it leaves the lock until its
//! TTL is over. It does not count where a further release shows that the holder was still at work, and would have released the
//! lock in enforce mode. Further releases are refused like the first and change nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockwarden_control::clock::Moment;
use lockwarden_control::clock::ms;
use lockwarden_control::telemetry::events::{Caller, EventKind, LockEvent, SessionNumber};
use lockwarden_control::telemetry::vocabulary::DecisionKind;
use lockwarden_control::text::durations::{duration, share, times};
use lockwarden_control::text::numbers::number;
use lockwarden_lock::decision::Operation;
use lockwarden_lock::outcome::StandsFor;
use lockwarden_lock::reason::Reason;
use lockwarden_lock::rules::Mode;
use smallvec::SmallVec;

use super::api;
use super::leases::{End, Holding};

/// Counted connections that would wait for one lock at a time.
const MAX_WAITERS: usize = 128;

/// Lock time of leases under one mode. A value may be below zero until the time that is taken back was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    /// Grants; if foretold, those that enforce mode would have made.
    pub(super) grants: i64,
    /// How long the leases with a seen end were held; if foretold, without the leases that enforce mode would not have granted.
    pub(super) held_ms: i64,
    /// How long locks stayed locked after their holders' releases; if foretold, would have.
    pub(super) unheld_ms: i64,
    /// Grants that there were in such times, or would have been.
    pub(super) lost_grants: i64,
    /// How much longer connections waited for a lock in such times, or would have.
    pub(super) waits_ms: i64,
    /// How long holders worked after the proxy had cut a TTL; if foretold, would have cut it.
    pub(super) cut_ms: i64,
}

/// The cost in monitor mode and in enforce mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Costs {
    pub(super) foretold: Cost,
    pub(super) seen: Cost,
}

impl Cost {
    pub(super) fn add(&mut self, other: &Cost) {
        self.grants = self.grants.saturating_add(other.grants);
        self.held_ms = self.held_ms.saturating_add(other.held_ms);
        self.unheld_ms = self.unheld_ms.saturating_add(other.unheld_ms);
        self.lost_grants = self.lost_grants.saturating_add(other.lost_grants);
        self.waits_ms = self.waits_ms.saturating_add(other.waits_ms);
        self.cut_ms = self.cut_ms.saturating_add(other.cut_ms);
    }

    fn taken_back(&self) -> Cost {
        Cost {
            grants: self.grants.saturating_neg(),
            held_ms: self.held_ms.saturating_neg(),
            unheld_ms: self.unheld_ms.saturating_neg(),
            lost_grants: self.lost_grants.saturating_neg(),
            waits_ms: self.waits_ms.saturating_neg(),
            cut_ms: self.cut_ms.saturating_neg(),
        }
    }
}

impl Costs {
    pub(super) fn of(mode: Mode, cost: Cost) -> Costs {
        let mut costs = Costs::default();
        match mode {
            Mode::Monitor => costs.foretold = cost,
            Mode::Enforce => costs.seen = cost,
        }
        costs
    }

    /// The cost of enforcing in words; `None` where there is none.
    pub(super) fn words(&self) -> Option<String> {
        let (foretold, seen) = (api::LockTime::from(&self.foretold), api::LockTime::from(&self.seen));
        Some(match (foretold.loss(), seen.loss()) {
            (None, None) => return None,
            (Some(would), None) => format!("would {would}"),
            (None, Some(did)) => format!("enforced, it did {did}"),
            (Some(would), Some(did)) => format!("would {would}; enforced, it did {did}"),
        })
    }

    pub(super) fn add(&mut self, other: &Costs) {
        self.foretold.add(&other.foretold);
        self.seen.add(&other.seen);
    }
}

/// Lock time to be counted, with the client of the lease and the moment that it belongs to.
#[derive(Debug)]
pub(super) struct Spent {
    pub(super) at: Moment,
    pub(super) caller: Option<Arc<Caller>>,
    pub(super) costs: Costs,
}

/// A lock that stays locked, or would, after its holder has released it.
#[derive(Debug)]
pub(super) struct Unheld {
    /// The mode in which the release was judged.
    mode: Mode,
    caller: Arc<Caller>,
    /// The connection that was granted the lease. Cleared when it tries to get the lock again: from then on it proves nothing.
    holder: Option<SessionNumber>,
    /// The release was taken for that of an earlier lease, so the next one of that client would not be.
    is_late: bool,
    /// The release was taken for that of a refused try, of which there were several: the holder's own counts when all have
    /// come.
    is_one_of_many: bool,
    began: Moment,
    /// The lease that stays.
    fence: u64,
    /// Its expected end; `None` where the end is seen, or never comes.
    until: Option<Instant>,
    /// Counted up to this moment.
    counted: Instant,
    cost: Cost,
    /// If foretold: the connections that were granted the lock meanwhile, and would wait.
    waiters: SmallVec<[SessionNumber; 4]>,
    /// The fraction of a lost grant that is not counted yet.
    part: f64,
}

impl Unheld {
    /// Begins with a release that was refused, or would have been, of a lease that may be that client's own. `was_refused`
    /// returns whether a connection was refused the lock since it last had it.
    pub(super) fn of(
        entry: &LockEvent,
        holding: Option<&Holding>,
        was_refused: impl Fn(SessionNumber) -> bool,
    ) -> Option<Unheld> {
        let verdict = entry.verdict.as_ref()?;
        let kind = verdict.kind;
        let is_refused = matches!(kind, DecisionKind::Deny | DecisionKind::WouldDeny);
        let (caller, holding) = (entry.caller.as_ref()?, holding?);
        let is_release = entry.operation == Some(Operation::Release) && entry.guarded.is_none();
        let is_own = holding.caller.as_ref()?.may_be(caller);
        let named = entry.fence.filter(|fence| *fence > 0);
        let is_of_now = named.is_none_or(|fence| fence == holding.fence);
        if !is_refused || !is_release || !is_own || !is_of_now {
            return None;
        }
        // A release that would have been refused has ended the lease.
        let until = match (kind, entry.happened) {
            // The holder's own release, which is still to come, would count.
            (DecisionKind::WouldDeny, _) if entry.stands_for == StandsFor::RefusedTry => {
                return None;
            }
            (DecisionKind::WouldDeny, EventKind::Released { .. } | EventKind::Forwarded) => holding.would_end(entry.at),
            (DecisionKind::Deny, EventKind::Refused) => None,
            _ => return None,
        };
        let mode = match kind {
            DecisionKind::WouldDeny => Mode::Monitor,
            _ => Mode::Enforce,
        };
        let holder = holding.caller.as_ref().map(|holder| holder.session);
        Some(Unheld {
            mode,
            caller: caller.clone(),
            holder: holder.filter(|holder| !was_refused(*holder)),
            is_late: verdict.reason == Some(Reason::Expired),
            is_one_of_many: entry.stands_for == StandsFor::OneOfMany,
            began: Moment { at: entry.at, unix_ms: entry.at_ms },
            fence: holding.fence,
            until,
            counted: entry.at,
            cost: Cost::default(),
            waiters: SmallVec::new(),
            part: 0.0,
        })
    }

    /// Whether the lease would be over by then.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    pub(super) fn is_foretold(&self) -> bool {
        self.mode == Mode::Monitor
    }

    /// If seen: whether the lease that was to be released is still there.
    pub(super) fn is_of(&self, holding: Option<&Holding>) -> bool {
        holding.is_some_and(|holding| holding.fence == self.fence)
    }

    /// The cost until now, or until the lease `ends`: `waiting` connections wait, and `rate` grants a second are usual.
    pub(super) fn passes(
        &mut self,
        (now, ends): (Instant, Option<Instant>),
        waiting: usize,
        rate: f64,
    ) -> Option<Spent> {
        let ends = self.until.or(ends);
        let now = ends.map_or(now, |ends| ends.min(now));
        let passed = now.saturating_duration_since(self.counted);
        let passed_ms = i64::try_from(ms(passed)).unwrap_or(i64::MAX);
        if passed_ms == 0 {
            return None;
        }
        // The rest below one millisecond counts the next time.
        self.counted += Duration::from_millis(ms(passed));
        let waiting = match self.mode {
            Mode::Monitor => self.waiters.len(),
            Mode::Enforce => waiting,
        };
        let mut cost = Cost {
            unheld_ms: passed_ms,
            waits_ms: passed_ms.saturating_mul(i64::try_from(waiting).unwrap_or(i64::MAX)),
            ..Cost::default()
        };
        if self.mode == Mode::Enforce {
            self.part += passed.as_secs_f64() * rate;
            #[expect(clippy::cast_possible_truncation, reason = "whole grants")]
            let whole = self.part as i64;
            self.part -= self.part.trunc();
            cost.lost_grants = whole;
        }
        Some(self.spend(cost))
    }

    /// If foretold: the lock was granted, though in enforce mode it would still be locked.
    pub(super) fn granted(&mut self, to: Option<&Arc<Caller>>) -> Spent {
        if let Some(to) = to.map(|to| to.session)
            && self.waiters.len() < MAX_WAITERS
            && !self.waiters.contains(&to)
        {
            self.waiters.push(to);
        }
        self.spend(Cost { grants: -1, lost_grants: 1, ..Cost::default() })
    }

    /// If foretold: such a grant was held for this long, and would not exist in enforce mode.
    pub(super) fn would_not_be_held(&mut self, held_ms: i64) -> Spent {
        self.spend(Cost { held_ms: held_ms.saturating_neg(), ..Cost::default() })
    }

    /// If foretold: whether this shows that the refused release was not the holder's, which releases the lock only now, and
    /// would in enforce mode. Over another connection than the holder's it would be refused like the first.
    pub(super) fn is_disproven_by(&mut self, entry: &LockEvent) -> bool {
        let Some(caller) = &entry.caller else {
            return false;
        };
        let is_holders = self.holder == Some(caller.session);
        if entry.operation == Some(Operation::Release) {
            let met_none = matches!(entry.happened, EventKind::Absent { .. });
            let is_last = !entry.is_refused() || entry.stands_for == StandsFor::RefusedTry;
            let is_next = (self.is_late && met_none) || (self.is_one_of_many && is_last);
            return is_holders || (is_next && caller.may_be(&self.caller));
        }
        let asks = matches!(entry.happened, EventKind::Acquired { .. } | EventKind::Contended { .. });
        if is_holders && asks {
            self.holder = None;
        }
        false
    }

    /// The assumption was wrong: takes back what was counted.
    pub(super) fn undo(&self) -> Spent {
        self.spent(self.cost.taken_back())
    }

    /// If foretold: how long the lease was held that the release has ended.
    pub(super) fn was_held(&self, entry: &LockEvent) -> Spent {
        self.spent(held(End::Released, entry.held_ms.unwrap_or(0)))
    }

    /// If seen: the lease has run out, and counts as held only until the release.
    pub(super) fn was_not_held(&self) -> Spent {
        self.spent(Cost { held_ms: self.cost.unheld_ms.saturating_neg(), ..Cost::default() })
    }

    /// How long the lock was unheld.
    pub(super) fn lasted(&self) -> Duration {
        self.counted.saturating_duration_since(self.began.at)
    }

    fn spend(&mut self, cost: Cost) -> Spent {
        self.cost.add(&cost);
        self.spent(cost)
    }

    /// Counted at its beginning, so that time is taken back from where it was counted.
    fn spent(&self, cost: Cost) -> Spent {
        Spent { at: self.began, caller: Some(self.caller.clone()), costs: Costs::of(self.mode, cost) }
    }
}

/// How often a lock is granted, without the time when it is unheld.
#[derive(Debug, Default)]
pub(super) struct GrantRate {
    first: Option<Instant>,
    last: Option<Instant>,
    /// Grants after the first.
    grants: u32,
    /// How long it was unheld between them.
    unheld: Duration,
}

impl GrantRate {
    pub(super) fn granted(&mut self, at: Instant) {
        match self.first {
            None => self.first = Some(at),
            Some(_) => self.grants = self.grants.saturating_add(1),
        }
        self.last = Some(at);
    }

    pub(super) fn was_unheld(&mut self, span: Duration) {
        self.unheld += span;
    }

    /// Grants a second.
    pub(super) fn usual(&self) -> f64 {
        let (Some(first), Some(last)) = (self.first, self.last) else {
            return 0.0;
        };
        let span = last.saturating_duration_since(first).saturating_sub(self.unheld);
        match span.is_zero() {
            true => 0.0,
            false => f64::from(self.grants) / span.as_secs_f64(),
        }
    }
}

/// The held time of an ended lease.
pub(super) fn held(end: End, held_ms: u64) -> Cost {
    match end {
        End::Released | End::RanOut => Cost { held_ms: i64::try_from(held_ms).unwrap_or(i64::MAX), ..Cost::default() },
        // How long its holder was at work is reported later, if at all.
        End::Deleted | End::Replaced | End::TakenOver | End::Broken | End::Lost | End::Unseen => Cost::default(),
    }
}

impl From<&Cost> for api::LockTime {
    fn from(cost: &Cost) -> api::LockTime {
        // Time that is taken back may have been counted before the report begins.
        let count = |count: i64| u64::try_from(count).unwrap_or(0);
        api::LockTime {
            grants: count(cost.grants),
            held_ms: count(cost.held_ms),
            unheld_ms: count(cost.unheld_ms),
            lost_grants: count(cost.lost_grants),
            waits_ms: count(cost.waits_ms),
            cut_ms: count(cost.cut_ms),
        }
    }
}

impl api::LockTime {
    /// The lost part, in words to follow "would" or "did"; `None` where nothing is lost.
    pub fn loss(&self) -> Option<String> {
        let mut parts = Vec::new();
        if self.unheld_ms > 0 {
            parts.push(format!(
                "leave locks unheld for {} beside {} held ({})",
                duration(self.unheld_ms),
                duration(self.held_ms),
                share(self.unheld_ms, self.locked_ms())
            ));
        }
        if self.lost_grants > 0 {
            let grants = times(self.lost_grants, "grant");
            parts.push(format!("lose {grants} of {}", number(self.lost_grants.saturating_add(self.grants))));
        }
        if self.waits_ms > 0 {
            parts.push(format!("add waits of {}", duration(self.waits_ms)));
        }
        if self.cut_ms > 0 {
            let cut = duration(self.cut_ms);
            parts.push(format!("end leases while their holders work on, for {cut}"));
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}
