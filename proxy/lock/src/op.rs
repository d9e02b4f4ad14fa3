//! One command on lock keys, understood: what it means for the lock, however it is spelled. Made by `classify`, judged
//! by the policies, and turned into one atomic step by `plan`.

mod command;

pub use command::{Command, LockCommand, OpaqueCommand};

use std::sync::Arc;

use bytes::Bytes;
use lockwarden_lua::{AcquireReplies, Owner, Replies, Reply, TakeReplies};
use smallvec::SmallVec;

use crate::companion::slot;
use crate::data_guard::ScriptData;
use crate::decision::Operation;
use crate::namespace::NamespaceId;
use crate::reason::Reason;
use crate::script_facts::ScriptFacts;
use crate::scripts::guard::Guard;
use crate::time::ProxyTime;
use crate::token::{OwnerToken, ValueDigest};

/// A command's arguments, its name first; slices of one buffer.
pub type Arguments = SmallVec<[Bytes; 8]>;

/// A lock key and the namespace that claims it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The namespace.
    pub namespace: NamespaceId,
    /// The key as sent.
    pub key: Bytes,
}

/// The TTL that a command requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskedTtl {
    /// None: for ever, from the application's point of view.
    None,
    /// This many milliseconds from now; zero or less ends the lease.
    For(i64),
    /// Until a point in time, Unix milliseconds on Redis's clock.
    Until(i64),
    /// What is left (`KEEPTTL`).
    Keep,
    /// This many milliseconds more than what is left. Above zero.
    Further(i64),
}

impl AskedTtl {
    /// Whether the requested TTL is already over.
    pub fn is_over(self, now: ProxyTime) -> bool {
        match self {
            AskedTtl::For(ms) => ms <= 0,
            AskedTtl::Until(at) => u64::try_from(at).map_or(true, |at| at <= now.0),
            AskedTtl::None | AskedTtl::Keep | AskedTtl::Further(_) => false,
        }
    }
}

/// The condition of an EXPIRE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpireCondition {
    /// None given.
    Always,
    /// Only if there is no TTL.
    Nx,
    /// Only if there is one.
    Xx,
    /// Only if the new one is longer.
    Gt,
    /// Only if the new one is shorter; any TTL is shorter than none.
    Lt,
    /// Only if there is one and the new one is shorter.
    XxLt,
}

impl ExpireCondition {
    /// The word that the script takes.
    pub const fn word(self) -> &'static str {
        match self {
            ExpireCondition::Always => "-",
            ExpireCondition::Nx => "NX",
            ExpireCondition::Xx => "XX",
            ExpireCondition::Gt => "GT",
            ExpireCondition::Lt => "LT",
            ExpireCondition::XxLt => "XL",
        }
    }
}

/// How an acquire's reply expresses success and failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AcquireReply {
    /// `:1` and `:0` (SETNX, MSETNX).
    Integer,
    /// `+OK` and nil (SET … NX).
    OkOrNil,
    /// nil and the current value (SET … NX GET).
    OldValue,
    /// `:1` on success, otherwise `:2` or more, the value that the counter would have had (INCR).
    Counter,
    /// As a script of the application expresses it.
    Scripted(Box<ScriptedAcquire>),
}

/// A script of the application that takes a lock if it is free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptedAcquire {
    /// Its replies.
    pub replies: AcquireReplies,
    /// The command that it amounts to: `["SET", key, value, "NX", …]`.
    pub then: Arguments,
}

/// A script of the application that takes a lock if it is free, and extends it if it is the caller's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptedTake {
    /// When the lock counts as the caller's.
    pub owner: Owner,
    /// Whether it extends its own lease by PEXPIRE; otherwise it stores the value again.
    pub by_expire: bool,
    /// Its replies.
    pub replies: TakeReplies,
}

/// How a release is spelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseSpelling {
    /// DEL: a count.
    Del,
    /// UNLINK: a count.
    Unlink,
    /// GETDEL: the value.
    GetDel,
}

