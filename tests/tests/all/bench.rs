//! The bench, once and short: everything starts, every reply is what it must be, every way is measured. The
//! measured numbers are not checked here.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use lockwarden_tests::binary;
use serde_json::Value;

const LOADS: [&str; 6] = ["plain", "pipeline", "legacy", "good-hot", "good-free", "mix"];

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

#[test]
fn the_bench_measures_every_load_over_every_way() {
    let Some(program) = program() else { return };
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("figures.json");
    let output = Command::new(program)
        .args(["--pin", "free", "--rounds", "1", "--secs", "0.1", "--no-footprint"])
        .args(["--targets", "direct-unix,forwarder,dedicated,dedicated-unix,multiplexed,forgets"])
        .args(["--only", &LOADS.join(",")])
        .arg("--proxy")
        .arg(binary())
        .arg("--json")
        .arg(&json)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{errors}");

    let found: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    for load in LOADS {
        let loads = found["loads"].as_array().unwrap();
        let table = loads.iter().find(|table| table["load"] == load).unwrap();
        for way in ["direct", "direct-unix", "forwarder", "dedicated", "dedicated-unix", "multiplexed", "forgets"] {
            let ways = table["ways"].as_array().unwrap();
            let row = ways.iter().find(|row| row["way"] == way).unwrap();
            let commands = row["rounds"][0]["commands"].as_u64();
            assert!(commands > Some(0), "{load}, {way}: {row}");
        }
    }
    assert!(said.contains("\ngoals"), "{said}");
}
