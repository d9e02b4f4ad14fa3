//! A process of this machine as long as it lives, and the processes that it comes from. Whoever may not see a
//! process's files may still see this much of it.

use std::fs;

use lockwarden_lock::token::Process;

use super::namespaces::{MACHINE, PROCESS_NAMESPACE};

/// The nearest ancestors that are looked at: a shell, its subshells, and what may stand between.
const MAX_ANCESTORS: usize = 8;

/// What is read of a program's name, bytes; the kernel keeps 15 and adds an end of line.
const MAX_PROGRAM: usize = 64;

/// A process. Its number may be given to another one later, which began at another time.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Running {
    number: u32,
    started: String,
}

/// What the kernel says of a process.
struct Stat {
    state: u8,
    parent: u32,
    session: u32,
    started: String,
}

impl Running {
    /// The process that has this number now.
    pub(crate) fn of(number: u32) -> Option<Running> {
        let started = stat(number)?.started;
        Some(Running { number, started })
    }

    /// The number of its parent.
    pub(super) fn parent_of(number: u32) -> Option<u32> {
        let parent = stat(number)?.parent;
        (parent > 1).then_some(parent)
    }

    /// What tells it from every other process, of other machines, too.
    pub(crate) fn process(&self) -> Process {
        Process::of(&[
            &MACHINE,
            PROCESS_NAMESPACE.as_bytes(),
            &self.number.to_be_bytes(),
            self.started.as_bytes(),
        ])
    }

    /// Its number, which means it as long as it is alive.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// The name of the program, as `ps -o comm` has it: at most 15 bytes, which the program may have chosen. `None`
    /// when the process is gone.
    pub(crate) fn program(&self) -> Option<Vec<u8>> {
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
        // A dead one may stand there until its parent takes note.
        stat.is_some_and(|stat| stat.started == self.started && !b"ZXx".contains(&stat.state))
    }

    /// The process and those that it comes from, the nearest first, as far as they are of one session: what started that
    /// (a terminal, cron, a service manager) works on when all this is over.
    pub(crate) fn lineage(&self) -> Vec<Running> {
        let mut lineage = vec![self.clone()];
        let Some(own) = stat(self.number).filter(|stat| stat.started == self.started) else {
            return lineage;
        };
        let mut parent = own.parent;
        while parent > 1 && lineage.len() <= MAX_ANCESTORS {
            let Some(stat) = stat(parent).filter(|stat| stat.session == own.session) else {
                break;
            };
            lineage.push(Running {
                number: parent,
                started: stat.started,
            });
            parent = stat.parent;
        }
        lineage
    }
}

fn stat(number: u32) -> Option<Stat> {
    parse(&fs::read_to_string(format!("/proc/{number}/stat")).ok()?)
}

/// The name in parentheses may hold anything, also parentheses and blanks.
fn parse(text: &str) -> Option<Stat> {
    let (_, after_name) = text.rsplit_once(')')?;
    let mut words = after_name.split_ascii_whitespace();
    let state = *words.next()?.as_bytes().first()?;
    let parent = words.next()?.parse().ok()?;
    let session = words.nth(1)?.parse().ok()?;
    let started = words.nth(15)?.to_owned();
    Some(Stat {
        state,
        parent,
        session,
        started,
    })
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
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .spawn()
            .expect("cat can be started");
        let child_of_ours = Running::of(child.id()).expect("it waits for its input");
        let ours = Running::of(std::process::id()).expect("this one runs");
        assert_eq!(child_of_ours.lineage()[..2], [child_of_ours.clone(), ours]);
        assert!(child_of_ours.is_alive());
        drop(child.stdin.take());
        // Dead, though nobody took note of it.
        while child_of_ours.is_alive() {
            std::thread::yield_now();
        }
        child.wait().expect("it ended");
        assert!(!child_of_ours.is_alive());
    }
}
