//! `lockwarden policy new`: creates a first policy. It writes the examples of this repository, which the tests build.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use lockwarden_policy::CONTRACT;

use super::project::{Language, Name};
use crate::cli::api_client::ApiError;
use crate::cli::output;

#[derive(Args, Debug)]
pub(super) struct NewArgs {
    /// The folder to make; its last part is the policy's name
    folder: PathBuf,
    /// The language to write it in
    #[arg(long, value_enum, default_value = "rust")]
    lang: Language,
}

/// A file of a new folder: its path, and its text.
type NewFile = (&'static str, &'static str);

/// A file below `policies`.
macro_rules! policies {
    ($path:literal) => {
        include_str!(concat!("../../../../../policies/", $path))
    };
}

/// Files of the SDK of Rust, which is a crate and no file.
macro_rules! sdk {
    ($($name:literal),*) => {
        [$((concat!("lockwarden/sdk/src/", $name), include_str!(concat!("../../../../../policies/sdk/src/", $name)))),*]
    };
}

const RUST: &[NewFile] = &[
    ("policy.toml", policies!("examples/rust/policy.toml")),
    ("Cargo.toml", policies!("examples/rust/Cargo.toml")),
    ("src/lib.rs", policies!("examples/rust/src/lib.rs")),
    ("lockwarden/sdk/Cargo.toml", policies!("examples/rust/sdk.toml")),
    ("wit/policy.wit", CONTRACT),
];
const RUST_SDK: &[NewFile] = &sdk!(
    "answers.rs",
    "bindings.rs",
    "debugging.rs",
    "export.rs",
    "lib.rs",
    "nearest.rs",
    "settings.rs",
    "settings/tests.rs",
    "testing.rs"
);
const GO: &[NewFile] = &[
    ("policy.toml", policies!("examples/go/policy.toml")),
    ("go.mod", policies!("examples/go/go.mod")),
    ("main.go", policies!("examples/go/main.go")),
    ("lockwarden/lockwarden.go", policies!("examples/go/lockwarden/lockwarden.go")),
];
const C: &[NewFile] = &[
    ("policy.toml", policies!("examples/c/policy.toml")),
    ("policy.c", policies!("examples/c/policy.c")),
    ("lockwarden.h", policies!("examples/c/lockwarden.h")),
];
const JAVASCRIPT: &[NewFile] = &[
    ("policy.toml", policies!("examples/javascript/policy.toml")),
    ("package.json", policies!("examples/javascript/package.json")),
    ("policy.js", policies!("examples/javascript/policy.js")),
    ("lockwarden.js", policies!("examples/javascript/lockwarden.js")),
    ("debugging.js", policies!("examples/javascript/debugging.js")),
    ("build.mjs", policies!("examples/javascript/build.mjs")),
];
const PYTHON: &[NewFile] = &[
    ("policy.toml", policies!("examples/python/policy.toml")),
    ("policy.py", policies!("examples/python/policy.py")),
    ("lockwarden.py", policies!("examples/python/lockwarden.py")),
    ("debugging.py", policies!("examples/python/debugging.py")),
];
const EACH: &[NewFile] = &[
    ("cases.toml", policies!("examples/cases.toml")),
    ("README.md", policies!("examples/new-policy.md")),
    (".gitignore", "build/\nnode_modules/\ntarget/\n*.wasm\n"),
];

/// The name of the policy in the examples; a new policy gets its own name.
const EXAMPLE: &str = "team-naming";

impl Language {
    fn files(self) -> impl Iterator<Item = &'static NewFile> {
        let own: [&[NewFile]; 2] = match self {
            Language::Rust => [RUST, RUST_SDK],
            Language::Go => [GO, &[]],
            Language::C => [C, &[]],
            Language::Javascript => [JAVASCRIPT, &[]],
            Language::Python => [PYTHON, &[]],
        };
        own.into_iter().flatten().chain(EACH)
    }
}

pub(super) fn create(args: &NewArgs) -> Result<ExitCode, ApiError> {
    let folder = &args.folder;
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let Name(name) = Name::try_from(name.to_owned())
        .map_err(|why| ApiError::Usage(format!("{}: the last part is the policy's name: {why}", folder.display())))?;
    fs::create_dir(folder).map_err(|error| failed(folder, &error))?;
    let mut shown = String::new();
    for (path, text) in args.lang.files() {
        let path = folder.join(path);
        write_new(&path, &text.replace(EXAMPLE, &name)).map_err(|error| failed(&path, &error))?;
    }
    for (path, _) in args.lang.files().filter(|(path, _)| !path.starts_with("lockwarden/sdk/")) {
        shown.push_str(&format!("{}\n", folder.join(path).display()));
    }
    output::print(&format!("{shown}next: cd {}; lockwarden policy build; lockwarden policy test\n", folder.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn write_new(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
}

fn failed(path: &Path, error: &std::io::Error) -> ApiError {
    ApiError::Usage(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The copy of the SDK stands alone, so its dependencies are written a second time.
    #[test]
    fn the_sdk_of_a_new_policy_needs_what_this_one_needs() {
        let table = |text: &str| text.parse::<toml::Table>().unwrap();
        let ours = table(include_str!("../../../../../Cargo.toml"));
        let copy = table(policies!("examples/rust/sdk.toml"));
        let ours = &ours["workspace"]["dependencies"];
        let wasm = copy["target"].as_table().unwrap().values().map(|target| &target["dependencies"]);
        for dependencies in wasm.chain([&copy["dependencies"]]) {
            for (name, wanted) in dependencies.as_table().unwrap() {
                assert_eq!(Some(wanted), ours.get(name), "{name}");
            }
        }
        let own = table(policies!("sdk/Cargo.toml"));
        assert_eq!(own["features"], copy["features"]);
    }

    #[test]
    fn no_file_of_the_sdk_is_left_out() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/sdk/src");
        let mut there: BTreeSet<String> = BTreeSet::from(["settings/tests.rs".to_owned()]);
        for entry in fs::read_dir(folder).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".rs") {
                there.insert(name);
            }
        }
        let written = RUST_SDK.iter().map(|(path, _)| path.trim_start_matches("lockwarden/sdk/src/").to_owned());
        assert_eq!(written.collect::<BTreeSet<_>>(), there);
    }
}
