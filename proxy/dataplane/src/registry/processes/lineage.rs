//! A process of this machine during its lifetime, and its ancestor processes. This much can be seen even by a user
//! who may not see a process's files.

use std::collections::HashMap;
use std::fs;
use std::io::Read as _;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lockwarden_lock::token::Process;

use super::namespaces::{MACHINE, PROCESS_NAMESPACE};

/// The number of ancestors that are looked at, the nearest: a shell, its subshells, and what may be between.
const MAX_ANCESTORS: usize = 8;

/// For this long the ancestors of a process are not looked up again: clients that are started one after the other
/// have the same ancestors.
pub(super) const KEPT: Duration = Duration::from_secs(5);

/// Processes whose ancestors are kept; beyond this limit all are forgotten and looked up again.
const MAX_KEPT: usize = 1024;

/// The ancestors that were found lately, by process.
static LATELY: LazyLock<Mutex<HashMap<Running, (Instant, Lineage)>>> = LazyLock::new(Mutex::default);

/// Bytes of the longest line that the kernel writes of a process: 52 numbers and a name.
const MAX_STAT: usize = 2048;

/// Bytes of a program's name that are read; the kernel keeps 15 and adds an end of line.
const MAX_PROGRAM: usize = 64;

/// A process. Its number may be given later to another one, which has another start time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Running {
    number: u32,
    started: String,
}

/// What the kernel reports of a process.
struct Stat {
    state: u8,
    parent: u32,
    session: u32,
    started: String,
}

impl Running {
    /// The process that has this number now.
    pub fn of(number: u32) -> Option<Running> {
        let started = stat(number)?.started;
        Some(Running { number, started })
    }

    /// The same, with the number of its parent, if it has one that is not init.
    pub(super) fn with_parent(number: u32) -> Option<(Running, Option<u32>)> {
        let stat = stat(number)?;
        let parent = (stat.parent > 1).then_some(stat.parent);
        let started = stat.started;
        Some((Running { number, started }, parent))
    }

    /// An id that differs from that of every other process, on other machines, too.
    pub fn process(&self) -> Process {
        Process::of(&[&MACHINE, PROCESS_NAMESPACE.as_bytes(), &self.number.to_be_bytes(), self.started.as_bytes()])
    }

    /// Its number, which is unique while it is alive.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The name of the program, as `ps -o comm` has it: at most 15 bytes, which the program may have chosen. `None`
    /// when the process is gone.
    pub fn program(&self) -> Option<Vec<u8>> {
        let mut name = fs::read(format!("/proc/{}/comm", self.number)).ok()?;
        name.truncate(MAX_PROGRAM);
        if name.last() == Some(&b'\n') {
            name.pop();
        }
        // The number may have been given to another process in the meantime.
        self.is_alive().then_some(name)
    }

    pub(crate) fn is_alive(&self) -> bool {
        let stat = stat(self.number);
        // A dead one may be listed until its parent collects its status.
        stat.is_some_and(|stat| stat.started == self.started && !b"ZXx".contains(&stat.state))
    }

    /// The process and its ancestors, the nearest first, as far as they belong to one session: what started that
    /// session (a terminal, cron, a service manager) works on when all this is over.
    pub fn lineage(&self) -> Lineage {
        self.lineage_lately().filter(|_| self.is_alive()).unwrap_or_else(|| self.lineage_now())
    }

    /// The same for a process that was seen to be alive just now.
    pub(super) fn lineage_of_living(&self) -> Lineage {
        self.lineage_lately().unwrap_or_else(|| self.lineage_now())
    }

