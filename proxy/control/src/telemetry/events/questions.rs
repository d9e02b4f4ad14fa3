//! The questions to a policy chain about one operation, with the answers: enough to ask another chain the same. Stored
//! only if a follower needs it ([`super::EventLog::wants_questions_of`]); owner tokens are fingerprints here too.

use std::cell::RefCell;

use bytes::Bytes;
use lockwarden_lock::decision::{
    ClientDescription, Decide, Decision, Holdings, Operation, Proofs, Question, Traits, WhoAsks,
};
use lockwarden_lock::namespace::NamespaceId;
use lockwarden_lock::token::stored_form;
use lockwarden_rules::token_class;

use super::fingerprint::{Fingerprint, Fingerprints};

/// One question with its answer. The lock, its database and the client are in the entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The command's operation on the lock.
    pub(crate) operation: Operation,
    /// The value that the command stores or proves.
    pub(crate) owner_token: Option<Fingerprint>,
    /// The form of that value.
    pub(crate) token_class: &'static str,
    /// The TTL that the command requests.
    pub(crate) ttl_ms: Option<u64>,
    /// Proofs, as far as the proxy could verify them.
    pub(crate) proofs: Proofs,
    /// Circumstances of the command.
    pub(crate) traits: Traits,
    /// The newest fencing token that the session was granted for the lock; 0 if none.
    pub(crate) fencing_token: u64,
    /// The remaining TTL of the session's own lease, ms; 0 if none.
    pub(crate) remaining_ms: u64,
    /// Acquires of the lock by the session in the last ten seconds.
    pub(crate) attempts: u32,
    /// The time that the policies got, Unix time, ms.
    pub(crate) now_ms: u64,
    /// The locks that the client holds, if the chain asked for them.
    pub(crate) holdings: Option<Box<Holdings>>,
    /// The chain's answer.
    pub(crate) answer: Decision,
}

/// Asks a chain, and records its answer.
pub struct Recorder<'a> {
    chain: &'a mut dyn Decide,
    fingerprints: &'a Fingerprints,
    asked: Vec<Asked>,
}

impl<'a> Recorder<'a> {
    pub fn new(chain: &'a mut dyn Decide, fingerprints: &'a Fingerprints) -> Recorder<'a> {
        Recorder { chain, fingerprints, asked: Vec::new() }
    }

    /// Every question so far, in order.
    pub fn into_asked(self) -> Vec<Asked> {
        self.asked
    }
}

/// Records what a chain was told about a client, except what is in the entry.
struct Noting<'a> {
    who: &'a dyn WhoAsks,
    holdings: RefCell<Option<Box<Holdings>>>,
}

impl WhoAsks for Noting<'_> {
    fn describe(&self, client: u64) -> Option<ClientDescription> {
        self.who.describe(client)
    }

    fn holdings(&self, question: &Question<'_>) -> Holdings {
        let holdings = self.who.holdings(question);
        *self.holdings.borrow_mut() = Some(Box::new(holdings.clone()));
        holdings
    }
}

impl Decide for Recorder<'_> {
    fn decide(&mut self, namespace: NamespaceId, question: &Question<'_>, who: &dyn WhoAsks) -> Decision {
        let who = Noting { who, holdings: RefCell::default() };
        let answer = self.chain.decide(namespace, question, &who);
        let token = question.owner_token.map(|token| Fingerprint {
            length: token.len(),
            ..self.fingerprints.of(&stored_form(&Bytes::copy_from_slice(token)))
        });
        self.asked.push(Asked {
            operation: question.operation,
            owner_token: token,
            token_class: token_class(question.owner_token),
            ttl_ms: question.ttl_ms.map(|asked| asked.0),
            proofs: question.proofs,
            traits: question.traits,
            fencing_token: question.fencing_token.0,
            remaining_ms: question.remaining_ms,
            attempts: question.attempts,
            now_ms: question.now.0,
            holdings: who.holdings.into_inner(),
            answer: answer.clone(),
        });
        answer
    }
}

/// The questions of a command about its lock at this place: a command asks equally many questions about each of its
/// locks, one lock after the other.
pub fn asked_about(asked: &[Asked], place: usize, locks: usize) -> Box<[Asked]> {
    let each = asked.len() / locks.max(1);
    let its = asked.get(place * each..(place + 1) * each);
    its.unwrap_or_default().into()
}
