//! What a policy costs in each language: the policy that `lockwarden policy new` creates, as `policy build` and `policy bench`
//! measure it. `cargo run --release -p lockwarden-tests --example language_cost` only prints a table; a language whose tool
//! chain is not there is left out, and named. `docs/policy-authors.md` has a table.

use std::path::Path;
use std::process::Command;

use lockwarden_tests::{binary, lockwarden_at};
use serde_json::Value;

const LANGUAGES: [&str; 5] = ["c", "rust", "go", "python", "javascript"];
/// How often each request is asked: a collector runs now and then.
const COUNT: &str = "20000";
/// The cases of the example that are permitted and refused.
const CASES: [&str; 2] = ["a team's own lock", "a stranger's name"];

fn main() {
    let directory = tempfile::tempdir().expect("a directory");
    println!(
        "{:<12} {:>9} {:>12} {:>10} {:>12} {:>12} {:>10} {:>12} {:>10}",
        "language", "module", "compiling", "start", "permit p50", "deny p50", "fuel", "most fuel", "memory"
    );
    for language in LANGUAGES {
        match measured(directory.path(), language) {
            Ok(row) => println!("{language:<12} {row}"),
            Err(why) => println!("{language:<12} left out: {why}"),
        }
    }
}

fn measured(directory: &Path, language: &str) -> Result<String, String> {
    let folder = directory.join(language).display().to_string();
    typed(&["policy", "new", &folder, "--lang", language])?;
    let built = json(&["policy", "build", &folder, "-o", "json"])?;
    let module = format!("{folder}/{language}.wasm");
    let cases = format!("{folder}/cases.toml");
    let costs = json(&["policy", "bench", "--module", &module, &cases, "--count", COUNT, "-o", "json"])?;
    let of = |name: &str| {
        let mut costs = costs.as_array().into_iter().flatten();
        costs.find(|cost| cost["name"] == name).cloned().ok_or(format!("no case is called {name}"))
    };
    let [permit, deny] = CASES.map(of);
    let (permit, deny) = (permit?, deny?);
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let micros = |value: &Value| format!("{:.2} µs", number(value) / 1e3);
    let row = [
        (9, format!("{:.0} KiB", number(&built["bytes"]) / 1024.0)),
        (12, format!("{:.0} ms", number(&built["compile_ms"]))),
        (10, format!("{:.0} µs", number(&deny["start_ns"]) / 1e3)),
        (12, micros(&permit["p50_ns"])),
        (12, micros(&deny["p50_ns"])),
        (10, deny["fuel"].to_string()),
        (12, deny["max_fuel"].to_string()),
        (10, format!("{:.0} KiB", number(&deny["memory_bytes"]) / 1024.0)),
    ];
    Ok(row.map(|(width, text)| format!("{text:>width$}")).join(" "))
}

fn json(words: &[&str]) -> Result<Value, String> {
    let text = typed(words)?;
    serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))
}

fn typed(words: &[&str]) -> Result<String, String> {
    let mut command: Command = lockwarden_at(&binary(), words);
    let end = command.output().map_err(|error| error.to_string())?;
    match end.status.success() {
        true => Ok(String::from_utf8_lossy(&end.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&end.stderr).lines().last().unwrap_or_default().to_owned()),
    }
}
