//! Random scripts, against a server alone: which keys they change, and whether the proxy read the same keys in their text. More
//! of them with `make soak`; `LOCKWARDEN_SEED` repeats a run.

use lockwarden_tests::script_fuzzer::{Arena, corpus, run, unforeseen};
use lockwarden_tests::soak::{for_each_seed, number};

#[path = "../../examples/fuzz_scripts/reader.rs"]
mod reader;

/// Scripts of a seed; `LOCKWARDEN_SCRIPTS` asks for another number.
const SCRIPTS: u64 = 2_000;

#[test]
fn scripts_that_were_once_misread_are_not_any_more() {
    let mut arena = Arena::open();
    let scripts = corpus();
    let found = unforeseen(&mut arena, &reader::foreseen, &scripts);
    for (script, keys) in scripts.iter().zip(found) {
        assert!(keys.is_empty(), "changes {keys:?}: {script}");
    }
}

#[test]
fn no_random_script_changes_a_key_that_was_not_read_in_its_text() {
    let mut arena = Arena::open();
    let count = number("LOCKWARDEN_SCRIPTS").unwrap_or(SCRIPTS);
    for_each_seed(&[7], |seed| {
        let account = run(&mut arena, &reader::foreseen, seed, count, 1);
        if let Some(hole) = account.holes.first() {
            panic!(
                "LOCKWARDEN_SEED={seed} LOCKWARDEN_SCRIPTS={count}: after {} scripts, changes {:?}:\n  {}",
                account.made,
                hole.keys.iter().map(|key| key.escape_ascii().to_string()).collect::<Vec<_>>(),
                hole.script
            );
        }
        eprintln!("seed {seed}: {} of {} scripts say something", account.telling, account.made);
        assert!(account.telling > count / 20, "the scripts say little");
    });
}
