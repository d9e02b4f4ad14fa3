//! The target of records: a file that is rotated by its size, or standard output. The path may also name a device or a
//! FIFO; these are not rotated.
//!
//! A record is never split over two writes, and a part of one that found no room is removed again. So only the last
//! line of a file can be torn, by a crash of the machine.

use crate::config::Limits;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A failed rotation is retried after this time; until then the file grows.
const ROTATE_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// See the module.
pub(super) enum Sink {
    File(LogFile),
    Stdout,
}

impl Sink {
    /// Writes the first of these whole lines, at least one; returns the number of bytes written.
    pub(super) fn write(&mut self, lines: &[u8], now: Instant) -> io::Result<usize> {
        match self {
            Sink::File(file) => file.write(lines, now),
            Sink::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(lines)?;
                stdout.flush()?;
                Ok(lines.len())
            }
        }
    }

    /// Syncs to the disk, and reopens the path if the file was moved.
    pub(super) fn settle(&mut self) -> io::Result<()> {
        match self {
            Sink::File(file) => file.settle(),
            Sink::Stdout => Ok(()),
        }
    }

    /// Closes it after a failed write: the next try opens the path again.
    pub(super) fn close(&mut self) {
        match self {
            Sink::File(file) => file.open = None,
            Sink::Stdout => {}
        }
    }

    /// Reopens the file.
    pub(super) fn reopen(&mut self, limits: Limits) -> io::Result<()> {
        match self {
            Sink::File(file) => {
                file.limits = limits;
                file.open = None;
                file.opened().map(drop)
            }
            Sink::Stdout => Ok(()),
        }
    }
}

/// A file that is opened when it is needed.
pub(super) struct LogFile {
    path: PathBuf,
    limits: Limits,
    open: Option<Open>,
    unsynced: bool,
    not_rotated: Option<Instant>,
}

struct Open {
    file: File,
    size: u64,
    /// Whether it can be rotated, synced and truncated.
    regular: bool,
    id: (u64, u64),
}

impl LogFile {
    pub(super) fn new(path: PathBuf, limits: Limits) -> LogFile {
        LogFile { path, limits, open: None, unsynced: false, not_rotated: None }
    }

    /// Opens it now, so that an unwritable path is found at the start.
    pub(super) fn opened(&mut self) -> io::Result<()> {
        if self.open.is_none() {
            self.open = Some(open(&self.path)?);
        }
        Ok(())
    }

    fn write(&mut self, lines: &[u8], now: Instant) -> io::Result<usize> {
        self.opened()?;
        let size = self.open.as_ref().map_or(0, |open| open.size);
        let full = |most: u64| size > 0 && size + lines.len() as u64 > most;
        if self.limits.max_size.is_some_and(full) {
            self.rotate(now)?;
        }
        let Some(open) = &mut self.open else {
            return Err(io::ErrorKind::NotFound.into());
        };
        if !open.regular {
            open.file.write_all(lines)?;
            return Ok(lines.len());
        }
        let written = open.file.write(lines)?;
        self.unsynced = true;
        let whole = memchr::memrchr(b'\n', &lines[..written]).map_or(0, |at| at + 1);
        let there = open.size + written as u64;
        open.size += whole as u64;
        if whole < written {
            // During an upgrade another proxy writes here too: its bytes after ours are kept, and a line that is torn
            // by this gets its line end when the file is reopened.
            if open.file.metadata()?.len() == there {
                open.file.set_len(open.size)?;
            } else {
                self.open = None;
            }
        }
        if whole == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(whole)
    }

    fn settle(&mut self) -> io::Result<()> {
        if let Some(open) = self.open.as_ref().filter(|open| open.regular) {
            if std::mem::take(&mut self.unsynced) {
                open.file.sync_data()?;
            }
            let there = fs::metadata(&self.path).map(|there| (there.dev(), there.ino()));
            if there.ok() != Some(open.id) {
                self.open = None;
            }
        }
        self.opened()?;
        if let Some(open) = self.open.as_mut().filter(|open| open.regular) {
            // It may have been truncated, as by `logrotate` with copytruncate.
            open.size = open.file.metadata()?.len();
        }
        Ok(())
    }

    /// If the files cannot be renamed, records continue in this one: a file that is too long is better than none.
    fn rotate(&mut self, now: Instant) -> io::Result<()> {
        let regular = self.open.as_ref().is_some_and(|open| open.regular);
        let waits = |since: Instant| now.saturating_duration_since(since) < ROTATE_AGAIN_AFTER;
        if !regular || self.not_rotated.is_some_and(waits) {
            return Ok(());
        }
        if let Some(open) = &self.open {
            open.file.sync_data()?;
        }
        match shift(&self.path, self.limits.keep) {
            Ok(()) => {
                self.not_rotated = None;
                self.unsynced = false;
                self.open = None;
                self.opened()
            }
            Err(error) => {
                self.not_rotated = Some(now);
                tracing::error!(
                    path = %self.path.display(),
                    %error,
                    "the audit file cannot be rotated; it grows"
                );
                Ok(())
            }
        }
    }
}

