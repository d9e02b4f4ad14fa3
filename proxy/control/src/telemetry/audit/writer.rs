//! The thread that writes records. A failing sink is reported once in the log and retried every second. When it works
//! again, this is recorded in the trail itself, with the number of lost records.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus::IntCounter;

use super::queue::{Line, Work, count, put};
use super::record::Notice;
use super::sink::Sink;
use crate::config::Limits;

/// The most bytes of records in one write.
const CHUNK: usize = 64 * 1024;

/// The time between two tries on a failing sink.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Records are synced to the disk at most this long after they were written.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct Writer {
    line: Arc<Line>,
    sink: Sink,
    /// The sink's name for the log.
    name: String,
    written: IntCounter,
    /// The bytes that are being written, and how many of them were.
    pending: Vec<u8>,
    done: usize,
    lost: u64,
    reopen: Option<Limits>,
    failing: bool,
    settle_at: Instant,
}

impl Writer {
    pub(super) fn new(line: Arc<Line>, sink: Sink, name: String, written: IntCounter) -> Writer {
        Writer {
            line,
            sink,
            name,
            written,
            pending: Vec::new(),
            done: 0,
            lost: 0,
            reopen: None,
            failing: false,
            settle_at: Instant::now() + SYNC_EVERY,
        }
    }

    /// Writes until it is stopped.
    pub(super) fn run(mut self) {
        loop {
            let patience =
                if self.failing { AGAIN_AFTER } else { self.settle_at.saturating_duration_since(Instant::now()) };
            let work = self.line.waiting.take(patience, !self.failing);
            let stopping = work.stopping;
            self.try_on(work);
            if stopping {
                if !self.failing {
                    self.settle_at = Instant::now();
                    // Records may have arrived while the last ones were written.
                    let rest = self.line.waiting.take(Duration::ZERO, true);
                    self.try_on(rest);
                }
                self.end();
                return;
            }
        }
    }

    /// Does this work, and what remains of the earlier work.
    fn try_on(&mut self, work: Work) {
        if self.done == self.pending.len() {
            self.pending = work.lines;
            self.done = 0;
        } else {
            self.pending.extend(work.lines);
        }
        self.lost += work.lost;
        self.reopen = work.reopen.or(self.reopen);
        match self.attempt() {
            Ok(()) => self.works(),
            Err(error) => self.failed(&error),
        }
    }

    fn attempt(&mut self) -> io::Result<()> {
        if let Some(limits) = self.reopen {
            self.sink.reopen(limits)?;
            self.reopen = None;
        }
        self.write_pending()?;
        if self.lost > 0 {
            let mut notice = Notice::new("lost");
            notice.seq = self.line.next_seq();
            notice.lost = Some(std::mem::take(&mut self.lost));
            self.pending.clear();
            self.done = 0;
            put(&mut self.pending, &notice);
            self.write_pending()?;
        }
        let now = Instant::now();
        if now >= self.settle_at {
            self.settle_at = now + SYNC_EVERY;
            self.sink.settle()?;
        }
        Ok(())
    }

    fn write_pending(&mut self) -> io::Result<()> {
        while self.done < self.pending.len() {
            let chunk = whole_lines(&self.pending[self.done..]);
            match self.sink.write(chunk, Instant::now()) {
                Ok(bytes) => {
                    self.written.inc_by(count(&chunk[..bytes]));
                    self.done += bytes;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn end(&self) {
        let lost = self.line.end(count(&self.pending[self.done..]));
        if lost > 0 {
            tracing::error!(
                sink = self.name,
                records = lost,
                "the last audit records could not be written and are lost"
            );
        }
        self.line.waiting.ended();
    }

    fn failed(&mut self, error: &io::Error) {
        self.line.set_writable(false);
        // It is reopened at the next try: the path may be another file by then.
        self.sink.close();
        if !std::mem::replace(&mut self.failing, true) {
            tracing::error!(
                sink = self.name,
                %error,
                "audit records cannot be written; they wait, and are lost when they become too many"
            );
        }
    }

    fn works(&mut self) {
        self.line.set_writable(true);
        if std::mem::take(&mut self.failing) {
            tracing::info!(sink = self.name, "audit records are written again");
        }
    }
}

/// As many of these lines as fit into one write, at least one.
fn whole_lines(lines: &[u8]) -> &[u8] {
    if lines.len() <= CHUNK {
        return lines;
    }
    let end = memchr::memrchr(b'\n', &lines[..CHUNK]).or_else(|| memchr::memchr(b'\n', lines));
    end.map_or(lines, |end| &lines[..=end])
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::telemetry::audit::sink::LogFile;

    #[test]
    fn what_could_not_be_written_is_written_later_and_what_was_lost_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let inside = directory.path().join("not yet");
        let limits = Limits { max_size: None, keep: 1 };
        let path = inside.join("audit.jsonl");
        let counter = |name: &str| IntCounter::new(name, "in a test").unwrap();
        let (dropped, written) = (counter("dropped"), counter("written"));
        let line = Arc::new(Line::new(dropped.clone()));
        let sink = Sink::File(LogFile::new(path.clone(), limits));
        let writer = Writer::new(line.clone(), sink, "a test".to_owned(), written.clone());
        line.push(Notice::new("started"), Instant::now());
        line.lose(7);
        let mut writer = writer;
        writer.try_on(line.waiting.take(Duration::ZERO, true));
        assert!(writer.failing && !line.is_writable());

        fs::create_dir(&inside).unwrap();
        writer.try_on(Work::default());
        assert!(!writer.failing && line.is_writable());
        line.push(Notice::new("stopped"), Instant::now());
        let thread = std::thread::spawn(move || writer.run());
        line.waiting.stop();
        thread.join().unwrap();

        let text = fs::read_to_string(&path).unwrap();
        let notices: Vec<Notice> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let events: Vec<&str> = notices.iter().map(|notice| &*notice.event).collect();
        assert_eq!(events, ["started", "lost", "stopped"]);
        assert_eq!(notices[1].lost, Some(7));
        assert_eq!((written.get(), dropped.get()), (3, 7));
    }

    #[test]
    fn a_line_is_never_split_over_two_writes() {
        let lines = b"12345678\n".repeat(20_000);
        assert!(whole_lines(&lines).len() <= CHUNK);
        assert_eq!(whole_lines(&lines).len() % 9, 0);
        let long = [&b"x".repeat(2 * CHUNK)[..], b"\nshort\n"].concat();
        assert_eq!(whole_lines(&long).len(), 2 * CHUNK + 1);
    }
}
