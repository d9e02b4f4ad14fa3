//! The library for writing a lockwarden policy: the types of the contract (`wit/policy.wit`), a trait to implement,
//! settings that report all errors at once, and a harness that tests a policy natively. It makes no decision of its
//! own. Next: the trait [`Policy`], then `docs/policy-authors.md`.
//!
//! ```
//! use lockwarden_policy_sdk::{Code, Decision, Operation, Policy, Request, Settings, export_policy};
//!
//! struct OfficeHours {
//!     patience_ms: u64,
//! }
//!
//! impl Policy for OfficeHours {
//!     fn configure(settings: &mut Settings) -> Result<Self, String> {
//!         let patience_ms = settings.duration_ms("patience", 10_000);
//!         settings.finish()?;
//!         Ok(OfficeHours { patience_ms })
//!     }
//!
//!     fn decide(&self, request: &Request) -> Decision {
//!         match request.operation {
//!             Operation::Acquire if request.ttl_ms.is_some_and(|ttl| ttl > self.patience_ms) => {
//!                 Decision::deny(Code::TtlTooLong, "nobody waits that long here")
//!             }
//!             _ => Decision::permit(),
//!         }
//!     }
//! }
//!
//! export_policy!(OfficeHours);
//! # fn main() {}
//! ```

// The standard library of a guest is mostly panic messages that are never seen. Natively it stays, for tests.
#![cfg_attr(target_family = "wasm", no_std)]

extern crate alloc;

use alloc::string::String;
use alloc::vec::Vec;

mod answers;
#[doc(hidden)]
pub mod bindings;
mod debugging;
mod export;
mod nearest;
mod settings;
pub mod testing;

#[cfg(target_family = "wasm")]
use lol_alloc::{AssumeSingleThreaded, FreeListAllocator};

pub use bindings::lockwarden::policy::types::{
    Code, Decision, Denial, Fence, Obligations, Operation, Operations, Proofs, Request, Setting, TakeOverRule, Traits,
};
pub use debugging::say;
pub use export::{Guest, Policy, Slot};

/// What [`export_policy!`] names in a crate that may have no standard library; not for use by hand.
#[doc(hidden)]
pub mod macros {
    pub use alloc::string::String;
    pub use alloc::vec::Vec;
}

/// Small, because its code is compiled with each policy, and fast for the few short buffers of a decision.
#[cfg(target_family = "wasm")]
#[global_allocator]
// SAFETY: a guest has one thread.
static ALLOCATOR: AssumeSingleThreaded<FreeListAllocator> =
    unsafe { AssumeSingleThreaded::new(FreeListAllocator::new()) };

/// The reaction to a panic in a guest without the standard library: the proxy reports a trap.
#[cfg(all(target_family = "wasm", feature = "panic-handler"))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    core::arch::wasm32::unreachable()
}
pub use settings::{Settings, show_ms};

/// The client's identity, if the request is the one being decided: the only question that a policy may ask the proxy. A
/// policy that calls this imports `lockwarden:policy/clients`; natively, in tests, it returns `None`.
pub fn describe(request: &Request) -> Option<ClientIdentity> {
    #[cfg(target_family = "wasm")]
    return bindings::lockwarden::policy::clients::describe(request.client);
    #[cfg(not(target_family = "wasm"))]
    {
        let _ = request;
        None
    }
}

/// The verified name in the client's certificate, if the request is the one being decided and the client gave a
/// certificate. A policy that calls this needs a proxy that supports `lockwarden:policy` 1.1; natively, in tests, there
/// is none.
pub fn certificate(request: &Request) -> Option<String> {
    #[cfg(target_family = "wasm")]
    return bindings::lockwarden::policy::clients::certificate(request.client);
    #[cfg(not(target_family = "wasm"))]
    {
        let _ = request;
        None
    }
}

/// The proxy's name for the client's application, if the request is the one being decided. A policy that calls this
/// needs a proxy that supports `lockwarden:policy` 1.2; natively, in tests, there is none.
pub fn application(request: &Request) -> Option<String> {
    #[cfg(target_family = "wasm")]
    return bindings::lockwarden::policy::clients::application(request.client);
    #[cfg(not(target_family = "wasm"))]
    {
        let _ = request;
        None
    }
}

/// How often clients requested this lock in the last ten seconds, this time included, as far as this proxy has seen. A
/// policy that calls this needs a proxy that supports `lockwarden:policy` 1.2; natively, in tests, it is the first
/// time.
pub fn tries(request: &Request, whose: Whose) -> u32 {
    #[cfg(target_family = "wasm")]
    return bindings::lockwarden::policy::history::tries(request.client, whose);
    #[cfg(not(target_family = "wasm"))]
    {
        let _ = (request, whose);
        1
    }
}

/// The keys of the other locks that the client's connection holds in the request's database, as far as this proxy has
/// seen, ordered by their fencing tokens; if there are more than 32, those with the highest. A policy that calls this
/// needs a proxy that supports `lockwarden:policy` 1.2; natively, in tests, there are none.
pub fn holds(request: &Request) -> Vec<Vec<u8>> {
    #[cfg(target_family = "wasm")]
    return bindings::lockwarden::policy::history::holds(request.client);
    #[cfg(not(target_family = "wasm"))]
    {
        let _ = request;
        Vec::new()
    }
}

/// How many locks all clients of the same application hold, as far as this proxy has seen. A policy that calls this
/// needs a proxy that supports `lockwarden:policy` 1.2; natively, in tests, there are none.
pub fn held(request: &Request) -> u32 {
    #[cfg(target_family = "wasm")]
    return bindings::lockwarden::policy::history::held(request.client);
    #[cfg(not(target_family = "wasm"))]
    {
        let _ = request;
        0
    }
}

/// Takes one from a budget of the client's application, if one is left: the budget has `most`, which refill evenly
/// within `per_ms`. A policy that calls this needs a proxy that supports `lockwarden:policy` 1.2; natively, in tests,
/// there is always one.
pub fn take(request: &Request, budget: &str, most: u32, per_ms: u64) -> bool {
    #[cfg(target_family = "wasm")]
    return bindings::lockwarden::policy::history::take(request.client, budget, most, per_ms);
    #[cfg(not(target_family = "wasm"))]
    {
        let _ = (request, budget, most, per_ms);
        true
    }
}

pub use bindings::lockwarden::policy::clients::Identity as ClientIdentity;
pub use bindings::lockwarden::policy::history::Whose;
