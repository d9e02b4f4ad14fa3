//! Why something was refused. The one list: error replies, metric labels, audit records and the
//! WIT's `code` enum all use these words.

use std::fmt;

/// The refused thing, in the words of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// A release or extension without a proof that counts.
    NotOwner,
    /// The same, by a session whose own lease of this lock has ended.
    Expired,
    /// A plain SET, SETEX … over a lease held by somebody else.
    Overwrite,
    /// GETSET (or `SET … GET`) on a lease that may not be taken over.
    TakeOver,
    /// A command that would change a lock key in a way that has no lock meaning.
    OpaqueWrite,
    /// An acquire without TTL, or PERSIST, where a policy wants a TTL.
    NoTtl,
    /// A TTL above the ceiling where `on_excess = "deny"`.
    TtlTooLong,
    /// An owner token that others use too, where a policy refuses those.
    SharedToken,
    /// An operation with an older fencing token than the newest.
    StaleFence,
    /// A script or function that may not run on a lock key.
    UnsafeScript,
    /// FLUSHDB, FLUSHALL, SWAPDB … while they would erase locks.
    BulkDelete,
    /// A free lock, while the server has been the primary for so short a time that the one before may have granted it.
    Quarantine,
    /// A policy's rate, quota, naming or time rule.
    Limited,
    /// A policy's own reason, with its text.
    Other,
}

impl Reason {
    /// Every reason, in the order of the documentation.
    pub const ALL: [Reason; 14] = [
        Reason::NotOwner,
        Reason::Expired,
        Reason::Overwrite,
        Reason::TakeOver,
        Reason::OpaqueWrite,
        Reason::NoTtl,
        Reason::TtlTooLong,
        Reason::SharedToken,
        Reason::StaleFence,
        Reason::UnsafeScript,
        Reason::BulkDelete,
        Reason::Quarantine,
        Reason::Limited,
        Reason::Other,
    ];

    /// The word used on the wire, in metrics and in records.
    pub const fn word(self) -> &'static str {
        match self {
            Reason::NotOwner => "not-owner",
            Reason::Expired => "expired",
            Reason::Overwrite => "overwrite",
            Reason::TakeOver => "take-over",
            Reason::OpaqueWrite => "opaque-write",
            Reason::NoTtl => "no-ttl",
            Reason::TtlTooLong => "ttl-too-long",
            Reason::SharedToken => "shared-token",
            Reason::StaleFence => "stale-fence",
            Reason::UnsafeScript => "unsafe-script",
            Reason::BulkDelete => "bulk-delete",
            Reason::Quarantine => "quarantine",
            Reason::Limited => "limited",
            Reason::Other => "other",
        }
    }

    /// The reason a word stands for.
    pub fn from_word(word: &[u8]) -> Option<Reason> {
        Reason::ALL.into_iter().find(|reason| reason.word().as_bytes() == word)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
