//! `lockwarden policy build`: runs the tool chain of a policy's language and turns its output into a policy that a proxy can
//! load.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use lockwarden_control::text::numbers::number;
use lockwarden_policy::{CONTRACT, DEBUGGING, Limits, Metadata, ModuleSource, PolicySource, package};
use serde::Serialize;

use super::project::{Language, Project, limits_in_toml};
use super::wording::calls_in_words;
use crate::app::exit_code;
use crate::cli::api_client::{ApiError, policy_host};
use crate::cli::output::{Output, plain};
use crate::terminal::complain;

#[derive(Args, Debug)]
pub(super) struct BuildArgs {
    /// The policy's folder, with its policy.toml
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// Let it say to `test` and `run` what it prints and why it panics; a proxy does not load it
    #[arg(long)]
    debug: bool,
    #[command(flatten)]
    output: Output,
}

/// A tool chain, run in the policy's folder.
struct ToolChain {
    command: Command,
    /// Where to get it.
    from: &'static str,
    /// Its output file, in the folder.
    leaves: &'static str,
}

/// The output of tool chains whose output path can be set.
const LEFT: &str = "build/policy.wasm";

/// The folder with the WIT interfaces that generators read.
const WIT: &str = "build/wit";

/// The worlds that they generate, normal and for debugging. In JavaScript and Python the world also names the file that is
/// built.
const WORLDS: &str = "package lockwarden:authoring;

world policy {
    include lockwarden:policy/policy@1.2.0;
}

world debugging {
    include lockwarden:policy/policy@1.2.0;
    import lockwarden:debug/output@1.0.0;
}
";

impl Language {
    fn tool_chain(self, is_debug: bool) -> ToolChain {
        let world = if is_debug { "debugging" } else { "policy" };
        let (program, arguments, from): (&str, &[&str], &'static str) = match self {
            Language::Rust => (
                "cargo",
                &["build", "--release", "--target", "wasm32-unknown-unknown", "--target-dir", "target"],
                "Rust from https://rustup.rs, then rustup target add wasm32-unknown-unknown",
            ),
            Language::Go => (
                "go",
                &["build", "-trimpath", "-ldflags=-s -w", "-buildmode=c-shared", "-o", LEFT, "."],
                "Go 1.24 or newer from https://go.dev/dl",
            ),
            Language::C => (
                "clang",
                &[
                    "--target=wasm32",
                    "-O2",
                    "-Wall",
                    "-nostdlib",
                    "-mbulk-memory",
                    "-Wl,--no-entry,--strip-all,-z,stack-size=65536",
                    "-o",
                    LEFT,
                    "policy.c",
                ],
                "clang and lld, packages of these names in most systems",
            ),
            Language::Javascript => {
                ("node", &["build.mjs", WIT, world, LEFT], "Node.js 20 or newer from https://nodejs.org")
            }
            Language::Python => (
                "componentize-py",
                &["-d", WIT, "-w", world, "componentize", "--stub-wasi", "-p", ".", world, "-o", LEFT],
                "it with pip install componentize-py==0.25.1",
            ),
        };
        let mut command = Command::new(program);
        command.args(arguments).args(self.debugging().filter(|_| is_debug));
        match self {
            Language::Go => {
                command.env("GOOS", "wasip1").env("GOARCH", "wasm").env("CGO_ENABLED", "0");
                // Settings for other programs, and workspaces above this folder, do not apply to this build.
                command.env("GOWORK", "off").env_remove("GOFLAGS");
            }
            // Compiler settings for programs of this machine do not fit WebAssembly.
            Language::Rust => {
                for variable in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET"] {
                    command.env_remove(variable);
                }
            }
            Language::C | Language::Javascript | Language::Python => {}
        }
        let leaves = match self {
            Language::Rust => "target/wasm32-unknown-unknown/release/policy.wasm",
            _ => LEFT,
        };
        ToolChain { command, from, leaves }
    }

    /// The extra compiler option for a debugging build. Output of Go is captured without one.
    fn debugging(self) -> Option<&'static str> {
        match self {
            Language::Rust => Some("--features=debug"),
            Language::C => Some("-DLOCKWARDEN_DEBUG"),
            Language::Go | Language::Javascript | Language::Python => None,
        }
    }
}

/// The result of a build.
#[derive(Serialize)]
struct Built {
    module: String,
    sha256: String,
    bytes: usize,
    calls: Vec<String>,
    for_debugging: bool,
    /// The tool chain's time, ms.
    build_ms: u64,
    /// The time that one core needs to compile it at each start of a proxy, ms.
    compile_ms: u64,
    #[serde(skip)]
    metadata: Metadata,
}

