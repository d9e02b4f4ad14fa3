//! The closed sets that metric labels are made of. An enum here is the reason why no lock key, no
//! token and no address can ever become a label: there is no way to spell one. The names and help
//! texts of the metrics stand where they are declared, in `metrics.rs` and below.

use lockwarden_lock::decision::{FaultKind, Operation};
use lockwarden_resp::ErrorKind;

/// A set of label values that is known when the program is compiled.
pub trait Label: Copy + 'static {
    /// Every member, in the order of `index`.
    const ALL: &'static [Self];
    /// The place of this member in `ALL`.
    fn index(self) -> usize;
    /// The label's value on the page.
    fn word(self) -> &'static str;
    /// What that means, in a sentence; empty where the word says it.
    fn meaning(self) -> &'static str {
        ""
    }
}

macro_rules! label_set {
    ($(#[$doc:meta])* $name:ident { $($(#[doc = $meaning:literal])+ $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[doc = $meaning])+ $variant,)*
        }

        impl Label for $name {
            const ALL: &'static [$name] = &[$($name::$variant),*];

            fn index(self) -> usize {
                self as usize
            }

            fn word(self) -> &'static str {
                match self {
                    $($name::$variant => $word,)*
                }
            }

            fn meaning(self) -> &'static str {
                match self {
                    $($name::$variant => concat!($($meaning),+).trim_start(),)*
                }
            }
        }
    };
}

label_set! {
    /// Which way a command went.
    CommandClass {
        /// Forwarded as it came.
        PassThrough = "passthrough",
        /// Judged by a policy chain, or refused by the proxy's own rules for lock keys.
        Policy = "policy",
        /// Answered by the proxy itself.
        Admin = "admin",
    }
}

label_set! {
    /// How a command ended for its client.
    CommandResult {
        /// The backend answered, and not with an error.
        Ok = "ok",
        /// The backend answered with an error.
        Error = "error",
        /// The answer says that the operation was refused.
        Denied = "denied",
        /// The proxy could not get an answer, or one of its limits was reached.
        ProxyError = "proxy-error",
    }
}

label_set! {
    /// How the backend leads a client to another server.
    RedirectKind {
        /// For good.
        Moved = "moved",
        /// For one command.
        Ask = "ask",
        /// By a notice of maintenance, which the client was not shown.
        Moving = "moving",
        /// By naming its replicas, from which a client may read.
        Replicas = "replicas",
    }
}

label_set! {
    /// How a node of a cluster sends a client to another one.
    ClusterRedirect {
        /// For good.
        Moved = "moved",
        /// For one command, while a slot moves.
        Ask = "ask",
    }
}

label_set! {
    /// What came of sending a lock after the rest of its slot.
    SentAfter {
        /// The other node has it.
        Done = "done",
        /// It could not be sent; the client is told to try again.
        Failed = "failed",
    }
}

label_set! {
    /// The mode of a namespace, as a label.
    ModeLabel {
        /// Refusals are carried out.
        Enforce = "enforce",
        /// Refusals are only counted.
        Monitor = "monitor",
    }
}

label_set! {
    /// What was said to a write of guarded data.
    GuardResult {
        /// The writer holds the lock.
        Holder = "holder",
        /// Its lease is over, and nobody was granted the lock since.
        Late = "late",
        /// Another connection of the same client holds it.
        Identity = "identity",
        /// Nobody holds it, and that is allowed.
        Unlocked = "unlocked",
        /// This client is not judged.
        Exempt = "exempt",
        /// The writer had the lock, and has it no more.
        StaleFence = "stale-fence",
        /// It never had it.
        NotOwner = "not-owner",
    }
}

