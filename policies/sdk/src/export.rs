//! The trait that a policy implements, and the code that makes it the exports of a guest. That code keeps one
//! configured policy per instance; nothing else lives between two calls.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::OnceCell;

use crate::bindings::lockwarden::policy::types::Setting;
use crate::{Code, Decision, Operations, Request, Settings};

/// A policy: settings in, then one pure answer for each request. `decide` has no access to clock, files or network, and
/// must not depend on earlier requests.
pub trait Policy: Sized + 'static {
    /// Reads the settings of one namespace. End with [`Settings::finish`], which reports everything
    /// that is wrong, unknown names included.
    ///
    /// # Errors
    /// A text for the operator: what is wrong with which setting.
    fn configure(settings: &mut Settings) -> Result<Self, String>;

    /// The operations that this policy judges. It is not asked about others, which it permits; this is faster than a
    /// permit for each of them. Read once, after `configure`.
    fn judges(&self) -> Operations {
        Operations::all()
    }

    /// Judges one operation, one of those that [`judges`](Policy::judges) returned.
    fn decide(&self, request: &Request) -> Decision;
}

/// The configured policy of this instance.
#[derive(Debug)]
pub struct Slot<P>(OnceCell<P>);

impl<P> Slot<P> {
    /// A slot without a configured policy.
    #[must_use]
    pub const fn new() -> Slot<P> {
        Slot(OnceCell::new())
    }
}

impl<P> Default for Slot<P> {
    fn default() -> Self {
        Slot::new()
    }
}

// SAFETY: a guest has one thread.
#[cfg(all(target_family = "wasm", not(target_feature = "atomics")))]
unsafe impl<P> Sync for Slot<P> {}

/// What [`export_policy!`](crate::export_policy) calls; not for use by hand.
#[derive(Debug)]
pub struct Guest;

impl Guest {
    /// Configures the policy of this instance; returns what it judges.
    ///
    /// # Errors
    /// The policy's own error, or that it was configured before.
    pub fn configure<P: Policy>(slot: &Slot<P>, settings: Vec<Setting>) -> Result<Operations, String> {
        #[cfg(all(target_family = "wasm", feature = "debug"))]
        crate::debugging::say_panics();
        let policy = P::configure(&mut Settings::new(settings))?;
        let judged = policy.judges();
        match slot.0.set(policy) {
            Ok(()) => Ok(judged),
            Err(_) => Err("this instance is configured already".to_owned()),
        }
    }

    /// Asks the policy of this instance. An instance that was never configured refuses everything.
    pub fn decide<P: Policy>(slot: &Slot<P>, request: &Request) -> Decision {
        match slot.0.get() {
            Some(policy) => policy.decide(request),
            None => Decision::deny(Code::Other, "the policy was not configured"),
        }
    }
}

/// Makes a [`Policy`] the exports of this crate's guest module. Use it once, in a crate with
/// `crate-type = ["cdylib"]`. Natively it does nothing, so that tests need no WebAssembly.
#[macro_export]
macro_rules! export_policy {
    ($policy:ty) => {
        // Natively the policy counts as used, so that the compiler warns of what really is not.
        #[cfg(not(target_family = "wasm"))]
        const _: fn(&mut $crate::Settings) -> ::core::result::Result<$policy, $crate::macros::String> =
            <$policy as $crate::Policy>::configure;

        #[cfg(target_family = "wasm")]
        const _: () = {
            static POLICY: $crate::Slot<$policy> = $crate::Slot::new();

            struct Exports;

            impl $crate::bindings::Guest for Exports {
                fn configure(
                    settings: $crate::macros::Vec<$crate::Setting>,
                ) -> ::core::result::Result<$crate::Operations, $crate::macros::String> {
                    $crate::Guest::configure::<$policy>(&POLICY, settings)
                }

                fn decide(request: $crate::Request) -> $crate::Decision {
                    $crate::Guest::decide::<$policy>(&POLICY, &request)
                }
            }

    $crate::bindings::export_guest!(Exports with_types_in $crate::bindings);
        };
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Operation, testing};

    struct Picky(u64);

    impl Policy for Picky {
        fn configure(settings: &mut Settings) -> Result<Self, String> {
            let limit = settings.duration_ms("limit", 5_000);
            settings.finish()?;
            Ok(Picky(limit))
        }

        fn decide(&self, request: &Request) -> Decision {
            if request.ttl_ms.unwrap_or(0) > self.0 {
                return Decision::deny(Code::TtlTooLong, "too long");
            }
            Decision::permit()
        }
    }

    #[test]
    fn an_instance_is_configured_once_and_refuses_before_that() {
        let slot: Slot<Picky> = Slot::new();
        let request = testing::request(Operation::Acquire);
        let before = Guest::decide(&slot, &request);
        assert_eq!(testing::denial(&before).code, Code::Other);

        let bad = vec![Setting { name: "limit".to_owned(), value: "soon".to_owned() }];
        assert!(Guest::configure(&slot, bad).is_err());
        assert_eq!(
            Guest::configure(&slot, Vec::new()),
            Ok(Operations::all()),
            "a policy that does not say is asked about everything"
        );
        assert!(Guest::configure(&slot, Vec::new()).is_err());

        let short = Request { ttl_ms: Some(5_000), ..request.clone() };
        let long = Request { ttl_ms: Some(5_001), ..request };
        assert_eq!(Guest::decide(&slot, &short), Decision::permit());
        assert_eq!(testing::denial(&Guest::decide(&slot, &long)).code, Code::TtlTooLong);
    }
}