/// How an extension is spelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtendSpelling {
    /// EXPIRE and its family: `:1` and `:0`.
    Expire,
    /// GETEX with a TTL: the value.
    GetEx,
    /// PERSIST: `:1` and `:0`.
    Persist,
    /// GETEX … PERSIST: the value.
    GetExPersist,
}

impl ExtendSpelling {
    /// Whether the value is the reply, so that a refusal must be an error: a value would be read as success.
    pub const fn answers_value(self) -> bool {
        matches!(self, ExtendSpelling::GetEx | ExtendSpelling::GetExPersist)
    }
}

/// A script or command of the application that compares the stored value before it acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// The value to compare with.
    pub claim: OwnerToken,
    /// When it acts.
    pub test: Test,
    /// Whether a script or a command compares.
    pub by: ComparedBy,
    /// Its replies.
    pub replies: Replies,
    /// The command that is run when the comparison holds, in a form that every server has: `["DEL", key]`, `["PEXPIRE",
    /// key, ms]`, `["SET", key, value, …]`.
    pub then: Arguments,
}

/// When a comparing command acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// The stored value is the claim. Knowing the value is a proof.
    Equal,
    /// The stored value differs (`IFNE`). That proves nothing.
    Differs,
    /// The stored value has this digest (`IFDEQ`). No script can compute it, so the value is read first, and this
    /// becomes [`Test::Equal`] to it, or [`Test::Failed`].
    Digest(ValueDigest),
    /// The stored value has another digest (`IFDNE`). Never judged: between the read and the step the value could
    /// change to one with this digest.
    OtherDigest,
    /// The value was already compared, and it differed.
    Failed,
}

/// Whether a script or a command compares, which decides the reply for a key that holds no string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparedBy {
    /// A script of the application.
    Script,
    /// A command.
    Command,
    /// `DELEX`, which has its own reply for that.
    DelEx,
}

impl Comparison {
    /// The owner token that the command names as the present one.
    pub fn names(&self) -> Option<&OwnerToken> {
        match self.test {
            Test::Equal => Some(&self.claim),
            Test::Differs | Test::Digest(_) | Test::OtherDigest | Test::Failed => None,
        }
    }

    /// Decides a comparison with a digest from the value that was just read. The step compares that same value again,
    /// so a change in between cannot make it act.
    fn resolve(&mut self, value: Option<&Bytes>) {
        let Test::Digest(wanted) = self.test else {
            return;
        };
        self.test = Test::Failed;
        if let Some(value) = value.filter(|value| ValueDigest::of(value) == wanted) {
            self.claim = OwnerToken::new(value.clone());
            self.test = Test::Equal;
        }
    }

    /// Whether its reply for "not yours" can be given although the values were equal. A reply that shows the stored
    /// value cannot: the caller would read its own value.
    pub fn has_plain_no(&self) -> bool {
        is_plain(&self.replies.different)
    }
}

impl ScriptedTake {
    /// Whether its reply for "not yours" can be given without reading the lock.
    pub fn has_plain_no(&self) -> bool {
        is_plain(&self.replies.different)
    }
}

fn is_plain(reply: &Reply) -> bool {
    !matches!(reply, Reply::Stored | Reply::Left(_) | Reply::CommandResult)
}

