//! Observes keys that may be locks although no namespace covers them. Sessions examine some commands and leave
//! sightings; a separate thread makes patterns of them. No command waits for it: above a rate, commands are not
//! examined but only counted.

mod followed;
mod scripts;

use std::io;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use lockwarden_discovery::sighting::Doings;
use lockwarden_discovery::{Collector, KeyHash, Sighting, Wrote};
use lockwarden_lock::script_facts::ScriptSha;
use lockwarden_lock::token::Process;
use smallvec::SmallVec;

use super::events::{ByCaller, Caller, Waiting};
use crate::clock;
use followed::Followed;
pub use scripts::Likeness;
use scripts::SeenScripts;

/// The most sightings that wait for the thread; beyond that, new ones are dropped and counted.
const MAX_WAITING: usize = 32_768;
/// Commands that are examined per second; the rest are only counted.
const MAX_LOOKS: i64 = 5_000;
/// Writes of data that are reported per second; the rest are left out, whether under a lock or not.
const MAX_WRITES: i64 = 5_000;
/// Reads of tracked keys that are reported per second; the rest are left out. They show whether a value is meant to be
/// read.
const MAX_READS: i64 = 1_000;
/// How long a key that was written under a lock is remembered: at least this long, at most twice as long.
const WRITTEN_FOR: Duration = Duration::from_secs(600);
/// How often the sketch of tracked keys is rebuilt, so that keys that are no longer tracked leave it.
const RENEWED_EVERY: Duration = Duration::from_secs(30);

/// What a session saw a command do.
pub struct Seen {
    /// Unix time, ms.
    pub at_ms: u64,
    pub db: u32,
    pub caller: Arc<Caller>,
    pub what: What,
}

/// See [`Seen`].
pub enum What {
    /// Effects on keys that may be locks.
    Did(Doings),
    /// It called a script whose text is unknown, with this key as its first.
    CalledUnknown(ScriptSha, Bytes),
    /// It took the first lock of its connection, which had written these keys before.
    Began(Vec<Bytes>),
    /// It wrote data.
    Wrote {
        keys: SmallVec<[Bytes; 1]>,
        /// Locks of namespaces that the client held.
        under: SmallVec<[Bytes; 1]>,
        /// Whether the command may block.
        waits: bool,
    },
}

/// See the module.
pub struct Discovery {
    waiting: Waiting<Seen>,
    collector: Mutex<Collected>,
    followed: Followed,
    /// Data that was written by clients that may have held a lock.
    written: Followed,
    scripts: SeenScripts,
    /// Commands that may still be examined in this second.
    looks: AtomicI64,
    /// Writes of data that may still be reported in this second.
    writes: AtomicI64,
    /// Reads that may still be reported in this second.
    reads: AtomicI64,
    unseen: AtomicU64,
}

/// The results of the sightings.
pub struct Collected {
    pub collector: Collector,
    /// When observation began.
    pub since: Instant,
}

impl Default for Discovery {
    fn default() -> Discovery {
        Discovery {
            waiting: Waiting::new(),
            collector: Mutex::new(Collected { collector: Collector::default(), since: Instant::now() }),
            followed: Followed::default(),
            written: Followed::default(),
            scripts: SeenScripts::default(),
            looks: AtomicI64::new(MAX_LOOKS),
            writes: AtomicI64::new(MAX_WRITES),
            reads: AtomicI64::new(MAX_READS),
            unseen: AtomicU64::new(0),
        }
    }
}

impl Discovery {
    /// Whether another command may be examined now. Counts it either way.
    pub fn may_look(&self) -> bool {
        if self.looks.load(Ordering::Relaxed) > 0 {
            self.looks.fetch_sub(1, Ordering::Relaxed);
            return true;
        }
        self.unseen.fetch_add(1, Ordering::Relaxed);
        false
    }

    /// Whether a key is tracked, because it may have been taken as a lock.
    #[inline]
    pub fn follows(&self, db: u32, key: &[u8]) -> bool {
        !self.followed.is_empty() && self.followed.has(KeyHash::of(db, key))
    }

    /// Tracks this key: from now on, commands on it are examined.
    pub fn follow(&self, db: u32, key: &[u8]) {
        self.followed.add(KeyHash::of(db, key));
    }

    /// Whether this key of data was recently written by a client that may have held a lock.
    #[inline]
    pub fn is_written_under_a_lock(&self, db: u32, key: &[u8]) -> bool {
        !self.written.is_empty() && self.written.has(KeyHash::of(db, key))
    }

