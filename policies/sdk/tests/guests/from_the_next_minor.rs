//! A guest that was built for a later minor version of the contract, of which it calls what is new.

mod bindings {
    #![allow(
        missing_docs,
        unused_qualifications,
        unreachable_pub,
        unsafe_op_in_unsafe_fn,
        clippy::all,
        clippy::allow_attributes_without_reason,
        clippy::undocumented_unsafe_blocks,
        reason = "generated code"
    )]
    wit_bindgen::generate!({
        inline: "
            package lockwarden:policy@1.9.0;
            interface history { foresee: func(client: u64) -> u64; }
            world policy {
                import history;
                export decide: func() -> u64;
            }
        ",
    });
}

#[cfg(target_family = "wasm")]
const _: () = {
    struct NextMinor;

    impl bindings::Guest for NextMinor {
        fn decide() -> u64 {
            bindings::lockwarden::policy::history::foresee(1)
        }
    }

    bindings::export!(NextMinor with_types_in bindings);
};