/// What a command means for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockOp {
    /// Take the lock if it is free.
    Acquire {
        /// The lock.
        target: Target,
        /// What to store.
        value: Bytes,
        /// The TTL asked for.
        ttl: AskedTtl,
        /// The form of the reply.
        reply: AcquireReply,
    },
    /// Take the lock if it is free, extend it if it is the caller's: a script of the application.
    Take {
        /// The lock.
        target: Target,
        /// What to store.
        value: Bytes,
        /// The TTL asked for, in both cases.
        ttl: AskedTtl,
        /// How the script does it.
        script: Box<ScriptedTake>,
    },
    /// Take several locks, all or none.
    AcquireAll {
        /// The locks and what to store in each.
        locks: Vec<(Target, Bytes)>,
        /// The TTL asked for.
        ttl: AskedTtl,
    },
    /// Store a value: an acquire if the lock is free, an extension if it is the holder's.
    Store {
        /// The lock.
        target: Target,
        /// What to store.
        value: Bytes,
        /// The TTL asked for.
        ttl: AskedTtl,
        /// XX: only if the key exists.
        only_if_exists: bool,
        /// GETSET, `SET … GET`: reply with the old value. This is the take-over idiom.
        wants_old: bool,
        /// `SET … IFEQ`, CAS: the value is compared first.
        comparison: Option<Box<Comparison>>,
    },
    /// Give the current lease a new TTL.
    Extend {
        /// The lock.
        target: Target,
        /// The TTL asked for; `None` is PERSIST.
        ttl: AskedTtl,
        /// The condition.
        condition: ExpireCondition,
        /// How it is spelled.
        spelling: ExtendSpelling,
        /// The comparison of a script that compares first.
        comparison: Option<Box<Comparison>>,
    },
    /// Give the lock back.
    Release {
        /// The lock.
        target: Target,
        /// How it is spelled.
        spelling: ReleaseSpelling,
        /// The comparison of a script that compares first.
        comparison: Option<Box<Comparison>>,
    },
    /// DEL or UNLINK of several keys.
    ReleaseMany {
        /// The locks among them, each once.
        locks: Vec<Target>,
        /// The others.
        others: Vec<Bytes>,
        /// UNLINK in place of DEL.
        unlink: bool,
    },
    /// A script with unknown effect. It runs unchanged, and in the same step its effects on the locks among its keys
    /// are examined.
    Wrapped {
        /// The locks that it names, each once, with the place of each among its keys and `named`.
        locks: Vec<(Target, KeyPlace)>,
        /// The script.
        script: Arc<ScriptFacts>,
        /// How many keys it has.
        keys: usize,
        /// Keys that it names besides those and may write.
        named: Vec<Bytes>,
        /// What else it may write.
        reach: Reach,
        /// Guarded data that it may write, which is judged in its step.
        data: Vec<ScriptData>,
    },
}

/// A place among the keys of a script, from 1 as in Lua.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyPlace(pub usize);

impl KeyPlace {
    /// For locks that a script may touch without declaring them, because its operator allows it. Which ones these are
    /// is only known when it runs; the placeholder for them contains the form of their names.
    pub const ANY: KeyPlace = KeyPlace(0);
}

/// What a script may write besides the keys that it declares and those that its text names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Nothing.
    Nothing,
    /// Keys that are no locks.
    Others,
    /// Keys with computed names, but no lock: a guard checks each.
    Guarded(Arc<Guard>),
    /// The same, and locks that its operator allows.
    Trusted(Arc<Guard>),
    /// Any key with a computed name.
    Anything,
}

/// Why a change has no lock meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpaqueKind {
    /// A command of another kind, or of another data type.
    Command,
    /// A script or function with unknown effect.
    Script,
    /// A command that names one of the proxy's own keys.
    Companion,
    /// A command that would write one of them that is about no particular lock, and so affects all: refused even in
    /// monitor mode.
    Own,
}

impl OpaqueKind {
    /// The reason that a refusal gives.
    pub const fn reason(self) -> Reason {
        match self {
            OpaqueKind::Command | OpaqueKind::Companion | OpaqueKind::Own => Reason::OpaqueWrite,
            OpaqueKind::Script => Reason::UnsafeScript,
        }
    }
}

impl LockOp {
    /// The lock, or the first of several.
    pub fn target(&self) -> &Target {
        match self {
            LockOp::Acquire { target, .. }
            | LockOp::Take { target, .. }
            | LockOp::Store { target, .. }
            | LockOp::Extend { target, .. }
            | LockOp::Release { target, .. } => target,
            LockOp::AcquireAll { locks, .. } => &locks[0].0,
            LockOp::Wrapped { locks, .. } => &locks[0].0,
            LockOp::ReleaseMany { locks, .. } => &locks[0],
        }
    }

