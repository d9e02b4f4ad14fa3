//! What a build reports about itself, and the message on a machine that cannot build.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lockwarden_tests::{installed, run_to_end};
use tempfile::TempDir;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A build script, as a program.
fn build_script(of: &str, into: &TempDir) -> PathBuf {
    let program = into.path().join("script");
    let source = repository().join(of);
    let mut rustc = Command::new(std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned()));
    let end = run_to_end(rustc.arg("--edition=2024").arg(&source).arg("-o").arg(&program));
    assert_eq!(end.code, Some(0), "{end:?}");
    program
}

fn git(directory: &Path, words: &[&str]) -> String {
    let mut git = Command::new("git");
    git.arg("-C").arg(directory);
    git.args(["-c", "user.name=a", "-c", "user.email=a@b.c"]).args(words);
    run_to_end(&mut git).stdout.trim().to_owned()
}

/// The profile of tests is that of dependencies: a member that it does not name would be tested without checks of overflow.
#[test]
fn every_member_is_tested_with_debug_assertions() {
    let read = |path: &str| -> toml::Table {
        let text = fs::read_to_string(repository().join(path).join("Cargo.toml")).expect("it is there");
        text.parse().expect("it is TOML")
    };
    let workspace = read(".");
    let members = workspace["workspace"]["members"].as_array().expect("a list");
    for member in members {
        let manifest = read(member.as_str().expect("a path"));
        let name = manifest["package"]["name"].as_str().expect("a name");
        let profile = workspace["profile"]["dev"]["package"].get(name);
        let checks = profile.map(|one| ["debug-assertions", "overflow-checks"].map(|key| one[key].as_bool()));
        assert_eq!(checks, Some([Some(true); 2]), "{name} in [profile.dev.package]");
    }
}

#[test]
fn a_release_knows_the_revision_that_it_was_built_of() {
    if !installed(&["git"]) {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let program = build_script("proxy/control/build.rs", &directory);
    let revision = |source: &Path, profile: &str, given: &str| {
        let mut command = Command::new(&program);
        command.env("CARGO_MANIFEST_DIR", source).env("PROFILE", profile).env("LOCKWARDEN_REVISION", given);
        let end = run_to_end(&mut command);
        let (_, rest) =
            end.stdout.split_once("cargo::rustc-env=LOCKWARDEN_REVISION=").unwrap_or_else(|| panic!("{end:?}"));
        (rest.trim().to_owned(), end.stdout.contains("logs/HEAD"))
    };
    let source = directory.path().join("source");
    fs::create_dir(&source).expect("the directory is ours");
    fs::write(source.join("build.rs"), "").expect("the directory is ours");

    // An archive, alone and unpacked inside the checkout of another project.
    assert_eq!(revision(&source, "release", "").0, "unknown");
    git(directory.path(), &["init", "-q"]);
    git(directory.path(), &["commit", "-q", "--allow-empty", "-m", "another project"]);
    assert_eq!(revision(&source, "release", "").0, "unknown");

    // A checkout: built anew when another commit is checked out.
    git(directory.path(), &["add", "source/build.rs"]);
    git(directory.path(), &["commit", "-q", "-m", "this project"]);
    let head = git(directory.path(), &["rev-parse", "HEAD"]);
    assert_eq!(head.len(), 40, "{head}");
    assert_eq!(revision(&source, "release", ""), (head, true));

    // In a debug build nothing is built anew for a commit.
    let (said, watches) = revision(&source, "debug", "");
    assert!(said.contains("development") && !watches, "{said}");
    assert_eq!(revision(&source, "release", "v1.2"), ("v1.2".to_owned(), false));
}

/// Where the toolchain was installed before without the target, rustup installs nothing by itself.
#[test]
fn a_build_without_the_target_of_the_policies_says_what_to_type() {
    let directory = tempfile::tempdir().expect("a directory");
    let script = build_script("proxy/policy/build.rs", &directory);
    let (rustc, cargo) = (directory.path().join("rustc"), directory.path().join("cargo"));
    let library = directory.path().join("library");
    for (program, text) in [(&rustc, format!("echo {}", library.display())), (&cargo, "echo built; exit 3".to_owned())]
    {
        fs::write(program, format!("#!/bin/sh\n{text}\n")).expect("the directory is ours");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(program, mode).expect("the file is ours");
    }
    let build = || {
        let mut command = Command::new(&script);
        command
            .env("RUSTC", &rustc)
            .env("CARGO", &cargo)
            .env("CARGO_MANIFEST_DIR", repository().join("proxy/policy"))
            .env("OUT_DIR", directory.path());
        run_to_end(&mut command)
    };
    let end = build();
    let error = end.stdout.lines().last().unwrap_or_default();
    assert!(
        error.starts_with("cargo::error=") && error.contains("type `rustup target add wasm32-unknown-unknown`"),
        "{end:?}"
    );
    assert!(!end.stdout.contains("built"), "{end:?}");
    assert_eq!(end.code, Some(1), "{end:?}");

    // Where it is there, cargo is asked, and says itself what is wrong.
    fs::create_dir(&library).expect("the directory is ours");
    let end = build();
    assert!(end.stdout.contains("built\n"), "{end:?}");
    assert!(!end.stdout.contains("rustup"), "{end:?}");
}

/// A machine with a Rust of its own, which is a few scripts: `rustup target add` runs `repair`.
fn machine(repair: &str) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let home = directory.path();
    let target = home.join("sysroot/lib/rustlib/wasm32-unknown-unknown/lib");
    let programs = home.join("cargo/bin");
    for directory in [&target, &programs, &home.join("work/.ci")] {
        fs::create_dir_all(directory).expect("the directory is ours");
    }
    let file = "lib/rustlib/wasm32-unknown-unknown/lib/libcore-1.rlib";
    let library = home.join("sysroot").join(file);
    fs::write(&library, "core").expect("the directory is ours");
    fs::write(home.join("sysroot/lib/rustlib/manifest-rust-std-wasm32-unknown-unknown"), format!("file:{file}\n"))
        .expect("the directory is ours");
    for (name, text) in [
        ("cargo", String::new()),
        ("rustc", format!("echo {}", target.display())),
        (
            "rustup",
            format!(
                "echo \"$@\" >>{0}/asked\nif [ \"$1 $2\" = 'target add' ]; then {repair} >{1}; fi",
                home.display(),
                library.display()
            ),
        ),
    ] {
        let program = programs.join(name);
        fs::write(&program, format!("#!/bin/sh\n{text}\n")).expect("the directory is ours");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&program, mode).expect("the file is ours");
    }
    for file in [".ci/setup.sh", "rust-toolchain.toml"] {
        fs::copy(repository().join(file), home.join("work").join(file)).expect("it is there");
    }
    (directory, library)
}

