//! A guest that is a good component and imports an interface that the proxy does not have.

use lockwarden_policy_sdk::{Decision, Policy, Request, Settings, export_policy};

struct Foreign;

mod clock {
    #![allow(
        missing_docs,
        unused_qualifications,
        unreachable_pub,
        clippy::all,
        clippy::allow_attributes_without_reason,
        clippy::undocumented_unsafe_blocks,
        reason = "generated code"
    )]
    wit_bindgen::generate!({
        inline: "
            package other:clock@0.3.0;
            interface wall { now: func() -> u64; }
            world reader { import wall; }
        ",
    });
}

impl Policy for Foreign {
    fn configure(settings: &mut Settings) -> Result<Self, String> {
        settings.finish()?;
        Ok(Foreign)
    }

    fn decide(&self, _request: &Request) -> Decision {
        std::hint::black_box(clock::other::clock::wall::now());
        Decision::permit()
    }
}

export_policy!(Foreign);
