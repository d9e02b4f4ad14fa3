//! One lease of a lock as it was seen: its beginning, its end and, where it did not end by its holder's release, how long that
//! holder was at work. Pure; `lock_history.rs` assigns the entries to leases.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockwarden_control::clock::ms;
use lockwarden_control::telemetry::events::{Caller, Fingerprint, LockEvent, SessionNumber};
use lockwarden_lock::plan::EnforcedTerms;

use super::advice::Finding;
use super::hold_times::Hold;

/// An EXPIRE this soon after its SETNX belongs to the same idiom.
const TTL_FOLLOWS_WITHIN: Duration = Duration::from_secs(1);

/// The end of a lease that ran out is noticed at the latest after this time.
const NOTICED_WITHIN: Duration = Duration::from_secs(10);

/// A lease whose beginning was seen.
#[derive(Clone, Debug)]
pub(super) struct Holding {
    pub(super) caller: Option<Arc<Caller>>,
    pub(super) token: Option<Fingerprint>,
    pub(super) fence: u64,
    pub(super) since: Instant,
    pub(super) since_ms: u64,
    /// The last TTL that it was given, ms; 0 for none.
    pub(super) ttl_ms: u64,
    /// The same without a grace: the TTL that was asked for, where that is less.
    asked_ttl_ms: u64,
    /// A longer TTL was asked for, or none.
    is_cut: bool,
    /// The end of that TTL; renewals do not count.
    pub(super) ends: Option<Instant>,
    /// Keep-alive renews it.
    pub(super) kept: bool,
    /// A former holder acted during it.
    pub(super) overlapped: bool,
    /// An unjudged command went to Redis and may have changed it.
    pub(super) unsure: bool,
    /// It was already counted as one that lives on keep-alive.
    pub(super) outlives_its_ttl: bool,
    /// In monitor mode: its terms in enforce mode, where they differ.
    pub(super) otherwise: Option<Otherwise>,
}

/// A lease with the terms that its application asked for, where enforce mode would have given others.
#[derive(Clone, Debug)]
pub(super) struct Otherwise {
    /// The entry with which it began or got these terms.
    began: Arc<LockEvent>,
    terms: EnforcedTerms,
    /// It has no TTL, and that was not reported yet.
    wants_ttl: bool,
    /// It lasted longer than those terms, and that was reported.
    outlived: bool,
}

/// How a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Released by its holder or a client that acts for it.
    Released,
    /// Its TTL was over before its holder released it.
    RanOut,
    /// Deleted by a client that was not its holder.
    Deleted,
    /// Another value was written over it.
    Replaced,
    /// The deadline in its value had passed, and another client ended it.
    TakenOver,
    /// Ended by another client, because the deadline in its value had passed.
    Broken,
    /// The server that became the primary does not have it.
    Lost,
    /// The end was not seen.
    Unseen,
}

impl End {
    /// Whether it was ended by a client that did not hold it, in a way that enforce mode refuses.
    pub(super) fn is_by_another(self) -> bool {
        match self {
            End::Deleted | End::Replaced => true,
            End::Released | End::RanOut | End::TakenOver | End::Broken | End::Lost | End::Unseen => false,
        }
    }

    /// Its word in the API.
    pub(super) fn word(self) -> &'static str {
        match self {
            End::Released => "released",
            End::RanOut => "ran-out",
            End::Deleted => "deleted-by-another",
            End::Replaced => "replaced",
            End::TakenOver => "taken-over",
            End::Broken => "broken",
            End::Lost => "lost",
            End::Unseen => "unseen",
        }
    }
}

/// A lease that is over.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) caller: Option<Arc<Caller>>,
    pub(super) fence: u64,
    pub(super) since_ms: u64,
    pub(super) until_ms: u64,
    pub(super) ttl_ms: u64,
    pub(super) end: End,
    /// How long it was held. `None` while that is not known: its holder has not released it.
    pub(super) hold: Option<Hold>,
    /// Its end may have been told before.
    pub(super) again: bool,
}

impl Ended {
    pub(super) fn held_ms(&self) -> u64 {
        self.until_ms.saturating_sub(self.since_ms)
    }

