//! The result of an atomic step: the script's answer is parsed, and the reply gets the form that the command always
//! had. It never invents: an answer that is not one of the script's own becomes an error that says so, and an error of
//! Redis goes to the client in Redis's words.

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
        /// Whether the lease has a record; otherwise it was taken without the proxy.
        governed: bool,
        /// Whether it had no TTL and was given one.
        adopted: bool,
        /// It may be the client's own, granted in a reply that the client did not read: the end of the connection to
        /// which it was granted may be about to be noticed.
        perhaps_own: bool,
        /// It was granted to this same connection.
        own: bool,
    },
    /// The lease in force has a new TTL or value.
    Extended {
        /// Its TTL now.
        ttl_ms: TtlMs,
        /// Its fencing token.
        fence: FencingToken,
        /// Since when it has been held.
        since: RedisTime,
        /// When it was extended.
        now: RedisTime,
        /// Whether keep-alive renews it.
        kept: bool,
        /// The old value, if it is the reply.
        old: Option<Bytes>,
        /// The lease was granted to this connection itself.
        own: bool,
        /// The requested TTL; `None` if it is unchanged.
        asked_ms: Option<AskedMs>,
    },
    /// The lock is free now.
    Released {
        /// The fencing token of the lease that ended.
        fence: FencingToken,
        /// Since when it was held.
        since: RedisTime,
        /// The value, if it is the reply.
        value: Option<Bytes>,
        /// It was deleted because its deadline had passed, by a client that had read it.
        taken_over: bool,
    },
    /// There was no lease.
    Absent {
        /// This session's own lease had expired, which was not noticed until now.
        ran_out: bool,
        /// Nor was there a record.
        unrecorded: bool,
    },
    /// Nothing was done.
    Refused(Refused),
    /// The lease has no record; Redis executed the application's command.
    Ungoverned,
    /// A free lock was taken without recording it: its record is of a later version.
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
        /// It was granted to this same connection.
        own: bool,
    },
    /// It was done, but fewer replicas than required confirmed it: see [`Answers::unconfirmed`].
    Unconfirmed(Unconfirmed),
    /// Redis answered the application's own command, or the first command of the step, with an error. Nothing was
    /// changed.
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
    /// What the new lease ended.
    pub ended: Ended,
    /// Whether keep-alive renews it.
    pub kept: bool,
    /// The old value, if it is the reply.
    pub old: Option<Bytes>,
    /// It is no new lease but the one with this name, which the client had been granted before, in a reply that it did
    /// not read.
    pub again: Option<Grant>,
    /// The lease before was granted to another client with the same owner token, within the last hour.
    pub shared_token: bool,
    /// The requested TTL.
    pub asked_ms: AskedMs,
}

/// What too few replicas have confirmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unconfirmed {
    /// A grant, which was released again: the lease with this fencing token is over.
    Grant(FencingToken),
    /// A grant that cannot be released: it ends by its TTL.
    Left(FencingToken),
    /// An extension. It is in force on this server, and may be lost with it.
    Extension,
}

/// What a new lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Nothing, according to the record.
    Nothing,
    /// Nothing with a record.
    Unrecorded,
    /// A lease that had expired unreleased. Since when it was held.
    RanOut(RedisTime),
    /// A lease whose deadline had passed was taken over.
    TakenOver(RedisTime),
    /// A lease was overwritten; only where nothing is enforced.
    Overwritten(RedisTime),
}

/// How a release is interpreted that did not end the lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StandsFor {
    /// Unknown.
    #[default]
    Nothing,
    /// A debt: the release of an earlier lease of this identity that had ended unreleased.
    Debt,
    /// The release after an acquire of this identity that was refused: it also releases a lock that it never got. The
    /// next one counts.
    RefusedTry,
    /// The same, but more of its acquires were refused whose releases are still expected.
    OneOfMany,
}

/// A refusal by the script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Why.
    pub reason: Reason,
    /// Since when the lock has been held.
    pub since: RedisTime,
    /// When it was refused.
    pub now: RedisTime,
    /// The newest fencing token of the lock.
    pub fence: FencingToken,
    /// This session's own lease of the lock is over.
    pub late: bool,
    /// The lease is no longer kept alive.
    pub keep_alive_ended: bool,
    /// How a refused release was interpreted.
    pub stands_for: StandsFor,
    /// The present value, if it shows the loser of a race that it lost.
    pub current: Option<Bytes>,
}

impl Refused {
    /// How long the lock in the way has been held, ms; `None` if none was.
    pub fn held_ms(&self) -> Option<u64> {
        (self.since > RedisTime(0)).then(|| self.now.ms_since(self.since))
    }
}

/// What would have been refused, where nothing is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Would {
    /// Why.
    pub reason: Reason,
    /// This session's own lease of the lock was over.
    pub late: bool,
    /// How the release is interpreted, as if it were refused.
    pub stands_for: StandsFor,
}

