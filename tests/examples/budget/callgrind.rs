//! The proxy under `callgrind`, which counts the instructions of all its threads. The count can be read between two commands.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;

use lockwarden_tests::run_to_end;

use crate::program::{Place, Program};

/// A running proxy whose instructions are counted.
pub(crate) struct Counted<'a> {
    place: &'a Place,
    pub(crate) program: Program,
    /// Reports so far, of which each begins to count anew.
    reports: u32,
}

/// Starts the proxy under callgrind.
pub(crate) fn start<'a>(place: &'a Place) -> Result<Counted<'a>, Box<dyn Error>> {
    let program = place.start(&runner(place))?;
    Ok(Counted { place, program, reports: 0 })
}

/// The instructions of `lockwarden check`.
pub(crate) fn check(place: &Place) -> Result<u64, Box<dyn Error>> {
    place.check(&runner(place))?;
    total(&place.file("counts"))
}

fn runner(place: &Place) -> Vec<String> {
    let counts = format!("--callgrind-out-file={}", place.file("counts").display());
    // Threads take turns in the order in which they ask, so that none waits for long.
    let words =
        ["valgrind", "--quiet", "--tool=callgrind", "--dump-line=no", "--fair-sched=yes", &counts, &pipes(place)];
    words.map(str::to_owned).to_vec()
}

/// The pipes between valgrind and the program that queries it.
fn pipes(place: &Place) -> String {
    format!("--vgdb-prefix={}", place.file("valgrind").display())
}

impl Counted<'_> {
    /// The instructions since the last report.
    pub(crate) fn report(&mut self) -> Result<u64, Box<dyn Error>> {
        self.reports += 1;
        let id = format!("--pid={}", self.program.id());
        let mut command = Command::new("vgdb");
        // Not by ptrace, which containers forbid: valgrind looks by itself after some instructions.
        let end = run_to_end(command.args([&pipes(self.place), &id, "--max-invoke-ms=0", "dump"]));
        if end.code != Some(0) {
            return Err(format!("vgdb could not ask callgrind for its counts: {}", end.stderr).into());
        }
        total(&self.place.file(&format!("counts.{}", self.reports)))
    }
}

/// The sum at the end of a file of counts, which is then removed.
fn total(file: &Path) -> Result<u64, Box<dyn Error>> {
    let text = fs::read_to_string(file).map_err(|error| format!("no counts in {}: {error}", file.display()))?;
    fs::remove_file(file)?;
    let line = text.lines().rev().find_map(|line| line.strip_prefix("totals: "));
    let number = line.and_then(|number| number.trim().parse().ok());
    Ok(number.ok_or_else(|| format!("no line `totals: …` in {}", file.display()))?)
}
