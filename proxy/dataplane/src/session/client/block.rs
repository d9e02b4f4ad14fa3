//! A MULTI block while it is queued. What becomes of it is in `transaction`.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use lockwarden_control::ruleset::Active;
use lockwarden_lock::administration::Flush;
use lockwarden_lock::evidence::DbKey;
use lockwarden_lock::plan::Plan;
use lockwarden_lock::table::Listing;
use lockwarden_lock::token::Grant;

use crate::session::guarded_writes::kept::GuardedBlock;
use crate::session::step::awaited::{Guarded, InFlight, RightsQuestion, StateChange};

/// What stands at one place of a MULTI block, where that matters.
#[derive(Debug)]
pub(crate) enum Place {
    /// A lock command, replaced by its script, and the configuration that it was judged under: until EXEC another one
    /// may be in force, with other namespaces in the same places.
    Step(Box<InFlight>, Arc<Active>),
    /// A script that may compute the name of a lock, behind a guard.
    Guarded(Box<Guarded>, Arc<Active>),
    /// A FLUSH, replaced by its script.
    Flush(Box<Flush>, Arc<Active>),
    /// A change of the connection's state.
    Change(StateChange),
    /// Names of keys.
    Listing(Listing),
    /// An error that Redis would give, in place of a command that is not sent.
    Error(String),
    /// `ACL WHOAMI`, where the twin of this user asks.
    User(Bytes),
    /// A command of the proxy's own ahead of a step, of which the client does not know.
    Guard,
}

/// Questions that are asked behind one block.
const MAX_QUESTIONS: usize = 16;

/// A MULTI block that is being queued.
#[derive(Debug, Default)]
pub(crate) struct Block {
    /// Commands that Redis was given to queue.
    pub(crate) queued: usize,
    /// Those to look at once the block was executed, by their place.
    pub(crate) places: Vec<(usize, Place)>,
    /// Names drawn for leases that earlier commands of the block may take.
    pub(crate) grants: HashMap<DbKey, Vec<Grant>>,
    /// The database that a SELECT inside the block switches to.
    pub(crate) db: Option<u32>,
    /// The first error at queue time that Redis does not know of; empty where it says itself what that was.
    pub(crate) spoiled: Option<String>,
    /// Steps of the proxy's own that follow when the block is over.
    pub(crate) afterwards: Vec<Plan>,
    /// Writes of guarded data in it.
    pub(crate) guarded: GuardedBlock,
    /// What is to be found out for the next block.
    pub(crate) questions: Vec<RightsQuestion>,
}

/// Steps that may follow a block; what is refused in it beyond that changes no keep-alive.
pub(crate) const MAX_AFTERWARDS: usize = 64;

impl Block {
    /// Redis was given one more command to queue, whose reply has to be looked at.
    pub(crate) fn hold(&mut self, place: Place) {
        self.places.push((self.queued, place));
        self.queued += 1;
    }

    /// The block will not be executed; the first reason counts.
    pub(crate) fn spoil(&mut self, text: &str) {
        self.spoiled.get_or_insert_with(|| text.to_owned());
    }

    /// Asks for these rights when the block is over.
    pub(crate) fn wonder(&mut self, question: RightsQuestion) {
        let is_it = |known: &RightsQuestion| {
            known.needs == question.needs && Arc::ptr_eq(&known.namespace, &question.namespace)
        };
        if self.questions.len() < MAX_QUESTIONS && !self.questions.iter().any(is_it) {
            self.questions.push(question);
        }
    }
}
