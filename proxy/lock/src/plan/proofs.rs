//! What a step is told about proofs: which count by the policies, and what this connection has to
//! show. Whatever can be told on this side already does not count is left out; the rest is compared
//! with Redis inside the script.

use bytes::Bytes;
use smallvec::SmallVec;

use crate::decision::{Obligations, Proofs, TakeOverRule};
use crate::evidence::{Facts, Seen};
use crate::op::{Comparison, Test};
use crate::plan::Who;
use crate::rules::Doubt;
use crate::settle::Allowed;
use crate::token::{OwnerToken, StoredToken};

/// A value that a command carries.
pub(super) enum Claim {
    None,
    /// It is to be stored; the same distinctive value proves the holder.
    Stored(OwnerToken),
    /// The same by a command that means a lock that is there: XX, KEEPTTL.
    Updated(OwnerToken),
    /// The command compares it itself.
    Compared(OwnerToken),
    /// A script may carry it among its arguments: that is found out when it has run.
    Scripted,
    /// The command goes on where another value is stored; what it stores itself may prove.
    Differing(OwnerToken, Option<OwnerToken>),
    /// The command's comparison has failed already.
    Failed,
}

impl Claim {
    /// Of a command that stores nothing, and may compare.
    pub(super) fn of_maybe(comparison: Option<&Comparison>) -> Claim {
        comparison.map_or(Claim::None, |comparison| Claim::of(comparison, None))
    }

    /// What a comparison says of whose the lock is. `stored` is what the command would store.
    pub(super) fn of(comparison: &Comparison, stored: Option<&Bytes>) -> Claim {
        let claim = comparison.claim.clone();
        match comparison.test {
            Test::Equal => Claim::Compared(claim),
            Test::Differs => Claim::Differing(claim, stored.cloned().map(OwnerToken::new)),
            // A digest was judged before, or the command was not permitted at all.
            Test::Digest(_) | Test::OtherDigest | Test::Failed => Claim::Failed,
        }
    }
}

/// The arguments about proofs, as far as they can be told from this side.
pub(super) struct ProofArguments {
    pub(super) flags: SmallVec<[u8; 16]>,
    pub(super) own: SmallVec<[u8; 16]>,
    pub(super) claim: StoredToken,
    pub(super) seen_grant: SmallVec<[u8; 16]>,
    pub(super) seen: StoredToken,
}

impl ProofArguments {
    pub(super) fn of(allowed: &Allowed, who: &Who, claim: &Claim, monitor: bool) -> ProofArguments {
        ProofArguments::under(&allowed.obligations, allowed, who, claim, monitor)
    }

    /// For one thing that a script may do.
    pub(super) fn of_script(obligations: &Obligations, allowed: &Allowed, who: &Who, monitor: bool) -> ProofArguments {
        ProofArguments::under(obligations, allowed, who, &Claim::Scripted, monitor)
    }

    fn under(obligations: &Obligations, allowed: &Allowed, who: &Who, claim: &Claim, monitor: bool) -> ProofArguments {
        let (facts, required) = (&allowed.lock.facts, obligations.require);
        let counts = |proof| required.is_some_and(|required| required.contains(proof));
        let own = facts.own.as_ref();
        let mut flags = Flags::default();
        flags.set(monitor, b'm');
        flags.set(required.is_some(), b'r');
        flags.set(counts(Proofs::SESSION), b's');
        let rules = &allowed.rules;
        let believes = rules.doubt == Doubt::Believe;
        // An identity that still waits for its process may become distinctive, so it is told as
        // well.
        let by_identity = counts(Proofs::IDENTITY) && (believes || who.may_be_distinctive(rules));
        flags.set(by_identity, b'i');
        flags.set(believes, b'b');
        flags.set(by_identity && who.is_distinctive(rules), b'D');
        flags.set(by_identity && who.may_ask_back, b'p');
        flags.set(obligations.current_fence_only, b'f');
        flags.set(own.is_some_and(|own| own.lapsed.is_some()), b'l');
        // A grant that was only drawn in this block may never have been made, and one whose time
        // still runs was given back by other means: that it is not current does not make its
        // client late.
        let only_queued = own.is_none() && !facts.queued.is_empty();
        flags.set(only_queued || facts.own_runs, b'n');
        let names_none = matches!(claim, Claim::None | Claim::Scripted);
        flags.set(believes && names_none && facts.refused_since, b'B');
        let claim = flags.claim(claim, facts, counts(Proofs::TOKEN));
        let seen = facts.seen.as_ref().filter(|_| counts(Proofs::OBSERVED));
        let seen = seen.and_then(|seen| flags.seen(seen, obligations.take_over));
        let (seen_grant, seen) = seen.unwrap_or_default();
        let mut grants = SmallVec::new();
        for grant in own.map(|own| &own.grant).into_iter().chain(&facts.queued) {
            grants.extend_from_slice(&grant.0);
        }
        ProofArguments { flags: flags.0, own: grants, claim, seen_grant, seen }
    }
}

