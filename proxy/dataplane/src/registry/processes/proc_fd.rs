//! The process that has a socket open: the links in `/proc/*/fd` name sockets by inodes. A link is read first where
//! the socket was seen before, then where the process opened its last ones, and only then are all files of a process
//! gone through. What is remembered only says where to look first: a process is named only because a link that was
//! read now names the socket.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::io::{ErrorKind, Read as _};
use std::time::{Duration, Instant};
use std::{fs, io};

use lockwarden_lock::token::Process;

use super::lineage::Running;

/// Processes that are remembered: those that were found last.
const MAX_KNOWN: usize = 1024;
/// Sockets whose places are remembered; beyond this limit all are forgotten and found again.
const MAX_SEEN: usize = 16_384;
/// Files of a process in which sockets were found last. A process opens a connection under the lowest free number:
/// one that was freed before, or the next.
const MAX_LATELY: usize = 32;
/// This many numbers after the last of them are tried as well.
const MORE_LIKELY: u32 = 8;
/// Ancestors that are looked at, for programs that fork, and fork again before they run another program.
const MAX_ANCESTORS: usize = 4;
/// The processes that were started last are looked at before all others.
const MAX_YOUNGEST: u32 = 4;
/// Bytes that are read of what the kernel reports of a process: the fourth line says which process a thread belongs
/// to.
const STATUS_HEAD: usize = 512;
/// The longest search through all processes.
const MAX_SEARCH: Duration = Duration::from_secs(2);

/// What was found before.
#[derive(Default)]
pub(super) struct Search {
    /// The processes, the one that was found last first.
    known: VecDeque<Known>,
    /// Which file of which process a socket was, by its inode.
    seen: HashMap<u64, (u32, u32)>,
}

struct Known {
    number: u32,
    /// The newest first.
    lately: VecDeque<u32>,
}

impl Known {
    /// The files that its next sockets may be.
    fn likely(&self) -> Vec<u32> {
        let next = self.lately.iter().max().map_or(0, |last| last.saturating_add(1));
        let lately = self.lately.iter().copied();
        lately.chain(next..next.saturating_add(MORE_LIKELY)).collect()
    }
}

/// One search.
struct Hunt {
    missing: HashSet<u64>,
    found: HashMap<u64, (Process, Running)>,
    /// Some process may not be looked into.
    is_barred: bool,
    end: Instant,
}

/// The result of a search.
pub(super) struct Found {
    pub(super) processes: HashMap<u64, (Process, Running)>,
    /// All that is permitted was looked at: a socket that was not found is nowhere else.
    pub(super) is_complete: bool,
    /// Some process may not be looked into.
    pub(super) is_barred: bool,
}

impl Hunt {
    fn is_late(&self) -> bool {
        Instant::now() > self.end
    }

    fn ended(self) -> Found {
        Found {
            is_complete: self.missing.is_empty() || !self.is_late(),
            is_barred: self.is_barred,
            processes: self.found,
        }
    }
}

impl Search {
    /// The processes that have these sockets open, as far as they may be seen.
    pub(super) fn find(&mut self, inodes: impl Iterator<Item = u64>) -> Found {
        let mut hunt = Hunt {
            missing: inodes.collect(),
            found: HashMap::new(),
            is_barred: false,
            end: Instant::now() + MAX_SEARCH,
        };
        let mut places: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (number, file) in hunt.missing.iter().filter_map(|inode| self.seen.get(inode)) {
            places.entry(*number).or_default().push(*file);
        }
        for (number, files) in places {
            self.look_at(number, files.into_iter(), &mut hunt);
        }
        // A program that connects for each lock gets the same number each time.
        let last = self.known.iter().filter_map(|known| Some((known.number, *known.lately.front()?)));
        for (number, file) in last.collect::<Vec<_>>() {
            self.look_at(number, std::iter::once(file), &mut hunt);
        }
        if hunt.missing.is_empty() {
            return hunt.ended();
        }
        // Nothing is left of a client that was started for one command.
        let is_there = |known: &Known| fs::metadata(format!("/proc/{}", known.number)).is_ok();
        self.known.retain(is_there);
        let likely = self.known.iter().map(|known| (known.number, known.likely()));
        for (number, files) in likely.collect::<Vec<_>>() {
            self.look_at(number, files.into_iter(), &mut hunt);
        }
        // A list of all processes costs more than the few files of the youngest.
        for number in youngest() {
            if hunt.missing.is_empty() {
                break;
            }
            let is_known = self.known.iter().any(|known| known.number == number);
            // Threads have such numbers, too, and show the files of their process.
            if !is_known && is_process(number) {
                self.walk(number, &mut hunt);
            }
        }
        if hunt.missing.is_empty() {
            return hunt.ended();
        }
        // Where `/proc` is mounted with `hidepid`, processes of other users are not even listed.
        hunt.is_barred = fs::metadata("/proc/1/stat").is_err();
        if self.seen.len() >= MAX_SEEN {
            self.seen.clear();
        }
        let known: Vec<u32> = self.known.iter().map(|known| known.number).collect();
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let all = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let mut others: Vec<u32> = all.filter(|number| !known.contains(number)).collect();
        // A client that was started for this one command is among the youngest.
        others.sort_unstable_by(|one, other| other.cmp(one));
        for number in known.iter().copied().chain(others) {
            if hunt.missing.is_empty() || hunt.is_late() {
                break;
            }
            self.walk(number, &mut hunt);
        }
        hunt.ended()
    }

    /// How many processes are remembered.
    #[cfg(test)]
    pub(super) fn known(&self) -> usize {
        self.known.len()
    }

