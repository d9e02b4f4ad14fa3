//! What a build says of itself, and what a machine is told that cannot build.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lockwarden_tests::run_to_end;
use tempfile::TempDir;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The build script of the binary, as a program.
fn build_script(into: &TempDir) -> PathBuf {
    let program = into.path().join("script");
    let source = repository().join("proxy/server/build.rs");
    let mut rustc = Command::new(std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned()));
    let end = run_to_end(
        rustc
            .arg("--edition=2024")
            .arg(&source)
            .arg("-o")
            .arg(&program),
    );
    assert_eq!(end.code, Some(0), "{end:?}");
    program
}

fn git(directory: &Path, words: &[&str]) -> String {
    let mut git = Command::new("git");
    git.arg("-C").arg(directory);
    git.args(["-c", "user.name=a", "-c", "user.email=a@b.c"])
        .args(words);
    run_to_end(&mut git).stdout.trim().to_owned()
}

#[test]
fn a_release_knows_the_revision_that_it_was_built_of() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = build_script(&directory);
    let revision = |source: &Path, profile: &str, given: &str| {
        let mut command = Command::new(&program);
        command
            .env("CARGO_MANIFEST_DIR", source)
            .env("PROFILE", profile)
            .env("LOCKWARDEN_REVISION", given);
        let end = run_to_end(&mut command);
        let (_, rest) = end
            .stdout
            .split_once("cargo::rustc-env=LOCKWARDEN_REVISION=")
            .unwrap_or_else(|| panic!("{end:?}"));
        (rest.trim().to_owned(), end.stdout.contains("logs/HEAD"))
    };
    let source = directory.path().join("source");
    fs::create_dir(&source).expect("the directory is ours");
    fs::write(source.join("build.rs"), "").expect("the directory is ours");

    // An archive, alone and unpacked inside somebody's checkout.
    assert_eq!(revision(&source, "release", "").0, "unknown");
    git(directory.path(), &["init", "-q"]);
    git(
        directory.path(),
        &["commit", "-q", "--allow-empty", "-m", "another project"],
    );
    assert_eq!(revision(&source, "release", "").0, "unknown");

    // A checkout: built anew when another commit is checked out.
    git(directory.path(), &["add", "source/build.rs"]);
    git(directory.path(), &["commit", "-q", "-m", "this project"]);
    let head = git(directory.path(), &["rev-parse", "HEAD"]);
    assert_eq!(head.len(), 40, "{head}");
    assert_eq!(revision(&source, "release", ""), (head, true));

    // At a desk nothing is built anew for a commit.
    let (said, watches) = revision(&source, "debug", "");
    assert!(said.contains("development") && !watches, "{said}");
    assert_eq!(
        revision(&source, "release", "v1.2"),
        ("v1.2".to_owned(), false)
    );
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
    fs::write(
        home.join("sysroot/lib/rustlib/manifest-rust-std-wasm32-unknown-unknown"),
        format!("file:{file}\n"),
    )
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
        command
            .env_remove("CI")
            .env("CARGO_HOME", machine.path().join("cargo"));
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
            assert!(
                end.stdout.contains("libcore-1.rlib is missing or empty"),
                "{end:?}"
            );
            let told = end.stderr.contains("rustup toolchain uninstall")
                && end.stderr.contains("libcore-1.rlib");
            assert_eq!(
                (end.code, told),
                (Some(i32::from(!mends)), !mends),
                "{end:?}"
            );
        }
    }

    let (without, _) = machine("true");
    fs::write(
        without.path().join("cargo/bin/rustc"),
        "#!/bin/sh\necho 'error: no such thing' >&2\nexit 1\n",
    )
    .expect("the file is ours");
    let end = set_up(&without);
    assert!(
        end.stderr
            .contains("rustc does not run (error: no such thing)"),
        "{end:?}"
    );
}