    /// A lease of which only the end was seen.
    pub(super) fn without_beginning(entry: &LockEvent, end: End) -> Ended {
        let held_ms = entry.held_ms.unwrap_or(0);
        let ran_out = end == End::RanOut;
        Ended {
            caller: entry.caller.clone(),
            fence: entry.fence.unwrap_or(0),
            since_ms: entry.at_ms.saturating_sub(held_ms),
            until_ms: entry.at_ms,
            ttl_ms: 0,
            end,
            hold: Some(Hold::new(entry.at_ms, held_ms, 0, (ran_out, false))),
            again: true,
        }
    }
}

/// A lease that was over before its holder released it.
#[derive(Clone, Debug)]
pub(super) struct Former {
    pub(super) lease: Holding,
    pub(super) end: End,
    /// For how long the lock belonged to this lease; after a later sign of the holder, how long the holder was at work.
    held_ms: u64,
    /// How long the holder was at work, by its last sign after the end.
    pub(super) worked_ms: Option<u64>,
    /// Its holder has released it or taken the lock again: the holder's next actions are about another lease.
    pub(super) closed: bool,
}

/// The holder of an ended lease released or extended it.
#[derive(Debug)]
pub(super) struct Late {
    pub(super) fence: u64,
    /// The duration that it counted with before, ms.
    pub(super) was_ms: u64,
    pub(super) worked_ms: u64,
    /// How long its holder had worked after a TTL that was cut, ms.
    pub(super) cut_ms: u64,
    /// How long it was held, which is known only now. `None` where it was counted as held before, with too short a duration.
    pub(super) hold: Option<Hold>,
}

impl Former {
    pub(super) fn new(lease: Holding, end: End, at: Instant) -> Former {
        let over = match lease.ends {
            // Where the end was noticed late, it was held no longer than its TTL; for a renewed lease the end is less certain.
            Some(ends) if end == End::RanOut && !lease.kept => ends.min(at),
            Some(_) | None => at,
        };
        Former { held_ms: lease.age_ms(over), lease, end, worked_ms: None, closed: false }
    }

    /// The ended lease, as far as it is known.
    pub(super) fn ended(&self) -> Ended {
        self.lease.ended(self.end, self.held_ms)
    }

    /// Whether the next release by this connection may be of this lease.
    pub(super) fn is_open_for(&self, session: SessionNumber) -> bool {
        let of = self.lease.caller.as_ref().map(|caller| caller.session);
        !self.closed && of == Some(session)
    }

    /// Whether a late report that a lease ran out is about this lease, however this one ended.
    pub(super) fn is_told(&self, entry: &LockEvent) -> bool {
        let held = Duration::from_millis(entry.held_ms.unwrap_or(0));
        let end = self.lease.since.checked_add(held);
        let noticed = |end| entry.at.saturating_duration_since(end) < NOTICED_WITHIN;
        end.is_some_and(noticed)
    }

    /// Whether its holder gave a later sign, after working for longer than its TTL.
    pub(super) fn outlasted_its_ttl(&self) -> bool {
        let ttl_ms = self.lease.ttl_ms;
        let is_longer = |worked_ms| ttl_ms > 0 && worked_ms > ttl_ms;
        self.worked_ms.is_some_and(is_longer)
    }

    /// Its holder releases or extends it after its end.
    pub(super) fn heard_of_again(&mut self, at: Instant, gives_back: bool) -> Option<Late> {
        self.closed |= gives_back;
        let ran_out = self.end == End::RanOut;
        if !ran_out && !gives_back {
            return None;
        }
        let worked_ms = self.lease.age_ms(at);
        let (ttl_ms, kept) = (self.lease.asked_ttl_ms, self.lease.kept);
        let until_ms = self.lease.since_ms.saturating_add(worked_ms);
        let late = Late {
            fence: self.lease.fence,
            was_ms: self.held_ms,
            worked_ms,
            cut_ms: match self.lease.is_cut && ran_out {
                true => worked_ms.saturating_sub(self.held_ms),
                false => 0,
            },
            hold: (!ran_out).then(|| Hold::new(until_ms, worked_ms, ttl_ms, (false, kept))),
        };
        self.worked_ms = Some(worked_ms);
        self.held_ms = self.held_ms.max(worked_ms);
        Some(late)
    }
}

