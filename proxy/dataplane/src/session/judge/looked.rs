//! The possible results of the look at a command before it is judged.

use bytes::Bytes;
use lockwarden_control::clock::Moment;
use lockwarden_control::telemetry::vocabulary::UnjudgedWhy;
use lockwarden_lock::outcome::NothingRun;
use lockwarden_lock::settle::Refused;

use crate::backend::rights::Known;

/// The result.
pub(crate) enum Looked {
    /// The command can be judged; the time that the judgement takes begins here.
    Judge { begun: Moment, rights: Known },
    /// It is forwarded: the server decides what it is.
    Forward(UnjudgedWhy),
    /// It touches a key of the proxy's own, or must be recorded and cannot be.
    Refuse(Box<Refused>),
    /// Redis runs no scripts for this user.
    TurnedAway(NothingRun),
    /// Redis's error for the text of its script.
    Wrong(String),
    /// It compares with a digest that no value has.
    NoDigest,
    /// It compares with a digest, and the value could not be read.
    UnreadableDigest(Bytes),
    /// Its client was told.
    Told,
}
