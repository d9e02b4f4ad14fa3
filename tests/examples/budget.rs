//! What the proxy costs, compared with the table in `docs/performance.md`: `make check-budget` fails where a cost has grown,
//! and asks for the new number where it has fallen. It measures the test build, which CI has anyway. That build is not
//! optimised, so its numbers are not those of a release; but whatever makes a release do more work makes this build do more,
//! too. Instructions are counted by `callgrind`, since times on a shared machine prove nothing. `UPDATE_DOCS=1 make
//! check-budget` writes the numbers.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use lockwarden_tests::budget::{Compared, Measure, Verdict, compare, rewritten};
use lockwarden_tests::{binary, installed};

use crate::program::Place;

#[path = "budget/callgrind.rs"]
mod callgrind;
#[path = "budget/instructions.rs"]
mod instructions;
#[expect(dead_code, reason = "the bench has more loads than are counted here")]
#[path = "bench/load.rs"]
mod load;
#[path = "budget/memory.rs"]
mod memory;
#[expect(dead_code, reason = "the bench asks the system for more")]
#[path = "bench/process.rs"]
mod process;
#[path = "budget/program.rs"]
mod program;
#[path = "bench/replies.rs"]
mod replies;
#[path = "budget/size.rs"]
mod size;
#[path = "budget/wire.rs"]
mod wire;

/// Two for each idle connection, and some of the proxy's own.
const DESCRIPTORS: u64 = 8192;

fn main() -> ExitCode {
    match check() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("budget: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether everything costs what the page says, or that was written there.
fn check() -> Result<bool, Box<dyn Error>> {
    let begun = Instant::now();
    let file = page();
    let text = fs::read_to_string(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let measured = measure()?;
    let compared = compare(&text, &measured)?;
    print(&compared);
    println!("(measured in {:.0} s)", begun.elapsed().as_secs_f64());
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&file, rewritten(&text, &measured))?;
        println!("\nwritten to docs/performance.md: say there what each growth buys");
        return Ok(true);
    }
    let holds = compared.iter().all(|one| one.verdict() == Verdict::Holds);
    if !holds {
        println!(
            "\nThe lines with words at their end differ from the table in docs/performance.md. Where a cost is not wanted, find it;\n\
             `UPDATE_DOCS=1 make check-budget` writes the new numbers, and the last cell of a line says what its growth buys."
        );
    }
    Ok(holds)
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/performance.md")
}

fn measure() -> Result<Vec<Measure>, Box<dyn Error>> {
    if !installed(&["valgrind", "vgdb"]) {
        return Err("nothing was measured, for want of valgrind".into());
    }
    process::allow_descriptors(DESCRIPTORS)?;
    // A Redis each, since a proxy looks after the locks that others have left there.
    let [counted, weighed] = [Place::new()?, Place::new()?];
    let (measured, memory) = thread::scope(|scope| {
        let memory = scope.spawn(|| memory::measure(&weighed).map_err(|error| error.to_string()));
        (instructions::measure(&counted), memory.join().expect("what measures memory returns errors"))
    });
    let mut measured = measured?;
    measured.extend(memory?);
    measured.push(size::measure(&binary())?);
    Ok(measured)
}

fn print(compared: &[Compared]) {
    println!("{:<58}{:>14}{:>14}", "of the test build", "is", "noted");
    for one in compared {
        println!("{one}");
    }
}