/// A script's answer about one lock.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// What was done.
    pub outcome: Outcome,
    /// Redis's reply to the application's own command, if that was run.
    pub native: Option<Value>,
    /// In monitor mode, what would have been refused.
    pub would: Option<Would>,
    /// For a refused script: what it had done to this lock.
    pub deed: Option<Operation>,
    /// Redis's error, if the result could not be recorded. Then only the reply in the outcome is true.
    pub unrecorded: Option<Bytes>,
    /// The version of the lock's record, if it is above ours: a digit.
    pub later: Option<u8>,
}

impl Answer {
    /// How a release is interpreted that did not end the lease, or would not have.
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
    /// About several, in the order of the command; and how many keys were deleted in all.
    Many(i64, Vec<Answer>),
    /// About a script with unknown effect: how it ended, the answer about each of its locks, and further results.
    Script(ScriptEnd, Vec<Answer>, Beside),
    /// An error of Redis about the step itself, from its code on.
    Error(Bytes),
    /// The rights check before the step found missing rights, and nothing was run; or it found none missing, and
    /// requires the step to be sent without the check.
    Lacking(Missing),
}

/// Where an error was raised, as far as the server reports it.
#[derive(Clone, Debug, PartialEq)]
pub enum RaisedAt {
    /// At this line of this source.
    Line(Bytes, u64),
    /// Not known.
    Nowhere,
    /// The text contains it: servers before Redis 7.
    InText,
}

/// How a script of the application ended.
#[derive(Clone, Debug, PartialEq)]
pub enum ScriptEnd {
    /// It returned; the value is the last element of the answer.
    Returned,
    /// It raised an error.
    Raised {
        /// What it said.
        text: Bytes,
        /// Where it was raised.
        at: RaisedAt,
    },
    /// The changes to its locks were undone.
    Undone {
        /// Its changes to other keys remain.
        others_stand: bool,
        /// Keys that Redis was unable to restore.
        lost: u64,
        /// The number that it returned, if all its effects were to set TTLs of locks.
        set_ttls: Option<i64>,
    },
}

/// What an answer about a script contains besides those about the locks that it names.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Beside {
    /// What the guard refused.
    pub barred: Option<Barred>,
    /// Locks that it touched without declaring them, which its operator allows.
    pub adopted: Vec<Adopted>,
    /// The verdicts about the guarded data that it may write.
    pub data: DataSaid,
}

/// The verdicts of a script's step about the guarded data that the script may write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataSaid {
    /// For each key in the order of the command; `None` if the script was not allowed to write it, and did not.
    pub verdicts: Vec<Option<Verdict>>,
    /// The key because of which all changes were undone, or nothing was run.
    pub refused: Option<usize>,
}

/// A lock that a script touched without declaring it.
#[derive(Clone, Debug, PartialEq)]
pub struct Adopted {
    /// Its name.
    pub key: Bytes,
    /// The place of its placeholder among the locks of the command.
    pub place: usize,
    /// Its number among those of that place, from 1: its grant is made from it.
    pub count: u16,
    /// The answer about it.
    pub answer: Answer,
}

/// What the guard refused a script that computes names of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Barred {
    /// The lock or the record that it would have written; empty for a command that names no key.
    pub key: Bytes,
    /// The command, in lower case.
    pub command: Bytes,
    /// Whether the refusal ended the script; otherwise the script caught it.
    pub ended: bool,
    /// Whether the command was executed all the same, because the lock is only watched.
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

    /// The verdicts about the guarded data that a script may write.
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

    /// The locks of a command, each with its answer. One answer may count for all, as if MSETNX takes none. An error if
    /// the whole step failed.
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

    /// Whether a script was refused while its changes to keys that are no locks remain.
    pub fn others_stand(&self) -> bool {
        matches!(self, Answers::Script(ScriptEnd::Undone { others_stand: true, .. }, ..))
    }

    /// Whether the step found a lease that may be the client's own, so that one more try, a moment later, is
    /// worthwhile. In that case it has changed nothing.
    pub fn perhaps_own(&self) -> bool {
        match self {
            Answers::One(one) => matches!(one.outcome, Outcome::Busy { perhaps_own: true, .. }),
            Answers::Many(..) | Answers::Script(..) | Answers::Error(_) | Answers::Lacking(_) => false,
        }
    }
}

/// A step that did nothing because it must first know the process of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedBack {
    /// The connection to which the lease was granted.
    pub holder: SessionId,
    /// The lease.
    pub grant: Grant,
    /// Its place among the locks of the command.
    pub at: usize,
}

/// The answer does not have the form of our scripts' answers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the script's answer is not one of its own")]
pub struct NotAnAnswer;

/// Parses the answer of a script.
pub fn read(value: &Value) -> Result<Answers, NotAnAnswer> {
    match value {
        Value::Bulk(usual) => packed::read(usual),
        value => array::read(value),
    }
}

#[cfg(test)]
mod tests;
