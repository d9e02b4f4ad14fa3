//! The bench, once and short: everything starts, every reply is what it must be, every way is measured. The
//! measured numbers are not checked here.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lockwarden_tests::binary;
use serde_json::Value;

const LOADS: [&str; 6] = ["plain", "pipeline", "legacy", "good-hot", "good-free", "mix"];
const WAYS: [&str; 6] = ["direct-unix", "forwarder", "dedicated", "dedicated-unix", "multiplexed", "forgets"];

/// Where `make test` builds it; a run of this test alone may not have.
fn program() -> Option<PathBuf> {
    let test = env::current_exe().expect("the system knows this program's path");
    let profile = test.parent().and_then(Path::parent);
    let program = profile.expect("tests lie in deps/").join("examples/bench");
    if program.is_file() {
        return Some(program);
    }
    assert!(env::var_os("CI").is_none(), "no {}", program.display());
    eprintln!("skipped: no {}; make test builds it", program.display());
    None
}

/// What it says, and the loads of its JSON.
fn measures(loads: &[&str], ways: &[&str]) -> Option<(String, Value)> {
    let program = program()?;
    let directory = tempfile::tempdir().expect("a directory");
    let json = directory.path().join("figures.json");
    let output = Command::new(program)
        .args(["--pin", "free", "--rounds", "1", "--secs", "0.1", "--no-footprint"])
        .args(["--targets", &ways.join(","), "--only", &loads.join(",")])
        .arg("--proxy")
        .arg(binary())
        .arg("--json")
        .arg(&json)
        .output()
        .expect("it was built");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{errors}");
    let mut found: Value = serde_json::from_slice(&fs::read(&json).expect("it was written")).expect("it is JSON");
    Some((said, found["loads"].take()))
}

/// The element whose field has this value.
#[track_caller]
fn one_that<'a>(list: &'a Value, field: &str, is: &str) -> &'a Value {
    let mut all = list.as_array().into_iter().flatten();
    all.find(|one| one[field] == is).unwrap_or_else(|| panic!("no {field} {is}: {list}"))
}

#[track_caller]
fn every_one_is_measured(loads: &[&str], ways: &[&str]) {
    let Some((said, found)) = measures(loads, ways) else { return };
    for load in loads {
        let table = one_that(&found, "load", load);
        for way in [&["direct"], ways].concat() {
            let row = one_that(&table["ways"], "way", way);
            let commands = row["rounds"][0]["commands"].as_u64();
            assert!(commands > Some(0), "{load}, {way}: {row}");
        }
    }
    assert!(said.contains("\ngoals"), "{said}");
}

#[test]
fn the_bench_measures_every_load() {
    every_one_is_measured(&LOADS, &["dedicated"]);
}

#[test]
fn the_bench_measures_over_every_way() {
    every_one_is_measured(&["good-hot"], &WAYS);
}