pub(super) fn build(args: &BuildArgs) -> Result<ExitCode, ApiError> {
    let folder = &args.folder;
    let project = Project::read(folder)?;
    prepare(folder).map_err(|error| ApiError::Usage(format!("{}: {error}", folder.join(WIT).display())))?;
    if project.language == Language::Javascript && !folder.join("node_modules").exists() {
        return Err(ApiError::Usage(format!("what builds it is not in {}: npm install", folder.display())));
    }
    let begun = Instant::now();
    let Some(left) = run(project.language.tool_chain(args.debug), folder)? else {
        return Ok(exit_code::findings());
    };
    let build_ms = millis(begun.elapsed());
    let metadata = project.metadata();
    let module = project.module(folder);
    let refused = |why: String| ApiError::Usage(format!("{}: {why}", module.display()));
    let policy = package(&left, &metadata, args.debug).map_err(refused)?;
    let source = PolicySource {
        name: metadata.name.clone(),
        module: ModuleSource::Bytes(policy.clone()),
        sha256: None,
        limits: Limits::default(),
    };
    let begun = Instant::now();
    let found = policy_host()?.inspect(&source).map_err(|error| ApiError::Usage(error.to_string()))?;
    let compile_ms = millis(begun.elapsed());
    put(&module, &policy).map_err(|error| refused(error.to_string()))?;
    let built = Built {
        module: module.display().to_string(),
        sha256: found.sha256,
        bytes: found.bytes,
        calls: found.calls,
        for_debugging: found.is_for_debugging,
        build_ms,
        compile_ms,
        metadata,
    };
    args.output.print(&built, |_| in_words(&built))?;
    Ok(ExitCode::SUCCESS)
}

/// Prepares the build folder, with the interface of this proxy for generators.
fn prepare(folder: &Path) -> io::Result<()> {
    let wit = folder.join(WIT);
    for (path, text) in
        [("worlds.wit", WORLDS), ("deps/policy/policy.wit", CONTRACT), ("deps/debug/debug.wit", DEBUGGING)]
    {
        let path = wit.join(path);
        fs::create_dir_all(path.parent().unwrap_or(&wit))?;
        fs::write(path, text)?;
    }
    Ok(())
}

/// The output of the tool chain; `None` if it found an error, which it has printed itself.
fn run(tool_chain: ToolChain, folder: &Path) -> Result<Option<Vec<u8>>, ApiError> {
    let ToolChain { mut command, from, leaves } = tool_chain;
    let typed = typed(&command);
    let left = folder.join(leaves);
    let failed = |error: io::Error| ApiError::Usage(format!("{}: {error}", left.display()));
    match fs::remove_file(&left) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    complain!("{typed}");
    // Standard output is for the result.
    let status = command.current_dir(folder).stdin(Stdio::null()).stdout(io::stderr()).status();
    match status {
        Ok(status) if status.success() => fs::read(&left).map(Some).map_err(failed),
        Ok(status) => {
            complain!("lockwarden: {} ended with {status}", program(&command));
            Ok(None)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(ApiError::Usage(format!("{} is not on this machine: install {from}", program(&command))))
        }
        Err(error) => Err(ApiError::Usage(format!("{}: {error}", program(&command)))),
    }
}

fn program(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

/// A command as it would be typed.
fn typed(command: &Command) -> String {
    let set = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
    let mut words: Vec<String> =
        set.map(|(name, value)| format!("{}={}", name.to_string_lossy(), value.to_string_lossy())).collect();
    let arguments = command.get_args().map(|argument| match argument.to_string_lossy() {
        spaced if spaced.contains(' ') => format!("'{spaced}'"),
        plain => plain.into_owned(),
    });
    words.push(program(command));
    words.extend(arguments);
    words.join(" ")
}

/// Writes a file as a whole, or not at all.
fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut beside: OsString = path.as_os_str().to_owned();
    beside.push(".new");
    fs::write(&beside, bytes)?;
    fs::rename(&beside, path)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn in_words(built: &Built) -> String {
    let Built { module, sha256, bytes, calls, build_ms, compile_ms, metadata, .. } = built;
    let calls = calls_in_words(calls);
    let mut text = format!(
        "{}: {} bytes, calls {calls}, built in {} ms; a proxy compiles it in {} ms at each start\n",
        plain(module),
        number(*bytes as u64),
        number(*build_ms),
        number(*compile_ms),
    );
    if built.for_debugging {
        text.push_str("built for debugging: what it prints is shown by test and run, and no proxy loads it\n");
        return text;
    }
    let mut lines = vec![
        ("name", format!("\"{}\"", metadata.name)),
        ("module", format!("\"{}\"", plain(module))),
        ("sha256", format!("\"{sha256}\"")),
    ];
    lines.extend(limits_in_toml(&metadata.limits));
    text.push_str("\n[[policy]]\n");
    for (key, value) in lines {
        text.push_str(&format!("{key:8} = {value}\n"));
    }
    text
}
