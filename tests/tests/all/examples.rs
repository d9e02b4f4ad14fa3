//! The binary accepts the examples for operators.

use std::path::{Path, PathBuf};

use lockwarden_tests::{lockwarden, run_to_end};

fn example(name: &str) -> String {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples");
    let path: PathBuf = examples.join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn the_unit_starts_the_binary_with_flags_that_it_has() {
    let unit = example("lockwarden.service");
    let start = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/lockwarden "))
        .expect("the unit starts something");
    let mut words: Vec<&str> = start.split(' ').collect();
    let file = words.iter().position(|word| word.starts_with('/'));
    words[file.expect("it names a configuration")] = "/nowhere/lockwarden.toml";
    let end = run_to_end(&mut lockwarden(&words));
    assert_eq!(end.code, Some(2), "{end:?}");
    assert!(
        end.stderr.contains("cannot read the file"),
        "a flag that is not known would be the first complaint: {end:?}"
    );
}
