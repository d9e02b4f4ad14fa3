//! Why something was refused. The one list and the one voice: error replies, metric labels, audit records, `why`, the
//! report, the board, `docs/troubleshooting.md` and the WIT's `code` enum all use these words.

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

    /// What asks for it where a script refuses: a built-in policy, the rules about scripts, or the proxy itself.
    pub const fn asked_by(self) -> &'static str {
        match self {
            Reason::NotOwner
            | Reason::Expired
            | Reason::Overwrite
            | Reason::TakeOver
            | Reason::OpaqueWrite
            | Reason::SharedToken => "owner-token",
            Reason::StaleFence => "fencing",
            Reason::NoTtl | Reason::TtlTooLong | Reason::Limited => "ttl-ceiling",
            Reason::UnsafeScript => "scripts",
            Reason::BulkDelete | Reason::Quarantine | Reason::Other => "lockwarden",
        }
    }

    /// What is said of it: the word on the wire, in metrics and in records; what it means; and what to do about it, which
    /// an error line has as its hint. Only the policy itself can say what to do about a reason of its own.
    const fn words(self) -> (&'static str, &'static str, Option<&'static str>) {
        match self {
            Reason::NotOwner => (
                "not-owner",
                "no proof that this client holds the lock",
                Some(
                    "release and extend only after a successful acquire, by compare-and-delete with the value that was \
                     stored; over a pool, name its connections (CLIENT SETNAME)",
                ),
            ),
            Reason::Expired => (
                "expired",
                "this client's own lease of the lock had ended",
                Some("acquire again; ask for a longer TTL, or extend while you work, and stop when an extension fails"),
            ),
            Reason::Overwrite => (
                "overwrite",
                "a plain write over a lock that another client holds",
                Some("acquire with SET key value NX PX ms"),
            ),
            Reason::TakeOver => (
                "take-over",
                "the lock holds no deadline that lay ahead when it was taken and has passed on the server's clock",
                Some(
                    "wait until the deadline in the lock has passed, or its TTL has ended it, and compare clocks; \
                     SET key value NX PX ms needs no deadline",
                ),
            ),
            Reason::OpaqueWrite => (
                "opaque-write",
                "a change that means nothing to a lock: it is acquired, extended and released only",
                Some("keep other data under another key, or leave this key out of the namespace"),
            ),
            Reason::NoTtl => {
                ("no-ttl", "a lock that would never end by itself", Some("ask for a TTL: SET key value NX PX ms"))
            }
            Reason::TtlTooLong => (
                "ttl-too-long",
                "a TTL above the ceiling",
                Some("ask for at most the ceiling and extend while you work, or raise the ceiling of the namespace"),
            ),
            Reason::SharedToken => (
                "shared-token",
                "other clients use the same owner token, so it proves nothing",
                Some("use a new random value for each acquire"),
            ),
            Reason::StaleFence => (
                "stale-fence",
                "another client was granted the lock since",
                Some("stop the work: a newer holder has begun it; let what the lock guards check the fencing token"),
            ),
            Reason::UnsafeScript => (
                "unsafe-script",
                "a script or function that is not known to be safe on a lock",
                Some(
                    "use a compare-and-delete that docs/scripts.md knows, declare every key in KEYS, or have \
                     trusted_scripts or trusted_functions name it",
                ),
            ),
            Reason::BulkDelete => (
                "bulk-delete",
                "it would erase locks that are held",
                Some("wait until the locks are released, delete by name, or flush as one of admin_identities"),
            ),
            Reason::Quarantine => (
                "quarantine",
                "the primary had changed, and the one before may have granted the lock; or, where durability is strict, the \
                 server may lose it",
                Some("try again; while it lasts, lockwarden locks list says why and until when"),
            ),
            Reason::Limited => (
                "limited",
                "a rule of a policy about rate, number, name or time",
                Some(
                    "where the lock was held too long, release it and acquire it again; else see the policy's settings",
                ),
            ),
            Reason::Other => ("other", "a policy's own reason", None),
        }
    }

    /// The word used on the wire, in metrics and in records.
    pub const fn word(self) -> &'static str {
        self.words().0
    }

    /// What it means, in a few words.
    pub const fn meaning(self) -> &'static str {
        self.words().1
    }

    /// What to do about it; `None` where only the policy that refused can say.
    pub const fn advice(self) -> Option<&'static str> {
        self.words().2
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::outcome::MAX_HINT_BYTES;

    fn of_the_repository(file: &str) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    #[test]
    fn the_page_about_troubles_says_the_same() {
        let page = of_the_repository("docs/troubleshooting.md");
        for reason in Reason::ALL {
            let advice = reason.advice().unwrap_or("see its hint");
            let row = format!("| `{reason}` | {} | {advice} |", reason.meaning());
            assert!(page.contains(&row), "docs/troubleshooting.md lacks this row:\n{row}");
        }
    }

    /// Policies cannot deny for a quarantine.
    #[test]
    fn the_interface_of_policies_says_the_same() {
        let interface = of_the_repository("wit/policy.wit");
        let (_, interface) = interface.split_once("    enum code {").expect("reasons are cases of `code`");
        for reason in Reason::ALL.into_iter().filter(|reason| *reason != Reason::Quarantine) {
            let (first, rest) = reason.meaning().split_at(1);
            let begins = format!("        /// {}{rest}", first.to_uppercase());
            let case = interface.split_once(&format!("\n        {reason},\n")).map(|(before, _)| before);
            let last = case.and_then(|before| before.lines().next_back()).unwrap_or_default();
            assert!(last.starts_with(&begins), "wit/policy.wit does not say this of {reason}:\n{begins}");
        }
    }

    #[test]
    fn an_advice_is_shown_whole_in_an_error_line() {
        for reason in Reason::ALL {
            assert!(reason.advice().unwrap_or_default().len() <= MAX_HINT_BYTES, "{reason}");
        }
    }
}
