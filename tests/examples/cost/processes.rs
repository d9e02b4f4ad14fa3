//! What the system knows about a process: whose child it is, and how much CPU time it took. Reads
//! `/proc`, so Linux only.

use std::error::Error;
use std::fs;
use std::process;
use std::time::Duration;

/// `/proc` counts CPU time in hundredths of a second for everybody, whatever the kernel's own rate.
const TICK: Duration = Duration::from_millis(10);

/// User and system time of all threads so far, in steps of 10 ms.
pub(crate) fn cpu_time(id: u32) -> Result<Duration, Box<dyn Error>> {
    let stat = Stat::of(id)?;
    Ok(TICK * u32::try_from(stat.number(11)? + stat.number(12)?)?)
}

/// Starts something that starts one process, and says which.
pub(crate) fn started_by<T>(start: impl FnOnce() -> T) -> Result<(T, u32), Box<dyn Error>> {
    let before = children()?;
    let started = start();
    let mut new = children()?;
    new.retain(|id| !before.contains(id));
    match new.as_slice() {
        &[id] => Ok((started, id)),
        several => Err(format!("one new process was expected, not {}", several.len()).into()),
    }
}

fn children() -> Result<Vec<u32>, Box<dyn Error>> {
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(id) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process may end while we look.
        let Ok(stat) = Stat::of(id) else { continue };
        if stat.number(1)? == u64::from(process::id()) {
            children.push(id);
        }
    }
    Ok(children)
}

/// `PID (program) state ppid …`; the program's name may hold blanks and brackets.
struct Stat(String);

impl Stat {
    fn of(id: u32) -> Result<Stat, Box<dyn Error>> {
        Ok(Stat(fs::read_to_string(format!("/proc/{id}/stat"))?))
    }

    /// The number that stands this many fields behind the program's name, from 0.
    fn number(&self, at: usize) -> Result<u64, Box<dyn Error>> {
        let (_, fields) = self
            .0
            .rsplit_once(')')
            .ok_or("a stat line without a name")?;
        let field = fields.split_whitespace().nth(at);
        Ok(field.ok_or("a short stat line")?.parse()?)
    }
}
