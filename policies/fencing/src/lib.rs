//! The built-in policy `fencing`: every grant gets a number that only grows, so that a resource can distinguish a late
//! holder from the present one. The proxy's script makes the number together with the grant; this policy only decides
//! how it is counted.

#![cfg_attr(target_family = "wasm", no_std)]

extern crate alloc;

use alloc::string::String;

use lockwarden_policy_sdk::{
    Decision, Fence, Obligations, Operation, Operations, Policy, Request, Settings, export_policy,
};

/// The settings, checked.
#[derive(Debug, PartialEq, Eq)]
struct Fencing {
    counter: Fence,
}

impl Policy for Fencing {
    fn configure(settings: &mut Settings) -> Result<Self, String> {
        let counter =
            settings.choice("counter", &[("hybrid", Fence::Hybrid), ("sequential", Fence::Sequential)], Fence::Hybrid);
        settings.finish()?;
        Ok(Fencing { counter })
    }

    fn judges(&self) -> Operations {
        Operations::ACQUIRE | Operations::TAKE_OVER
    }

    fn decide(&self, request: &Request) -> Decision {
        match request.operation {
            Operation::Acquire | Operation::TakeOver => {
                Obligations { fence: self.counter, ..Obligations::default() }.into()
            }
            Operation::Extend
            | Operation::Release
            | Operation::Inspect
            | Operation::Write
            | Operation::GuardedWrite => Decision::permit(),
        }
    }
}

export_policy!(Fencing);

#[cfg(test)]
mod tests {
    use lockwarden_policy_sdk::testing::{OPERATIONS, assert_silent_beyond_judged, configure, obligations, request};

    use super::*;

    #[test]
    fn grants_are_numbered_and_nothing_else_is() {
        for (settings, counter) in [
            (&[][..], Fence::Hybrid),
            (&[("counter", "hybrid")], Fence::Hybrid),
            (&[("counter", "sequential")], Fence::Sequential),
        ] {
            let policy: Fencing = configure(settings).unwrap();
            for operation in OPERATIONS {
                let decision = policy.decide(&request(operation));
                let grants = matches!(operation, Operation::Acquire | Operation::TakeOver);
                let fence = if grants { counter } else { Fence::None };
                let want = Obligations { fence, ..Obligations::default() };
                assert_eq!(obligations(&decision), &want, "{operation:?}");
            }
            assert_silent_beyond_judged(&policy);
        }
    }

    #[test]
    fn settings_are_checked() {
        for (settings, problem) in [
            (&[("counter", "random")][..], "must be one of \"hybrid\", \"sequential\""),
            (&[("count", "hybrid")], "did you mean counter?"),
        ] {
            let error = configure::<Fencing>(settings).unwrap_err();
            assert!(error.contains(problem), "{settings:?}: {error}");
        }
    }
}
