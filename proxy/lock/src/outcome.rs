//! What came of an atomic step: the script's answer read back, and the reply in the shape that the
//! command always had. It never invents: an answer that is not one of the script's own is an error
//! that says so, and an error of Redis goes to the client as Redis worded it.

mod array;
mod flush;
mod guarded;
mod nothing_run;
mod packed;
mod refusal;
mod reply;
mod unconfirmed;

pub use array::asked_back;
pub use flush::{FlushAnswer, Found, LiveLeases, Looked, read_flush};
pub use guarded::{Guarded, Left, read_guarded};
pub use nothing_run::{Missing, NothingRun, Why};
pub use refusal::{
    BulkRefusal, GuardLine, MAX_HINT_BYTES, OTHERS_STAND, RefusalLine, bulk_line, debug_line, guard_limit_line,
    guard_line, limit_line, not_permitted_line, refusal_line,
};
pub use reply::{Answered, answer, native_nothing, plain};
pub use unconfirmed::{unconfirmed_line, unconfirmed_words};

use bytes::Bytes;
use lockwarden_resp::Value;
use smallvec::SmallVec;

use crate::data_guard::Verdict;
use crate::decision::Operation;
use crate::reason::Reason;
use crate::time::{AskedMs, RedisTime, TtlMs};
use crate::token::{FencingToken, Grant, SessionId};

/// What a step did to one lock.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// A new lease.
    Granted(Granted),
    /// It is held.
    Busy {
        /// Whether the lease has a record; otherwise it came to be without the proxy.
        governed: bool,
        /// Whether it had no TTL and was given one.
        adopted: bool,
        /// It may be the client's own, granted in a reply that it did not read: the end of the
        /// connection that was granted it may be about to be noticed.
        perhaps_own: bool,
        /// It was granted to this very connection.
        own: bool,
    },
    /// The current lease has a new TTL or value.
    Extended {
        /// Its TTL now.
        ttl_ms: TtlMs,
        /// Its fencing token.
        fence: FencingToken,
        /// Since when it is held.
        since: RedisTime,
        /// When it was extended.
        now: RedisTime,
        /// Whether keep-alive renews it.
        kept: bool,
        /// The value before, where it is the reply.
        old: Option<Bytes>,
        /// It is the lease that this connection was granted itself.
        own: bool,
        /// The TTL that was asked for; `None` where it stays as it was.
        asked_ms: Option<AskedMs>,
    },
    /// The lock is free now.
    Released {
        /// The fencing token of the lease that ended.
        fence: FencingToken,
        /// Since when it was held.
        since: RedisTime,
        /// The value, where it is the reply.
        value: Option<Bytes>,
        /// Deleted because its deadline had passed, by a client that had read it.
        taken_over: bool,
    },
    /// There was no lease.
    Absent {
        /// This session's own lease had run out, unnoticed until now.
        ran_out: bool,
        /// Nor was there a record.
        unrecorded: bool,
    },
    /// Nothing was done.
    Refused(Refused),
    /// The lease has no record; Redis did what the application asked.
    Ungoverned,
    /// A free lock was taken, and nothing of that recorded: its record is of a later version.
    Unrecorded,
    /// The application's own comparison failed.
    Different {
        /// This session's own lease of the lock is over.
        late: bool,
    },
    /// The application's own condition did not hold.
    ConditionUnmet,
    /// A script left the lock as it was.
    Untouched {
        /// Whether its lease has a record.
        governed: bool,
        /// It was granted to this very connection.
        own: bool,
    },
    /// It was done, and fewer replicas confirmed that than must: see [`Answers::unconfirmed`].
    Unconfirmed(Unconfirmed),
    /// Redis answered the application's own command, or the first command of the step, with an error. Nothing was changed.
    Failed,
}

/// A new lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// Its fencing token.
    pub fence: FencingToken,
    /// When it was granted.
    pub now: RedisTime,
    /// Its TTL.
    pub ttl_ms: TtlMs,
    /// What it ended.
    pub ended: Ended,
    /// Whether keep-alive renews it.
    pub kept: bool,
    /// The value before, where it is the reply.
    pub old: Option<Bytes>,
    /// It is no new lease but the one of this name, which the client had been granted before without
    /// hearing of it.
    pub again: Option<Grant>,
    /// Another client was granted the lease before with the same owner token, within the last hour.
    pub shared_token: bool,
    /// The TTL that was asked for.
    pub asked_ms: AskedMs,
}

