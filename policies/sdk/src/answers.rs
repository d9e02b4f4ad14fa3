//! Short ways to build answers. A builder sets only what a policy requires; everything else keeps its neutral value.

use alloc::string::String;

use crate::{Code, Decision, Denial, Fence, Obligations};

#[expect(clippy::derivable_impls, reason = "the type is generated, so nothing can be derived on it here")]
impl Default for Fence {
    fn default() -> Self {
        Fence::None
    }
}

impl Default for Obligations {
    /// No obligations.
    fn default() -> Self {
        Obligations {
            ttl_default_ms: None,
            ttl_cap_ms: None,
            keep_alive_ms: None,
            max_hold_ms: None,
            require: None,
            fence: Fence::None,
            current_fence_only: false,
            take_over: None,
        }
    }
}

impl From<Obligations> for Decision {
    fn from(obligations: Obligations) -> Self {
        Decision::Permit(obligations)
    }
}

impl Decision {
    /// A permit without conditions.
    #[must_use]
    pub fn permit() -> Decision {
        Decision::Permit(Obligations::default())
    }

    /// A refusal, with a hint for the client: what to do instead, without owner tokens.
    #[must_use]
    pub fn deny(code: Code, hint: impl Into<String>) -> Decision {
        Decision::Deny(Denial { code, detail: Some(hint.into()) })
    }
}
