//! What a call of a script may mean for a lock, as this crate reports it.

use bytes::Bytes;

/// What one call of a script means for a lock key.
#[expect(clippy::large_enum_variant, reason = "made once a call and taken apart at once")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// It does this, and nothing else.
    Recipe(Recipe),
    /// It changes nothing, whatever the lock and the other keys hold.
    Reads,
    /// Not known.
    Unknown,
}

/// What a recognised call does to one lock key, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recipe {
    /// Deletes the key if this is its value.
    CompareAndDelete {
        /// What the value is compared with.
        token: Bytes,
        /// The command that deletes.
        command: DeleteCommand,
        /// What the script replies.
        replies: Replies,
    },
    /// Gives the key another TTL if this is its value.
    CompareAndExtend {
        /// What the value is compared with.
        token: Bytes,
        /// How it is extended.
        extension: Extension,
        /// What the script replies.
        replies: Replies,
    },
    /// Stores a value if there is no key.
    Acquire {
        /// What is stored.
        value: Bytes,
        /// Its TTL; `None` for none.
        ttl_ms: Option<i64>,
        /// What the script replies.
        replies: AcquireReplies,
    },
    /// Stores a value if there is no key, and extends the key if it is the caller's.
    AcquireOrExtend {
        /// What is stored.
        value: Bytes,
        /// When the key is the caller's.
        owner: Owner,
        /// The TTL, in both cases.
        ttl_ms: i64,
        /// Whether the caller's own key is extended by EXPIRE or PEXPIRE; else it is stored again.
        by_expire: bool,
        /// What the script replies.
        replies: TakeReplies,
    },
}

/// The command that a releasing script deletes with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteCommand {
    /// `DEL`.
    Del,
    /// `UNLINK`.
    Unlink,
}

/// How a script extends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    /// `EXPIRE` or `PEXPIRE`. Zero or less deletes the key.
    Expire(TtlUnit, i64),
    /// `PEXPIRE` with the result of PTTL plus this many milliseconds. Only if there is a TTL.
    Prolong(i64),
    /// `PERSIST`. Only if there is a TTL.
    Persist,
    /// `SET` of the same value with a TTL in milliseconds.
    Store(i64),
}

/// The unit of a TTL in the command that sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TtlUnit {
    /// `EXPIRE`.
    Seconds,
    /// `PEXPIRE`.
    Milliseconds,
}

/// When a key counts as the caller's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// It holds the value that would be stored.
    Whole,
    /// Its first bytes are those of that value; this is their number.
    Prefix(usize),
}

/// What a comparing script replies in each state of the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replies {
    /// The value was equal and the command was done.
    pub done: Reply,
    /// The key holds another value.
    pub different: Reply,
    /// There is no such key.
    pub absent: Reply,
    /// The value was equal and the key has no TTL, if the script does nothing then.
    pub no_ttl: Option<Reply>,
    /// The key holds no string; `None` if the client gets Redis's own error.
    pub other_type: Option<Reply>,
}

/// The replies of a script that takes a free lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcquireReplies {
    /// The value was stored.
    pub granted: Reply,
    /// There is a key.
    pub held: Reply,
    /// Whether it reads the value, so that the client gets Redis's own error if the key holds no string.
    pub reads_value: bool,
}

/// The replies of a script that takes a free lock or extends its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakeReplies {
    /// The value was stored where there was no key.
    pub granted: Reply,
    /// The caller's own key was extended.
    pub extended: Reply,
    /// The key is another client's.
    pub different: Reply,
    /// The key holds no string; `None` if the client gets Redis's own error.
    pub other_type: Option<Reply>,
}

/// One reply of a script, as the client sees it on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// An integer; Lua's `true` is 1.
    Integer(i64),
    /// Nil: Lua's `nil` or `false`, or no `return` at all.
    Nil,
    /// A bulk string.
    Bulk(Bytes),
    /// A simple string, without its `+`.
    Status(Bytes),
    /// An error as Redis 7 words it, without its `-`.
    Error(Bytes),
    /// The integer that DEL, UNLINK, EXPIRE, PEXPIRE or PERSIST returned. Only where the key was changed.
    CommandResult,
    /// The value that the script read from a key of another holder, as a bulk string.
    Stored,
    /// The remaining TTL of the lock key; -1 if it has none.
    Left(TtlUnit),
}
