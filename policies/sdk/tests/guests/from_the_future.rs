//! A guest that was built for a later major version of the contract.

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
            package lockwarden:policy@2.0.0;
            interface oracle { ask: func() -> u64; }
            world policy {
                import oracle;
                export decide: func() -> u64;
            }
        ",
    });
}

#[cfg(target_family = "wasm")]
const _: () = {
    struct Future;

    impl bindings::Guest for Future {
        fn decide() -> u64 {
            bindings::lockwarden::policy::oracle::ask()
        }
    }

    bindings::export!(Future with_types_in bindings);
};