#[test]
fn a_damaged_rust_is_mended_or_the_machine_is_told_what_to_type() {
    let set_up = |machine: &TempDir| {
        let mut command = Command::new(machine.path().join("work/.ci/setup.sh"));
        command.env_remove("CI").env("CARGO_HOME", machine.path().join("cargo"));
        run_to_end(&mut command)
    };
    let (whole, _) = machine("true");
    let end = set_up(&whole);
    assert_eq!((end.code, end.stdout.as_str()), (Some(0), ""), "{end:?}");

    for (repair, mends) in [("echo core", true), ("true", false)] {
        for is_lost in [true, false] {
            let (machine, library) = machine(repair);
            if is_lost {
                fs::remove_file(&library).expect("the file is ours");
            } else {
                fs::write(&library, "").expect("the file is ours");
            }
            let end = set_up(&machine);
            let asked = fs::read_to_string(machine.path().join("asked")).unwrap_or_default();
            assert!(asked.contains("target remove --toolchain"), "{asked}");
            assert!(end.stdout.contains("libcore-1.rlib is missing or empty"), "{end:?}");
            let told = end.stderr.contains("rustup toolchain uninstall") && end.stderr.contains("libcore-1.rlib");
            assert_eq!((end.code, told), (Some(i32::from(!mends)), !mends), "{end:?}");
        }
    }

    let (without, _) = machine("true");
    fs::write(without.path().join("cargo/bin/rustc"), "#!/bin/sh\necho 'error: no such thing' >&2\nexit 1\n")
        .expect("the file is ours");
    let end = set_up(&without);
    assert!(end.stderr.contains("rustc does not run (error: no such thing)"), "{end:?}");
}

/// Of a minimal Debian, where there is neither `kill` nor `ps`.
const EVERYWHERE: [&str; 10] = ["bash", "chroot", "find", "gzip", "id", "mkfifo", "setpriv", "sh", "sha256sum", "tar"];
/// With what is built already or was asked for: Rust, npm, and the libraries of `make test-clients`.
const COMES_ALONG: [&str; 3] = ["cargo", "java", "node"];

#[test]
fn tests_run_no_program_that_neither_a_minimal_system_has_nor_set_up_looks_for() {
    let set_up = fs::read_to_string(repository().join(".ci/setup.sh")).expect("it is there");
    let is_looked_for = |program: &str| {
        let mut words = set_up.split(|c: char| !c.is_alphanumeric() && c != '-');
        words.any(|word| word == program)
    };
    let mut programs = BTreeSet::new();
    for folder in ["src", "tests", "examples"] {
        for file in sources(&repository().join("tests").join(folder)) {
            let source = fs::read_to_string(&file).expect("it is there");
            let found = source.split("Command::new(\"").skip(1);
            programs.extend(found.map(|rest| rest.split('"').next().unwrap_or_default().to_owned()));
        }
    }
    assert!(programs.contains("sh"), "{programs:?}");
    programs.retain(|program| {
        let known = [&EVERYWHERE[..], &COMES_ALONG].concat();
        !known.contains(&&**program) && !is_looked_for(program)
    });
    assert_eq!(programs, BTreeSet::new());
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("it is there") {
        let path = entry.expect("it is there").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}