    /// Tracks a key of data that is written by a client that may hold a lock: from now on all writes of it are
    /// reported.
    pub fn follow_writes(&self, db: u32, key: &[u8]) {
        self.written.add(KeyHash::of(db, key));
    }

    /// Whether another write of data may be reported now.
    pub fn may_tell_write(&self) -> bool {
        self.writes.load(Ordering::Relaxed) > 0 && self.writes.fetch_sub(1, Ordering::Relaxed) > 0
    }

    /// Whether a read of this key should be reported.
    #[inline]
    pub fn may_tell_read(&self, db: u32, key: &[u8]) -> bool {
        !self.followed.is_empty()
            && self.reads.load(Ordering::Relaxed) > 0
            && self.follows(db, key)
            && self.reads.fetch_sub(1, Ordering::Relaxed) > 0
    }

    /// What is known of a script, by the text or digest with which a client called it.
    pub fn script(&self, called: &[u8]) -> Likeness<'_> {
        self.scripts.of(called)
    }

    /// Leaves a sighting for the thread.
    pub fn saw(&self, seen: Seen) {
        if !self.waiting.put(seen, MAX_WAITING) {
            self.unseen.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Commands that were not examined, because there were too many.
    pub fn unseen(&self) -> u64 {
        self.unseen.load(Ordering::Relaxed)
    }

    /// The results of all sightings except the most recent ones.
    pub fn collected(&self) -> MutexGuard<'_, Collected> {
        self.collector.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the thread. To be called once; it ends with the process.
    pub fn start(self: &Arc<Discovery>) -> io::Result<()> {
        let discovery = self.clone();
        let thread = std::thread::Builder::new().name("discovery".to_owned()).spawn(move || discovery.collect())?;
        self.waiting.wait_for(thread.thread().clone());
        Ok(())
    }

    fn collect(&self) {
        let mut all = Vec::new();
        let mut applications = ByCaller::default();
        let (mut filled, mut renewed) = (Instant::now(), Instant::now());
        let mut forgot = Instant::now();
        loop {
            self.waiting.take(&mut all);
            let now = Instant::now();
            if now.duration_since(filled) >= Duration::from_secs(1) {
                filled = now;
                self.looks.store(MAX_LOOKS, Ordering::Relaxed);
                self.writes.store(MAX_WRITES, Ordering::Relaxed);
                self.reads.store(MAX_READS, Ordering::Relaxed);
            }
            let was_busy = !all.is_empty();
            // Before taking the lock, so that readers of the results do not wait for this.
            for seen in &all {
                seen.caller.known_by.await_program();
            }
            {
                let mut collected = self.collected();
                for seen in all.drain(..) {
                    let application: Arc<str> = applications.of(&seen.caller, |caller| caller.application().into());
                    self.take(&mut collected.collector, seen, &application);
                }
                collected.collector.expire(clock::now_ms());
                if now.duration_since(renewed) >= RENEWED_EVERY {
                    renewed = now;
                    self.followed.renew(collected.collector.followed());
                }
            }
            if now.duration_since(forgot) >= WRITTEN_FOR {
                forgot = now;
                self.written.renew(std::iter::empty());
            }
            self.waiting.rest(was_busy);
        }
    }

    fn take(&self, collector: &mut Collector, seen: Seen, application: &Arc<str>) {
        let (at_ms, db, session) = (seen.at_ms, seen.db, seen.caller.session.0);
        let process = match seen.caller.known_by.process() {
            Process::Known(hash) => Some(u64::from_le_bytes(hash)),
            Process::None | Process::Pending => None,
        };
        match seen.what {
            What::Did(doings) => {
                for (key, did) in doings {
                    collector.see(&Sighting {
                        at_ms,
                        db,
                        key,
                        session,
                        application: application.clone(),
                        process,
                        did,
                    });
                }
            }
            What::CalledUnknown(sha, key) => collector.called_unknown(sha, &key),
            What::Began(keys) => collector.began(session, keys),
            What::Wrote { keys, under, waits } => {
                let holds = |key: &Bytes| under.contains(key) || collector.holds(session, db, key, at_ms);
                let is_unfit = waits || (keys.len() > 1 && keys.iter().any(holds));
                for key in keys {
                    let wrote = Wrote {
                        at_ms,
                        db,
                        key,
                        session,
                        application: application.clone(),
                        under: under.clone(),
                        is_unfit,
                    };
                    collector.wrote(&wrote);
                }
            }
        }
    }
}
