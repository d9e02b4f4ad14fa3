//! What a call of a script may mean for a lock: the words in which this crate reports it.

use bytes::Bytes;

/// What one call of a script means for a lock key.
#[expect(
    clippy::large_enum_variant,
    reason = "made once a call and taken apart at once"
)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// It does this, and nothing else.
    Recipe(Recipe),
    /// It changes nothing, whatever the lock and any other key holds.
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
        /// What the script answers.
        replies: Replies,
    },
    /// Gives the key another TTL if this is its value.
    CompareAndExtend {
        /// What the value is compared with.
        token: Bytes,
        /// How.
        extension: Extension,
        /// What the script answers.
        replies: Replies,
    },
    /// Stores a value if there is no key.
    Acquire {
        /// What is stored.
        value: Bytes,
        /// Its TTL; `None` for none.
        ttl_ms: Option<i64>,
        /// What the script answers.
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
        /// Whether the caller's own is extended by EXPIRE; else it is stored anew.
        by_expire: bool,
        /// What the script answers.
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
    /// `PEXPIRE` with what PTTL says and so many milliseconds more. Only where there is a TTL.
    Prolong(i64),
    /// `PERSIST`. Only where there is a TTL.
    Persist,
    /// `SET` of the same value with a TTL in milliseconds.
    Store(i64),
}

/// The unit of a TTL: that of the command that sets it.
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
    /// It begins like that value, for so many bytes.
    Prefix(usize),
}

/// What a comparing script answers in each state of the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replies {
    /// The value was equal and the command was done.
    pub done: Reply,
    /// The key holds another value.
    pub different: Reply,
    /// There is no such key.
    pub absent: Reply,
    /// The value was equal and the key has no TTL, where a script then does nothing.
    pub no_ttl: Option<Reply>,
    /// The key holds no string; `None` where Redis's own complaint is the answer.
    pub other_type: Option<Reply>,
}

/// What a script answers that takes a free lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcquireReplies {
    /// The value was stored.
    pub granted: Reply,
    /// There is a key.
    pub held: Reply,
    /// It reads the value, so that Redis complains where the key holds no string.
    pub reads_value: bool,
}

/// What a script answers that takes a free lock or extends its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakeReplies {
    /// The value was stored where there was no key.
    pub granted: Reply,
    /// The caller's own was extended.
    pub extended: Reply,
    /// The key is somebody else's.
    pub different: Reply,
    /// The key holds no string; `None` where Redis's own complaint is the answer.
    pub other_type: Option<Reply>,
}

/// One answer of a script, as the client sees it on the wire.
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
    /// The value that the script read from somebody else's key, as a bulk string.
    Stored,
    /// What is left of the lock key's TTL; -1 where it has none.
    Left(TtlUnit),
}
