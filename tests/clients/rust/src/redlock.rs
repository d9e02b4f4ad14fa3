//! `redlock`: a new connection for each command; no extension, and a release that does not report its
//! outcome.

use std::time::Duration;

use redlock::RedLock;

use crate::checks::{self, Answer, Check, LONG, PAUSE, Server};

pub struct Party {
    once: RedLock,
    patient: RedLock,
}

/// The library's own lock borrows its manager.
pub struct Held {
    key: Vec<u8>,
    value: Vec<u8>,
}

impl checks::Party for Party {
    const NAME: &'static str = "redlock";
    const CRATE: &'static str = "redlock";
    const EXTENDS: bool = false;
    const OWN: &'static [Check] = &[("guard", guard)];

    type Lock = Held;

    fn new(server: &Server) -> Party {
        let manager = |tries| {
            let mut manager = RedLock::new(vec![server.url.as_str()]);
            manager.set_retry(tries, u32::try_from(PAUSE.as_millis()).expect("milliseconds"));
            manager
        };
        Party { once: manager(1), patient: manager(100) }
    }

    fn take(&self, name: &str, ttl: Duration, wait: bool) -> Option<Held> {
        let manager = if wait { &self.patient } else { &self.once };
        let lock = manager.lock(name.as_bytes(), milliseconds(ttl));
        let lock = lock.unwrap_or_else(|error| panic!("{error}"))?;
        Some(Held { key: lock.resource, value: lock.val })
    }

    fn release(&self, lock: &Held) -> Answer {
        self.once.unlock(&redlock::Lock {
            resource: lock.key.clone(),
            val: lock.value.clone(),
            validity_time: 0,
            lock_manager: &self.once,
        });
        Answer::Untold
    }

    fn extend(&self, _: &Held, _: Duration) -> Answer {
        unreachable!("it cannot extend")
    }

    fn stranger(&self, name: &str) -> Held {
        Held { key: name.into(), value: b"\xff\x00twenty bytes, so".to_vec() }
    }
}

fn milliseconds(ttl: Duration) -> usize {
    usize::try_from(ttl.as_millis()).expect("milliseconds")
}

fn guard(server: &Server, name: &str) {
    let (one, other): (Party, Party) = (checks::Party::new(server), checks::Party::new(server));
    let guard = one.once.acquire(name.as_bytes(), milliseconds(LONG));
    let guard = guard.expect("a free lock");
    assert!(checks::Party::take(&other, name, LONG, false).is_none());
    drop(guard);
    assert!(server.is_free(name), "still held when the guard is gone");
}
