//! Packs the scripts for Redis: each with the shared functions that it uses, without comments and blanks. They are left
//! in OUT_DIR for `include_str!`.

use std::env;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

#[path = "build/assemble.rs"]
mod assemble;
#[expect(unreachable_pub, reason = "the crate has this module, too, and it is public there")]
#[path = "src/record.rs"]
mod record;

use assemble::Shared;

const SOURCES: &str = "src/scripts";

/// What the guard around an application's script finds defined, beside what it is told of the configuration.
const KNOWN_TO_GUARD: [&str; 1] = ["sub"];

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
    for path in ["build.rs", "build", "src/record.rs", SOURCES] {
        println!("cargo::rerun-if-changed={path}");
    }
    let out_dir = env::var("OUT_DIR").map_err(|error| format!("OUT_DIR: {error}"))?;
    let write = |name: &str, text: String| {
        let path = Path::new(&out_dir).join(name).with_extension("lua");
        fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
    };
    let prelude = read(&Path::new(SOURCES).join("prelude.lua"))?;
    let shared = Shared::new(&prelude).map_err(|error| format!("prelude.lua: {error}"))?;
    write("glob", shared.function("glob")?)?;
    let files = fs::read_dir(SOURCES).map_err(|error| format!("cannot list {SOURCES}: {error}"))?;
    for file in files {
        let path = file.map_err(|error| format!("{SOURCES}: {error}"))?.path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        if path.extension().is_none_or(|kind| kind != "lua") || name == "prelude" {
            continue;
        }
        let known: &[&str] = match name {
            "guard" | "guard_globals" => &KNOWN_TO_GUARD,
            _ => &[],
        };
        let script = shared.script(&read(&path)?, known);
        write(name, script.map_err(|error| format!("{}: {error}", path.display()))?)?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}
