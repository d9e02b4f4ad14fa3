//! Says which revision of the source a release is built of. `LOCKWARDEN_REVISION` stands over what git says; a
//! build from an archive knows none, and one for development does not ask, or each commit would build it anew.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=LOCKWARDEN_REVISION");
    let given = env::var("LOCKWARDEN_REVISION").unwrap_or_default();
    let revision = match (given.trim(), env::var("PROFILE").as_deref()) {
        ("", Ok("release")) => committed().unwrap_or_else(|| "unknown".to_owned()),
        ("", _) => "unknown (a build for development)".to_owned(),
        (given, _) => given.to_owned(),
    };
    println!("cargo::rustc-env=LOCKWARDEN_REVISION={revision}");
}

/// The commit that is checked out, if this is a checkout of ours and not an archive inside another one.
fn committed() -> Option<String> {
    let source = env::var("CARGO_MANIFEST_DIR").ok()?;
    let git = |words: &[&str]| {
        let done = Command::new("git").arg("-C").arg(&source).args(words).output();
        let done = done.ok().filter(|done| done.status.success())?;
        let text = String::from_utf8(done.stdout).ok()?;
        Some(text.trim().to_owned())
    };
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    let revision = git(&["rev-parse", "HEAD"])?;
    // It grows with every commit and every checkout, and is the only file that does.
    let log = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"])?;
    if Path::new(&log).exists() {
        println!("cargo::rerun-if-changed={log}");
    }
    Some(revision)
}
