//! Turns a core module into a component.

use std::panic::{AssertUnwindSafe, catch_unwind};

use wit_component::ComponentEncoder;

use crate::error::one_line;

/// Makes a component of a valid module, which is linked with these adapters: what they are imported as, and their bytes.
///
/// # Errors
/// What does not fit, in a line.
pub(crate) fn component_of(module: &[u8], adapters: &[(&str, &[u8])]) -> Result<Vec<u8>, String> {
    // The encoder is made for the output of compilers and panics on other input; a file may contain anything.
    let encoded = catch_unwind(AssertUnwindSafe(|| {
        let mut encoder = ComponentEncoder::default().validate(true).module(module)?;
        for (name, adapter) in adapters {
            encoder = encoder.adapter(name, adapter)?;
        }
        encoder.encode()
    }));
    match encoded {
        Ok(encoded) => encoded.map_err(|error| one_line(&format!("{error:#}"))),
        Err(_) => Err("it cannot be made a component".to_owned()),
    }
}

/// Whether these bytes are a component, rather than a module that can be made into one.
pub(crate) fn is_component(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\0asm\x0d\0\x01\0")
}

/// Whether these bytes are a module.
pub(crate) fn is_module(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\0asm\x01\0\0\0")
}