/// What too few replicas have confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unconfirmed {
    /// A grant, which was given back: the lease with this fencing token is over.
    Grant(FencingToken),
    /// A grant that cannot be given back: it goes by its TTL.
    Left(FencingToken),
    /// An extension. It stands on this server, and may be lost with it.
    Extension,
}

/// What a new lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Nothing, says the record.
    Nothing,
    /// Nothing that there was a record of.
    Unrecorded,
    /// A lease had run out unreleased. Since when it was held.
    RanOut(RedisTime),
    /// A lease whose deadline had passed was taken over.
    TakenOver(RedisTime),
    /// A lease was overwritten; only where nothing is enforced.
    Overwritten(RedisTime),
}

/// What a release is taken for that did not end the lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StandsFor {
    /// Nothing that is known.
    #[default]
    Nothing,
    /// A debt: the release of an earlier lease of this identity that had ended unreleased.
    Debt,
    /// The release after a try of this identity that was refused: it gives back what it never got as well. The next one counts.
    RefusedTry,
    /// The same, and more such tries were refused whose releases are still to come.
    OneOfMany,
}

/// A refusal, found by the script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub reason: Reason,
    /// Since when the lock is held.
    pub since: RedisTime,
    /// When it was refused.
    pub now: RedisTime,
    /// The newest fencing token of the lock.
    pub fence: FencingToken,
    /// This session's own lease of the lock is over.
    pub late: bool,
    /// The lease is no longer kept alive.
    pub keep_alive_ended: bool,
    /// What it was taken for in place of the lease's release.
    pub stands_for: StandsFor,
    /// The current value, where showing it tells the loser of a race that it lost.
    pub current: Option<Bytes>,
}

impl Refused {
    /// For how long the lock that stood in the way was held, ms; `None` where none did.
    pub fn held_ms(&self) -> Option<u64> {
        (self.since > RedisTime(0)).then(|| self.now.ms_since(self.since))
    }
}

/// What would have been refused where nothing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Would {
    /// Why.
    pub reason: Reason,
    /// This session's own lease of the lock was over.
    pub late: bool,
    /// What it was taken for, as a refused release is.
    pub stands_for: StandsFor,
}

/// A script's answer about one lock.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// What was done.
    pub outcome: Outcome,
    /// What Redis answered to the application's own command, where that was run.
    pub native: Option<Value>,
    /// In monitor mode, what would have been refused.
    pub would: Option<Would>,
    /// Of a refused script: what it had done to this lock.
    pub deed: Option<Operation>,
    /// Redis's error, where what was done could not be recorded. Of the outcome only the reply is true then.
    pub unrecorded: Option<Bytes>,
    /// The version of the lock's record, where that is above ours: a digit.
    pub later: Option<u8>,
}

impl Answer {
    /// What a release is taken for that did not end the lease, or would not have.
    pub fn stands_for(&self) -> StandsFor {
        match (&self.outcome, self.would) {
            (Outcome::Refused(refused), _) => refused.stands_for,
            (_, Some(would)) => would.stands_for,
            (_, None) => StandsFor::Nothing,
        }
    }
}

/// A whole answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Answers {
    /// About one lock.
    One(Answer),
    /// About several, in the order of the command; how many keys were deleted in all.
    Many(i64, Vec<Answer>),
    /// Of a script whose meaning is not known: how it ended, about each of its locks, and what there is beside.
    Script(ScriptEnd, Vec<Answer>, Beside),
    /// An error of Redis about the step itself, from its code on.
    Error(Bytes),
    /// The check in front of the step found rights missing, and nothing was run; or found none missing, and wants
    /// the step to be sent without it.
    Lacking(Missing),
}

/// Where an error was raised, as far as the server says.
#[derive(Clone, Debug, PartialEq)]
pub enum RaisedAt {
    /// At this line of this source.
    Line(Bytes, u64),
    /// Not known.
    Nowhere,
    /// The text says so itself: servers before Redis 7.
    InText,
}

/// How a script of the application ended.
#[derive(Clone, Debug, PartialEq)]
pub enum ScriptEnd {
    /// It returned; what, is the last element of the answer.
    Returned,
    /// It raised an error.
    Raised {
        /// What it said.
        text: Bytes,
        /// Where.
        at: RaisedAt,
    },
    /// Its locks were put back.
    Undone {
        /// What it did to other keys stands.
        others_stand: bool,
        /// Keys that Redis would not have put back.
        lost: u64,
        /// The number that it returned, where all that it did was to set TTLs of locks.
        set_ttls: Option<i64>,
    },
}

