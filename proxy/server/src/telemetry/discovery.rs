//! What is seen of keys that may be locks although no namespace has them. Sessions look at few commands and leave what
//! they saw; a thread of its own makes patterns of it. Nobody on the way of a command waits for it: above a rate, commands
//! are not looked at and counted.

mod followed;
mod scripts;

use std::io;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lockwarden_discovery::sighting::Doings;
use lockwarden_discovery::{Collector, KeyHash, Sighting};

use super::events::{ByCaller, Caller, Waiting};
use crate::clock;
use followed::Followed;
pub(crate) use scripts::Likeness;
use scripts::SeenScripts;

/// Sightings that wait for the thread; above that new ones are dropped and counted.
const MAX_WAITING: usize = 32_768;
/// Commands that are looked at in a second; the rest are counted.
const MAX_LOOKS: i64 = 5_000;
/// The sketch of followed keys is made anew this often, so that keys that are not followed any more leave it.
const RENEWED_EVERY: Duration = Duration::from_secs(30);

/// What a session saw one command do.
pub(crate) struct Seen {
    /// Unix time, ms.
    pub(crate) at_ms: u64,
    pub(crate) db: u32,
    pub(crate) caller: Arc<Caller>,
    pub(crate) doings: Doings,
}

/// See the module.
pub(crate) struct Discovery {
    waiting: Waiting<Seen>,
    collector: Mutex<Collected>,
    followed: Followed,
    scripts: SeenScripts,
    /// Looks that are left in this second.
    looks: AtomicI64,
    unseen: AtomicU64,
}

/// What came of the sightings.
pub(crate) struct Collected {
    pub(crate) collector: Collector,
    /// When the first of them could come.
    pub(crate) since: Instant,
}

impl Default for Discovery {
    fn default() -> Discovery {
        Discovery {
            waiting: Waiting::new(),
            collector: Mutex::new(Collected {
                collector: Collector::default(),
                since: Instant::now(),
            }),
            followed: Followed::default(),
            scripts: SeenScripts::default(),
            looks: AtomicI64::new(MAX_LOOKS),
            unseen: AtomicU64::new(0),
        }
    }
}

impl Discovery {
    /// Whether a further command may be looked at now.
    pub(crate) fn may_look(&self) -> bool {
        if self.looks.load(Ordering::Relaxed) > 0 {
            self.looks.fetch_sub(1, Ordering::Relaxed);
            return true;
        }
        self.unseen.fetch_add(1, Ordering::Relaxed);
        false
    }

    /// Whether a key is followed, because somebody may have taken it as a lock.
    #[inline]
    pub(crate) fn follows(&self, db: u32, key: &[u8]) -> bool {
        !self.followed.is_empty() && self.followed.has(KeyHash::of(db, key))
    }

    /// From now on what is done to this key is looked at.
    pub(crate) fn follow(&self, db: u32, key: &[u8]) {
        self.followed.add(KeyHash::of(db, key));
    }

    /// What is known of a script, by the text or the name that a client called it by.
    pub(crate) fn script(&self, called: &[u8]) -> Likeness<'_> {
        self.scripts.of(called)
    }

    /// Leaves what was seen.
    pub(crate) fn saw(&self, seen: Seen) {
        if !self.waiting.put(seen, MAX_WAITING) {
            self.unseen.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Commands that were not looked at, because there were too many.
    pub(crate) fn unseen(&self) -> u64 {
        self.unseen.load(Ordering::Relaxed)
    }

    /// What came of everything that was left a moment ago.
    pub(crate) fn collected(&self) -> MutexGuard<'_, Collected> {
        self.collector
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the thread. To be called once; it ends with the process.
    pub(crate) fn start(self: &Arc<Discovery>) -> io::Result<()> {
        let discovery = self.clone();
        let thread = std::thread::Builder::new()
            .name("discovery".to_owned())
            .spawn(move || discovery.collect())?;
        self.waiting.wait_for(thread.thread().clone());
        Ok(())
    }

    fn collect(&self) {
        let mut all = Vec::new();
        let mut applications = ByCaller::default();
        let (mut filled, mut renewed) = (Instant::now(), Instant::now());
        loop {
            self.waiting.take(&mut all);
            let now = Instant::now();
            if now.duration_since(filled) >= Duration::from_secs(1) {
                filled = now;
                self.looks.store(MAX_LOOKS, Ordering::Relaxed);
            }
            let was_busy = !all.is_empty();
            // Before the lock: whoever asks what was collected does not wait as well.
            for seen in &all {
                seen.caller.known_by.await_program();
            }
            {
                let mut collected = self.collected();
                for seen in all.drain(..) {
                    let application: Arc<str> =
                        applications.of(&seen.caller, |caller| caller.application().into());
                    for (key, did) in seen.doings {
                        collected.collector.see(&Sighting {
                            at_ms: seen.at_ms,
                            db: seen.db,
                            key,
                            session: seen.caller.session.0,
                            application: application.clone(),
                            did,
                        });
                    }
                }
                collected.collector.expire(clock::now_ms());
                if now.duration_since(renewed) >= RENEWED_EVERY {
                    renewed = now;
                    self.followed.renew(collected.collector.followed());
                }
            }
            self.waiting.rest(was_busy);
        }
    }
}