label_set! {
    /// Why a write of guarded data could not be judged.
    GuardUnchecked {
        /// It may wait at Redis, and writes when nobody looks.
        Blocking = "blocking",
        /// The client has a WATCH in force that does not cover the record.
        WatchInForce = "watch-in-force",
        /// The user may not read records.
        NoRights = "no-rights",
        /// Too many keys, or a block that is too long.
        TooLong = "too-long",
        /// The command changes locks as well, or computes names of keys.
        WithLocks = "with-locks",
        /// It writes in another database than that whose locks can be read for it.
        OtherDatabase = "other-database",
        /// Its lock is in another slot of the cluster, and so perhaps on another node.
        OtherSlot = "other-slot",
        /// A script may have written it: the name is known only to its run. The script was not refused.
        ComputedNames = "computed-names",
    }
}

label_set! {
    /// The modes of all namespaces that a policy serves.
    PolicyMode {
        /// All enforce.
        Enforce = "enforce",
        /// All monitor.
        Monitor = "monitor",
        /// Some of each.
        Mixed = "mixed",
        /// Asked beside what is in force (`next`).
        Next = "next",
        /// In no namespace's chain.
        Unused = "unused",
    }
}

label_set! {
    /// What was decided about an operation.
    DecisionKind {
        /// Permitted as asked.
        Allow = "allow",
        /// Refused.
        Deny = "deny",
        /// Let through in monitor mode; enforce mode would have refused it.
        WouldDeny = "would-deny",
        /// Permitted with another TTL than asked.
        Modify = "modify",
        /// Carried out as asked in monitor mode; enforce mode would have given another TTL.
        WouldModify = "would-modify",
    }
}

label_set! {
    /// The operations that the dashboards tell apart.
    OperationLabel {
        /// Take the lock if it is free.
        Acquire = "acquire",
        /// Give the lease a new TTL or value.
        Extend = "extend",
        /// Give the lock back.
        Release = "release",
        /// Any other change, also of data that a lock guards.
        Write = "write",
        /// Take-over and inspection.
        Other = "other",
    }
}

impl From<Operation> for OperationLabel {
    fn from(operation: Operation) -> OperationLabel {
        match operation {
            Operation::Acquire => OperationLabel::Acquire,
            Operation::Extend => OperationLabel::Extend,
            Operation::Release => OperationLabel::Release,
            Operation::Write | Operation::GuardedWrite => OperationLabel::Write,
            Operation::TakeOver | Operation::Inspect => OperationLabel::Other,
        }
    }
}

label_set! {
    /// How an acquire ended.
    AcquireOutcome {
        /// The client holds the lock.
        Acquired = "acquired",
        /// Somebody else holds it; or so the client was told, because too few replicas confirmed its grant.
        Contended = "contended",
        /// The client held it without having heard so, and asked again: it was told.
        Repeated = "repeated",
        /// A policy refused it.
        Denied = "denied",
        /// The backend answered with an error, or not at all.
        Error = "error",
    }
}

label_set! {
    /// What replicas said to a grant or an extension.
    DurabilityResult {
        /// As many as must have it do.
        Enough = "enough",
        /// Fewer had it in time.
        TooFew = "too-few",
        /// The server did not say, or the connection ended first.
        Unknown = "unknown",
    }
}

label_set! {
    /// What the chain that is asked beside the one in force (`next`) said, compared with that.
    NextAnswer {
        /// What comes to the same for the client.
        Same = "same",
        /// It refuses what is permitted.
        PermitToDeny = "permit-to-deny",
        /// It permits what is refused.
        DenyToPermit = "deny-to-permit",
        /// It refuses, too, for another reason or by another policy.
        Reason = "reason",
        /// It permits, too, and wants something else, such as another TTL.
        Obligations = "obligations",
        /// A policy of one of the two did not answer.
        Fault = "fault",
    }
}

label_set! {
    /// How a release ended.
    ReleaseOutcome {
        /// The lease is over.
        Released = "released",
        /// Somebody else holds the lock, so nothing was deleted.
        NotOwner = "not-owner",
        /// Nobody held the lock.
        Absent = "absent",
        /// A policy refused it for another reason.
        Denied = "denied",
    }
}

