//! Finds records in audit files, by their id or as the grant of a lease. Searches the named file and the full ones
//! beside it, line by line. A line that is no record (a torn one, or another program's) is skipped.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::ops::ControlFlow;
use std::path::PathBuf;

use memchr::memmem::Finder;

use super::record::Record;
use super::sink::rotated;

/// The longest line that is read; the longest record is far shorter.
const MAX_LINE: u64 = 4 * 1024 * 1024;

/// A file that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {}: {source}", path.display())]
pub struct Unreadable {
    path: PathBuf,
    source: io::Error,
}

/// Every record that has this id or stands for one with it, from the oldest to the newest; and how many files were
/// read. `-` is standard input.
pub fn records_with(id: &str, files: &[PathBuf]) -> Result<(Vec<Record>, usize), Unreadable> {
    let has_it = |record: &Record| record.id.as_deref() == Some(id) || record.ids.iter().any(|known| known == id);
    records(id.as_bytes(), has_it, files)
}

/// The record of the grant that began this record's lease, if one of these files has it.
pub fn grant_of(record: &Record, files: &[PathBuf]) -> Option<Record> {
    let fence = record.fence?;
    let is_it = |other: &Record| {
        let same = (other.fence, &other.key, other.db) == (Some(fence), &record.key, record.db);
        same && other.event == "acquired"
    };
    // Standard input cannot be read a second time.
    let named = files.iter().filter(|path| path.as_os_str() != "-");
    let files: Vec<PathBuf> = named.cloned().collect();
    let (found, _) = records(fence.to_string().as_bytes(), is_it, &files).ok()?;
    found.into_iter().next_back()
}

fn records(
    word: &[u8],
    is_it: impl Fn(&Record) -> bool,
    files: &[PathBuf],
) -> Result<(Vec<Record>, usize), Unreadable> {
    let finder = Finder::new(word);
    let mut found = Vec::new();
    let read = each_line(files, &mut |line| {
        // Most lines are about other leases, and this is found out without parsing them.
        if finder.find(line).is_some() {
            let record = serde_json::from_slice::<Record>(line).ok();
            found.extend(record.filter(|record| is_it(record)));
        }
        ControlFlow::Continue(())
    })?;
    found.sort_by_key(|record| (record.at, record.seq));
    found.dedup();
    Ok((found, read))
}

/// Calls `each` with each line of these files and of the full ones beside them, the oldest files first, until it
/// breaks. Returns the number of files. `-` is standard input.
pub fn each_line(files: &[PathBuf], each: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) -> Result<usize, Unreadable> {
    let mut read = 0;
    for named in files {
        let is_stdin = named.as_os_str() == "-";
        let full = (1..).map(|n| rotated(named, n)).take_while(|full| !is_stdin && full.exists());
        let mut all: Vec<PathBuf> = full.collect();
        all.reverse();
        all.push(named.clone());
        for path in all {
            let done = match is_stdin {
                true => lines_of(&mut io::stdin().lock(), each),
                false => File::open(&path).and_then(|file| lines_of(&mut BufReader::new(file), each)),
            };
            read += 1;
            if done.map_err(|source| Unreadable { path, source })?.is_break() {
                return Ok(read);
            }
        }
    }
    Ok(read)
}

fn lines_of(lines: &mut dyn BufRead, each: &mut dyn FnMut(&[u8]) -> ControlFlow<()>) -> io::Result<ControlFlow<()>> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if (&mut *lines).take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
            return Ok(ControlFlow::Continue(()));
        }
        if each(&line).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_found_by_its_id_or_by_one_it_stands_for_in_full_files_too() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        std::fs::write(
            &path,
            "{\"v\":1,\"at\":3,\"event\":\"refused\",\"id\":\"AAAAAA\",\"ids\":[\"BBBBBB\"],\"key\":\"new\"}\n\
             {\"v\":1,\"at\":3,\"torn with AAAAAA",
        )
        .unwrap();
        std::fs::write(
            rotated(&path, 1),
            "{\"at\":2,\"event\":\"lost\",\"lost\":3}\nno JSON, but AAAAAA\n{\"at\":2,\"key\":\"CCCCCC\"}\n",
        )
        .unwrap();
        std::fs::write(rotated(&path, 2), "{\"at\":1,\"id\":\"AAAAAA\",\"key\":\"old\"}\n").unwrap();
        let keys = |id: &str| {
            let (found, files) = records_with(id, std::slice::from_ref(&path)).unwrap();
            assert_eq!(files, 3);
            found.into_iter().map(|record| record.key).collect::<Vec<_>>()
        };
        assert_eq!(keys("AAAAAA"), ["old", "new"]);
        assert_eq!(keys("BBBBBB"), ["new"]);
        assert!(keys("CCCCCC").is_empty());
        let missing = directory.path().join("no such file");
        assert!(records_with("AAAAAA", &[missing]).is_err());
    }
}