/// What a script is told in single letters; the contract on top of each script that takes them says what they mean.
#[derive(Default)]
struct Flags(SmallVec<[u8; 16]>);

impl Flags {
    fn set(&mut self, condition: bool, letter: u8) {
        if condition {
            self.0.push(letter);
        }
    }

    /// Tells of a claim; returns what the stored value is compared with.
    fn claim(&mut self, claim: &Claim, facts: &Facts, counts: bool) -> StoredToken {
        // What may prove, whether Redis's value is to be equal to it, and what is compared.
        let (token, compared, operand) = match claim {
            Claim::None | Claim::Scripted | Claim::Failed => (None, false, None),
            Claim::Stored(token) | Claim::Updated(token) => (Some(token), false, Some(token)),
            Claim::Compared(token) => (Some(token), true, Some(token)),
            Claim::Differing(from, stored) => (stored.as_ref(), false, Some(from)),
        };
        let differing = matches!(claim, Claim::Differing(..));
        let failed = matches!(claim, Claim::Failed);
        self.set(compared || differing || failed, b'c');
        self.set(differing, b'u');
        self.set(failed, b'z');
        self.set(matches!(claim, Claim::Scripted) && counts, b't');
        self.set(token.is_none() && !failed, b'k');
        let stored = token.map(OwnerToken::stored_form).unwrap_or_default();
        if let Some(token) = token.filter(|_| counts) {
            let distinctive = token.is_distinctive();
            self.set(distinctive || compared, b't');
            // A value that anybody may use names nobody where it was this connection's own until its
            // lease ended, or where this connection lost with it against another client.
            let own = facts.own.as_ref();
            let was_own = own.is_some_and(|own| own.stored == stored);
            self.set(!distinctive && was_own, b'v');
            self.set(!distinctive && facts.lost_with(token), b'q');
        }
        let stores = match claim {
            Claim::Stored(_) | Claim::Updated(_) | Claim::Differing(_, Some(_)) => true,
            Claim::Scripted => true,
            Claim::None | Claim::Compared(_) | Claim::Differing(_, None) | Claim::Failed => false,
        };
        // Storing another value says that the client is not the holder. A worker that takes a lock
        // has no use for XX or KEEPTTL, so a command with these leaves the identity its proof; and
        // the session is only doubted once it was refused.
        let updates = matches!(claim, Claim::Updated(_));
        self.set(stores && facts.refused_since, b'y');
        self.set(stores && !facts.refused_since && !updates, b'h');
        operand.map(OwnerToken::stored_form).unwrap_or_default()
    }

    /// Tells of a value that was read; returns the grant under which it was, and the value, where they may prove.
    fn seen(&mut self, seen: &Seen, rule: Option<TakeOverRule>) -> Option<(SmallVec<[u8; 16]>, StoredToken)> {
        // A value that others may write, too, proves nothing, unless a WATCH says that it has not
        // changed since it was read.
        let sure = seen.distinctive || seen.watched;
        let by_deadline = !sure && seen.deadline && rule != Some(TakeOverRule::Never);
        let grant = seen.grant.filter(|_| sure || by_deadline)?;
        self.set(true, b'o');
        self.set(by_deadline, b'x');
        Some((SmallVec::from_slice(&grant.0), seen.stored.clone()))
    }
}
