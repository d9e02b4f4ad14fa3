//! The built-in policy `ttl-ceiling`: every lease ends by itself, and not too late. It sets the default and the longest
//! TTL, and how long the proxy may renew a TTL that it chose; the proxy's script applies them. Next: the settings in
//! `TtlCeiling`.

#![cfg_attr(target_family = "wasm", no_std)]

extern crate alloc;

use alloc::string::String;

use lockwarden_policy_sdk::{
    Code, Decision, Obligations, Operation, Operations, Policy, Request, Settings, export_policy, show_ms,
};

/// The settings, checked. Invariant: zero < `default_ms` <= `ceiling_ms`.
#[derive(Debug, PartialEq, Eq)]
struct TtlCeiling {
    /// The TTL of an acquire that requests none.
    default_ms: u64,
    /// How long a dead holder may block the others, ms.
    ceiling_ms: u64,
    on_excess: OnExcess,
    /// The age up to which a TTL that the proxy set or shortened is renewed while the holder lives.
    keep_alive_ms: Option<u64>,
    /// The age beyond which a holder's own extensions are refused.
    max_hold_ms: Option<u64>,
}

/// What happens to a TTL above the ceiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnExcess {
    Cap,
    Deny,
}

const DEFAULT_MS: u64 = 30_000;
const CEILING_MS: u64 = 3_600_000;
const KEEP_ALIVE_MS: u64 = 86_400_000;

impl Policy for TtlCeiling {
    fn configure(settings: &mut Settings) -> Result<Self, String> {
        let ceiling_ms = settings.duration_ms("ceiling", CEILING_MS);
        // An operator who sets only a low ceiling wants it for the default too.
        let default_ms = settings.duration_ms("default", DEFAULT_MS.min(ceiling_ms));
        if ceiling_ms == 0 || default_ms == 0 || default_ms > ceiling_ms {
            settings.problem(
                [
                    "default (",
                    &show_ms(default_ms),
                    ") must be above zero and at most ceiling (",
                    &show_ms(ceiling_ms),
                    ")",
                ]
                .concat(),
            );
        }
        let on_excess =
            settings.choice("on_excess", &[("cap", OnExcess::Cap), ("deny", OnExcess::Deny)], OnExcess::Cap);
        let keep_alive_ms = settings.duration_ms_or_off("keep_alive", Some(KEEP_ALIVE_MS));
        // The proxy reads these three; here they are only checked.
        let keeps_all = settings.choice("keep_alive.ttl", &[("proxy", false), ("all", true)], false);
        settings.choice("keep_alive_by", &[("identity", ()), ("connection", ())], ());
        settings.duration_ms_or_off("grace", None);
        let max_hold_ms = settings.duration_ms_or_off("max_hold", None);
        if keeps_all && max_hold_ms.is_none() {
            settings.problem("keep_alive.ttl = \"all\" needs max_hold: a holder that hangs would block for ever");
        }
        if keeps_all && keep_alive_ms.is_none() {
            settings.problem("keep_alive = \"off\" keeps no TTL alive: leave out keep_alive.ttl");
        }
        settings.finish()?;
        Ok(TtlCeiling { default_ms, ceiling_ms, on_excess, keep_alive_ms, max_hold_ms })
    }

    fn judges(&self) -> Operations {
        Operations::ACQUIRE | Operations::TAKE_OVER | Operations::EXTEND
    }

    fn decide(&self, request: &Request) -> Decision {
        match request.operation {
            Operation::Extend if ends_never(request) => Decision::deny(
                Code::NoTtl,
                ["a lock must end by itself; extend it by EXPIRE, at most ", &show_ms(self.ceiling_ms)].concat(),
            ),
            Operation::Acquire | Operation::TakeOver | Operation::Extend => self.bound(request),
            Operation::Release | Operation::Inspect | Operation::Write | Operation::GuardedWrite => Decision::permit(),
        }
    }
}

impl TtlCeiling {
    fn bound(&self, request: &Request) -> Decision {
        let too_long = request.ttl_ms.is_some_and(|ttl_ms| ttl_ms > self.ceiling_ms);
        match self.on_excess {
            OnExcess::Deny if too_long => Decision::deny(
                Code::TtlTooLong,
                ["ask for at most ", &show_ms(self.ceiling_ms), " and extend"].concat(),
            ),
            OnExcess::Deny | OnExcess::Cap => Obligations {
                ttl_default_ms: Some(self.default_ms),
                ttl_cap_ms: Some(self.ceiling_ms),
                keep_alive_ms: self.keep_alive_ms,
                max_hold_ms: self.max_hold_ms,
                ..Obligations::default()
            }
            .into(),
        }
    }
}

/// PERSIST, the only extension with neither a TTL nor a value. An extension with a value changes the value and gets the
/// default TTL.
fn ends_never(request: &Request) -> bool {
    request.ttl_ms.is_none() && request.owner_token.is_none()
}

export_policy!(TtlCeiling);

#[cfg(test)]
mod tests;
