//! The audit trail: decisions about locks, as JSON lines in a file or on standard output. It follows the [`EventLog`],
//! formats what needs a line (`audit/record.rs`, `audit/fold_problems.rs`), and passes it to a thread that writes
//! (`audit/queue.rs`, `audit/writer.rs`, `audit/sink.rs`): no command waits for a disk. `audit/search.rs` finds lines
//! again for `lockwarden why`, and `audit/wording.rs` explains them in words; `docs/audit.md` describes the same for
//! operators.

mod fold_problems;
mod queue;
mod record;
mod search;
mod sink;
mod wording;
mod writer;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::events::{EventLog, Follower, LockEvent};
use super::metrics::Metrics;
use super::vocabulary::AuditSink;
use crate::config::{AuditConfig, AuditLevel, AuditTarget};
use fold_problems::{Folded, ProblemFolder, is_problem};
use queue::Line;
use record::Notice;
pub use record::{Answer, Client, InForce, Policy, Question, Record, VERSION, shown_command};
pub use search::{each_line, grant_of, records_with};
use sink::{LogFile, Sink};
pub use wording::told;
use writer::Writer;

/// The most notices that wait for the thread of the event log; an operator does not act faster.
const MAX_NOTICES: usize = 1024;

/// The part of the audit trail that sessions and the controller use.
#[derive(Default)]
pub struct Audit {
    level: AtomicU8,
    required: AtomicBool,
    line: Option<Arc<Line>>,
    on_stdout: bool,
    notices: Mutex<Vec<(Instant, Notice)>>,
}

/// Why there is no audit trail although one is configured.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The file cannot be opened.
    #[error("cannot write the audit file {path}: {why}")]
    File {
        /// As configured.
        path: String,
        /// The system's error.
        why: io::Error,
    },
    /// The writing thread could not be started.
    #[error("cannot start the thread that writes the audit trail: {0}")]
    Thread(#[source] io::Error),
}

/// The audit trail, and its follower where there is a target.
pub type Opened = (Arc<Audit>, Option<Box<dyn Follower>>);

impl Audit {
    /// Opens the sink, if one is configured, and starts the writing thread. The caller adds the follower to the event
    /// log.
    pub fn open(config: &AuditConfig, events: &Arc<EventLog>, metrics: &Metrics) -> Result<Opened, AuditError> {
        let Some(target) = &config.target else {
            return Ok((Arc::default(), None));
        };
        let (sink, label, name) = match target {
            AuditTarget::Stdout => (Sink::Stdout, AuditSink::Stdout, "stdout".to_owned()),
            AuditTarget::File(path) => {
                let name = path.display().to_string();
                let mut file = LogFile::new(path.clone(), config.limits);
                match file.opened() {
                    // A FIFO that has no reader yet.
                    Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {}
                    Ok(()) => {}
                    Err(why) => return Err(AuditError::File { path: name, why }),
                }
                (Sink::File(file), AuditSink::File, name)
            }
        };
        let line = Arc::new(Line::new(metrics.audit_dropped.at(label).clone()));
        let written = metrics.audit_records.at(label).clone();
        let writer = Writer::new(line.clone(), sink, name.clone(), written);
        std::thread::Builder::new().name("audit".to_owned()).spawn(move || writer.run()).map_err(AuditError::Thread)?;
        let audit =
            Arc::new(Audit { line: Some(line.clone()), on_stdout: *target == AuditTarget::Stdout, ..Audit::default() });
        audit.follow_settings(config, events);
        let scribe = Scribe {
            audit: audit.clone(),
            line,
            sink: name,
            events: events.clone(),
            dropped: 0,
            folder: ProblemFolder::new(),
        };
        Ok((audit, Some(Box::new(scribe))))
    }

    /// Whether a lock command may go on. If every decision needs its record, only while records can be written.
    pub fn may_go_on(&self, events: &EventLog) -> bool {
        if !self.required.load(Ordering::Relaxed) {
            return true;
        }
        let writable = self.line.as_ref().is_some_and(|line| line.is_writable());
        writable && !events.is_full()
    }

    /// Applies a new configuration and reopens the file, so that it can be moved away before.
    pub fn reload(&self, config: &AuditConfig, events: &EventLog) {
        let Some(line) = &self.line else { return };
        self.follow_settings(config, events);
        line.waiting.reopen(config.limits);
    }

