//! What to do about a misuse, in words. Each text says what happens and what to change; none assumes that the reader knows the
//! internals of the proxy.

use lockwarden_control::telemetry::vocabulary::{Label, Observation, UnjudgedWhy};
use lockwarden_lock::reason::Reason;

/// The advice on a refusal: its meaning, and what to do about it.
pub(super) fn for_reason(reason: Reason) -> String {
    match reason.advice() {
        Some(advice) => format!("{}: {advice}", reason.meaning()),
        None => format!("{}: see the detail in the example", reason.meaning()),
    }
}

/// A finding about how an application uses its locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Finding {
    Observed(Observation),
    /// A release without an owner token.
    TokenlessRelease,
    /// A release over another connection than the one that took the lock.
    Pooled,
    /// A lease that ran out before it was given back.
    RanOut,
    /// A lease that a failover has lost.
    LeaseLost,
    /// A lease that keep-alive kept beyond its TTL.
    KeptAlive,
    /// A command that was forwarded unjudged, and that enforce mode would refuse.
    Unjudged,
    /// A command that the operator lets through in every mode.
    LetThrough,
    /// A script or function that computes its key names during the run; it belongs to no namespace.
    ComputedNames,
    /// An operation on a lease without a record.
    Ungoverned,
    /// A write of guarded data under a lease that was over.
    LateWrite,
    /// A write of guarded data by a client that never had the lock.
    WriteWithoutLock,
    /// Monitor mode only: a lease without a TTL, to which enforce mode gives one.
    NoTtl,
    /// Monitor mode only: a TTL that enforce mode cuts to the ceiling.
    TtlCut,
    /// Monitor mode only: a lease that lasted longer than its TTL in enforce mode, where it would get keep-alive.
    NeedsKeepAlive,
    /// The same, where it would not get keep-alive.
    WouldRunOut,
    /// Monitor mode only: a take-over by a deadline in the value, which enforce mode compares with Redis's clock.
    TakesOver,
}

impl Finding {
    /// The finding for a write of guarded data that was refused for this reason, or would have been.
    pub(super) fn of_guarded(reason: Reason) -> Finding {
        match reason {
            Reason::StaleFence => Finding::LateWrite,
            _ => Finding::WriteWithoutLock,
        }
    }

    /// Whether it was found by a guard, so that it says nothing about the namespace.
    pub(super) fn is_of_guard(self) -> bool {
        matches!(self, Finding::LateWrite | Finding::WriteWithoutLock)
    }

    /// The finding for a command that was forwarded unjudged for this reason.
    pub(super) fn of_unjudged(why: UnjudgedWhy) -> Finding {
        match why {
            UnjudgedWhy::NoRights
            | UnjudgedWhy::NoScripts
            | UnjudgedWhy::UnknownCommand
            | UnjudgedWhy::UnknownScript
            | UnjudgedWhy::TooLong
            | UnjudgedWhy::Digest => Finding::Unjudged,
            UnjudgedWhy::ForwardedScript | UnjudgedWhy::TrustedFunction | UnjudgedWhy::Tracking => Finding::LetThrough,
            UnjudgedWhy::ComputedNames => Finding::ComputedNames,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Finding::Observed(observation) => observation.word(),
            Finding::TokenlessRelease => "tokenless-release",
            Finding::Pooled => "pooled",
            Finding::RanOut => "ran-out",
            Finding::LeaseLost => "lease-lost",
            Finding::KeptAlive => "kept-alive",
            Finding::Unjudged => "unjudged",
            Finding::LetThrough => "let-through",
            Finding::ComputedNames => "computed-names",
            Finding::Ungoverned => "ungoverned",
            Finding::LateWrite => "late-write",
            Finding::WriteWithoutLock => "write-without-lock",
            Finding::NoTtl => "no-ttl",
            Finding::TtlCut => "ttl-cut",
            Finding::NeedsKeepAlive => "needs-keep-alive",
            Finding::WouldRunOut => "would-run-out",
            Finding::TakesOver => "takes-over",
        }
    }

    /// Whether work that succeeds now may fail once the namespace is enforced. `grants_repeats`: the namespace grants a lock
    /// again to the connection that holds it, and so to another thread on that connection.
    pub(super) fn may_break(self, grants_repeats: bool) -> bool {
        match self {
            Finding::Observed(Observation::SharedSession) => grants_repeats,
            Finding::Observed(Observation::Outlived | Observation::HandedOver)
            | Finding::Unjudged
            | Finding::WouldRunOut => true,
            // Their consequences are refused or not, and are counted as refusals.
            Finding::Observed(
                Observation::SharedToken
                | Observation::Debt
                | Observation::RefusedThenReleased
                | Observation::RanOutConnected
                | Observation::RanOutAlive
                | Observation::SharedGuard
                | Observation::EndUnseen,
            )
            | Finding::LetThrough
            | Finding::ComputedNames
            | Finding::TokenlessRelease
            | Finding::Pooled
            | Finding::RanOut
            | Finding::LeaseLost
            | Finding::KeptAlive
            | Finding::Ungoverned
            | Finding::LateWrite
            | Finding::WriteWithoutLock
            | Finding::NoTtl
            | Finding::TtlCut
            | Finding::NeedsKeepAlive
            | Finding::TakesOver => false,
        }
    }

    /// Whether enforce mode changes something by itself, so that nothing breaks.
    pub(super) fn would_change(self) -> bool {
        match self {
            Finding::NoTtl | Finding::TtlCut | Finding::NeedsKeepAlive => true,
            Finding::Observed(_)
            | Finding::TokenlessRelease
            | Finding::Pooled
            | Finding::RanOut
            | Finding::LeaseLost
            | Finding::KeptAlive
            | Finding::Unjudged
            | Finding::LetThrough
            | Finding::ComputedNames
            | Finding::Ungoverned
            | Finding::LateWrite
            | Finding::WriteWithoutLock
            | Finding::WouldRunOut
            | Finding::TakesOver => false,
        }
    }
}