label_set! {
    /// How an attempt to renew a lease ended.
    KeepAliveOutcome {
        /// The TTL was renewed.
        Renewed = "renewed",
        /// The lease is over or nobody's: it is not renewed again.
        Ended = "ended",
        /// Not renewed this time.
        Skipped = "skipped",
    }
}

label_set! {
    /// What became of a grant whose reply was not read.
    UndeliveredOutcome {
        /// It is marked: its client gets the lock when it asks again.
        Marked = "marked",
        /// The lease was over already.
        Over = "over",
        /// It could not be marked: the lease goes by its TTL.
        Failed = "failed",
    }
}

label_set! {
    /// Why a lock command was forwarded unjudged: in monitor mode, but for what the operator answers for.
    UnjudgedWhy {
        /// The client's ACL user may not run the judging script or not all that it needs, or in a block it is not
        /// known yet whether it may.
        NoRights = "no-rights",
        /// The server has no EVAL or no EVALSHA.
        NoScripts = "no-scripts",
        /// A command, or a condition of it, that the server does not know.
        UnknownCommand = "unknown-command",
        /// The client reads its keys with server-assisted tracking.
        Tracking = "tracking",
        /// A script that this proxy has not seen.
        UnknownScript = "unknown-script",
        /// A script that `opaque_scripts = "forward"` lets run unjudged, in any mode.
        ForwardedScript = "forwarded-script",
        /// A script or function that computes names of keys: in monitor mode, or as `computed_names = "forward"` says.
        ComputedNames = "computed-names",
        /// A key or value above what is judged.
        TooLong = "too-long",
        /// A condition on a value's digest that no one step can judge.
        Digest = "digest",
        /// A function that the operator answers for; in enforce mode too.
        TrustedFunction = "trusted-function",
    }
}

label_set! {
    /// What was found about how clients use their locks.
    Observation {
        /// A release paid for an earlier lease of its identity that had ended unreleased.
        Debt = "debt",
        /// A connection ended in order while its lease had more than the ceiling left.
        Outlived = "outlived",
        /// A connection was refused a lock that it held itself: several threads share it.
        SharedSession = "shared-session",
        /// A connection that was refused a lock released or extended it without naming an owner token.
        RefusedThenReleased = "refused-then-released",
        /// A lock was granted with a value that another client was granted within the last hour.
        SharedToken = "shared-token",
        /// A client that neither took nor tried to take a lock wanted to give it back, once more.
        HandedOver = "handed-over",
        /// A lease ran out while the connection that had taken it was open.
        RanOutConnected = "ran-out-connected",
        /// A release or an extension came of a lease that had run out.
        RanOutAlive = "ran-out-alive",
        /// Guarded data was written under a lease, on a connection or by a client under which an earlier one ran out and was
        /// not given back: where threads share connections, a late one of them writes as the holder.
        SharedGuard = "shared-guard",
        /// A lease was named in a call that could not be judged, which may have given it back.
        EndUnseen = "end-unseen",
    }
}

label_set! {
    /// Where audit records go.
    AuditSink {
        /// A file, a FIFO or a device.
        File = "file",
        /// Standard output.
        Stdout = "stdout",
    }
}

label_set! {
    /// Whether a held lock ends by itself.
    HeldTtl {
        /// It has a TTL.
        Finite = "finite",
        /// It has none.
        None = "none",
    }
}

label_set! {
    /// How a lease ended.
    HoldEnd {
        /// Its holder gave it back, or an operator ended it.
        Released = "released",
        /// Its TTL ran out.
        Expired = "expired",
    }
}

label_set! {
    /// Which kind of command a time belongs to.
    LatencyPath {
        /// Forwarded as it came.
        PassThrough = "passthrough",
        /// Judged.
        Policy = "policy",
    }
}

