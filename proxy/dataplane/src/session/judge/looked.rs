//! What a look at a command before it is judged can show.

use bytes::Bytes;
use lockwarden_control::clock::Moment;
use lockwarden_control::telemetry::vocabulary::UnjudgedWhy;
use lockwarden_lock::outcome::NothingRun;
use lockwarden_lock::settle::Refused;

use crate::backend::rights::Known;

/// What it has shown.
pub(crate) enum Looked {
    /// It can be judged; the time that is taken for it begins here.
    Judge { begun: Moment, rights: Known },
    /// It is for the server to say what it makes of it.
    Forward(UnjudgedWhy),
    /// It touches a key of the proxy's own, or must be recorded and cannot be.
    Refuse(Box<Refused>),
    /// Redis runs no scripts for this user.
    TurnedAway(NothingRun),
    /// What Redis would say to the text of its script.
    Wrong(String),
    /// It compares with a digest that nothing has.
    NoDigest,
    /// It compares with a digest, and the value could not be read.
    UnreadableDigest(Bytes),
    /// Its client was told.
    Told,
}