/// The advice on a finding.
pub(super) fn for_finding(finding: Finding) -> &'static str {
    match finding {
        Finding::Observed(Observation::SharedToken) => {
            "several clients take locks with one value, so each could release the other's: use a new random \
             value per acquire"
        }
        Finding::Observed(Observation::SharedSession) => {
            "one connection is refused a lock that it holds itself: threads share it, and only the values of their locks tell \
             them apart; that changes no answer, unless on_repeat = \"grant\" gives the lock to another thread of the connection"
        }
        Finding::Observed(Observation::RefusedThenReleased) => {
            "it releases after it was refused the lock, as finally blocks do: release only what was acquired"
        }
        Finding::Observed(Observation::Outlived) => {
            "it leaves a lock behind for longer than the ceiling: a TTL is cut to the ceiling and lives on \
             only while its connection does; extend from where the work goes on"
        }
        Finding::Observed(Observation::HandedOver) => {
            "it gives back, by key alone, locks that another process takes, as queues of jobs do: if that is \
             meant, set hand_over = true for their namespace, with a default TTL that no job exceeds, and give both one \
             client name or ACL user"
        }
        Finding::Observed(Observation::Debt) => {
            "it releases after its time was over: the late release was not turned against the next holder; \
             ask for a longer TTL, or extend while working"
        }
        Finding::Observed(Observation::RanOutConnected) => {
            "its locks run out while it stays connected: where hardly any of their releases comes late (ran-out-alive), they \
             are markers whose TTL is what they are for, and nothing is wrong"
        }
        Finding::Observed(Observation::RanOutAlive) => {
            "it gives locks back that had run out under it: ask for a longer TTL, or extend while working; where that cannot \
             be changed, keep_alive = { for = \"24h\", ttl = \"all\" } with a max_hold, in [namespace.settings.ttl-ceiling], \
             renews the TTL while it lives"
        }
        Finding::Observed(Observation::SharedGuard) => {
            "it writes guarded data over connections on which a lease had run out and was not given back: if its threads share \
             connections, a late one of them writes as the holder, and the guard cannot tell; give each thread a connection of \
             its own while it holds a lock; if it never gives locks back, release them"
        }
        Finding::Observed(Observation::EndUnseen) => {
            "calls that could not be judged named its locks, so whether they gave them back was not seen, and none of these leases \
             counts as one that ran out: where that is a script whose text the proxy has not seen (unjudged unknown-script), \
             SCRIPT FLUSH on the server makes clients send their texts"
        }
        Finding::TokenlessRelease => {
            "its releases say nothing of who releases: over another connection they are refused unless its \
             identity proves them; give the pool a name of its own, or release by compare-and-delete"
        }
        Finding::Pooled => {
            "it gives locks back over other connections than it takes them with: that needs a proof that \
             travels along, the owner token, or else a distinctive CLIENT SETNAME or ACL user"
        }
        Finding::RanOut => "its locks run out before it gives them back: ask for a longer TTL, or extend while working",
        Finding::LeaseLost => {
            "a failover lost locks that it held, and it was not told: stop what it does without them; quarantine = \"auto\" \
             in their namespace keeps others from getting such a lock while it works on"
        }
        Finding::KeptAlive => {
            "its work takes longer than the TTL that the proxy gave, and goes on because the proxy renews it: \
             ask for a TTL and extend, so that it does not depend on its connection"
        }
        Finding::Unjudged => "some of its commands on locks could not be judged: see the kind in the example",
        Finding::LetThrough => {
            "the configuration lets its scripts or functions work on locks unjudged, in enforce mode, too: what they do to a lock is nobody's but theirs"
        }
        Finding::ComputedNames => {
            "its scripts compute names of keys, and only the run tells whether they are those of locks; enforce mode runs them \
             behind a guard, which keeps them from locks"
        }
        Finding::LateWrite => {
            "it writes guarded data under a lease that is over: ask for a longer TTL, or extend while working, and read again \
             under a new lease when the old one is over"
        }
        Finding::WriteWithoutLock => {
            "it writes guarded data without the lock of the guard: take that lock first, over the same connection; what may \
             write without it is named in exempt of the guard"
        }
        Finding::NoTtl => {
            "it takes locks for ever: if it dies, nobody gets the lock; enforce mode gives them the default of \
             [namespace.settings.ttl-ceiling], and renews it while the holder is connected; better SET key value NX PX ms"
        }
        Finding::TtlCut => {
            "it asks for a longer TTL than the ceiling of [namespace.settings.ttl-ceiling]: enforce mode cuts it, and renews \
             it while the holder is connected; ask for less and extend, or raise the ceiling"
        }
        Finding::NeedsKeepAlive => {
            "its work takes longer than the TTL that enforce mode gives, and would go on because the proxy renews it \
             while its connection lives: raise default or ceiling in [namespace.settings.ttl-ceiling], or extend while \
             working"
        }
        Finding::WouldRunOut => {
            "its work takes longer than the TTL that enforce mode gives, and keep-alive is off: raise default or ceiling \
             in [namespace.settings.ttl-ceiling], or set its keep_alive, or extend while working"
        }
        Finding::TakesOver => {
            "it takes locks over by a deadline in their value: enforce mode allows that only when the deadline has \
             passed on Redis's clock; keep clocks together, and prefer SET key value NX PX ms"
        }
        Finding::Ungoverned => {
            "it works with locks that were taken before the proxy came or around it: send all its traffic \
             through the proxy"
        }
    }
}
