//! The output of `wit-bindgen` for `wit/policy.wit`. Generated, never edited; policies use the names that the crate's
//! root re-exports.

#![allow(
    missing_docs,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::allow_attributes_without_reason,
    unused_qualifications,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    reason = "generated code"
)]

wit_bindgen::generate!({
    path: "../../wit",
    world: "policy",
    pub_export_macro: true,
    export_macro_name: "export_guest",
    default_bindings_module: "lockwarden_policy_sdk::bindings",
    additional_derives: [PartialEq, Eq],
});
