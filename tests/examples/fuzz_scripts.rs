//! Runs random scripts on a private server and prints those that change a key that the proxy did not read in their text.
//! First the scripts that were found before, then the given number of new ones: `cargo run -p lockwarden-tests --example
//! fuzz_scripts -- --count 1000000 --seed 1`.

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use lockwarden_tests::script_fuzzer::{Arena, corpus, run, unforeseen};

#[path = "fuzz_scripts/reader.rs"]
mod reader;

#[derive(Parser)]
#[command(about = "Random scripts against what the proxy reads in their text.")]
struct Options {
    /// So many scripts.
    #[arg(long, default_value_t = 100_000)]
    count: u64,
    /// Which ones.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many that were not foreseen are looked for before it ends.
    #[arg(long, default_value_t = 20)]
    holes: usize,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut arena = Arena::open();
    let known = corpus();
    let found = unforeseen(&mut arena, &reader::foreseen, &known);
    let mut holes = 0;
    for (script, keys) in known.iter().zip(found).filter(|(_, keys)| !keys.is_empty()) {
        holes += 1;
        say("known", script, &keys);
    }
    let began = Instant::now();
    let account = run(&mut arena, &reader::foreseen, options.seed, options.count, options.holes);
    for hole in &account.holes {
        holes += 1;
        say("found", &hole.script, &hole.keys);
    }
    println!(
        "seed {}: {} scripts in {:.0} s; {} were read, {} of these changed keys that they do not declare, {} did not end; {} of {} known ones and {} new ones were not foreseen",
        options.seed,
        account.made,
        began.elapsed().as_secs_f64(),
        account.read,
        account.telling,
        account.endless,
        holes - account.holes.len(),
        known.len(),
        account.holes.len(),
    );
    if holes == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn say(which: &str, script: &lockwarden_tests::script_fuzzer::Script, keys: &[Vec<u8>]) {
    let keys: Vec<String> = keys.iter().map(|key| key.escape_ascii().to_string()).collect();
    println!("{which}: changes {}\n  {script}", keys.join(", "));
}
