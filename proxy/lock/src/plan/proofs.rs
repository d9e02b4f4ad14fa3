//! The arguments of a step about proofs: which ones count according to the policies, and which ones this connection
//! has. Proofs that are known here not to count are left out; the script compares the rest with Redis.

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
    /// It will be stored; the same distinctive value proves the holder.
    Stored(OwnerToken),
    /// The same, for a command that requires an existing lock: XX, KEEPTTL.
    Updated(OwnerToken),
    /// The command compares it itself.
    Compared(OwnerToken),
    /// A script may carry it among its arguments: this is only known after it has run.
    Scripted,
    /// The command acts if another value is stored; the value that it stores itself may be a proof.
    Differing(OwnerToken, Option<OwnerToken>),
    /// The command's comparison has failed already.
    Failed,
}

impl Claim {
    /// For a command that stores nothing, and may compare.
    pub(super) fn of_maybe(comparison: Option<&Comparison>) -> Claim {
        comparison.map_or(Claim::None, |comparison| Claim::of(comparison, None))
    }

    /// What a comparison shows about the lock's holder. `stored` is the value that the command would store.
    pub(super) fn of(comparison: &Comparison, stored: Option<&Bytes>) -> Claim {
        let claim = comparison.claim.clone();
        match comparison.test {
            Test::Equal => Claim::Compared(claim),
            Test::Differs => Claim::Differing(claim, stored.cloned().map(OwnerToken::new)),
            // A digest was decided before, or the command was not permitted at all.
            Test::Digest(_) | Test::OtherDigest | Test::Failed => Claim::Failed,
        }
    }
}

/// The arguments about proofs, as far as they are known here.
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
        // An identity whose process is still unknown may become distinctive, so it is passed on as well.
        let by_identity = counts(Proofs::IDENTITY) && (believes || who.may_be_distinctive(rules));
        flags.set(by_identity, b'i');
        flags.set(believes, b'b');
        flags.set(by_identity && who.is_distinctive(rules), b'D');
        flags.set(by_identity && who.may_ask_back, b'p');
        flags.set(obligations.current_fence_only, b'f');
        flags.set(own.is_some_and(|own| own.lapsed.is_some()), b'l');
        // A grant that was only drawn in this block may never have been made, and one whose time is not over was
        // released in another way: that it is not in force does not make its client late.
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

/// Single-letter arguments of a script; the contract at the top of each script that takes them explains them.
#[derive(Default)]
struct Flags(SmallVec<[u8; 16]>);

impl Flags {
    fn set(&mut self, condition: bool, letter: u8) {
        if condition {
            self.0.push(letter);
        }
    }

    /// Adds a claim; returns the value to compare with the stored one.
    fn claim(&mut self, claim: &Claim, facts: &Facts, counts: bool) -> StoredToken {
        // The value that may be a proof, whether Redis's value must equal it, and the value to compare.
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
            // A value that is not distinctive identifies no client if it was this connection's own until its lease
            // ended, or if this connection lost with it against another client.
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
        // Storing another value indicates that the client is not the holder. A worker that takes a lock has no use for
        // XX or KEEPTTL, so a command with these keeps its identity as a proof; and the session is doubted only if it
        // was refused.
        let updates = matches!(claim, Claim::Updated(_));
        self.set(stores && facts.refused_since, b'y');
        self.set(stores && !facts.refused_since && !updates, b'h');
        operand.map(OwnerToken::stored_form).unwrap_or_default()
    }

    /// Adds a value that was read; returns the grant under which it was read, and the value, if they may be proofs.
    fn seen(&mut self, seen: &Seen, rule: Option<TakeOverRule>) -> Option<(SmallVec<[u8; 16]>, StoredToken)> {
        // A value that others may also write proves nothing, unless a WATCH guarantees that it has not changed since it
        // was read.
        let sure = seen.distinctive || seen.watched;
        let by_deadline = !sure && seen.deadline && rule != Some(TakeOverRule::Never);
        let grant = seen.grant.filter(|_| sure || by_deadline)?;
        self.set(true, b'o');
        self.set(by_deadline, b'x');
        Some((SmallVec::from_slice(&grant.0), seen.stored.clone()))
    }
}
