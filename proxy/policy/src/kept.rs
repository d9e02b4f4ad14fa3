//! Built-in policies as machine code beside a debug binary, so that a test's proxy starts without compiling them: that
//! took a tenth of a second of CPU, two thousand times in a run of all tests. No release has this: machine code that is
//! read from a file is trusted.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use wasmtime::Engine;
use wasmtime::component::Component;

/// The compiled form of `module` with this digest: the stored one, or the result of `compile`, which is then stored if
/// possible.
///
/// # Errors
///
/// Those of `compile`.
pub(crate) fn or_compile<E>(
    engine: &Engine,
    sha256: &[u8; 32],
    compile: impl FnOnce() -> Result<Component, E>,
) -> Result<Component, E> {
    let Some(file) = place(sha256) else {
        return compile();
    };
    // SAFETY: only this function writes there, and wasmtime compares its version and the engine's settings.
    if let Ok(kept) = unsafe { Component::deserialize_file(engine, &file) } {
        return Ok(kept);
    }
    let compiled = compile()?;
    if let Ok(code) = compiled.serialize() {
        // Other processes may do the same now: each writes its own file, and the last one stays.
        static DRAFTS: AtomicU32 = AtomicU32::new(0);
        let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
        let draft = file.with_extension(format!("{}-{number}", std::process::id()));
        let _ = fs::write(&draft, code).and_then(|()| fs::rename(&draft, &file));
    }
    Ok(compiled)
}

/// A file beside the running program; none if there is no directory to write it to.
fn place(sha256: &[u8; 32]) -> Option<PathBuf> {
    let directory = std::env::current_exe().ok()?.parent()?.join("compiled-policies");
    fs::create_dir_all(&directory).ok()?;
    Some(directory.join(crate::digest::hex(sha256)))
}
