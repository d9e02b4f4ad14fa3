//! How a guest is built: shared by the build script and by the tests that need guests of their own.

use std::env;
use std::ffi::{OsStr, OsString};
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
    look_for_the_target(root)?;
    let mut command = Command::new(cargo);
    // One target at a time: `cargo rustc` with one crate type is what makes LTO work.
    command
        .current_dir(root)
        .args(["rustc", "--locked", "-p", package])
        .args(target)
        .args(["--crate-type", "cdylib", "--profile", "guest", "--target", TARGET])
        .arg("--target-dir")
        .arg(target_dir);
    for variable in NOT_FOR_GUESTS {
        command.env_remove(variable);
    }
    match command.status() {
        Ok(status) if status.success() => Ok(target_dir.join(TARGET).join("guest")),
        Ok(status) => Err(format!("building {package} for {TARGET} ended with {status}")),
        Err(error) => Err(format!("cannot run cargo for {package}: {error}")),
    }
}

/// Says what to type where the target is missing: a compiler says only that it "can't find crate for `core`". That
/// rust-toolchain.toml names the target does not install it where the toolchain was there before.
fn look_for_the_target(root: &Path) -> Result<(), String> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| OsString::from("rustc"));
    let printed = Command::new(rustc).current_dir(root).args(["--print", "target-libdir", "--target", TARGET]).output();
    let printed = printed.map_err(|error| format!("cannot run rustc: {error}"))?;
    let path = String::from_utf8_lossy(&printed.stdout).trim().to_owned();
    if Path::new(&path).is_dir() {
        return Ok(());
    }
    Err(format!(
        "the policies are WebAssembly, and this Rust cannot build any: type `rustup target add {TARGET}` in this \
         repository, or install the standard library for {TARGET} from where this Rust came from"
    ))
}