    fn lineage_now(&self) -> Lineage {
        let mut lineage = Lineage { processes: vec![self.clone()], is_whole: false };
        let Some(own) = stat(self.number).filter(|stat| stat.started == self.started) else {
            return lineage;
        };
        let mut parent = own.parent;
        while parent > 1 {
            if lineage.processes.len() > MAX_ANCESTORS {
                return lineage;
            }
            // The parent was there a moment ago: had it ended before, its child would have another parent by now.
            let Some(stat) = stat(parent) else {
                return lineage;
            };
            if stat.session != own.session {
                break;
            }
            let ancestor = Running { number: parent, started: stat.started };
            if let Some(known) = ancestor.lineage_lately() {
                lineage.processes.extend(known.processes);
                lineage.processes.truncate(MAX_ANCESTORS + 1);
                lineage.is_whole = lineage.processes.len() <= MAX_ANCESTORS;
                lineage.keep();
                return lineage;
            }
            lineage.processes.push(ancestor);
            parent = stat.parent;
        }
        lineage.is_whole = true;
        lineage.keep();
        lineage
    }

    /// The same, if it was found lately.
    fn lineage_lately(&self) -> Option<Lineage> {
        let lately = LATELY.lock().unwrap_or_else(PoisonError::into_inner);
        let (found, lineage) = lately.get(self)?;
        (found.elapsed() < KEPT).then(|| lineage.clone())
    }
}

impl Lineage {
    /// Keeps a complete lineage for a while: for its process and for its ancestors.
    fn keep(&self) {
        if !self.is_whole {
            return;
        }
        let mut lately = LATELY.lock().unwrap_or_else(PoisonError::into_inner);
        if lately.len() + self.processes.len() > MAX_KEPT {
            lately.clear();
        }
        let now = Instant::now();
        for (place, process) in self.processes.iter().enumerate() {
            let kept = lately.get(process);
            if kept.is_none_or(|(found, _)| found.elapsed() >= KEPT) {
                let lineage = Lineage { processes: self.processes[place..].to_vec(), is_whole: true };
                lately.insert(process.clone(), (now, lineage));
            }
        }
    }
}

/// A process and its ancestors.
#[derive(Clone, Debug, Default)]
pub struct Lineage {
    /// The nearest first.
    pub(crate) processes: Vec<Running>,
    /// All of them could be looked at. If not, a missing one proves nothing.
    pub(crate) is_whole: bool,
}

fn stat(number: u32) -> Option<Stat> {
    // In one read: asking first for the size of such a file, and then for its end, takes five calls of the kernel.
    let mut text = [0; MAX_STAT];
    let mut file = fs::File::open(format!("/proc/{number}/stat")).ok()?;
    let length = file.read(&mut text).ok()?;
    parse(&String::from_utf8_lossy(&text[..length]))
}

/// The name in parentheses may hold anything, also parentheses and blanks.
fn parse(text: &str) -> Option<Stat> {
    let (_, after_name) = text.rsplit_once(')')?;
    let mut words = after_name.split_ascii_whitespace();
    let state = *words.next()?.as_bytes().first()?;
    let parent = words.next()?.parse().ok()?;
    let session = words.nth(1)?.parse().ok()?;
    let started = words.nth(15)?.to_owned();
    Some(Stat { state, parent, session, started })
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn what_the_kernel_says_is_found_behind_any_name() {
        let text = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        let stat = parse(text).expect("a line as the kernel writes it");
        assert_eq!((stat.state, stat.parent, stat.session), (b'S', 1, 3));
        assert_eq!(stat.started, "4711");
        assert!(parse("7 (a) S").is_none());
    }

    #[test]
    fn a_process_lives_until_it_ends_and_comes_from_this_one() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat can be started");
        let child_of_ours = Running::of(child.id()).expect("it waits for its input");
        let ours = Running::of(std::process::id()).expect("this one runs");
        let lineage = child_of_ours.lineage();
        // The tests may run within many shells.
        assert!(lineage.is_whole || lineage.processes.len() > MAX_ANCESTORS);
        assert_eq!(lineage.processes[..2], [child_of_ours.clone(), ours]);
        assert!(child_of_ours.is_alive());
        drop(child.stdin.take());
        // Dead, though its parent took no note of it.
        while child_of_ours.is_alive() {
            std::thread::yield_now();
        }
        child.wait().expect("it ended");
        assert!(!child_of_ours.is_alive());
        let lineage = child_of_ours.lineage();
        assert!(!lineage.is_whole, "{lineage:?}");
    }
}