    /// Every lock that the command names.
    pub fn targets(&self) -> SmallVec<[&Target; 1]> {
        match self {
            LockOp::AcquireAll { locks, .. } => locks.iter().map(|(target, _)| target).collect(),
            LockOp::ReleaseMany { locks, .. } => locks.iter().collect(),
            LockOp::Wrapped { locks, .. } => locks.iter().map(|(target, _)| target).collect(),
            LockOp::Acquire { target, .. }
            | LockOp::Take { target, .. }
            | LockOp::Store { target, .. }
            | LockOp::Extend { target, .. }
            | LockOp::Release { target, .. } => SmallVec::from_slice(&[target]),
        }
    }

    /// Removes keys that a script's text names in other slots than its lock's, if they are no locks: because of them a
    /// cluster would refuse the whole script. They then count as computed, so none of them is restored.
    pub fn keep_to_one_slot(&mut self) {
        let LockOp::Wrapped { locks, keys, named, reach, .. } = self else {
            return;
        };
        let Some(home) = locks.iter().find(|(_, place)| *place != KeyPlace::ANY).map(|(lock, _)| slot(&lock.key))
        else {
            return;
        };
        for at in (0..named.len()).rev() {
            let place = *keys + at + 1;
            if slot(&named[at]) == home || locks.iter().any(|(_, lock)| lock.0 == place) {
                continue;
            }
            named.remove(at);
            locks.iter_mut().filter(|(_, lock)| lock.0 > place).for_each(|(_, lock)| lock.0 -= 1);
            if *reach == Reach::Nothing {
                *reach = Reach::Others;
            }
        }
    }

    /// The script with unknown effect, and how many keys it has.
    pub fn script(&self) -> Option<(&ScriptFacts, usize)> {
        match self {
            LockOp::Wrapped { script, keys, .. } => Some((script, *keys)),
            LockOp::Acquire { .. }
            | LockOp::Take { .. }
            | LockOp::AcquireAll { .. }
            | LockOp::Store { .. }
            | LockOp::Extend { .. }
            | LockOp::Release { .. }
            | LockOp::ReleaseMany { .. } => None,
        }
    }

    /// Guarded data that a script may write, which is judged in its step.
    pub fn data(&self) -> &[ScriptData] {
        match self {
            LockOp::Wrapped { data, .. } => data,
            LockOp::Acquire { .. }
            | LockOp::Take { .. }
            | LockOp::AcquireAll { .. }
            | LockOp::Store { .. }
            | LockOp::Extend { .. }
            | LockOp::Release { .. }
            | LockOp::ReleaseMany { .. } => &[],
        }
    }

    /// The TTL that it requests. A script with unknown effect is assumed to request one that only it knows.
    pub fn asked_ttl(&self) -> AskedTtl {
        match self {
            LockOp::Acquire { ttl, .. }
            | LockOp::Take { ttl, .. }
            | LockOp::AcquireAll { ttl, .. }
            | LockOp::Store { ttl, .. }
            | LockOp::Extend { ttl, .. } => *ttl,
            LockOp::Release { .. } | LockOp::ReleaseMany { .. } => AskedTtl::None,
            LockOp::Wrapped { .. } => AskedTtl::Keep,
        }
    }

    /// Whether it does nothing in some states of the lock, in which a plain command would do something.
    pub fn is_conditional(&self) -> bool {
        match self {
            LockOp::Acquire { .. } | LockOp::Take { .. } | LockOp::AcquireAll { .. } => true,
            LockOp::Store { only_if_exists, .. } => *only_if_exists,
            LockOp::Extend { condition, .. } => *condition != ExpireCondition::Always,
            LockOp::Release { .. } | LockOp::ReleaseMany { .. } => false,
            // Only the script knows.
            LockOp::Wrapped { .. } => true,
        }
    }