    /// Looks at all files that this process has open, and forgets a process that may not be seen (any more).
    fn walk(&mut self, number: u32, hunt: &mut Hunt) {
        match fs::read_dir(format!("/proc/{number}/fd")) {
            Ok(files) => {
                let files = files.flatten();
                let files = files.filter_map(|file| file.file_name().to_str()?.parse().ok());
                self.look_at_more(number, files, MAX_SEEN.saturating_sub(self.seen.len()), hunt);
            }
            Err(error) => {
                hunt.is_barred |= error.kind() == ErrorKind::PermissionDenied;
                self.known.retain(|known| known.number != number);
            }
        }
    }

    /// Removes the sockets that are these files of this process from those that are missing, until none is missing.
    fn look_at(&mut self, number: u32, files: impl Iterator<Item = u32>, hunt: &mut Hunt) {
        self.look_at_more(number, files, 0, hunt);
    }

    /// The same. Once a socket was found and none is missing, it looks at so many more files: the other sockets of the
    /// process will be asked for soon.
    fn look_at_more(&mut self, number: u32, files: impl Iterator<Item = u32>, mut more: usize, hunt: &mut Hunt) {
        let mut hits = Vec::new();
        for file in files {
            if hunt.is_late() || (hunt.missing.is_empty() && (hits.is_empty() || more == 0)) {
                break;
            }
            if hunt.missing.is_empty() {
                more -= 1;
            }
            let inode = match socket_at(number, file) {
                Ok(Some(inode)) => inode,
                Ok(None) => continue,
                Err(error) => {
                    hunt.is_barred |= error.kind() == ErrorKind::PermissionDenied;
                    continue;
                }
            };
            if self.seen.len() < MAX_SEEN {
                self.seen.insert(inode, (number, file));
            }
            if hunt.missing.remove(&inode) {
                hits.push((inode, file));
            }
        }
        if hits.is_empty() {
            return;
        }
        // Read after the files: if the number was given to another process meanwhile, this has that one's start time.
        let Some(first) = Running::with_parent(number) else {
            // It ended meanwhile. A child that had its parent's files for a moment is not the process in question.
            hunt.missing.extend(hits.into_iter().map(|(inode, _)| inode));
            return;
        };
        for (inode, file) in hits {
            let running = opener(first.clone(), file, inode);
            self.remember(running.number(), std::iter::once(file));
            hunt.found.insert(inode, (running.process(), running));
        }
    }

    fn remember(&mut self, number: u32, files: impl Iterator<Item = u32>) {
        let at = self.known.iter().position(|known| known.number == number);
        let known = at.and_then(|at| self.known.remove(at));
        let mut known = known.unwrap_or_else(|| Known { number, lately: VecDeque::new() });
        for file in files {
            known.lately.retain(|other| *other != file);
            known.lately.push_front(file);
            known.lately.truncate(MAX_LATELY);
        }
        self.known.push_front(known);
        self.known.truncate(MAX_KNOWN);
    }
}

/// Of a process, which has this socket as this file, and its ancestors: the farthest that has it as the same file. A
/// process that is being started has all files of its parent for a moment, until it runs its own program; and it is
/// the youngest, which is looked at first.
fn opener((mut opener, mut parent): (Running, Option<u32>), file: u32, inode: u64) -> Running {
    for _ in 0..MAX_ANCESTORS {
        match parent {
            Some(number) if matches!(socket_at(number, file), Ok(Some(same)) if same == inode) => {
                let Some(older) = Running::with_parent(number) else {
                    break;
                };
                (opener, parent) = older;
            }
            Some(_) | None => break,
        }
    }
    opener
}

/// The process numbers that were given last, the newest first; the kernel gives the newest in one small file.
fn youngest() -> impl Iterator<Item = u32> {
    let last = fs::read_to_string("/proc/loadavg").ok();
    let last = last.and_then(|text| text.split_ascii_whitespace().last()?.parse().ok());
    let last: u32 = last.unwrap_or(0);
    (last.saturating_sub(MAX_YOUNGEST - 1).max(1)..=last).rev()
}

/// Whether this is the number of a process, not of a further thread of one.
fn is_process(number: u32) -> bool {
    let mut text = [0; STATUS_HEAD];
    let read = fs::File::open(format!("/proc/{number}/status"));
    let read = read.and_then(|mut file| file.read(&mut text));
    let text = String::from_utf8_lossy(&text[..read.unwrap_or(0)]);
    let mut groups = text.lines().filter_map(|line| line.strip_prefix("Tgid:"));
    groups.any(|group| group.trim_ascii() == number.to_string())
}

/// The inode of the socket that this file is, if it is one.
fn socket_at(number: u32, file: u32) -> io::Result<Option<u64>> {
    let link = fs::read_link(format!("/proc/{number}/fd/{file}"))?;
    let inode = link.to_str().and_then(|link| {
        let inode = link.strip_prefix("socket:[")?;
        inode.strip_suffix(']')?.parse().ok()
    });
    Ok(inode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_sockets_are_looked_for_where_the_last_ones_were_and_behind_them() {
        let mut search = Search::default();
        search.remember(7, [3, 9, 4].into_iter());
        search.remember(8, 20..60);
        search.remember(7, [9].into_iter());
        let numbers: Vec<u32> = search.known.iter().map(|known| known.number).collect();
        assert_eq!(numbers, [7, 8]);
        assert_eq!(search.known[0].likely(), [9, 4, 3, 10, 11, 12, 13, 14, 15, 16, 17]);
        assert_eq!(search.known[1].lately.len(), MAX_LATELY);
        for number in 0..2000 {
            search.remember(number, std::iter::once(u32::MAX));
        }
        assert_eq!(search.known.len(), MAX_KNOWN);
        assert_eq!(search.known[0].likely(), [u32::MAX]);
    }
}
