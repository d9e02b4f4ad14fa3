//! `rslock`: SET NX, a release script of its own, and an extension by SET, over one connection that all tasks
//! share. A release does not report its outcome.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use rslock::{LockError, LockManager};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::checks::{self, Answer, Check, LONG, PAUSE, SHORT, Server};

pub struct Party {
    runtime: Runtime,
    once: LockManager,
    patient: LockManager,
}

impl checks::Party for Party {
    const NAME: &'static str = "rslock";
    const CRATE: &'static str = "rslock";
    const OWN: &'static [Check] = &[
        ("is freed", is_freed),
        ("other connection", other_connection),
        ("tasks of one connection", tasks),
        ("using", using),
    ];

    type Lock = rslock::Lock;

    fn new(server: &Server) -> Party {
        let once = manager(server, 1);
        let mut patient = once.clone();
        patient.set_retry(50, 2 * PAUSE);
        Party { runtime: Runtime::new().expect("a runtime"), once, patient }
    }

    fn take(&self, name: &str, ttl: Duration, wait: bool) -> Option<rslock::Lock> {
        let manager = if wait { &self.patient } else { &self.once };
        unless_unavailable(self.runtime.block_on(manager.lock(name, ttl)))
    }

    fn release(&self, lock: &rslock::Lock) -> Answer {
        self.runtime.block_on(self.once.unlock(lock));
        Answer::Untold
    }

    fn extend(&self, lock: &rslock::Lock, ttl: Duration) -> Answer {
        let extended = self.runtime.block_on(self.once.extend(lock, ttl));
        match unless_unavailable(extended) {
            Some(_) => Answer::Done,
            None => Answer::Refused,
        }
    }

    fn stranger(&self, name: &str) -> rslock::Lock {
        rslock::Lock {
            resource: name.into(),
            val: b"\xff\x00twenty bytes, so".to_vec(),
            validity_time: 10_000,
            lock_manager: self.once.clone(),
        }
    }
}

fn manager(server: &Server, tries: u32) -> LockManager {
    let mut manager = LockManager::new(vec![server.url.as_str()]);
    manager.set_retry(tries, PAUSE);
    manager
}

fn unless_unavailable(lock: Result<rslock::Lock, LockError>) -> Option<rslock::Lock> {
    match lock {
        Ok(lock) => Some(lock),
        Err(LockError::Unavailable) => None,
        Err(error) => panic!("{error}"),
    }
}

fn is_freed(server: &Server, name: &str) {
    let party: Party = checks::Party::new(server);
    let lock = checks::taken(&party, name, SHORT);
    let freed = |lock| party.runtime.block_on(party.once.is_freed(lock));
    assert!(matches!(freed(&lock), Ok(false)), "a lock that is held");
    let stranger = checks::Party::stranger(&party, name);
    let mismatch = freed(&stranger);
    assert!(matches!(mismatch, Err(LockError::RedisKeyMismatch)), "{mismatch:?}");
    server.wait_until_free(name);
    let gone = freed(&lock);
    assert!(matches!(gone, Err(LockError::RedisKeyNotFound)), "{gone:?}");
}

/// Another manager has the lock object, for example after a reconnect.
fn other_connection(server: &Server, name: &str) {
    let (one, other): (Party, Party) = (checks::Party::new(server), checks::Party::new(server));
    let lock = checks::taken(&one, name, LONG);
    let before = server.lease(name);
    assert_eq!(checks::Party::extend(&other, &lock, 2 * LONG), Answer::Done);
    assert!(server.lease(name).end > before.end, "the TTL did not grow");
    checks::released(server, &other, &lock, name);
}

/// Eight tasks take one lock in turns over one connection, each with owner tokens of its own.
fn tasks(server: &Server, name: &str) {
    let party: Party = checks::Party::new(server);
    let inside = Arc::new(AtomicUsize::new(0));
    party.runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for _ in 0..8 {
            tasks.spawn(task(party.patient.clone(), name.to_owned(), inside.clone()));
        }
        tasks.join_all().await;
    });
    assert!(server.is_free(name), "still held after the last release");
}

async fn task(manager: LockManager, name: String, inside: Arc<AtomicUsize>) {
    for _ in 0..3 {
        let guard = manager.acquire(name.as_str(), LONG).await.expect("a lock");
        assert_eq!(inside.fetch_add(1, SeqCst), 0, "two tasks at a time");
        tokio::time::sleep(Duration::from_millis(2)).await;
        inside.fetch_sub(1, SeqCst);
        guard.release().await;
    }
}

/// A routine that takes longer than the TTL: the library extends half a second before the end.
fn using(server: &Server, name: &str) {
    let party: Party = checks::Party::new(server);
    let ttl = Duration::from_millis(1200);
    let routine = async || {
        let first = server.lease(name);
        tokio::time::sleep(Duration::from_millis(1400)).await;
        let last = server.lease(name);
        assert_eq!(last.value, first.value, "it was not held all the time");
        assert!(last.end > first.end, "the TTL did not grow");
        7
    };
    let end = party.once.using(name.as_bytes(), ttl, routine);
    assert_eq!(party.runtime.block_on(end).expect("a result"), 7);
    assert!(server.is_free(name), "still held behind the routine");
}
