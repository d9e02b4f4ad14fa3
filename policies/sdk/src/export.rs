//! The trait that a policy implements and the glue that makes it the exports of a guest. The glue
//! keeps one configured policy an instance; nothing else lives between two calls.

use std::cell::OnceCell;
use std::thread::LocalKey;

use crate::bindings::lockwarden::policy::types::Setting;
use crate::{Code, Decision, Operations, Request, Settings};

/// A policy: settings in, then one pure answer for each request. `decide` sees no clock, file or
/// network, and must not depend on earlier requests.
pub trait Policy: Sized + 'static {
    /// Reads the settings of one namespace. End with [`Settings::finish`], which reports everything
    /// that is wrong, unknown names included.
    ///
    /// # Errors
    /// A text for the operator: what is wrong with which setting.
    fn configure(settings: &mut Settings) -> Result<Self, String>;

    /// The operations that this policy judges. It is not asked about others, which it permits; that
    /// is faster than answering each time that it has nothing to say. Read once, after `configure`.
    fn judges(&self) -> Operations {
        Operations::all()
    }

    /// Judges one operation, one of those that [`judges`](Policy::judges) named.
    fn decide(&self, request: &Request) -> Decision;
}

/// The configured policy of this instance.
pub type Slot<P> = OnceCell<P>;

/// What [`export_policy!`](crate::export_policy) calls; not for use by hand.
#[derive(Debug)]
pub struct Guest;

impl Guest {
    /// Configures the policy of this instance; says what it judges.
    ///
    /// # Errors
    /// The policy's own error, or that it was configured before.
    pub fn configure<P: Policy>(
        slot: &'static LocalKey<Slot<P>>,
        settings: Vec<Setting>,
    ) -> Result<Operations, String> {
        let policy = P::configure(&mut Settings::new(settings))?;
        let judged = policy.judges();
        match slot.with(|slot| slot.set(policy)) {
            Ok(()) => Ok(judged),
            Err(_) => Err("this instance is configured already".to_owned()),
        }
    }

    /// Asks the policy of this instance. One that was never configured refuses everything.
    pub fn decide<P: Policy>(slot: &'static LocalKey<Slot<P>>, request: &Request) -> Decision {
        slot.with(|slot| match slot.get() {
            Some(policy) => policy.decide(request),
            None => Decision::deny(Code::Other, "the policy was not configured"),
        })
    }
}

/// Makes a [`Policy`] the exports of this crate's guest module. Use it once, in a crate with
/// `crate-type = ["cdylib"]`. Natively it does nothing, so that tests need no WebAssembly.
#[macro_export]
macro_rules! export_policy {
    ($policy:ty) => {
        // Natively the policy counts as used, so that the compiler warns of what really is not.
        #[cfg(not(target_family = "wasm"))]
        const _: fn(
            &mut $crate::Settings,
        ) -> ::std::result::Result<$policy, ::std::string::String> =
            <$policy as $crate::Policy>::configure;

        #[cfg(target_family = "wasm")]
        const _: () = {
            ::std::thread_local! {
                static POLICY: $crate::Slot<$policy> = const { $crate::Slot::new() };
            }

            struct Exports;

            impl $crate::bindings::Guest for Exports {
                fn configure(
                    settings: ::std::vec::Vec<$crate::Setting>,
                ) -> ::std::result::Result<$crate::Operations, ::std::string::String> {
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

    thread_local! {
        static SLOT: Slot<Picky> = const { Slot::new() };
    }

    #[test]
    fn an_instance_is_configured_once_and_refuses_before_that() {
        let request = testing::request(Operation::Acquire);
        let before = Guest::decide(&SLOT, &request);
        assert_eq!(testing::denial(&before).code, Code::Other);

        let bad = vec![Setting {
            name: "limit".to_owned(),
            value: "soon".to_owned(),
        }];
        assert!(Guest::configure(&SLOT, bad).is_err());
        assert_eq!(
            Guest::configure(&SLOT, Vec::new()),
            Ok(Operations::all()),
            "a policy that does not say is asked about everything"
        );
        assert!(Guest::configure(&SLOT, Vec::new()).is_err());

        let short = Request {
            ttl_ms: Some(5_000),
            ..request.clone()
        };
        let long = Request {
            ttl_ms: Some(5_001),
            ..request
        };
        assert_eq!(Guest::decide(&SLOT, &short), Decision::permit());
        assert_eq!(
            testing::denial(&Guest::decide(&SLOT, &long)).code,
            Code::TtlTooLong
        );
    }
}
