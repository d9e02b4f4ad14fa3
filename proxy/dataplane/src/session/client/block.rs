//! A MULTI block while it is queued. What happens to it then is in `transaction`.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use lockwarden_control::ruleset::Active;
use lockwarden_lock::administration::Flush;
use lockwarden_lock::db_key::DbKey;
use lockwarden_lock::plan::Plan;
use lockwarden_lock::table::Listing;
use lockwarden_lock::token::Grant;

use crate::session::guarded_writes::kept::GuardedBlock;
use crate::session::step::awaited::{Guarded, InFlight, RightsQuestion, StateChange};

/// What is at one place of a MULTI block, if that matters.
#[derive(Debug)]
pub(crate) enum Place {
    /// A lock command, replaced by its script, and the configuration that it was judged under: before EXEC another
    /// one may come into force, with other namespaces in the same places.
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
    /// The commands to look at once the block was executed, by their place.
    pub(crate) places: Vec<(usize, Place)>,
    /// Names drawn for leases that earlier commands of the block may take.
    pub(crate) grants: HashMap<DbKey, Vec<Grant>>,
    /// The database that a SELECT inside the block switches to.
    pub(crate) db: Option<u32>,
    /// The first error at queue time that Redis does not know of; empty if Redis itself gave the error.
    pub(crate) spoiled: Option<String>,
    /// The proxy's own steps that are sent when the block is over.
    pub(crate) afterwards: Vec<Plan>,
    /// Writes of guarded data in it.
    pub(crate) guarded: GuardedBlock,
    /// What is to be found out for the next block.
    pub(crate) questions: Vec<RightsQuestion>,
}

/// The most steps that may follow a block; a refusal in it beyond that does not change keep-alive.
pub(crate) const MAX_AFTERWARDS: usize = 64;

impl Block {
    /// Redis was sent one more command to queue, whose reply has to be looked at.
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
