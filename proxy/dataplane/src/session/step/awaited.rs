//! What a session waits for: why a reply is looked at, and the commands that the proxy has replaced by its own until
//! the replies are there.

use std::sync::Arc;

use bytes::Bytes;
use lockwarden_control::ruleset::Active;
use lockwarden_control::telemetry::events::{Asked, Took};
use lockwarden_control::telemetry::vocabulary::UnjudgedWhy;
use lockwarden_discovery::sighting::Doings;
use lockwarden_lock::classify::ComputedScript;
use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::op::{Arguments, Command, LockCommand, Target};
use lockwarden_lock::plan::{GaveBack, Needs};
use lockwarden_lock::rules::Durability;
use lockwarden_lock::script_facts::Envelope;
use lockwarden_lock::settle::Permitted;
use lockwarden_lock::token::Process;
use lockwarden_resp::Protocol;
use smallvec::SmallVec;

use crate::backend::profile::Login;
use crate::registry::renewals::KeptLease;
use crate::session::guarded_writes::kept::GuardedWrite;

/// Why a reply is looked at.
#[derive(Debug)]
pub enum Look {
    /// The answer that the command being handled waits for.
    Answer,
    /// The number of replicas that have what was written before.
    Confirmed,
    /// It says whether the connection's state changed.
    State(Box<StateChange>),
    /// The grant under which a value is about to be read.
    ReadGrant,
    /// The beginning of a lock's record, read ahead of a write that the lock guards: the last of them carries the
    /// write.
    Head(Option<Box<GuardedWrite>>),
    /// The values of locks that were read: their keys and places in the reply.
    ReadValue(Box<ReadKeys>),
    /// Which of these scripts the server has: a client that hears of a script that this proxy does not know would
    /// never send its text.
    Scripts(Box<Arguments>),
    /// Redis's reply to a command that is queued in a block in place of the client's.
    Queued(Box<QueuedStep>),
    /// Whether the user has the rights that a step takes.
    Rights(Box<RightsQuestion>),
    /// A lease of this session was renewed over its own connection.
    Renewed(Box<KeptLease>),
    /// A command of a block that is queued as the twin of the client's user.
    InTwinsBlock,
    /// It says whether the server is a replica.
    Role,
    /// It may name replicas, from which the client then reads.
    Replicas,
    /// What a command did to keys that may be locks although no namespace has them.
    Sighted(Box<Sighted>),
    /// Whether Redis knows a script or command that this proxy does not; if not, nothing was run.
    Unknown(Box<(Command, UnjudgedWhy, Arc<Active>)>),
    /// It says whether an undelivered grant was marked; the grant's place in the list of those.
    Marked(usize),
    /// It says which leases were marked ahead of a call that cannot be judged.
    Unwitnessed(Box<[Target]>),
    /// The proxy's own clean-up; the reply is dropped.
    Own,
}

/// A command on keys that may be locks although no namespace has them, and what it does to them, as far as that is
/// known without its reply.
#[derive(Debug)]
pub struct Sighted {
    pub command: Box<LockCommand>,
    pub(crate) db: u32,
    pub(crate) doings: Doings,
}

/// Locks whose values are being read, and their places in the reply.
pub(crate) type ReadKeys = SmallVec<[(DbKey, usize); 1]>;

/// A change that takes effect when its reply is no error.
#[derive(Clone, Debug)]
pub enum StateChange {
    /// `SELECT`.
    Select(u32),
    /// `AUTH` as this user.
    Auth(Login),
    /// `HELLO`, with what it says.
    Hello { protocol: Option<Protocol>, login: Option<Login>, name: Option<Bytes> },
    /// `CLIENT SETNAME`.
    Name(Bytes),
    /// `CLIENT TRACKING`.
    Tracking(Tracking),
    /// `MULTI`; an error means that there is no block after all.
    Multi,
    /// `DISCARD` or `UNWATCH`; an error means that Redis goes on with what should have ended.
    Ended,
    /// A login as the twin of the client's user.
    Twin,
    /// A login as the client's own user after that.
    OwnAgain,
    /// `RESET`.
    Reset,
    /// `MONITOR`.
    Monitor,
    /// `SCRIPT LOAD` of this text.
    Loaded(Bytes),
    /// `FUNCTION LOAD` and whatever else changes functions.
    Functions,
    /// A subscription inside a transaction.
    Subscribed,
}

/// `CLIENT TRACKING`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracking {
    Off,
    /// Redis sends invalidations, but does not track which keys are read (`BCAST`).
    Broadcast,
    /// Redis tracks every read.
    Reads,
}

/// A step that is under way: what is needed when its reply is there.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) permitted: Permitted,
    /// What the policies were asked, where questions are kept.
    pub(crate) asked: Vec<Asked>,
    /// How long it has taken so far.
    pub(crate) took: Took,
    /// The rights that the step checks first, if they are not known to suffice.
    pub(crate) unchecked: Option<Needs>,
    /// The process that this client speaks for, if that is another process of the same job.
    pub(crate) speaks_for: Option<Process>,
    /// The process that Redis was told when the step was planned: more may be known when the reply comes.
    pub(crate) told: Process,
    /// Whether replicas confirmed it, if they were asked.
    pub(crate) confirmation: Option<Confirmation>,
}

/// How replicas answered for a step.
#[derive(Debug)]
pub(crate) enum Confirmation {
    /// At least as many as required have it.
    Enough,
    /// Fewer have it, within the time allowed: what became of the grants, by their places among the locks.
    TooFew { wanted: Durability, gave_back: Vec<(usize, GaveBack)> },
}

/// A script behind a guard, on its way.
#[derive(Debug)]
pub(crate) struct Guarded {
    pub(crate) script: ComputedScript,
    pub(crate) envelope: Envelope,
}

/// Which part of a step was sent to Redis to be queued in a block.
#[derive(Clone, Copy, Debug)]
pub enum Queued {
    /// The command ahead of it.
    Guard,
    /// The step itself.
    Step,
}

/// What is needed to word Redis's reply to it for the client.
#[derive(Debug)]
pub struct QueuedStep {
    pub what: Queued,
    /// The application's command.
    pub(crate) command: &'static str,
    /// The namespace under which rights are remembered.
    pub(crate) namespace: Arc<str>,
    pub(crate) needs: Needs,
}

impl QueuedStep {
    /// The look for the reply to a lock command's step that is queued.
    pub fn look(what: Queued, command: &LockCommand, active: &Active) -> Look {
        Look::Queued(Box::new(QueuedStep {
            what,
            command: command.name,
            namespace: active.namespace(command.op.target().namespace).name.clone(),
            needs: Needs::of(command),
        }))
    }
}

/// A question about the rights that a step takes, to be asked behind a block.
#[derive(Debug)]
pub struct RightsQuestion {
    pub user: Bytes,
    pub(crate) namespace: Arc<str>,
    /// A lock that the question is asked for.
    pub(crate) key: Bytes,
    pub(crate) needs: Needs,
}