/// The `n`th full file: `audit.jsonl.1` is the newest.
pub(super) fn rotated(path: &Path, n: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{n}"));
    PathBuf::from(name)
}

fn shift(path: &Path, keep: u32) -> io::Result<()> {
    let there = |error: &io::Error| error.kind() != io::ErrorKind::NotFound;
    // The oldest first, so that only the last one is overwritten.
    for n in (1..keep).rev() {
        match fs::rename(rotated(path, n), rotated(path, n + 1)) {
            Err(error) if there(&error) => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    fs::rename(path, rotated(path, 1))?;
    // The new limit may be lower than the old one.
    let mut n = keep + 1;
    while fs::remove_file(rotated(path, n)).is_ok() {
        n += 1;
    }
    Ok(())
}

fn open(path: &Path) -> io::Result<Open> {
    // Opening a FIFO waits for its reader, unless O_NONBLOCK is set.
    let mut file =
        OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(libc::O_NONBLOCK).open(path)?;
    let there = file.metadata()?;
    let (regular, mut size) = (there.is_file(), there.len());
    if there.file_type().is_fifo() || there.file_type().is_char_device() {
        wait_in_writes(&file)?;
    }
    if regular && size > 0 && !ends_whole(path)? {
        file.write_all(b"\n")?;
        size += 1;
    }
    Ok(Open { size, regular, id: (there.dev(), there.ino()), file })
}

/// Whether a file ends with a whole line, which it does unless the machine has crashed.
fn ends_whole(path: &Path) -> io::Result<bool> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// Makes writes blocking: they have a thread of their own, which may wait.
fn wait_in_writes(file: &File) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;
    // SAFETY: the descriptor is open as long as `file` lives, and F_SETFL takes no pointer.
    let set = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, libc::O_APPEND) };
    if set == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(max_size: u64, keep: u32) -> Limits {
        Limits { max_size: Some(max_size), keep }
    }

    fn text(path: &Path) -> String {
        fs::read_to_string(path).unwrap_or_default()
    }

    #[test]
    fn a_full_file_makes_room_and_the_oldest_goes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        let mut file = LogFile::new(path.clone(), limits(10, 2));
        for line in ["one 1\n", "two 2\n", "three\n", "four\n"] {
            assert_eq!(file.write(line.as_bytes(), Instant::now()).unwrap(), line.len());
        }
        assert_eq!(text(&path), "four\n");
        assert_eq!(text(&rotated(&path, 1)), "three\n");
        assert_eq!(text(&rotated(&path, 2)), "two 2\n");
        assert!(!rotated(&path, 3).exists());
        let mode = fs::metadata(&path).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);

        file.limits = limits(10, 1);
        file.write(b"five 5\n", Instant::now()).unwrap();
        assert_eq!(text(&rotated(&path, 1)), "four\n");
        assert!(!rotated(&path, 2).exists());
    }

    #[test]
    fn a_file_that_was_moved_away_is_begun_anew() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        let mut file = LogFile::new(path.clone(), limits(1000, 2));
        file.write(b"one\n", Instant::now()).unwrap();
        fs::rename(&path, directory.path().join("moved")).unwrap();
        file.settle().unwrap();
        file.write(b"two\n", Instant::now()).unwrap();
        assert_eq!(text(&path), "two\n");
    }

    #[test]
    fn a_directory_that_is_gone_is_an_error_until_it_is_back() {
        let directory = tempfile::tempdir().unwrap();
        let inside = directory.path().join("audit");
        fs::create_dir(&inside).unwrap();
        let path = inside.join("audit.jsonl");
        let mut file = LogFile::new(path.clone(), limits(1000, 2));
        file.write(b"one\n", Instant::now()).unwrap();
        fs::remove_dir_all(&inside).unwrap();
        assert!(file.settle().is_err());
        assert!(file.write(b"two\n", Instant::now()).is_err());
        fs::create_dir(&inside).unwrap();
        file.write(b"two\n", Instant::now()).unwrap();
        assert_eq!(text(&path), "two\n");
    }

    #[test]
    fn a_line_that_a_crash_tore_does_not_tear_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        fs::write(&path, "one\ntw").unwrap();
        let mut file = LogFile::new(path.clone(), limits(1000, 2));
        file.write(b"three\n", Instant::now()).unwrap();
        assert_eq!(text(&path), "one\ntw\nthree\n");
    }

    #[test]
    fn a_full_device_and_a_fifo_without_a_reader_are_errors_and_no_wait() {
        let mut full = LogFile::new("/dev/full".into(), limits(10, 2));
        assert!(full.write(b"one\n", Instant::now()).is_err());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fifo");
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the name is a string that ends with NUL and lives until the call is over.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let mut fifo = LogFile::new(path, limits(10, 2));
        let error = fifo.write(b"one\n", Instant::now()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENXIO));
    }
}
