//! The built-in policy `owner-token`: who may release, extend or take over a lease. It decides which proofs of
//! ownership count; the proxy's script checks them against Redis, so this policy never compares a value itself. Next:
//! the settings in `OwnerToken`.

#![cfg_attr(target_family = "wasm", no_std)]

extern crate alloc;

use alloc::string::String;

use lockwarden_policy_sdk::{
    Code, Decision, Obligations, Operation, Operations, Policy, Proofs, Request, Settings, TakeOverRule, Traits,
    export_policy,
};

/// The settings, checked. Invariant: `proofs` is not empty and `void_after_refusal` is a part of it.
#[derive(Debug, PartialEq, Eq)]
struct OwnerToken {
    /// The proofs that count.
    proofs: Proofs,
    /// The proofs that do not count if a command names no owner token and its connection was refused this lock since
    /// its last grant: the `finally` of a worker that never got the lock looks just like the holder's. Empty by default
    /// if doubtful releases are believed: the proxy then believes an identity as long as it releases no more than it is
    /// granted.
    void_after_refusal: Proofs,
    /// Whether a lease whose deadline has passed may be replaced: by GETSET, or by the DEL of a waiting client that has
    /// read it.
    take_over: TakeOverRule,
    /// What to do about a value with which another client was granted a lock too.
    shared_tokens: SharedTokens,
}

/// See [`OwnerToken::shared_tokens`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SharedTokens {
    /// Nothing: the proxy counts and logs such values.
    Report,
    /// Refuse to take a lock with such a value.
    Deny,
}

const PROOFS: [(&str, Proofs); 4] = [
    ("token", Proofs::TOKEN),
    ("session", Proofs::SESSION),
    ("observed", Proofs::OBSERVED),
    ("identity", Proofs::IDENTITY),
];

impl Policy for OwnerToken {
    fn configure(settings: &mut Settings) -> Result<Self, String> {
        let proofs = proof_set(settings, "proofs");
        if proofs.is_some_and(|proofs| proofs.is_empty()) {
            settings.problem("proofs is empty, so nobody could ever release a lock");
        }
        let proofs = proofs.unwrap_or(Proofs::all());
        let void = proof_set(settings, "void_after_refusal");
        if void.is_some_and(|void| !proofs.contains(void)) {
            settings.problem("void_after_refusal names a proof that is not in proofs");
        }
        let when_refused =
            settings.choice("doubt", &[("believe", Proofs::empty()), ("refuse", Proofs::IDENTITY)], Proofs::empty());
        // The default must also fit a shorter list of proofs, so it is reduced to those that count.
        let void_after_refusal = void.unwrap_or(when_refused & proofs);
        // Read only to be checked: they decide what the proxy treats as a distinctive identity and how long an identity
        // owes a release, and the proxy reads them from the same settings.
        settings.choice("trust_address", &[("auto", ()), ("process", ()), ("no", ())], ());
        if settings.optional_duration_ms("debt_max_age") == Some(0) {
            settings.problem("debt_max_age is zero; to have no debts leave identity out of proofs");
        }
        let take_over = settings.choice(
            "take_over",
            &[("after-deadline", TakeOverRule::AfterDeadline), ("never", TakeOverRule::Never)],
            TakeOverRule::AfterDeadline,
        );
        let shared_tokens = settings.choice(
            "shared_tokens",
            &[("report", SharedTokens::Report), ("deny", SharedTokens::Deny)],
            SharedTokens::Report,
        );
        settings.finish()?;
        Ok(OwnerToken { proofs, void_after_refusal, take_over, shared_tokens })
    }

    fn judges(&self) -> Operations {
        let always = Operations::RELEASE | Operations::EXTEND | Operations::TAKE_OVER | Operations::WRITE;
        match self.shared_tokens {
            SharedTokens::Report => always,
            SharedTokens::Deny => always | Operations::ACQUIRE,
        }
    }

    fn decide(&self, request: &Request) -> Decision {
        match request.operation {
            Operation::Extend => Obligations { require: Some(self.counting(request)), ..Obligations::default() }.into(),
            // A waiting client's DEL of a lease whose deadline has passed is a take-over in two steps, so a release
            // carries the rule too. A passed deadline needs no proof; if it has not passed, the holder's own GETSET is
            // an extension and needs one.
            Operation::Release | Operation::TakeOver => Obligations {
                require: Some(self.counting(request)),
                take_over: Some(self.take_over),
                ..Obligations::default()
            }
            .into(),
            Operation::Write => {
                Decision::deny(Code::OpaqueWrite, "a lock is changed by acquire, extend and release only")
            }
            Operation::Acquire if self.refuses_token_of(request) => Decision::deny(
                Code::SharedToken,
                "another client takes locks with this value; use one of your own, such as a UUID",
            ),
            Operation::Acquire | Operation::Inspect | Operation::GuardedWrite => Decision::permit(),
        }
    }
}

impl OwnerToken {
    /// Whether a lock may not be taken with this value. A release or extension is never refused for it: a client that
    /// already has the lock must be able to release it.
    fn refuses_token_of(&self, request: &Request) -> bool {
        self.shared_tokens == SharedTokens::Deny && request.traits.contains(Traits::SHARED_TOKEN)
    }

    /// The proofs that count for this request. A release or extension that names an owner token shows whose it is,
    /// refused before or not. The value of a GETSET is the new one and shows nothing, so a worker that was refused must
    /// not count as the holder with the same name. If no proof is left, the empty set is required, which no client can
    /// satisfy: the script refuses the request as `not-owner`, but still replies natively for a lock that is free or
    /// that was taken without the proxy. A denial here could not distinguish those.
    fn counting(&self, request: &Request) -> Proofs {
        let says_whose = request.owner_token.is_some() && request.operation != Operation::TakeOver;
        if request.traits.contains(Traits::REFUSED_SINCE) && !says_whose {
            self.proofs - self.void_after_refusal
        } else {
            self.proofs
        }
    }
}

fn proof_set(settings: &mut Settings, name: &'static str) -> Option<Proofs> {
    let chosen = settings.choices(name, &PROOFS)?;
    Some(chosen.into_iter().fold(Proofs::empty(), |set, proof| set | proof))
}

export_policy!(OwnerToken);

#[cfg(test)]
mod tests;