    /// Whether the trail goes to standard output.
    pub fn is_on_stdout(&self) -> bool {
        self.on_stdout
    }

    fn follow_settings(&self, config: &AuditConfig, events: &EventLog) {
        self.level.store(config.level as u8, Ordering::Relaxed);
        self.required.store(config.required, Ordering::Relaxed);
        events.want_questions(match config.level {
            AuditLevel::All => config.questions,
            AuditLevel::Off | AuditLevel::Problems => 0,
        });
    }

    /// Records that the operator has changed what is in force, or tried to. `in_force` is called only if it is written
    /// down.
    pub fn notice(&self, event: &str, in_force: impl FnOnce() -> Vec<InForce>, detail: Option<&str>) {
        self.ordered(event, in_force, detail, None);
    }

    /// The same, with the client that ordered it.
    pub fn ordered(
        &self,
        event: &str,
        in_force: impl FnOnce() -> Vec<InForce>,
        detail: Option<&str>,
        client: Option<Client>,
    ) {
        if self.line.is_none() || self.level() == AuditLevel::Off {
            return;
        }
        let mut notice = Notice::new(event);
        notice.version = Some(env!("CARGO_PKG_VERSION").to_owned());
        notice.audit = Some(self.level().word().to_owned());
        notice.namespaces = in_force();
        notice.detail = detail.map(str::to_owned);
        notice.client = client;
        let mut notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        if notices.len() < MAX_NOTICES {
            notices.push((Instant::now(), notice));
        }
    }

    fn level(&self) -> AuditLevel {
        let level = self.level.load(Ordering::Relaxed);
        let same = |known: &&AuditLevel| **known as u8 == level;
        *AuditLevel::ALL.iter().find(same).unwrap_or(&AuditLevel::Off)
    }
}

/// The follower that formats events as lines.
struct Scribe {
    audit: Arc<Audit>,
    line: Arc<Line>,
    /// The sink's name, for the log.
    sink: String,
    events: Arc<EventLog>,
    /// How many entries the event log had dropped at the last check.
    dropped: u64,
    folder: ProblemFolder,
}

impl Follower for Scribe {
    fn follow(&mut self, entries: &[LockEvent], now: Instant) {
        self.tell_folded(now, false);
        let level = self.audit.level();
        let mut notices = {
            let waiting = &self.audit.notices;
            let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *waiting).into_iter().peekable()
        };
        for entry in entries {
            // Notices and entries arrive separately; in the trail they are in the order of their times.
            while let Some((_, notice)) = notices.next_if(|(at, _)| *at <= entry.at) {
                self.line.push(notice, now);
            }
            let told = match level {
                AuditLevel::Off => false,
                AuditLevel::All if self.is_whole(entry) => true,
                AuditLevel::Problems | AuditLevel::All => is_problem(entry) && self.folder.admit(entry, now),
            };
            if told {
                self.line.push(Record::line(entry), now);
            }
        }
        for (_, notice) in notices {
            self.line.push(notice, now);
        }
        let dropped = self.events.dropped();
        if dropped > self.dropped && level != AuditLevel::Off {
            self.line.lose(dropped - self.dropped);
        }
        self.dropped = dropped;
        self.line.waiting.wake();
        if self.line.is_stuck_since(now) {
            tracing::error!(sink = self.sink, "audit records cannot be written: the sink takes no more of them");
        }
    }

    fn finish(&mut self) {
        let now = Instant::now();
        self.tell_folded(now, true);
        if self.audit.level() != AuditLevel::Off {
            self.line.push(Notice::new("stopped"), now);
        }
        self.line.waiting.stop();
    }
}

impl Scribe {
    /// Whether everything is recorded for the connection that caused this entry, if any.
    fn is_whole(&self, entry: &LockEvent) -> bool {
        let caller = entry.caller.as_ref();
        caller.is_none_or(|caller| self.events.wants_questions_of(caller.session))
    }

    fn tell_folded(&mut self, now: Instant, end: bool) {
        for Folded { last, repeated, ids } in self.folder.drain(now, end) {
            let mut record = Record::line(&last);
            record.repeated = Some(repeated);
            record.ids = ids;
            self.line.push(record, now);
        }
    }
}