    /// Whether the application sent a script.
    pub fn is_scripted(&self) -> bool {
        match self {
            LockOp::Take { .. } | LockOp::Wrapped { .. } => true,
            LockOp::Acquire { reply, .. } => matches!(reply, AcquireReply::Scripted(_)),
            LockOp::AcquireAll { .. }
            | LockOp::Store { .. }
            | LockOp::Extend { .. }
            | LockOp::Release { .. }
            | LockOp::ReleaseMany { .. } => self.comparison().is_some_and(|with| with.by == ComparedBy::Script),
        }
    }

    /// The comparison before anything is done.
    pub fn comparison(&self) -> Option<&Comparison> {
        match self {
            LockOp::Store { comparison, .. }
            | LockOp::Extend { comparison, .. }
            | LockOp::Release { comparison, .. } => comparison.as_deref(),
            LockOp::Acquire { .. }
            | LockOp::Take { .. }
            | LockOp::AcquireAll { .. }
            | LockOp::ReleaseMany { .. }
            | LockOp::Wrapped { .. } => None,
        }
    }

    /// Decides a comparison with a digest from the value that was just read.
    pub fn resolve_digest(&mut self, value: Option<&Bytes>) {
        match self {
            LockOp::Store { comparison, .. }
            | LockOp::Extend { comparison, .. }
            | LockOp::Release { comparison, .. } => {
                if let Some(comparison) = comparison {
                    comparison.resolve(value);
                }
            }
            LockOp::Acquire { .. }
            | LockOp::Take { .. }
            | LockOp::AcquireAll { .. }
            | LockOp::ReleaseMany { .. }
            | LockOp::Wrapped { .. } => {}
        }
    }

    /// The value that names an owner in the lock with this place: the value to be stored, or the one to compare with.
    pub fn owner_token(&self, index: usize) -> Option<&Bytes> {
        fn named(comparison: &Option<Box<Comparison>>) -> Option<&Bytes> {
            let named = comparison.as_deref().and_then(Comparison::names);
            named.map(OwnerToken::expose)
        }
        match self {
            LockOp::Acquire { value, .. } | LockOp::Take { value, .. } => Some(value),
            LockOp::AcquireAll { locks, .. } => locks.get(index).map(|(_, value)| value),
            LockOp::Store { value, comparison, .. } => named(comparison).or(Some(value)),
            LockOp::Extend { comparison, .. } | LockOp::Release { comparison, .. } => named(comparison),
            LockOp::ReleaseMany { .. } | LockOp::Wrapped { .. } => None,
        }
    }

    /// The operation to ask the policies about, and the word for records and metrics. A TTL that is over at once is in
    /// fact a release; `now` is the proxy's clock, while the script decides by Redis's.
    pub fn operation(&self, now: ProxyTime) -> Operation {
        match self {
            LockOp::Acquire { .. } | LockOp::Take { .. } | LockOp::AcquireAll { .. } => Operation::Acquire,
            LockOp::Store { wants_old: true, only_if_exists: false, .. }
            | LockOp::Store { wants_old: true, comparison: None, .. } => Operation::TakeOver,
            LockOp::Extend { ttl, .. } if ttl.is_over(now) => Operation::Release,
            LockOp::Store { only_if_exists: true, .. } | LockOp::Extend { .. } => Operation::Extend,
            LockOp::Store { .. } => Operation::Acquire,
            LockOp::Release { .. } | LockOp::ReleaseMany { .. } => Operation::Release,
            LockOp::Wrapped { .. } => Operation::Write,
        }
    }

    /// Whether it releases its locks, or may: for a script with unknown effect, if its text contains a word for that.
    pub fn may_release(&self, now: ProxyTime) -> bool {
        match self {
            LockOp::Wrapped { script, .. } => script.may_release(),
            op => op.operation(now) == Operation::Release,
        }
    }
}