label_set! {
    /// Seen from the client: what came in and what went out.
    Direction {
        /// From clients.
        In = "in",
        /// To clients.
        Out = "out",
    }
}

label_set! {
    /// The state of a connection to the backend.
    ConnectionState {
        /// Being set up.
        Connecting = "connecting",
        /// Ready for commands.
        Open = "open",
    }
}

label_set! {
    /// What came of reading the password of the proxy's own connections again.
    LoginRefresh {
        /// There is a new one.
        Ok = "ok",
        /// None could be read.
        Failed = "failed",
        /// A connection that is open was not let in with it.
        Refused = "refused",
    }
}

label_set! {
    /// What came of a login as the twin of a client's user.
    TwinLogin {
        /// The server let it in.
        Ok = "ok",
        /// It did not, or there is no password.
        Failed = "failed",
        /// Afterwards the client's own user was not let in again, and its connection was closed.
        NotBack = "not-back",
    }
}

label_set! {
    /// Why the proxy's own connection to the backend had to be made again.
    ReconnectReason {
        /// Nobody listened, or no way led there.
        Refused = "refused",
        /// It was closed by the backend or the network.
        Closed = "closed",
        /// No answer in time.
        Timeout = "timeout",
        /// The answer was not what the protocol allows, or a log-in failed.
        Protocol = "protocol",
        /// The backend is a replica.
        Demoted = "demoted",
    }
}

label_set! {
    /// Who sent the bytes that could not be understood.
    Side {
        /// A client.
        Client = "client",
        /// The backend.
        Backend = "backend",
    }
}

label_set! {
    /// What was wrong with the bytes.
    ProtocolErrorKind {
        /// Not a frame of the protocol.
        Malformed = "malformed",
        /// Larger or deeper than allowed.
        Limit = "limit",
        /// A good frame in a place where none may be.
        Unexpected = "unexpected",
        /// No TLS, where TLS is spoken.
        NoTls = "no-tls",
        /// TLS, where none is spoken.
        Tls = "tls",
    }
}

label_set! {
    /// How a handshake of TLS went.
    TlsResult {
        /// TLS is spoken.
        Ok = "ok",
        /// The other end wanted a certificate and got none.
        NoCertificate = "no-certificate",
        /// Nobody knows who issued the certificate.
        UnknownCa = "unknown-ca",
        /// The certificate has ended, or has not begun.
        Expired = "expired",
        /// What came is no TLS, or none that we speak.
        Protocol = "protocol",
        /// It took too long.
        Timeout = "timeout",
        /// Anything else.
        Other = "other",
    }
}

label_set! {
    /// What a certificate is there for.
    CertificateRole {
        /// The proxy shows it.
        Own = "own",
        /// The proxy believes others by it.
        Ca = "ca",
    }
}

impl From<ErrorKind> for ProtocolErrorKind {
    fn from(kind: ErrorKind) -> ProtocolErrorKind {
        match kind {
            ErrorKind::Malformed => ProtocolErrorKind::Malformed,
            ErrorKind::Limit => ProtocolErrorKind::Limit,
        }
    }
}

label_set! {
    /// Which bounded label was full.
    OverflowLabel {
        /// More namespaces than `metrics_max_namespaces`.
        Namespace = "namespace",
        /// More policies than have a name of their own here.
        Policy = "policy",
        /// More kinds of refusals in a namespace than have a series of their own.
        Decision = "decision",
    }
}

impl Label for FaultKind {
    const ALL: &'static [FaultKind] = &FaultKind::ALL;

    fn index(self) -> usize {
        match self {
            FaultKind::Trap => 0,
            FaultKind::Timeout => 1,
            FaultKind::Fuel => 2,
            FaultKind::Memory => 3,
            FaultKind::BadReply => 4,
            FaultKind::BreakerOpen => 5,
        }
    }

    fn word(self) -> &'static str {
        FaultKind::word(self)
    }
}
