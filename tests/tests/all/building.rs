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