/// What an answer about a script tells beside those about the locks that it names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Beside {
    /// What the guard refused.
    pub barred: Option<Barred>,
    /// Locks that it touched without declaring them, which its operator lets it.
    pub adopted: Vec<Adopted>,
    /// What was said of the guarded data that it may write.
    pub data: DataSaid,
}

/// What a script's step says of the guarded data that the script may write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataSaid {
    /// Of each key in the order of the command; `None` where it might not be written, and was not.
    pub verdicts: Vec<Option<Verdict>>,
    /// The key for which all was put back, or nothing was run.
    pub refused: Option<usize>,
}

/// A lock that a script touched without declaring it.
#[derive(Clone, Debug, PartialEq)]
pub struct Adopted {
    /// Its name.
    pub key: Bytes,
    /// The place among the locks of the command of what stands for it there.
    pub place: usize,
    /// Which of those of that place it is, from 1: by it its grant is made.
    pub count: u16,
    /// What became of it.
    pub answer: Answer,
}

/// What the guard refused a script that computes names of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Barred {
    /// The lock that it would have written, or the record; empty for a command that names no key.
    pub key: Bytes,
    /// The command, in lower case.
    pub command: Bytes,
    /// Whether the refusal ended the script; else it caught it.
    pub ended: bool,
    /// Whether the command was carried out all the same: the lock is only watched.
    pub is_noted: bool,
}

impl Answers {
    /// What the guard refused.
    pub fn barred(&self) -> Option<&Barred> {
        match self {
            Answers::Script(_, _, beside) => beside.barred.as_ref(),
            Answers::One(_) | Answers::Many(..) | Answers::Error(_) | Answers::Lacking(_) => None,
        }
    }

    /// What was said of the guarded data that a script may write.
    pub fn data(&self) -> Option<&DataSaid> {
        match self {
            Answers::Script(_, _, beside) => Some(&beside.data),
            Answers::One(_) | Answers::Many(..) | Answers::Error(_) | Answers::Lacking(_) => None,
        }
    }

    /// Locks that a script touched without declaring them.
    pub fn adopted(&self) -> &[Adopted] {
        match self {
            Answers::Script(_, _, beside) => &beside.adopted,
            Answers::One(_) | Answers::Many(..) | Answers::Error(_) | Answers::Lacking(_) => &[],
        }
    }

    /// The locks of a command, each with what is said of it. One answer counts for all, as where MSETNX takes none.
    /// Nothing where the whole step failed.
    pub fn of_each<'a, L>(&'a self, locks: &'a [L]) -> Result<SmallVec<[(&'a L, &'a Answer); 1]>, NotAnAnswer> {
        let each: &[Answer] = match self {
            Answers::One(one) => return Ok(locks.iter().map(|lock| (lock, one)).collect()),
            Answers::Many(_, each) | Answers::Script(_, each, _) => each,
            Answers::Error(_) | Answers::Lacking(_) => return Ok(SmallVec::new()),
        };
        match each.len() == locks.len() {
            true => Ok(locks.iter().zip(each).collect()),
            false => Err(NotAnAnswer),
        }
    }

    /// Whether a script was refused, and what it did to keys that are no locks stands.
    pub fn others_stand(&self) -> bool {
        matches!(self, Answers::Script(ScriptEnd::Undone { others_stand: true, .. }, ..))
    }

    /// Whether the step found a lease that may be the client's own, so that trying once more, a
    /// moment later, is worthwhile. It has changed nothing then.
    pub fn perhaps_own(&self) -> bool {
        match self {
            Answers::One(one) => matches!(one.outcome, Outcome::Busy { perhaps_own: true, .. }),
            Answers::Many(..) | Answers::Script(..) | Answers::Error(_) | Answers::Lacking(_) => false,
        }
    }
}

/// A step that did nothing because it must know a process first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedBack {
    /// Who was granted the lease.
    pub holder: SessionId,
    /// The lease.
    pub grant: Grant,
    /// Its place among the locks of the command.
    pub at: usize,
}

/// The script's answer has a shape that our scripts do not give.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the script's answer is not one of its own")]
pub struct NotAnAnswer;

/// Reads what a script answered.
pub fn read(value: &Value) -> Result<Answers, NotAnAnswer> {
    match value {
        Value::Bulk(usual) => packed::read(usual),
        value => array::read(value),
    }
}

#[cfg(test)]
mod tests;
