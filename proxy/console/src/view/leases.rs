//! One lease of a lock as it was seen: how it began, how it ended, and, where it ended otherwise than by its holder's
//! release, how long that holder was at work. Pure; `lock_history.rs` says what belongs to which lease.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockwarden_control::clock::ms;
use lockwarden_control::telemetry::events::{Caller, Fingerprint, LockEvent, SessionNumber};
use lockwarden_lock::plan::EnforcedTerms;

use super::advice::Finding;
use super::hold_times::Hold;

/// An EXPIRE so soon after the SETNX belongs to the same idiom.
const TTL_FOLLOWS_WITHIN: Duration = Duration::from_secs(1);

/// That a lease ran out is noticed so soon after, at the latest.
const NOTICED_WITHIN: Duration = Duration::from_secs(10);

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
    /// The same without a grace: what was asked for, where that is less.
    asked_ttl_ms: u64,
    /// A longer one was asked for, or none.
    is_cut: bool,
    /// When that is over, renewals left aside.
    pub(super) ends: Option<Instant>,
    /// Keep-alive renews it.
    pub(super) kept: bool,
    /// A former holder acted during it.
    pub(super) overlapped: bool,
    /// Something went to Redis unjudged, which may have changed it.
    pub(super) unsure: bool,
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

/// How a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Its holder gave it back, or a client that acts for it.
    Released,
    /// Its TTL was over before its holder gave it back.
    RanOut,
    /// A client that was not its holder deleted it.
    Deleted,
    /// Another value was written over it.
    Replaced,
    /// The deadline in its value had passed, and another client ended it.
    TakenOver,
    /// An operator ended it.
    Broken,
    /// The server that became the primary does not have it.
    Lost,
    /// That was not seen.
    Unseen,
}

impl End {
    /// Whether a client ended it that did not hold it, and that enforce mode refuses.
    pub(super) fn is_by_another(self) -> bool {
        match self {
            End::Deleted | End::Replaced => true,
            End::Released | End::RanOut | End::TakenOver | End::Broken | End::Lost | End::Unseen => false,
        }
    }

    /// The one word for it in the API.
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
    /// How long it was held. `None` where that is not known: its holder has not given it back.
    pub(super) hold: Option<Hold>,
}

impl Ended {
    pub(super) fn held_ms(&self) -> u64 {
        self.until_ms.saturating_sub(self.since_ms)
    }

    /// Of a lease of which only the end was seen.
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
        }
    }
}

/// A lease that was over before its holder gave it back.
#[derive(Clone, Debug)]
pub(super) struct Former {
    pub(super) lease: Holding,
    pub(super) end: End,
    /// For how long the lock was this lease's; once more was heard of the holder, how long that was at work.
    held_ms: u64,
    /// How long the holder was at work, as far as it was heard of again.
    pub(super) worked_ms: Option<u64>,
    /// Its holder has given it back, or taken the lock again: what it does next is about another lease.
    pub(super) closed: bool,
}

/// The holder of a lease that was over gave it back, or extended it.
#[derive(Debug)]
pub(super) struct Late {
    pub(super) fence: u64,
    /// What it counted with before, ms.
    pub(super) was_ms: u64,
    pub(super) worked_ms: u64,
    /// For so long its holder had worked after a TTL that was cut, ms.
    pub(super) cut_ms: u64,
    /// It is known only now how long it was held. `None` where it counted as held before, for too short.
    pub(super) hold: Option<Hold>,
}

impl Former {
    pub(super) fn new(lease: Holding, end: End, at: Instant) -> Former {
        let over = match lease.ends {
            // Noticed late, it was held no longer than its TTL; what was renewed is not known so well.
            Some(ends) if end == End::RanOut && !lease.kept => ends.min(at),
            Some(_) | None => at,
        };
        Former { held_ms: lease.age_ms(over), lease, end, worked_ms: None, closed: false }
    }

    /// What is known of it.
    pub(super) fn ended(&self) -> Ended {
        self.lease.ended(self.end, self.held_ms)
    }

    /// Whether what this connection gives back next may be this lease.
    pub(super) fn is_open_for(&self, session: SessionNumber) -> bool {
        let of = self.lease.caller.as_ref().map(|caller| caller.session);
        !self.closed && of == Some(session)
    }

    /// Whether this is the lease of which it is told, late, that it ran out; however it ended.
    pub(super) fn is_told(&self, entry: &LockEvent) -> bool {
        let held = Duration::from_millis(entry.held_ms.unwrap_or(0));
        let end = self.lease.since.checked_add(held);
        let noticed = |end| entry.at.saturating_duration_since(end) < NOTICED_WITHIN;
        end.is_some_and(noticed)
    }

    /// Whether its holder was heard of again, and had worked for longer than its TTL.
    pub(super) fn outlasted_its_ttl(&self) -> bool {
        let ttl_ms = self.lease.ttl_ms;
        let is_longer = |worked_ms| ttl_ms > 0 && worked_ms > ttl_ms;
        self.worked_ms.is_some_and(is_longer)
    }

    /// Its holder gives it back, or extends it, long after.
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
    /// Begins with this entry, or, where its beginning was not seen, as long before as that says.
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

    /// It has the TTL of this entry from then on.
    pub(super) fn give(&mut self, entry: &LockEvent) {
        let ttl_ms = entry.ttl_ms.unwrap_or(0);
        // The answer may have been read long after Redis had given it.
        let waited = entry.took.and_then(|took| took.redis).unwrap_or_default();
        let at = entry.at.checked_sub(waited).unwrap_or(entry.at);
        self.ttl_ms = ttl_ms;
        self.asked_ttl_ms = match entry.asked_ms {
            Some(asked @ 1..) => asked.min(ttl_ms),
            Some(0) | None => ttl_ms,
        };
        self.is_cut = ttl_ms > 0 && matches!(entry.asked_ms, Some(asked) if asked == 0 || asked > ttl_ms);
        // A time beyond the clock is for ever.
        let ttl = (ttl_ms > 0).then(|| Duration::from_millis(ttl_ms));
        self.ends = ttl.and_then(|ttl| at.checked_add(ttl));
    }

    /// Where nothing is enforced: when it would end in enforce mode though nobody gave it back from now on; `None` where it
    /// would never. One that is kept alive is so no more after a release that may be its holder's.
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

    /// How long its holder was at work, until now, after the TTL that enforce mode would have given, where nothing is.
    pub(super) fn would_be_cut_ms(&self, at: Instant) -> u64 {
        let otherwise = self.otherwise.as_ref().filter(|otherwise| !otherwise.terms.kept);
        let ends = otherwise.and_then(|_| self.would_end(at));
        ends.map_or(0, |ends| ms(at.saturating_duration_since(ends)))
    }

    /// Which part of the TTL is left, its grace left aside.
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

    /// It ended so, after so long.
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
        }
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
    pub(super) fn of(entry: &Arc<LockEvent>) -> Option<Otherwise> {
        Some(Otherwise {
            began: entry.clone(),
            terms: entry.would_give?,
            wants_ttl: entry.asked_ms == Some(0),
            outlived: false,
        })
    }
}
