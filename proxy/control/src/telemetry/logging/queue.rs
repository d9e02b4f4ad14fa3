//! The queue between the threads that log and the thread that writes. If the queue is full, lines are dropped, counted
//! and reported; the data path never waits: a stuck terminal must not stop a lock.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;

/// The most lines that wait: some seconds of a busy log, a few MiB at most.
const LINES: usize = 8192;

/// How long the process waits for the log when it ends.
const PATIENCE: Duration = Duration::from_secs(1);

enum Message {
    Line(Vec<u8>),
    /// Answered when all lines before it are written.
    Flush(SyncSender<()>),
}

/// The input of the queue.
#[derive(Clone)]
pub(super) struct LogQueue {
    sender: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

/// Writes the remaining lines when it is dropped.
#[derive(Debug)]
pub struct LogGuard {
    sender: SyncSender<Message>,
}

/// Starts the writing thread. It ends when no logger is left, or with the process.
pub(super) fn start(output: impl Write + Send + 'static) -> io::Result<(LogQueue, LogGuard)> {
    let (sender, receiver) = sync_channel(LINES);
    let queue = LogQueue { sender: sender.clone(), dropped: Arc::default() };
    let dropped = queue.dropped.clone();
    std::thread::Builder::new().name("log".to_owned()).spawn(move || write_all(&receiver, output, &dropped))?;
    Ok((queue, LogGuard { sender }))
}

fn write_all(receiver: &Receiver<Message>, mut output: impl Write, dropped: &AtomicU64) {
    while let Ok(first) = receiver.recv() {
        let mut next = Ok(first);
        loop {
            match next {
                // A log that cannot be written cannot be reported anywhere.
                Ok(Message::Line(line)) => drop(output.write_all(&line)),
                Ok(Message::Flush(done)) => {
                    drop(output.flush());
                    let _ = done.try_send(());
                }
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
            // Without waiting, so that the log is flushed as soon as the queue is empty.
            next = receiver.try_recv();
        }
        drop(output.flush());
        let lines = dropped.swap(0, Ordering::Relaxed);
        if lines > 0 {
            // Through the queue, like every other line: it has room now.
            tracing::warn!(lines, "log lines were dropped, the log is read too slowly");
        }
    }
}

impl<'a> MakeWriter<'a> for LogQueue {
    type Writer = &'a LogQueue;

    fn make_writer(&'a self) -> &'a LogQueue {
        self
    }
}

impl Write for &LogQueue {
    /// Takes one whole line: the formatter writes an event with a single call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self.sender.try_send(Message::Line(line.to_vec())) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        let (done, written) = sync_channel(1);
        let mut message = Message::Flush(done);
        loop {
            match self.sender.try_send(message) {
                Ok(()) => break,
                Err(TrySendError::Disconnected(_)) => return,
                Err(TrySendError::Full(_)) if Instant::now() >= deadline => return,
                Err(TrySendError::Full(back)) => {
                    message = back;
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        }
        // Not written in time, or the thread has ended: nothing more can be done.
        let _ = written.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Clone, Default)]
    struct Slow(Arc<Mutex<Vec<u8>>>);

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_was_logged_is_written_before_the_guard_is_gone() {
        let output = Slow::default();
        let (queue, guard) = start(output.clone()).unwrap();
        for n in 0..1000 {
            (&queue).write_all(format!("line {n}\n").as_bytes()).unwrap();
        }
        drop(guard);
        let written = String::from_utf8(output.0.lock().unwrap().clone()).unwrap();
        assert_eq!(written.lines().count(), 1000);
        assert!(written.ends_with("line 999\n"));
    }

    #[test]
    fn a_log_that_nobody_reads_costs_lines_and_no_time() {
        let output = Slow::default();
        let stuck = output.0.lock().unwrap();
        let (queue, guard) = start(output.clone()).unwrap();
        let before = Instant::now();
        let lines = LINES + 100;
        for _ in 0..lines {
            (&queue).write_all(b"line\n").unwrap();
        }
        // The thread has taken one line, the rest must fit into the queue.
        let dropped = queue.dropped.load(Ordering::Relaxed);
        assert!((99..=100).contains(&dropped), "{dropped}");
        drop(guard);
        assert!(before.elapsed() < PATIENCE + Duration::from_secs(5));
        drop(stuck);
    }
}
