//! One run of a script: the call that is followed, what the lock holds before it, and the trace that is left of one
//! path through the script. `interpreter` makes the traces, `recognise` reads them.

use bytes::Bytes;

use super::recipe::{DeleteCommand, Reply, TtlUnit};

/// One call of a script.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) keys: &'a [Bytes],
    pub(super) arguments: &'a [Bytes],
    /// The lock key that the states speak of.
    pub(super) lock: &'a [u8],
    /// Which keys are locks, that one among them.
    pub(super) is_lock: &'a dyn Fn(&[u8]) -> bool,
    /// Whether it stands for every call with this many keys and arguments. `KEYS[1]` is the lock then, and
    /// a script that looks at a text is not understood. See `release`.
    pub(super) any: bool,
}

/// What the lock key holds when the script runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing.
    Absent,
    /// Something that is no string.
    OtherType,
    /// A string: that which the script compares with, or another one.
    Held { own: bool, has_ttl: bool },
    /// A lock of whatever type the script works with, held by somebody else, with a TTL. Other
    /// locks are held by others too, and other keys are absent.
    Foreign,
}

impl State {
    /// Whether the lock has a TTL; `None` where there is no lock, or no string.
    pub(super) fn has_ttl(self) -> Option<bool> {
        match self {
            State::Held { has_ttl, .. } => Some(has_ttl),
            State::Foreign => Some(true),
            State::Absent | State::OtherType => None,
        }
    }
}

/// What a script compares the stored value with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Claim {
    Whole(Bytes),
    /// With its first bytes, as many as these.
    Prefix(Bytes),
}

/// The one change a script makes to the lock key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Delete(DeleteCommand),
    Expire(TtlUnit, i64),
    /// So many milliseconds more than it has.
    Prolong(i64),
    Persist,
    /// Stores a value with a TTL in milliseconds, or without.
    Put(Bytes, Option<i64>),
}

/// What a script does on one path in one state of the lock.
#[derive(Debug)]
pub(super) struct Trace {
    pub(super) claim: Option<Claim>,
    pub(super) effect: Option<Effect>,
    /// Whether it matters in this state if there is a TTL.
    pub(super) asked_ttl: bool,
    /// Whether something was read that Redis may have refused to read, for another key's type.
    pub(super) uncertain: bool,
    pub(super) end: End,
}

/// How a script ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    Replied(Reply),
    /// With an answer that the state does not decide, or with an error of Lua.
    Unknown,
    /// With Redis's complaint that the key is of the wrong type.
    WrongType,
}
