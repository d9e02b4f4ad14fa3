//! What is seen of keys that may be locks although no namespace has them. Sessions look at few commands and leave what
//! they saw; a thread of its own makes patterns of it. No command waits for it: above a rate, commands
//! are not looked at and counted.

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

/// Sightings that wait for the thread; above that new ones are dropped and counted.
const MAX_WAITING: usize = 32_768;
/// Commands that are looked at in a second; the rest are counted.
const MAX_LOOKS: i64 = 5_000;
/// Writes of data that are told in a second; the rest are left out, those under a lock as well as the others.
const MAX_WRITES: i64 = 5_000;
/// Reads of followed keys that are told in a second; the rest are left out. They show whether a value is there to be read.
const MAX_READS: i64 = 1_000;
/// For so long at least, and twice as long at most, a key is known that was written under a lock.
const WRITTEN_FOR: Duration = Duration::from_secs(600);
/// The sketch of followed keys is made anew this often, so that keys that are not followed any more leave it.
const RENEWED_EVERY: Duration = Duration::from_secs(30);

/// What a session saw one command do.
pub struct Seen {
    /// Unix time, ms.
    pub at_ms: u64,
    pub db: u32,
    pub caller: Arc<Caller>,
    pub what: What,
}

/// See [`Seen`].
pub enum What {
    /// It concerns keys that may be locks.
    Did(Doings),
    /// It called a script of which nothing is known, with this key first.
    CalledUnknown(ScriptSha, Bytes),
    /// It took the first lock of its connection, which had written these keys before.
    Began(Vec<Bytes>),
    /// It wrote data.
    Wrote {
        keys: SmallVec<[Bytes; 1]>,
        /// Locks of namespaces that the client held.
        under: SmallVec<[Bytes; 1]>,
        /// It is a command that may wait.
        waits: bool,
    },
}

/// See the module.
pub struct Discovery {
    waiting: Waiting<Seen>,
    collector: Mutex<Collected>,
    followed: Followed,
    /// Data that was written by a client that may have held a lock.
    written: Followed,
    scripts: SeenScripts,
    /// Looks that are left in this second.
    looks: AtomicI64,
    /// Writes of data that may be told yet in this second.
    writes: AtomicI64,
    /// Reads that may be told yet in this second.
    reads: AtomicI64,
    unseen: AtomicU64,
}

/// What came of the sightings.
pub struct Collected {
    pub collector: Collector,
    /// When the first of them could come.
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
    /// Whether a further command may be looked at now.
    pub fn may_look(&self) -> bool {
        if self.looks.load(Ordering::Relaxed) > 0 {
            self.looks.fetch_sub(1, Ordering::Relaxed);
            return true;
        }
        self.unseen.fetch_add(1, Ordering::Relaxed);
        false
    }

    /// Whether a key is followed, because it may have been taken as a lock.
    #[inline]
    pub fn follows(&self, db: u32, key: &[u8]) -> bool {
        !self.followed.is_empty() && self.followed.has(KeyHash::of(db, key))
    }

    /// From now on what is done to this key is looked at.
    pub fn follow(&self, db: u32, key: &[u8]) {
        self.followed.add(KeyHash::of(db, key));
    }

    /// Whether a key of data was written of late by a client that may have held a lock.
    #[inline]
    pub fn is_written_under_a_lock(&self, db: u32, key: &[u8]) -> bool {
        !self.written.is_empty() && self.written.has(KeyHash::of(db, key))
    }

    /// A key of data is written by a client that may hold a lock: from now on all writes of it are told.
    pub fn follow_writes(&self, db: u32, key: &[u8]) {
        self.written.add(KeyHash::of(db, key));
    }

    /// Whether a further write of data may be told now.
    pub fn may_tell_write(&self) -> bool {
        self.writes.load(Ordering::Relaxed) > 0 && self.writes.fetch_sub(1, Ordering::Relaxed) > 0
    }

    /// Whether a read of this key is to be told.
    #[inline]
    pub fn may_tell_read(&self, db: u32, key: &[u8]) -> bool {
        !self.followed.is_empty()
            && self.reads.load(Ordering::Relaxed) > 0
            && self.follows(db, key)
            && self.reads.fetch_sub(1, Ordering::Relaxed) > 0
    }

    /// What is known of a script, by the text or the name that a client called it by.
    pub fn script(&self, called: &[u8]) -> Likeness<'_> {
        self.scripts.of(called)
    }

    /// Leaves what was seen.
    pub fn saw(&self, seen: Seen) {
        if !self.waiting.put(seen, MAX_WAITING) {
            self.unseen.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Commands that were not looked at, because there were too many.
    pub fn unseen(&self) -> u64 {
        self.unseen.load(Ordering::Relaxed)
    }

    /// What came of everything that was left a moment ago.
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
            // Before the lock: a question about what was collected does not wait as well.
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
