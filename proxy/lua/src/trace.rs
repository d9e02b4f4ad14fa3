//! One run of a script: the call that is followed, what the lock holds before it, and the trace of one path through the
//! script. `interpreter` makes the traces, `recognise` reads them.

use bytes::Bytes;

use super::recipe::{DeleteCommand, Reply, TtlUnit};

/// One call of a script.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) keys: &'a [Bytes],
    pub(super) arguments: &'a [Bytes],
    /// The lock key whose state is given.
    pub(super) lock: &'a [u8],
    /// Whether a key is a lock; `lock` is one.
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
    /// A string: the one that the script compares with (`own`), or another one.
    Held { own: bool, has_ttl: bool },
    /// A lock with a TTL that another client holds, of the type that the script works with. Others hold the other
    /// locks too, and other keys are absent.
    Foreign,
}

impl State {
    /// Whether the lock has a TTL; `None` if there is no lock, or it is no string.
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
    /// These bytes with as many of its first bytes.
    Prefix(Bytes),
}

/// The one change a script makes to the lock key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    Delete(DeleteCommand),
    Expire(TtlUnit, i64),
    /// Adds this many milliseconds to the TTL.
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
    /// Whether the path depends on whether the lock has a TTL.
    pub(super) asked_ttl: bool,
    /// Whether it read something that Redis may refuse to read, because of the key's type.
    pub(super) uncertain: bool,
    pub(super) end: End,
}

/// How a script ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    Replied(Reply),
    /// With a reply that the state does not decide, or with an error of Lua.
    Unknown,
    /// With the WRONGTYPE error of Redis.
    WrongType,
}
