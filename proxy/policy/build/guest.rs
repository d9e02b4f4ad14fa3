//! How a guest is built: shared by the build script and by the tests that need guests of their own.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The target of all guests.
const TARGET: &str = "wasm32-unknown-unknown";

/// What the outer cargo says to its own compiler. A guest gets none of it: coverage or native flags
/// do not fit WebAssembly, and clippy as compiler would rebuild the guests at every change of tool.
const NOT_FOR_GUESTS: [&str; 8] = [
    "RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "CLIPPY_ARGS",
    "CLIPPY_CONF_DIR",
];

/// Builds one target of one package (`--lib`, or `--example name`) as a WebAssembly module and says
/// which directory of `target_dir` it is in.
pub(crate) fn build(
    cargo: &OsStr,
    root: &Path,
    target_dir: &Path,
    package: &str,
    target: &[&str],
) -> Result<PathBuf, String> {
    let mut command = Command::new(cargo);
    // One target at a time: `cargo rustc` with one crate type is what makes LTO work.
    command
        .current_dir(root)
        .args(["rustc", "--locked", "-p", package])
        .args(target)
        .args([
            "--crate-type",
            "cdylib",
            "--profile",
            "guest",
            "--target",
            TARGET,
        ])
        .arg("--target-dir")
        .arg(target_dir);
    for variable in NOT_FOR_GUESTS {
        command.env_remove(variable);
    }
    match command.status() {
        Ok(status) if status.success() => Ok(target_dir.join(TARGET).join("guest")),
        Ok(status) => Err(format!(
            "building {package} for {TARGET} ended with {status}; if the target is missing: \
             rustup target add {TARGET}"
        )),
        Err(error) => Err(format!("cannot run cargo for {package}: {error}")),
    }
}
