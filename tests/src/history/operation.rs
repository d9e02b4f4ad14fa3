//! The operations on locks in a run, the clients that died, and the faults meanwhile. It holds what was
//! written down and judges nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use super::clock::At;

/// What a client requested about a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// To have it for so long, if it is free.
    Acquire(Duration),
    /// To have it for so long from now on, if it is the client's.
    Extend(Duration),
    /// To give it back, if it is the client's.
    Release,
}

/// The reply. Without any reply there is no answer: the request may have been carried out, or may still be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Done.
    Yes,
    /// Not done, and nothing was changed.
    No,
}

/// One request about a lock, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Which client; one that was started again after its death is another one.
    pub client: u32,
    /// Which lock.
    pub lock: String,
    /// What it requested.
    pub action: Action,
    /// The words of the request.
    pub words: String,
    /// Whether the request, or its connection, proves that the lock is the client's, if it is. So a refusal
    /// means that it was not.
    pub proves: bool,
    /// When the request was sent, or a moment before.
    pub sent: At,
    /// When the answer was read, or a moment after, and what it was.
    pub answered: Option<(At, Answer)>,
    /// Of a grant: its fencing token, if the client asked for it.
    pub fence: Option<u64>,
}

impl Operation {
    /// When the client heard that it was done.
    pub fn done(&self) -> Option<At> {
        match self.answered {
            Some((at, Answer::Yes)) => Some(at),
            Some((_, Answer::No)) | None => None,
        }
    }

    /// When the client heard that it was not done.
    pub fn refused(&self) -> Option<At> {
        match self.answered {
            Some((at, Answer::No)) => Some(at),
            Some((_, Answer::Yes)) | None => None,
        }
    }

    pub(super) fn is_acquire(&self) -> bool {
        matches!(self.action, Action::Acquire(_))
    }
}

/// A write of guarded data that was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The lock that guards the data.
    pub lock: String,
    /// The fencing token of the lease under which the client wrote.
    pub fence: u64,
    /// When it was sent, or a moment before.
    pub sent: At,
    /// When the client heard that it was done.
    pub done: At,
}

/// Something that went wrong for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What, in words.
    pub words: String,
    /// When it began.
    pub began: At,
    /// When it was over; `None`: never.
    pub ended: Option<At>,
}

/// Everything that is known of a run.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// In the order in which they were sent.
    pub operations: Vec<Operation>,
    /// Writes of guarded data.
    pub writes: Vec<Write>,
    /// When a client was about to be killed: it holds nothing from then on.
    pub deaths: BTreeMap<u32, At>,
    /// What went wrong.
    pub troubles: Vec<Trouble>,
    /// Error replies by their first word; nothing follows from them.
    pub errors: BTreeMap<String, usize>,
}

impl History {
    /// Puts the operations into the order in which they were sent.
    pub fn sorts(&mut self) {
        self.operations.sort_by_key(|operation| (operation.sent, operation.client));
        self.troubles.sort_by_key(|trouble| trouble.began);
    }

    /// How many acquires were answered with a lock.
    pub fn grants(&self) -> usize {
        self.operations.iter().filter(|operation| operation.is_acquire() && operation.done().is_some()).count()
    }

    /// How many requests were never answered.
    pub fn unknown(&self) -> usize {
        let mut operations = self.operations.iter();
        operations.by_ref().filter(|one| one.answered.is_none()).count()
    }
}
