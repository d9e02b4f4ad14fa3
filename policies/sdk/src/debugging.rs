//! A policy's messages to its author. `lockwarden policy test` and `run` show them if the policy was built with
//! `lockwarden policy build --debug`, and so with the feature `debug`; otherwise nothing is output and nothing is
//! imported.

/// Sends a message to the author of the policy.
pub fn say(text: &str) {
    #[cfg(all(target_family = "wasm", feature = "debug"))]
    // SAFETY: the host reads so many bytes from there before it returns.
    unsafe {
        host::say(text.as_ptr(), text.len());
    }
    #[cfg(not(all(target_family = "wasm", feature = "debug")))]
    let _ = text;
}

/// Reports why a policy panics.
#[cfg(all(target_family = "wasm", feature = "debug"))]
pub(crate) fn say_panics() {
    extern crate std;
    std::panic::set_hook(std::boxed::Box::new(|panic| say(&std::string::ToString::to_string(panic))));
}

#[cfg(all(target_family = "wasm", feature = "debug"))]
mod host {
    #[link(wasm_import_module = "lockwarden:debug/output@1.0.0")]
    unsafe extern "C" {
        pub(super) fn say(text: *const u8, length: usize);
    }
}
