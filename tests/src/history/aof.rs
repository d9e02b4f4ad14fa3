//! What happened on Redis, from its append-only file: exactly the writes that were carried out, in their order.
//! The file is better evidence than MONITOR, which would end with the server and also shows what scripts only
//! try. Only the records beside the locks are read from it; they name each grant and each release.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Where the fencing token stands in a record.
const FENCE: std::ops::Range<usize> = 51..67;
/// Where the state stands.
const STATE: usize = 1;

/// The grants and releases that took place.
#[derive(Clone, Debug, Default)]
pub struct Committed {
    grants: BTreeSet<(String, u64)>,
    releases: BTreeSet<(String, u64)>,
    /// Records as they stand, by the name of their key.
    records: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Committed {
    /// What the server with this folder has written.
    ///
    /// # Panics
    /// If a file is none that Redis writes.
    pub fn in_folder(folder: &Path) -> Committed {
        let mut committed = Committed::default();
        for file in files(folder) {
            let bytes = fs::read(&file).unwrap_or_default();
            let mut rest = bytes.as_slice();
            // The end of the last one may be cut off.
            while let Some((command, left)) = command(rest) {
                committed.takes(&command);
                rest = left;
            }
        }
        committed
    }

    /// Whether the lock was granted with this fencing token.
    pub fn has_grant(&self, lock: &str, fence: u64) -> bool {
        self.grants.contains(&(lock.to_owned(), fence))
    }

    /// Whether that grant was given back.
    pub fn has_release(&self, lock: &str, fence: u64) -> bool {
        self.releases.contains(&(lock.to_owned(), fence))
    }

    /// How many grants there were.
    pub fn grants(&self) -> usize {
        self.grants.len()
    }

    fn takes(&mut self, command: &[&[u8]]) {
        let (Some(name), Some(key)) = (command.first(), command.get(1)) else {
            return;
        };
        let Some(lock) = lock_of_record(key) else {
            return;
        };
        match name.to_ascii_uppercase().as_slice() {
            b"SET" => {
                let value = command.get(2).map(|value| value.to_vec());
                self.records.insert(key.to_vec(), value.unwrap_or_default());
            }
            b"SETRANGE" => {
                let record = self.records.entry(key.to_vec()).or_default();
                let at = command.get(2).and_then(|at| std::str::from_utf8(at).ok()?.parse().ok());
                let (Some(at), Some(part)) = (at, command.get(3)) else {
                    return;
                };
                let at: usize = at;
                record.resize(record.len().max(at + part.len()), 0);
                record[at..at + part.len()].copy_from_slice(part);
            }
            _ => return,
        }
        let record = &self.records[*key];
        let fence = record.get(FENCE).and_then(|digits| std::str::from_utf8(digits).ok());
        let Some(fence) = fence.and_then(|digits| digits.parse().ok()) else {
            return;
        };
        match record[STATE] {
            b'L' => self.grants.insert((lock, fence)),
            b'R' | b'T' => self.releases.insert((lock, fence)),
            _ => false,
        };
    }
}

/// The lock beside which this key stands: `lw:{tag}:lock`.
fn lock_of_record(key: &[u8]) -> Option<String> {
    let key = std::str::from_utf8(key).ok()?;
    let (_, lock) = key.strip_prefix("lw:{")?.split_once("}:")?;
    Some(lock.to_owned())
}

/// The files with commands, the oldest first: since Redis 7 in a folder of their own, numbered.
fn files(folder: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(folder.join("appendonlydir")).or_else(|_| fs::read_dir(folder));
    let mut files: Vec<(u64, PathBuf)> = listed
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let name = path.file_name()?.to_str()?.to_owned();
            let is_log = name.ends_with(".incr.aof") || name == "appendonly.aof";
            let number = name.split('.').find_map(|part| part.parse().ok());
            is_log.then(|| (number.unwrap_or(0), path))
        })
        .collect();
    files.sort();
    files.into_iter().map(|(_, path)| path).collect()
}

/// The first command, and what stands behind it; `None` where none is whole.
fn command(bytes: &[u8]) -> Option<(Vec<&[u8]>, &[u8])> {
    let mut rest = bytes;
    // Notes with times may stand between commands.
    while rest.first() == Some(&b'#') {
        rest = line(rest)?.1;
    }
    let (head, mut rest) = line(rest)?;
    let count = number(head, b'*');
    let mut parts = Vec::new();
    for _ in 0..count {
        let (head, body) = line(rest)?;
        let length = number(head, b'$');
        parts.push(body.get(..length)?);
        rest = body.get(length + 2..)?;
    }
    Some((parts, rest))
}

fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
    Some((&bytes[..end], &bytes[end + 2..]))
}

fn number(head: &[u8], mark: u8) -> usize {
    let digits = head.strip_prefix(&[mark]);
    let number = digits.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    number.unwrap_or_else(|| panic!("no file of Redis: {:?}", head.escape_ascii().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(state: char, fence: u64) -> String {
        let (grant, session) = ("g".repeat(16), "s".repeat(16));
        let who = "i".repeat(16);
        format!("1{state}@{grant}{session}{who}{fence:016}{:039}value", 0)
    }

    fn said(words: &[&str]) -> String {
        let mut text = format!("*{}\r\n", words.len());
        for word in words {
            text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        text
    }

    #[test]
    fn grants_and_releases_are_found_in_both_layouts_of_the_file() {
        let key = "lw:{0j4}:lock:a";
        let written = [
            said(&["SELECT", "0"]),
            "#TS:17\r\n".to_owned(),
            said(&["SET", "lock:a", "v", "PXAT", "1795"]),
            said(&["SET", key, &record('L', 7), "PXAT", "1795"]),
            said(&["SETRANGE", key, "1", "R"]),
            said(&["SET", key, &record('L', 8), "PXAT", "1795"]),
        ]
        .concat();
        for cut in [0, 5] {
            for name in ["appendonly.aof", "appendonlydir/appendonly.aof.1.incr.aof"] {
                let folder = tempfile::tempdir().unwrap();
                let file = folder.path().join(name);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(&file, &written[..written.len() - cut]).unwrap();
                let committed = Committed::in_folder(folder.path());
                assert!(committed.has_grant("lock:a", 7) && committed.has_release("lock:a", 7));
                // The last command is whole, or it did not take place.
                assert_eq!(committed.has_grant("lock:a", 8), cut == 0, "{name}");
                assert!(!committed.has_release("lock:a", 8) && !committed.has_grant("lock:b", 7));
            }
        }
    }
}
