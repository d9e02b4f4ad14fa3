//! Builds the policies that ship with the proxy as WebAssembly modules, with the cargo that is
//! running and into a target directory of their own, and leaves them in OUT_DIR for
//! `include_bytes!`. The loader makes components of them, as it does for anybody's module.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[path = "build/guest.rs"]
mod guest;

/// The crates of the built-in policies, `lockwarden-policy-<name>`.
const BUILT_IN: [&str; 4] = ["owner-token", "fencing", "ttl-ceiling", "rules"];

/// Names a file of `lockwarden compile-policies`.
const COMPILED: &str = "LOCKWARDEN_COMPILED_POLICIES";

/// What else they are made of.
const PARTS: [&str; 2] = ["sdk", "rules-language"];

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            println!("cargo::error={message}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let cargo = required("CARGO")?;
    let manifest_dir = PathBuf::from(required("CARGO_MANIFEST_DIR")?);
    let out_dir = PathBuf::from(required("OUT_DIR")?);
    let root = manifest_dir.ancestors().nth(2).ok_or("this crate is not two directories below the workspace")?;
    watch(root);
    for name in BUILT_IN {
        let package = format!("lockwarden-policy-{name}");
        let built = guest::build(&cargo, root, &out_dir.join("policies"), &package, &["--lib"])?;
        let module = built.join(format!("{}.wasm", package.replace('-', "_")));
        fs::copy(&module, out_dir.join(format!("{name}.wasm")))
            .map_err(|error| format!("cannot copy {}: {error}", module.display()))?;
    }
    put_compiled(&out_dir)
}

/// What an earlier build of the proxy has compiled of them, for this one to have in it.
fn put_compiled(out_dir: &Path) -> Result<(), String> {
    println!("cargo::rerun-if-env-changed={COMPILED}");
    println!("cargo::rustc-env=TARGET={}", required("TARGET")?.display());
    let compiled = match env::var_os(COMPILED) {
        None => Vec::new(),
        Some(file) => {
            println!("cargo::rerun-if-changed={}", file.display());
            fs::read(&file).map_err(|error| format!("{COMPILED}: cannot read {}: {error}", file.display()))?
        }
    };
    let file = out_dir.join("compiled-policies");
    fs::write(&file, compiled).map_err(|error| format!("cannot write {}: {error}", file.display()))
}

/// What the guests are made of. Directories are watched with everything in them.
fn watch(root: &Path) {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=build");
    for path in ["Cargo.toml", "Cargo.lock", "rust-toolchain.toml", "wit"] {
        println!("cargo::rerun-if-changed={}", root.join(path).display());
    }
    for name in BUILT_IN.into_iter().chain(PARTS) {
        let policy = root.join("policies").join(name);
        for path in ["Cargo.toml", "src"] {
            println!("cargo::rerun-if-changed={}", policy.join(path).display());
        }
    }
}

fn required(variable: &str) -> Result<OsString, String> {
    env::var_os(variable).ok_or_else(|| format!("cargo did not set {variable}"))
}