impl Holding {
    /// Begins with this entry or, where its beginning was not seen, as long before as the entry says.
    pub(super) fn new(entry: &Arc<LockEvent>, kept: bool) -> Holding {
        let held = entry.held_ms.unwrap_or(0);
        let since = entry.at.checked_sub(Duration::from_millis(held));
        let mut holding = Holding {
            caller: entry.caller.clone(),
            token: entry.token,
            fence: entry.fence.unwrap_or(0),
            since: since.unwrap_or(entry.at),
            since_ms: entry.at_ms.saturating_sub(held),
            ttl_ms: 0,
            asked_ttl_ms: 0,
            is_cut: false,
            ends: None,
            kept,
            overlapped: false,
            unsure: false,
            outlives_its_ttl: false,
            otherwise: Otherwise::of(entry),
        };
        holding.give(entry);
        holding
    }

    /// Gives it the TTL of this entry.
    pub(super) fn give(&mut self, entry: &LockEvent) {
        let ttl_ms = entry.ttl_ms.unwrap_or(0);
        // The reply may have been read long after Redis sent it.
        let waited = entry.took.and_then(|took| took.redis).unwrap_or_default();
        let at = entry.at.checked_sub(waited).unwrap_or(entry.at);
        self.ttl_ms = ttl_ms;
        self.asked_ttl_ms = match entry.asked_ms {
            Some(asked @ 1..) => asked.min(ttl_ms),
            Some(0) | None => ttl_ms,
        };
        self.is_cut = ttl_ms > 0 && matches!(entry.asked_ms, Some(asked) if asked == 0 || asked > ttl_ms);
        // A time that the clock cannot represent means for ever.
        let ttl = (ttl_ms > 0).then(|| Duration::from_millis(ttl_ms));
        self.ends = ttl.and_then(|ttl| at.checked_add(ttl));
    }

    /// In monitor mode: its end in enforce mode if it were not released from now on; `None` where it would never end.
    /// Keep-alive stops counting after a release that may be its holder's.
    pub(super) fn would_end(&self, at: Instant) -> Option<Instant> {
        let Some(otherwise) = &self.otherwise else {
            return self.ends;
        };
        let from = match otherwise.terms.kept {
            true => at,
            false => otherwise.began.at,
        };
        match otherwise.terms.ttl_ms.0 {
            0 => None,
            ttl_ms => from.checked_add(Duration::from_millis(ttl_ms)),
        }
    }

    /// In monitor mode: how long, until now, its holder worked after the TTL that enforce mode would have given.
    pub(super) fn would_be_cut_ms(&self, at: Instant) -> u64 {
        let otherwise = self.otherwise.as_ref().filter(|otherwise| !otherwise.terms.kept);
        let ends = otherwise.and_then(|_| self.would_end(at));
        ends.map_or(0, |ends| ms(at.saturating_duration_since(ends)))
    }

    /// The share of the TTL that is left, without its grace.
    pub(super) fn part_left(&self, at: Instant) -> Option<f64> {
        let grace = Duration::from_millis(self.ttl_ms.saturating_sub(self.asked_ttl_ms));
        let left = self.ends?.saturating_duration_since(at);
        let left = left.saturating_sub(grace).as_secs_f64();
        let given = Duration::from_millis(self.asked_ttl_ms).as_secs_f64();
        Some((left / given).min(1.0))
    }

    pub(super) fn age_ms(&self, now: Instant) -> u64 {
        ms(now.saturating_duration_since(self.since))
    }

    /// The ended lease, with this end and duration.
    pub(super) fn ended(&self, end: End, held_ms: u64) -> Ended {
        let until_ms = self.since_ms.saturating_add(held_ms);
        let hold = |ran_out| Hold::new(until_ms, held_ms, self.asked_ttl_ms, (ran_out, self.kept));
        Ended {
            caller: self.caller.clone(),
            fence: self.fence,
            since_ms: self.since_ms,
            until_ms,
            ttl_ms: self.ttl_ms,
            end,
            hold: match end {
                End::Released => Some(hold(false)),
                End::RanOut => Some(hold(true)),
                End::Deleted | End::Replaced | End::TakenOver | End::Broken | End::Lost | End::Unseen => None,
            },
            again: false,
        }
    }

    /// The changes of enforce mode that are known by now, each reported once. A TTL that follows at once, as in SETNX and
    /// EXPIRE, counts as requested; so a lease without a TTL gets a moment for that, unless it `is_over`.
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
    pub(super) fn of(entry: &Arc<LockEvent>) -> Option<Otherwise> {
        Some(Otherwise {
            began: entry.clone(),
            terms: entry.would_give?,
            wants_ttl: entry.asked_ms == Some(0),
            outlived: false,
        })
    }
}
