//! Built-in policies as machine code in the binary, so that a start compiles none: that took four fifths of its time. A
//! released binary is linked twice (`make release`): the first one writes the code that it compiles, the second
//! contains it. Any other binary compiles as it starts, and so does one on a processor without the features that the
//! code needs.

use wasmtime::Engine;
use wasmtime::component::Component;

use crate::digest::sha256;
use crate::engine;
use crate::error::{AheadError, LoadError};
use crate::loader;
use crate::source::builtins;

/// The input of the build, empty if there was none: for each policy the SHA-256 of its module, the length of its code
/// in eight bytes, little-endian, and the code.
static IN_BINARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/compiled-policies"));

/// The code of the built-in policy whose module has this digest, or the result of `compile`.
///
/// # Errors
///
/// Those of `compile`.
pub(crate) fn or_compile(
    engine: &Engine,
    sha256: &[u8; 32],
    compile: impl FnOnce() -> Result<Component, LoadError>,
) -> Result<Component, LoadError> {
    if let Some(component) = find(IN_BINARY, sha256).and_then(|code| ready(engine, code)) {
        return Ok(component);
    }
    #[cfg(debug_assertions)]
    return crate::kept::or_compile(engine, sha256, compile);
    #[cfg(not(debug_assertions))]
    compile()
}

/// Whether all built-in policies are in the binary as machine code.
#[must_use]
pub fn are_compiled_ahead() -> bool {
    builtins().iter().all(|policy| find(IN_BINARY, &sha256(policy.module)).is_some())
}

/// The machine code of all built-in policies, for any processor of this kind: the input of a build, passed in
/// `LOCKWARDEN_COMPILED_POLICIES`.
///
/// # Errors
///
/// The engine cannot be made, or a policy does not compile.
pub fn compile_ahead() -> Result<Vec<u8>, AheadError> {
    let engine = engine::for_any_processor()?;
    let mut all = Vec::new();
    for policy in builtins() {
        let code = loader::built_in_code(&engine, policy)?;
        all.extend_from_slice(&sha256(policy.module));
        all.extend_from_slice(&(code.len() as u64).to_le_bytes());
        all.extend_from_slice(&code);
    }
    Ok(all)
}

fn find<'c>(mut codes: &'c [u8], sha256: &[u8; 32]) -> Option<&'c [u8]> {
    loop {
        let (digest, rest) = codes.split_first_chunk::<32>()?;
        let (length, rest) = rest.split_first_chunk()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let (code, rest) = rest.split_at_checked(length)?;
        if digest == sha256 {
            return Some(code);
        }
        codes = rest;
    }
}

fn ready(engine: &Engine, code: &[u8]) -> Option<Component> {
    // SAFETY: this program has compiled the code, and it was linked into it. Wasmtime compares its own version, the
    // engine's settings, and what the code needs of the processor.
    match unsafe { Component::deserialize(engine, code) } {
        Ok(component) => Some(component),
        Err(error) => {
            tracing::info!(%error, "built-in policies are compiled anew: those in the binary do not fit this machine");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compiled_ahead_fits_the_engine_that_runs_policies_and_no_other() {
        let codes = compile_ahead().unwrap();
        let own = engine::start().unwrap().engine;
        let other = Engine::default();
        for policy in builtins() {
            let code = find(&codes, &sha256(policy.module)).expect(policy.name);
            assert!(ready(&own, code).is_some(), "{}", policy.name);
            assert!(ready(&other, code).is_none(), "without fuel");
        }
        assert_eq!(find(&codes, &sha256(b"another module")), None);
    }

    #[test]
    fn what_is_cut_short_or_no_code_is_not_taken() {
        let digests = [[1; 32], [2; 32]];
        let codes: Vec<u8> =
            digests.iter().flat_map(|digest| [&digest[..], &3u64.to_le_bytes(), b"abc"].concat()).collect();
        assert_eq!(digests.map(|digest| find(&codes, &digest)), [Some(&b"abc"[..]); 2]);
        for end in 0..codes.len() {
            assert_eq!(find(&codes[..end], &digests[1]), None, "{end}");
        }
        let endless = [&digests[0][..], &u64::MAX.to_le_bytes(), b"abc"].concat();
        assert_eq!(find(&endless, &digests[0]), None);
        assert!(ready(&engine::start().unwrap().engine, b"abc").is_none());
    }
}
