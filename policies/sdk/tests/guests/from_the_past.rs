//! A guest that was built for version 1.0 of the contract: `policy-1.0.wit` beside it is the contract of that time. It refuses
//! everything, with the name of its client.

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
    wit_bindgen::generate!({ path: "tests/guests/policy-1.0.wit", world: "policy" });
}

#[cfg(target_family = "wasm")]
const _: () = {
    use std::sync::OnceLock;

    use bindings::lockwarden::policy::clients;
    use bindings::lockwarden::policy::types::{Code, Decision, Denial, Operations, Request, Setting};

    static SUFFIX: OnceLock<String> = OnceLock::new();

    struct Past;

    impl bindings::Guest for Past {
        fn configure(settings: Vec<Setting>) -> Result<Operations, String> {
            let suffix = settings.into_iter().map(|setting| setting.value).collect();
            SUFFIX.set(suffix).map_err(|_| "twice".to_owned())?;
            Ok(Operations::all())
        }

        fn decide(request: Request) -> Decision {
            let name = clients::describe(request.client).map(|client| client.name);
            let name = name.unwrap_or_else(|| "nobody".to_owned());
            let key = String::from_utf8_lossy(&request.key).into_owned();
            let suffix = SUFFIX.get().map_or("", String::as_str);
            Decision::Deny(Denial { code: Code::Other, detail: Some(format!("{name} asks for {key}{suffix}")) })
        }
    }

    bindings::export!(Past with_types_in bindings);
};
